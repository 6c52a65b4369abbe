use std::{
    io,
    time::{Duration, Instant},
};

use crate::{
    hunt::{self, Catch, Quarry},
    mark::{self, Owner},
    process_table::{self, Marking, Stat},
};

/// What a runner that was killed had left.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Leftovers {
    /// The processes that were killed.
    pub killed: Vec<u32>,
    /// The processes that could not be ended in time, or that we may not kill.
    pub survivors: Vec<u32>,
}

/// Dying of KILL takes longer than this only where the kernel holds a process.
const LIMIT: Duration = Duration::from_secs(5);

/// Ends what calls of processes that are no more have left running, by their marks in `variable`.
///
/// A mark names the process that made the call; a process is left over when one of those that its mark
/// names is gone, and so is what hangs below it. Marks from another pid namespace are left alone, and so
/// are this process and those above it. For an application to call at its start. Looks through all
/// processes, and blocks until the leftovers are dead, for 5 seconds at most.
///
/// [`Mark::VARIABLE`](crate::Mark::VARIABLE) is the variable unless the calls were given another.
///
/// # Errors
///
/// When the process table cannot be read.
pub fn sweep_leftovers(variable: &str) -> io::Result<Leftovers> {
    std::fs::read_dir("/proc")?;
    let until = Instant::now() + LIMIT;
    let mut leftovers = Leftovers::default();
    let mut refused: Vec<Stat> = Vec::new();
    loop {
        let mut found = find(variable);
        found.retain(|stat| !refused.contains(stat));
        if found.is_empty() || Instant::now() >= until {
            leftovers.survivors = found.iter().chain(&refused).map(|stat| stat.pid).collect();
            leftovers.killed.sort_unstable();
            leftovers.killed.dedup();
            return Ok(leftovers);
        }
        let mut held = Vec::new();
        for stat in found {
            match hunt::catch(stat) {
                Catch::Held(quarry) => held.push(quarry),
                Catch::Gone => {}
                Catch::Refused => refused.push(stat),
            }
        }
        held.iter().for_each(Quarry::kill);
        for quarry in held {
            let stat = quarry.stat();
            leftovers.killed.push(stat.pid);
            quarry.dead_blocking(until);
            // Does something only where we are the one who must.
            hunt::bury(stat);
        }
    }
}

fn find(variable: &str) -> Vec<Stat> {
    let table: Vec<Stat> =
        process_table::all().filter_map(process_table::stat).filter(|stat| !stat.zombie).collect();
    let above = above(std::process::id(), &table);
    let is_left = |stat: &&Stat| match process_table::marking(stat.pid, variable) {
        Marking::Marked(value) => mark::owners(&value).any(is_gone),
        Marking::Unmarked | Marking::Empty => false,
    };
    let others: Vec<Stat> = table.into_iter().filter(|stat| !above.contains(&stat.pid)).collect();
    let roots = others.iter().filter(is_left).copied().collect();
    process_table::with_descendants(roots, &others)
}

/// Returns whether the process that made a call is no more, as far as we can know.
fn is_gone(owner: Owner) -> bool {
    owner.namespace == process_table::ourselves().namespace
        && process_table::stat(owner.pid).is_none_or(|stat| stat.start != owner.start || stat.zombie)
}

/// Returns `pid` and the pids above it.
fn above(pid: u32, table: &[Stat]) -> Vec<u32> {
    let mut line = vec![pid];
    while let Some(stat) = table.iter().find(|stat| Some(&stat.pid) == line.last())
        && !line.contains(&stat.parent)
    {
        line.push(stat.parent);
    }
    line
}
