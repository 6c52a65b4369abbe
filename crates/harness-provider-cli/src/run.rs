use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use harness_process::{CallReport, Child, ChildControl, ChildStdout, Utf8Decoder, sanitize};
use harness_subagent::{
    Activity, ActivitySender, ActivityStream, AgentId, Error, ErrorKind, Result, SubagentResult, SubagentRun,
};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::document::DocumentScanner;
use crate::ending;
use crate::value_file::{self, ValueFile};

/// One child that is a program.
///
/// A task of its own sees the child to its end, so nobody needs to wait for it.
#[derive(Debug)]
pub struct CliRun {
    id: AgentId,
    control: ChildControl,
    /// Asks whoever follows the child to end it, where that is more than ending its process.
    stop: Option<CancellationToken>,
    /// Taken away when the child has ended, which ends the streams of all readers.
    activity: Arc<Mutex<Option<ActivitySender>>>,
    end: watch::Receiver<Option<Arc<End>>>,
}

/// How a child came to its end, and whether all of it is gone.
#[derive(Debug)]
pub struct End {
    result: Result<SubagentResult>,
    released: Result<()>,
}

impl End {
    /// Makes the end of a child that is over as `report` says, with the result that was made of it.
    #[must_use]
    pub fn new(result: Result<SubagentResult>, report: &CallReport) -> Self {
        Self { result, released: released(report) }
    }
}

/// What the provider knows about one child beside its process.
#[derive(Debug)]
pub(crate) struct Course {
    /// The file in which the child hands in its value.
    pub(crate) value: Option<PathBuf>,
    /// The whole of standard output is the value.
    pub(crate) value_on_output: bool,
    pub(crate) max_value_bytes: u64,
    pub(crate) transcript: PathBuf,
}

/// How much of standard output is kept as what the child said, when it is not the value.
const MAX_SAID_BYTES: usize = 64 * 1024;
/// How often a running child's value file is looked at. It only matters for a child that does not end by itself.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// How often a line of the child's output is told as activity, at most.
const TELL: Duration = Duration::from_millis(250);
/// How much of the child's output is looked at in one go, at most.
const MOST_AT_ONCE: usize = 16 * 1024;
/// How many activities wait for a reader that lags.
const ACTIVITIES: usize = 16;

impl CliRun {
    pub(crate) fn drive(id: AgentId, child: Child, course: Course) -> Self {
        let control = child.control();
        Self::follow(id, control, |activity| course.follow(child, activity))
    }

    /// Has a task of its own follow the child that `control` speaks for.
    pub fn follow<F>(id: AgentId, control: ChildControl, follow: impl FnOnce(ActivitySender) -> F) -> Self
    where
        F: Future<Output = End> + Send + 'static,
    {
        let teller = ActivitySender::new(ACTIVITIES);
        let activity = Arc::new(Mutex::new(Some(teller.clone())));
        let (sender, end) = watch::channel(None);
        let ours = Arc::clone(&activity);
        let following = follow(teller);
        tokio::spawn(async move {
            let end = following.await;
            *ours.lock().unwrap_or_else(PoisonError::into_inner) = None;
            // Nobody may be left to hear of it.
            let _ = sender.send(Some(Arc::new(end)));
        });
        Self { id, control, stop: None, activity, end }
    }

    /// Has a disposal cancel `stop` in place of the child's process. Whoever follows the child must then end it, within
    /// a bound of its own.
    #[must_use]
    pub fn stopped_by(mut self, stop: CancellationToken) -> Self {
        self.stop = Some(stop);
        self
    }

    async fn end(&self) -> Result<Arc<End>> {
        let mut end = self.end.clone();
        let end = end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        end.ok_or_else(|| Error::new(ErrorKind::RunLost, "the runtime was shut down under the child"))
    }
}

#[async_trait]
impl SubagentRun for CliRun {
    fn id(&self) -> &AgentId {
        &self.id
    }

    async fn result(&self) -> Result<SubagentResult> {
        self.end().await?.result.clone()
    }

    async fn dispose(&self) -> Result<()> {
        // Most children are over by then, and there is nobody to be told.
        if let Some(end) = &*self.end.borrow() {
            return end.released.clone();
        }
        match &self.stop {
            Some(stop) => stop.cancel(),
            None => self.control.cancel(),
        }
        let lost = |error| {
            Error::new(ErrorKind::Release, "whether all of the child is gone is unknown").with_source(error)
        };
        self.end().await.map_err(lost)?.released.clone()
    }

    fn activity(&self) -> ActivityStream {
        let activity = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
        activity.as_ref().map_or_else(ActivityStream::silent, ActivitySender::subscribe)
    }
}

impl Drop for CliRun {
    fn drop(&mut self) {
        if self.end.borrow().is_none() {
            self.control.kill();
        }
    }
}

impl Course {
    /// Sees the child to its end.
    async fn follow(self, mut child: Child, activity: ActivitySender) -> End {
        let mut said = Said::new(&self);
        if let Some(stdout) = child.take_stdout() {
            self.listen(stdout, &child.control(), &mut said, &activity).await;
        }
        let report = child.wait().await;
        if let Some(error) = report.transcript.as_ref().and_then(|transcript| transcript.error) {
            tracing::warn!(transcript = %self.transcript.display(), %error, "the transcript is incomplete");
        }
        let value = if self.value_on_output {
            said.value(self.max_value_bytes)
        } else {
            match &self.value {
                Some(path) => value_file::read(path, self.max_value_bytes),
                None => ValueFile::Absent,
            }
        };
        let expects_value = self.value_on_output || self.value.is_some();
        let output = if self.value_on_output { String::new() } else { said.into_text() };
        let result = ending::classify(&report, expects_value.then_some(value), output, &self.transcript);
        End::new(result, &report)
    }

    /// Listens to the child until it has nothing more to say.
    async fn listen(
        &self,
        mut stdout: ChildStdout,
        control: &ChildControl,
        said: &mut Said,
        activity: &ActivitySender,
    ) {
        let mut look = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut watched = WatchedFile::default();
        // Many programs say nothing, and those that do are given room.
        let mut buffer = Vec::with_capacity(1024);
        loop {
            tokio::select! {
                read = stdout.read_buf(&mut buffer) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {
                        if let Some(activity_now) = said.hear(&buffer) {
                            activity.send(activity_now);
                        }
                        let is_full = buffer.len() == buffer.capacity();
                        buffer.clear();
                        if is_full {
                            buffer.reserve_exact(MOST_AT_ONCE);
                        }
                        if said.is_whole() {
                            control.delivered();
                        }
                    }
                },
                _ = look.tick(), if self.value.is_some() => {
                    if let Some(path) = &self.value && watched.became_whole(path, self.max_value_bytes) {
                        control.delivered();
                    }
                }
            }
        }
    }
}

/// Says whether all of the child is gone.
fn released(report: &CallReport) -> Result<()> {
    if report.survivors.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Release,
        format!("processes {:?} of the child could not be ended", report.survivors),
    ))
}

/// What a child has said on standard output.
struct Said {
    kept: Vec<u8>,
    max: usize,
    truncated: bool,
    scanner: Option<DocumentScanner>,
    decoder: Utf8Decoder,
    told: Option<Instant>,
}

impl Said {
    fn new(course: &Course) -> Self {
        let value_bytes = usize::try_from(course.max_value_bytes).unwrap_or(usize::MAX);
        Self {
            kept: Vec::new(),
            max: if course.value_on_output { value_bytes } else { MAX_SAID_BYTES },
            truncated: false,
            scanner: course.value_on_output.then(DocumentScanner::default),
            decoder: Utf8Decoder::default(),
            told: None,
        }
    }

    /// Takes in a piece of output and returns what to tell of it.
    fn hear(&mut self, bytes: &[u8]) -> Option<Activity> {
        if let Some(scanner) = &mut self.scanner {
            scanner.feed(bytes);
            self.keep_first(bytes);
            return None;
        }
        self.keep_last(bytes);
        let now = Instant::now();
        if self.told.is_some_and(|told| now < told + TELL) {
            return None;
        }
        let text = self.decoder.decode(&bytes[bytes.len().saturating_sub(4 * Activity::MAX_TEXT_BYTES)..]);
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        self.told = Some(now);
        Some(Activity::new(sanitize(line)))
    }

    fn keep_first(&mut self, bytes: &[u8]) {
        let room = self.max - self.kept.len();
        self.kept.extend_from_slice(&bytes[..room.min(bytes.len())]);
        self.truncated |= bytes.len() > room;
    }

    fn keep_last(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        if self.kept.len() > 2 * self.max {
            self.kept.drain(..self.kept.len() - self.max);
            self.truncated = true;
        }
    }

    /// Says whether the output so far is one whole document, where it is to be one.
    fn is_whole(&self) -> bool {
        self.scanner.as_ref().is_some_and(DocumentScanner::is_whole)
    }

    /// Reads the whole output as the child's value.
    fn value(&self, max_bytes: u64) -> ValueFile {
        if self.truncated {
            return ValueFile::Unreadable(format!("standard output is longer than {max_bytes} bytes"));
        }
        if self.kept.iter().all(u8::is_ascii_whitespace) {
            return ValueFile::Absent;
        }
        value_file::from_bytes(&self.kept)
    }

    /// Returns the last of what the child said, as text that is harmless to a terminal.
    fn into_text(self) -> String {
        let start = self.kept.len().saturating_sub(self.max);
        sanitize(&String::from_utf8_lossy(&self.kept[start..])).into_owned()
    }
}

/// A value file that is looked at while its child runs.
#[derive(Debug, Default)]
pub(crate) struct WatchedFile {
    seen: Option<(u64, SystemTime)>,
}

impl WatchedFile {
    /// Says whether the file has changed and now holds one whole document.
    pub(crate) fn became_whole(&mut self, path: &std::path::Path, max_bytes: u64) -> bool {
        let Ok(metadata) = std::fs::symlink_metadata(path) else { return false };
        let seen = metadata.modified().ok().map(|modified| (metadata.len(), modified));
        if seen == self.seen {
            return false;
        }
        self.seen = seen;
        value_file::is_whole(path, max_bytes)
    }
}
