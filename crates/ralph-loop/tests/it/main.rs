//! Drives the built program as a user does: a home of its own for each test, real processes, real files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad_input;
mod capture;
mod demo;
mod endings;
mod help;
mod inspection;
mod interruption;
mod known_agents;
mod objectives;
mod output;
mod reports;
mod settings;
mod sharing;
mod signals;
mod stage;
mod terminal;
