use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use uuid::Uuid;

use crate::call_files::new_private_file;

/// The schema files of one provider: one for each contract in each run, however many calls are under it.
///
/// They lie beside the directories of the calls, under names that are never used again. Another process that goes on
/// with the run writes its own.
#[derive(Debug, Default)]
pub(crate) struct SchemaFiles {
    kept: Mutex<Vec<Kept>>,
}

#[derive(Debug)]
struct Kept {
    run: PathBuf,
    schema: Arc<Value>,
    text: Arc<str>,
    path: PathBuf,
}

/// The schema file of a call that is about to start. It is removed when no child has come to know of it.
#[derive(Debug)]
pub(crate) struct SchemaFile {
    pub(crate) text: Arc<str>,
    pub(crate) path: PathBuf,
    is_new: bool,
}

impl SchemaFiles {
    /// How many files are remembered. A provider serves a run or a few, under one contract or a few.
    const CAPACITY: usize = 16;

    /// Finds or writes the file with `schema` for a call whose own directory is in `run`.
    pub(crate) fn file(&self, run: &Path, schema: &Arc<Value>) -> io::Result<SchemaFile> {
        let known = self.kept().iter().find(|kept| kept.is_for(run, schema)).map(|kept| SchemaFile {
            text: Arc::clone(&kept.text),
            path: kept.path.clone(),
            is_new: false,
        });
        // A child may have taken it away.
        if let Some(known) = known.filter(SchemaFile::is_there) {
            return Ok(known);
        }
        let text: Arc<str> = schema.to_string().into();
        let path = run.join(format!("schema-{}.json", Uuid::new_v4().simple()));
        new_private_file(&path)?.write_all(text.as_bytes())?;
        Ok(SchemaFile { text, path, is_new: true })
    }

    /// Remembers a file that a child has been given.
    pub(crate) fn keep(&self, run: &Path, schema: &Arc<Value>, mut file: SchemaFile) {
        if !std::mem::replace(&mut file.is_new, false) {
            return;
        }
        let (run, schema) = (run.to_owned(), Arc::clone(schema));
        let mut kept = self.kept();
        kept.retain(|known| !known.is_for(&run, &schema));
        kept.truncate(Self::CAPACITY - 1);
        kept.insert(0, Kept { run, schema, text: Arc::clone(&file.text), path: file.path.clone() });
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn is_for(&self, run: &Path, schema: &Arc<Value>) -> bool {
        self.run == run && (Arc::ptr_eq(&self.schema, schema) || self.schema == *schema)
    }
}

impl SchemaFile {
    fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.len() == self.text.len() as u64)
    }
}

impl Drop for SchemaFile {
    fn drop(&mut self) {
        if self.is_new
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(file = %self.path.display(), %error, "the schema of a refused call is left");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_of_a_run_share_a_file_until_it_is_gone() {
        let run = tempfile::tempdir().unwrap();
        let (files, schema) = (SchemaFiles::default(), Arc::new(json!({ "type": "object" })));
        let give = |schema: &Arc<Value>| {
            let file = files.file(run.path(), schema).unwrap();
            let path = file.path.clone();
            files.keep(run.path(), schema, file);
            path
        };
        let first = give(&schema);
        assert_eq!(fs::read_to_string(&first).unwrap(), schema.to_string());
        assert_eq!(give(&Arc::new(Value::clone(&schema))), first);
        assert_ne!(give(&Arc::new(json!(true))), first);
        fs::remove_file(&first).unwrap();
        let second = give(&schema);
        assert_ne!(second, first);
        assert!(second.exists());
        for number in 0..2 * SchemaFiles::CAPACITY {
            give(&Arc::new(json!({ "maximum": number })));
        }
        assert_eq!(files.kept().len(), SchemaFiles::CAPACITY);
    }

    #[test]
    fn a_file_that_no_child_was_given_is_removed() {
        let run = tempfile::tempdir().unwrap();
        drop(SchemaFiles::default().file(run.path(), &Arc::new(json!(true))).unwrap());
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0);
    }
}
