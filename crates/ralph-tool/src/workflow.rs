use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use harness_subagent::{OutputContract, StopReason, ToolRestriction};
use harness_workflow::{
    AgentCall, AgentOutcome, ErrorCode, NoValue, PhaseMeta, Workflow, WorkflowCatalog, WorkflowContext,
    WorkflowError, WorkflowMeta, WorkflowRef,
};
use ralph_report::{InvalidReport, RoundReport, Status, schema};
use serde_json::{Value, json};

use crate::arguments::LoopArgs;
use crate::config::report_limits;
use crate::{RalphStatus, TOOL_NAME, progress, prompt, rule};

/// The name of the workflow.
pub const WORKFLOW_NAME: &str = "ralph-loop";

/// The version of the workflow. It changes when the sequence of its calls does.
pub const WORKFLOW_VERSION: u32 = 1;

/// The title of the workflow's only phase.
pub const PHASE: &str = "Fresh-agent rounds";

/// The code of a run that ended because a worker's report was refused.
///
/// The error's details are `{ "round", "violations", "unlisted", "lastReport" }`: the number of the round; what is
/// wrong, the deciding violation first, each with `pointer`, `kind` and `message`; how many more there are; and the
/// last good report, `null` where there is none.
pub const INVALID_REPORT: ErrorCode = ErrorCode::new("invalid-report");

/// Returns the Ralph loop, for the catalog of an engine.
///
/// ```
/// use harness_workflow::WorkflowCatalog;
///
/// let catalog = WorkflowCatalog::new().with(ralph_tool::workflow())?;
/// assert!(catalog.get(&ralph_tool::workflow_ref()).is_some());
/// # Ok::<(), harness_workflow::Error>(())
/// ```
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "it cannot panic: the report's schema can be enforced")]
pub fn workflow() -> Arc<dyn Workflow> {
    let meta = WorkflowMeta::new(
        WORKFLOW_NAME,
        WORKFLOW_VERSION,
        "Works on one objective in rounds, each by a fresh agent that knows the workspace and the last report only.",
    )
    .with_phase(PhaseMeta::new(PHASE).with_detail("One fresh agent after another, until one ends the job."));
    let schema = || OutputContract::new(schema::child_schema()).expect("the report's schema can be enforced");
    Arc::new(RalphLoop { meta, schema: LazyLock::new(schema) })
}

/// Names the Ralph loop in a request.
#[must_use]
pub fn workflow_ref() -> WorkflowRef {
    WorkflowRef::new(WORKFLOW_NAME, WORKFLOW_VERSION)
}

/// Returns a catalog of workflows that has the Ralph loop and no other.
#[must_use]
#[expect(
    clippy::missing_panics_doc,
    reason = "it cannot panic: the catalog is empty and the workflow usable"
)]
pub fn workflows() -> WorkflowCatalog {
    WorkflowCatalog::new().with(workflow()).expect("an empty catalog takes a usable workflow")
}

#[derive(Debug)]
struct RalphLoop {
    meta: WorkflowMeta,
    /// The schema of a report, shared by all runs and made for the first one.
    schema: LazyLock<OutputContract>,
}

#[async_trait]
impl Workflow for RalphLoop {
    fn meta(&self) -> &WorkflowMeta {
        &self.meta
    }

    async fn run(&self, context: WorkflowContext) -> Result<Value, WorkflowError> {
        let args = LoopArgs::read(context.args())?;
        let limits = report_limits(args.max_handoff_chars);
        let worker = Worker::new(&self.schema, args.max_handoff_chars);
        let mut last: Option<RoundReport> = None;

        context.phase(PHASE)?;
        for round in 1..=args.max_rounds {
            let handoff = last.as_ref().or(args.handoff.as_ref());
            let prompt =
                prompt::round(&args.objective, round, args.max_rounds, handoff, args.max_handoff_chars);

            let value = match yielded(context.agent(worker.ask(prompt, round)).await?) {
                Ok(value) => value,
                Err(why) => {
                    context.checkpoint(progress::checkpoint(round - 1, last.as_ref(), Some(&why)))?;
                    return Ok(
                        json!({ "status": "round-failed", "roundsStarted": round, "lastReport": last }),
                    );
                }
            };
            let report = RoundReport::from_value(&value, &limits)
                .map_err(|refusal| invalid_report(round, &refusal, handoff))?;
            context.checkpoint(progress::checkpoint(round, Some(&report), None))?;

            match report.status() {
                Status::Complete => return Ok(ended(RalphStatus::Complete, round, &report)),
                Status::Blocked => return Ok(ended(RalphStatus::Blocked, round, &report)),
                Status::Continue => last = Some(report),
            }
        }
        let last = last.expect("there was at least one round, and each of them left a report");
        Ok(ended(RalphStatus::BudgetLimited, args.max_rounds, &last))
    }
}

/// What is the same for every worker of a run.
struct Worker {
    output: OutputContract,
    tools: ToolRestriction,
}

impl Worker {
    fn new(schema: &OutputContract, max_handoff_chars: u64) -> Self {
        Self {
            output: schema.clone().with_rule(rule::reference(max_handoff_chars)),
            // The prompt says the same to a worker whose provider cannot enforce it.
            tools: ToolRestriction::deny([TOOL_NAME]).preferred(),
        }
    }

    fn ask(&self, prompt: String, round: u64) -> AgentCall {
        AgentCall::new(prompt)
            .with_label(format!("Ralph round {round}"))
            .with_phase(PHASE)
            .with_output(self.output.clone())
            .with_tools(self.tools.clone())
    }
}

/// Returns the value that a worker handed in. `null` is none: the report's schema admits no such value.
fn yielded(outcome: AgentOutcome) -> Result<Value, NoValue> {
    match outcome {
        AgentOutcome::Value(Value::Null) => Err(NoValue::new(StopReason::NO_VALUE, None)),
        AgentOutcome::Value(value) => Ok(value),
        AgentOutcome::NoValue(why) => Err(why),
    }
}

fn ended(status: RalphStatus, rounds_started: u64, report: &RoundReport) -> Value {
    json!({ "status": status, "roundsStarted": rounds_started, "report": report })
}

fn invalid_report(round: u64, refusal: &InvalidReport, last: Option<&RoundReport>) -> WorkflowError {
    WorkflowError::new(INVALID_REPORT, format!("the report of round {round} is refused: {}", refusal.first()))
        .with_details(json!({
            "round": round,
            "violations": rule::violations(refusal),
            "unlisted": refusal.unlisted(),
            "lastReport": last,
        }))
}
