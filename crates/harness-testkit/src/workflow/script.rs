//! The one body of the suite: it does what its arguments say.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use harness_subagent::{ModelChoice, OutputContract, ToolRestriction};
use harness_workflow::{
    AgentCall, AgentOutcome, ErrorCode, PhaseMeta, Workflow, WorkflowCatalog, WorkflowContext, WorkflowError,
    WorkflowMeta, WorkflowRef,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A workflow body whose arguments are a list of [`Step`]s.
///
/// Its value is the list of the answers that its steps got. Since the steps are the run's arguments, the body is the
/// same wherever an engine runs it.
#[derive(Debug)]
pub struct ScriptedBody {
    meta: WorkflowMeta,
}

/// One step of a [`ScriptedBody`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Step {
    /// Announces a phase.
    Phase(String),
    /// Says something.
    Log(String),
    /// Leaves a checkpoint.
    Checkpoint(Value),
    /// Asks a child and adds what it yields to the answers: its value, or `{"no-value": reason}`.
    Ask(Ask),
    /// Asks children side by side and adds the list of what they yield. A branch that fails yields `null`.
    Parallel(Vec<Ask>),
    /// Asks children side by side, adds what the first to end yields, and drops the other calls.
    Race(Vec<Ask>),
    /// Takes the steps; when one fails, adds `{"error": code}` to the answers and goes on.
    Try(Vec<Step>),
    /// Runs a pipeline of one stage, which yields its item, over so many items, and adds their number.
    Items(usize),
    /// Fails with an error of the body's own that has this code and the details `"kept"`.
    Fail(String),
    /// Panics.
    Panic(String),
    /// Waits for nothing, whatever happens.
    Hang,
    /// Adds a value of so many nested lists to the answers.
    Nest(usize),
}

/// One call for a child, as data.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Ask {
    /// What the child is told.
    pub prompt: String,
    /// The call's name.
    pub label: Option<String>,
    /// The phase it belongs to.
    pub phase: Option<String>,
    /// The value that the child must hand in.
    pub output: Option<OutputContract>,
    /// The child's model.
    pub model: Option<ModelChoice>,
    /// The tools that the child may use.
    pub tools: Option<ToolRestriction>,
}

impl Ask {
    /// Asks for a child that is told `prompt`.
    #[must_use]
    pub fn new(prompt: impl Into<String>) -> Self {
        Self { prompt: prompt.into(), label: None, phase: None, output: None, model: None, tools: None }
    }

    /// Asks for a value.
    #[must_use]
    pub fn with_output(mut self, output: OutputContract) -> Self {
        self.output = Some(output);
        self
    }

    fn to_call(&self) -> AgentCall {
        let mut call = AgentCall::new(&self.prompt);
        call.label.clone_from(&self.label);
        call.phase.clone_from(&self.phase);
        call.output.clone_from(&self.output);
        call.model.clone_from(&self.model);
        call.tools.clone_from(&self.tools);
        call
    }
}

impl Step {
    /// Asks for a child that is told `prompt`.
    #[must_use]
    pub fn ask(prompt: impl Into<String>) -> Self {
        Self::Ask(Ask::new(prompt))
    }
}

impl Default for ScriptedBody {
    fn default() -> Self {
        let meta = WorkflowMeta::new("conformance-script", 1, "Takes the steps that its arguments list.")
            .with_phase(PhaseMeta::new("work").with_detail("whatever the script asks for"));
        Self { meta }
    }
}

impl ScriptedBody {
    /// Names the workflow.
    #[must_use]
    pub fn workflow_ref() -> WorkflowRef {
        Self::default().meta.workflow
    }

    /// Makes a catalog with this body alone.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "the meta of the body is usable")]
    pub fn catalog() -> WorkflowCatalog {
        WorkflowCatalog::new().with(Arc::new(Self::default())).expect("the meta of the body is usable")
    }
}

#[async_trait]
impl Workflow for ScriptedBody {
    fn meta(&self) -> &WorkflowMeta {
        &self.meta
    }

    async fn run(&self, context: WorkflowContext) -> Result<Value, WorkflowError> {
        let steps = Vec::<Step>::deserialize(context.args())
            .map_err(|error| WorkflowError::new(ErrorCode::INVALID_ARGUMENT, error.to_string()))?;
        take(&context, steps).await.map(Value::Array)
    }
}

type Answers<'a> = Pin<Box<dyn Future<Output = Result<Vec<Value>, WorkflowError>> + Send + 'a>>;

fn take(context: &WorkflowContext, steps: Vec<Step>) -> Answers<'_> {
    Box::pin(async move {
        let mut answers = Vec::new();
        for step in steps {
            match step {
                Step::Phase(title) => context.phase(&title)?,
                Step::Log(message) => context.log(&message)?,
                Step::Checkpoint(value) => context.checkpoint(value)?,
                Step::Ask(ask) => answers.push(answer(context, ask).await?),
                Step::Parallel(asks) => {
                    let branches = asks.into_iter().map(|ask| answer(context, ask));
                    answers.push(json!(context.parallel(branches).await?));
                }
                Step::Race(asks) => answers.push(race(context, asks).await?),
                Step::Try(steps) => match take(context, steps).await {
                    Ok(more) => answers.extend(more),
                    Err(error) => answers.push(json!({ "error": error.code() })),
                },
                Step::Items(count) => {
                    let stage = harness_workflow::Stage::new(|input| async move { Ok(input.item) });
                    let items = context.pipeline(vec![Value::Null; count], &[stage]).await?;
                    answers.push(json!(items.len()));
                }
                Step::Fail(code) => {
                    // Codes are static by design; a script's is as long-lived as the process that tests.
                    let code = ErrorCode::new(Box::leak(code.into_boxed_str()));
                    return Err(WorkflowError::new(code, "the script fails").with_details(json!("kept")));
                }
                // Without the panic hook, whose message would clutter the output of every suite.
                Step::Panic(message) => std::panic::resume_unwind(Box::new(message)),
                Step::Hang => std::future::pending().await,
                Step::Nest(levels) => {
                    answers.push((1..levels).fold(json!([]), |inner, _| json!([inner])));
                }
            }
        }
        Ok(answers)
    })
}

async fn answer(context: &WorkflowContext, ask: Ask) -> Result<Value, WorkflowError> {
    Ok(match context.agent(ask.to_call()).await? {
        AgentOutcome::Value(value) => value,
        AgentOutcome::NoValue(why) => json!({ "no-value": why.stop_reason }),
    })
}

async fn race(context: &WorkflowContext, asks: Vec<Ask>) -> Result<Value, WorkflowError> {
    let mut calls: Vec<_> = asks.into_iter().map(|ask| Box::pin(answer(context, ask))).collect();
    poll_fn(|cx| {
        for call in &mut calls {
            if let Poll::Ready(answer) = call.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
        }
        Poll::Pending
    })
    .await
}
