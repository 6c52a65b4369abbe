use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use harness_process::{ChildSpec, Ending, Environment, Limits, Output, start};
use harness_workflow::{AgentOutcome, RunId};

use crate::wire::{Answer, CallReport, CallRequest, Verdict};

/// Makes the workspace that a run names into a folder of a worker's machine.
///
/// # Contract
///
/// A worker calls it; whoever sets up the worker chooses or writes an implementation. Calls for different attempts
/// overlap, on this worker and on others. Two attempts at the same call may overlap too, when the worker of the first
/// was given up and lives on; the one with the lower [`fence`](Workplace::fence) is the lost one, and what it
/// publishes must not count.
#[async_trait]
pub trait Workspaces: Debug + Send + Sync + 'static {
    /// Makes the workspace ready for one child and returns its folder, as this machine sees it.
    ///
    /// It is called once for each attempt, before the child is started. While it waits the attempt counts as alive.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped when the attempt is given up.
    ///
    /// # Errors
    ///
    /// Why there is no such folder. The call then ends the run in error, as one whose child cannot be started.
    async fn prepare(&self, place: &Workplace) -> Result<String, WorkspaceError>;

    /// Takes what the child has left in `folder`.
    ///
    /// It is called once for each attempt that was prepared, after the child is gone, on this worker. It is not called
    /// when the worker dies.
    ///
    /// # Errors
    ///
    /// Why it could not be taken. The call then ends the run in error, as one whose child was lost.
    async fn publish(
        &self,
        place: &Workplace,
        folder: &str,
        ending: CallEnding,
    ) -> Result<(), WorkspaceError>;
}

/// Where one attempt at a call works.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Workplace {
    /// The workspace that the run was started with.
    pub workspace: String,
    /// The run.
    pub run: RunId,
    /// The number of the call in its run, from 1.
    pub call: u64,
    /// The number of the try at this call, from 1.
    pub attempt: u32,
    /// The fencing token: greater than that of every earlier attempt of the run, at whatever call.
    pub fence: u64,
}

impl Workplace {
    pub(crate) fn new(request: &CallRequest) -> Self {
        Self {
            workspace: request.parent.workspace.clone(),
            run: request.run.clone(),
            call: request.call.number,
            attempt: request.attempt,
            fence: request.fence,
        }
    }
}

/// How an attempt ended, as far as a workspace needs to know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "a call yields a value, none, or ends with its run")]
pub enum CallEnding {
    /// The child handed in a value.
    Value,
    /// It yielded none, or could not be started.
    NoValue,
    /// Its run, or the worker, wanted it ended.
    Cancelled,
}

impl CallEnding {
    pub(crate) fn of(report: &CallReport) -> Self {
        match &report.verdict {
            Verdict::Answered(Answer::Outcome(AgentOutcome::Value(_))) => Self::Value,
            Verdict::Answered(_) => Self::NoValue,
            Verdict::Cancelled => Self::Cancelled,
        }
    }

    /// Returns the stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::NoValue => "no-value",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why a workspace could not be prepared or published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// The name of the workspace is not one of this worker.
    #[error("workspace {workspace:?} is not usable here: {reason}")]
    #[non_exhaustive]
    Unusable {
        /// The workspace.
        workspace: String,
        /// Why.
        reason: String,
    },
    /// The hook did not do its work.
    #[error("the hook `{step}` failed: {reason}")]
    #[non_exhaustive]
    Hook {
        /// What it was asked for: `prepare` or `publish`.
        step: &'static str,
        /// Why.
        reason: String,
    },
}

impl WorkspaceError {
    /// Says that the name of a workspace is not one of this worker, and why.
    #[must_use]
    pub fn unusable(workspace: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unusable { workspace: workspace.into(), reason: reason.into() }
    }
}

/// Workspaces on a file system that all workers share.
///
/// Without a root, a workspace is a path that is the same on every machine. With one, it is a relative path below it,
/// which may be mounted elsewhere on each machine.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SharedFolders {
    root: Option<PathBuf>,
}

impl SharedFolders {
    /// Takes workspaces as paths that are the same on every machine.
    #[must_use]
    pub fn anywhere() -> Self {
        Self { root: None }
    }

    /// Takes workspaces as relative paths below `root`. Those that would lead out of it are refused.
    #[must_use]
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: Some(root.into()) }
    }

    fn resolve(&self, workspace: &str) -> Result<String, WorkspaceError> {
        let unusable = |reason: &str| WorkspaceError::unusable(workspace, reason);
        let Some(root) = &self.root else { return Ok(workspace.to_owned()) };
        let relative = Path::new(workspace);
        if !relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(unusable("it must be a relative path without `..`"));
        }
        let folder = root.join(relative);
        let folder = folder.canonicalize().map_err(|error| unusable(&error.to_string()))?;
        let root = root.canonicalize().map_err(|error| unusable(&error.to_string()))?;
        if !folder.starts_with(root) {
            return Err(unusable("a link leads out of the root"));
        }
        folder.into_os_string().into_string().map_err(|_| unusable("its path is not UTF-8"))
    }
}

#[async_trait]
impl Workspaces for SharedFolders {
    async fn prepare(&self, place: &Workplace) -> Result<String, WorkspaceError> {
        self.resolve(&place.workspace)
    }

    async fn publish(&self, _: &Workplace, _: &str, _: CallEnding) -> Result<(), WorkspaceError> {
        Ok(())
    }
}

/// Workspaces that a command brings and takes: a clone, a volume, whatever a team uses.
///
/// The program is run without a shell, with its arguments and one more, `prepare` or `publish`. It finds in its
/// environment:
///
/// | variable | meaning |
/// |---|---|
/// | `HARNESS_WORKSPACE` | the workspace that the run was started with |
/// | `HARNESS_RUN`, `HARNESS_CALL`, `HARNESS_ATTEMPT` | whose workspace it is |
/// | `HARNESS_FENCE` | the fencing token: what a lower one publishes after a higher one must not count |
/// | `HARNESS_FOLDER` | for `publish`, the folder that `prepare` answered |
/// | `HARNESS_ENDING` | for `publish`, how the call ended: `value`, `no-value` or `cancelled` |
///
/// `prepare` writes the folder's absolute path to its standard output, and nothing else. Any exit code but 0 is a
/// failure. What it writes to its standard error is told with a failure, the end of it.
#[derive(Clone, Debug)]
pub struct HookCommand {
    program: OsString,
    arguments: Vec<OsString>,
    pass_env: Vec<OsString>,
    limit: Duration,
}

impl HookCommand {
    /// Takes the program, by its path or to be found in `PATH`. It has 10 minutes for each step.
    #[must_use]
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            pass_env: Vec::new(),
            limit: Duration::from_secs(600),
        }
    }

    /// Adds arguments that come before the name of the step.
    #[must_use]
    pub fn with_arguments<T: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Lets variables of the worker's environment through, beside the basic ones.
    #[must_use]
    pub fn with_passed_variables<T: Into<OsString>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.pass_env.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets how long one step may take.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    async fn run(
        &self,
        step: &'static str,
        place: &Workplace,
        more: &[(&str, &str)],
    ) -> Result<String, WorkspaceError> {
        const MAX_OUTPUT: usize = 64 * 1024;
        let failed = |reason: String| WorkspaceError::Hook { step, reason };
        let mut environment = self.pass_env.iter().fold(Environment::basic(), Environment::allow);
        let numbers = [place.call.to_string(), place.attempt.to_string(), place.fence.to_string()];
        let [call, attempt, fence] = &numbers;
        let facts: [(&str, &str); 5] = [
            ("HARNESS_WORKSPACE", &place.workspace),
            ("HARNESS_RUN", place.run.as_str()),
            ("HARNESS_CALL", call),
            ("HARNESS_ATTEMPT", attempt),
            ("HARNESS_FENCE", fence),
        ];
        for (name, value) in facts.iter().chain(more) {
            environment = environment.set(name, value);
        }
        let spec = ChildSpec::new(&self.program)
            .with_arguments(self.arguments.iter().cloned().chain([OsString::from(step)]))
            .with_environment(environment)
            .with_output(Output::Collect { max: MAX_OUTPUT })
            .with_limits(Limits::default().with_deadline(self.limit));
        let report = start(spec).map_err(|error| failed(error.to_string()))?.wait().await;
        if report.ending != (Ending::Exited { code: 0 }) {
            let said = String::from_utf8_lossy(&report.stderr_tail);
            return Err(failed(format!("it ended with {:?}; it said: {}", report.ending, said.trim())));
        }
        let output = report.collected.as_ref().map(|collected| collected.bytes.clone()).unwrap_or_default();
        String::from_utf8(output).map_err(|_| failed("its output is not UTF-8".to_owned()))
    }
}

#[async_trait]
impl Workspaces for HookCommand {
    async fn prepare(&self, place: &Workplace) -> Result<String, WorkspaceError> {
        let output = self.run("prepare", place, &[]).await?;
        let folder = output.strip_suffix('\n').unwrap_or(&output);
        if !Path::new(folder).is_absolute() || folder.contains('\n') {
            let reason = format!("it must answer with one absolute path, and answered {folder:?}");
            return Err(WorkspaceError::Hook { step: "prepare", reason });
        }
        Ok(folder.to_owned())
    }

    async fn publish(
        &self,
        place: &Workplace,
        folder: &str,
        ending: CallEnding,
    ) -> Result<(), WorkspaceError> {
        let more = [("HARNESS_FOLDER", folder), ("HARNESS_ENDING", ending.as_str())];
        self.run("publish", place, &more).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(workspace: &str) -> Workplace {
        Workplace { workspace: workspace.into(), run: "r".into(), call: 2, attempt: 1, fence: 7 }
    }

    fn shell(script: &str) -> HookCommand {
        HookCommand::new("/bin/sh").with_arguments(["-c", script, "sh"])
    }

    #[tokio::test]
    async fn a_workspace_that_leads_out_of_the_root_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("inside")).unwrap();
        std::os::unix::fs::symlink(folder.path(), root.join("link")).unwrap();
        let folders = SharedFolders::below(&root);
        for outside in ["..", "/tmp", "inside/../..", "link", "absent"] {
            let error = folders.prepare(&place(outside)).await.unwrap_err();
            assert!(matches!(error, WorkspaceError::Unusable { .. }), "{outside}: {error}");
        }
        let inside = folders.prepare(&place("inside")).await.unwrap();
        assert_eq!(Path::new(&inside), root.join("inside").canonicalize().unwrap());
    }

    #[tokio::test]
    async fn a_path_that_is_the_same_everywhere_is_taken_as_it_is() {
        assert_eq!(SharedFolders::anywhere().prepare(&place("./x")).await.unwrap(), "./x");
    }

    #[tokio::test]
    async fn a_hook_that_fails_or_answers_no_path_is_an_error_that_says_so() {
        for (script, said) in [
            ("echo nonsense >&2; exit 3", "nonsense"),
            ("echo relative/path", "relative/path"),
            ("printf '/a\\n/b\\n'", "absolute path"),
            ("true", "absolute path"),
        ] {
            let error = shell(script).prepare(&place("w")).await.unwrap_err().to_string();
            assert!(error.contains("`prepare`") && error.contains(said), "{script}: {error}");
        }
    }

    #[tokio::test]
    async fn a_hook_is_told_whose_workspace_it_is_and_how_the_call_ended() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let script = format!(
            "echo \"$1 $HARNESS_WORKSPACE $HARNESS_RUN $HARNESS_CALL $HARNESS_ATTEMPT $HARNESS_FENCE \
             $HARNESS_FOLDER $HARNESS_ENDING\" >> {}; test \"$1\" = publish || echo /prepared",
            log.display()
        );
        let hook = shell(&script);
        let prepared = hook.prepare(&place("team/work")).await.unwrap();
        assert_eq!(prepared, "/prepared");
        hook.publish(&place("team/work"), &prepared, CallEnding::Value).await.unwrap();
        let log = std::fs::read_to_string(log).unwrap();
        let lines: Vec<&str> = log.lines().map(str::trim_end).collect();
        assert_eq!(lines, ["prepare team/work r 2 1 7", "publish team/work r 2 1 7 /prepared value"]);
    }
}
