//! What git says of the workspace when a round begins, so that a run that is taken up can tell what has changed.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use harness_process::{ChildSpec, Environment, Limits, Output};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The state of a workspace that is in a git repository.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct WorkspaceState {
    /// The commit that is checked out. A new repository has none.
    head: Option<String>,
    /// The branch that is checked out, if one is.
    branch: Option<String>,
    /// How many files and new folders differ from the commit.
    changed: u64,
    /// Tells one set of changes from another, by names, sizes and times.
    digest: String,
}

/// The state in which an attempt at a round found the workspace.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct RoundStart {
    pub(crate) round: u64,
    pub(crate) attempt: u32,
    pub(crate) workspace: WorkspaceState,
}

impl WorkspaceState {
    /// Asks git, within bounds, of a workspace in the repository at `top`. There is no answer where there is no git, or
    /// too much to look at.
    pub(crate) async fn look(workspace: &Path, top: &Path) -> Option<Self> {
        const PATIENCE: Duration = Duration::from_secs(5);
        const MAX_BYTES: usize = 4 * 1024 * 1024;
        let arguments =
            // Git asks the file system itself, and starts no program that the repository names for it.
            ["-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch", "-z", "--ignore-submodules=all", "--", "."];
        let spec = ChildSpec::new("git")
            .with_arguments(arguments)
            .with_directory(workspace)
            // Nobody who works there finds a lock of ours.
            .with_environment(Environment::basic().set("GIT_OPTIONAL_LOCKS", "0"))
            .with_output(Output::Collect { max: MAX_BYTES })
            .with_limits(Limits::default().with_first_byte(None).with_idle(None).with_deadline(PATIENCE));
        let report = harness_process::start(spec).ok()?.wait().await;
        let said = report.collected.as_ref().filter(|said| report.succeeded() && !said.truncated)?;
        Some(Self::parse(&said.bytes, top))
    }

    /// As [`look`](Self::look), for those who run nothing else. There is no answer where there is no repository.
    pub(crate) fn look_now(workspace: &Path) -> Option<Self> {
        let top = Repositories::default().top_of(workspace)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(Self::look(workspace, &top))
    }

    /// Reads `git status --porcelain=v2 --branch -z`, whose paths are those below `top`.
    fn parse(said: &[u8], top: &Path) -> Self {
        let (mut head, mut branch, mut changed, mut digest) = (None, None, 0, Sha256::new());
        let mut parts = said.split(|byte| *byte == 0).filter(|part| !part.is_empty());
        while let Some(part) = parts.next() {
            let text = String::from_utf8_lossy(part);
            if let Some(fact) = text.strip_prefix("# ") {
                match fact.split_once(' ') {
                    Some(("branch.oid", oid)) => head = (oid != "(initial)").then(|| oid.to_owned()),
                    Some(("branch.head", name)) => branch = (name != "(detached)").then(|| name.to_owned()),
                    _ => {}
                }
                continue;
            }
            changed += 1;
            digest.update(part);
            // The path stands behind so many fields.
            let fields = match part[0] {
                b'1' => 8,
                b'2' => 9,
                b'u' => 10,
                _ => 1,
            };
            if part[0] == b'2' {
                digest.update(parts.next().unwrap_or_default());
            }
            let path = part.splitn(fields + 1, |byte| *byte == b' ').nth(fields).unwrap_or_default();
            if let Ok(metadata) = top.join(std::ffi::OsStr::from_bytes(path)).symlink_metadata() {
                let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                digest.update(metadata.len().to_le_bytes());
                digest.update(modified.unwrap_or_default().as_nanos().to_le_bytes());
            }
        }
        let digest = digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self { head, branch, changed, digest }
    }

    /// Names the state for people: `1a2b3c4 on main, 3 files changed`.
    pub(crate) fn told(&self) -> String {
        let files = match self.changed {
            0 => "nothing changed".to_owned(),
            1 => "1 file changed".to_owned(),
            many => format!("{many} files changed"),
        };
        format!("{}, {files}", self.commit())
    }

    fn commit(&self) -> String {
        let head = self.head.as_deref().map_or("no commit", |head| head.get(..7).unwrap_or(head));
        match &self.branch {
            Some(branch) => format!("{head} on {branch}"),
            None => head.to_owned(),
        }
    }
}

impl RoundStart {
    /// The start of an attempt, if it is among those that are written down.
    pub(crate) fn find(starts: &[Self], round: u64, attempt: u32) -> Option<&Self> {
        starts.iter().find(|start| (start.round, start.attempt) == (round, attempt))
    }

    /// Says what is otherwise `now` than when this round began.
    pub(crate) fn changes(&self, now: Option<&WorkspaceState>) -> Vec<String> {
        let Self { round, workspace: then, .. } = self;
        let Some(now) = now else {
            return vec![format!(
                "git cannot tell any more what the workspace is like; when round {round} began it was {}",
                then.told()
            )];
        };
        let mut changes = Vec::new();
        if (&now.head, &now.branch) != (&then.head, &then.branch) {
            let (now, then) = (now.commit(), then.commit());
            changes.push(format!("the workspace is at {now}; when round {round} began it was at {then}"));
        }
        if now.changed != then.changed {
            let uncommitted = |count: u64| match count {
                0 => "nothing is".to_owned(),
                1 => "1 file is".to_owned(),
                many => format!("{many} files are"),
            };
            changes.push(format!(
                "{} changed and not committed; when round {round} began it was {}",
                uncommitted(now.changed),
                then.changed
            ));
        } else if now.digest != then.digest {
            changes.push(format!("what is not committed is not what it was when round {round} began"));
        }
        changes
    }
}

/// Finds the repository that a workspace is in. Looking for it costs little, starting git does not.
#[derive(Debug, Default)]
pub(crate) struct Repositories {
    /// Where there was none above which workspace, and when.
    none_above: Mutex<Option<(PathBuf, Instant)>>,
}

impl Repositories {
    /// The folder of the repository.
    ///
    /// One that is made in the workspace is found at once, one that is made above it after this while.
    pub(crate) fn top_of(&self, workspace: &Path) -> Option<PathBuf> {
        const WHILE: Duration = Duration::from_secs(1);
        let is_top = |folder: &&Path| folder.join(".git").exists();
        if is_top(&workspace) {
            return Some(workspace.to_owned());
        }
        let mut none_above = self.none_above.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, since)) = &*none_above
            && known == workspace
            && since.elapsed() < WHILE
        {
            return None;
        }
        let top = workspace.ancestors().skip(1).find(is_top).map(Path::to_owned);
        *none_above = top.is_none().then(|| (workspace.to_owned(), Instant::now()));
        top
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(said: &str) -> WorkspaceState {
        WorkspaceState::parse(said.replace('\n', "\0").as_bytes(), Path::new("/nowhere"))
    }

    const CLEAN: &str = "# branch.oid 1a2b3c4d5e\n# branch.head main\n";

    #[test]
    fn a_state_is_read_and_told() {
        assert_eq!(state(CLEAN).told(), "1a2b3c4 on main, nothing changed");
        assert_eq!(
            state("# branch.oid (initial)\n# branch.head main\n? new\n").told(),
            "no commit on main, 1 file changed"
        );
        let renamed = "# branch.oid 1a2b3c4d5e\n# branch.head (detached)\n2 R. N... 1 1 1 a b R100 to\nfrom\n1 .M N... 1 1 1 a b a file\n";
        assert_eq!(state(renamed).told(), "1a2b3c4, 2 files changed");
    }

    #[test]
    fn a_repository_that_is_made_meanwhile_is_found() {
        let root = tempfile::tempdir().unwrap();
        let (above, workspace) = (root.path().join("above"), root.path().join("above/work"));
        std::fs::create_dir_all(&workspace).unwrap();
        std::fs::create_dir(above.join(".git")).unwrap();
        let repositories = Repositories::default();
        let none_since =
            |moment| *repositories.none_above.lock().unwrap() = Some((workspace.clone(), moment));
        none_since(Instant::now());
        assert_eq!(repositories.top_of(&workspace), None, "nobody has looked again");
        none_since(Instant::now().checked_sub(Duration::from_secs(2)).unwrap());
        assert_eq!(repositories.top_of(&workspace), Some(above));
        none_since(Instant::now());
        std::fs::create_dir(workspace.join(".git")).unwrap();
        assert_eq!(repositories.top_of(&workspace), Some(workspace.clone()));
    }

    #[test]
    fn what_has_changed_is_told_and_nothing_else() {
        let start = |said: &str| RoundStart { round: 2, attempt: 1, workspace: state(said) };
        let changes = |then: &str, now: &str| start(then).changes(Some(&state(now)));
        assert!(changes(CLEAN, CLEAN).is_empty());
        let moved = "# branch.oid 9a2b3c4d5e\n# branch.head main\n";
        assert_eq!(
            changes(CLEAN, moved),
            ["the workspace is at 9a2b3c4 on main; when round 2 began it was at 1a2b3c4 on main"]
        );
        let dirty = format!("{CLEAN}? one\n? two\n");
        assert_eq!(
            changes(CLEAN, &dirty),
            ["2 files are changed and not committed; when round 2 began it was 0"]
        );
        let other = format!("{CLEAN}? one\n? three\n");
        assert_eq!(changes(&dirty, &other), ["what is not committed is not what it was when round 2 began"]);
        assert_eq!(start(CLEAN).changes(None).len(), 1);
    }
}
