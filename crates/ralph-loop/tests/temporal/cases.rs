//! Whole runs, by the built program: clients and workers are processes with homes of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::scene::{Scene, wait};
use crate::server::{OTHER_NAMESPACE, Server};

type Case = fn(&mut Server) -> Result<()>;

/// The cases, by name.
pub(crate) const CASES: &[(&str, Case)] = &[
    ("completes", completes),
    ("events", events),
    ("endings", endings),
    ("interrupted", interrupted),
    ("forced", forced),
    ("cancelled-elsewhere", cancelled_elsewhere),
    ("attached-elsewhere", attached_elsewhere),
    ("continued-elsewhere", continued_elsewhere),
    ("worker-killed", worker_killed),
    ("worker-stopped", worker_stopped),
    ("worker-forced", worker_forced),
    ("server-killed", server_killed),
    ("no-worker", no_worker),
    ("no-server", no_server),
    ("workspaces", workspaces),
    ("workspace-hook", workspace_hook),
    ("secrets", secrets),
    ("tls", crate::gate::tls),
    ("two-hosts", crate::hosts::two_hosts),
];

/// A run and its worker share a server and nothing else, and all that is told of it is as on one machine.
fn completes(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 3)?;
    let worker = scene.worker()?;
    let run = scene.run("mine", &[])?;
    let id = run.run_id()?;
    let said = run.end()?.with_status(0)?;
    for part in [
        "round 1 of 20 started",
        "round 1   continue",
        "round 3   complete",
        "A worker reported the objective complete after 3 rounds. Nobody verified it.",
        "make: ok",
        "3 rounds,",
        "exit status 0",
        "ralph-loop show ",
    ] {
        ensure!(said.out.contains(part), "no {part:?}: {said}");
    }
    worker.wait_for_out("round 3  mine  ended: completed")?;
    // The client has kept nothing, and the worker has what the agents said.
    ensure!(!scene.path("client/.local").exists(), "a client needs no state");
    let calls = scene.path("worker/.local/state/ralph-loop/calls").join(&id);
    ensure!(calls.join("3-1/transcript.log").exists(), "no transcript in {calls:?}");
    // A third home sees the run by the beginning of its id, once the server's index has it.
    wait("the run in the list", || {
        let said = scene.say("other", &["runs"]).ok()?;
        (said.out.contains(&id[..8]) && said.out.contains("complete")).then_some(())
    })?;
    let said = scene.say("other", &["show", &id[..8]])?.with_status(0)?;
    said.with_out("round 3  complete")?.with_out("on the workers of the queue")?;
    let shown = scene.shown("other", &id)?;
    ensure!(shown["outcome"] == "complete" && shown["roundsStarted"] == 3, "{shown}");
    ensure!(shown["rounds"][2]["report"]["evidence"] == json!(["make: ok"]), "{shown}");
    ensure!(shown["rounds"][2]["attempts"][0]["worker"].is_string(), "{shown}");
    scene.say("other", &["doctor"])?.with_status(0)?.with_out("ok    engine")?.with_out("are taken by")?;
    Ok(())
}

/// With flags alone, in another namespace, as JSON: one object a line, the outcome last.
fn events(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 2)?;
    let flags = ["--temporal-address", &scene.address.clone(), "--temporal-namespace", OTHER_NAMESPACE];
    let mut worker = scene.command("worker", &["worker", "--queue", "q1"])?;
    worker.args(flags).env_remove("RALPH_LOOP_TEMPORAL_ADDRESS").env_remove("RALPH_LOOP_ENGINE");
    let worker = crate::scene::Process::start(worker, &scene.path("flags"))?;
    worker.wait_for_out("serving")?;
    let mut run = scene.command("client", &["run", "do it", "--agent", "mine", "--json", "--queue", "q1"])?;
    run.args(["--engine", "temporal", "--workspace"]).arg(&scene.workspace).args(flags);
    run.env_remove("RALPH_LOOP_TEMPORAL_ADDRESS").env_remove("RALPH_LOOP_ENGINE");
    let said = crate::scene::Process::start(run, &scene.path("json"))?.end()?.with_status(0)?;
    let events: Vec<Value> =
        said.out.lines().map(serde_json::from_str).collect::<Result<_, _>>().context(said.out.clone())?;
    let kinds: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap_or_default()).collect();
    for (kind, times) in [("agent-started", 2), ("agent-ended", 2), ("checkpoint", 2), ("ended", 1)] {
        let count = kinds.iter().filter(|found| **found == kind).count();
        ensure!(count == times, "{kind} {count} times: {kinds:?}");
    }
    let last = events.last().context("there are events")?;
    ensure!(last["event"] == "outcome" && last["exitStatus"] == 0, "{last}");
    ensure!(last["result"]["result"]["status"] == "complete" && last["tookMs"].is_number(), "{last}");
    Ok(())
}

/// Every ending has the exit status that it has on one machine.
fn endings(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 3)?;
    let hand_in = |report: &str| format!("cat > /dev/null; printf '%s' '{report}' > \"$HARNESS_VALUE_FILE\"");
    scene.declare(
        "stuck",
        &hand_in(
            r#"{"status":"blocked","summary":"Stuck.","evidence":[],"nextSteps":[],"blocker":"No key."}"#,
        ),
    )?;
    scene.declare("silent", "cat > /dev/null; echo 'no key' >&2; exit 3")?;
    scene.declare(
        "wrong",
        &hand_in(r#"{"status":"complete","summary":"","evidence":[],"nextSteps":["x"],"blocker":""}"#),
    )?;
    scene.declare("slow", "exec sleep 600")?;
    let _worker = scene.worker()?;
    scene.run("stuck", &[])?.end()?.with_status(10)?.with_out("No key.")?;
    scene.run("mine", &["--max-rounds", "2"])?.end()?.with_status(11)?.with_out("limit of 2 rounds")?;
    scene.run("silent", &[])?.end()?.with_status(12)?.with_out("no report")?;
    scene.run("wrong", &[])?.end()?.with_status(13)?;
    scene.run("slow", &["--until", "3s"])?.end()?.with_status(15)?.with_err("the time is up")?;
    let said = scene.run("slow", &["--round-limit", "2s"])?.end()?.with_status(12)?;
    said.with_out("within its limit")?;
    let said = scene.run("mine", &["--idle-limit", "2s"])?.end()?.with_status(2)?;
    said.with_err("each worker has its own")?;
    let said = scene.run("mine", &["--", "/bin/true"])?.end()?.with_status(2)?;
    said.with_err("those of the workers")?;
    Ok(())
}

/// Ctrl-C cancels the run, reaches the agent on its worker, and waits until it is gone.
fn interrupted(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 3)?;
    let _worker = scene.worker()?;
    scene.hold(2)?;
    let run = scene.run("mine", &[])?;
    let id = run.run_id()?;
    let agent = scene.wait_for_start(2, 1)?;
    run.signal(Signal::INT)?;
    let said = run.end()?.with_status(14)?.with_err("waiting for the agent to be gone")?;
    ensure!(!agent.is_alive(), "the agent lives after the end of its run: {said}");
    let shown = scene.shown("other", &id)?;
    ensure!(shown["cancelReason"] == "interrupted by SIGINT", "{shown}");
    ensure!(shown["outcome"] == "cancelled" && shown["roundsStarted"] == 2, "{shown}");
    Ok(())
}

/// A second Ctrl-C does not wait for workers that are not there. The server keeps the cancellation.
fn forced(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 1)?;
    let run = scene.run("mine", &[])?;
    let id = run.run_id()?;
    run.wait_for_err("no worker takes loops")?;
    run.signal(Signal::INT)?;
    run.wait_for_err("Ctrl-C forces the end")?;
    wait("the cancellation in the history", || {
        scene.shown("other", &id).is_ok_and(|shown| shown["cancelReason"].is_string()).then_some(())
    })?;
    run.signal(Signal::INT)?;
    run.end()?.with_status(14)?.with_err("forced to end")?;
    let _worker = scene.worker()?;
    wait("the end of the cancelled run", || {
        scene.shown("other", &id).is_ok_and(|shown| shown["outcome"] == "cancelled").then_some(())
    })?;
    ensure!(scene.lines().is_empty(), "no agent may start for a cancelled run");
    Ok(())
}

/// A run is cancelled from another home by its id, and its own client tells of it.
fn cancelled_elsewhere(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 2)?;
    let _worker = scene.worker()?;
    scene.hold(1)?;
    let run = scene.run("mine", &[])?;
    let id = run.run_id()?;
    let agent = scene.wait_for_start(1, 1)?;
    let begin = Instant::now();
    let said = scene.say("other", &["cancel", &id])?.with_status(0)?.with_out("is cancelled")?;
    let took = begin.elapsed();
    ensure!(!agent.is_alive(), "the agent lives after the cancellation: {said}");
    ensure!(took < Duration::from_secs(30), "it took {took:?}");
    println!("        cancelled, and gone, after {:.1} s", took.as_secs_f64());
    run.end()?.with_status(14)?;
    scene.say("other", &["cancel", &id])?.with_status(0)?.with_out("has ended already (cancelled)")?;
    Ok(())
}

/// A client is killed; another home watches the run on to its end, and the watch can be ended without it.
fn attached_elsewhere(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 3)?;
    let _worker = scene.worker()?;
    scene.hold(2)?;
    let run = scene.run("mine", &[])?;
    let id = run.run_id()?;
    scene.wait_for_start(2, 1)?;
    run.kill()?;
    let watch = scene.start("other", &["attach", &id])?;
    watch.wait_for_out("round 2 of 20 started")?;
    watch.signal(Signal::INT)?;
    ensure!(watch.end()?.status == -2, "the watch ends as any process does");
    let watch = scene.start("third", &["attach", &id])?;
    watch.wait_for_err("1 round had ended before")?;
    scene.release(2)?;
    let said = watch.end()?.with_status(0)?.with_out("round 3   complete")?;
    said.with_out("A worker reported the objective complete after 3 rounds")?;
    let starts = scene.lines().iter().filter(|line| line.is_start).count();
    ensure!(starts == 3, "no round is tried again: {:?}", scene.lines());
    // Also long after.
    scene.say("other", &["attach", &id])?.with_status(0)?.with_out("after 3 rounds")?;
    Ok(())
}

/// A run that reached its limit is continued from another home, by its id alone.
fn continued_elsewhere(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 3)?;
    let _worker = scene.worker()?;
    let run = scene.run("mine", &["--max-rounds", "1"])?;
    let id = run.run_id()?;
    run.end()?.with_status(11)?.with_out("ralph-loop continue ")?;
    let said = scene.say("other", &["continue", &id, "--max-rounds", "5"])?.with_status(0)?;
    let next = said.out.lines().find_map(|line| line.strip_prefix("run ")).context("a run tells its id")?;
    let shown = scene.say("third", &["show", next.trim()])?.with_status(0)?;
    shown.with_out(&format!("from run {id}"))?.with_out("do it")?;
    scene.say("third", &["continue", next.trim()])?.with_status(2)?.with_err("ended complete")?;
    for command in ["logs", "resume"] {
        let said = scene.say("third", &[command, &id])?.with_status(2)?;
        ensure!(said.err.contains("--engine local"), "{said}");
    }
    Ok(())
}

/// A worker is killed in mid-round. The next one ends what it has left, and the round is tried once more.
fn worker_killed(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 3)?;
    let worker = scene.worker()?;
    scene.hold(2)?;
    let run = scene.run("mine", &[])?;
    let id = run.run_id()?;
    let first = scene.wait_for_start(2, 1)?;
    worker.kill()?;
    // It does so at its start, unless another test that starts just now has done it.
    let _worker = scene.worker()?;
    first.wait_for_end()?;
    scene.wait_for_start(2, 2)?;
    scene.release(2)?;
    let said = run.end()?.with_status(0)?.with_out("round 2 of 20 is started again, attempt 2")?;
    let ends = [1, 2, 3].map(|round| scene.ends(round));
    ensure!(ends == [1, 1, 1], "ends of rounds: {ends:?}: {said}");
    let shown = scene.shown("other", &id)?;
    let attempts = shown["rounds"][1]["attempts"].as_array().context("a round has attempts")?.len();
    ensure!(attempts == 2 && shown["attempts"] == 4, "{shown}");
    Ok(())
}

/// A worker that is asked to end ends its agents gently and gives their rounds back; another worker does them.
fn worker_stopped(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 2)?;
    let worker = scene.worker()?;
    scene.hold(1)?;
    let run = scene.run("mine", &[])?;
    let first = scene.wait_for_start(1, 1)?;
    let other = scene.worker()?;
    worker.signal(Signal::TERM)?;
    let said = worker.end()?.with_status(0)?.with_err("the agents are waited for")?;
    ensure!(!first.is_alive(), "the agent lives after the end of its worker: {said}");
    scene.wait_for_start(1, 2)?;
    scene.release(1)?;
    run.end()?.with_status(0)?;
    let ends = [1, 2].map(|round| scene.ends(round));
    ensure!(ends == [1, 1], "ends of rounds: {ends:?}");
    other.signal(Signal::INT)?;
    other.end()?.with_status(0)?;
    Ok(())
}

/// A worker that is forced to end leaves nothing alive, though its agent ignores what is gentle.
fn worker_forced(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 1)?;
    let script = format!(
        "trap '' TERM INT HUP\nprintf 'start 1 1 %s\\n' $$ >> {}\nwhile :; do sleep 0.1; done",
        scene.path("log").display()
    );
    scene.declare("deaf", &script)?;
    let worker = scene.worker()?;
    let run = scene.run("deaf", &[])?;
    let agent = scene.wait_for_start(1, 1)?;
    worker.signal(Signal::INT)?;
    worker.wait_for_err("Ctrl-C forces the end")?;
    worker.signal(Signal::INT)?;
    let said = worker.end()?.with_status(17)?.with_err("forced to end")?;
    ensure!(!agent.is_alive(), "the agent lives after the forced end: {said}");
    run.kill()?;
    Ok(())
}

/// The server is killed in mid-round and started again. Client and worker outlive that.
fn server_killed(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 3)?;
    let _worker = scene.worker()?;
    scene.hold(2)?;
    let run = scene.run("mine", &[])?;
    scene.wait_for_start(2, 1)?;
    server.kill();
    server.start_again().map_err(|error| anyhow::anyhow!("{error}"))?;
    scene.release(2)?;
    run.end()?.with_status(0)?.with_out("after 3 rounds")?;
    let ends = [1, 2, 3].map(|round| scene.ends(round));
    ensure!(ends == [1, 1, 1], "ends of rounds: {ends:?}");
    Ok(())
}

/// A run without a worker says so, waits, and goes on when one comes.
fn no_worker(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 2)?;
    scene.hold(1)?;
    let run = scene.run("mine", &[])?;
    run.wait_for_err("no worker takes loops from the queue")?;
    run.wait_for_err("no worker takes rounds of mine from the queue")?;
    // The server has not heard of it only by its index.
    let id = run.run_id()?;
    let shown = scene.shown("other", &id)?;
    ensure!(shown["state"] == "running" && shown["roundsStarted"] == 0, "{shown}");
    let _worker = scene.worker()?;
    run.wait_for_err("a worker takes loops now")?;
    run.wait_for_err("a worker takes rounds of mine now")?;
    scene.release(1)?;
    run.end()?.with_status(0)?;
    Ok(())
}

/// What is wrong with the server, or with what is asked of it, has the status of a lacking machine or of bad usage.
fn no_server(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 1)?;
    let nobody = Scene::at("http://127.0.0.1:9".to_owned())?;
    for arguments in [&["run", "x", "--agent", "mine"][..], &["runs"], &["show", "x"], &["cancel", "x"]] {
        nobody.say("client", arguments)?.with_status(16)?.with_err("cannot be reached")?;
    }
    nobody.declare("mine", "true")?;
    nobody.say("worker", &["worker"])?.with_status(16)?.with_err("cannot be reached")?;
    let nonsense = Scene::at("nonsense".to_owned())?;
    nonsense.say("client", &["runs"])?.with_status(2)?.with_err("not the address of a server")?;
    scene.say("client", &["show", "ffffffff"])?.with_status(2)?.with_err("knows no run")?;
    let unknown = "ffffffff-ffff-4fff-bfff-ffffffffffff";
    for command in ["show", "cancel", "attach", "continue"] {
        scene.say("client", &[command, unknown])?.with_status(2)?.with_err("knows no run")?;
    }
    let nowhere = ["run", "x", "--agent", "mine", "--temporal-namespace", "nowhere"];
    scene.say("client", &nowhere)?.with_status(16)?.with_out("Namespace nowhere")?;
    // A worker without an agent serves nobody.
    scene.say("empty", &["worker"])?.with_status(16)?.with_err("no agent here to serve")?;
    Ok(())
}

/// A workspace is a name below a folder that each worker has where it likes; without such a folder it is a path.
fn workspaces(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 2)?;
    let plain = scene.worker()?;
    let said = scene.say("client", &["run", "do it", "--agent", "mine", "--workspace", "team/work"])?;
    said.with_status(17)?.with_out("it must be an absolute path")?;
    plain.signal(Signal::TERM)?;
    plain.end()?.with_status(0)?;
    let root = scene.path("mounted");
    fs::create_dir_all(root.join("team/work"))?;
    scene.configure(&format!("[temporal]\nworkspaces = {root:?}\n"))?;
    let worker = scene.worker()?;
    worker.wait_for_out("relative paths below")?;
    fs::write(root.join("team/work/hold-1"), "")?;
    let run = scene.start("client", &["run", "do it", "--agent", "mine", "--workspace", "team/work"])?;
    // It waits for a file in the folder that was meant.
    scene.wait_for_start(1, 1)?;
    fs::remove_file(root.join("team/work/hold-1"))?;
    run.end()?.with_status(0)?.with_out("workspace  team/work")?;
    let said = scene.say("client", &["run", "do it", "--agent", "mine", "--workspace", "/tmp"])?;
    said.with_status(17)?.with_out("not usable here")?;
    Ok(())
}

/// A command brings the workspace of each attempt, and takes what it has become.
fn workspace_hook(server: &mut Server) -> Result<()> {
    let scene = Scene::new(server, 2)?;
    let (hook, log) = (scene.path("worker/hook.sh"), scene.path("hook-log"));
    let script = format!(
        "#!/bin/sh\necho \"$1 $HARNESS_WORKSPACE $HARNESS_CALL $HARNESS_FENCE $HARNESS_ENDING\" >> {}\n\
         mkdir -p {root}/$HARNESS_FENCE && echo {root}/$HARNESS_FENCE\n",
        log.display(),
        root = scene.path("clones").display()
    );
    fs::write(&hook, script)?;
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755))?;
    let worker = scene.start("worker", &["worker", "--workspace-hook", "./hook.sh"])?;
    worker.wait_for_out("serving")?;
    let said = scene.say("client", &["run", "do it", "--agent", "mine", "--workspace", "repo:main"])?;
    said.with_status(0)?;
    let lines = fs::read_to_string(&log)?;
    let lines: Vec<&str> = lines.lines().map(str::trim_end).collect();
    let expected = [
        "prepare repo:main 1 1",
        "publish repo:main 1 1 value",
        "prepare repo:main 2 2",
        "publish repo:main 2 2 value",
    ];
    ensure!(lines == expected, "{lines:?}");
    Ok(())
}

/// What an agent gets of its worker's environment is in no request, no history and no file of the server.
fn secrets(server: &mut Server) -> Result<()> {
    const SECRET: &str = "8c1f7e0d-this-is-the-credential";
    let scene = Scene::new(server, 1)?;
    scene.declare(
        "keyed",
        r#"cat > /dev/null; test -n "$SECRET" && printf '%s' '{"status":"complete","summary":"The credential was there.","evidence":["test"],"nextSteps":[],"blocker":""}' > "$HARNESS_VALUE_FILE""#,
    )?;
    let mut worker = scene.command("worker", &["worker"])?;
    worker.env("SECRET", SECRET);
    let worker = crate::scene::Process::start(worker, &scene.path("keyed"))?;
    worker.wait_for_out("serving")?;
    scene.run("keyed", &[])?.end()?.with_status(0)?.with_out("The credential was there.")?;
    let files: Vec<Vec<u8>> =
        fs::read_dir(server.folder.path())?.map(|entry| fs::read(entry?.path())).collect::<Result<_, _>>()?;
    let holds =
        |text: &str| files.iter().any(|file| file.windows(text.len()).any(|part| part == text.as_bytes()));
    ensure!(holds("The credential was there."), "the report is found, so a credential would be");
    ensure!(!holds(SECRET), "the credential is in the server's files");
    ensure!(!worker.out().contains(SECRET) && !worker.err().contains(SECRET), "the worker tells it");
    Ok(())
}
