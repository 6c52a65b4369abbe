//! Settings from files, the environment and flags, and the agents that files declare.

use std::fs;

use crate::stage::{COMPLETE, Said, Stage, hand_in, json};

fn users_file(stage: &Stage, text: &str) {
    let folder = stage.path(".config/ralph-loop");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), text).unwrap();
}

fn workspace_file(stage: &Stage, text: &str) {
    fs::write(stage.file("ralph-loop.toml"), text).unwrap();
}

#[test]
fn what_means_nothing_is_refused_with_a_suggestion_wherever_it_stands() {
    let stage = Stage::new();
    workspace_file(&stage, "max-round = 3\n");
    for arguments in [["config"].as_slice(), &["run", "x", "--", "true"]] {
        let said = stage.say(arguments).with_status(2).with_err("did you mean max-rounds?");
        assert!(said.err.contains("ralph-loop.toml"), "{}", said.err);
    }
    stage.say(&["doctor"]).with_status(16).with_out("did you mean max-rounds?");
    workspace_file(&stage, "max-rounds = \n");
    stage.say(&["config"]).with_status(2).with_err("line 1");
    workspace_file(&stage, "");
    users_file(&stage, "[agents.a]\ncommand = 'x'\n");
    stage.say(&["config"]).with_status(2).with_err("must be an array of strings");
    users_file(&stage, "");
    let output = stage.command(&["config"]).env("RALPH_LOOP_MAX_ROUND", "3").output().unwrap();
    Said::of(output).with_status(2).with_err("did you mean RALPH_LOOP_MAX_ROUNDS?");
}

#[test]
fn the_stronger_source_wins_and_every_value_names_its_own() {
    let stage = Stage::new();
    workspace_file(&stage, "max-rounds = 3\nround-limit = '3m'\nidle-limit = '3s'\n");
    users_file(&stage, "max-rounds = 4\nround-limit = '4m'\n");
    let output = stage.command(&["config", "--json"]).env("RALPH_LOOP_MAX_ROUNDS", "5").output().unwrap();
    let config = json(&Said::of(output).with_status(0).out);
    let setting = |name: &str| {
        (config["settings"][name]["value"].clone(), config["settings"][name]["origin"].as_str().unwrap())
    };
    assert_eq!(setting("max-rounds"), (5.into(), "RALPH_LOOP_MAX_ROUNDS in the environment"));
    let (round_limit, origin) = setting("round-limit");
    assert!(round_limit == "4m" && origin.ends_with(".config/ralph-loop/config.toml"), "{origin}");
    let (idle_limit, origin) = setting("idle-limit");
    assert!(idle_limit == "3s" && origin.ends_with("workspace/ralph-loop.toml"), "{origin}");
    stage.say(&["config"]).with_status(0).with_out("max-rounds   4");

    let agent = stage.script("agent.sh", &hand_in(COMPLETE));
    let mut command = stage.command(&["run", "x", "--max-rounds", "6", "--", &agent]);
    Said::of(command.env("RALPH_LOOP_MAX_ROUNDS", "5").output().unwrap()).with_status(0);
    let launch = &stage.only_run()["launch"];
    assert_eq!(
        (&launch["max-rounds"], &launch["origins"]["max-rounds"]),
        (&6.into(), &"command line".into())
    );
    assert_eq!(launch["round-limit-ms"], 240_000);
}

#[test]
fn a_declared_agent_is_run_by_name_or_because_it_is_the_only_one() {
    let stage = Stage::new();
    fs::create_dir(stage.file("bin")).unwrap();
    let script =
        stage.script("agent.sh", &format!("echo \"$1 $TOKEN $SECRET\" > said; {}", hand_in(COMPLETE)));
    fs::rename(script, stage.file("bin/agent.sh")).unwrap();
    workspace_file(&stage, "[agents.mine]\ncommand = ['bin/agent.sh', '$(id)']\npass-env = ['TOKEN']\n");
    // From elsewhere: the program is found from the folder of the file.
    let workspace = stage.workspace.to_str().unwrap();
    let mut command = stage.command(&["run", "x", "--workspace", workspace]);
    let output = command.current_dir("/").env("TOKEN", "t-value").env("SECRET", "s-value").output().unwrap();
    Said::of(output).with_status(0);
    assert_eq!(stage.text("said"), "$(id) t-value \n");
    let launches = fs::read_dir(stage.state().join("launches")).unwrap();
    for launch in launches {
        let text = fs::read_to_string(launch.unwrap().path()).unwrap();
        assert!(text.contains("TOKEN") && !text.contains("t-value"), "{text}");
    }

    users_file(&stage, "[agents.other]\ncommand = ['false']\n");
    let said = stage.say(&["run", "x"]).with_status(2).with_err("choose one");
    assert!(said.err.contains("--agent mine") && said.err.contains("--agent other"), "{}", said.err);
    stage.say(&["run", "x", "--agent", "mone"]).with_status(2).with_err("did you mean mine?");
    stage.say(&["run", "x", "--agent", "mine"]).with_status(0);
    stage.say(&["run", "x", "--agent", "other"]).with_status(12);
    users_file(&stage, "agent = 'other'\n[agents.other]\ncommand = ['false']\n");
    stage.say(&["run", "x"]).with_status(12);
}

#[test]
fn the_doctor_says_what_would_be_run_and_what_is_missing() {
    let stage = Stage::new();
    stage.say(&["doctor"]).with_status(0).with_out("state directory");
    workspace_file(&stage, "[agents.mine]\ncommand = ['sh', '-c', 'true']\n");
    let said = stage.say(&["doctor"]).with_status(0).with_out("agent mine");
    assert!(said.out.contains("it may do whatever you may"), "{}", said.out);
    workspace_file(&stage, "[agents.mine]\ncommand = ['no-such-program-anywhere']\n");
    stage.say(&["doctor"]).with_status(16).with_out("BAD   agent mine").with_out("install it");
    let findings = stage.say(&["doctor", "--json"]).with_status(16).out;
    assert!(findings.lines().map(json).any(|finding| finding["verdict"] == "bad"));
}
