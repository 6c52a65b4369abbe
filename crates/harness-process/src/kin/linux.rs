use std::time::{Duration, Instant};

use crate::{
    hunt::{self, Quarry, Shot},
    live, mark,
    process_table::{self, Marking, Stat},
    subreaper,
};

/// The processes that the child `leader` has left, or will leave.
#[derive(Debug)]
pub(crate) struct Kin {
    leader: u32,
    /// A start time that none of them is older than.
    start: u64,
    variable: String,
    segment: String,
    /// Those seen while they still hung together, so that none gets away without its mark.
    seen: Vec<Stat>,
    /// Those that we may not kill.
    refused: Vec<Stat>,
    /// Those that were still there when the time was up.
    left: Vec<Stat>,
    killed: Vec<u32>,
}

#[derive(Debug, Default)]
struct Found {
    targets: Vec<Stat>,
    /// There was a process that could not be told from another call's.
    unclear: bool,
}

/// Whose a process is that we have adopted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Whose {
    Ours,
    SomebodyElses,
    Unclear,
}

/// A process has no environment for the moment in which its program is replaced. One that stays so is looked
/// at this often, a millisecond apart.
const UNCLEAR_LOOKS: u32 = 20;

impl Kin {
    pub(crate) fn new(leader: u32, not_before: Duration, variable: &str, segment: String) -> Self {
        Self {
            leader,
            start: process_table::ticks(not_before),
            variable: variable.to_owned(),
            segment,
            seen: Vec::new(),
            refused: Vec::new(),
            left: Vec::new(),
            killed: Vec::new(),
        }
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Takes note of the leader's descendants as they hang together now.
    pub(crate) fn remember(&mut self) {
        let mut open = vec![self.leader];
        while let Some(pid) = open.pop() {
            for stat in process_table::children(pid).into_iter().filter_map(process_table::stat) {
                if !self.seen.iter().any(|seen| same(seen, &stat)) {
                    self.seen.push(stat);
                    open.push(stat.pid);
                }
            }
        }
    }

    /// Takes leave of adopted processes that are dead, while the call goes on.
    pub(crate) fn bury_strays(&self) {
        if subreaper::is_adopting() {
            let _alone = live::alone();
            let us = process_table::stat(std::process::id()).map(|us| us.session);
            adopted().filter(|stat| stat.zombie && Some(stat.session) != us).for_each(hunt::bury);
        }
    }

    /// Ends what the leader, which is gone, has left.
    pub(crate) async fn end(&mut self, until: Instant) {
        let mut looks = 0;
        loop {
            let found = self.find();
            if found.unclear && found.targets.is_empty() && looks < UNCLEAR_LOOKS {
                looks += 1;
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            if found.targets.is_empty() || Instant::now() >= until {
                self.left = found.targets;
                return;
            }
            for quarry in self.shoot(&found.targets) {
                quarry.dead(until).await;
            }
            bury(&found.targets);
        }
    }

    /// The same for a thread that may be blocked.
    pub(crate) fn end_blocking(&mut self, until: Instant) {
        loop {
            let found = self.find();
            if found.targets.is_empty() || Instant::now() >= until {
                self.left = found.targets;
                return;
            }
            for quarry in self.shoot(&found.targets) {
                quarry.dead_blocking(until);
            }
            bury(&found.targets);
        }
    }

    /// Returns the pids of those that were killed, and of those that are still there.
    pub(crate) fn account(&mut self) -> (Vec<u32>, Vec<u32>) {
        let left = self.left.drain(..).chain(self.refused.drain(..));
        let mut survivors: Vec<u32> = left.map(|stat| stat.pid).collect();
        let mut killed = std::mem::take(&mut self.killed);
        for pids in [&mut survivors, &mut killed] {
            pids.sort_unstable();
            pids.dedup();
        }
        (killed, survivors)
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

    fn find(&self) -> Found {
        let mut found = if subreaper::is_adopting() { self.find_adopted() } else { self.find_marked() };
        found.targets.retain(|target| !self.refused.iter().any(|refused| same(refused, target)));
        found
    }

    /// Looks among the orphans that have become our children.
    fn find_adopted(&self) -> Found {
        let _alone = live::alone();
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
            if !found.targets.iter().any(|target| same(target, &stat)) {
                open.extend(process_table::children(stat.pid).into_iter().filter_map(process_table::stat));
                found.targets.push(stat);
            }
        }
        found
    }

    fn whose(&self, stat: &Stat, our_session: u32) -> Whose {
        let leader = self.leader;
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
        let calls = live::list();
        let may_be_anothers = calls.iter().any(|(pid, start)| *pid != leader && *start <= stat.start);
        match marking {
            _ if stat.start < self.start => Whose::SomebodyElses,
            _ if !may_be_anothers => Whose::Ours,
            Marking::Empty => Whose::Unclear,
            Marking::Marked(_) | Marking::Unmarked => Whose::SomebodyElses,
        }
    }

    /// Looks through all processes for the mark, for the leader's session, and for what is below those.
    fn find_marked(&self) -> Found {
        let leader = self.leader;
        let young = |stat: &Stat| stat.start >= self.start && stat.pid != leader;
        let table: Vec<Stat> = process_table::all().filter_map(process_table::stat).filter(young).collect();
        let mut unclear = false;
        let mut is_ours = |stat: &&Stat| {
            let is_known = stat.session == leader
                || stat.group == leader
                || self.seen.iter().any(|seen| same(seen, stat));
            is_known
                || match process_table::marking(stat.pid, &self.variable) {
                    Marking::Marked(value) => mark::holds(&value, &self.segment),
                    Marking::Unmarked => false,
                    Marking::Empty => {
                        // The kernel's own have no session, and never an environment.
                        unclear |= !stat.zombie && stat.session != 0;
                        false
                    }
                }
        };
        let roots = table.iter().filter(|stat| is_ours(stat)).copied().collect();
        let mut targets = process_table::with_descendants(roots, &table);
        // A dead one is its parent's business, unless that is us.
        targets.retain(|stat| !stat.zombie || stat.parent == std::process::id());
        Found { targets, unclear }
    }
}

fn same(one: &Stat, other: &Stat) -> bool {
    one.pid == other.pid && one.start == other.start
}

/// Returns our children that no call has started.
fn adopted() -> impl Iterator<Item = Stat> {
    let live = live::list();
    let children = process_table::own_children().unwrap_or_default();
    children.into_iter().filter(move |pid| !live.contains_key(pid)).filter_map(process_table::stat)
}

fn bury(targets: &[Stat]) {
    let us = std::process::id();
    for target in targets {
        // Its parent may be us only since its own parent died.
        if process_table::stat(target.pid).is_some_and(|now| same(&now, target) && now.parent == us) {
            hunt::bury(*target);
        }
    }
}
