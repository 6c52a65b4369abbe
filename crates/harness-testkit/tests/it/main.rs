//! Tests of the test kit.

#[cfg(feature = "subagent")]
mod broken_provider;
#[cfg(feature = "subagent")]
mod broken_registry;
#[cfg(feature = "subagent")]
mod capture;
mod clauses;
mod inventory;
#[cfg(feature = "subagent")]
mod local_fixture;
#[cfg(feature = "subagent")]
mod mock_fixture;
#[cfg(feature = "subagent")]
mod mock_provider;
#[cfg(feature = "model-server")]
mod model_server;
#[cfg(feature = "subagent")]
mod outside;
#[cfg(feature = "subagent")]
mod provider_suite;
#[cfg(feature = "subagent")]
mod registry_suite;
#[cfg(all(feature = "subagent", feature = "proptest1"))]
mod strategies;
#[cfg(feature = "workflow")]
mod workflow;
