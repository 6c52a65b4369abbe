//! The test kit of the harness seams: scripted doubles, conformance suites, strategies.
//!
//! It has a module for each seam, behind a feature of the same name:
//!
//! - `subagent`: scripted providers and the suites that hold a provider or a registry to its contract;
//! - `workflow`: a scripted engine and the suite that holds an engine to its contract.
//!
//! With the feature `model-server` it has a scripted stand-in for the HTTP APIs of language models, for tests that run
//! real agents: the module `model_server`.
//!
//! [`conformance`] is what the suites are made of. With `proptest1` there are strategies for property tests.
//!
//! # A complete test
//!
//! A scripted provider stands in for a model, and tells afterwards what it was asked and whether anything is left:
//!
//! ```
//! # #[cfg(not(feature = "subagent"))]
//! # fn main() {}
//! # #[cfg(feature = "subagent")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> harness_subagent::Result<()> {
//! use harness_subagent::{Capabilities, Parent, StartSubagent, StopReason, SubagentProvider};
//! use harness_testkit::subagent::{MockChild, MockProvider};
//!
//! /// What is under test: asks again as long as the child refuses.
//! async fn ask_until_answered(provider: &dyn SubagentProvider, question: &str) -> harness_subagent::Result<String> {
//!     loop {
//!         let run = provider.start(StartSubagent::new(question, Parent::new("me", "."))).await?;
//!         let result = run.result().await;
//!         run.dispose().await?;
//!         let result = result?;
//!         if result.stop_reason != StopReason::REFUSAL {
//!             return Ok(result.output);
//!         }
//!     }
//! }
//!
//! let (provider, handle) = MockProvider::new(Capabilities::NONE);
//! handle.script([MockChild::failing(StopReason::REFUSAL), MockChild::text("well then")]);
//! assert_eq!(ask_until_answered(&provider, "how?").await?, "well then");
//! assert_eq!((handle.starts(), handle.request(2).prompt.as_str()), (2, "how?"));
//! handle.assert_nothing_left();
//! # Ok(())
//! # }
//! ```

pub mod conformance;
#[cfg(feature = "model-server")]
pub mod model_server;
#[cfg(feature = "subagent")]
pub mod subagent;
#[cfg(feature = "subagent")]
mod wait;
#[cfg(feature = "workflow")]
pub mod workflow;
