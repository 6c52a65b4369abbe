//! `api`: the public API of each seam, one item a line, committed beside the crate.
//!
//! The listing comes from rustdoc's JSON, which a stable compiler writes only when it is told to act
//! as an unstable one (`RUSTC_BOOTSTRAP`). Build scripts look at that variable too, and setting it for
//! a whole build would make cargo build everything behind them again. So only rustdoc gets to see it:
//! cargo is given this program in rustdoc's place, which sets the variable and becomes rustdoc.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::{args::Args, cargo, outcome::Outcome, policy, workspace::Workspace};

/// The rustdoc JSON format that the `public-api` library of our lock file reads.
const FORMAT: u32 = 57;

/// The file beside each seam's manifest.
const LISTING: &str = "public-api.txt";

/// Set for the cargo below us: the rustdoc to become.
const DISGUISE: &str = "XTASK_RUSTDOC";

/// Traits that the compiler implements by rules of its own, which no code can name on a stable compiler.
const UNNAMEABLE: &[&str] =
    &["core::marker::Freeze", "core::marker::StructuralPartialEq", "core::marker::UnsafeUnpin"];

pub(crate) fn run(mut args: Args, workspace: &Workspace) -> Result<Outcome> {
    let write = args.flag("--write");
    args.finish()?;
    write_json(workspace)?;
    let mut stale = Vec::new();
    for seam in policy::SEAMS {
        let folder = &workspace.find(seam.name)?.folder;
        let json = workspace.target.join("doc").join(seam.name.replace('-', "_")).with_extension("json");
        let format = format_of(&json)?;
        if format != FORMAT {
            return Ok(Outcome::Skipped(format!(
                "this compiler writes rustdoc JSON format {format}, the `public-api` library reads {FORMAT}"
            )));
        }
        let listing = list(&json)?;
        let path = workspace.root.join(folder).join(LISTING);
        if write {
            fs::write(&path, &listing).with_context(|| format!("could not write `{}`", path.display()))?;
            println!("wrote {folder}/{LISTING}");
        } else {
            let committed = fs::read_to_string(&path).unwrap_or_default();
            if committed != listing {
                println!("{folder}/{LISTING} is not the public API of {}:", seam.name);
                difference(&committed, &listing).iter().for_each(|line| println!("  {line}"));
                stale.push(seam.name);
            }
        }
    }
    if !stale.is_empty() {
        bail!("the public API changed in {}; if it is meant, `cargo xtask api --write`", stale.join(", "));
    }
    Ok(Outcome::Passed)
}

/// Becomes rustdoc if cargo has started this program in its place.
pub(crate) fn rustdoc_in_disguise() -> Option<ExitCode> {
    let rustdoc = env::var_os(DISGUISE)?;
    let status = Command::new(&rustdoc)
        .args(env::args_os().skip(1))
        .env_remove(DISGUISE)
        .env("RUSTC_BOOTSTRAP", "1")
        .status();
    match status {
        Ok(status) => Some(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        Err(error) => {
            eprintln!("error: could not start `{}`: {error}", rustdoc.display());
            Some(ExitCode::FAILURE)
        }
    }
}

/// Writes the JSON of all members: the same selection as `lint` and `doc`, whose builds it reuses.
fn write_json(workspace: &Workspace) -> Result<()> {
    let rustdoc = env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into());
    let own = env::current_exe().context("this program has no path")?;
    let mut command = cargo::cargo(&workspace.root, ["doc", "--quiet", "--no-deps"]);
    command
        .args(workspace.selection(&[])?)
        .env("RUSTDOC", own)
        .env(DISGUISE, rustdoc)
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cap-lints allow");
    cargo::run(&mut command)
}

fn format_of(json: &Path) -> Result<u32> {
    #[derive(Deserialize)]
    struct Format {
        format_version: u32,
    }
    let text = fs::read(json).with_context(|| format!("rustdoc left no `{}`", json.display()))?;
    let format: Format =
        serde_json::from_slice(&text).with_context(|| format!("`{}` is no rustdoc JSON", json.display()))?;
    Ok(format.format_version)
}

fn list(json: &PathBuf) -> Result<String> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .build()
        .with_context(|| format!("could not read `{}`", json.display()))?;
    let mut listing = String::new();
    for item in api.items() {
        let line = item.to_string();
        if !UNNAMEABLE.iter().any(|name| line.contains(name)) {
            listing.push_str(&line);
            listing.push('\n');
        }
    }
    Ok(listing)
}

/// Returns the lines that one of the listings has more often than the other: `-` for the old one's,
/// `+` for the new one's.
///
/// A line may stand there twice: two traits of a type may have methods of the same name.
fn difference(old: &str, new: &str) -> Vec<String> {
    let mut surplus: BTreeMap<&str, i64> = BTreeMap::new();
    for line in old.lines() {
        *surplus.entry(line).or_default() -= 1;
    }
    for line in new.lines() {
        *surplus.entry(line).or_default() += 1;
    }
    let of = |sign: i64, mark: char| {
        surplus
            .iter()
            .filter(move |(_, count)| **count * sign > 0)
            .map(move |(line, _)| format!("{mark} {line}"))
    };
    of(-1, '-').chain(of(1, '+')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_shows_as_gone_and_come() {
        assert_eq!(difference("a\nb\n", "a\nc\n"), ["- b", "+ c"]);
    }

    #[test]
    fn a_line_that_stood_twice_shows_when_it_stands_once() {
        assert_eq!(difference("a\na\nb\n", "a\nb\n"), ["- a"]);
    }

    #[test]
    fn equal_listings_have_no_difference() {
        assert!(difference("a\nb\n", "a\nb\n").is_empty());
    }
}
