//! What an agent's child is started with, and what is refused before there is one.

use std::error::Error;
use std::fs;

use harness_process::Environment;
use harness_provider_cli::{AgentHandIn, AgentKind, AgentProvider, CaptureServer, Login, Permissions};
use harness_subagent::{ErrorKind, ModelChoice, Origin, Parent, StartSubagent, SubagentProvider};

use super::fake::{FakeAgent, Play, rule};
use crate::support::{any_object, files_below};

/// Runs a child that completes, and returns its arguments.
async fn arguments(fake: &FakeAgent, provider: &AgentProvider) -> Vec<String> {
    let run = provider.start(StartSubagent::new("completes\n", fake.bench.parent())).await.unwrap();
    let result = run.result().await.unwrap();
    assert!(result.stop_reason.is_completed(), "{result:?}");
    run.dispose().await.unwrap();
    fake.arguments()
}

#[track_caller]
fn has(arguments: &[String], option: &[&str]) -> bool {
    arguments.windows(option.len()).any(|window| window == option)
}

fn fake(kind: AgentKind) -> FakeAgent {
    FakeAgent::new(kind, &Play::Prompted)
}

#[tokio::test]
async fn permissions_are_never_wider_than_was_said() {
    let claude = fake(AgentKind::ClaudeCode);
    let found = arguments(&claude, &claude.provider()).await;
    assert!(
        has(&found, &["--permission-mode", "acceptEdits"]) && has(&found, &["--allowedTools", "Bash"]),
        "{found:?}"
    );
    let found = arguments(&claude, &claude.provider().with_permissions(Permissions::ReadOnly)).await;
    assert!(
        has(&found, &["--permission-mode", "dontAsk"]) && has(&found, &["--allowedTools", "Read,Glob,Grep"])
    );
    let fetching = claude.provider().with_permissions(Permissions::ReadOnly).with_allowed_tools(["WebFetch"]);
    assert!(fetching.permissions_in_words().ends_with("; and use WebFetch"));
    assert!(has(&arguments(&claude, &fetching).await, &["--allowedTools", "Read,Glob,Grep,WebFetch"]));
    let sandbox = claude.bench.environment().set("IS_SANDBOX", "1");
    let all = claude.provider().with_environment(sandbox).with_permissions(Permissions::Unrestricted);
    assert!(has(&arguments(&claude, &all).await, &["--permission-mode", "bypassPermissions"]));

    let codex = fake(AgentKind::Codex);
    for (permissions, option) in [
        (Permissions::ReadOnly, &["-s", "read-only"][..]),
        (Permissions::Workspace, &["-s", "workspace-write"]),
        (Permissions::Unrestricted, &["--dangerously-bypass-approvals-and-sandbox"]),
    ] {
        let found = arguments(&codex, &codex.provider().with_permissions(permissions)).await;
        assert!(has(&found, option), "{found:?}");
        assert_eq!(
            found.iter().filter(|argument| argument.contains("bypass")).count(),
            usize::from(option.len() == 1)
        );
    }
}

#[tokio::test]
async fn permissions_of_agents_that_only_have_modes_are_never_wider_than_was_said() {
    for (kind, edits) in [(AgentKind::Gemini, "auto_edit"), (AgentKind::QwenCode, "auto-edit")] {
        let fake = fake(kind);
        let with = |permissions| fake.provider().with_permissions(permissions);
        let found = arguments(&fake, &with(Permissions::ReadOnly)).await;
        assert!(has(&found, &["--approval-mode", "default"]), "{found:?}");
        assert!(!found.iter().any(|argument| argument == "--allowed-tools"), "{found:?}");
        let found = arguments(&fake, &with(Permissions::Workspace)).await;
        assert!(has(&found, &["--approval-mode", edits]), "{found:?}");
        assert!(has(&found, &["--allowed-tools", "run_shell_command"]), "{found:?}");
        let found = arguments(&fake, &with(Permissions::Unrestricted)).await;
        assert!(has(&found, &["--approval-mode", "yolo"]), "{found:?}");
    }

    let opencode = fake(AgentKind::Opencode);
    for (permissions, all, outside) in [
        (Permissions::ReadOnly, "deny", Some("deny")),
        (Permissions::Workspace, "allow", Some("deny")),
        (Permissions::Unrestricted, "allow", None),
    ] {
        arguments(&opencode, &opencode.provider().with_permissions(permissions)).await;
        let config = opencode.variable("OPENCODE_CONFIG_CONTENT").unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        assert_eq!(config["permission"]["*"], all);
        assert_eq!(config["permission"]["external_directory"].as_str(), outside);
        assert_eq!(config["permission"]["bash"].as_str(), None, "what is not named is as all is");
    }
}

#[tokio::test]
async fn nothing_of_the_user_but_a_login_is_carried_over_to_agents_with_accounts() {
    for (kind, login, own, names) in [
        (AgentKind::Gemini, ".gemini/oauth_creds.json", "GEMINI_CLI_HOME", vec![".gemini"]),
        (AgentKind::Opencode, ".local/share/opencode/auth.json", "XDG_DATA_HOME", vec!["opencode"]),
        (
            AgentKind::QwenCode,
            ".qwen/oauth_creds.json",
            "QWEN_HOME",
            vec!["oauth_creds.json", "system-settings.json"],
        ),
    ] {
        let fake = fake(kind);
        let home = fake.bench.place().join("user");
        let login = home.join(login);
        fs::create_dir_all(login.parent().unwrap()).unwrap();
        fs::write(&login, "{}").unwrap();
        fs::write(login.with_file_name("settings.json"), r#"{"mcpServers":{"mine":{}}}"#).unwrap();
        let environment = fake.bench.environment().set("HOME", &home);
        let provider = fake.provider().with_environment(environment);
        let found = arguments(&fake, &provider).await;
        assert_eq!(fake.home(), names, "{kind}");
        let own = fake.variable(own).unwrap();
        assert!(own.starts_with(fake.bench.files().to_str().unwrap()), "{own}");
        match kind {
            AgentKind::Opencode => {
                assert_eq!(fake.variable("OPENCODE_DISABLE_PROJECT_CONFIG").as_deref(), Some("1"));
            }
            _ => assert!(has(&found, &["--allowed-mcp-server-names", "none"]), "{found:?}"),
        }
        assert!(login.is_file(), "the user's own file outlives the child");
        assert_eq!(provider.detect().await.login, Login::Present(login.display().to_string()));
    }
}

#[tokio::test]
async fn qwen_code_gathers_no_memories_once_it_is_done() {
    let qwen = fake(AgentKind::QwenCode);
    arguments(&qwen, &qwen.provider()).await;
    let settings = qwen.settings();
    for name in ["enableManagedAutoMemory", "enableManagedAutoDream", "enableAutoSkill"] {
        assert_eq!(settings["memory"][name], false, "{name}");
    }
}

#[tokio::test]
async fn root_outside_a_sandbox_is_refused_rather_than_called_a_sandbox() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let claude = fake(AgentKind::ClaudeCode);
    let environment = claude.bench.environment().set("IS_SANDBOX", "yes");
    let provider =
        claude.provider().with_environment(environment).with_permissions(Permissions::Unrestricted);
    refused(&claude, &provider, StartSubagent::new("completes\n", claude.bench.parent()), "IS_SANDBOX").await;
}

#[tokio::test]
async fn instructions_of_the_workspace_can_be_left_out() {
    let claude = fake(AgentKind::ClaudeCode);
    let workspace = claude.bench.workspace();
    let option = ["--add-dir", workspace.to_str().unwrap()];
    let switch = "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD";
    assert!(has(&arguments(&claude, &claude.provider()).await, &option));
    assert_eq!(claude.variable(switch).as_deref(), Some("1"));
    assert!(!has(&arguments(&claude, &claude.provider().with_instructions(false)).await, &option));
    assert_eq!(claude.variable(switch), None);

    let opencode = fake(AgentKind::Opencode);
    let file = opencode.bench.workspace().join("AGENTS.md");
    fs::write(&file, "be brief").unwrap();
    let named = || {
        let config = opencode.variable("OPENCODE_CONFIG_CONTENT").unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        config["instructions"].as_array().unwrap().clone()
    };
    arguments(&opencode, &opencode.provider()).await;
    assert_eq!(named(), [file.to_str().unwrap()]);
    arguments(&opencode, &opencode.provider().with_instructions(false)).await;
    assert!(named().is_empty());

    let codex = fake(AgentKind::Codex);
    let option = ["-c", "project_doc_max_bytes=0"];
    assert!(!has(&arguments(&codex, &codex.provider()).await, &option));
    assert!(has(&arguments(&codex, &codex.provider().with_instructions(false)).await, &option));
}

#[tokio::test]
async fn nothing_of_the_user_but_credentials_is_carried_over() {
    let claude = fake(AgentKind::ClaudeCode);
    let home = claude.bench.place().join("user");
    fs::create_dir_all(home.join(".claude")).unwrap();
    let state = r#"{"primaryApiKey":"k","oauthAccount":{"emailAddress":"e"},"projects":{"/x":{}},"mcpServers":{"m":{}}}"#;
    fs::write(home.join(".claude.json"), state).unwrap();
    fs::write(home.join(".claude/settings.json"), r#"{"hooks":{}}"#).unwrap();
    let environment = || claude.bench.environment().set("HOME", &home);
    let provider = claude.provider().with_environment(environment().set("ANTHROPIC_API_KEY", "key"));
    let found = arguments(&claude, &provider).await;
    assert!(has(&found, &["--setting-sources", ""]) && has(&found, &["--strict-mcp-config"]), "{found:?}");
    assert_eq!(claude.home(), [".claude.json"]);
    assert_eq!(claude.variable("ANTHROPIC_API_KEY").as_deref(), Some("key"));
    let own = claude.variable("CLAUDE_CONFIG_DIR").unwrap();
    assert!(own.starts_with(claude.bench.files().to_str().unwrap()), "{own}");
    assert_eq!(provider.detect().await.login, Login::Present("ANTHROPIC_API_KEY".into()));

    let codex = fake(AgentKind::Codex);
    let home = codex.bench.place().join("user");
    fs::create_dir_all(home.join(".codex")).unwrap();
    fs::write(home.join(".codex/auth.json"), "{}").unwrap();
    fs::write(home.join(".codex/config.toml"), "model = \"mine\"\n").unwrap();
    let provider = codex.provider().with_environment(codex.bench.environment().set("HOME", &home));
    let found = arguments(&codex, &provider).await;
    assert!(has(&found, &["--ignore-user-config"]) && has(&found, &["--disable", "plugins"]), "{found:?}");
    assert_eq!(codex.home(), ["auth.json"]);
    let place = home.join(".codex/auth.json").display().to_string();
    assert_eq!(provider.detect().await.login, Login::Present(place));
    assert!(home.join(".codex/auth.json").is_file(), "the user's own file outlives the child");
}

#[tokio::test]
async fn a_variable_that_nobody_named_does_not_reach_an_agent() {
    for &kind in AgentKind::ALL {
        let fake = fake(kind);
        let environment = Environment::empty().allow("PATH").set("HARNESS_TEST_TOKEN", fake.bench.token());
        arguments(&fake, &fake.provider().with_environment(environment)).await;
        let ours =
            ["PATH", "PWD", "_", "SHLVL", "OLDPWD", "HARNESS_TEST_TOKEN", "HARNESS_MARK", "HARNESS_DEPTH"];
        let agents = [
            "CLAUDE_",
            "DISABLE_",
            "MAX_STRUCTURED_OUTPUT_RETRIES",
            "CODEX_HOME",
            "IS_SANDBOX",
            "GEMINI_CLI_",
            "OPENCODE_",
            "QWEN_",
            "XDG_",
            "NO_COLOR",
        ];
        for variable in fake.variables("agent") {
            let name = variable.split('=').next().unwrap();
            let known = ours.contains(&name)
                || agents.iter().any(|agent| name.starts_with(agent))
                || kind.features().credentials.contains(&name);
            assert!(known, "{variable}");
        }
    }
}

#[tokio::test]
async fn the_model_of_the_request_goes_before_that_of_the_provider() {
    for &kind in AgentKind::ALL {
        let option = if kind == AgentKind::Codex { "-m" } else { "--model" };
        let fake = fake(kind);
        let provider = fake.provider().with_model("usual");
        assert!(has(&arguments(&fake, &provider).await, &[option, "usual"]));
        let request = StartSubagent::new("completes\n", fake.bench.parent());
        let run = provider.start(request.with_model(ModelChoice::model("special"))).await.unwrap();
        run.result().await.unwrap();
        run.dispose().await.unwrap();
        assert!(has(&fake.arguments(), &[option, "special"]));
    }
}

#[tokio::test]
async fn a_capture_server_is_told_what_to_take_and_where_to_put_it() {
    for &kind in AgentKind::ALL {
        let lines = format!("{}/tests/fixtures/{kind}/captured.jsonl", env!("CARGO_MANIFEST_DIR"));
        let play = Play::Recorded { lines: lines.into(), end: super::fake::End::Status(0) };
        let fake = FakeAgent::new(kind, &play);
        let provider = fake.provider().with_capture(fake.capture_server()).with_hand_in(AgentHandIn::Capture);
        let request = StartSubagent::new("go", fake.bench.parent())
            .with_origin(Origin::new("r", 7, 2))
            .with_output(any_object().with_rule(rule()));
        let run = provider.with_corrections(1).start(request).await.unwrap();
        assert!(run.result().await.unwrap().stop_reason.is_completed());
        run.dispose().await.unwrap();

        let files = fake.bench.files().join("r/7-2");
        let variables = fake.variables("server");
        let value = |name: &str| {
            let found = variables.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='));
            found.unwrap_or_else(|| panic!("{name} is not in {variables:?}")).to_owned()
        };
        for (name, expected) in [
            (harness_provider_cli::TOOL, "submit_report"),
            (harness_provider_cli::CORRECTIONS, "1"),
            (harness_provider_cli::RUN, "r"),
            (harness_provider_cli::CALL, "7"),
            (harness_provider_cli::ATTEMPT, "2"),
        ] {
            assert_eq!(value(name), expected);
        }
        let rule_file = fs::read_to_string(value(harness_provider_cli::RULE_FILE)).unwrap();
        assert_eq!(rule_file, r#"{"name":"names-next-steps"}"#);
        let schema = fs::read_to_string(value(harness_provider_cli::SCHEMA_FILE)).unwrap();
        assert_eq!(schema, any_object().schema().to_string());
        for name in [harness_provider_cli::VALUE_FILE, harness_provider_cli::REFUSED_FILE] {
            assert!(value(name).starts_with(files.to_str().unwrap()), "{name}");
        }
        let arguments = fs::read_to_string(fake.bench.place().join("server.arguments")).unwrap();
        assert_eq!(arguments, "capture\0it's \"x\"\0");
    }
}

/// Asserts that a start is refused with `why` in its reason, and leaves nothing.
async fn refused(fake: &FakeAgent, provider: &AgentProvider, request: StartSubagent, why: &str) {
    let error = provider.start(request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains(why), "{cause}");
    assert!(files_below(&fake.bench.files()).is_empty());
    fake.bench.assert_nothing_left();
}

#[tokio::test]
async fn what_an_agent_cannot_do_is_refused_before_there_is_a_child() {
    for &kind in AgentKind::ALL {
        let fake = fake(kind);
        let (provider, features) = (fake.provider(), kind.features());
        let request = || StartSubagent::new("completes\n", fake.bench.parent());

        let elsewhere = StartSubagent::new("completes\n", Parent::new("parent", "relative"));
        refused(&fake, &provider, elsewhere, "absolute path").await;
        let foreign = request().with_model(ModelChoice::model("m").with_provider("vendor"));
        refused(&fake, &provider, foreign, "\"vendor\"").await;
        let capture = provider.clone().with_hand_in(AgentHandIn::Capture);
        assert_eq!((capture.hand_in(), capture.capabilities().output_contract), (None, false));
        refused(&fake, &capture, request().with_output(any_object()), "capture server").await;
        for (server, tool) in [("a b", "t"), ("", "t"), ("s", "t\"]"), ("s", &"x".repeat(33))] {
            let capture = capture.clone().with_capture(CaptureServer::new(server, tool, "/bin/true"));
            refused(&fake, &capture, request().with_output(any_object()), "letters, digits").await;
        }
        if !features.turn_limit {
            refused(&fake, &provider.clone().with_max_turns(3), request(), "limit on its turns").await;
        }
        if !features.budget_limit {
            refused(&fake, &provider.clone().with_max_cost_usd_micros(3), request(), "what it costs").await;
        }
        if !features.allowed_tools {
            refused(&fake, &provider.clone().with_allowed_tools(["x"]), request(), "allowed tools").await;
        }
        if let Some(max) = features.max_prompt_characters {
            let long = StartSubagent::new("é".repeat(max + 1), fake.bench.parent());
            refused(&fake, &provider, long, "characters").await;
        }
        let missing = provider.clone().with_program("/no/such/agent");
        refused(&fake, &missing, request(), "/no/such/agent").await;
    }
}

#[tokio::test]
async fn limits_of_turns_and_money_are_passed_on() {
    let claude = fake(AgentKind::ClaudeCode);
    let provider = claude.provider().with_max_turns(7).with_max_cost_usd_micros(1_500_000);
    let found = arguments(&claude, &provider).await;
    assert!(
        has(&found, &["--max-turns", "7"]) && has(&found, &["--max-budget-usd", "1.500000"]),
        "{found:?}"
    );
}

#[tokio::test]
async fn limits_of_turns_are_passed_on_to_other_agents() {
    let qwen = fake(AgentKind::QwenCode);
    assert!(has(&arguments(&qwen, &qwen.provider().with_max_turns(7)).await, &["--max-session-turns", "7"]));
}

#[tokio::test]
async fn a_way_to_hand_in_is_taken_by_default_as_far_as_it_is_possible() {
    let server = CaptureServer::new("s", "t", "/bin/true");
    let claude = AgentProvider::new(AgentKind::ClaudeCode, "/nowhere");
    let codex = AgentProvider::new(AgentKind::Codex, "/nowhere");
    assert_eq!(claude.hand_in(), Some(AgentHandIn::Schema));
    assert_eq!(claude.with_capture(server.clone()).hand_in(), Some(AgentHandIn::Schema));
    assert_eq!(codex.hand_in(), Some(AgentHandIn::Schema));
    assert_eq!(codex.with_capture(server.clone()).hand_in(), Some(AgentHandIn::Capture));
    for kind in [AgentKind::Gemini, AgentKind::Opencode] {
        let provider = AgentProvider::new(kind, "/nowhere");
        assert_eq!(provider.hand_in(), None, "{kind} has no schema mode");
        assert_eq!(provider.with_capture(server.clone()).hand_in(), Some(AgentHandIn::Capture));
    }
}

#[tokio::test]
async fn an_agent_that_is_missing_or_says_no_version_is_detected_as_that() {
    let missing =
        AgentProvider::new(AgentKind::Codex, "/nowhere").with_program("/no/such/agent").detect().await;
    assert!(missing.program.is_err() && missing.version.is_none() && !missing.tested);

    let place = tempfile::tempdir().unwrap();
    let program = |name: &str, says: &str| {
        let path = place.path().join(name);
        fs::write(place.path().join("part"), format!("#!/bin/sh\n{says}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(place.path().join("part"), mode).unwrap();
        fs::rename(place.path().join("part"), &path).unwrap();
        path
    };
    for (name, says, version, tested) in [
        ("good", "echo '2.1.197 (Claude Code)'", Some("2.1.197"), true),
        ("old", "echo '1.0.2 (Claude Code)'", Some("1.0.2"), false),
        ("other", "echo hello", None, false),
        ("silent", "true", None, false),
        ("broken", "exit 3", None, false),
    ] {
        let provider =
            AgentProvider::new(AgentKind::ClaudeCode, "/nowhere").with_program(program(name, says));
        let detected = provider.detect().await;
        assert_eq!(detected.version.map(|version| version.to_string()).as_deref(), version, "{name}");
        assert_eq!((detected.tested, detected.trouble.is_some()), (tested, version.is_none()), "{name}");
    }
}
