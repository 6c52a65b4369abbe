use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use crate::{StartError, StartErrorKind};

/// A file that takes everything a child says, standard output and standard error as they come.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Transcript {
    path: PathBuf,
    cap: u64,
}

/// What became of a transcript.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TranscriptReport {
    /// Where it is.
    pub path: PathBuf,
    /// How many bytes it holds.
    pub written: u64,
    /// How many bytes it lacks, because of the cap or of `error`.
    pub missing: u64,
    /// Why writing stopped before the cap. The call itself went on.
    pub error: Option<io::ErrorKind>,
}

impl Transcript {
    /// The cap unless the caller sets another: 64 MiB.
    pub const CAP: u64 = 64 * 1024 * 1024;

    /// Returns a transcript in the file `path`, which must not exist yet. Only its owner may read it.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), cap: Self::CAP }
    }

    /// Returns the same transcript that holds the first `cap` bytes at most.
    #[must_use]
    pub fn with_cap(mut self, cap: u64) -> Self {
        self.cap = cap;
        self
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn create(self) -> Result<Writer, StartError> {
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path);
        let file = opened.map_err(|error| {
            let shown = self.path.display();
            let message = match error.kind() {
                io::ErrorKind::AlreadyExists => format!("transcript {shown} exists already, name a new file"),
                _ => format!("transcript {shown} cannot be created, check its directory"),
            };
            StartError::new(StartErrorKind::Transcript, message).at(&self.path).because(error)
        })?;
        Ok(Writer { file, left: self.cap, path: self.path, written: 0, missing: 0, error: None })
    }
}

/// Writes a transcript while a call runs.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
    path: PathBuf,
    left: u64,
    written: u64,
    missing: u64,
    error: Option<io::ErrorKind>,
}

impl Writer {
    /// Takes `bytes` as far as the cap allows. Never fails; a fault is told in the report.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let mut open = &bytes[..usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len())];
        self.missing += (bytes.len() - open.len()) as u64;
        while !open.is_empty() && self.error.is_none() {
            match self.file.write(open) {
                Ok(0) => self.error = Some(io::ErrorKind::WriteZero),
                Ok(count) => {
                    self.written += count as u64;
                    self.left -= count as u64;
                    open = &open[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.error = Some(error.kind()),
            }
        }
        self.missing += open.len() as u64;
    }

    /// Takes the file away again, for a call that did not come about.
    pub(crate) fn discard(self) {
        // The refusal that the caller gets says more than a fault here would.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Returns what became of the transcript, and its file, which is of no more use.
    pub(crate) fn finish(self) -> (TranscriptReport, File) {
        let Self { file, path, written, missing, error, .. } = self;
        (TranscriptReport { path, written, missing, error }, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_file_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("transcript");
        std::fs::write(&path, "earlier").unwrap();
        let error = Transcript::new(&path).create().unwrap_err();
        assert_eq!(error.kind(), StartErrorKind::Transcript);
        assert_eq!(std::fs::read(&path).unwrap(), b"earlier");
    }

    #[test]
    fn a_full_device_is_told_and_does_not_fail() {
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut writer =
            Writer { file, path: "/dev/full".into(), left: 10, written: 0, missing: 0, error: None };
        writer.write(b"hello");
        writer.write(b"hello again");
        let (report, _) = writer.finish();
        assert_eq!(report.error, Some(io::ErrorKind::StorageFull));
        assert_eq!((report.written, report.missing), (0, 16));
    }

    #[test]
    fn the_cap_cuts_and_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("transcript");
        let mut writer = Transcript::new(&path).with_cap(7).create().unwrap();
        writer.write(b"hello");
        writer.write(b"world");
        writer.write(b"!");
        let (report, _) = writer.finish();
        assert_eq!((report.written, report.missing, report.error), (7, 4, None));
        assert_eq!(std::fs::read(&path).unwrap(), b"hellowo");
    }
}
