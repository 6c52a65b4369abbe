use harness_provider_cli::parts::CaptureFiles;
use harness_provider_cli::value_file::{self, ValueFile};
use serde_json::Value;

/// What a child handed in that was asked for a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Handed {
    Accepted(Value),
    Refused(Value),
    Unreadable(String),
    Nothing,
}

impl Handed {
    /// Reads what the capture server has left: the value that it accepted, else the last that it refused.
    pub(crate) fn read(files: &CaptureFiles, max_bytes: u64) -> Self {
        match value_file::read(&files.accepted, max_bytes) {
            ValueFile::Value(value) => return Self::Accepted(value),
            ValueFile::Unreadable(why) => return Self::Unreadable(why),
            _ => {}
        }
        match value_file::read(&files.refused, max_bytes) {
            ValueFile::Value(value) => Self::Refused(value),
            ValueFile::Unreadable(why) => Self::Unreadable(why),
            _ => Self::Nothing,
        }
    }
}
