//! The half of the kit for `harness-workflow`.
//!
//! [`StubEngine`] is a double for tests of whatever calls an engine. [`ENGINE_SUITE`] and its macro,
//! [`workflow_engine_conformance`](crate::workflow_engine_conformance), hold an engine to the contract.

mod bench;
pub mod checks;
mod engine_suite;
mod fixture;
#[cfg(feature = "proptest1")]
pub mod model;
mod script;
mod stub;

pub use engine_suite::ENGINE_SUITE;
pub use fixture::{EngineConstructor, EngineFixture};
pub use script::{Ask, ScriptedBody, Step};
pub use stub::{StubChild, StubEngine, StubEngineHandle};
