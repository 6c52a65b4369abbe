use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anstyle::Style;
use harness_subagent::{StopReason, Usage};
use harness_workflow::{NoValue, RunId, RunStopReason, WorkflowEvent, WorkflowEventKind, WorkflowObserver};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ralph_report::Status;
use serde_json::Value;
use tokio::sync::Notify;

use crate::arguments::DisplayArguments;
use crate::output;
use crate::shown::{self, BAD, BOLD, DIM, GOOD, WARN};

/// Tells of a run while it goes on: lines or JSON objects on standard output. On a terminal a live line, on standard
/// error, stands below them.
#[derive(Debug)]
pub(crate) struct Progress {
    json: bool,
    max_rounds: u64,
    /// Starts are told some time after they happened.
    lags: bool,
    /// An agent works, as far as that was told.
    under_way: AtomicBool,
    live: Option<ProgressBar>,
    rounds: Mutex<Rounds>,
    waiting: Mutex<Waiting>,
    /// Wakes whoever prints what waits.
    added: Notify,
}

/// What is printed as soon as the run waits for something.
#[derive(Debug, Default)]
struct Waiting {
    told: Vec<Told>,
    /// How long the lines among it are.
    bytes: usize,
    /// Somebody prints it.
    is_awaited: bool,
}

#[derive(Debug, Default)]
struct Rounds {
    current: Option<Round>,
    usage: Usage,
    /// Whether there has been one.
    begun: bool,
    /// When the last round was over, or else when it was told what is about to be run.
    since: Option<Instant>,
}

#[derive(Debug)]
struct Round {
    number: u64,
    started: Instant,
    /// How long the agent took, once it has ended.
    took: Option<Duration>,
    /// What it has used so far, where it tells.
    usage: Usage,
    /// Whether the agent ended well, which says nothing of its report.
    completed: bool,
}

/// Something that is told on a line, or more where it is wrapped.
#[derive(Debug)]
enum Told {
    Line(String),
    /// A round has left a checkpoint. Its line is written when it is printed, as that takes longer than keeping this.
    Settled(Round, Value),
}

impl Rounds {
    /// What all agents have used, the present one among them.
    fn used(&self) -> Usage {
        self.current.as_ref().map_or(self.usage, |round| self.usage.plus(round.usage))
    }
}

impl Progress {
    pub(crate) fn new(display: DisplayArguments, max_rounds: u64) -> Self {
        // A terminal that cannot clear a line gets lines for each thing that happens, as a log does.
        let can_clear = || std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let live = (!display.json && std::io::stderr().is_terminal() && can_clear()).then(|| {
            let style = ProgressStyle::with_template("{spinner} {prefix}  {elapsed}  {wide_msg}")
                .expect("the template is well-formed");
            // Nothing is drawn before the first round.
            ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(style)
        });
        Self {
            json: display.json,
            max_rounds,
            lags: false,
            under_way: AtomicBool::new(false),
            live,
            rounds: Mutex::default(),
            waiting: Mutex::default(),
            added: Notify::new(),
        }
    }

    /// The progress of a run that is elsewhere. Its starts are told some time after they happened, so a round counts from
    /// the end of the one before.
    #[cfg(feature = "temporal")]
    pub(crate) fn of_a_remote_run(display: DisplayArguments, max_rounds: u64) -> Self {
        Self { lags: true, ..Self::new(display, max_rounds) }
    }

    /// Tells what is about to be run: where, and what else there is to know about it.
    pub(crate) fn begin(&self, run: &RunId, workspace: &Path, facts: &[(&'static str, String)]) {
        self.rounds().since = Some(Instant::now());
        if self.json {
            return;
        }
        let fact = |name: &str, value: &str| {
            let rest = " ".repeat(11);
            let text = shown::wrapped(value, &format!("{name:<11}"), &rest);
            self.line(text.replacen(name, &format!("{BOLD}{name}{BOLD:#}"), 1));
        };
        fact("run", run.as_str());
        fact("workspace", &shown::path(workspace));
        for (name, value) in facts {
            fact(name, value);
        }
    }

    /// Prints whenever the run waits for something, so that the next agent does not wait for whoever reads this. Without
    /// it, everything is printed at once, as the line on a terminal always is.
    pub(crate) async fn print_meanwhile(self: Arc<Self>) {
        self.waiting().is_awaited = true;
        loop {
            self.added.notified().await;
            self.print(&mut self.waiting());
        }
    }

    /// What all agents have used so far.
    pub(crate) fn usage(&self) -> Usage {
        self.rounds().usage
    }

    /// Tells something on a line of its own.
    pub(crate) fn say(&self, text: &str) {
        self.print(&mut self.waiting());
        let say = || shown::warn(&format!("{WARN}{text}{WARN:#}"));
        match &self.live {
            Some(live) => live.suspend(say),
            None => say(),
        }
    }

    /// Says whether an agent works, as far as that was told.
    #[cfg(feature = "temporal")]
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Tells what is left to be told. Whatever comes after this is told at once.
    pub(crate) fn finish(&self) {
        let mut waiting = self.waiting();
        waiting.is_awaited = false;
        self.print(&mut waiting);
        drop(waiting);
        if let Some(live) = &self.live {
            live.finish_and_clear();
        }
    }

    /// Prints a line, or has it printed soon.
    fn line(&self, text: impl Into<String>) {
        self.tell_of(Told::Line(text.into()));
    }

    fn tell_of(&self, told: Told) {
        const MOST_BYTES: usize = 64 * 1024;
        const MOST: usize = 64;
        let mut waiting = self.waiting();
        if let Told::Line(line) = &told {
            waiting.bytes += line.len();
        }
        waiting.told.push(told);
        let has_room = waiting.bytes < MOST_BYTES && waiting.told.len() < MOST;
        if waiting.is_awaited && self.live.is_none() && has_room {
            self.added.notify_one();
        } else {
            self.print(&mut waiting);
        }
    }

    /// Prints what waits. The run goes on if nobody reads it.
    fn print(&self, waiting: &mut Waiting) {
        if waiting.told.is_empty() {
            return;
        }
        let mut text = String::with_capacity(waiting.bytes + 256);
        for told in waiting.told.drain(..) {
            match told {
                Told::Line(line) => text.push_str(&line),
                Told::Settled(round, checkpoint) => {
                    match ralph_tool::Progress::from_checkpoint(&checkpoint) {
                        Some(progress) => text.push_str(&settled(&round, &progress)),
                        None => continue,
                    }
                }
            }
            text.push('\n');
        }
        waiting.bytes = 0;
        let print = || {
            let _ = if self.json { output::print_plain(&text) } else { output::print(&text) };
        };
        match &self.live {
            Some(live) => live.suspend(print),
            None => print(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, kind: &WorkflowEventKind) {
        let mut rounds = self.rounds();
        match kind {
            WorkflowEventKind::AgentStarted { call } => {
                if !std::mem::replace(&mut rounds.begun, true) {
                    self.line("");
                }
                let since = if self.lags { rounds.since } else { None };
                rounds.current = Some(Round {
                    number: call.call,
                    started: since.unwrap_or_else(Instant::now),
                    took: None,
                    usage: Usage::default(),
                    completed: false,
                });
                match &self.live {
                    Some(live) => {
                        if live.is_hidden() {
                            live.set_draw_target(ProgressDrawTarget::stderr());
                        }
                        live.set_prefix(self.prefix(&rounds));
                        live.set_message("");
                        live.reset_elapsed();
                        live.enable_steady_tick(Duration::from_millis(120));
                    }
                    None if call.attempt > 1 => self.line(format!(
                        "round {} of {} is started again, attempt {}",
                        call.call, self.max_rounds, call.attempt
                    )),
                    None => self.line(format!("round {} of {} started", call.call, self.max_rounds)),
                }
            }
            WorkflowEventKind::AgentActivity { activity, .. } => {
                if let Some(live) = &self.live {
                    if let (Some(usage), Some(round)) = (activity.usage, &mut rounds.current) {
                        round.usage = usage;
                        live.set_prefix(self.prefix(&rounds));
                    }
                    live.set_message(shown::one_line(&activity.text, 200));
                }
            }
            WorkflowEventKind::AgentEnded { end, .. } => {
                if let Some(live) = &self.live {
                    live.set_message("");
                }
                if let Some(round) = &mut rounds.current {
                    round.took = Some(round.started.elapsed());
                    round.usage = Usage::default();
                    round.completed = end.stop_reason.as_ref().is_some_and(StopReason::is_completed);
                }
            }
            WorkflowEventKind::Checkpoint { value } => {
                let round = rounds.current.take();
                rounds.since = Some(Instant::now());
                drop(rounds);
                if let Some(mut round) = round {
                    round.took.get_or_insert_with(|| round.started.elapsed());
                    self.tell_of(Told::Settled(round, value.clone()));
                }
            }
            WorkflowEventKind::Ended { stop_reason, .. } => {
                let round = rounds.current.take();
                drop(rounds);
                if let Some(round) = round {
                    let (status, text) = match stop_reason {
                        RunStopReason::Cancelled => ("cancelled", ""),
                        _ if round.completed => ("refused", "The report breaks the rules."),
                        _ => ("no report", ""),
                    };
                    self.line(settled_as(&round, BAD, status, text));
                }
                self.finish();
            }
            _ => {}
        }
    }

    /// The beginning of the live line: the round, and what has been used so far.
    fn prefix(&self, rounds: &Rounds) -> String {
        let used = shown::usage(rounds.used()).map_or_else(String::new, |used| format!("  {used}"));
        let number = rounds.current.as_ref().map_or(0, |round| round.number);
        format!("round {number} of {}{used}", self.max_rounds)
    }
}

/// Tells of a round that left a report, or said why it left none.
fn settled(round: &Round, progress: &ralph_tool::Progress) -> String {
    match (progress.failure(), progress.report()) {
        (None, Some(report)) => {
            let style = match report.status() {
                Status::Complete => GOOD,
                Status::Blocked => BAD,
                Status::Continue => WARN,
            };
            settled_as(round, style, report.status().as_str(), report.summary())
        }
        (failure, _) => settled_as(round, BAD, "no report", &failure.map_or_else(String::new, why)),
    }
}

/// Tells of a round that is over.
fn settled_as(round: &Round, style: Style, status: &str, text: &str) -> String {
    const LONGEST: usize = 300;
    let took = shown::duration(round.took.unwrap_or_else(|| round.started.elapsed()));
    let head = format!("round {:<3} {status:<9} {took:>7}  ", round.number);
    let rest = " ".repeat(head.len());
    let text = shown::wrapped(&shown::one_line(text, LONGEST), &head, &rest);
    let styled = format!("{style}{status}{style:#}");
    text.replacen(status, &styled, 1).replacen(&took, &format!("{DIM}{took}{DIM:#}"), 1)
}

/// Says in one line why an agent left nothing.
pub(crate) fn why(failure: &NoValue) -> String {
    match &failure.diagnostic {
        Some(diagnostic) => format!("{}: {}", failure.stop_reason, diagnostic.message()),
        None => failure.stop_reason.to_string(),
    }
}

impl WorkflowObserver for Progress {
    fn observe(&self, event: &WorkflowEvent) {
        match event.kind {
            WorkflowEventKind::AgentStarted { .. } => self.under_way.store(true, Ordering::Relaxed),
            WorkflowEventKind::AgentEnded { ref end, .. } => {
                self.under_way.store(false, Ordering::Relaxed);
                if let Some(usage) = end.usage {
                    let mut rounds = self.rounds();
                    rounds.usage = rounds.usage.plus(usage);
                }
            }
            _ => {}
        }
        if self.json {
            if let Ok(line) = output::json_line(event) {
                self.line(line);
            }
        } else {
            self.tell(&event.kind);
        }
    }
}
