use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::NamedTempFile;

use super::CaptureFiles;
use super::judge::{self, Judge};

/// Where reports are handed in.
#[derive(Debug)]
pub(super) struct Desk {
    tool: String,
    pub(super) judge: Judge,
    files: CaptureFiles,
    pub(super) corrections: u32,
    refusals: u32,
    /// The last refusal was final.
    closed: bool,
}

/// What the agent is told.
#[derive(Debug)]
pub(super) enum Said {
    /// Its report stands.
    Done(String),
    /// This report was not taken.
    Refused(String),
}

impl Desk {
    pub(super) fn new(tool: String, judge: Judge, files: CaptureFiles) -> Self {
        Self { tool, judge, files, corrections: 2, refusals: 0, closed: false }
    }

    pub(super) fn hand_in(&mut self, value: &Value) -> Said {
        let json = value.to_string();
        if stands_at(&self.files.value) {
            return self.already(&json);
        }
        if self.closed {
            return Said::Refused(CLOSED.to_owned());
        }
        let violations = self.judge.violations(value, json.len());
        if violations.is_empty() {
            return match keep(&self.files.value, &json, Place::IfFree) {
                Ok(()) => Said::Done(ACCEPTED.to_owned()),
                // Another server of the same attempt was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.already(&json),
                Err(error) => unwritable(&self.files.value, &error),
            };
        }
        if let Err(error) = keep(&self.files.refused, &json, Place::Replacing) {
            return unwritable(&self.files.refused, &error);
        }
        self.refusals += 1;
        let told = judge::told(&violations);
        Said::Refused(match self.corrections.checked_sub(self.refusals) {
            Some(left) => {
                let tool = &self.tool;
                let after = match left {
                    0 => "This is the last correction.".to_owned(),
                    1 => "After that there is one more correction.".to_owned(),
                    more => format!("After that there are {more} more corrections."),
                };
                format!(
                    "The report is refused. Correct it, and call `{tool}` again with the whole report. {after}{told}"
                )
            }
            None => {
                self.closed = true;
                format!("The report is refused. This is final: do not call again, and end now.{told}")
            }
        })
    }

    /// Answers a report that comes after the accepted one.
    fn already(&self, json: &str) -> Said {
        let is_same = std::fs::read(&self.files.value).is_ok_and(|accepted| accepted == json.as_bytes());
        if is_same { Said::Done(ACCEPTED.to_owned()) } else { Said::Refused(TAKEN.to_owned()) }
    }
}

const ACCEPTED: &str = "The report is accepted. You are done: end now, and do not call again.";
const TAKEN: &str = "A report was accepted before, and stands; this one was not taken. You are done: end now, and do \
                     not call again.";
const CLOSED: &str = "An earlier report was refused for good, and this one was not looked at. Do not call again, and \
                      end now.";

/// Tells the agent that the fault is not its own. The rest is for whoever runs the server.
fn unwritable(path: &Path, error: &io::Error) -> Said {
    tracing::error!(path = %path.display(), %error, "a report cannot be kept");
    Said::Refused(
        "The report could not be kept, for a reason that lies outside of it. You may call once more with the same \
         report; if that fails too, end."
            .to_owned(),
    )
}

/// Says whether anything stands at `path`, a dangling link too.
fn stands_at(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

enum Place {
    /// Fails where something stands at the path.
    IfFree,
    Replacing,
}

/// Writes a file in one go: beside its path first, then there.
fn keep(path: &Path, text: &str, place: Place) -> io::Result<()> {
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    let mut file = NamedTempFile::with_prefix_in(".handing-in-", folder)?;
    file.write_all(text.as_bytes())?;
    match place {
        Place::IfFree => file.persist_noclobber(path)?,
        Place::Replacing => file.persist(path)?,
    };
    Ok(())
}
