//! What a run survives: the loss of workers, of the server and of the client.

use std::thread::sleep;
use std::time::{Duration, Instant};

use harness_workflow::{RunResult, RunStopReason};
use rustix::process::Signal;
use serde_json::json;

use crate::history::Histories;
use crate::scene::{
    HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, ROUNDS, Scene, What, finish, is_below, play, wait,
};
use crate::server::Server;

/// What varies from one trial to the next: the interrupted round, and how long after its start the fault comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance {
    round: u64,
    pause: Duration,
    /// How long the server stays away.
    away: Duration,
}

impl Chance {
    /// Returns the chance of the trial with this number.
    pub(crate) fn of(trial: u64) -> Self {
        Self {
            round: 2 + trial % 3,
            pause: Duration::from_millis(trial * 70 % 700),
            away: Duration::from_millis(trial * 310 % 2500),
        }
    }
}

type Trial = fn(&mut Server, Chance) -> Result<Seen, String>;

/// The trials, by name.
pub(crate) const TRIALS: &[(&str, Trial)] = &[
    ("kill-worker", kill_worker),
    ("lose-one-of-two-workers", lose_one_of_two),
    ("freeze-worker", freeze_worker),
    ("kill-server", kill_server),
    ("kill-client", kill_client),
    ("cancel-elsewhere", cancel_elsewhere),
];

/// What was counted in a trial: from the run's history what ended, from the children's log what was done for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Rounds that the history has as completed, and whose child has ended.
    pub(crate) rounds: u64,
    /// Rounds that should have come to that, and have not.
    pub(crate) missing: u64,
    /// Completed rounds that ended, or whose child was started, once more.
    pub(crate) doubled: u64,
    /// Starts of a child beyond the first under one fencing token.
    pub(crate) same_fence: u64,
    /// Lost attempts at the round that was interrupted.
    pub(crate) lost: u64,
    /// Lost attempts at other rounds, which no fault accounts for.
    pub(crate) lost_besides: u64,
    /// Lost attempts whose child ended by itself all the same, so that the round was done once more.
    pub(crate) uncounted: u64,
    /// Processes that worked for the run after its end.
    pub(crate) survivors: u64,
    /// How long the child that had to go lived after whoever had to end it could.
    pub(crate) gone_after: Option<Duration>,
}

impl Seen {
    /// Counts in a run that has completed, or has been cancelled with no round completed.
    fn of(scene: &Scene, server: &Server, result: &RunResult, interrupted: u64) -> Result<Self, String> {
        let completed = Histories::at(server).completions(scene.run().as_str())?;
        let lines = scene.lines();
        let mut seen = Self { survivors: scene.alive().len() as u64, ..Self::default() };
        let has_completed = result.stop_reason() == RunStopReason::Completed;
        for call in 1..=ROUNDS {
            let ends: Vec<u32> = attempts(&completed, call);
            let of = |what| -> Vec<u32> {
                let lines = lines.iter().filter(|line| line.what == what && line.call == call);
                lines.map(|line| line.attempt).collect()
            };
            let (started, ended) = (of(What::Start), of(What::End));
            let last = *ends.last().unwrap_or(&0);
            match (has_completed, last) {
                (false, _) => {}
                (true, 0) => seen.missing += 1,
                (true, _) if !ended.contains(&last) => seen.missing += 1,
                (true, _) => seen.rounds += 1,
            }
            let again = started.iter().filter(|attempt| **attempt > last && last > 0).count();
            let repeated = ended.iter().filter(|attempt| **attempt == last).count().saturating_sub(1);
            seen.doubled += (ends.len().saturating_sub(1) + again + repeated) as u64;
            seen.uncounted += ended.iter().filter(|attempt| **attempt < last).count() as u64;
            let lost = started.iter().filter(|attempt| **attempt < last).count() as u64;
            *(if call == interrupted { &mut seen.lost } else { &mut seen.lost_besides }) += lost;
            // Each attempt has one token, so two starts of one attempt are two under one token.
            seen.same_fence += repeats(started);
        }
        let fences = lines.iter().filter(|line| line.what == What::Fence);
        seen.same_fence += repeats(fences.map(|line| line.number).collect());
        if has_completed && result.agents_started() != ROUNDS {
            return Err(format!("{result:?}"));
        }
        Ok(seen)
    }

    /// Says what is wrong, if anything is.
    pub(crate) fn judge(self) -> Result<Self, String> {
        let Self { missing, doubled, same_fence, survivors, .. } = self;
        if missing + doubled + same_fence + survivors == 0 { Ok(self) } else { Err(format!("{self:?}")) }
    }

    fn expect_completed(self) -> Result<Self, String> {
        if self.rounds == ROUNDS { Ok(self) } else { Err(format!("{self:?}")) }
    }
}

fn attempts(completed: &[(u64, u32)], call: u64) -> Vec<u32> {
    completed.iter().filter(|(of, _)| *of == call).map(|(_, attempt)| *attempt).collect()
}

fn repeats<T: Ord>(mut items: Vec<T>) -> u64 {
    let all = items.len();
    items.sort();
    items.dedup();
    (all - items.len()) as u64
}

/// How soon the child of a lost attempt is ended once its worker can: a start of a process, or a heartbeat, and some time
/// for a busy machine.
const SOON: Duration = Duration::from_secs(4);

fn kill_worker(server: &mut Server, chance: Chance) -> Result<Seen, String> {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(server, folder.path(), "1").with_stuck(chance.round);
    let mut first = scene.spawn("worker");
    let mut second = None;
    let mut gone_after = None;
    let result = play(&scene, |_| {
        let child = scene.wait_for_start(chance.round, 1)?;
        sleep(chance.pause);
        first.kill();
        second = Some(scene.spawn("worker-again"));
        // The child would not end by itself.
        gone_after = Some(child.wait_until_gone(SOON)?);
        Ok(())
    })?;
    let seen = Seen::of(&scene, server, &result, chance.round)?.expect_completed()?;
    Ok(Seen { gone_after, ..seen })
}

fn lose_one_of_two(server: &mut Server, chance: Chance) -> Result<Seen, String> {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(server, folder.path(), "1").with_stuck(chance.round);
    let mut workers = [scene.spawn("worker"), scene.spawn("worker")];
    let mut lost = None;
    let result = play(&scene, |_| {
        let child = scene.wait_for_start(chance.round, 1)?;
        sleep(chance.pause);
        // The one that has the child.
        let index = usize::from(is_below(child.number, workers[1].id()));
        workers[index].kill();
        lost = Some(child);
        Ok(())
    })?;
    // Nobody ends the child of a lost worker before a worker is started on its machine.
    let lost = lost.ok_or("there was no child")?;
    if scene.alive().is_empty() {
        return Err("the lost worker's child was ended by somebody else on this machine".to_owned());
    }
    let _again = scene.spawn("worker-again");
    let gone_after = Some(lost.wait_until_gone(SOON)?);
    scene.wait_until_nothing_lives(SOON)?;
    let seen = Seen::of(&scene, server, &result, chance.round)?.expect_completed()?;
    Ok(Seen { gone_after, ..seen })
}

fn freeze_worker(server: &mut Server, chance: Chance) -> Result<Seen, String> {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(server, folder.path(), "1").with_stuck(chance.round);
    let frozen = scene.spawn("worker");
    let mut other = None;
    let mut gone_after = None;
    let result = play(&scene, |_| {
        let child = scene.wait_for_start(chance.round, 1)?;
        sleep(chance.pause);
        frozen.signal(Signal::STOP);
        other = Some(scene.spawn("worker"));
        // The server may have handed the next attempt to the frozen worker too, since a poll of it was open.
        wait("the next attempt's start", || scene.started(chance.round).len() > 1)?;
        frozen.signal(Signal::CONT);
        // The child would not end by itself.
        gone_after = Some(child.wait_until_gone(SOON)?);
        Ok(())
    })?;
    scene.wait_until_nothing_lives(SOON)?;
    let seen = Seen::of(&scene, server, &result, chance.round)?.expect_completed()?;
    Ok(Seen { gone_after, ..seen })
}

fn kill_server(server: &mut Server, chance: Chance) -> Result<Seen, String> {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(server, folder.path(), "1");
    let _worker = scene.spawn("worker");
    let result = play(&scene, |_| {
        scene.wait_for_start(chance.round, 1)?;
        sleep(chance.pause);
        server.kill();
        sleep(chance.away);
        server.start_again().map_err(|error| error.to_string())
    })?;
    scene.wait_until_nothing_lives(SOON)?;
    Seen::of(&scene, server, &result, chance.round)?.expect_completed()
}

fn kill_client(server: &mut Server, chance: Chance) -> Result<Seen, String> {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(server, folder.path(), "1");
    let _worker = scene.spawn("worker");
    let mut client = scene.spawn("client");
    scene.wait_for_start(chance.round, 1)?;
    sleep(chance.pause);
    client.kill();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(async {
        let engine = scene.engine().await;
        let run = engine.attach(&scene.run()).await.map_err(|error| error.to_string())?;
        finish(&*run).await
    })?;
    let seen = Seen::of(&scene, server, &result, chance.round)?.expect_completed()?;
    // A run does not need its client.
    if seen.lost == 0 { Ok(seen) } else { Err(format!("{seen:?}")) }
}

fn cancel_elsewhere(server: &mut Server, chance: Chance) -> Result<Seen, String> {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(server, folder.path(), "300");
    let _worker = scene.spawn("worker");
    let mut gone_after = None;
    let result = play(&scene, |run| {
        scene.wait_for_start(1, 1)?;
        sleep(chance.pause);
        run.cancel("enough");
        // The child, and what it has started.
        gone_after = Some(scene.wait_until_nothing_lives(HEARTBEAT_TIMEOUT + Duration::from_secs(1))?);
        Ok(())
    })?;
    let reason = result.error().and_then(|error| error.details()).map(|details| details["reason"].clone());
    if reason != Some(json!("enough")) || result.stop_reason() != RunStopReason::Cancelled {
        return Err(format!("{result:?}"));
    }
    Ok(Seen { gone_after, ..Seen::of(&scene, server, &result, 1)? })
}

/// A run that has filled its history goes on with a fresh one, and makes no call twice.
pub(crate) fn fresh_history(server: &mut Server) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(server, folder.path(), "0");
    scene.history_events = 12;
    let _worker = scene.spawn("worker");
    let result = play(&scene, |_| Ok(()))?;
    let seen = Seen::of(&scene, server, &result, 0)?.expect_completed()?.judge()?;
    if result.attempts() != ROUNDS || seen.lost_besides > 0 {
        return Err(format!("{result:?}; {seen:?}"));
    }
    let histories = Histories::at(server).of(scene.run().as_str())?.len();
    println!("  {ROUNDS} rounds took {histories} histories");
    if histories > 1 { Ok(()) } else { Err("there was one history".to_owned()) }
}

/// Plays one trial and judges it.
pub(crate) fn play_once(server: &mut Server, trial: Trial, number: u64) -> Result<(Seen, Duration), String> {
    let begin = Instant::now();
    let seen = trial(server, Chance::of(number))?.judge()?;
    Ok((seen, begin.elapsed()))
}

/// The settings that the durations depend on, for people.
pub(crate) fn settings() -> String {
    format!(
        "{ROUNDS} rounds of 1 s, heartbeats every {HEARTBEAT_INTERVAL:?}, heartbeat timeout {HEARTBEAT_TIMEOUT:?}"
    )
}
