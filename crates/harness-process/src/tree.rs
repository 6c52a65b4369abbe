//! All the processes of one call: the child that was started, and its kin.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{
    exit::{self, Exit},
    kin::Kin,
    live,
};

/// The processes of one call. Dropping it before [`end`](Self::end) is done ends them, blocking.
#[derive(Debug)]
pub(crate) struct Tree {
    leader: Pid,
    kin: Kin,
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
        let kin = Kin::new(pid, not_before, variable, segment);
        live::enter(pid, kin.start());
        let leader = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Self { leader: leader.expect("a started process has a positive pid"), kin, ended: false }
    }

    pub(crate) fn leader(&self) -> Pid {
        self.leader
    }

    /// Takes note of the tree while it still hangs together. To be called before the leader is told to go.
    pub(crate) fn remember(&mut self) {
        self.kin.remember();
    }

    /// Sends SIGINT to the leader alone.
    pub(crate) fn interrupt(&self) {
        if exit::peek(self.leader) == Exit::NotYet {
            let _ = kill_process(self.leader, Signal::INT);
        }
    }

    /// Sends TERM to the leader and its process group.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends KILL to the leader and its process group.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// The leader's pid, and so the number of its group, is nobody else's before we have reaped it.
    fn signal(&self, signal: Signal) {
        let exit = exit::peek(self.leader);
        if exit == Exit::NotYet {
            // It may have gone over to another group.
            let _ = kill_process(self.leader, signal);
        }
        if exit != Exit::Lost {
            let _ = kill_process_group(self.leader, signal);
        }
    }

    /// Looks after what hangs below us while the call goes on.
    pub(crate) fn tend(&self) {
        self.kin.bury_strays();
    }

    /// Ends whatever is left of the tree, the leader included, and waits for it up to `limit`.
    ///
    /// If the future is dropped, the tree's drop does the rest.
    pub(crate) async fn end(&mut self, limit: Duration) -> Ended {
        let until = Instant::now() + limit;
        if exit::peek(self.leader) == Exit::NotYet {
            self.kill();
        }
        // One by one first, so that the report can name them.
        self.kin.end(until).await;
        self.close()
    }

    fn end_blocking(&mut self, limit: Duration) {
        let until = Instant::now() + limit;
        self.remember();
        self.kill();
        exit::wait_blocking(self.leader, until);
        self.kin.end_blocking(until);
        self.close();
    }

    /// Reaps the leader and takes the call off the list.
    fn close(&mut self) -> Ended {
        self.kill();
        let pid = self.leader.as_raw_pid().unsigned_abs();
        let exit = {
            // Between the two, the leader would be a stray to others, or its pid somebody else's.
            let _alone = live::alone();
            live::leave(pid);
            exit::reap(self.leader)
        };
        self.kin.bury_dead();
        let (killed, mut survivors) = self.kin.account();
        if exit == Exit::NotYet {
            survivors.push(pid);
        }
        self.ended = true;
        Ended { exit, killed, survivors }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !self.ended {
            self.end_blocking(DROP_LIMIT);
        }
    }
}
