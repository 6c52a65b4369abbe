use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use harness_engine_local::{Answer, AttemptHistory, CallHistory, RunHistory, RunState};
use ralph_report::{Limits, RoundReport};
use serde_json::{Value, json};

use crate::arguments::ShowArguments;
use crate::exit::{Exit, Failure};
use crate::launch::Launch;
use crate::outcome::write_report;
use crate::runs::{objective, outcome_name, overview, state_name};
use crate::shown::{self, BAD, BOLD, DIM};
use crate::state::State;
use crate::workspace_state::RoundStart;
use crate::{output, typed};

/// `ralph-loop show`.
pub(crate) fn show(arguments: &ShowArguments) -> Result<Exit, Failure> {
    let state = State::open()?;
    let run = state.find(&arguments.run)?;
    let history = RunHistory::read(&**state.journals(), &run)?;
    // A run of which only the journal is left can still be shown.
    let launch = state.launch(&run).ok();
    let starts = state.round_starts(&run);
    let folder = state.calls().join(run.as_str());
    if arguments.display.json {
        let mut shown = overview(&run, &history);
        shown["launch"] = json!(launch);
        shown["transcripts"] = json!(folder);
        if let RunState::Finished(result) = &history.state {
            shown["error"] = json!(result.error());
        }
        let rounds = history.calls.iter();
        shown["rounds"] = rounds.map(|(number, call)| round_json(*number, call, &starts)).collect();
        output::json(&shown)?;
        return Ok(Exit::Complete);
    }
    let page = page(run.as_str(), &history, launch.as_ref(), &starts);
    output::print(&page.expect("a text takes all that is written to it"))?;
    Ok(Exit::Complete)
}

fn round_json(number: u64, call: &CallHistory, starts: &[RoundStart]) -> Value {
    let attempts = call.attempts.iter().map(|attempt| {
        json!({
            "attempt": attempt.attempt,
            "startedMs": attempt.started_ms,
            "endedMs": attempt.ended_ms,
            "workspace": RoundStart::find(starts, number, attempt.attempt).map(|start| &start.workspace),
            "pid": attempt.child.as_ref().and_then(harness_provider_cli::pid_of),
            "child": attempt.child,
            "end": attempt.end,
        })
    });
    json!({ "round": number, "report": value(call), "attempts": attempts.collect::<Vec<_>>() })
}

fn page(
    run: &str,
    history: &RunHistory,
    launch: Option<&Launch>,
    starts: &[RoundStart],
) -> Result<String, std::fmt::Error> {
    let mut page = String::new();
    let mut fact = |name: &str, value: &str| {
        let text = shown::wrapped(value, &format!("{name:<11}"), "           ");
        writeln!(page, "{}", text.replacen(name, &format!("{BOLD}{name}{BOLD:#}"), 1))
    };
    fact("run", run)?;
    fact("state", format!("{} {}", state_name(history), outcome_name(history)).trim_end())?;
    if let Some(reason) = &history.cancel_reason {
        fact("cancelled", reason)?;
    }
    let lasted = Duration::from_millis(history.updated_ms.saturating_sub(history.started_ms));
    let age = shown::age(shown::since(history.started_ms));
    let lasted = shown::duration(lasted);
    let started = match &history.state {
        RunState::Finished(_) => format!("{age} ago, and lasted {lasted}"),
        RunState::Running => format!("{age} ago"),
        _ => format!("{age} ago, and was heard of for {lasted}"),
    };
    fact("started", &started)?;
    if history.resumptions > 0 {
        fact("taken up", &format!("{} after an interruption", times(history.resumptions)))?;
    }
    if let Some(used) = shown::usage(history.usage()) {
        fact("used", &used)?;
    }
    fact("workspace", &shown::path(Path::new(&history.request.parent.workspace)))?;
    if let Some(launch) = launch {
        fact("agent", &launch.agent.told())?;
        fact("it may", &launch.agent.permissions_in_words())?;
        fact(
            "limits",
            &format!(
                "{}; {} a round, {} of silence",
                shown::rounds(launch.max_rounds),
                shown::exact(launch.round_limit()),
                shown::exact(launch.idle_limit())
            ),
        )?;
    }
    if let Some(earlier) = history.request.args.pointer("/handoff/run").and_then(Value::as_str) {
        fact("goes on", &format!("from run {earlier}"))?;
    }
    fact("objective", &beginning(objective(history)))?;

    for (number, call) in &history.calls {
        page.push('\n');
        let is_over = matches!(history.state, RunState::Finished(_));
        round(&mut page, *number, call, is_over, starts)?;
    }
    if let RunState::Finished(result) = &history.state
        && let Some(error) = result.error()
    {
        writeln!(page, "\n{BAD}{}{BAD:#}", shown::wrapped(error.message(), "", ""))?;
    }
    let short: String = run.chars().take(8).collect();
    let next = match &history.state {
        RunState::Interrupted => Some(format!("resume {short}")),
        RunState::Running => Some(format!("logs {short} --follow")),
        RunState::Finished(_) if outcome_name(history) != "complete" && history.checkpoint.is_some() => {
            Some(format!("continue {short}"))
        }
        _ => None,
    };
    if let Some(next) = next {
        writeln!(page, "\nnext: {BOLD}{}{BOLD:#}", typed::command(&next))?;
    }
    Ok(page)
}

/// The first lines of a text that may be megabytes long.
fn beginning(text: &str) -> String {
    const MOST: usize = 2000;
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…\n({} bytes in all)", &text[..end], text.len()),
    }
}

fn round(
    page: &mut String,
    number: u64,
    call: &CallHistory,
    is_over: bool,
    starts: &[RoundStart],
) -> std::fmt::Result {
    let report = value(call).and_then(|value| RoundReport::from_value(value, &Limits::default()).ok());
    let status = match (&report, &call.answer) {
        (Some(report), _) => report.status().as_str(),
        (None, Some(Answer::Value(_))) => "an invalid report",
        (None, Some(_)) => "no report",
        (None, None) if is_over => "cut short",
        (None, None) => "not ended",
    };
    writeln!(page, "{BOLD}round {number}{BOLD:#}  {status}")?;
    if let Some(report) = &report {
        write_report(page, report, "  ")?;
    } else if let Some(value) = value(call) {
        writeln!(page, "{}", shown::wrapped(&beginning(&format!("{value:#}")), "  ", "  "))?;
    }
    let last = call.attempts.last().map(|attempt| attempt.attempt);
    for attempt in &call.attempts {
        let missing_end = match is_over {
            _ if last != Some(attempt.attempt) => "lost with its runner",
            true => "ended with the run",
            false => "no end is recorded",
        };
        let text = shown::wrapped(
            &attempt_line(attempt, missing_end, RoundStart::find(starts, number, attempt.attempt)),
            "  ",
            "    ",
        );
        writeln!(page, "{DIM}{text}{DIM:#}")?;
    }
    Ok(())
}

/// How one attempt went: `attempt 1: completed in 3.2s, 12.3k tokens, process 4711`.
fn attempt_line(attempt: &AttemptHistory, missing_end: &str, start: Option<&RoundStart>) -> String {
    let mut line = format!("attempt {}: ", attempt.attempt);
    let reason = attempt.end.as_ref().and_then(|end| end.stop_reason.as_ref());
    line.push_str(match (reason, attempt.ended_ms) {
        (Some(reason), _) => reason.as_str(),
        (None, Some(_)) => "ended",
        (None, None) => missing_end,
    });
    if let Some(ended) = attempt.ended_ms {
        let took = Duration::from_millis(ended.saturating_sub(attempt.started_ms));
        line.push_str(&format!(" in {}", shown::duration(took)));
    }
    if let Some(usage) = attempt.end.as_ref().and_then(|end| end.usage) {
        line.push_str(&format!(
            ", {} tokens in ({} from a cache), {} out",
            usage.input_tokens, usage.cached_input_tokens, usage.output_tokens
        ));
        if let Some(micros) = usage.cost_usd_micros {
            line.push_str(&format!(", {}", shown::dollars(micros)));
        }
    }
    if let Some(start) = start {
        line.push_str(&format!(", began at {}", start.workspace.told()));
    }
    if let Some(pid) = attempt.child.as_ref().and_then(harness_provider_cli::pid_of) {
        line.push_str(&format!(", process {pid}"));
    }
    if let Some(diagnostic) = attempt.end.as_ref().and_then(|end| end.diagnostic.as_ref()) {
        line.push_str(&format!("; {}", shown::one_line(diagnostic.message(), 400)));
    }
    line
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

fn value(call: &CallHistory) -> Option<&Value> {
    match &call.answer {
        Some(Answer::Value(value)) => Some(value),
        _ => None,
    }
}
