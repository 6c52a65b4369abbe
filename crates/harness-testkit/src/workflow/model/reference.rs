use harness_subagent::StopReason;
use serde_json::{Value, json};

use super::{ChildPlan, RunPlan};

/// How a run ends.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct End {
    pub(super) kind: EndKind,
    /// The calls that the body made. Not known when the run was cancelled in the middle of something.
    pub(super) calls: Option<u64>,
    pub(super) checkpoint: Option<Option<Value>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum EndKind {
    Completed(Value),
    Failed(&'static str),
    /// With the reason, unless anything may have been the reason.
    Cancelled(Option<&'static str>),
}

/// One run as it should be.
#[derive(Debug)]
pub(super) struct Reference {
    plan: RunPlan,
    /// The children that have ended.
    ended: usize,
    /// Whether all has happened that could happen by itself.
    settled: bool,
    /// Whether the child that waits was let go.
    let_go: bool,
    /// The ends that the run may have, once it has one.
    pub(super) ends: Vec<End>,
}

impl Reference {
    pub(super) fn new(plan: RunPlan) -> Self {
        Self { plan, ended: 0, settled: false, let_go: false, ends: Vec::new() }
    }

    /// Lets everything happen that can happen by itself.
    pub(super) fn settle(&mut self) {
        if self.ends.is_empty() {
            if let Some(end) = self.advance() {
                self.ends.push(end);
            }
            self.settled = true;
        }
    }

    /// Lets the child that waits end. The run has been settled.
    pub(super) fn finish(&mut self) {
        if self.waits() {
            self.let_go = true;
            self.settled = false;
        }
    }

    pub(super) fn cancel(&mut self, reason: Option<&'static str>) {
        if !self.ends.is_empty() {
            return;
        }
        let mut cancelled = End { kind: EndKind::Cancelled(reason), calls: None, checkpoint: None };
        if self.settled {
            cancelled.calls = Some(self.ended as u64 + 1);
            cancelled.checkpoint = Some(self.checkpoint());
        } else {
            // The run may have got to its end before the cancellation, or not.
            let end = self.advance();
            self.ends.extend(end);
        }
        self.ends.push(cancelled);
    }

    fn waits(&self) -> bool {
        self.ends.is_empty() && self.plan.children.get(self.ended) == Some(&ChildPlan::Waits)
    }

    fn checkpoint(&self) -> Option<Value> {
        (self.ended > 0).then(|| json!(self.ended))
    }

    fn advance(&mut self) -> Option<End> {
        while let Some(child) = self.plan.children.get(self.ended) {
            let failed = match child {
                ChildPlan::Completes | ChildPlan::Fails => None,
                ChildPlan::Waits if std::mem::take(&mut self.let_go) => None,
                ChildPlan::Waits => return None,
                ChildPlan::IsLost => Some("agent-result"),
                ChildPlan::IsRefused => Some("agent-start"),
            };
            if let Some(code) = failed {
                return Some(self.end(EndKind::Failed(code), self.ended as u64 + 1));
            }
            self.ended += 1;
        }
        let answers = self.plan.children.iter().map(|child| match child {
            ChildPlan::Fails => json!({ "no-value": StopReason::REFUSAL }),
            _ => json!("done"),
        });
        Some(self.end(EndKind::Completed(answers.collect()), self.ended as u64))
    }

    fn end(&self, kind: EndKind, calls: u64) -> End {
        End { kind, calls: Some(calls), checkpoint: Some(self.checkpoint()) }
    }
}
