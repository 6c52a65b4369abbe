//! Drives the built program as a user does: a home of its own for each test, real processes, real files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod acp_agents;
mod bad_input;
mod capture;
mod captures;
mod client;
mod demo;
mod endings;
mod help;
mod inspection;
mod interruption;
mod known_agents;
mod mcp;
mod objectives;
mod output;
mod pty;
mod reports;
mod settings;
mod sharing;
mod signals;
mod snapshots;
mod stable;
mod stage;
mod temporal;
mod terminal;
mod typed_interrupts;
