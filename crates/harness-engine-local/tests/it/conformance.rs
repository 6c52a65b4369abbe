//! Holds the engine to the workflow contract, without and with a journal.

use std::num::{NonZeroU64, NonZeroUsize};

use harness_engine_local::LocalConfig;
use harness_testkit::workflow::EngineFixture;

pub(crate) mod in_memory {
    harness_testkit::workflow_engine_conformance!(new_engine, clock: Paused);

    pub(crate) async fn new_engine(fixture: EngineFixture) -> LocalEngine {
        let config = config(&fixture);
        LocalEngine::new(fixture.registry, fixture.catalog, config)
    }

    use harness_engine_local::LocalEngine;
    use harness_testkit::workflow::EngineFixture;

    use super::config;
}

pub(crate) mod journaled {
    harness_testkit::workflow_engine_conformance!(new_engine, clock: Paused);

    pub(crate) async fn new_engine(fixture: EngineFixture) -> LocalEngine {
        let config = config(&fixture);
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let store = JsonlStore::open(folder.path().join("runs")).unwrap();
        // The folder goes with the engine's store.
        let store = Arc::new(Kept { store, _folder: folder });
        LocalEngine::durable(fixture.registry, fixture.catalog, config, store)
    }

    use std::sync::Arc;

    use harness_engine_local::{
        Entry, Journal, JournalError, JournalStore, JsonlStore, LocalEngine, StoredRun,
    };
    use harness_testkit::workflow::EngineFixture;
    use harness_workflow::{RunId, StartRun};
    use tempfile::TempDir;

    use super::config;

    #[derive(Debug)]
    struct Kept {
        store: JsonlStore,
        _folder: TempDir,
    }

    impl JournalStore for Kept {
        fn create(&self, request: &StartRun, first: &Entry) -> Result<Box<dyn Journal>, JournalError> {
            self.store.create(request, first)
        }

        fn open(&self, run: &RunId) -> Result<(StoredRun, Box<dyn Journal>), JournalError> {
            JournalStore::open(&self.store, run)
        }

        fn read(&self, run: &RunId) -> Result<StoredRun, JournalError> {
            self.store.read(run)
        }

        fn runs(&self) -> Result<Vec<RunId>, JournalError> {
            self.store.runs()
        }
    }
}

fn config(fixture: &EngineFixture) -> LocalConfig {
    LocalConfig::default()
        .with_provider(&fixture.default_provider)
        .with_max_agents(NonZeroU64::new(fixture.max_agents).unwrap())
        .with_max_items_per_call(NonZeroUsize::new(fixture.max_items_per_call).unwrap())
        .with_max_concurrent_agents(NonZeroUsize::new(fixture.max_concurrent))
        .with_cancellation_grace(fixture.grace)
}
