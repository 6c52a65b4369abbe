use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::{CString, OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use crate::{StartError, StartErrorKind};

/// What a child finds in its environment: names let through from ours, and values set for it.
///
/// Nothing passes that is not named here. A value that is set wins over one let through. Credentials
/// and proxy settings are in no default list: a caller who wants them passed says so.
///
/// ```
/// use harness_process::Environment;
///
/// let environment = Environment::basic().allow("SSL_CERT_FILE").set("NO_COLOR", "1");
/// assert!(!environment.allows("AWS_SECRET_ACCESS_KEY"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Environment {
    allowed: Vec<Cow<'static, OsStr>>,
    prefixes: Vec<Cow<'static, OsStr>>,
    set: BTreeMap<OsString, OsString>,
}

/// Enough for a program to find other programs, its user's files, and the language and time zone.
const BASIC: &[&str] =
    &["HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER", "XDG_RUNTIME_DIR"];

impl Environment {
    /// Returns an environment that lets nothing through.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Returns an environment that lets through what nearly every program needs.
    ///
    /// That is `HOME`, `LANG`, `LANGUAGE`, `LC_*`, `LOGNAME`, `PATH`, `SHELL`, `TMPDIR`, `TZ`, `USER`
    /// and `XDG_RUNTIME_DIR`.
    #[must_use]
    pub fn basic() -> Self {
        let fixed = |name: &&'static str| Cow::Borrowed(OsStr::new(*name));
        Self {
            allowed: BASIC.iter().map(fixed).collect(),
            prefixes: vec![fixed(&"LC_")],
            set: BTreeMap::new(),
        }
    }

    /// Lets the variable `name` through if we have it.
    #[must_use]
    pub fn allow(mut self, name: impl Into<OsString>) -> Self {
        self.allowed.push(Cow::Owned(name.into()));
        self
    }

    /// Lets every variable through whose name starts with `prefix`.
    #[must_use]
    pub fn allow_prefix(mut self, prefix: impl Into<OsString>) -> Self {
        self.prefixes.push(Cow::Owned(prefix.into()));
        self
    }

    /// Gives the child the variable `name` with `value`, whatever ours is. The last one set wins.
    #[must_use]
    pub fn set(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.set.insert(name.into(), value.into());
        self
    }

    /// Returns whether a variable of ours with this name reaches the child.
    #[must_use]
    pub fn allows(&self, name: impl AsRef<OsStr>) -> bool {
        let name = name.as_ref();
        self.allowed.iter().any(|allowed| allowed == name)
            || self.prefixes.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
    }

    /// Returns what a child that is started now finds in the variable `name`, where it finds one.
    #[must_use]
    pub fn value(&self, name: impl AsRef<OsStr>) -> Option<OsString> {
        let name = name.as_ref();
        let ours = || self.allows(name).then(|| std::env::var_os(name)).flatten();
        self.set.get(name).cloned().or_else(ours)
    }

    /// Works out the variables of a child from those of `ours`.
    pub(crate) fn resolve(mut self, ours: impl Iterator<Item = (OsString, OsString)>) -> Variables {
        let mut variables = std::mem::take(&mut self.set);
        for (name, value) in ours.filter(|(name, _)| self.allows(name)) {
            variables.entry(name).or_insert(value);
        }
        Variables(variables)
    }
}

/// The variables of one child.
#[derive(Debug)]
pub(crate) struct Variables(BTreeMap<OsString, OsString>);

impl Variables {
    pub(crate) fn value(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    pub(crate) fn insert(&mut self, name: &str, value: &str) {
        self.0.insert(name.into(), value.into());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.0.iter()
    }

    /// Returns the `NAME=value` strings that a program is started with.
    pub(crate) fn block(&self) -> Result<Vec<CString>, StartError> {
        self.0.iter().map(|(name, value)| entry(name, value)).collect()
    }
}

fn entry(name: &OsStr, value: &OsStr) -> Result<CString, StartError> {
    let refused = |why: &str| {
        StartError::new(StartErrorKind::Invalid, format_args!("environment variable {name:?} {why}"))
    };
    if name.is_empty() || name.as_bytes().contains(&b'=') {
        return Err(refused("needs a name without an equals sign"));
    }
    let mut entry = OsString::with_capacity(name.len() + value.len() + 2);
    entry.push(name);
    entry.push("=");
    entry.push(value);
    CString::new(entry.into_vec()).map_err(|_| refused("holds a NUL byte, remove it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(environment: Environment, ours: &[(&str, &str)], expected: &[&str]) {
        let ours = ours.iter().map(|&(name, value)| (name.into(), value.into()));
        let block = environment.resolve(ours).block().unwrap();
        let block: Vec<_> = block.iter().map(|entry| entry.to_str().unwrap()).collect();
        assert_eq!(block, expected);
    }

    #[test]
    fn only_what_is_named_reaches_the_child() {
        let ours = [("PATH", "/bin"), ("CLAUDECODE", "1"), ("LC_ALL", "C"), ("TOKEN", "x"), ("XLC_", "y")];
        check(Environment::empty(), &ours, &[]);
        check(Environment::basic(), &ours, &["LC_ALL=C", "PATH=/bin"]);
        check(Environment::empty().allow("TOKEN"), &ours, &["TOKEN=x"]);
        check(Environment::empty().allow_prefix("X"), &ours, &["XLC_=y"]);
    }

    #[test]
    fn a_set_value_wins_over_one_let_through() {
        check(Environment::empty().set("A", "1").set("A", "2").allow("A"), &[("A", "0")], &["A=2"]);
    }

    #[test]
    fn a_name_or_value_that_cannot_be_passed_is_refused() {
        for (name, value) in [("", "x"), ("A=B", "x"), ("A", "x\0y"), ("A\0B", "x")] {
            let variables = Environment::empty().set(name, value).resolve(std::iter::empty());
            let error = variables.block().unwrap_err();
            assert_eq!(error.kind(), StartErrorKind::Invalid, "{name:?}={value:?}");
        }
    }
}
