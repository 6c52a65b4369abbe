use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use harness_subagent::{
    Activity, Diagnostic, Error, ErrorKind, Result, StartSubagent, StopReason, SubagentResult, Usage,
};
use serde_json::{Value, json};

/// The script of one child: how it starts, when and how it ends, how it is released.
///
/// A child ends before its start returns, unless its script says otherwise. A cancellation that comes before
/// the end turns the end into [`StopReason::ABORTED`], unless the child is
/// [`ignoring_cancellation`](Self::ignoring_cancellation).
#[derive(Clone)]
pub struct MockChild {
    pub(crate) start: StartStep,
    pub(crate) delay: Option<Duration>,
    pub(crate) held_start: bool,
    pub(crate) trigger: Trigger,
    pub(crate) ending: Ending,
    pub(crate) ignores_cancellation: bool,
    pub(crate) activities: Vec<Activity>,
    pub(crate) usage: Option<Usage>,
    pub(crate) session_id: Option<String>,
    pub(crate) release: ReleaseStep,
    pub(crate) on_start: Option<StartHook>,
    pub(crate) on_asked: Option<AskedHook>,
}

pub(crate) type StartHook = Arc<dyn Fn(&StartSubagent) + Send + Sync>;
pub(crate) type AskedHook = Arc<dyn Fn() + Send + Sync>;

#[derive(Clone, Debug)]
pub(crate) enum StartStep {
    HandOver,
    Refuse(Error),
}

/// What makes a child end as its script says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Trigger {
    Start,
    Asked,
    After(Duration),
    Handle,
    Cancellation,
}

/// How a child ends when nothing comes in between.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    Result(Result<SubagentResult>),
    /// The values that the child hands in one after the other until one is accepted.
    Tries(Vec<Value>),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ReleaseStep {
    pub(crate) delay: Option<Duration>,
    pub(crate) held: bool,
    pub(crate) error: Option<Error>,
}

impl MockChild {
    fn new(ending: Ending) -> Self {
        Self {
            start: StartStep::HandOver,
            delay: None,
            held_start: false,
            trigger: Trigger::Start,
            ending,
            ignores_cancellation: false,
            activities: Vec::new(),
            usage: None,
            session_id: None,
            release: ReleaseStep::default(),
            on_start: None,
            on_asked: None,
        }
    }

    /// A child that ends with `result`.
    #[must_use]
    pub fn result(result: SubagentResult) -> Self {
        Self::new(Ending::Result(Ok(result)))
    }

    /// A child that completes and says `output`, without a value.
    #[must_use]
    pub fn text(output: impl Into<String>) -> Self {
        Self::result(SubagentResult::completed(output))
    }

    /// A child that completes and hands in `value`, whatever schema and rule say of it.
    #[must_use]
    pub fn value(value: Value) -> Self {
        Self::result(SubagentResult::handed_in(value))
    }

    /// A child that completes and hands in a value that no output contract's schema admits.
    #[must_use]
    pub fn schema_refused() -> Self {
        Self::value(json!("no schema of a contract admits a string"))
    }

    /// A child that hands in `values` one after the other until the rule of its output contract accepts one.
    ///
    /// It delivers the first value that was accepted, else the last one refused, and completes either way. The
    /// rule is looked up in the catalog that the provider was
    /// [given](super::MockProviderHandle::set_rules); without a rule the first value is the one.
    ///
    /// # Panics
    ///
    /// Without a value.
    #[must_use]
    pub fn tries(values: impl IntoIterator<Item = Value>) -> Self {
        let values: Vec<Value> = values.into_iter().collect();
        assert!(!values.is_empty(), "a child that tries needs a value to hand in");
        Self::new(Ending::Tries(values))
    }

    /// A child that fails in the ordinary way, with `reason` and a diagnostic that names it.
    #[must_use]
    pub fn failing(reason: StopReason) -> Self {
        let diagnostic = Diagnostic::new(format!("the scripted child stopped: {reason}"));
        Self::result(SubagentResult::stopped(reason, diagnostic))
    }

    /// A child that is lost: waiting for its result fails with [`ErrorKind::RunLost`].
    #[must_use]
    pub fn lost() -> Self {
        Self::faulty(Error::new(ErrorKind::RunLost, "the scripted child was lost"))
    }

    /// A child whose result is `error`.
    #[must_use]
    pub fn faulty(error: Error) -> Self {
        Self::new(Ending::Result(Err(error)))
    }

    /// A child that runs until it is cancelled, disposed of, or finished by the handle.
    ///
    /// Finished by the handle it completes without a value.
    #[must_use]
    pub fn hanging() -> Self {
        Self::text("finished").until_finished()
    }

    /// A child that never comes to be: the start fails with [`ErrorKind::Provider`].
    #[must_use]
    pub fn refused() -> Self {
        Self::refused_with(
            Error::new(ErrorKind::Provider, "the scripted provider refuses the start")
                .with_source("refused by the script"),
        )
    }

    /// A child that never comes to be: the start fails with `error`.
    #[must_use]
    pub fn refused_with(error: Error) -> Self {
        Self { start: StartStep::Refuse(error), ..Self::text("") }
    }

    /// Holds the start back until the handle [releases](super::MockProviderHandle::release_start) it.
    #[must_use]
    pub fn with_held_start(mut self) -> Self {
        self.held_start = true;
        self
    }

    /// Lets the start take `delay`, on tokio's clock.
    #[must_use]
    pub fn with_slow_start(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Lets the child end `delay` after its start, on tokio's clock.
    ///
    /// The end comes by itself: this one spawns a task on the current tokio runtime.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.trigger = Trigger::After(delay);
        self
    }

    /// Lets the child end when its result is asked for the first time.
    #[must_use]
    pub fn when_asked(mut self) -> Self {
        self.trigger = Trigger::Asked;
        self
    }

    /// Lets the child end when the handle [finishes](super::MockProviderHandle::finish) it.
    #[must_use]
    pub fn until_finished(mut self) -> Self {
        self.trigger = Trigger::Handle;
        self
    }

    /// Lets a cancellation bring the end about, and the end be as scripted: a child that, when it is cancelled,
    /// still ends in its own way.
    ///
    /// The end comes to pass when somebody waits for the result.
    #[must_use]
    pub fn when_cancelled(mut self) -> Self {
        self.trigger = Trigger::Cancellation;
        self.ignores_cancellation = true;
        self
    }

    /// Makes the child deaf to its cancellation once it has started. It ends as scripted, or when it is
    /// disposed of.
    #[must_use]
    pub fn ignoring_cancellation(mut self) -> Self {
        self.ignores_cancellation = true;
        self
    }

    /// Lets the child do something, of which its first watcher is told.
    #[must_use]
    pub fn with_activity(mut self, activity: Activity) -> Self {
        self.activities.push(activity);
        self
    }

    /// Sets what the child used, however it ends.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Sets the session id of the child, however it ends.
    #[must_use]
    pub fn with_session_id(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }

    /// Lets the release of the child take `delay`, on tokio's clock.
    #[must_use]
    pub fn with_slow_dispose(mut self, delay: Duration) -> Self {
        self.release.delay = Some(delay);
        self
    }

    /// Holds the release of the child back until the handle
    /// [lets it go](super::MockProviderHandle::release_dispose).
    #[must_use]
    pub fn with_held_dispose(mut self) -> Self {
        self.release.held = true;
        self
    }

    /// Lets the release of the child fail with [`ErrorKind::Release`]. The child is gone all the same.
    #[must_use]
    pub fn with_failing_dispose(mut self) -> Self {
        self.release.error = Some(Error::new(ErrorKind::Release, "the scripted child could not be released"));
        self
    }

    /// Runs `hook` with the request when the child has come to be and before anything ends it.
    #[must_use]
    pub fn on_start(mut self, hook: impl Fn(&StartSubagent) + Send + Sync + 'static) -> Self {
        self.on_start = Some(Arc::new(hook));
        self
    }

    /// Runs `hook` when the child's result is asked for the first time. A child that would end with its start
    /// ends after the hook instead, so that the hook can act while the child runs.
    #[must_use]
    pub fn on_asked(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_asked = Some(Arc::new(hook));
        if self.trigger == Trigger::Start {
            self.trigger = Trigger::Asked;
        }
        self
    }
}

#[cfg(feature = "proptest1")]
impl MockChild {
    /// Says whether the child ends before its start returns.
    pub(crate) fn ends_with_its_start(&self) -> bool {
        self.trigger == Trigger::Start
    }
}

impl Default for MockChild {
    /// A child that completes and says `done`.
    fn default() -> Self {
        Self::text("done")
    }
}

impl fmt::Debug for MockChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockChild")
            .field("start", &self.start)
            .field("trigger", &self.trigger)
            .field("ending", &self.ending)
            .field("ignores_cancellation", &self.ignores_cancellation)
            .field("release", &self.release)
            .finish_non_exhaustive()
    }
}
