//! Supervises one child process call: start, feed, drain, limits, cancel, sweep.

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
#[cfg(target_os = "linux")]
mod leftovers;
mod limits;
mod lines;
mod mark;
mod output;
mod process_table;
mod program;
mod report;
mod shutdown;
mod spec;
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
pub use report::{CallReport, Collected, Ending};
pub use shutdown::{Gentle, Shutdown};
pub use spec::{ChildSpec, Input, Isolation, Output};
pub use subreaper::become_subreaper;
pub use text::{Utf8Decoder, sanitize};
pub use transcript::{Transcript, TranscriptReport};
