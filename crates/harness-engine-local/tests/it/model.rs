//! The engine does what the kit's model of an engine does, with and without a journal.

use harness_testkit::workflow::EngineConstructor;
use harness_testkit::workflow::model::hold_to_model;

use crate::conformance::{in_memory, journaled};

#[test]
fn the_engine_behaves_like_the_model() {
    hold_to_model(256, || EngineConstructor::new(in_memory::new_engine));
}

#[test]
fn a_durable_engine_behaves_like_the_model() {
    hold_to_model(64, || EngineConstructor::new(journaled::new_engine));
}
