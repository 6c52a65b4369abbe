/// What was seen of an agent that speaks the protocol, for tables in documents and for whoever chooses one.
///
/// Nothing in a provider depends on it: any agent is run in the same way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct KnownAgent {
    /// What its makers call it.
    pub title: &'static str,
    /// The command by which it is started, the arguments that make it speak the protocol included.
    pub command: &'static [&'static str],
    /// The package by which it is installed with npm.
    pub package: &'static str,
    /// The version that was looked at.
    pub version: &'static str,
    /// It tells what it used, in tokens.
    pub usage: bool,
    /// It tells what that cost.
    pub cost: bool,
    /// It exits at the end of its input. One that does not is ended after a grace.
    pub exits_by_itself: bool,
    /// It offers the tools of a server that is named to it from its first prompt on. One that does not may come to its
    /// end before it can hand in a value, and is reminded then.
    pub offers_servers_at_once: bool,
    /// The mode in which it asks for no permission at all, where it has one.
    pub unattended_mode: Option<&'static str>,
}

impl KnownAgent {
    /// Every agent that was looked at.
    pub const ALL: &'static [Self] = &[
        Self {
            title: "Claude Code, by claude-agent-acp",
            command: &["claude-agent-acp"],
            package: "@agentclientprotocol/claude-agent-acp",
            version: "0.49.0",
            usage: true,
            cost: true,
            exits_by_itself: true,
            offers_servers_at_once: true,
            unattended_mode: Some("bypassPermissions"),
        },
        Self {
            title: "Codex, by codex-acp",
            command: &["codex-acp"],
            package: "@zed-industries/codex-acp",
            version: "0.16.0",
            usage: false,
            cost: false,
            exits_by_itself: false,
            offers_servers_at_once: true,
            unattended_mode: Some("full-access"),
        },
        Self {
            title: "opencode",
            command: &["opencode", "acp"],
            package: "opencode-ai",
            version: "1.18.33",
            usage: true,
            cost: true,
            exits_by_itself: true,
            offers_servers_at_once: true,
            unattended_mode: None,
        },
        Self {
            title: "Gemini CLI",
            command: &["gemini", "--acp"],
            package: "@google/gemini-cli",
            version: "0.61.0",
            usage: false,
            cost: false,
            exits_by_itself: true,
            offers_servers_at_once: false,
            unattended_mode: Some("yolo"),
        },
        Self {
            title: "Qwen Code",
            command: &["qwen", "--acp"],
            package: "@qwen-code/qwen-code",
            version: "0.15.10",
            usage: true,
            cost: false,
            exits_by_itself: true,
            offers_servers_at_once: false,
            unattended_mode: Some("yolo"),
        },
    ];
}
