//! The `ralph` tool inside a harness: a toy one, with a system prompt, a list of tools and a scripted model.
//!
//! The model is asked to get a job done in rounds and calls `ralph`. Each round is a fresh worker that knows nothing
//! but the job, the workspace and the report of the worker before it. Here the workers are scripted as well, so what
//! is printed is the same every time. Everything between them and the model is real: the tool, the loop, the engine
//! that runs it, and the registry that checks what the workers hand in.
//!
//! What an embedding takes is in [`embed`]; the rest of this file is the harness and its actors.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use harness_engine_local::{LocalConfig, LocalEngine};
use harness_registry_local::LocalRegistry;
use harness_subagent::{
    AgentId, Capabilities, Parent, StartSubagent, SubagentProvider, SubagentRegistry, SubagentResult,
    SubagentRun,
};
use ralph_tool::{
    CallContext, Installation, PromptSection, RalphConfig, RalphTool, Registration, ToolHost, install,
    workflows,
};
use serde_json::{Value, json};

/// Puts the `ralph` tool into a harness.
fn embed(harness: &Harness) -> Result<Installation, Box<dyn Error>> {
    // Whoever can run a worker is registered under the name that the configuration asks for.
    let registry = Arc::new(LocalRegistry::new());
    registry.register(Arc::new(ScriptedWorkers::default()))?;
    // The engine runs the loop; the tool asks it to.
    let engine = LocalEngine::new(Arc::clone(&registry) as _, workflows(), LocalConfig::default());
    let config = RalphConfig::default().with_subagent_provider("workers")?.with_max_rounds(5)?;
    let tool = Arc::new(RalphTool::new(config, Arc::new(engine), registry)?);
    // Tool and guidance come and go together.
    Ok(install(tool, harness)?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let harness = Harness::default();
    let installed = embed(&harness)?;

    println!(
        "A harness talks to a model, and the model has one tool: it gives a job to a row of workers, one after"
    );
    println!(
        "the other. No worker remembers anything; each leaves its work in the workspace and one short report.\n"
    );
    harness.show_what_the_model_gets();
    harness.converse("Use ralph to port the parser to Rust. It is done when `cargo test` passes.").await;

    drop(installed);
    let left = harness.state.lock().expect("nobody panicked").tools.len();
    println!("== The tool is removed again: the model has {left} tools.");
    Ok(())
}

/// A harness: it talks to a model, which may call tools.
#[derive(Default)]
struct Harness {
    state: Arc<Mutex<HarnessState>>,
}

#[derive(Default)]
struct HarnessState {
    tools: BTreeMap<String, Arc<RalphTool>>,
    sections: BTreeMap<u32, PromptSection>,
}

impl ToolHost for Harness {
    type Error = String;

    fn register_tool(&self, tool: Arc<RalphTool>) -> Result<Registration, String> {
        let name = tool.definition().name().to_owned();
        let mut state = self.state.lock().expect("nobody panicked");
        if state.tools.contains_key(&name) {
            return Err(format!("there is a tool named {name} already"));
        }
        state.tools.insert(name.clone(), tool);
        let state = Arc::clone(&self.state);
        Ok(Registration::new(move || {
            state.lock().expect("nobody panicked").tools.remove(&name);
        }))
    }

    fn register_prompt_section(&self, section: PromptSection) -> Result<Registration, String> {
        let order = section.order();
        self.state.lock().expect("nobody panicked").sections.insert(order, section);
        let state = Arc::clone(&self.state);
        Ok(Registration::new(move || {
            state.lock().expect("nobody panicked").sections.remove(&order);
        }))
    }
}

impl Harness {
    fn show_what_the_model_gets(&self) {
        let state = self.state.lock().expect("nobody panicked");
        println!("== What the model is told before the conversation begins (in part)");
        for section in state.sections.values() {
            println!("{}\n", section.text().lines().take(3).collect::<Vec<_>>().join("\n"));
        }
        for tool in state.tools.values() {
            println!("Tool `{}`: {}\n", tool.definition().name(), tool.definition().description());
        }
    }

    /// One exchange: the human speaks, the model calls a tool, the tool's answer goes back, the model speaks.
    async fn converse(&self, human: &str) {
        println!("== The conversation\nHuman: {human}\n");
        let (name, args) = scripted_model(human);
        let tool = Arc::clone(&self.state.lock().expect("nobody panicked").tools[name]);
        println!("Model calls `{name}` with {args}\n");

        // The workers run on behalf of the model's own agent, in its workspace. If the human stops the model, the
        // harness cancels the context's token, and the workers are gone when the call returns.
        let context = CallContext::new(Parent::new("main-agent", "parser-port"));
        let outcome = tool.call(&args, context).await;
        println!("Tool answers:\n{}\n", tool.render(&outcome));
        println!(
            "Model: A worker reports that the parser is ported. I will run the tests myself before I rely on it.\n"
        );
    }
}

/// A model that knows one thing to do.
fn scripted_model(human: &str) -> (&'static str, Value) {
    let objective = human.trim_start_matches("Use ralph to ");
    ("ralph", json!({ "objective": objective, "maxRounds": 3 }))
}

/// Runs workers that follow a script. A real provider starts an agent for each of them, with the prompt it is given,
/// and lets it hand in a report.
#[derive(Debug, Default)]
struct ScriptedWorkers {
    started: Mutex<usize>,
}

#[async_trait]
impl SubagentProvider for ScriptedWorkers {
    fn name(&self) -> &str {
        "workers"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_output_contract(true)
    }

    fn inherits_parent_context(&self) -> bool {
        false
    }

    async fn start(&self, request: StartSubagent) -> harness_subagent::Result<Box<dyn SubagentRun>> {
        let number = {
            let mut started = self.started.lock().expect("nobody panicked");
            *started += 1;
            *started
        };
        let report = match number {
            1 => json!({
                "status": "continue",
                "summary": "The lexer and the expressions are ported. Statements are not.",
                "evidence": ["cargo test lexer: 41 passed", "cargo test expressions: 87 passed"],
                "nextSteps": ["Port src/statements.js", "Then run the whole test suite"],
                "blocker": "",
            }),
            _ => json!({
                "status": "complete",
                "summary": "The statements are ported too, and the old parser is removed.",
                "evidence": ["cargo test: 203 passed, 0 failed"],
                "nextSteps": [],
                "blocker": "",
            }),
        };
        println!(
            "  [{}: a fresh worker starts in workspace {:?}]",
            request.label.as_deref().unwrap_or_default(),
            request.parent.workspace
        );
        println!("  What it knows of the work before it:");
        for line in what_it_knows(&request.prompt).lines() {
            println!("    {line}");
        }
        println!("  It works, reports {}, and is gone.\n", report["status"]);
        let id = AgentId::new(format!("{}/worker-{number}", request.parent.id));
        Ok(Box::new(ScriptedWorker { id, report }))
    }
}

/// Returns the part of a worker's prompt that is about the round before.
fn what_it_knows(prompt: &str) -> &str {
    prompt.split("\n\n").nth(4).unwrap_or_default()
}

#[derive(Debug)]
struct ScriptedWorker {
    id: AgentId,
    report: Value,
}

#[async_trait]
impl SubagentRun for ScriptedWorker {
    fn id(&self) -> &AgentId {
        &self.id
    }

    async fn result(&self) -> harness_subagent::Result<SubagentResult> {
        Ok(SubagentResult::handed_in(self.report.clone()))
    }

    async fn dispose(&self) -> harness_subagent::Result<()> {
        Ok(())
    }
}
