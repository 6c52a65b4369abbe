//! The checks of the suite, one for each clause of the contract.
//!
//! A check makes the engine that it judges, uses nothing of it but the public traits, and panics when the clause is
//! broken. What happens elsewhere it waits for, so runs may live in other processes.

#![expect(clippy::missing_panics_doc, reason = "every check panics when its clause is broken, and only then")]

mod calls;
mod cancel;
mod children;
mod dispose;
mod engine;
mod events;
mod limits;
mod run;
mod start;

pub use calls::*;
pub use cancel::*;
pub use children::*;
pub use dispose::*;
pub use engine::*;
pub use events::*;
pub use limits::*;
pub use run::*;
pub use start::*;
