//! The provider: it turns a request into an agent of this harness, and the agent's turn into a result.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use harness_subagent::{
    ActivitySender, ActivityStream, AgentId, Capabilities, Diagnostic, Error, ErrorKind, OutputRuleCatalog,
    Result, StartSubagent, StopReason, SubagentProvider, SubagentResult, SubagentRun, ToolFilter,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::capture::{Capture, HandedIn};
use super::harness::{Agent, Harness, Turn, TurnEnd};

/// Runs children as agents of a [`Harness`].
#[derive(Debug)]
pub(crate) struct InProcessProvider {
    harness: Arc<Harness>,
    rules: OutputRuleCatalog,
}

impl InProcessProvider {
    pub(crate) fn new(harness: Arc<Harness>, rules: OutputRuleCatalog) -> Self {
        Self { harness, rules }
    }

    /// Makes the child, which nobody can see yet.
    fn prepare(&self, request: &StartSubagent) -> Result<Agent> {
        let refuse = |why: String| {
            Error::new(ErrorKind::Provider, "the harness refuses to make this child").with_source(why)
        };
        // The request names its parent; the live agent behind the name is known only here.
        let Some(parent) = self.harness.find(&request.parent.id) else {
            return Err(refuse(format!(
                "no live agent is named {}; start from a live one",
                request.parent.id
            )));
        };
        // What the harness knows wins over what the request says, if it is deeper.
        let depth = parent.depth.max(request.parent.depth).saturating_add(1);
        let max_depth = [parent.max_depth, request.max_depth].into_iter().flatten().min();
        if let Some(most) = max_depth.filter(|most| depth > *most) {
            return Err(refuse(format!(
                "a child at depth {depth} is below the limit of {most}; do the work here"
            )));
        }
        let mut tools = parent.tools.clone();
        match request.tools.as_ref().map(|restriction| &restriction.filter) {
            None => {}
            Some(ToolFilter::AllowOnly(names)) => {
                tools.retain(|tool| names.iter().any(|name| name == tool.name()));
            }
            Some(ToolFilter::Deny(names)) => {
                tools.retain(|tool| names.iter().all(|name| name != tool.name()));
            }
            Some(other) => return Err(refuse(format!("tool filter {other:?} is unknown here; use another"))),
        }
        Ok(Agent {
            id: self.harness.new_id("child"),
            workspace: request.parent.workspace.clone(),
            depth,
            max_depth,
            system: "You are a careful engineer, working on one task for another agent.".to_owned(),
            tools,
            hooks: parent.hooks.clone(),
            // Cancelling the request cancels the child; disposing of the child leaves the request's other
            // children alone.
            cancellation: request.cancellation.child_token(),
        })
    }
}

#[async_trait]
impl SubagentProvider for InProcessProvider {
    fn name(&self) -> &str {
        "in-process"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_output_contract(true).with_depth_limit(true).with_tool_restriction(true)
    }

    fn inherits_parent_context(&self) -> bool {
        false // A child begins with its prompt and nothing else.
    }

    async fn start(&self, request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
        // Until the child is published there is nothing to release: an early return leaves nothing behind.
        // There is no wait in here either, so a dropped start cannot leave half a child.
        if request.cancellation.is_cancelled() {
            return Err(Error::new(
                ErrorKind::Cancelled,
                "the request was cancelled before the child was made",
            ));
        }
        let mut child = self.prepare(&request)?;
        let capture = match request.output {
            None => None,
            Some(contract) => {
                let capture = Capture::new(contract, self.rules.clone())?;
                capture.install(&mut child);
                Some(capture)
            }
        };

        // From here on the child belongs to the caller, and whatever goes wrong is a result.
        let child = self.harness.publish(child);
        let activity = ActivitySender::new(32);
        let (outcome, waits) = watch::channel(None);
        let run = InProcessRun {
            id: child.id.clone(),
            cancellation: child.cancellation.clone(),
            outcome: waits,
            activity: Arc::new(Mutex::new(Some(activity.clone()))),
        };
        let live = Live { harness: Arc::clone(&self.harness), child, activity: Arc::clone(&run.activity) };
        tokio::spawn(async move {
            let turn = live.harness.take_turn(&live.child, request.prompt, &activity).await;
            let cancelled = live.child.cancellation.is_cancelled();
            drop((live, activity));
            outcome.send_replace(Some(settle(turn, capture.map(|capture| capture.take()), cancelled)));
        });
        Ok(Box::new(run))
    }
}

/// A published child. When it is dropped, also by a panic, the child leaves the harness and its stream ends.
struct Live {
    harness: Arc<Harness>,
    child: Arc<Agent>,
    activity: Arc<Mutex<Option<ActivitySender>>>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.harness.close(&self.child.id);
        self.activity.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Says how the child ended, in the words of the contract.
fn settle(turn: Turn, handed_in: Option<HandedIn>, cancelled: bool) -> SubagentResult {
    let stopped = |reason, why: &str| SubagentResult::stopped(reason, Diagnostic::new(why));
    let mut result = match turn.end {
        TurnEnd::Completed => SubagentResult::completed(""),
        TurnEnd::CutOff => {
            stopped(StopReason::MAX_TOKENS, "the model's answer was cut off at its token limit")
        }
        TurnEnd::Declined => stopped(StopReason::REFUSAL, "the model declined"),
        TurnEnd::OutOfSteps => {
            stopped(StopReason::TURN_LIMIT, "the agent asked its model too often in one turn")
        }
        TurnEnd::Aborted => stopped(StopReason::ABORTED, "the child was cancelled"),
    };
    if turn.end == TurnEnd::Completed {
        match handed_in {
            Some(HandedIn::Nothing) if cancelled => {
                result = stopped(StopReason::ABORTED, "the child was cancelled");
            }
            Some(HandedIn::Nothing) => {
                result = stopped(StopReason::NO_VALUE, "the child ended its turn without handing in a value");
            }
            Some(HandedIn::BrokeSchema(_)) => {
                result =
                    stopped(StopReason::SCHEMA_REFUSED, "every value that the child handed in was refused");
            }
            Some(HandedIn::Accepted(_) | HandedIn::BrokeRule(_)) | None => {}
        }
    }
    result.structured = match handed_in {
        Some(HandedIn::Accepted(value) | HandedIn::BrokeRule(value) | HandedIn::BrokeSchema(value)) => {
            Some(value)
        }
        Some(HandedIn::Nothing) | None => None,
    };
    result.with_output(turn.output).with_usage(turn.usage)
}

/// A child that runs, or has run, in its own task.
#[derive(Debug)]
struct InProcessRun {
    id: AgentId,
    cancellation: CancellationToken,
    outcome: watch::Receiver<Option<SubagentResult>>,
    activity: Arc<Mutex<Option<ActivitySender>>>,
}

#[async_trait]
impl SubagentRun for InProcessRun {
    fn id(&self) -> &AgentId {
        &self.id
    }

    async fn result(&self) -> Result<SubagentResult> {
        let mut outcome = self.outcome.clone();
        match outcome.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) {
            Ok(Some(result)) => Ok(result),
            Ok(None) | Err(_) => {
                Err(Error::new(ErrorKind::RunLost, "the child's task ended without an outcome; see the log"))
            }
        }
    }

    async fn dispose(&self) -> Result<()> {
        self.cancellation.cancel();
        // The task heeds the cancellation at each of its waits, so this is short. A lost child holds nothing.
        let _ = self.result().await;
        Ok(())
    }

    fn activity(&self) -> ActivityStream {
        let activity = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
        activity.as_ref().map_or_else(ActivityStream::silent, ActivitySender::subscribe)
    }
}

impl Drop for InProcessRun {
    fn drop(&mut self) {
        self.cancellation.cancel(); // A child that nobody owns must not go on.
    }
}
