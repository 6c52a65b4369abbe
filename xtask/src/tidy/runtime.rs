//! What cargo really switches on when a seam is built alone.

use anyhow::Result;

use super::{Problem, Subject};
use crate::{
    cargo, policy,
    workspace::{Workspace, features_of},
};

/// A seam switches on nothing of tokio that needs a runtime: by default, and with its own features.
pub(super) fn seams_have_none(subject: &Subject<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for seam in policy::SEAMS {
        let Ok(member) = subject.workspace.find(seam.name) else { continue };
        let mut variants = vec![Vec::new()];
        variants.extend(Some(features_of(&[member], None)).filter(|features| !features.is_empty()));
        for features in variants {
            let tree = tree(subject.workspace, seam.name, &features)?;
            problems.extend(runtime_features(&tree).into_iter().map(|feature| {
                Problem::new(
                    seam.name,
                    format!(
                        "built alone it switches on tokio's `{feature}`; a seam names futures and runs none"
                    ),
                )
            }));
        }
    }
    Ok(problems)
}

/// Returns one line `NAME vVERSION …|FEATURE,FEATURE` for each package that a build of `name` alone needs.
fn tree(workspace: &Workspace, name: &str, features: &[String]) -> Result<String> {
    cargo::output(
        cargo::cargo(
            &workspace.root,
            [
                "tree",
                "--quiet",
                "--package",
                name,
                "--edges",
                "normal",
                "--prefix",
                "none",
                "--format",
                "{p}|{f}",
            ],
        )
        .args(features),
    )
}

fn runtime_features(tree: &str) -> Vec<&str> {
    tree.lines()
        .filter_map(|line| line.strip_prefix("tokio v")?.split_once('|'))
        // A package that was shown before ends in ` (*)`.
        .flat_map(|(_, features)| features.trim_end_matches(" (*)").split(','))
        .filter(|feature| policy::RUNTIME_FEATURES.contains(feature))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_feature_is_found_wherever_it_stands() {
        assert_eq!(runtime_features("a v1.0.0|\ntokio v1.54.1|default,sync,time (*)\n"), ["time"]);
        assert_eq!(runtime_features("tokio v1.54.1|net,rt\n"), ["net", "rt"]);
    }

    #[test]
    fn other_packages_and_other_features_are_free() {
        assert!(runtime_features("tokio v1.54.1|sync\ntokio-util v0.7.20|rt,time\n").is_empty());
    }
}
