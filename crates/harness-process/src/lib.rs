//! Supervises one child process call: start, feed, drain, limits, cancel, sweep.
//!
//! A [`ChildSpec`] describes the call, [`start`] makes it, and the [`CallReport`] says what came of it. In
//! between, a task of the tokio runtime keeps both output streams drained and the limits kept, whether or
//! not anybody waits. When the call is over, so is everything that the child has started.
//!
//! This crate does not know what the child is or what its words mean: it reports an [`Ending`] from the
//! exit status and from what was done to the child, and nothing else. It runs no shell and reads no
//! configuration. Whoever writes a provider that runs a program depends on it; applications want a
//! provider.
//!
//! ```
//! use std::time::Duration;
//!
//! use harness_process::{ChildSpec, Ending, Environment, Input, Limits, Output, start};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), harness_process::StartError> {
//! let spec = ChildSpec::new("cat")
//!     .with_environment(Environment::basic().set("NO_COLOR", "1"))
//!     .with_input(Input::Bytes(b"a prompt of any length".to_vec()))
//!     .with_output(Output::Collect { max: 1024 * 1024 })
//!     .with_limits(Limits::default().with_deadline(Duration::from_secs(600)));
//!
//! let report = start(spec)?.wait().await;
//!
//! assert_eq!(report.ending, Ending::Exited { code: 0 });
//! let collected = report.collected.as_ref().expect("output is collected");
//! assert_eq!(collected.bytes, b"a prompt of any length");
//! # Ok(())
//! # }
//! ```
//!
//! # What the child gets
//!
//! A session of its own, the variables that its [`Environment`] names, a [`Mark`] among them, default
//! signal handling, and no descriptor but its three standard streams. The program is found before anything
//! is started, and what is wrong with it is a [`StartError`] that names it.
//!
//! # What is left behind
//!
//! Nothing, where the application has called [`become_subreaper`]: every orphan below it becomes its child,
//! and each call ends those of its own tree, by session, by mark, and by descent. Without it, a call finds
//! what has its mark or its session. A call whose own process was killed cannot clean up; the next process
//! does, with `sweep_leftovers`.
//!
//! Processes are killed by pid only when their start time is the one that was seen, and reaped one by one:
//! other children of the application are left alone, except as `become_subreaper` says.
//!
//! # Systems
//!
//! - **Linux** 5.3 or later, with `/proc`. Older kernels lack the descriptors by which exits are noticed
//!   and strangers are told from leftovers for certain; a handler for `SIGCHLD` and start times take their
//!   place. With a glibc older than 2.34, or with musl, descriptors that somebody forgot to mark
//!   close-on-exec reach the child. [`Isolation::Session`] has what depends on glibc 2.29.
//! - **macOS** 10.15 or later is compiled for and has not been tested. Nobody can adopt orphans there, and
//!   this crate does not look for marks: what a child leaves is killed as far as it stayed in its process
//!   group, and there is no `sweep_leftovers`.
//! - Elsewhere the crate refuses to compile.

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("harness-process supervises children on Linux and macOS only");

mod child;
mod clock;
mod course;
mod environment;
mod error;
mod exit;
#[cfg(target_os = "linux")]
mod hunt;
mod input;
mod kin;
#[cfg(target_os = "linux")]
mod leftovers;
mod limits;
mod lines;
mod live;
mod mark;
mod output;
mod process_table;
mod program;
mod report;
mod shutdown;
mod spec;
mod streams;
mod subreaper;
mod supervise;
mod sys;
mod tail;
mod text;
mod transcript;
mod tree;

pub use child::{Child, ChildControl, start};
pub use environment::Environment;
pub use error::{StartError, StartErrorKind};
pub use input::ChildStdin;
#[cfg(target_os = "linux")]
pub use leftovers::{Leftovers, sweep_leftovers};
pub use limits::{Limit, Limits};
pub use lines::{Line, LineReader};
pub use mark::Mark;
pub use output::ChildStdout;
pub use program::find_program;
pub use report::{CallReport, Collected, Ending};
pub use shutdown::{Gentle, Shutdown};
pub use spec::{ChildSpec, Input, Isolation, Output};
pub use subreaper::become_subreaper;
pub use text::{Utf8Decoder, sanitize};
pub use transcript::{Transcript, TranscriptReport};

/// The examples of the read-me run too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
