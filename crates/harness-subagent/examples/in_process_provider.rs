//! A harness that runs its own agents as subagents, in its own process.
//!
//! Run it with `cargo run -p harness-subagent --example in_process_provider`.
//!
//! Read it in this order:
//!
//! 1. `in_process_provider/harness.rs` is the harness: agents, a model, tools, hooks. You have this already.
//! 2. `in_process_provider/provider.rs` is the provider: it finds the parent's live agent by its id, makes the
//!    child, drives it in a task, and says how it ended. This is what you write.
//! 3. `in_process_provider/capture.rs` is how a child hands in a value that fits a schema. Most harnesses can
//!    take it over as it is.
//!
//! The model is scripted (`in_process_provider/script.rs`), so every run prints the same.

use std::sync::Arc;

use async_trait::async_trait;
use harness_registry_local::LocalRegistry;
use harness_subagent::{
    ChildEnding, OutputContract, OutputRule, OutputRuleCatalog, OutputViolation, Parent, RuleRef,
    StartSubagent, SubagentEvent, SubagentObserver, SubagentRegistry, SubagentRegistryExt, ToolRestriction,
};
use serde_json::{Value, json};

#[path = "in_process_provider/capture.rs"]
mod capture;
#[path = "in_process_provider/harness.rs"]
mod harness;
#[path = "in_process_provider/provider.rs"]
mod provider;
#[path = "in_process_provider/script.rs"]
mod script;

use harness::{Harness, Hook, Reply, ReplyEnd, Tool, ToolCall, ToolOutcome};
use provider::InProcessProvider;
use script::{ScriptedModel, calls, says};

/// A tool like any other.
#[derive(Debug)]
struct ReadFile;

#[async_trait]
impl Tool for ReadFile {
    fn name(&self) -> &str {
        "read_file"
    }

    fn parameters(&self) -> Value {
        json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] })
    }

    async fn call(&self, _execution: u64, _arguments: &Value) -> ToolOutcome {
        ToolOutcome::success("fn main() {}")
    }
}

/// Something that a schema cannot say: a finding that is named must also be explained.
#[derive(Debug)]
struct FindingsAreExplained;

impl OutputRule for FindingsAreExplained {
    fn check(&self, value: &Value, _parameters: &Value) -> Result<(), Vec<OutputViolation>> {
        let findings = value["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
        let violations: Vec<OutputViolation> = findings
            .iter()
            .enumerate()
            .filter(|(_, finding)| !finding.as_str().is_some_and(|text| text.contains(" because ")))
            .map(|(index, _)| {
                OutputViolation::new(
                    format!("/findings/{index}"),
                    "unexplained",
                    "say why: \"... because ...\"",
                )
            })
            .collect();
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }
}

/// Prints what the tools answer.
#[derive(Debug)]
struct PrintCalls;

impl Hook for PrintCalls {
    fn settled(&self, _execution: u64, call: &ToolCall, outcome: &ToolOutcome) {
        let mark = if outcome.is_error { "error" } else { "ok" };
        println!("    {} {}", call.tool, call.arguments);
        println!("      {mark}: {}", outcome.content.replace('\n', " "));
    }
}

/// Prints what the registry tells.
#[derive(Debug)]
struct PrintEvents;

impl SubagentObserver for PrintEvents {
    fn observe(&self, event: &SubagentEvent<'_>) {
        match event {
            SubagentEvent::Started { child } => println!("  started {} for {}", child.id, child.parent.id),
            SubagentEvent::Ended { child, ending: ChildEnding::Result { stop_reason, .. } } => {
                println!("  ended {}: {stop_reason}", child.id);
            }
            _ => {}
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Arc::new(ScriptedModel::new([
        // The first child needs three tries, in one turn.
        calls("I read first.", [("read_file", json!({ "path": "src/main.rs" }))]),
        calls("", [("structured_output", json!({ "verdict": "good" }))]),
        calls("", [("structured_output", json!({ "verdict": "bad", "findings": ["it is empty"] }))]),
        calls(
            "It does nothing.",
            [
                (
                    "structured_output",
                    json!({ "verdict": "bad", "findings": ["bad because it does nothing"] }),
                ),
                ("read_file", json!({ "path": "too/late" })),
            ],
        ),
        // The second one never hands anything in; nobody asks it again.
        says("Looks good to me!"),
        Reply { end: ReplyEnd::CutOff, ..says("It begins with a function which") },
        Reply { end: ReplyEnd::Declined, ..says("") },
        // For the last one the script is at its end: it thinks until it is cancelled.
    ]));

    // The harness wires its provider into a registry once.
    let harness = Harness::new(model.clone(), vec![Arc::new(ReadFile)], vec![Arc::new(PrintCalls)]);
    let rules = OutputRuleCatalog::new().with("findings-are-explained", Arc::new(FindingsAreExplained))?;
    let registry = LocalRegistry::new();
    registry.observe(Arc::new(PrintEvents));
    registry.register(Arc::new(InProcessProvider::new(Arc::clone(&harness), rules)))?;

    // A live agent of the harness delegates.
    let root = harness.open_root("/workspace");
    let parent = Parent::new(root.id.clone(), root.workspace.as_str()).with_depth(root.depth);
    let contract = OutputContract::new(json!({
        "type": "object",
        "properties": {
            "verdict": { "type": "string", "enum": ["good", "bad"] },
            "findings": { "type": "array", "items": { "type": "string" } },
        },
        "required": ["verdict", "findings"],
        "additionalProperties": false,
    }))?
    .with_rule(RuleRef::new("findings-are-explained"));
    let request = StartSubagent::new("Review src/main.rs.", parent)
        .with_output(contract)
        .with_tools(ToolRestriction::allow_only(["read_file"]))
        .with_max_depth(1);

    for told in [
        "A child that corrects itself:",
        "A child that only talks:",
        "A child whose answer is cut off:",
        "A child that declines:",
        "A child that is cancelled:",
    ] {
        println!("{told}");
        let run = registry.start("in-process", request.clone()).await?;
        if told.contains("cancelled") {
            tokio::task::yield_now().await;
            request.cancellation.cancel();
        }
        let result = run.result().await?;
        match (&result.structured, &result.diagnostic) {
            (Some(value), _) if result.stop_reason.is_completed() => println!("  value: {value}"),
            (_, Some(diagnostic)) => println!("  no value: {diagnostic}"),
            _ => println!("  no value"),
        }
        if let Some(usage) = result.usage {
            println!("  used {} tokens in, {} out", usage.input_tokens, usage.output_tokens);
        }
        run.dispose().await?;
    }

    // What the first child was told and given.
    if let Some(first) = model.asked().first() {
        let tools: Vec<&str> = first.tools.iter().map(|(name, _)| name.as_str()).collect();
        println!("The first child had the tools {tools:?} and this system prompt:");
        for line in first.system.lines() {
            println!("  {line}");
        }
    }
    println!("Agents that are still live: {}, the root.", harness.population());
    Ok(())
}
