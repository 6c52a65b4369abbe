//! What is said of a Temporal server before one is asked. Runs on one are in `tests/temporal`.

use std::fs;

use crate::stage::{Stage, json};

const SECRET: &str = "8c1f7e0d-hush";

#[cfg(not(feature = "temporal"))]
#[test]
fn a_build_without_the_engine_says_how_to_get_one() {
    let stage = Stage::new();
    for arguments in [
        &["run", "x", "--agent", "mine", "--engine", "temporal"][..],
        &["runs", "--engine", "temporal"],
        &["show", "3f2a", "--engine", "temporal"],
        &["attach", "3f2a", "--engine", "temporal"],
        &["cancel", "3f2a", "--engine", "temporal"],
        &["continue", "3f2a", "--engine", "temporal"],
        &["worker", "--temporal-address", "http://127.0.0.1:7233"],
    ] {
        let said = stage.say(arguments).with_status(16).with_err("--features temporal");
        assert_eq!(said.out, "");
    }
}

#[cfg(feature = "temporal")]
#[test]
fn a_command_that_does_not_know_its_server_asks_for_it() {
    let stage = Stage::new();
    stage.say(&["runs", "--engine", "temporal"]).with_status(2).with_err("--temporal-address");
    stage.say(&["worker"]).with_status(2).with_err("--temporal-address");
}

#[test]
fn an_engine_that_is_configured_counts_for_every_command_but_can_be_overruled() {
    let stage = Stage::new();
    fs::write(stage.file("ralph-loop.toml"), "engine = \"temporal\"\n").unwrap();
    let status = if cfg!(feature = "temporal") { 2 } else { 16 };
    stage.say(&["runs"]).with_status(status);
    stage.say(&["doctor"]).with_status(16).with_out("BAD   engine");
    stage.say(&["runs", "--engine", "local"]).with_status(0).with_out("no runs yet");
    stage.say(&["mcp"]).with_status(2).with_err("RALPH_LOOP_ENGINE=local");
}

#[test]
fn a_server_that_the_engine_does_not_need_is_refused() {
    let stage = Stage::new();
    let address = ["--temporal-address", "http://127.0.0.1:7233"];
    for command in [&["run", "x"][..], &["runs"], &["show", "3f2a"], &["runs", "--engine", "local"]] {
        let arguments = [command, &address].concat();
        stage.say(&arguments).with_status(2).with_err("add `--engine temporal`");
    }
}

#[test]
fn what_is_on_the_workers_is_not_looked_for_here() {
    let stage = Stage::new();
    stage.say(&["logs", "3f2a", "--engine", "temporal"]).with_status(2).with_err("on the workers");
    stage.say(&["resume", "3f2a", "--engine", "temporal"]).with_status(2).with_err("goes on by itself");
    stage.say(&["attach", "3f2a"]).with_status(2).with_err("--engine temporal");
}

#[test]
fn a_key_is_neither_shown_nor_taken_from_a_file_of_settings() {
    let stage = Stage::new();
    let mut command = stage.command(&["config", "--json"]);
    let output = command.env("RALPH_LOOP_TEMPORAL_API_KEY", SECRET).output().unwrap();
    let said = crate::stage::Said::of(output).with_status(0);
    assert!(!said.out.contains(SECRET) && !said.err.contains(SECRET), "{said:?}");
    assert_eq!(json(&said.out)["settings"]["temporal.api-key"]["value"], "set, and not shown");
    fs::write(stage.file("ralph-loop.toml"), format!("[temporal]\napi-key = \"{SECRET}\"\n")).unwrap();
    let said = stage.say(&["config"]).with_status(2).with_err("api-key-file");
    assert!(!said.err.contains(SECRET), "{said:?}");
}

#[test]
fn settings_about_the_server_are_told_with_their_origin() {
    let stage = Stage::new();
    let text = "[temporal]\naddress = \"https://temporal.example:7233\"\ntls-ca = \"ca.pem\"\n\
                workspace-hook = [\"./hook.sh\", \"fast\"]\n[temporal.queues]\nclaude-code = \"gpu\"\n";
    fs::write(stage.file("ralph-loop.toml"), text).unwrap();
    let mut command = stage.command(&["config", "--json"]);
    let output = command.env("RALPH_LOOP_TEMPORAL_NAMESPACE", "agents").output().unwrap();
    let settings = json(&crate::stage::Said::of(output).with_status(0).out)["settings"].take();
    let value = |name: &str| settings[name]["value"].clone();
    assert_eq!(value("temporal.address"), "https://temporal.example:7233");
    assert_eq!(value("temporal.tls-ca"), stage.file("ca.pem").to_str().unwrap());
    assert_eq!(value("temporal.workspace-hook")[1], "fast");
    assert_eq!(value("temporal.queues.claude-code"), "gpu");
    assert_eq!(settings["temporal.namespace"]["origin"], "RALPH_LOOP_TEMPORAL_NAMESPACE in the environment");
}

#[test]
fn settings_about_the_server_that_mean_nothing_are_refused() {
    let stage = Stage::new();
    for (text, told) in [
        ("engine = 'cloud'", "give one of local, temporal"),
        ("temporal = 3", "must be a table"),
        ("[temporal]\nadress = 'x'", "did you mean address?"),
        ("[temporal]\nheartbeat-timeout = '1s'", "from 5s to 1h"),
        ("[temporal]\nworkspace-hook = []", "the program and its arguments"),
        ("[temporal]\nqueues = 'q'", "a table of agents and queues"),
        ("[temporal]\nqueues = { a = 'two words' }", "without blanks"),
        ("[temporal]\nworkspaces = '/srv'\nworkspace-hook = ['x']", "two answers"),
    ] {
        fs::write(stage.file("ralph-loop.toml"), text).unwrap();
        stage.say(&["config"]).with_status(2).with_err(told);
    }
    fs::remove_file(stage.file("ralph-loop.toml")).unwrap();
    let mut command = stage.command(&["config"]);
    let output = command.env("RALPH_LOOP_TEMPORAL_ADRESS", "x").output().unwrap();
    crate::stage::Said::of(output).with_status(2).with_err("did you mean RALPH_LOOP_TEMPORAL_ADDRESS?");
}
