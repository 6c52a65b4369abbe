//! The workspace as `cargo metadata` describes it, cut down to what the commands ask about.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::{DependencyKind, MetadataCommand, Package, TargetKind, camino::Utf8Path};

use crate::{cargo, policy};

/// The members and where they live.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) crates: Vec<Crate>,
}

/// One member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// Its folder, relative to the root, with `/` between the parts.
    pub(crate) folder: String,
    pub(crate) has_rust_version: bool,
    pub(crate) licence: Option<String>,
    pub(crate) features: BTreeSet<String>,
    /// Those of the features that bring a crate along that [stands apart](policy::APART).
    pub(crate) heavy: BTreeSet<String>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) examples: Vec<Target>,
    pub(crate) benches: Vec<Target>,
    /// The tests that only run where they are asked for by name, which `--all-targets` leaves out as well.
    pub(crate) unlisted_tests: Vec<Target>,
    pub(crate) has_library: bool,
    pub(crate) published: bool,
}

/// One line of a member's dependency tables.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    /// The package, whatever it is renamed to.
    pub(crate) name: String,
    pub(crate) kind: DependencyKind,
    pub(crate) optional: bool,
    /// True for a member of this workspace or another folder of this machine.
    pub(crate) by_path: bool,
    /// True if a version is asked for, with or without a path.
    pub(crate) has_version: bool,
}

/// An example or a bench.
#[derive(Clone, Debug, Default)]
pub(crate) struct Target {
    pub(crate) name: String,
    /// The features without which cargo does not build it.
    pub(crate) required: Vec<String>,
}

impl Workspace {
    /// Asks cargo about the workspace around the current folder.
    pub(crate) fn load() -> Result<Self> {
        let metadata = MetadataCommand::new()
            .cargo_path(cargo::program())
            .no_deps()
            .exec()
            .context("could not read the workspace")?;
        let root = metadata.workspace_root.clone().into_std_path_buf();
        let mut crates: Vec<Crate> =
            metadata.workspace_packages().into_iter().map(|package| describe(package, &root)).collect();
        crates.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { target: metadata.target_directory.into_std_path_buf(), root, crates })
    }

    /// Returns the member called `name`.
    pub(crate) fn find(&self, name: &str) -> Result<&Crate> {
        match self.crates.iter().find(|member| member.name == name) {
            Some(member) => Ok(member),
            None => bail!(
                "no crate `{name}` in the workspace; there are {}",
                self.crates.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ")
            ),
        }
    }

    /// Returns the members that are built together: all but those that [stand apart](policy::APART).
    pub(crate) fn together(&self) -> impl Iterator<Item = &Crate> {
        self.crates.iter().filter(|member| !policy::APART.contains(&member.name.as_str()))
    }

    /// Returns the workspace as the step of what stands apart builds it: no feature is too heavy.
    pub(crate) fn with_heavy_features(&self) -> Self {
        let crates = self.crates.iter().cloned().map(|member| Crate { heavy: BTreeSet::new(), ..member });
        Self { root: self.root.clone(), target: self.target.clone(), crates: crates.collect() }
    }

    /// Returns the crates called `names`, or without names all that are built together.
    pub(crate) fn chosen(&self, names: &[String]) -> Result<Vec<&Crate>> {
        if names.is_empty() {
            return Ok(self.together().collect());
        }
        names.iter().map(|name| self.find(name)).collect()
    }

    /// Returns the cargo arguments that select the crates called `names`, or without names all that are
    /// built together, each with its own features on.
    pub(crate) fn selection(&self, names: &[String]) -> Result<Vec<String>> {
        let chosen = self.chosen(names)?;
        let mut args: Vec<String> = if names.is_empty() {
            let apart = policy::APART.iter().flat_map(|name| ["--exclude", *name]);
            ["--workspace"].into_iter().chain(apart).map(str::to_owned).collect()
        } else {
            names.iter().flat_map(|name| ["--package".to_owned(), name.clone()]).collect()
        };
        args.extend(features_of(&chosen, None));
        Ok(args)
    }
}

impl Crate {
    /// Returns the features that are for users: not `default`, and none that only tests switch or that is heavy.
    pub(crate) fn own_features(&self) -> impl Iterator<Item = &str> {
        let names = self.features.iter().map(String::as_str);
        names.filter(|name| *name != "default" && !is_for_tests(name) && !self.heavy.contains(*name))
    }

    /// Returns the features that only tests switch.
    pub(crate) fn test_features(&self) -> impl Iterator<Item = &str> {
        self.features.iter().map(String::as_str).filter(|name| is_for_tests(name))
    }

    /// Returns the tests that only run by name, as far as the crate's own features build them.
    pub(crate) fn unlisted_tests(&self) -> impl Iterator<Item = &str> {
        let builds = |test: &&Target| {
            test.required.iter().all(|feature| self.own_features().any(|own| own == feature))
        };
        self.unlisted_tests.iter().filter(builds).map(|test| test.name.as_str())
    }

    /// True if the crate declares the feature `name`.
    pub(crate) fn has_feature(&self, name: &str) -> bool {
        self.features.contains(name)
    }
}

impl Target {
    /// Returns the cargo arguments that switch on what the target needs.
    pub(crate) fn features(&self) -> Vec<String> {
        if self.required.is_empty() {
            Vec::new()
        } else {
            vec!["--features".to_owned(), self.required.join(",")]
        }
    }

    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), required: Vec::new() }
    }
}

fn is_for_tests(feature: &str) -> bool {
    feature.starts_with(policy::TEST_FEATURE_PREFIX)
}

/// Returns `--features a/x,b/y` for the crates' own features, and for the one in `also` where it is
/// declared.
pub(crate) fn features_of(crates: &[&Crate], also: Option<&str>) -> Vec<String> {
    let mut pairs = Vec::new();
    for member in crates {
        let more = also.into_iter().filter(|name| member.has_feature(name));
        pairs.extend(member.own_features().chain(more).map(|feature| format!("{}/{feature}", member.name)));
    }
    if pairs.is_empty() { Vec::new() } else { vec!["--features".to_owned(), pairs.join(",")] }
}

/// Returns the features that switch on a crate that stands apart, themselves or by another feature.
fn heavy(features: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    let brings_apart = |what: &String| {
        let name = what.strip_prefix("dep:").or_else(|| what.split_once('/').map(|(name, _)| name));
        policy::APART.contains(&name.unwrap_or(what).trim_end_matches('?'))
    };
    let mut heavy = BTreeSet::new();
    loop {
        let before = heavy.len();
        for (name, switched_on) in features {
            if switched_on.iter().any(|what| brings_apart(what) || heavy.contains(what)) {
                heavy.insert(name.clone());
            }
        }
        if heavy.len() == before {
            return heavy;
        }
    }
}

fn describe(package: &Package, root: &Path) -> Crate {
    let folder = package.manifest_path.parent().map_or(root, Utf8Path::as_std_path);
    let folder = folder.strip_prefix(root).unwrap_or(folder);
    let as_ours = |target: &cargo_metadata::Target| Target {
        name: target.name.clone(),
        required: target.required_features.clone(),
    };
    let named = |kind: TargetKind| -> Vec<Target> {
        package.targets.iter().filter(|target| target.is_kind(kind.clone())).map(as_ours).collect()
    };
    let is_unlisted = |target: &&cargo_metadata::Target| target.is_kind(TargetKind::Test) && !target.test;
    Crate {
        name: package.name.to_string(),
        folder: folder.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/"),
        has_rust_version: package.rust_version.is_some(),
        licence: package.license.clone(),
        features: package.features.keys().cloned().collect(),
        heavy: heavy(&package.features),
        dependencies: package
            .dependencies
            .iter()
            .map(|dependency| Dependency {
                name: dependency.name.clone(),
                kind: dependency.kind,
                optional: dependency.optional,
                by_path: dependency.path.is_some(),
                has_version: !dependency.req.comparators.is_empty(),
            })
            .collect(),
        examples: named(TargetKind::Example),
        benches: named(TargetKind::Bench),
        unlisted_tests: package.targets.iter().filter(is_unlisted).map(as_ours).collect(),
        has_library: package
            .targets
            .iter()
            .any(|target| target.is_kind(TargetKind::Lib) || target.is_kind(TargetKind::ProcMacro)),
        published: package.publish.as_ref().is_none_or(|registries| !registries.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, features: &[&str]) -> Crate {
        Crate {
            name: name.to_owned(),
            features: features.iter().map(|name| (*name).to_owned()).collect(),
            ..Crate::default()
        }
    }

    #[test]
    fn default_and_test_features_are_not_switched_on() {
        let report = member("ralph-report", &["default", "proptest1", "test-preserve-order"]);
        assert_eq!(features_of(&[&report], None), ["--features", "ralph-report/proptest1"]);
    }

    #[test]
    fn a_test_feature_is_named_where_it_exists() {
        let report = member("ralph-report", &["test-preserve-order"]);
        let other = member("ralph-tool", &[]);
        assert_eq!(
            features_of(&[&report, &other], Some("test-preserve-order")),
            ["--features", "ralph-report/test-preserve-order"]
        );
    }

    #[test]
    fn no_features_means_no_argument() {
        assert!(features_of(&[&member("harness-subagent", &[])], None).is_empty());
    }

    #[test]
    fn what_stands_apart_is_selected_by_name_only() {
        let apart = policy::APART[0];
        let workspace = Workspace {
            root: PathBuf::new(),
            target: PathBuf::new(),
            crates: vec![member("a", &["x"]), member(apart, &["y"])],
        };
        let all = workspace.selection(&[]).unwrap();
        assert_eq!(all, ["--workspace", "--exclude", apart, "--features", "a/x"]);
        let one = workspace.selection(&[apart.to_owned()]).unwrap();
        assert_eq!(one, ["--package", apart, "--features", &format!("{apart}/y")]);
    }

    #[test]
    fn a_feature_that_brings_what_stands_apart_is_built_apart_too() {
        let apart = policy::APART[0];
        let features = [
            ("far", vec![format!("dep:{apart}")]),
            ("further", vec!["far".to_owned()]),
            ("near", vec!["dep:serde".to_owned(), "serde?/derive".to_owned()]),
            ("weak", vec![format!("{apart}?/x")]),
        ];
        let heavy =
            heavy(&features.map(|(name, switched_on)| (name.to_owned(), switched_on)).into_iter().collect());
        assert_eq!(heavy.iter().map(String::as_str).collect::<Vec<_>>(), ["far", "further", "weak"]);
        let user = Crate { heavy, ..member("ralph-loop", &["far", "further", "near"]) };
        let workspace = Workspace { root: PathBuf::new(), target: PathBuf::new(), crates: vec![user] };
        assert_eq!(features_of(&[&workspace.crates[0]], None), ["--features", "ralph-loop/near"]);
        let whole = workspace.with_heavy_features();
        assert_eq!(
            features_of(&[&whole.crates[0]], None),
            ["--features", "ralph-loop/far,ralph-loop/further,ralph-loop/near"]
        );
    }

    #[test]
    fn a_test_that_needs_a_heavy_feature_is_built_with_it_only() {
        let tests = vec![
            Target::named("agents"),
            Target { required: vec!["far".to_owned()], ..Target::named("far") },
        ];
        let heavy = BTreeSet::from(["far".to_owned()]);
        let user = Crate { heavy, unlisted_tests: tests, ..member("ralph-loop", &["far"]) };
        let workspace = Workspace { root: PathBuf::new(), target: PathBuf::new(), crates: vec![user] };
        assert_eq!(workspace.crates[0].unlisted_tests().collect::<Vec<_>>(), ["agents"]);
        let whole = workspace.with_heavy_features();
        assert_eq!(whole.crates[0].unlisted_tests().collect::<Vec<_>>(), ["agents", "far"]);
    }

    #[test]
    fn unknown_crates_are_refused_with_the_list() {
        let workspace = Workspace {
            root: PathBuf::new(),
            target: PathBuf::new(),
            crates: vec![member("a", &[]), member("b", &[])],
        };
        let error = workspace.selection(&["c".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`c`") && error.contains("a, b"), "{error}");
    }
}
