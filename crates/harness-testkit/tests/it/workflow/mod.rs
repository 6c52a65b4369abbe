#![expect(clippy::unwrap_used, reason = "a test panics to fail")]

mod broken_engine;
#[path = "../../../examples/custom_engine.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "the example is a program of its own; its engine is what is tested here"
)]
mod custom_engine;
mod engine_suite;
#[cfg(feature = "proptest1")]
mod model;
mod stub;
