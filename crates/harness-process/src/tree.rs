//! All the processes of one call: how they are told from others, and how they are ended.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError, RwLock, RwLockReadGuard},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{
    exit::{self, Exit},
    process_table::Stat,
};
#[cfg(target_os = "linux")]
use crate::{
    hunt::{self, Quarry, Shot},
    mark,
    process_table::{self, Marking},
    subreaper,
};

/// The children that calls of this process have started and not yet taken leave of, each with a start time
/// that no process of its tree is older than.
static LIVE: Mutex<BTreeMap<u32, u64>> = Mutex::new(BTreeMap::new());

/// Held shared while a child is started and entered in the list above, and alone while the list is
/// compared with what the kernel says, so that a child just born is not taken for somebody's leftover.
static BIRTHS: RwLock<()> = RwLock::new(());

fn live() -> std::sync::MutexGuard<'static, BTreeMap<u32, u64>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Must be held from before a child is started until [`Tree::plant`] has returned.
pub(crate) fn birth() -> RwLockReadGuard<'static, ()> {
    BIRTHS.read().unwrap_or_else(PoisonError::into_inner)
}

/// The processes of one call. Dropping it before [`end`](Self::end) is done ends them, blocking.
#[derive(Debug)]
pub(crate) struct Tree {
    leader: Pid,
    /// A start time that no process of the tree is older than.
    #[cfg(target_os = "linux")]
    start: u64,
    #[cfg(target_os = "linux")]
    variable: String,
    #[cfg(target_os = "linux")]
    segment: String,
    /// Descendants seen while they still hung together, so that none gets away without its mark.
    #[cfg(target_os = "linux")]
    seen: Vec<Stat>,
    #[cfg(target_os = "linux")]
    refused: Vec<Stat>,
    killed: Vec<u32>,
    ended: bool,
}

/// What ending a tree came to.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    pub(crate) killed: Vec<u32>,
    pub(crate) survivors: Vec<u32>,
}

/// How long a drop may block.
const DROP_LIMIT: Duration = Duration::from_secs(2);

impl Tree {
    /// Takes charge of the child `pid`, which has just been started with `segment` in `variable`.
    ///
    /// `not_before` is a time since the system's start at which the child had not been started yet.
    pub(crate) fn plant(pid: u32, not_before: Duration, variable: &str, segment: String) -> Self {
        #[cfg(target_os = "linux")]
        let start = process_table::ticks(not_before);
        #[cfg(not(target_os = "linux"))]
        let (start, _) = (0, (not_before, variable, segment));
        live().insert(pid, start);
        let leader = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Self {
            leader: leader.expect("a started process has a positive pid"),
            #[cfg(target_os = "linux")]
            start,
            #[cfg(target_os = "linux")]
            variable: variable.to_owned(),
            #[cfg(target_os = "linux")]
            segment,
            #[cfg(target_os = "linux")]
            seen: Vec::new(),
            #[cfg(target_os = "linux")]
            refused: Vec::new(),
            killed: Vec::new(),
            ended: false,
        }
    }

    pub(crate) fn leader(&self) -> Pid {
        self.leader
    }

    /// Sends SIGINT to the leader alone.
    pub(crate) fn interrupt(&self) {
        if exit::peek(self.leader) != Exit::Lost {
            let _ = kill_process(self.leader, Signal::INT);
        }
    }

    /// Sends TERM to the leader's process group.
    pub(crate) fn terminate(&mut self) {
        self.remember();
        self.signal_group(Signal::TERM);
    }

    /// Sends KILL to the leader's process group.
    pub(crate) fn kill(&mut self) {
        self.remember();
        self.signal_group(Signal::KILL);
    }

    /// The leader's pid cannot be anybody else's before we have reaped it.
    fn signal_group(&self, signal: Signal) {
        let exit = exit::peek(self.leader);
        if exit != Exit::Lost {
            let _ = kill_process_group(self.leader, signal);
        }
        if exit == Exit::NotYet {
            // It may have gone over to another group.
            let _ = kill_process(self.leader, signal);
        }
    }

    /// Ends whatever is left of the tree, the leader included, and waits for it up to `limit`.
    ///
    /// Cancel safe in the sense of the drop: what has not been done by then is done by it.
    pub(crate) async fn end(&mut self, limit: Duration) -> Ended {
        let until = Instant::now() + limit;
        self.signal_group(Signal::KILL);
        #[cfg(target_os = "linux")]
        let left = {
            let mut unclear = 0;
            loop {
                let found = self.find();
                if found.targets.is_empty() {
                    // An environment can be unreadable for the moment in which a program is replaced.
                    if found.unclear && unclear < UNCLEAR_LOOKS {
                        unclear += 1;
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        continue;
                    }
                    break found.targets;
                }
                if Instant::now() >= until {
                    break found.targets;
                }
                for quarry in self.shoot(&found.targets) {
                    quarry.dead(until).await;
                }
                bury(&found.targets);
            }
        };
        #[cfg(not(target_os = "linux"))]
        let left = {
            let _ = until;
            Vec::new()
        };
        self.close(left)
    }

    #[cfg(target_os = "linux")]
    fn end_blocking(&mut self, limit: Duration) {
        let until = Instant::now() + limit;
        self.signal_group(Signal::KILL);
        if exit::peek(self.leader) == Exit::NotYet
            && let Some(stat) = process_table::stat(self.leader.as_raw_pid().unsigned_abs())
        {
            for quarry in self.shoot(&[stat]) {
                quarry.dead_blocking(until);
            }
        }
        let left = loop {
            let found = self.find();
            if found.targets.is_empty() || Instant::now() >= until {
                break found.targets;
            }
            for quarry in self.shoot(&found.targets) {
                quarry.dead_blocking(until);
            }
            bury(&found.targets);
        };
        self.close(left);
    }

    #[cfg(target_os = "macos")]
    fn end_blocking(&mut self, limit: Duration) {
        let until = Instant::now() + limit;
        self.signal_group(Signal::KILL);
        while exit::peek(self.leader) == Exit::NotYet && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.close(Vec::new());
    }

    /// Reaps the leader and takes the call off the list.
    fn close(&mut self, left: Vec<Stat>) -> Ended {
        self.ended = true;
        #[cfg(target_os = "linux")]
        let left = left.into_iter().chain(self.refused.drain(..));
        let mut survivors: Vec<u32> = left.into_iter().map(|stat| stat.pid).collect();
        let pid = self.leader.as_raw_pid().unsigned_abs();
        let exit = exit::reap(self.leader);
        if exit == Exit::NotYet {
            survivors.push(pid);
        }
        live().remove(&pid);
        survivors.sort_unstable();
        survivors.dedup();
        self.killed.sort_unstable();
        self.killed.dedup();
        Ended { exit, killed: std::mem::take(&mut self.killed), survivors }
    }

    #[cfg(not(target_os = "linux"))]
    fn remember(&mut self) {}
}

#[cfg(target_os = "linux")]
const UNCLEAR_LOOKS: u32 = 20;

#[cfg(target_os = "linux")]
#[derive(Debug, Default)]
struct Found {
    targets: Vec<Stat>,
    /// There was a process that could not be told from another call's.
    unclear: bool,
}

/// Whose a process is that we have adopted.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Whose {
    Ours,
    SomebodyElses,
    Unclear,
}

#[cfg(target_os = "linux")]
impl Tree {
    /// Takes note of the leader's descendants as they hang together now.
    fn remember(&mut self) {
        let mut open = vec![self.leader.as_raw_pid().unsigned_abs()];
        while let Some(pid) = open.pop() {
            for child in process_table::children(pid) {
                if let Some(stat) = process_table::stat(child)
                    && !self.seen.contains(&stat)
                {
                    self.seen.push(stat);
                    open.push(child);
                }
            }
        }
    }

    /// Takes leave of adopted processes that are dead, while the call goes on.
    pub(crate) fn bury_strays(&self) {
        if subreaper::is_adopting() {
            let _alone = BIRTHS.write().unwrap_or_else(PoisonError::into_inner);
            let ours = process_table::stat(std::process::id());
            let strays =
                adopted().filter(|stat| stat.zombie && Some(stat.session) != ours.map(|us| us.session));
            strays.for_each(hunt::bury);
        }
    }

    fn shoot(&mut self, targets: &[Stat]) -> Vec<Quarry> {
        let mut quarries = Vec::new();
        for (stat, shot) in hunt::shoot(targets.iter().filter(|target| !target.zombie).copied()) {
            match shot {
                Shot::Sent(quarry) => {
                    self.killed.push(stat.pid);
                    quarries.push(quarry);
                }
                Shot::Gone => {}
                Shot::Refused => self.refused.push(stat),
            }
        }
        quarries
    }

    /// Finds what is left of the tree, the leader aside.
    fn find(&self) -> Found {
        let mut found = if subreaper::is_adopting() { self.find_adopted() } else { self.find_marked() };
        found.targets.retain(|target| !self.refused.iter().any(|refused| same(refused, target)));
        found
    }

    /// Looks among the orphans that have become our children.
    fn find_adopted(&self) -> Found {
        let _alone = BIRTHS.write().unwrap_or_else(PoisonError::into_inner);
        let mut found = Found::default();
        let mut us = None;
        let mut roots = Vec::new();
        for stat in adopted() {
            let us = *us.get_or_insert_with(|| process_table::stat(std::process::id()));
            match self.whose(&stat, us.map_or(0, |us| us.session)) {
                Whose::Ours => roots.push(stat),
                Whose::SomebodyElses => {}
                Whose::Unclear => found.unclear = true,
            }
        }
        // What hangs below an orphan of ours is ours, whatever it says of itself.
        let mut open = roots;
        while let Some(stat) = open.pop() {
            if !found.targets.contains(&stat) {
                open.extend(process_table::children(stat.pid).into_iter().filter_map(process_table::stat));
                found.targets.push(stat);
            }
        }
        found
    }

    fn whose(&self, stat: &Stat, our_session: u32) -> Whose {
        let leader = self.leader.as_raw_pid().unsigned_abs();
        if stat.session == leader || stat.group == leader || self.seen.iter().any(|seen| same(seen, stat)) {
            return Whose::Ours;
        }
        if stat.zombie {
            // It is dead, and some call's. Whoever comes first takes leave of it. In our own session it
            // may be a child of the application, which waits for it by itself.
            return if stat.session == our_session { Whose::SomebodyElses } else { Whose::Ours };
        }
        let marking = process_table::marking(stat.pid, &self.variable);
        if let Marking::Marked(value) = &marking {
            if mark::holds(value, &self.segment) {
                return Whose::Ours;
            }
            if mark::owners(value).any(|owner| owner == process_table::ourselves()) {
                return Whose::SomebodyElses;
            }
        }
        if stat.session == our_session {
            return Whose::SomebodyElses;
        }
        // It has shed its mark. It is ours if no other call can have started it.
        let other_calls =
            live().iter().filter(|(pid, start)| **pid != leader && **start <= stat.start).count();
        match (stat.start >= self.start, other_calls) {
            (false, _) => Whose::SomebodyElses,
            (true, 0) => Whose::Ours,
            (true, _) if marking == Marking::Unreadable => Whose::Unclear,
            (true, _) => Whose::SomebodyElses,
        }
    }

    /// Looks through all processes for the mark, for the leader's session, and for what is below those.
    fn find_marked(&self) -> Found {
        let leader = self.leader.as_raw_pid().unsigned_abs();
        let young = |stat: &Stat| stat.start >= self.start && stat.pid != leader;
        let table: Vec<Stat> = process_table::all().filter_map(process_table::stat).filter(young).collect();
        let is_ours = |stat: &&Stat| {
            stat.session == leader
                || stat.group == leader
                || self.seen.iter().any(|seen| same(seen, stat))
                || matches!(process_table::marking(stat.pid, &self.variable),
                    Marking::Marked(value) if mark::holds(&value, &self.segment))
        };
        let roots = table.iter().filter(is_ours).copied().collect();
        let mut targets = process_table::with_descendants(roots, &table);
        // A dead one is its parent's business, unless that is us.
        targets.retain(|stat| !stat.zombie || stat.parent == std::process::id());
        Found { targets, unclear: false }
    }
}

#[cfg(target_os = "linux")]
fn same(one: &Stat, other: &Stat) -> bool {
    one.pid == other.pid && one.start == other.start
}

/// Returns our children that no call has started.
#[cfg(target_os = "linux")]
fn adopted() -> impl Iterator<Item = Stat> {
    let live = live().clone();
    let children = process_table::own_children().unwrap_or_default();
    children.into_iter().filter(move |pid| !live.contains_key(pid)).filter_map(process_table::stat)
}

#[cfg(target_os = "linux")]
fn bury(targets: &[Stat]) {
    let us = std::process::id();
    for target in targets {
        // Its parent may be us only since its own parent died.
        if process_table::stat(target.pid).is_some_and(|now| same(&now, target) && now.parent == us) {
            hunt::bury(*target);
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !self.ended {
            self.end_blocking(DROP_LIMIT);
        }
    }
}
