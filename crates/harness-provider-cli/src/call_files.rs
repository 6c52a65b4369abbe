use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use harness_subagent::Origin;
use uuid::Uuid;

/// The files of one attempt at one call, in a directory of their own that only the user may enter.
///
/// It is `<root>/<run>/<call>-<attempt>`, or `<root>/single/<unique>` for a start that belongs to no call. An
/// attempt that was made before is refused, so transcripts and values are never overwritten.
#[derive(Debug)]
pub struct CallFiles {
    directory: PathBuf,
    value: PathBuf,
}

impl CallFiles {
    /// Makes the directory for an attempt at the call of `origin`, below `root`, which is made when it is missing.
    ///
    /// # Errors
    ///
    /// When the attempt was made before, when the run's id makes no file name, and what the file system says.
    pub fn create(root: &Path, origin: Option<&Origin>) -> io::Result<Self> {
        let unique = Uuid::new_v4().simple().to_string();
        let (parent, name) = match origin {
            Some(origin) => {
                (root.join(file_name(&origin.run)?), format!("{}-{}", origin.call, origin.attempt))
            }
            None => (root.join("single"), unique.clone()),
        };
        let parent = if parent.is_absolute() { parent } else { std::path::absolute(parent)? };
        let directory = parent.join(name);
        let create = || DirBuilder::new().mode(0o700).create(&directory);
        // Only the first call of a run finds nothing there.
        create().or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            DirBuilder::new().mode(0o700).recursive(true).create(&parent)?;
            create()
        })?;
        let value = directory.join(format!("value-{unique}.json"));
        Ok(Self { directory, value })
    }

    /// Returns the directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory that the calls of the run share, where the call is one of a run's.
    pub(crate) fn run(&self) -> &Path {
        self.directory.parent().unwrap_or(&self.directory)
    }

    /// Where the child may write its value.
    #[must_use]
    pub fn value(&self) -> &Path {
        &self.value
    }

    /// Where a capture server may write a value that it refused.
    #[must_use]
    pub fn refused(&self) -> PathBuf {
        let value = self.value.file_name().unwrap_or_default().to_string_lossy();
        self.directory.join(format!("refused-{}", value.trim_start_matches("value-")))
    }

    /// Where everything goes that the child says.
    #[must_use]
    pub fn transcript(&self) -> PathBuf {
        self.directory.join("transcript.log")
    }

    /// Writes a file for the child to read, and returns its path.
    ///
    /// # Errors
    ///
    /// When there is one of that name, and what the file system says.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        let path = self.directory.join(name);
        new_private_file(&path)?.write_all(bytes)?;
        Ok(path)
    }

    /// Removes the directory of a call whose child could not be started.
    pub fn discard(self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            tracing::warn!(directory = %self.directory.display(), %error, "the files of a refused call are left");
        }
    }
}

/// Makes the file `path`, which must not be there yet, for the user alone.
pub(crate) fn new_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Makes a file name of a run's id: letters, digits, `-`, `_` and inner dots as they are, every other byte as
/// `%` and two hexadecimal digits.
fn file_name(run: &str) -> io::Result<String> {
    const LONGEST: usize = 200;
    let mut name = String::with_capacity(run.len());
    for byte in run.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => name.push(byte.into()),
            b'.' if !name.is_empty() => name.push('.'),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    if name.is_empty() || name.len() > LONGEST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("the run's id must make a file name of 1 to {LONGEST} bytes"),
        ));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runs_id_never_leaves_the_root() {
        for (run, name) in [("r-1_a.b", "r-1_a.b"), ("..", "%2e."), ("a/../b", "a%2f..%2fb"), ("é", "%c3%a9")]
        {
            assert_eq!(file_name(run).unwrap(), name);
        }
        assert!(file_name("").is_err());
        assert!(file_name(&"/".repeat(100)).is_err());
    }

    #[test]
    fn an_attempt_made_before_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let first = CallFiles::create(root.path(), Some(&Origin::new("r", 1, 1))).unwrap();
        let error = CallFiles::create(root.path(), Some(&Origin::new("r", 1, 1))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        let second = CallFiles::create(root.path(), Some(&Origin::new("r", 1, 2))).unwrap();
        assert_ne!(first.value().file_name(), second.value().file_name());
    }
}
