use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use harness_subagent::{
    ActivityStream, AgentId, ChildEnding, Result, Schema, StartedChild, SubagentEvent, SubagentResult,
    SubagentRun,
};
use tracing::{Instrument, Span};

use crate::budget::Place;
use crate::observers::{Snapshot, tell};
use crate::verdict::{self, Refusal};

/// A provider's run under the registry's eyes.
#[derive(Debug)]
pub(crate) struct LocalRun {
    // Fields are dropped in this order, so the child is gone before its place is free.
    pub(crate) child: Box<dyn SubagentRun>,
    pub(crate) schema: Option<Schema>,
    pub(crate) verdict: OnceLock<Option<Refusal>>,
    pub(crate) span: Span,
    pub(crate) life: Life,
}

impl LocalRun {
    /// Lets a claim of success stand only with a value that the schema admits.
    fn enforce(&self, mut result: SubagentResult) -> SubagentResult {
        let Some(schema) = self.schema.as_ref().filter(|_| result.stop_reason.is_completed()) else {
            return result;
        };
        let verdict = self.verdict.get_or_init(|| verdict::judge(schema, result.structured.as_ref()));
        if let Some(refusal) = verdict {
            result.stop_reason = refusal.reason.clone();
            result.diagnostic = Some(refusal.diagnostic.clone());
        }
        result
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl SubagentRun for LocalRun {
    fn id(&self) -> &AgentId {
        self.child.id()
    }

    async fn result(&self) -> Result<SubagentResult> {
        let answer = self.child.result().instrument(self.span.clone()).await;
        let answer = answer.map(|result| self.enforce(result));
        self.life.end(match &answer {
            Ok(result) => ChildEnding::Result {
                stop_reason: &result.stop_reason,
                output: Some(result.output.as_str()).filter(|output| !output.is_empty()),
            },
            Err(error) => ChildEnding::Lost { error },
        });
        answer
    }

    async fn dispose(&self) -> Result<()> {
        let answer = self.child.dispose().instrument(self.span.clone()).await;
        self.life.end(ChildEnding::Disposed);
        answer
    }

    fn activity(&self) -> ActivityStream {
        self.child.activity()
    }
}

/// What must happen once when a child ends, whatever ends it.
#[derive(Debug)]
pub(crate) struct Life {
    ended: AtomicBool,
    place: Option<Place>,
    watched: Option<Watched>,
}

/// A child that was announced, and to whom: they hear of its end too.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) observers: Snapshot,
    pub(crate) child: StartedChild,
}

impl Life {
    /// Begins a child's life and announces it.
    pub(crate) fn begin(place: Option<Place>, watched: Option<Watched>) -> Self {
        if let Some(Watched { observers, child }) = &watched {
            tell(observers, &SubagentEvent::Started { child });
        }
        Self { ended: AtomicBool::new(false), place, watched }
    }

    /// Ends it. Only the first call does anything.
    fn end(&self, ending: ChildEnding<'_>) {
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(place) = &self.place {
            place.free();
        }
        if let Some(Watched { observers, child }) = &self.watched {
            tell(observers, &SubagentEvent::Ended { child, ending });
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.end(ChildEnding::Dropped);
    }
}
