//! The protocol's own conformance suite.

use std::fs::File;

use anyhow::{Context as _, Result, bail, ensure};

use crate::clients::modules;
use crate::http;
use crate::scene::{COMPLETE, Scene};

/// The scenarios that can be driven against a server that has our tools and no others.
const DRIVEN: &[&str] = &["server-initialize", "ping", "tools-list"];

/// Every other scenario of the suite, and why it cannot.
const NOT_DRIVEN: &[(&str, &[&str])] = &[
    (
        "it calls a tool of its own that the server must have",
        &[
            "tools-call-simple-text",
            "tools-call-image",
            "tools-call-audio",
            "tools-call-embedded-resource",
            "tools-call-mixed-content",
            "tools-call-with-logging",
            "tools-call-error",
            "tools-call-with-progress",
            "tools-call-sampling",
            "tools-call-elicitation",
            "json-schema-2020-12",
            "elicitation-sep1034-defaults",
            "elicitation-sep1330-enums",
        ],
    ),
    (
        "it needs resources, and the server offers none",
        &[
            "resources-list",
            "resources-read-text",
            "resources-read-binary",
            "resources-templates-read",
            "resources-subscribe",
            "resources-unsubscribe",
        ],
    ),
    (
        "it needs prompts, and the server offers none",
        &[
            "prompts-list",
            "prompts-get-simple",
            "prompts-get-with-args",
            "prompts-get-embedded-resource",
            "prompts-get-with-image",
        ],
    ),
    ("it needs a capability that the server does not declare", &["logging-set-level", "completion-complete"]),
    (
        "it is about HTTP, and the server speaks over standard input and output",
        &["server-sse-polling", "server-sse-multiple-streams", "dns-rebinding-protection"],
    ),
];

pub(crate) fn play(scene: &Scene) -> Result<()> {
    let program = modules("NPM_CONFORMANCE")?.join(".bin/conformance");
    let known = scenarios(scene, &program)?;
    let listed: Vec<&str> =
        NOT_DRIVEN.iter().flat_map(|(_, names)| names.iter()).chain(DRIVEN).copied().collect();
    for name in &known {
        ensure!(listed.contains(&name.as_str()), "the suite has a scenario that is not listed here: {name}");
    }
    for name in &listed {
        ensure!(known.iter().any(|known| known == name), "the suite has no scenario {name} any more");
    }
    let server = scene.server(&format!("printf '%s' '{COMPLETE}' > \"$HARNESS_VALUE_FILE\""))?;
    let bridge = http::serve(move || std::process::Command::new(&server))?;
    let mut failed = Vec::new();
    for name in DRIVEN {
        let status = scene
            .command(&program)
            .args(["server", "--url", &bridge.url, "--scenario", name])
            .stdout(File::create(scene.path("client.out"))?)
            .stderr(File::create(scene.path("client.err"))?)
            .status()
            .context("the suite cannot be started")?;
        println!("        {} scenario {name}", if status.success() { "ok     " } else { "FAILED " });
        if !status.success() {
            failed.push(*name);
        }
    }
    for (why, names) in NOT_DRIVEN {
        println!("        not driven, since {why}: {}", names.join(", "));
    }
    drop(bridge);
    if failed.is_empty() { Ok(()) } else { bail!("the suite fails in {}", failed.join(", ")) }
}

/// The scenarios for servers, as the suite lists them.
fn scenarios(scene: &Scene, program: &std::path::Path) -> Result<Vec<String>> {
    let output =
        scene.command(program).args(["list", "--server"]).output().context("the suite cannot be started")?;
    let text = String::from_utf8(output.stdout)?;
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split(' ').next());
    Ok(names.map(str::to_owned).collect())
}
