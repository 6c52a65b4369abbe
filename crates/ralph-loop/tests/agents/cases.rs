//! What real agents are put through. Every case is one function; its words are what must hold.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use harness_testkit::model_server::{Conversation, Exchange, Turn};
use serde_json::{Value, json};

use crate::agents::{Agent, Overloaded, Way, read, shell, write};
use crate::processes;
use crate::scene::{GRACE, Running, Said, Scene};

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// It is run for every agent, not only where all cases are.
    pub(crate) is_for_every_agent: bool,
    pub(crate) scene: fn(&'static Agent, Way) -> Result<Scene>,
    pub(crate) play: fn(&Scene) -> Result<()>,
}

impl Case {
    /// What is different about it for one agent.
    pub(crate) fn of(&self, agent: &Agent) -> String {
        match (self.name, agent.overloaded) {
            (OVERLOADED, Overloaded::TriedForEver) => {
                "; this agent tries for ever, so the limit of the round does".to_owned()
            }
            (OVERLOADED, Overloaded::ToldAs(reason)) => format!("; this agent tells no more than `{reason}`"),
            (RATE_LIMITED, _) if !agent.asks_again => {
                "; this agent does not ask again, so the loop ends with that reason".to_owned()
            }
            _ => String::new(),
        }
    }
}

const RATE_LIMITED: &str = "rate-limited-once";
const OVERLOADED: &str = "overloaded";

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "two-rounds",
        about: "a repository whose tests fail is repaired in two rounds of real tool use",
        is_for_every_agent: true,
        scene: repair_scene,
        play: repair,
    },
    Case {
        name: "first-request",
        about: "a child's first request has the objective and the handoff, and nothing of an earlier round",
        is_for_every_agent: false,
        scene: first_request_scene,
        play: first_request,
    },
    Case {
        name: "corrected",
        about: "an invalid report is corrected by the same child, or refused where it cannot be",
        is_for_every_agent: false,
        scene: corrected_scene,
        play: corrected,
    },
    Case {
        name: RATE_LIMITED,
        about: "429, then success",
        is_for_every_agent: false,
        scene: rate_limited_scene,
        play: rate_limited,
    },
    Case {
        name: OVERLOADED,
        about: "a model that is overloaded for good ends the loop with that reason",
        is_for_every_agent: false,
        scene: overloaded_scene,
        play: overloaded,
    },
    Case {
        name: "cancelled",
        about: "cancelled in the middle of a long tool call, and nothing is left alive",
        is_for_every_agent: true,
        scene: cancelled_scene,
        play: cancelled,
    },
    Case {
        name: "no-report",
        about: "success without a report is no success",
        is_for_every_agent: false,
        scene: no_report_scene,
        play: no_report,
    },
    Case {
        name: "killed-and-resumed",
        about: "the runner is killed, and resuming ends what it left and goes on",
        is_for_every_agent: false,
        scene: killed_scene,
        play: killed,
    },
];

const OBJECTIVE: &str = "Make `sh test.sh` pass. The word of the day is heliotrope.";

fn report(status: &str, summary: &str, next: &[&str]) -> Value {
    let evidence = if status == "complete" { vec!["sh test.sh: all tests passed"] } else { Vec::new() };
    json!({"status": status, "summary": summary, "evidence": evidence, "nextSteps": next, "blocker": ""})
}

/// A child that does `turns`, hands in `report` in this way and is done.
fn child(
    (agent, way): (&'static Agent, Way),
    turns: impl IntoIterator<Item = Turn>,
    report: Value,
) -> Conversation {
    let turns = turns.into_iter().chain([agent.hands_in(way, report)]);
    Conversation::new(turns).then(Turn::text("I am done."))
}

/// The exchanges of conversation `number` in which the model was asked.
fn asked(scene: &Scene, number: usize) -> Result<Vec<Exchange>> {
    let exchanges = scene.server.conversation(number);
    ensure!(!exchanges.is_empty(), "there was no child number {number}");
    Ok(exchanges)
}

fn last_of(exchange: &Exchange) -> &str {
    exchange.question().map_or("", |question| question.last())
}

fn conversations(scene: &Scene) -> usize {
    scene
        .server
        .exchanges()
        .iter()
        .filter_map(|exchange| exchange.place)
        .map(|place| place.conversation)
        .max()
        .unwrap_or(0)
}

fn rounds(run: &Value) -> Result<&Vec<Value>> {
    run["rounds"].as_array().context("a run has rounds")
}

fn repair_scene(agent: &'static Agent, way: Way) -> Result<Scene> {
    Scene::new(agent, way, |workspace| {
        let look = shell("sh test.sh");
        let greet = workspace.join("greet.sh");
        let first =
            [look.clone(), read(&greet), write(&greet, "#!/bin/sh\necho \"Hello, $1!\"\n"), look.clone()];
        let second = [look.clone(), shell("printf 'Usage: sh greet.sh NAME\\n' >> README.md"), look];
        let next = ["Say in README.md how to use it"];
        vec![
            child((agent, way), first, report("continue", "greet.sh says the right words.", &next)),
            child((agent, way), second, report("complete", "Both faults are repaired.", &[])),
        ]
    })
}

fn repair(scene: &Scene) -> Result<()> {
    ensure!(!scene.repository_passes()?, "the tests of the repository are to fail before");
    scene.run(OBJECTIVE, 5)?.with_status(0)?;
    ensure!(scene.repository_passes()?, "the tests of the repository fail after two rounds");
    ensure!(conversations(scene) == 2, "{} children, not two", conversations(scene));
    let seen: Vec<String> =
        [asked(scene, 1)?, asked(scene, 2)?].concat().iter().map(|one| last_of(one).to_owned()).collect();
    for result in ["FAILED: greet says 'Hullo, world'", "FAILED: README.md", "all tests passed"] {
        ensure!(seen.iter().any(|text| text.contains(result)), "no tool told the model {result:?}");
    }
    let run = scene.only_run()?;
    ensure!(run["outcome"] == "complete" && rounds(&run)?.len() == 2, "not two rounds to the end: {run:#}");
    Ok(())
}

fn first_request_scene(agent: &'static Agent, way: Way) -> Result<Scene> {
    let turns = [shell("echo output-of-round-one").saying("thought-in-round-one")];
    let report = report("continue", "summary-of-round-one", &["step-from-round-one"]);
    let last = child((agent, way), [], self::report("complete", "It was done already.", &[]));
    Scene::new(agent, way, |_| vec![child((agent, way), turns, report), last])
}

fn first_request(scene: &Scene) -> Result<()> {
    scene.run(OBJECTIVE, 5)?.with_status(0)?;
    let whole = |exchange: &Exchange| exchange.body.to_string();
    let (first, second) = (asked(scene, 1)?, asked(scene, 2)?);
    let within_round_one = first.iter().any(|exchange| whole(exchange).contains("output-of-round-one"));
    ensure!(within_round_one, "the first child never saw what its own tool said");
    for (exchange, handoff) in [(&first[0], false), (&second[0], true)] {
        let question = exchange.question().context("it asks the model")?;
        ensure!(!question.has_history(), "a child begins with something that the model has said");
        let text = whole(exchange);
        ensure!(question.opening().contains("heliotrope"), "the objective is not in the first request");
        for part in ["summary-of-round-one", "step-from-round-one"] {
            ensure!(
                text.contains(part) == handoff,
                "{part} in the first request: {}, not {handoff}",
                !handoff
            );
        }
        for part in ["output-of-round-one", "thought-in-round-one"] {
            ensure!(!text.contains(part), "{part} of the first round is in the first request of the second");
        }
    }
    Ok(())
}

fn corrected_scene(agent: &'static Agent, way: Way) -> Result<Scene> {
    // The schema admits it, the rule does not: who is done has no next steps.
    let invalid = report("complete", "Done, nearly.", &["The rest"]);
    let turns = [agent.hands_in(way, invalid)];
    Scene::new(agent, way, |_| vec![child((agent, way), turns, report("complete", "Done.", &[]))])
}

fn corrected(scene: &Scene) -> Result<()> {
    let said = scene.run(OBJECTIVE, 1)?;
    ensure!(conversations(scene) == 1, "{} children, not one", conversations(scene));
    if !scene.agent.corrects.contains(&scene.way) {
        return said.with_status(INVALID_REPORT).map(|_| ());
    }
    said.with_status(0)?;
    let exchanges = asked(scene, 1)?;
    let told = exchanges.get(1).context("the model was asked only once")?;
    ensure!(last_of(told).contains("nextSteps"), "the model was not told what is wrong: {:?}", last_of(told));
    let run = scene.only_run()?;
    let round = &rounds(&run)?[0];
    ensure!(round["report"]["summary"] == "Done.", "not the corrected report: {round:#}");
    ensure!(round["attempts"].as_array().map(Vec::len) == Some(1), "not one attempt: {round:#}");
    Ok(())
}

fn rate_limited_scene(agent: &'static Agent, way: Way) -> Result<Scene> {
    let limited = Turn::error(429).with_message("too many requests").with_retry_after(1);
    Scene::new(agent, way, |_| vec![child((agent, way), [limited], report("complete", "Done.", &[]))])
}

fn rate_limited(scene: &Scene) -> Result<()> {
    if !scene.agent.asks_again {
        scene.run(OBJECTIVE, 1)?.with_status(ROUND_FAILED)?;
        ensure!(asked(scene, 1)?.len() == 1, "it asked again after all");
        return ends_with(scene, &["rate-limited"]);
    }
    scene.run(OBJECTIVE, 1)?.with_status(0)?;
    let exchanges = asked(scene, 1)?;
    let turns: Vec<usize> = exchanges.iter().filter_map(|exchange| Some(exchange.place?.turn)).collect();
    ensure!(turns.starts_with(&[1, 2]), "not refused first and answered then: {turns:?}");
    Ok(())
}

fn overloaded_scene(agent: &'static Agent, way: Way) -> Result<Scene> {
    let overloaded = Turn::error(529).with_message("overloaded").forever();
    Scene::new(agent, way, |_| vec![Conversation::new([overloaded])])
}

fn overloaded(scene: &Scene) -> Result<()> {
    let begun = Instant::now();
    let (options, reason) = match scene.agent.overloaded {
        Overloaded::Told => (&[][..], "overloaded"),
        Overloaded::ToldAs(reason) => (&[][..], reason),
        Overloaded::TriedForEver => (&["--round-limit", "30s"][..], "timed-out"),
    };
    scene.start_run(OBJECTIVE, 3, options)?.end()?.with_status(ROUND_FAILED)?;
    ensure!(begun.elapsed() < Duration::from_secs(60), "the agent was patient for {:.0?}", begun.elapsed());
    ensure!(conversations(scene) == 1, "a failed round was tried again");
    ends_with(scene, &[reason])
}

/// The exit status of a loop whose round has failed.
const ROUND_FAILED: i32 = 12;
/// The exit status of a loop whose report breaks the rules.
const INVALID_REPORT: i32 = 13;
/// The exit status of a loop that was cancelled.
const CANCELLED: i32 = 14;

/// Fails unless the last attempt of the only run ended for one of these reasons.
fn ends_with(scene: &Scene, reasons: &[&str]) -> Result<()> {
    let run = scene.only_run()?;
    let attempts = rounds(&run)?.last().and_then(|round| round["attempts"].as_array());
    let end =
        attempts.and_then(|attempts| attempts.last()).map(|attempt| &attempt["end"]).context("no attempt")?;
    let reason = end["stop_reason"].as_str().context("an attempt that ended has a reason")?;
    ensure!(reasons.contains(&reason), "it ended as {reason}, not as one of {reasons:?}: {end:#}");
    Ok(())
}

/// A tool call that does not end, and that has started a process in a session of its own, as agents start servers.
fn long_call() -> Turn {
    shell("setsid sleep 900 & echo $$ > tool.pid; sleep 900; true")
}

fn cancelled_scene(agent: &'static Agent, way: Way) -> Result<Scene> {
    Scene::new(agent, way, |_| {
        vec![child((agent, way), [long_call()], report("continue", "Never handed in.", &["Nothing"]))]
    })
}

fn cancelled(scene: &Scene) -> Result<()> {
    let mut running = scene.start_run(OBJECTIVE, 3, &[])?;
    wait_for_tool(scene, &mut running)?;
    let runs = scene.runs()?;
    let asked = Instant::now();
    // A signal would not do: whoever starts this in the background may have had interrupts ignored.
    scene.say(&["cancel", &runs[0]])?.with_status(0)?;
    running.end()?.with_status(CANCELLED)?;
    ensure!(asked.elapsed() < GRACE, "it took {:.1?} to end", asked.elapsed());
    scene.nothing_is_left()?;
    let run = scene.only_run()?;
    ensure!(run["outcome"] == "cancelled", "it was cancelled, but ended as {}", run["outcome"]);
    Ok(())
}

/// Waits until the long tool call is under way.
fn wait_for_tool(scene: &Scene, running: &mut Running<'_>) -> Result<()> {
    scene.wait("the long tool call", || {
        let pid = fs::read_to_string(scene.file("tool.pid")).unwrap_or_default();
        (pid.ends_with('\n') || running.has_ended()).then_some(())
    })?;
    ensure!(!running.has_ended(), "ralph-loop ended before the tool was called");
    Ok(())
}

fn no_report_scene(agent: &'static Agent, way: Way) -> Result<Scene> {
    let says_so = Turn::text("I am done, and all is well.");
    Scene::new(agent, way, |_| vec![Conversation::default().then(says_so)])
}

fn no_report(scene: &Scene) -> Result<()> {
    scene.run(OBJECTIVE, 3)?.with_status(ROUND_FAILED)?;
    // What an agent in schema mode says at last can be what was to be a report.
    ends_with(scene, &["no-value", "unreadable-value"])
}

fn killed_scene(agent: &'static Agent, way: Way) -> Result<Scene> {
    let first = child((agent, way), [], report("continue", "summary-of-round-one", &["Go on"]));
    let hanging = child((agent, way), [long_call()], report("continue", "Never handed in.", &["Nothing"]));
    let again =
        child((agent, way), [shell("echo again >> done")], report("complete", "Done after all.", &[]));
    Scene::new(agent, way, |_| vec![first, hanging, again])
}

fn killed(scene: &Scene) -> Result<()> {
    let mut running = scene.start_run(OBJECTIVE, 5, &[])?;
    wait_for_tool(scene, &mut running)?;
    running.kill()?;
    let Said { status, .. } = running.end()?;
    ensure!(status == -9, "the runner ended with {status} before it could be killed");
    ensure!(scene.nothing_is_left().is_err(), "this proves nothing: the killed runner left nothing");
    let left = processes::alive(scene.root());
    let runs = scene.runs()?;
    scene.say(&["resume", &runs[0]])?.with_status(0)?;
    let still: Vec<_> = processes::alive(scene.root()).into_iter().filter(|one| left.contains(one)).collect();
    ensure!(still.is_empty(), "processes of the killed runner are alive: {still:?}");
    let abandoned = asked(scene, 2)?;
    ensure!(abandoned.iter().all(|one| one.ending.is_some()), "the abandoned child is still talking");
    let again = &asked(scene, 3)?[0];
    let opening = again.question().context("it asks the model")?.opening();
    ensure!(
        opening.contains("heliotrope") && opening.contains("summary-of-round-one"),
        "not the same round again"
    );
    let run = scene.only_run()?;
    ensure!(run["outcome"] == "complete" && rounds(&run)?.len() == 2, "not two rounds to the end: {run:#}");
    ensure!(
        run["resumptions"] == 1 && run["attempts"] == 3,
        "not taken up once with one more attempt: {run:#}"
    );
    ensure!(fs::read_to_string(scene.file("done"))? == "again\n", "the last child worked more than once");
    Ok(())
}
