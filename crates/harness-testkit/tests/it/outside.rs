//! The examples as crates of somebody else, outside this workspace.

use std::path::Path;
use std::process::{Command, Output};

/// Makes a crate of an example, runs it, and returns what came out, or nothing where cargo cannot build offline.
///
/// `feature` is that of the test kit, `dependencies` are the lines for what it needs besides the seams and the test kit.
pub(crate) fn run(example: &str, source: &str, feature: &str, dependencies: &str) -> Option<Output> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = here.join("../..");
    let dir = tempfile::tempdir().expect("the system has a place for temporary files");
    let manifest = format!(
        "[package]\nname = \"outside-{example}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [workspace]\n\n\
         [dependencies]\nharness-testkit = {{ path = {here:?}, default-features = false, features = [{feature:?}] }}\n{dependencies}\n\
         [profile.dev]\ndebug = \"line-tables-only\"\n\n[profile.dev.package.\"*\"]\ndebug = false\n"
    );
    let write =
        |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("the file is written");
    std::fs::create_dir(dir.path().join("src")).expect("the folder is made");
    write("Cargo.toml", &manifest);
    write("src/main.rs", source);
    std::fs::copy(workspace.join("Cargo.lock"), dir.path().join("Cargo.lock"))
        .expect("the lock file is copied");

    let output = Command::new(env!("CARGO"))
        .args(["run", "--offline", "--quiet"])
        .current_dir(dir.path())
        // Libraries that this workspace has built are not built again.
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join(".."))
        .output()
        .expect("cargo, which has built this test, can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && errors.contains("--offline was specified") {
        println!("skipped: cargo has not got every library at hand: {errors}");
        return None;
    }
    Some(output)
}

#[cfg(feature = "subagent")]
#[test]
fn custom_provider_keeps_the_contract_in_a_crate_of_its_own() {
    use harness_testkit::subagent::PROVIDER_SUITE;

    let subagent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../harness-subagent");
    let dependencies = format!(
        "harness-subagent = {{ path = {subagent:?} }}\n\
         async-trait = \"0.1\"\nserde_json = \"1\"\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"sync\", \"time\"] }}\ntokio-util = \"0.7\"\n"
    );
    let source = include_str!("../../examples/custom_provider.rs");
    let Some(output) = run("custom-provider", source, "subagent", &dependencies) else { return };
    let (lines, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{lines}\n{errors}");
    for check in PROVIDER_SUITE.checks() {
        let line = format!("ok      {}", check.clause().id);
        assert!(lines.lines().any(|found| found == line), "no line {line:?} in {lines}");
    }
}

#[cfg(feature = "workflow")]
#[test]
fn custom_engine_keeps_the_contract_in_a_crate_of_its_own() {
    use harness_testkit::workflow::ENGINE_SUITE;

    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (subagent, workflow) = (crates.join("harness-subagent"), crates.join("harness-workflow"));
    let dependencies = format!(
        "harness-subagent = {{ path = {subagent:?} }}\nharness-workflow = {{ path = {workflow:?} }}\n\
         async-trait = \"0.1\"\nserde_json = \"1\"\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt\", \"sync\", \"time\"] }}\ntokio-util = \"0.7\"\n"
    );
    let source = include_str!("../../examples/custom_engine.rs");
    let Some(output) = run("custom-engine", source, "workflow", &dependencies) else { return };
    let (lines, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{lines}\n{errors}");
    for check in ENGINE_SUITE.checks() {
        let line = format!("ok      {}", check.clause().id);
        assert!(lines.lines().any(|found| found == line), "no line {line:?} in {lines}");
    }
}
