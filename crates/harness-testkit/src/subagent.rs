//! Doubles and suites for the seam `harness-subagent`.
//!
//! # A scripted provider
//!
//! [`MockProvider`] runs children that follow a script. Its [`MockProviderHandle`] records what it was asked,
//! holds starts, ends and releases back, and tells whether a child is left.
//!
//! ```
//! use std::sync::Arc;
//!
//! use harness_subagent::{Capabilities, Parent, StartSubagent, StopReason, SubagentProvider};
//! use harness_testkit::subagent::{MockChild, MockProvider};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> harness_subagent::Result<()> {
//! let (provider, handle) = MockProvider::new(Capabilities::ALL);
//! handle.script([MockChild::value(json!({ "answer": 42 })), MockChild::hanging()]);
//!
//! let first = provider.start(StartSubagent::new("answer", Parent::new("me", "/tmp"))).await?;
//! assert_eq!(first.result().await?.structured, Some(json!({ "answer": 42 })));
//!
//! let second = StartSubagent::new("think", Parent::new("me", "/tmp"));
//! let cancellation = second.cancellation.clone();
//! let second = provider.start(second).await?;
//! cancellation.cancel();
//! assert_eq!(second.result().await?.stop_reason, StopReason::ABORTED);
//!
//! assert_eq!(handle.request(1).prompt, "answer");
//! first.dispose().await?;
//! second.dispose().await?;
//! handle.assert_nothing_left();
//! # Ok(())
//! # }
//! ```

mod capture;
mod instant;
mod mock_child;
mod mock_handle;
mod mock_provider;
mod mock_rule;
mod mock_run;
pub mod provider_checks;
mod provider_fixture;
mod provider_suite;
mod recorder;
pub mod registry_checks;
mod registry_fixture;
mod registry_suite;
#[cfg(feature = "proptest1")]
pub mod strategies;

pub use capture::CaptureStandIn;
pub use instant::InstantProvider;
pub use mock_child::MockChild;
pub use mock_handle::MockProviderHandle;
pub use mock_provider::MockProvider;
pub use mock_rule::MockRule;
pub use provider_fixture::{ProviderFixture, ProviderTraits, StandardChild};
pub use provider_suite::PROVIDER_SUITE;
pub use recorder::{SeenEnding, SeenEvent, SubagentRecorder};
pub use registry_fixture::{RegistryFixture, RegistryTraits, TreeLimits};
pub use registry_suite::REGISTRY_SUITE;
