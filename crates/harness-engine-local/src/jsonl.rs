use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use harness_workflow::{RunId, StartRun};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::journal::{Entry, Journal, JournalError, JournalStore, Record, StoredRun};
use crate::line::{encode, parse};

const REQUEST: &str = "request.json";
const JOURNAL: &str = "journal.jsonl";
const LOCK: &str = "lock";

/// Keeps each run in a folder of its own: `request.json`, `journal.jsonl`, `lock`.
///
/// `request.json` never changes. `journal.jsonl` only grows; each of its lines is a JSON object with the version of
/// the format (`v`), a number (`seq`), a time (`time`, in milliseconds since 1970), a `kind` with what
/// belongs to it, and a checksum (`crc32`, of the line without it). `lock` is locked, by the means of the operating
/// system, while a process runs the run; it tells which.
///
/// Folders and files are for their owner only, where the system has such rights. A folder may hold other files of
/// the run, transcripts for one; the store leaves them alone.
///
/// The folder of a run has the run's id as its name; characters other than ASCII letters, digits, `-`, `_` and `.`
/// are written as `%` and two hex digits for each of their bytes, and so is a dot in front.
#[derive(Debug)]
pub struct JsonlStore {
    root: PathBuf,
}

impl JsonlStore {
    /// Opens the store in the folder `root`, and makes the folder if it is not there.
    ///
    /// # Errors
    ///
    /// [`JournalError::Io`] when the folder cannot be made.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let root = root.into();
        private_dirs().recursive(true).create(&root).map_err(io_error("make the folder", &root))?;
        Ok(Self { root })
    }

    /// Returns the folder of the store.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder of a run, whether or not there is such a run.
    ///
    /// # Errors
    ///
    /// [`JournalError::UnusableId`] when the id is too long.
    pub fn run_dir(&self, run: &RunId) -> Result<PathBuf, JournalError> {
        Ok(self.root.join(folder_name(run)?))
    }

    fn existing_dir(&self, run: &RunId) -> Result<PathBuf, JournalError> {
        let dir = self.run_dir(run)?;
        if dir.join(JOURNAL).exists() { Ok(dir) } else { Err(JournalError::Unknown { run: run.clone() }) }
    }
}

impl JournalStore for JsonlStore {
    fn create(&self, request: &StartRun, first: &Entry) -> Result<Box<dyn Journal>, JournalError> {
        let run = request.run_id.as_ref().expect("the engine names every run");
        let dir = self.run_dir(run)?;
        if dir.exists() {
            return Err(JournalError::Exists { run: run.clone() });
        }
        // The folder gets its name when all is in it: a run is there as a whole or not at all.
        let unfinished = self.root.join(format!(".new-{}", Uuid::new_v4()));
        let created = fill(&unfinished, run, request, first).and_then(|mut journal| {
            fs::rename(&unfinished, &dir).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => {
                    JournalError::Exists { run: run.clone() }
                }
                _ => io_error("name the folder", &dir)(error),
            })?;
            sync_dir(&self.root)?;
            journal.path = dir.join(JOURNAL);
            Ok(journal)
        });
        match created {
            Ok(journal) => Ok(Box::new(journal)),
            Err(error) => {
                // The folder has a name that is never looked at, so it does no harm if it stays.
                let _ = fs::remove_dir_all(&unfinished);
                Err(error)
            }
        }
    }

    fn open(&self, run: &RunId) -> Result<(StoredRun, Box<dyn Journal>), JournalError> {
        let dir = self.existing_dir(run)?;
        let lock = lock(&dir.join(LOCK), run)?;
        let path = dir.join(JOURNAL);
        let request = read_request(&dir)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(io_error("open for writing", &path))?;
        let (records, length) = read_records(&mut file, &path)?;
        file.set_len(length).map_err(io_error("drop the torn last line of", &path))?;
        file.seek(io::SeekFrom::End(0)).map_err(io_error("go to the end of", &path))?;
        let sequence = records.len() as u64;
        let journal = JsonlJournal { file, path, sequence, length, failed: false, _lock: lock };
        Ok((StoredRun::new(request, records, true), Box::new(journal)))
    }

    fn read(&self, run: &RunId) -> Result<StoredRun, JournalError> {
        let dir = self.existing_dir(run)?;
        let path = dir.join(JOURNAL);
        // The lock is looked at first: a run that ends in between is then rather open than interrupted.
        let is_open = is_locked(&dir.join(LOCK))?;
        let mut file = File::open(&path).map_err(io_error("open", &path))?;
        let (records, _) = read_records(&mut file, &path)?;
        Ok(StoredRun::new(read_request(&dir)?, records, is_open))
    }

    fn runs(&self) -> Result<Vec<RunId>, JournalError> {
        let read = io_error("list", &self.root);
        let mut runs = Vec::new();
        for entry in fs::read_dir(&self.root).map_err(&read)? {
            let entry = entry.map_err(&read)?;
            let name = entry.file_name();
            if let Some(run) = name.to_str().and_then(run_id)
                && entry.path().join(JOURNAL).exists()
            {
                runs.push(run);
            }
        }
        runs.sort_unstable();
        Ok(runs)
    }
}

/// Fills the folder of a new run.
fn fill(dir: &Path, run: &RunId, request: &StartRun, first: &Entry) -> Result<JsonlJournal, JournalError> {
    private_dirs().create(dir).map_err(io_error("make the folder", dir))?;
    let path = dir.join(REQUEST);
    let mut file = private_files().create_new(true).open(&path).map_err(io_error("make", &path))?;
    let mut text = serde_json::to_vec(request).expect("a request has text keys only");
    text.push(b'\n');
    file.write_all(&text).map_err(io_error("write", &path))?;
    file.sync_all().map_err(io_error("sync", &path))?;
    let lock = lock(&dir.join(LOCK), run)?;
    let path = dir.join(JOURNAL);
    let file = private_files().create_new(true).open(&path).map_err(io_error("make", &path))?;
    let mut journal = JsonlJournal { file, path, sequence: 0, length: 0, failed: false, _lock: lock };
    journal.append(std::slice::from_ref(first))?;
    journal.file.sync_all().map_err(io_error("sync", &journal.path))?;
    sync_dir(dir)?;
    Ok(journal)
}

#[derive(Debug)]
struct JsonlJournal {
    file: File,
    path: PathBuf,
    sequence: u64,
    length: u64,
    failed: bool,
    /// Closing it unlocks it.
    _lock: File,
}

impl Journal for JsonlJournal {
    fn append(&mut self, entries: &[Entry]) -> Result<(), JournalError> {
        if self.failed {
            return Err(JournalError::Stopped);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let mut lines = Vec::with_capacity(256 * entries.len());
        for (sequence, entry) in (self.sequence + 1..).zip(entries) {
            encode(&mut lines, sequence, time_ms, entry);
        }
        if let Err(error) = self.file.write_all(&lines) {
            self.failed = true;
            // What is half written is dropped here, or else by whoever opens the journal next.
            let _ = self.file.set_len(self.length);
            return Err(io_error("write", &self.path)(error));
        }
        self.length += lines.len() as u64;
        self.sequence += entries.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        if self.failed {
            return Err(JournalError::Stopped);
        }
        self.file.sync_data().map_err(|error| {
            // What the disk holds after a failed sync cannot be known.
            self.failed = true;
            io_error("sync", &self.path)(error)
        })
    }
}

fn read_request(dir: &Path) -> Result<StartRun, JournalError> {
    let path = dir.join(REQUEST);
    let text = fs::read(&path).map_err(io_error("read", &path))?;
    serde_json::from_slice(&text).map_err(|error| JournalError::Corrupt {
        line: error.line() as u64,
        what: error.to_string(),
        path,
    })
}

/// Reads all records, and the length of the file without a torn last line.
fn read_records(file: &mut File, path: &Path) -> Result<(Vec<Record>, u64), JournalError> {
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(io_error("read", path))?;
    let length = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut records = Vec::new();
    for (sequence, line) in (1..).zip(text[..length].split_inclusive(|byte| *byte == b'\n')) {
        let record = parse(line, sequence).map_err(|what| JournalError::Corrupt {
            path: path.to_owned(),
            line: sequence,
            what,
        })?;
        records.push(record);
    }
    if records.is_empty() {
        let what = "the first line is missing".to_owned();
        return Err(JournalError::Corrupt { path: path.to_owned(), line: 1, what });
    }
    Ok((records, length as u64))
}

/// Who holds a lock.
#[derive(Deserialize, Serialize)]
struct Holder {
    pid: u32,
    /// Tells a process from another one of the same number after a restart of the machine.
    boot: String,
}

/// Takes the lock of a run.
fn lock(path: &Path, run: &RunId) -> Result<File, JournalError> {
    const TRIES: u32 = 5;
    let mut file =
        private_files().create(true).truncate(false).read(true).open(path).map_err(io_error("open", path))?;
    for left in (0..TRIES).rev() {
        match file.try_lock() {
            Ok(()) => break,
            // Whoever only asks holds the lock for a moment.
            Err(TryLockError::WouldBlock) if left > 0 => thread::sleep(Duration::from_millis(10)),
            Err(TryLockError::WouldBlock) => {
                let holder: Option<Holder> = serde_json::from_reader(&file).ok();
                return Err(JournalError::Locked {
                    run: run.clone(),
                    holder: holder.map(|holder| holder.pid),
                });
            }
            Err(TryLockError::Error(error)) => return Err(io_error("lock", path)(error)),
        }
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let holder = Holder { pid: std::process::id(), boot: boot.trim().to_owned() };
    let text = serde_json::to_vec(&holder).expect("a holder is plain");
    file.set_len(0).and_then(|()| file.write_all(&text)).map_err(io_error("write", path))?;
    Ok(file)
}

fn is_locked(path: &Path) -> Result<bool, JournalError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io_error("open", path)(error)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(io_error("lock", path)(error)),
    }
}

fn sync_dir(dir: &Path) -> Result<(), JournalError> {
    // Only Unix lets a folder be opened and synced.
    if cfg!(unix) {
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("sync the folder", dir))?;
    }
    Ok(())
}

fn private_dirs() -> DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has such rights"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

fn private_files() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> JournalError {
    move |source| JournalError::Io { action, path: path.to_owned(), source }
}

fn folder_name(run: &RunId) -> Result<String, JournalError> {
    const LONGEST: usize = 255;
    let mut name = String::new();
    for (index, byte) in run.as_str().bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            b'.' if index > 0 => name.push('.'),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    if name.len() > LONGEST {
        return Err(JournalError::UnusableId { run: run.clone() });
    }
    Ok(name)
}

/// Finds the run whose folder has that name. Other folders are none of a run.
fn run_id(name: &str) -> Option<RunId> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'%' {
            let hex = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
        }
    }
    let run = RunId::from(String::from_utf8(bytes).ok()?);
    (folder_name(&run).ok()? == name).then_some(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_a_folder_within_the_store_and_is_found_by_it() {
        for id in ["r-1", "a/b", "..", ".hidden", "a.b", "ü%", "C:\\x", " "] {
            let run = RunId::from(id);
            let name = folder_name(&run).unwrap();
            assert_eq!(Path::new(&name).components().count(), 1, "{name}");
            assert!(!name.starts_with('.') && !name.contains(['/', '\\', ':']), "{name}");
            assert_eq!(run_id(&name), Some(run));
        }
        for name in [".new-1", "%", "%zz", "a b", "%41"] {
            assert_eq!(run_id(name), None, "{name}");
        }
        assert!(folder_name(&RunId::from("x".repeat(256))).is_err());
    }
}
