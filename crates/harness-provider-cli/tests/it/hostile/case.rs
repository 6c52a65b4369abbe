use std::time::Duration;

use harness_process::Limits;
use harness_provider_cli::HandIn;
use harness_subagent::StopReason;

/// One bad child, and how it must end.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// What the child does, as the end of a sentence about it.
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    pub(crate) hand_in: HandIn,
    pub(crate) prompt: fn() -> String,
    pub(crate) limits: Limits,
    /// How long it may take until it is told to end, at the latest.
    pub(crate) within: Duration,
    pub(crate) cancel: Option<Cancel>,
    /// `None` is a refusal to start it.
    pub(crate) ends: Option<StopReason>,
    pub(crate) details: Vec<(&'static str, &'static str)>,
    /// Only a subreaper can find for certain what it leaves, and only when no other call may have started it.
    pub(crate) needs_adoption: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Program {
    /// A script for `sh`.
    Script(String),
    /// The helper in this binary that does what is named.
    Helper(&'static str),
    /// A path.
    Path(&'static str),
    /// A file with this content, which may be run.
    File(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cancel {
    AtOnce,
    /// When it has made the file `ready`.
    WhenReady,
}

/// A limit that is meant to be exceeded.
const SHORT: Duration = Duration::from_millis(500);
/// A limit that is not, however busy the machine is.
const LONG: Duration = Duration::from_secs(60);

impl Case {
    pub(crate) fn new(name: &'static str, script: impl Into<String>, ends: &StopReason) -> Self {
        Self {
            name,
            program: Program::Script(script.into()),
            hand_in: HandIn::File,
            prompt: || "go".to_owned(),
            limits: Limits::default().with_first_byte(LONG).with_idle(LONG).with_deadline(LONG),
            within: LONG,
            cancel: None,
            ends: Some(ends.clone()),
            details: Vec::new(),
            needs_adoption: false,
        }
    }

    pub(crate) fn first_byte(name: &'static str, script: impl Into<String>) -> Self {
        Self::timed_out(name, script, "first-byte", |limits| limits.with_first_byte(SHORT))
    }

    pub(crate) fn idle(name: &'static str, script: impl Into<String>) -> Self {
        Self::timed_out(name, script, "idle", |limits| limits.with_idle(SHORT))
    }

    pub(crate) fn deadline(name: &'static str, script: impl Into<String>) -> Self {
        Self::timed_out(name, script, "deadline", |limits| limits.with_deadline(SHORT))
    }

    fn timed_out(
        name: &'static str,
        script: impl Into<String>,
        limit: &'static str,
        shorten: impl FnOnce(Limits) -> Limits,
    ) -> Self {
        let case = Self::new(name, script, &StopReason::TIMED_OUT).with_detail("limit", limit);
        Self { limits: shorten(case.limits), within: SHORT, ..case }
    }

    /// A child that hands in, after the helper in this binary has done what is named.
    pub(crate) fn helper(name: &'static str, what: &'static str) -> Self {
        Self { program: Program::Helper(what), ..Self::new(name, "", &StopReason::COMPLETED) }
    }

    pub(crate) fn refused(name: &'static str, program: &'static str) -> Self {
        Self { program: Program::Path(program), ends: None, ..Self::new(name, "", &StopReason::ERROR) }
    }

    pub(crate) fn refused_file(name: &'static str, content: &'static str) -> Self {
        Self { program: Program::File(content), ends: None, ..Self::new(name, "", &StopReason::ERROR) }
    }

    pub(crate) fn with_detail(mut self, name: &'static str, value: &'static str) -> Self {
        self.details.push((name, value));
        self
    }

    pub(crate) fn with_hand_in(self, hand_in: HandIn) -> Self {
        Self { hand_in, ..self }
    }

    pub(crate) fn with_prompt(self, prompt: fn() -> String) -> Self {
        Self { prompt, ..self }
    }

    pub(crate) fn with_cancel(self, cancel: Cancel) -> Self {
        Self { cancel: Some(cancel), ..self }
    }

    /// What it leaves sheds the mark of the call.
    pub(crate) fn without_its_mark(self) -> Self {
        Self { needs_adoption: true, ..self }
    }
}
