//! The round report of a Ralph loop: its schema, its validator, its size measure and its violations.

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod borrowed;
mod document;
mod given;
mod judge;
mod limits;
mod plain;
mod report;
pub mod schema;
mod status;
pub mod text;
mod violation;

pub use borrowed::RoundReportRef;
pub use limits::Limits;
pub use report::{Outcome, RoundReport};
pub use status::Status;
pub use violation::{Field, InvalidReport, Measure, Violation, ViolationKind};
