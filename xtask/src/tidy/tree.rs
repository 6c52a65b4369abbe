//! The files of the workspace, read once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result};

/// Every file that belongs to the workspace. Paths are relative to the root, parted by `/`.
#[derive(Debug, Default)]
pub(super) struct Tree {
    paths: BTreeSet<String>,
    /// The files that are UTF-8.
    texts: BTreeMap<String, String>,
}

impl Tree {
    /// Reads everything below `root` but what builds and tools leave there.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    /// Returns a tree of these files.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let texts = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Self { paths: files.iter().map(|(path, _)| (*path).to_owned()).collect(), texts: texts.collect() }
    }

    /// Returns the paths of all files, in order.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// Returns the text files whose path ends in `ending`, in order.
    pub(super) fn texts(&self, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        let all = self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        all.filter(move |(path, _)| path.ends_with(ending))
    }

    /// Returns the text of one file; `None` if there is none.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// True if `path` is a file or a folder with files in it. The root is the empty path.
    pub(super) fn has(&self, path: &str) -> bool {
        path.is_empty()
            || self.paths.contains(path)
            || self
                .paths
                .range(format!("{path}/")..)
                .next()
                .is_some_and(|next| next.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
    }

    fn read_folder(&mut self, folder: &Path, inside: &str) -> Result<()> {
        let place = || format!("could not list `{}`", folder.display());
        for entry in fs::read_dir(folder).with_context(place)? {
            let entry = entry.with_context(place)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if inside.is_empty() { name.clone() } else { format!("{inside}/{name}") };
            if is_left_behind(inside, &name) {
                continue;
            }
            if entry.file_type().with_context(place)?.is_dir() {
                self.read_folder(&entry.path(), &path)?;
                continue;
            }
            // What is no text, or a link to nowhere, counts as a file all the same.
            if let Ok(text) = fs::read_to_string(entry.path()) {
                self.texts.insert(path.clone(), text);
            }
            self.paths.insert(path);
        }
        Ok(())
    }
}

/// True for what `.gitignore` names, and for git's own folder.
fn is_left_behind(inside: &str, name: &str) -> bool {
    let of_fuzzing = inside.ends_with("/fuzz") && matches!(name, "artifacts" | "corpus");
    of_fuzzing || matches!(name, ".git" | "proptest-regressions" | "target")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_exists_by_its_files_and_not_by_its_beginning() {
        let tree = Tree::of(&[("docs/architecture.md", ""), ("docs-old.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/architecture.md") && tree.has(""));
        assert!(!tree.has("doc") && !tree.has("docs/arch") && !tree.has("docs-old"));
    }
}
