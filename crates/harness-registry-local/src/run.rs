use std::pin::Pin;
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
    /// Why the value was refused, once it was.
    pub(crate) refusal: OnceLock<Refusal>,
    pub(crate) span: Span,
    pub(crate) life: Life,
}

impl LocalRun {
    /// Lets a claim of success stand only with a value that the schema admits.
    fn enforce(&self, result: &mut SubagentResult) {
        let Some(schema) = self.schema.as_ref().filter(|_| result.stop_reason.is_completed()) else { return };
        if self.refusal.get().is_none() {
            let Some(refusal) = verdict::judge(schema, result.structured.as_ref()) else { return };
            // Another caller may have been quicker: all of them hear the same.
            let _ = self.refusal.set(refusal);
        }
        if let Some(refusal) = self.refusal.get() {
            result.stop_reason = refusal.reason.clone();
            result.diagnostic = Some(refusal.diagnostic.clone());
        }
    }
}

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Does `work` within `span`, which costs nothing where nobody records it.
pub(crate) fn within<'a, T: 'a>(span: &Span, work: Boxed<'a, T>) -> Boxed<'a, T> {
    if span.is_disabled() { work } else { Box::pin(work.instrument(span.clone())) }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl SubagentRun for LocalRun {
    fn id(&self) -> &AgentId {
        self.child.id()
    }

    async fn result(&self) -> Result<SubagentResult> {
        let mut answer = within(&self.span, self.child.result()).await;
        if let Ok(result) = &mut answer {
            self.enforce(result);
        }
        self.life.end(match &answer {
            Ok(result) => ChildEnding::Result {
                stop_reason: &result.stop_reason,
                output: Some(result.output.as_str()).filter(|output| !output.is_empty()),
            },
            Err(error) => ChildEnding::Lost { error },
        });
        answer
    }

    // By hand: where there is nothing to add, the child's own future is enough.
    fn dispose<'life0, 'async_trait>(&'life0 self) -> Boxed<'async_trait, ()>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        let work = within(&self.span, self.child.dispose());
        if self.life.is_unwatched() {
            return work;
        }
        Box::pin(async move {
            let answer = work.await;
            self.life.end(ChildEnding::Disposed);
            answer
        })
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
    watched: Option<Box<Watched>>,
}

/// A child that was announced, and to whom: they hear of its end too.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) observers: Snapshot,
    pub(crate) child: StartedChild,
}

impl Life {
    /// Begins a child's life and announces it.
    pub(crate) fn begin(place: Option<Place>, watched: Option<Box<Watched>>) -> Self {
        if let Some(Watched { observers, child }) = watched.as_deref() {
            tell(observers, &SubagentEvent::Started { child });
        }
        Self { ended: AtomicBool::new(false), place, watched }
    }

    /// Says whether nothing hangs on its end.
    fn is_unwatched(&self) -> bool {
        self.place.is_none() && self.watched.is_none()
    }

    /// Ends it. Only the first call does anything.
    fn end(&self, ending: ChildEnding<'_>) {
        if self.is_unwatched() || self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(place) = &self.place {
            place.free();
        }
        if let Some(Watched { observers, child }) = self.watched.as_deref() {
            tell(observers, &SubagentEvent::Ended { child, ending });
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.end(ChildEnding::Dropped);
    }
}
