use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::{StartError, StartErrorKind as Kind};

/// Finds the absolute path of the program called `name`.
///
/// A name with a slash is a path, taken from our own working directory when it is relative. Any other
/// name is looked up in the absolute entries of `search`; the rest of the entries would mean whatever
/// directory somebody happens to be in.
///
/// [`start`](crate::start) does this by itself, with the `PATH` that the child is given. It is here for those who want
/// to know before they start anything.
///
/// # Errors
///
/// What [`start`](crate::start) says of a program that is missing or may not be executed.
pub fn find_program(name: &OsStr, search: Option<&OsStr>) -> Result<PathBuf, StartError> {
    let path = locate(name, search)?;
    check(&path).map(|()| path)
}

/// The same, without a look at a program that is named by its path.
pub(crate) fn locate(name: &OsStr, search: Option<&OsStr>) -> Result<PathBuf, StartError> {
    if name.is_empty() {
        return Err(StartError::new(Kind::Invalid, "the program's name is empty, name a program"));
    }
    if name.as_bytes().contains(&b'/') {
        let path = Path::new(name);
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        return std::path::absolute(path).map_err(|error| refuse(path, error));
    }
    let mut refusal = None;
    for directory in std::env::split_paths(search.unwrap_or_default()).filter(|entry| entry.is_absolute()) {
        let path = directory.join(name);
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == Kind::ProgramMissing => {}
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    Err(refusal.unwrap_or_else(|| {
        let shown = name.display();
        let message = format!(
            "program {shown} is in none of the absolute entries of PATH, install it or name its path"
        );
        StartError::new(Kind::ProgramMissing, message).at(Path::new(name))
    }))
}

/// Says what is wrong with a program, as far as that can be seen.
pub(crate) fn check(path: &Path) -> Result<(), StartError> {
    let metadata = fs::metadata(path).map_err(|error| refuse(path, error))?;
    let shown = path.display();
    if metadata.is_dir() {
        let message = format!("program {shown} is a directory, name the file in it");
        return Err(StartError::new(Kind::ProgramIsDirectory, message).at(path));
    }
    let allowed = metadata.is_file() && accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
    if !allowed {
        let message = format!("program {shown} may not be executed, check its permissions");
        return Err(StartError::new(Kind::ProgramNotExecutable, message).at(path));
    }
    Ok(())
}

fn refuse(path: &Path, error: io::Error) -> StartError {
    let shown = path.display();
    let (kind, message) = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            (Kind::ProgramMissing, format!("program {shown} does not exist, check its path"))
        }
        io::ErrorKind::InvalidInput => {
            (Kind::Invalid, format!("program {name:?} holds a NUL byte, remove it", name = path.as_os_str()))
        }
        _ => (
            Kind::ProgramNotExecutable,
            format!("program {shown} cannot be looked at, check its permissions"),
        ),
    };
    StartError::new(kind, message).at(path).because(error)
}
