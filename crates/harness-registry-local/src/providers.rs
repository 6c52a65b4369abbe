use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use harness_subagent::{Error, ErrorKind, ProviderInfo, Result, SubagentEvent, SubagentProvider};

use crate::observers::{Observers, tell};

/// The registered providers, in the order of registration.
///
/// What is asked of a provider is asked before the lock is taken. Notices are queued under the lock that
/// changes the list and told outside it, by one thread at a time: every observer hears of additions and
/// removals in the order in which they happened, even when one of them registers a provider itself.
#[derive(Default)]
pub(crate) struct Providers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    notices: VecDeque<Notice>,
    telling: bool,
}

struct Entry {
    info: ProviderInfo,
    provider: Arc<dyn SubagentProvider>,
}

enum Notice {
    Added(String),
    Removed(String),
}

impl Providers {
    pub(crate) fn add(&self, provider: Arc<dyn SubagentProvider>, observers: &Observers) -> Result<()> {
        let info = ProviderInfo::from(&*provider);
        {
            let mut state = self.lock();
            if state.position(&info.name).is_some() {
                return Err(Error::new(
                    ErrorKind::DuplicateProvider,
                    format!("a provider named {:?} is registered already; choose another name", info.name),
                ));
            }
            state.notices.push_back(Notice::Added(info.name.clone()));
            state.entries.push(Entry { info, provider });
        }
        self.tell_notices(observers);
        Ok(())
    }

    pub(crate) fn remove(&self, name: &str, observers: &Observers) -> Option<Arc<dyn SubagentProvider>> {
        let entry = {
            let mut state = self.lock();
            let position = state.position(name)?;
            state.notices.push_back(Notice::Removed(name.to_owned()));
            state.entries.remove(position)
        };
        self.tell_notices(observers);
        Some(entry.provider)
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn SubagentProvider>> {
        let state = self.lock();
        state.position(name).map(|position| Arc::clone(&state.entries[position].provider))
    }

    pub(crate) fn list(&self) -> Vec<ProviderInfo> {
        self.lock().entries.iter().map(|entry| entry.info.clone()).collect()
    }

    fn tell_notices(&self, observers: &Observers) {
        if std::mem::replace(&mut self.lock().telling, true) {
            return; // Whoever tells already, this thread further up or another one, tells these too.
        }
        loop {
            let notice = {
                let mut state = self.lock();
                let Some(notice) = state.notices.pop_front() else {
                    state.telling = false;
                    return;
                };
                notice
            };
            let event = match &notice {
                Notice::Added(provider) => SubagentEvent::ProviderAdded { provider },
                Notice::Removed(provider) => SubagentEvent::ProviderRemoved { provider },
            };
            if let Some(present) = observers.snapshot() {
                tell(&present, &event);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn position(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.info.name == name)
    }
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list().iter().map(|info| &info.name)).finish()
    }
}
