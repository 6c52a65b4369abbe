//! The file by which a child hands in its value.
//!
//! # Format
//!
//! - The file holds exactly one JSON document in UTF-8, at most as long as the provider allows, 1 MiB unless
//!   it is told otherwise. White space may stand around it and nothing else. No key is given twice in one object,
//!   nothing is nested more than 127 levels deep, and there are at most [`MAX_VALUES`] values, those within others
//!   counted too.
//! - The child writes it once, at the path that the provider names; the directory exists, the file does not. A
//!   child that cannot write it in one go writes another file beside it and renames that.
//! - The provider reads it when the child has ended. While the child runs it only looks whether the document is
//!   whole; a child that then does not end by itself is ended after a grace.
//! - It is a regular file. A link, a pipe or a device in its place is refused unread.
//!
//! Each attempt at each call has a directory of its own and a file name that nobody can guess, so what another
//! call left behind can never be taken for this one's.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::strict_json;

/// The longest value file that is read unless the provider is told otherwise: 1 MiB.
pub const DEFAULT_MAX_BYTES: u64 = 1024 * 1024;

/// The most values that one document may hold, each array, object, text, number, boolean and null counted as one.
///
/// In memory a small object is a hundred times as large as its text, so the length alone bounds little.
pub const MAX_VALUES: usize = 10_000;

/// What a value file holds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ValueFile {
    /// There is none, or it is empty.
    Absent,
    /// One JSON document.
    Value(Value),
    /// Something else. The text says what.
    Unreadable(String),
}

/// Reads the value file at `path`, of which at most `max_bytes` may be there.
///
/// It never fails and never waits: whatever stands at `path` is one of the three.
#[must_use]
pub fn read(path: &Path, max_bytes: u64) -> ValueFile {
    match read_bytes(path, max_bytes) {
        Ok(bytes) if bytes.is_empty() => ValueFile::Absent,
        Ok(bytes) => from_bytes(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => ValueFile::Absent,
        Err(error) => ValueFile::Unreadable(error.to_string()),
    }
}

/// Reads `bytes` as the whole content of a value file that is not empty.
pub(crate) fn from_bytes(bytes: &[u8]) -> ValueFile {
    match strict_json::parse(bytes) {
        Ok(value) => ValueFile::Value(value),
        Err(error) => ValueFile::Unreadable(format!("it is not one JSON document: {error}")),
    }
}

/// Says whether the file at `path` holds one whole document, of which at most `max_bytes` may be there.
///
/// It keeps nothing of it, and decides nothing: only the end of the child does.
pub(crate) fn is_whole(path: &Path, max_bytes: u64) -> bool {
    read_bytes(path, max_bytes).is_ok_and(|bytes| serde_json::from_slice::<IgnoredAny>(&bytes).is_ok())
}

fn read_bytes(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // One byte more than there is, so that the end is seen without growing.
    let length = metadata.len().min(max_bytes).min(DEFAULT_MAX_BYTES);
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0) + 1);
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::other(format!("it is longer than {max_bytes} bytes")));
    }
    Ok(bytes)
}

/// Opens what stands at `path` itself, never what a link points to, and without waiting for the other end of a
/// pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => io::Error::other("it is a link"),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn unreadable(path: &Path) {
        assert!(matches!(read(path, 100), ValueFile::Unreadable(_)), "{:?}", read(path, 100));
    }

    #[test]
    fn whatever_is_no_regular_file_is_refused_unread() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("value"), "{}").unwrap();
        std::os::unix::fs::symlink(path("value"), path("link")).unwrap();
        unreadable(&path("link"));
        unreadable(directory.path());
        unreadable(Path::new("/dev/zero"));
    }

    #[test]
    fn a_file_longer_than_the_bound_is_refused_and_one_as_long_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("value");
        std::fs::write(&path, format!("{:100}", 1)).unwrap();
        assert_eq!(read(&path, 100), ValueFile::Value(json!(1)));
        std::fs::write(&path, format!("{:101}", 1)).unwrap();
        unreadable(&path);
    }

    #[test]
    fn no_file_and_an_empty_one_are_absent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("value");
        assert_eq!(read(&path, 100), ValueFile::Absent);
        std::fs::write(&path, "").unwrap();
        assert_eq!(read(&path, 100), ValueFile::Absent);
        assert!(!is_whole(&path, 100));
        std::fs::write(&path, "null").unwrap();
        assert!(is_whole(&path, 4) && !is_whole(&path, 3));
        assert_eq!(read(&path, 100), ValueFile::Value(Value::Null));
    }
}
