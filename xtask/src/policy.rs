//! The written lists that the checks compare the workspace with.
//!
//! A change here is a decision: give its reason in the commit.

/// The crate that these commands live in; no user ever sees it.
pub(crate) const XTASK: &str = "xtask";

/// Features with this prefix switch on what another crate of a build may switch on; the tests run
/// again with each. They are no one's public API.
pub(crate) const TEST_FEATURE_PREFIX: &str = "test-";

/// Crates that bring so much along that they are built, linted and tested in a step of their own, `apart`, and so are
/// other crates with the features that need them. They are not among the workspace's default members either.
pub(crate) const APART: &[&str] = &["harness-engine-temporal"];

/// A crate that holds one contract, with all that it may depend on.
#[derive(Debug)]
pub(crate) struct Seam {
    pub(crate) name: &'static str,
    /// Its normal dependencies, sorted; a `?` at the end marks an optional one.
    pub(crate) dependencies: &'static [&'static str],
}

/// The seams: they have an API listing, a written dependency list, and no runtime.
pub(crate) const SEAMS: &[Seam] = &[
    Seam {
        name: "harness-subagent",
        dependencies: &["async-trait", "serde", "serde_json", "tokio", "tokio-util", "tracing"],
    },
    Seam {
        name: "harness-workflow",
        dependencies: &["async-trait", "harness-subagent", "serde", "serde_json", "tokio-util", "tracing"],
    },
    Seam { name: "ralph-report", dependencies: &["proptest?", "serde", "serde_json"] },
];

/// Features of tokio that need a runtime, which a seam built alone must not switch on.
pub(crate) const RUNTIME_FEATURES: &[&str] =
    &["fs", "io-std", "net", "process", "rt", "rt-multi-thread", "signal", "time"];

/// Libraries that exactly one crate may know: the library (with everything named `LIBRARY_…` or
/// `LIBRARY-…`), then the crate.
pub(crate) const SOLE_USERS: &[(&str, &str)] = &[
    ("agent-client-protocol", "harness-provider-acp"),
    ("clap", "ralph-loop"),
    ("rmcp", "ralph-mcp"),
    ("temporalio", "harness-engine-temporal"),
];

/// What may stand at the top, besides names that begin with a dot.
pub(crate) const TOP_LEVEL: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "clippy.toml",
    "crates",
    "deny.toml",
    "docs",
    "rustfmt.toml",
    "xtask",
];

/// A committed file that a program writes.
#[derive(Debug)]
pub(crate) struct Generated {
    /// The file, relative to the root.
    pub(crate) file: &'static str,
    /// The arguments of the cargo command whose standard output is the file.
    pub(crate) cargo: &'static [&'static str],
}

/// Generated files: `tidy` compares them, `tidy --write` writes them.
pub(crate) const GENERATED: &[Generated] = &[
    Generated {
        file: "docs/agents.md",
        cargo: &["run", "--quiet", "--package", "harness-provider-acp", "--example", "agents"],
    },
    Generated {
        file: "docs/contracts.md",
        cargo: &["run", "--quiet", "--package", "harness-testkit", "--example", "contracts"],
    },
];

/// A program that `e2e` or `soak` runs by name.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The arguments of the cargo command that builds and runs it; the caller's own follow.
    pub(crate) cargo: &'static [&'static str],
    /// Folders with what npm is to install for it; it finds them by variables, see `npm.rs`.
    pub(crate) npm: &'static [&'static str],
    /// Variables of its environment, unless the caller's own environment sets them.
    pub(crate) environment: &'static [(&'static str, &'static str)],
}

/// End-to-end runs against real programs. They may install what they need, pinned.
pub(crate) const E2E: &[Program] = &[AGENTS, MCP, TEMPORAL];

const AGENTS: Program = Program {
    name: "agents",
    about: "real agents, run by ralph-loop against a scripted model: [--all] [--record] [CASE…]",
    cargo: &["test", "--quiet", "--package", "ralph-loop", "--test", "agents", "--"],
    npm: &[
        "crates/ralph-loop/tests/agents/npm/claude-code",
        "crates/ralph-loop/tests/agents/npm/codex",
        "crates/ralph-loop/tests/agents/npm/gemini",
        "crates/ralph-loop/tests/agents/npm/opencode",
        "crates/ralph-loop/tests/agents/npm/qwen-code",
        "crates/ralph-loop/tests/agents/npm/claude-agent-acp",
        "crates/ralph-loop/tests/agents/npm/codex-acp",
    ],
    environment: &[],
};

const MCP: Program = Program {
    name: "mcp",
    about: "real MCP clients, which call the ralph tool for a scripted model: [CASE…]",
    cargo: &["test", "--quiet", "--package", "ralph-loop", "--test", "mcp", "--"],
    npm: &[
        "crates/ralph-loop/tests/agents/npm/claude-code",
        "crates/ralph-loop/tests/agents/npm/codex",
        "crates/ralph-loop/tests/mcp/npm/conformance",
        "crates/ralph-loop/tests/mcp/npm/inspector",
    ],
    environment: &[],
};

const TEMPORAL: Program = Program {
    name: "temporal",
    about: "a Temporal development server: the engine and ralph-loop: [PART…]; costs and record only where named",
    cargo: &[
        "test",
        "--quiet",
        "--no-fail-fast",
        "--package",
        "harness-engine-temporal",
        "--package",
        "ralph-loop",
        "--features",
        "ralph-loop/temporal",
        "--test",
        "e2e",
        "--test",
        "temporal",
        "--",
    ],
    npm: &[],
    environment: &[],
};

/// Repetitions that take too long for every change; their results are recorded in `docs/`.
pub(crate) const SOAK: &[Program] = &[CRASH, HOSTILE, TEMPORAL_FAULTS];

const CRASH: Program = Program {
    name: "crash",
    about: "processes killed while they run a journaled workflow, at 300 points (CRASH_POINTS for another number)",
    cargo: &[
        "test",
        "--quiet",
        "--package",
        "harness-engine-local",
        "--test",
        "it",
        "--",
        "--exact",
        "crash::a_killed_process_loses_nothing_that_had_ended",
        "--nocapture",
    ],
    npm: &[],
    environment: &[("CRASH_POINTS", "300")],
};

const HOSTILE: Program = Program {
    name: "hostile",
    about: "hostile children, 20 times in a row (HOSTILE_TIMES for another number)",
    cargo: &[
        "test",
        "--quiet",
        "--package",
        "harness-provider-cli",
        "--test",
        "it",
        "--",
        "--ignored",
        "--exact",
        "hostile::soak",
        "--nocapture",
    ],
    npm: &[],
    environment: &[],
};

const TEMPORAL_FAULTS: Program = Program {
    name: "temporal",
    about: "each fault of the engine on Temporal 30 times (TEMPORAL_TIMES for another number): [FAULT…]",
    cargo: &["test", "--quiet", "--package", "harness-engine-temporal", "--test", "e2e", "--", "soak"],
    npm: &[],
    environment: &[("TEMPORAL_TIMES", "30")],
};
