//! Parts of which a provider is made whose children are programs that speak some other protocol.
//!
//! Applications want a provider. This is for whoever writes one beside those of this crate: its children get the same
//! files, the same mark and the same capture server, are told the same about handing in, and are released in the same
//! way. Supervision itself is in [`harness_process`].

pub use crate::call_files::CallFiles;
pub use crate::capture::{Capture, CaptureFiles};
pub use crate::child_id::child_id;
pub use crate::command::{mark_label, refusal, unwritable};
pub use crate::instructions::{missing, with_how};
pub use crate::run::{CliRun, End};
