//! Sees the child of an agent to its end: hears what it says, lets it correct itself, and judges how it ended.

use std::path::{Path, PathBuf};

use harness_process::{
    CallReport, Child, ChildControl, ChildStdin, ChildStdout, Ending, Limit, Line, LineReader, sanitize,
};
use harness_subagent::{
    Activity, ActivitySender, Diagnostic, Error, ErrorKind, OutputRuleCatalog, OutputViolation, Result,
    RuleRef, StopReason, SubagentResult,
};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, MissedTickBehavior};

use crate::agent::{Conversation, Outcome, Told};
use crate::capture::CaptureFiles;
use crate::instructions;
use crate::private_home::PrivateHome;
use crate::run::{End, LOOK, WatchedFile};
use crate::value_file::{self, ValueFile};

/// One child of an agent, beside its process.
#[derive(Debug)]
pub(crate) struct Talk {
    /// What people call the agent.
    pub(crate) title: &'static str,
    pub(crate) conversation: Box<dyn Conversation>,
    /// What is said to the child first, on a standard input that stays open.
    pub(crate) words: Option<Vec<u8>>,
    /// Where the value comes from, where there is to be one.
    pub(crate) source: Option<Source>,
    /// How it is handed in, in words for the model.
    pub(crate) how: String,
    pub(crate) rule: Option<RuleRef>,
    pub(crate) rules: OutputRuleCatalog,
    pub(crate) corrections: u32,
    pub(crate) max_value_bytes: u64,
    pub(crate) transcript: PathBuf,
    pub(crate) home: PrivateHome,
}

/// Where a child's value comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// From what it says.
    Told,
    /// From the files of a capture server, which has judged it.
    Captured(CaptureFiles),
}

/// The longest line that is understood. What agents say of images and large files may have megabytes.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// How much of what a child said last is kept.
const MAX_SAID_BYTES: usize = 64 * 1024;
/// How much of the last line on standard error is told.
const MAX_COMPLAINT_BYTES: usize = 512;

/// The value of a child.
#[derive(Clone, Debug, PartialEq)]
enum Handed {
    Accepted(Value),
    Refused(Value),
    Unreadable(String),
    Nothing,
}

/// What becomes of a child whose turn is over.
enum Next {
    /// It is told this and goes on.
    Say(Vec<u8>),
    /// It is to end.
    End,
}

/// What there is to say to a child, and how much of it is said.
#[derive(Debug, Default)]
struct Mouth {
    /// Gone when there is nothing more to say, which the child hears.
    stdin: Option<ChildStdin>,
    words: Vec<u8>,
    at: usize,
}

impl Talk {
    /// Sees the child to its end.
    pub(crate) async fn follow(mut self, mut child: Child, activity: ActivitySender) -> End {
        let mut told = Told::default();
        let mut last = Last::default();
        let mouth = Mouth { stdin: child.take_stdin(), words: self.words.take().unwrap_or_default(), at: 0 };
        if let Some(stdout) = child.take_stdout() {
            self.listen(stdout, mouth, &child.control(), &mut told, &mut last, &activity).await;
        }
        let report = child.wait().await;
        if let Some(error) = report.transcript.as_ref().and_then(|transcript| transcript.error) {
            tracing::warn!(transcript = %self.transcript.display(), %error, "the transcript is incomplete");
        }
        if let Some(look_back) = self.conversation.look_back() {
            let (home, session) = (self.home.path().to_owned(), told.session_id.clone());
            // It is lost only with the runtime, and then nobody is left to hear of it.
            let looked = tokio::task::spawn_blocking(move || look_back(&home, session.as_deref())).await;
            let records = looked.unwrap_or_default();
            told.usage = records.usage.or(told.usage);
            if last.outcome != Some(Outcome::Completed) {
                last.outcome = records.failure.or(last.outcome);
            }
        }
        if let Ending::Exited { code } = report.ending
            && last.outcome != Some(Outcome::Completed)
        {
            last.outcome = self.conversation.over(code).or(last.outcome);
        }
        let handed = match &self.source {
            Some(Source::Captured(files)) => self.captured(files),
            Some(Source::Told) => last.handed.unwrap_or(Handed::Nothing),
            None => Handed::Nothing,
        };
        let result = self.classify(&report, last.outcome, handed, told);
        drop(self.home);
        End::new(result, &report)
    }

    /// Listens to the child until it has nothing more to say.
    async fn listen(
        &mut self,
        stdout: ChildStdout,
        mut mouth: Mouth,
        control: &ChildControl,
        told: &mut Told,
        last: &mut Last,
        activity: &ActivitySender,
    ) {
        let mut lines = LineReader::new(stdout, MAX_LINE);
        let mut look = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut watched = WatchedFile::default();
        let captured = match &self.source {
            Some(Source::Captured(files)) => Some(files.accepted.clone()),
            Some(Source::Told) | None => None,
        };
        loop {
            tokio::select! {
                line = lines.next_line() => {
                    match line {
                        Ok(Some(Line::Whole(line))) => self.hear(line, told, activity),
                        Ok(Some(_)) => {
                            tracing::warn!(agent = self.title, "a line was too long to be understood");
                        }
                        Ok(None) | Err(_) => return,
                    }
                    if let Some(outcome) = told.turn.take() {
                        match self.next(outcome, told, last, &mouth) {
                            Next::Say(words) => mouth.say(words),
                            Next::End => {
                                // An agent that has come to its end and stays is not to be waited for.
                                mouth.stdin = None;
                                control.delivered();
                            }
                        }
                    }
                }
                () = mouth.speak(), if mouth.has_words() => {}
                _ = look.tick(), if captured.is_some() => {
                    if let Some(path) = &captured && watched.became_whole(path, self.max_value_bytes) {
                        control.delivered();
                    }
                }
            }
        }
    }

    fn hear(&mut self, line: &[u8], told: &mut Told, activity: &ActivitySender) {
        // Whatever is no event is in the transcript for people to read.
        let Ok(event) = serde_json::from_slice::<Value>(line) else { return };
        self.conversation.hear(&event, told);
        if let Some(text) = told.activity.take() {
            let mut now = Activity::new(sanitize(text.trim()));
            if let Some(usage) = told.usage {
                now = now.with_usage(usage);
            }
            activity.send(now);
        }
    }

    /// Decides what becomes of a child whose turn ended as `outcome`.
    fn next(&mut self, outcome: Outcome, told: &mut Told, last: &mut Last, mouth: &Mouth) -> Next {
        let completed = outcome == Outcome::Completed;
        last.outcome = Some(outcome);
        let (handed, correction) = match &self.source {
            None => return Next::End,
            Some(Source::Captured(files)) => {
                let handed = self.captured(files);
                // A refused value was handed back by the server already.
                let missing = handed == Handed::Nothing;
                (handed, missing.then(|| instructions::missing(&self.how)))
            }
            Some(Source::Told) => {
                let (handed, correction) = self.judge_told(told.value.take());
                let handed = match handed {
                    // Nothing more came of a correction: the value that was refused stays.
                    Handed::Nothing => last.handed.take().unwrap_or(Handed::Nothing),
                    // What the agent tells of a turn that failed is what it refused itself.
                    Handed::Accepted(value) if !completed => Handed::Refused(value),
                    handed => handed,
                };
                (handed, correction)
            }
        };
        last.handed = Some(handed);
        let Some(correction) = correction.filter(|_| completed && self.corrections > 0) else {
            return Next::End;
        };
        match self.conversation.say(&correction).filter(|_| mouth.stdin.is_some()) {
            Some(words) => {
                self.corrections -= 1;
                Next::Say(words)
            }
            None => Next::End,
        }
    }

    /// Judges a value that came with the child's words, and says what to tell the child about it.
    fn judge_told(&self, value: Option<ValueFile>) -> (Handed, Option<String>) {
        match value {
            None | Some(ValueFile::Absent) => (Handed::Nothing, Some(instructions::missing(&self.how))),
            Some(ValueFile::Unreadable(why)) => (Handed::Unreadable(why), None),
            Some(ValueFile::Value(value)) => {
                // What came within an event has the bounds of a value still before it.
                let text = value.to_string();
                if text.len() as u64 > self.max_value_bytes {
                    let max = self.max_value_bytes;
                    return (Handed::Unreadable(format!("it is longer than {max} bytes")), None);
                }
                let value = match value_file::from_bytes(text.as_bytes()) {
                    ValueFile::Value(value) => value,
                    ValueFile::Unreadable(why) => return (Handed::Unreadable(why), None),
                    ValueFile::Absent => return (Handed::Nothing, None),
                };
                let violations = self.violations(&value);
                if violations.is_empty() {
                    return (Handed::Accepted(value), None);
                }
                (Handed::Refused(value), Some(instructions::refused(&violations, &self.how)))
            }
        }
    }

    fn violations(&self, value: &Value) -> Vec<OutputViolation> {
        let Some(rule) = &self.rule else { return Vec::new() };
        self.rules.check(rule, value).unwrap_or_else(|_| {
            tracing::debug!(
                rule = rule.name(),
                "no such rule in the provider's catalog, nothing is corrected"
            );
            Vec::new()
        })
    }

    /// Reads what the capture server has left: the first value that it accepted, else the last that it refused.
    fn captured(&self, files: &CaptureFiles) -> Handed {
        match value_file::read(&files.accepted, self.max_value_bytes) {
            ValueFile::Value(value) => return Handed::Accepted(value),
            ValueFile::Unreadable(why) => return Handed::Unreadable(why),
            ValueFile::Absent => {}
        }
        match value_file::read(&files.refused, self.max_value_bytes) {
            ValueFile::Value(value) => Handed::Refused(value),
            ValueFile::Unreadable(why) => Handed::Unreadable(why),
            ValueFile::Absent => Handed::Nothing,
        }
    }

    /// Judges the end that `report` tells of, of a child whose last turn ended as `outcome`.
    fn classify(
        &self,
        report: &CallReport,
        outcome: Option<Outcome>,
        handed: Handed,
        told: Told,
    ) -> Result<SubagentResult> {
        let accepted = matches!(handed, Handed::Accepted(_));
        let told_so = outcome.is_some();
        let failed = |reason, diagnostic| SubagentResult::stopped(reason, diagnostic);
        let result = match report.ending {
            Ending::Cancelled => failed(StopReason::ABORTED, Diagnostic::new("the child was cancelled")),
            Ending::TimedOut(limit) => {
                let (name, words) = limit_in_words(limit);
                failed(StopReason::TIMED_OUT, Diagnostic::new(words).with_detail("limit", name))
            }
            Ending::Exited { .. } | Ending::Signalled { .. } | Ending::Delivered if accepted => {
                SubagentResult::completed("")
            }
            Ending::Exited { .. } | Ending::Signalled { .. } | Ending::Delivered => {
                match (outcome, report.ending) {
                    (Some(Outcome::Failed(reason, diagnostic)), _) => {
                        failed(reason, with_exit(diagnostic, report))
                    }
                    (Some(Outcome::Completed), _)
                    | (None, Ending::Exited { code: 0 } | Ending::Delivered) => {
                        self.ended(told_so, &handed, &told)
                    }
                    (None, Ending::Signalled { signal }) => failed(
                        StopReason::CRASHED,
                        Diagnostic::new(format!("{} was ended by signal {signal}", self.title))
                            .with_detail("signal", signal.to_string()),
                    ),
                    (None, _) => failed(
                        StopReason::ERROR,
                        with_exit(Diagnostic::new(complaint(self.title, report)), report),
                    ),
                }
            }
            Ending::Lost | _ => {
                return Err(Error::new(
                    ErrorKind::RunLost,
                    "the program's exit status was taken by other code of this process",
                ));
            }
        };
        Ok(self.complete(result, handed, told))
    }

    /// A child that came to its own end and did not fail.
    fn ended(&self, told_so: bool, handed: &Handed, told: &Told) -> SubagentResult {
        let title = self.title;
        match handed {
            Handed::Accepted(_) | Handed::Refused(_) => SubagentResult::completed(""),
            Handed::Unreadable(why) => SubagentResult::stopped(
                StopReason::UNREADABLE_VALUE,
                Diagnostic::new(format!("what {title} handed in cannot be read: {why}")),
            ),
            Handed::Nothing if self.source.is_some() && !told.denied.is_empty() => {
                let denied = told.denied.join(", ");
                SubagentResult::stopped(
                    StopReason::PERMISSION_DENIED,
                    Diagnostic::new(format!(
                        "{title} handed in no value, and was not permitted to use: {denied}"
                    ))
                    .with_detail("denied", denied),
                )
            }
            Handed::Nothing if self.source.is_some() => SubagentResult::stopped(
                StopReason::NO_VALUE,
                Diagnostic::new(format!("{title} ended well and handed in no value")),
            ),
            Handed::Nothing if told_so => SubagentResult::completed(""),
            Handed::Nothing => SubagentResult::stopped(
                StopReason::ERROR,
                Diagnostic::new(format!("{title} ended without saying that it was done")),
            ),
        }
    }

    /// Adds what is told whatever the end.
    fn complete(&self, mut result: SubagentResult, handed: Handed, told: Told) -> SubagentResult {
        if let Some(diagnostic) = result.diagnostic.take() {
            result.diagnostic = Some(with_transcript(diagnostic, &self.transcript));
        }
        if let Handed::Accepted(value) | Handed::Refused(value) = handed {
            result = result.with_structured(value);
        }
        if let Some(usage) = told.usage {
            result = result.with_usage(usage);
        }
        if let Some(session_id) = told.session_id {
            result = result.with_session_id(sanitize(&session_id));
        }
        let mut said = told.said;
        said.truncate(said.floor_char_boundary(MAX_SAID_BYTES));
        result.with_output(sanitize(&said))
    }
}

/// What was last heard about a turn.
#[derive(Debug, Default)]
struct Last {
    outcome: Option<Outcome>,
    handed: Option<Handed>,
}

impl Mouth {
    fn say(&mut self, words: Vec<u8>) {
        self.words = words;
        self.at = 0;
    }

    fn has_words(&self) -> bool {
        self.stdin.is_some() && self.at < self.words.len()
    }

    /// Says a piece of what there is to say. Cancel safe.
    async fn speak(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        match stdin.write(&self.words[self.at..]).await {
            Ok(count) => self.at += count,
            // A child that does not listen any more is no fault; its end will tell.
            Err(_) => self.stdin = None,
        }
    }
}

fn limit_in_words(limit: Limit) -> (&'static str, &'static str) {
    match limit {
        Limit::FirstByte => ("first-byte", "it said nothing within the first-byte limit"),
        Limit::Idle => ("idle", "it said nothing for longer than the idle limit"),
        Limit::Deadline => ("deadline", "it ran until its deadline"),
        _ => ("other", "it exceeded a limit"),
    }
}

/// An end that only the exit status tells of. The last line on standard error is for people, and decides nothing.
fn complaint(title: &str, report: &CallReport) -> String {
    let said = String::from_utf8_lossy(&report.stderr_tail);
    let ended = match report.ending {
        Ending::Exited { code } => format!("{title} exited with status {code} and told no reason"),
        _ => format!("{title} ended and told no reason"),
    };
    match said.lines().rev().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => {
            let line = &line[..line.floor_char_boundary(MAX_COMPLAINT_BYTES)];
            format!("{ended}; its last words on standard error: {}", sanitize(line))
        }
        None => ended,
    }
}

fn with_exit(diagnostic: Diagnostic, report: &CallReport) -> Diagnostic {
    match report.ending {
        Ending::Exited { code } => diagnostic.with_detail("exit-status", code.to_string()),
        Ending::Signalled { signal } => diagnostic.with_detail("signal", signal.to_string()),
        _ => diagnostic,
    }
}

fn with_transcript(diagnostic: Diagnostic, transcript: &Path) -> Diagnostic {
    diagnostic.with_detail("transcript", transcript.display().to_string())
}
