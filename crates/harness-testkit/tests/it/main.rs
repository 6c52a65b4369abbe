//! Tests of the test kit.

#[cfg(feature = "subagent")]
mod broken_provider;
mod clauses;
#[cfg(feature = "subagent")]
mod mock_fixture;
#[cfg(feature = "subagent")]
mod mock_provider;
#[cfg(feature = "subagent")]
mod provider_suite;
