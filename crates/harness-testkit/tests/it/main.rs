//! Tests of the test kit.

#[cfg(feature = "subagent")]
mod mock_provider;
