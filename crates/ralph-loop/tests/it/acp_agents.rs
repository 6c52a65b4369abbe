//! Agents that speak the Agent Client Protocol, here a script that knows what will be asked of it.

use std::fs;

use crate::stage::{COMPLETE, Stage};

/// Asks for a permission, and hands in what the capture server would write down.
fn agent(stage: &Stage) -> String {
    stage.script(
        "agent.sh",
        &format!(
            r#"answer() {{ read -r request; echo "{{\"jsonrpc\":\"2.0\",\"id\":$1,\"result\":$2}}"; }}
answer 0 '{{"protocolVersion":1,"agentInfo":{{"name":"toy","version":"1.2.3"}}}}'
answer 1 '{{"sessionId":"s"}}'
value=$(printf '%s' "$request" | sed 's/.*"HARNESS_VALUE_FILE","value":"\([^"]*\)".*/\1/')
read -r prompt
printf '%s\n' "$prompt" > prompt
options='[{{"optionId":"no","name":"No","kind":"reject_once"}},{{"optionId":"yes","name":"Yes","kind":"allow_once"}}]'
echo "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"session/request_permission\",\"params\":{{\"sessionId\":\"s\",\"toolCall\":{{\"toolCallId\":\"t\"}},\"options\":$options}}}}"
read -r permission
printf '%s\n' "$permission" > permission
printf '%s' '{COMPLETE}' > "$value"
echo '{{"jsonrpc":"2.0","id":2,"result":{{"stopReason":"end_turn"}}}}'
cat > /dev/null"#
        ),
    )
}

#[test]
fn the_program_behind_the_dashes_may_speak_the_protocol() {
    let stage = Stage::new();
    let agent = agent(&stage);
    let said = stage.say(&["run", "do it", "--agent", "acp", "--when-asked", "allow", "--", &agent]);
    let said = said.with_status(0).with_out("for is granted").with_out("Done.");
    assert!(said.out.find("granted").unwrap() < said.out.find("round 1").unwrap(), "{}", said.out);
    assert!(stage.text("prompt").contains("do it") && stage.text("permission").contains("\"yes\""));
    let launch = stage.only_run()["launch"].clone();
    assert_eq!(launch["agent"]["way"]["acp"]["when-asked"], "allow", "{launch}");
    // Nobody says yes for whoever did not say so.
    stage.say(&["run", "do it", "--agent", "acp", "--", &agent]).with_out("is refused");
    assert!(stage.text("permission").contains("\"no\""));
}

#[test]
fn a_declared_agent_may_speak_the_protocol() {
    let stage = Stage::new();
    let agent = agent(&stage);
    let declared = format!("[agents.toy]\nkind = 'acp'\ncommand = ['{agent}']\nwhen-asked = 'allow'\n");
    fs::write(stage.file("ralph-loop.toml"), &declared).unwrap();
    stage.say(&["run", "do it", "--agent", "toy"]).with_status(0).with_out("Done.");
    stage.say(&["config"]).with_status(0).with_out("agents.toy.when-asked");
    stage.say(&["doctor"]).with_status(0).with_out("toy 1.2.3").with_out("is granted");
    let refused = |text: &str, told: &str| {
        fs::write(stage.file("ralph-loop.toml"), text).unwrap();
        stage.say(&["config"]).with_status(2).with_err(told);
    };
    refused("[agents.toy]\nkind = 'acp'\n", "`command` must be an array");
    refused("[agents.acp]\ncommand = ['x']\n", "choose another one");
    refused(&format!("{declared}model = 'x'\n"), "unknown key `model`");
    refused(&declared.replace("'allow'", "'perhaps'"), "give one of reject, allow");
    refused(&format!("{declared}options = {{ model = 3 }}\n"), "must be a string, not integer");
}

#[test]
fn what_does_not_fit_the_protocol_is_refused() {
    let stage = Stage::new();
    stage.say(&["run", "x", "--agent", "acp"]).with_status(2).with_err("give one, as in");
    stage.say(&["run", "x", "--when-asked", "allow", "--", "true"]).with_status(2).with_err("--agent acp");
    stage
        .say(&["run", "x", "--agent", "acp", "--output", "stdout", "--", "true"])
        .with_status(2)
        .with_err("--output and --prompt");
    stage
        .say(&["run", "x", "--agent", "acp", "--model", "m", "--", "true"])
        .with_status(2)
        .with_err("--model and --permissions");
}
