use std::collections::{HashMap, HashSet};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use harness_subagent::{AgentId, Error, ErrorKind, Parent, Result};

/// The limits of each tree of agents, and what has been used of them.
///
/// A tree is named by its root, an agent at depth 0. Which tree a deeper parent belongs to is known because
/// this registry started it; nothing that a request says is believed instead.
#[derive(Debug)]
pub(crate) struct Budget {
    max_active: Option<NonZeroU32>,
    max_children: Option<NonZeroU64>,
    trees: Mutex<Trees>,
}

#[derive(Debug, Default)]
struct Trees {
    by_root: HashMap<AgentId, Tree>,
    by_child: HashMap<AgentId, Lineage>,
}

#[derive(Debug, Default)]
struct Tree {
    active: u32,
    started: u64,
    children: HashSet<AgentId>,
}

#[derive(Debug)]
enum Lineage {
    Of {
        root: AgentId,
        depth: u32,
    },
    /// The id has named several agents, or an agent and its own root: it tells no tree.
    Ambiguous,
}

impl Budget {
    pub(crate) fn new(max_active: Option<NonZeroU32>, max_children: Option<NonZeroU64>) -> Self {
        Self { max_active, max_children, trees: Mutex::default() }
    }

    /// Counts one more child in the tree of `parent` and takes a place for it.
    pub(crate) fn admit(self: &Arc<Self>, parent: &Parent) -> Result<Place> {
        let mut trees = self.lock();
        let root = trees.root_of(parent)?.clone();
        let tree = trees.by_root.entry(root.clone()).or_default();
        if let Some(limit) = self.max_active.filter(|limit| tree.active >= limit.get()) {
            return Err(Error::new(
                ErrorKind::Capacity,
                format!(
                    "the tree of {root} has {limit} children alive, its limit; start again when one has ended"
                ),
            ));
        }
        if let Some(limit) = self.max_children.filter(|limit| tree.started >= limit.get()) {
            return Err(Error::new(
                ErrorKind::BudgetExhausted,
                format!("the tree of {root} has started {limit} children, its limit; finish without more"),
            ));
        }
        tree.active += 1;
        tree.started += 1;
        drop(trees);
        Ok(Place { budget: Arc::clone(self), root, freed: AtomicBool::new(false) })
    }

    /// Forgets a tree without living children. Says whether it did.
    pub(crate) fn forget(&self, root: &AgentId) -> bool {
        let mut trees = self.lock();
        if trees.by_root.get(root).is_none_or(|tree| tree.active > 0) {
            return false;
        }
        let tree = trees.by_root.remove(root).unwrap_or_default();
        for child in &tree.children {
            let ours = match trees.by_child.get(child) {
                Some(Lineage::Of { root: of, .. }) => of == root,
                Some(Lineage::Ambiguous) => true,
                None => false,
            };
            if ours {
                trees.by_child.remove(child);
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Trees> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trees {
    fn root_of<'a>(&'a self, parent: &'a Parent) -> Result<&'a AgentId> {
        if parent.depth == 0 {
            return Ok(&parent.id);
        }
        let unavailable = match self.by_child.get(&parent.id) {
            Some(Lineage::Of { root, depth }) if *depth == parent.depth => return Ok(root),
            Some(Lineage::Of { depth, .. }) => format!("it was started at depth {depth}"),
            Some(Lineage::Ambiguous) => "its id has named more than one agent".to_owned(),
            None => "no start of it is known here".to_owned(),
        };
        Err(Error::new(
            ErrorKind::BudgetAncestryUnavailable,
            format!(
                "the tree of parent {} at depth {} cannot be told: {unavailable}; start children of a child \
                 on the registry that started it",
                parent.id, parent.depth
            ),
        ))
    }
}

/// A living child's place in its tree.
#[derive(Debug)]
pub(crate) struct Place {
    budget: Arc<Budget>,
    root: AgentId,
    freed: AtomicBool,
}

impl Place {
    /// Remembers which agent has the place, so that it can be a parent in the same tree.
    pub(crate) fn occupy(&self, child: &AgentId, depth: u32) {
        let mut trees = self.budget.lock();
        let lineage = match trees.by_child.get(child) {
            _ if *child == self.root => Lineage::Ambiguous,
            Some(Lineage::Of { root, depth: known }) if *root == self.root && *known == depth => return,
            Some(_) => Lineage::Ambiguous,
            None => Lineage::Of { root: self.root.clone(), depth },
        };
        trees.by_child.insert(child.clone(), lineage);
        if let Some(tree) = trees.by_root.get_mut(&self.root) {
            tree.children.insert(child.clone());
        }
    }

    /// Gives the place back. Only the first call does anything.
    pub(crate) fn free(&self) {
        if self.freed.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(tree) = self.budget.lock().by_root.get_mut(&self.root) {
            tree.active -= 1;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.free();
    }
}
