use std::time::{Duration, Instant};

use crate::{
    exit,
    hunt::{self, Catch, Quarry},
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

/// What one look has found.
#[derive(Debug, Default)]
struct Found {
    /// The living, stopped at sight: one that is let go for a moment may have a successor by then.
    held: Vec<Quarry>,
    /// The dead that are ours to reap.
    dead: Vec<Stat>,
    refused: Vec<Stat>,
    /// One was gone before it could be looked at, and may have left a child.
    vanished: bool,
    /// There was a process that could not be told from another call's.
    unclear: bool,
    /// One was gone or dead before its mark could be read. It was anybody's, and may have left a child of ours.
    fleeting: bool,
}

/// Whose a process is that we have adopted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Whose {
    Ours,
    SomebodyElses,
    Unclear,
}

/// What one look led to.
#[derive(Debug)]
enum Struck {
    /// These were killed and may take a moment to die.
    Dying(Vec<Quarry>),
    /// Nothing was killed, and it may be too early, or one may have been replaced behind our back.
    InDoubt { unclear: bool, fleeting: bool },
    /// It is over.
    Nothing,
}

/// A process has no environment for the moment in which its program is replaced. One that stays so is looked
/// at this often, a millisecond apart.
const UNCLEAR_LOOKS: u32 = 20;
/// After so many looks without a catch, those that come and go meanwhile are taken for strangers: on a busy system
/// there are always some.
const FLEETING_LOOKS: u32 = 3;

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
            let strays = adopted().filter_map(process_table::stat);
            strays.filter(|stat| stat.zombie && Some(stat.session) != us).for_each(hunt::bury);
        }
    }

    /// Takes leave of the dead among what the leader, which has been reaped, has left.
    pub(crate) fn bury_dead(&self) {
        if subreaper::is_adopting() && exit::is_any_dead() {
            let _alone = live::alone();
            let us = process_table::stat(std::process::id()).map(|us| us.session);
            let dead = adopted().filter_map(process_table::stat).filter(|stat| stat.zombie);
            dead.filter(|stat| self.is_known(stat) || Some(stat.session) != us).for_each(hunt::bury);
        }
    }

    /// Ends what the leader, which is gone, has left.
    pub(crate) async fn end(&mut self, until: Instant) {
        let (mut looks, mut fleeting) = (0, 0);
        loop {
            match self.strike(until) {
                Struck::Dying(quarries) => {
                    fleeting = 0;
                    for quarry in quarries {
                        let stat = quarry.stat();
                        quarry.dead(until).await;
                        bury(stat);
                    }
                    // The next look may have nothing to wait for either.
                    tokio::task::yield_now().await;
                }
                Struck::InDoubt { fleeting: true, .. } if fleeting < FLEETING_LOOKS => {
                    fleeting += 1;
                    tokio::task::yield_now().await;
                }
                Struck::InDoubt { unclear: true, .. } if looks < UNCLEAR_LOOKS => {
                    looks += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Struck::InDoubt { .. } | Struck::Nothing => return,
            }
        }
    }

    /// The same for a thread that may be blocked.
    pub(crate) fn end_blocking(&mut self, until: Instant) {
        let mut fleeting = 0;
        loop {
            match self.strike(until) {
                Struck::Dying(quarries) => {
                    fleeting = 0;
                    for quarry in quarries {
                        let stat = quarry.stat();
                        quarry.dead_blocking(until);
                        bury(stat);
                    }
                }
                Struck::InDoubt { fleeting: true, .. } if fleeting < FLEETING_LOOKS => fleeting += 1,
                Struck::InDoubt { .. } | Struck::Nothing => return,
            }
        }
    }

    /// Kills what there is now.
    fn strike(&mut self, until: Instant) -> Struck {
        let found = if subreaper::is_adopting() { self.find_adopted() } else { self.find_marked() };
        found.held.iter().for_each(Quarry::kill);
        self.killed.extend(found.held.iter().map(|quarry| quarry.stat().pid));
        self.refused.extend(&found.refused);
        found.dead.iter().copied().for_each(bury);
        let over = found.held.is_empty() && found.dead.is_empty() && !found.vanished;
        if over {
            let Found { unclear, fleeting, .. } = found;
            return if unclear || fleeting { Struck::InDoubt { unclear, fleeting } } else { Struck::Nothing };
        }
        if Instant::now() >= until {
            self.left = found.held.iter().map(Quarry::stat).collect();
            return Struck::Nothing;
        }
        Struck::Dying(found.held)
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

    /// Looks among the orphans that have become our children, and at what hangs below those that are ours.
    fn find_adopted(&self) -> Found {
        let _alone = live::alone();
        let mut found = Found::default();
        // Most leave nobody, and then there is no list to be read. The dead can wait until the leader is out of the way.
        if !exit::is_any_alive() {
            return found;
        }
        let mut us = None;
        // The youngest first: it is the one that may be about to have a successor.
        let mut orphans: Vec<u32> = adopted().collect();
        orphans.reverse();
        for pid in orphans {
            let Some(stat) = process_table::stat(pid) else {
                found.vanished = true;
                continue;
            };
            let us = *us.get_or_insert_with(|| process_table::stat(std::process::id()));
            match self.whose(&stat, us.map_or(0, |us| us.session)) {
                Whose::Ours => self.catch_with_descendants(stat, &mut found),
                Whose::SomebodyElses => {}
                Whose::Unclear => found.unclear = true,
            }
        }
        found
    }

    /// What hangs below a process of ours is ours, whatever it says of itself.
    fn catch_with_descendants(&self, stat: Stat, found: &mut Found) {
        let mut open = vec![stat];
        while let Some(stat) = open.pop() {
            if self.catch(stat, found) {
                open.extend(process_table::children(stat.pid).into_iter().filter_map(process_table::stat));
            }
        }
    }

    /// Returns whether `stat` was alive and had not been found.
    fn catch(&self, stat: Stat, found: &mut Found) -> bool {
        let is_known = found.held.iter().any(|quarry| same(&quarry.stat(), &stat))
            || self.refused.iter().chain(&found.refused).any(|refused| same(refused, &stat));
        if is_known {
            return false;
        }
        if stat.zombie {
            // Another's dead are another's business.
            if stat.parent == std::process::id() {
                found.dead.push(stat);
            }
            return false;
        }
        match hunt::catch(stat) {
            Catch::Held(quarry) => found.held.push(quarry),
            Catch::Gone => found.vanished = true,
            Catch::Refused => found.refused.push(stat),
        }
        true
    }

    fn whose(&self, stat: &Stat, our_session: u32) -> Whose {
        if self.is_known(stat) {
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
        let may_be_anothers = calls.iter().any(|(pid, start)| *pid != self.leader && *start <= stat.start);
        match marking {
            _ if stat.start < self.start => Whose::SomebodyElses,
            _ if !may_be_anothers => Whose::Ours,
            Marking::Empty => Whose::Unclear,
            Marking::Marked(_) | Marking::Unmarked => Whose::SomebodyElses,
        }
    }

    /// Looks through all processes for the mark, for the leader's session, and for what is below those.
    fn find_marked(&self) -> Found {
        let mut found = Found::default();
        let mut pids: Vec<u32> = process_table::all().filter(|pid| *pid != self.leader).collect();
        pids.sort_unstable_by(|one, other| other.cmp(one));
        for pid in pids {
            let Some(stat) = process_table::stat(pid) else {
                found.fleeting = true;
                continue;
            };
            if stat.start < self.start {
                continue;
            }
            // The dead have no mark.
            found.fleeting |= stat.zombie && !self.is_known(&stat);
            match self.whose_marked(&stat) {
                Whose::Ours => self.catch_with_descendants(stat, &mut found),
                Whose::SomebodyElses => {}
                Whose::Unclear => found.unclear = true,
            }
        }
        found
    }

    fn whose_marked(&self, stat: &Stat) -> Whose {
        if self.is_known(stat) {
            return Whose::Ours;
        }
        match process_table::marking(stat.pid, &self.variable) {
            Marking::Marked(value) if mark::holds(&value, &self.segment) => Whose::Ours,
            // The kernel's own have no session, and never an environment.
            Marking::Empty if !stat.zombie && stat.session != 0 => Whose::Unclear,
            Marking::Marked(_) | Marking::Unmarked | Marking::Empty => Whose::SomebodyElses,
        }
    }

    /// Returns whether it is ours without a look at its mark.
    fn is_known(&self, stat: &Stat) -> bool {
        stat.session == self.leader
            || stat.group == self.leader
            || self.seen.iter().any(|seen| same(seen, stat))
    }
}

fn same(one: &Stat, other: &Stat) -> bool {
    one.pid == other.pid && one.start == other.start
}

/// Returns our children that no call has started, the youngest last.
fn adopted() -> impl Iterator<Item = u32> {
    let live = live::list();
    let children = process_table::own_children().unwrap_or_default();
    children.into_iter().filter(move |pid| !live.contains_key(pid))
}

/// Reaps a process that is dead, if it is our child; it may be that only since its own parent died.
///
/// The kernel's list of our children may skip one while another is taken out of it, so nobody may be reading
/// it now.
fn bury(stat: Stat) {
    let _alone = live::alone();
    let us = std::process::id();
    if process_table::stat(stat.pid).is_some_and(|now| same(&now, &stat) && now.parent == us) {
        hunt::bury(stat);
    }
}
