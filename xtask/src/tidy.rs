//! `tidy`: the invariants of the architecture and of the tree, each a check.
//!
//! A new invariant is one function in one of the files below and one line in [`CHECKS`]. It gets
//! the workspace and all its text, and returns what is wrong: the place, and what to do there.

mod dependencies;
mod documents;
mod generated;
mod layout;
mod links;
mod manifests;
mod runtime;
mod text;
mod tree;

use anyhow::{Result, bail};

use self::tree::Tree;
use crate::{args::Args, outcome::Outcome, workspace::Workspace};

/// What a check looks at.
struct Subject<'a> {
    workspace: &'a Workspace,
    tree: &'a Tree,
    /// Renew generated files instead of comparing them.
    write: bool,
}

/// Something that breaks an invariant.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Problem {
    /// A crate or a file, with its line where that helps.
    place: String,
    /// What is wrong there and what to do.
    advice: String,
}

impl Problem {
    fn new(place: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { place: place.into(), advice: advice.into() }
    }
}

type Check = fn(&Subject<'_>) -> Result<Vec<Problem>>;

/// The invariants, as one says them.
const CHECKS: &[(&str, Check)] = &[
    ("harness crates know nothing of Ralph", dependencies::harness_knows_no_ralph),
    ("a seam's dependencies are the written list", dependencies::seams_keep_their_list),
    ("a library has one user where one is named", dependencies::sole_users),
    ("xtask stands alone", dependencies::xtask_stands_alone),
    ("siblings are named by path", dependencies::siblings_by_path),
    ("a seam built alone has no runtime", runtime::seams_have_none),
    ("versions live in the workspace's table", manifests::versions_in_one_table),
    ("default features are off in the workspace's table", manifests::default_features_off),
    ("every member is built by default or stands apart", manifests::default_members),
    ("members inherit what is common and own their version", manifests::inherits),
    ("benches have no harness", manifests::benches_without_harness),
    ("every crate has its documents", documents::present),
    ("every crate's docs have an example that runs", documents::runnable_example),
    ("nothing unlisted at the top", layout::top_level),
    ("folders are named as their crates", layout::folder_names),
    ("files are named for the thing in them", layout::module_names),
    ("a crate is whole inside its folder", layout::crates_are_whole),
    ("no machine's paths", text::machine_paths),
    ("nothing unfinished", text::unfinished),
    ("relative links lead somewhere", links::resolve),
    ("generated files are fresh", generated::fresh),
];

pub(crate) fn run(mut args: Args, workspace: &Workspace) -> Result<Outcome> {
    let write = args.flag("--write");
    args.finish()?;
    let tree = Tree::read(&workspace.root)?;
    let subject = Subject { workspace, tree: &tree, write };
    let mut count = 0;
    for (invariant, check) in CHECKS {
        let mut problems = check(&subject)?;
        problems.sort();
        problems.dedup();
        if !problems.is_empty() {
            println!("{invariant}:");
        }
        for Problem { place, advice } in &problems {
            println!("  {place}: {advice}");
        }
        count += problems.len();
    }
    if count > 0 {
        bail!("{count} problems; each line above says where and what to do");
    }
    println!("{} invariants hold", CHECKS.len());
    Ok(Outcome::Passed)
}

/// What the tests of the checks build their subjects from.
#[cfg(test)]
mod fixture {
    use std::path::PathBuf;

    use super::{Check, Problem, Subject, tree::Tree};
    use crate::workspace::{Crate, Workspace};

    /// Returns a crate in its usual folder, with all that is asked of a manifest.
    pub(super) fn member(name: &str) -> Crate {
        Crate {
            name: name.to_owned(),
            folder: if name == "xtask" { name.to_owned() } else { format!("crates/{name}") },
            has_rust_version: true,
            licence: Some("MIT".to_owned()),
            has_library: true,
            published: true,
            ..Crate::default()
        }
    }

    /// Runs `check` over the crates and the files and returns the places it complains about.
    pub(super) fn places(check: Check, crates: &[Crate], files: &[(&str, &str)]) -> Vec<String> {
        problems(check, crates, files).into_iter().map(|problem| problem.place).collect()
    }

    /// Runs `check` over the crates and the files.
    pub(super) fn problems(check: Check, crates: &[Crate], files: &[(&str, &str)]) -> Vec<Problem> {
        let workspace = Workspace { root: PathBuf::new(), target: PathBuf::new(), crates: crates.to_vec() };
        let tree = Tree::of(files);
        check(&Subject { workspace: &workspace, tree: &tree, write: false }).unwrap()
    }
}
