use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A directory for the state of one agent's child, that only the user may enter. It is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct PrivateHome {
    path: PathBuf,
}

impl PrivateHome {
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateHome {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(directory = %self.path.display(), %error, "an agent's private directory is left");
        }
    }
}

/// Writes a file that only the user may read.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}
