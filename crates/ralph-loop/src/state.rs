use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use harness_engine_local::{JournalStore, JsonlStore};
use harness_workflow::RunId;

use crate::exit::Failure;
use crate::launch::Launch;
use crate::workspace_state::RoundStart;

/// Where runs are kept: the XDG state directory, private to the user.
///
/// `runs/<run>` is the journal of a run, `calls/<run>/<round>-<attempt>` what its agents were given and said,
/// `launches/<run>.json` the configuration that it runs with, `workspaces/<run>.jsonl` in what state its rounds found
/// the workspace, `locks` who works in which workspace.
#[derive(Clone, Debug)]
pub(crate) struct State {
    root: PathBuf,
    journals: Arc<JsonlStore>,
}

impl State {
    /// Opens the state directory, and makes it if it is missing.
    pub(crate) fn open() -> Result<Self, Failure> {
        Self::try_open().map_err(Failure::environment)
    }

    fn try_open() -> Result<Self> {
        let absolute =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = match absolute("XDG_STATE_HOME") {
            Some(base) => base,
            None => absolute("HOME")
                .context("neither XDG_STATE_HOME nor HOME holds an absolute path; set one of them")?
                .join(".local/state"),
        };
        let root = base.join("ralph-loop");
        let make = |directory: &Path, above: bool| {
            let made = DirBuilder::new().mode(0o700).recursive(above).create(directory);
            match made {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error)
                    .with_context(|| format!("cannot make the state directory {}", directory.display())),
                _ => Ok(()),
            }
        };
        make(&root, true)?;
        for name in ["launches", "locks", "workspaces"] {
            make(&root.join(name), false)?;
        }
        let rights = std::fs::metadata(&root)?.permissions().mode();
        if rights & 0o077 != 0 {
            std::fs::set_permissions(&root, Permissions::from_mode(0o700))
                .with_context(|| format!("cannot make {} private to you", root.display()))?;
        }
        let journals = Arc::new(JsonlStore::open(root.join("runs"))?);
        Ok(Self { root, journals })
    }

    pub(crate) fn journals(&self) -> &Arc<JsonlStore> {
        &self.journals
    }

    /// Where the files of agents' calls are.
    pub(crate) fn calls(&self) -> PathBuf {
        self.root.join("calls")
    }

    /// Where scratch workspaces of the demo are made.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.root.join("demo")
    }

    /// Finds the one run whose id is or begins with `name`.
    pub(crate) fn find(&self, name: &str) -> Result<RunId, Failure> {
        let runs = self.journals.runs()?;
        if let Some(run) = runs.iter().find(|run| run.as_str() == name) {
            return Ok(run.clone());
        }
        let mut found = runs.into_iter().filter(|run| !name.is_empty() && run.as_str().starts_with(name));
        match (found.next(), found.next()) {
            (Some(run), None) => Ok(run),
            (None, _) => {
                Err(Failure::refuse(format!("no run is named {name:?}; `ralph-loop runs` lists them")))
            }
            (Some(one), Some(two)) => Err(Failure::refuse(format!(
                "{name:?} could be {one} or {two} or others; give more of the id"
            ))),
        }
    }

    /// True if there is a run of that id.
    pub(crate) fn has_run(&self, run: &RunId) -> bool {
        self.journals.run_dir(run).is_ok_and(|folder| folder.exists())
    }

    /// Keeps the configuration that a run is started with.
    pub(crate) fn keep_launch(&self, run: &RunId, launch: &Launch) -> Result<()> {
        let path = self.launch_path(run);
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        // The journal of the run is synced after this, and its file system with it or not at all: a run without this
        // file is refused by `resume`, and nothing else is lost.
        file.write_all(&serde_json::to_vec_pretty(launch)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads the configuration that a run was started with.
    pub(crate) fn launch(&self, run: &RunId) -> Result<Launch> {
        let path = self.launch_path(run);
        let text = std::fs::read(&path).with_context(|| {
            format!("cannot read {}, which holds what run {run} was started with", path.display())
        })?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not as it was written", path.display()))
    }

    /// Keeps in what state a round found the workspace.
    pub(crate) fn keep_round_start(&self, run: &str, start: &RoundStart) {
        let line = serde_json::to_string(start).expect("a state is text and numbers");
        let file = File::options().append(true).create(true).mode(0o600).open(self.round_starts_path(run));
        // It is for people who take the run up again, and no reason to end it.
        let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    }

    /// Returns in what state the rounds of a run found the workspace, as far as that is known.
    pub(crate) fn round_starts(&self, run: &RunId) -> Vec<RoundStart> {
        let text = std::fs::read_to_string(self.round_starts_path(run.as_str())).unwrap_or_default();
        // The last line is torn where the runner was killed while it wrote.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn round_starts_path(&self, run: &str) -> PathBuf {
        self.root.join("workspaces").join(format!("{run}.jsonl"))
    }

    /// Where the locks of workspaces are.
    pub(crate) fn locks(&self) -> PathBuf {
        self.root.join("locks")
    }

    /// The directory of all that.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Forgets the configuration of a run that did not come to be.
    pub(crate) fn drop_launch(&self, run: &RunId) {
        // A file that stays takes room and is never looked at.
        let _ = std::fs::remove_file(self.launch_path(run));
    }

    fn launch_path(&self, run: &RunId) -> PathBuf {
        self.root.join("launches").join(format!("{run}.json"))
    }
}
