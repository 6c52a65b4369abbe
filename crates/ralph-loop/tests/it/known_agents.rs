//! The agents that are known by name, here played by scripts.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::stage::{COMPLETE, Said, Stage};

/// Puts a script of that name where the known agents are looked for.
fn install(stage: &Stage, name: &str, body: &str) {
    let folder = stage.path("bin");
    fs::create_dir_all(&folder).unwrap();
    fs::rename(stage.script(name, body), folder.join(name)).unwrap();
}

/// Our program, for which the installed scripts are all the agents there are.
fn command(stage: &Stage, arguments: &[&str]) -> Command {
    let mut command = stage.command(arguments);
    command.env("PATH", stage.path("bin"));
    command
}

fn say(stage: &Stage, arguments: &[&str]) -> Said {
    Said::of(command(stage, arguments).output().unwrap())
}

/// Claude Code, as far as one round goes that ends well.
fn claude() -> String {
    format!(
        r#"PATH=/usr/bin:/bin
if [ "$1" = --version ]; then echo '2.1.197 (Claude Code)'; exit; fi
printf '%s\n' "$@" > arguments
read -r prompt
printf '%s\n' "$prompt" > prompt
echo '{{"type":"system","subtype":"init","session_id":"s-1"}}'
echo '{{"type":"result","subtype":"success","is_error":false,"session_id":"s-1","total_cost_usd":0.25,"num_turns":1,"usage":{{"input_tokens":1200,"output_tokens":34}},"structured_output":{COMPLETE}}}'
cat > /dev/null"#
    )
}

#[test]
fn a_known_agent_is_run_by_its_name_and_what_it_may_do_is_told_first() {
    let stage = Stage::new();
    install(&stage, "claude", &claude());
    let arguments =
        ["run", "do it", "--agent", "claude-code", "--model", "sonnet", "--permissions", "read-only"];
    let output = command(&stage, &arguments).env("ANTHROPIC_API_KEY", "k-value").output().unwrap();
    let said = Said::of(output).with_status(0);
    let may = said.out.find("it may").expect("it is told what the agent may do");
    assert!(said.out.contains("Claude Code, as claude, model sonnet"), "{}", said.out);
    assert!(said.out[may..].contains("change nothing"), "{}", said.out);
    assert!(may < said.out.find("round 1").unwrap(), "{}", said.out);
    assert!(said.out.contains("$0.25"), "{}", said.out);
    assert!(stage.text("arguments").contains("--model\nsonnet\n"));
    assert!(stage.text("prompt").contains("do it"));
    for launch in fs::read_dir(stage.state().join("launches")).unwrap() {
        let text = fs::read_to_string(launch.unwrap().path()).unwrap();
        assert!(text.contains("claude-code") && !text.contains("k-value"), "{text}");
    }
    let run = stage.runs().remove(0);
    say(&stage, &["show", &run]).with_status(0).with_out("Claude Code").with_out("change nothing");
}

#[test]
fn the_only_agent_that_is_installed_needs_no_name() {
    let stage = Stage::new();
    install(&stage, "claude", &claude());
    say(&stage, &["run", "do it"]).with_status(0).with_out("Claude Code");
    // A declared one is meant, whatever else is installed.
    let script = stage.script("mine.sh", "exit 3");
    fs::write(stage.file("ralph-loop.toml"), format!("[agents.mine]\ncommand = ['{script}']\n")).unwrap();
    say(&stage, &["run", "do it"]).with_status(12);
}

#[test]
fn several_agents_are_listed_to_choose_from_and_none_is_told() {
    let stage = Stage::new();
    fs::create_dir(stage.path("bin")).unwrap();
    say(&stage, &["run", "do it"])
        .with_status(2)
        .with_err("no agent was given")
        .with_err("Claude Code, Codex");
    install(&stage, "claude", &claude());
    install(&stage, "codex", "exit 1");
    let said = say(&stage, &["run", "do it"]).with_status(2).with_err("choose one");
    assert!(said.err.contains("--agent claude-code") && said.err.contains("--agent codex"), "{}", said.err);
    say(&stage, &["run", "do it", "--agent", "claude"]).with_status(2).with_err("did you mean claude-code?");
}

#[test]
fn an_agent_that_is_not_installed_is_told_how() {
    let stage = Stage::new();
    fs::create_dir(stage.path("bin")).unwrap();
    say(&stage, &["run", "do it", "--agent", "codex"])
        .with_status(16)
        .with_err("npm install --global @openai/codex");
    fs::write(stage.file("ralph-loop.toml"), "[agents.codex]\nprogram = 'bin/none'\n").unwrap();
    say(&stage, &["doctor"]).with_status(16).with_out("BAD   agent codex");
}

#[test]
fn choices_for_known_agents_are_refused_for_a_program_of_ones_own() {
    let stage = Stage::new();
    let agent = stage.script("agent.sh", "exit 3");
    for choice in [["--model", "m"], ["--permissions", "workspace"]] {
        let arguments = ["run", "x", choice[0], choice[1], "--", &agent];
        say(&stage, &arguments).with_status(2).with_err("a program of your own");
    }
    say(&stage, &["run", "x", "--permissions", "all"])
        .with_status(2)
        .with_err("read-only, workspace, unrestricted");
}

#[test]
fn the_doctor_tells_version_login_and_permissions() {
    let stage = Stage::new();
    install(&stage, "claude", &claude());
    install(&stage, "codex", "echo codex-cli 999.0.0");
    fs::write(stage.file("ralph-loop.toml"), "[agents.claude-code]\npermissions = 'unrestricted'\n").unwrap();
    let output = command(&stage, &["doctor", "--json"]).env("ANTHROPIC_API_KEY", "k-value").output().unwrap();
    let said = Said::of(output).with_status(0);
    let finding = |what: &str| {
        let mut findings = said.out.lines().map(crate::stage::json);
        findings.find(|finding| finding["what"] == what).unwrap()
    };
    let claude = finding("agent claude-code");
    assert_eq!(claude["verdict"], "good");
    for part in ["Claude Code 2.1.197", "ANTHROPIC_API_KEY", "do whatever the user could do"] {
        assert!(claude["detail"].as_str().unwrap().contains(part), "{claude}");
    }
    let codex = finding("agent codex");
    assert_eq!(codex["verdict"], "lacking");
    assert!(codex["detail"].as_str().unwrap().contains("999.0.0, which was not tested"), "{codex}");
    assert!(!said.out.contains("k-value"));
}

#[test]
fn what_was_chosen_is_shown_with_its_origin() {
    let stage = Stage::new();
    fs::write(stage.file("ralph-loop.toml"), "[agents.night]\nkind = 'codex'\nmodel = 'm'\n").unwrap();
    let said = say(&stage, &["config", "--json"]).with_status(0);
    let settings = &crate::stage::json(&said.out)["settings"];
    assert_eq!(settings["agents.night.kind"]["value"], "codex");
    assert_eq!(settings["agents.night.model"]["value"], "m");
    let origin = settings["agents.night.permissions"]["origin"].as_str().unwrap();
    assert!(Path::new(origin).ends_with("ralph-loop.toml"), "{origin}");
}
