//! The tests of the tool, its loop and what they are made of.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage fails")]

#[path = "../prompts/mod.rs"]
mod prompts;
#[path = "../vectors/mod.rs"]
mod vectors;

mod abort;
mod calls;
mod committed_vectors;
mod configuration;
mod decoding;
mod errors;
mod hostile_prompts;
mod hosts;
mod inventory;
mod presentation;
mod public_types;
mod refusals;
mod rendering;
mod rounds;
mod stage;
mod trajectory;
