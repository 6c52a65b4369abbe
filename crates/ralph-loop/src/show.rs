use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use harness_engine_local::RunHistory;
use ralph_report::{Limits, RoundReport};
use serde_json::{Value, json};

use crate::account::{Account, Attempt, Round, Standing};
use crate::arguments::ShowArguments;
use crate::exit::{Exit, Failure};
use crate::launch::Launch;
use crate::outcome::write_report;
use crate::settings::Settings;
use crate::shown::{self, BAD, BOLD, DIM};
use crate::state::State;
use crate::temporal::{self, Request};
use crate::workspace_state::RoundStart;
use crate::{output, typed};

/// `ralph-loop show`.
pub(crate) fn show(arguments: ShowArguments) -> Result<Exit, Failure> {
    if let Some(settings) = Settings::of_temporal(&arguments.engine)? {
        return temporal::carry_out(Request::Show(arguments), settings);
    }
    let state = State::open()?;
    let run = state.find(&arguments.run)?;
    let account = Account::of_journal(&run, RunHistory::read(&**state.journals(), &run)?);
    // A run of which only the journal is left can still be shown.
    let launch = state.launch(&run).ok();
    let starts = state.round_starts(&run);
    if arguments.display.json {
        let mut shown = as_json(&account, &starts);
        shown["launch"] = json!(launch);
        shown["transcripts"] = json!(state.calls().join(run.as_str()));
        output::json(&shown)?;
        return Ok(Exit::Complete);
    }
    let facts = launch.as_ref().map(Launch::told).unwrap_or_default();
    let short: String = run.as_str().chars().take(8).collect();
    let next = match &account.standing {
        Standing::Interrupted => Some(format!("resume {short}")),
        Standing::Running => Some(format!("logs {short} --follow")),
        _ => goes_on(&account).then(|| format!("continue {short}")),
    };
    let page = page(&account, &facts, &starts, next.as_deref());
    output::print(&page.expect("a text takes all that is written to it"))?;
    Ok(Exit::Complete)
}

/// Says whether the run can be continued by another one.
pub(crate) fn goes_on(account: &Account) -> bool {
    account.is_over() && account.outcome_name() != "complete" && account.checkpoint.is_some()
}

/// Everything that is known of the run.
pub(crate) fn as_json(account: &Account, starts: &[RoundStart]) -> Value {
    let mut shown = account.overview();
    if let Standing::Ended(result) = &account.standing {
        shown["error"] = json!(result.error());
    }
    let rounds = account.rounds.iter();
    shown["rounds"] = rounds.map(|(number, round)| round_json(*number, round, starts)).collect();
    shown
}

fn round_json(number: u64, round: &Round, starts: &[RoundStart]) -> Value {
    let attempts = round.attempts.iter().map(|attempt| {
        let mut shown = json!({
            "attempt": attempt.attempt,
            "startedMs": attempt.started_ms,
            "endedMs": attempt.ended_ms,
            "workspace": RoundStart::find(starts, number, attempt.attempt).map(|start| &start.workspace),
            "pid": attempt.child.as_ref().and_then(harness_provider_cli::pid_of),
            "child": attempt.child,
            "end": attempt.end,
        });
        if let Some(worker) = &attempt.worker {
            shown["worker"] = json!(worker);
        }
        shown
    });
    json!({ "round": number, "report": round.value, "attempts": attempts.collect::<Vec<_>>() })
}

/// Everything that is known of the run, for people: `facts` are more of it, `next` is what to type now.
pub(crate) fn page(
    account: &Account,
    facts: &[(&'static str, String)],
    starts: &[RoundStart],
    next: Option<&str>,
) -> Result<String, std::fmt::Error> {
    let mut page = String::new();
    let mut fact = |name: &str, value: &str| {
        let text = shown::wrapped(value, &format!("{name:<11}"), "           ");
        writeln!(page, "{}", text.replacen(name, &format!("{BOLD}{name}{BOLD:#}"), 1))
    };
    fact("run", account.run.as_str())?;
    fact("state", format!("{} {}", account.state_name(), account.outcome_name()).trim_end())?;
    if let Some(reason) = &account.cancel_reason {
        fact("cancelled", reason)?;
    }
    let age = shown::age(shown::since(account.started_ms));
    let lasted = shown::duration(account.lasted());
    let started = match &account.standing {
        Standing::Ended(_) => format!("{age} ago, and lasted {lasted}"),
        Standing::Running => format!("{age} ago"),
        _ => format!("{age} ago, and was heard of for {lasted}"),
    };
    fact("started", &started)?;
    if account.resumptions > 0 {
        fact("taken up", &format!("{} after an interruption", times(account.resumptions)))?;
    }
    if let Some(used) = shown::usage(account.usage()) {
        fact("used", &used)?;
    }
    fact("workspace", &shown::path(Path::new(&account.request.parent.workspace)))?;
    for (name, value) in facts {
        fact(name, value)?;
    }
    if let Some(earlier) = account.request.args.pointer("/handoff/run").and_then(Value::as_str) {
        fact("goes on", &format!("from run {earlier}"))?;
    }
    fact("objective", &beginning(account.objective()))?;

    for (number, round) in &account.rounds {
        page.push('\n');
        write_round(&mut page, *number, round, account.is_over(), starts)?;
    }
    if let Standing::Ended(result) = &account.standing
        && let Some(error) = result.error()
    {
        writeln!(page, "\n{BAD}{}{BAD:#}", shown::wrapped(error.message(), "", ""))?;
    }
    if let Some(next) = next {
        writeln!(page, "\nnext: {BOLD}{}{BOLD:#}", typed::command(next))?;
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

fn write_round(
    page: &mut String,
    number: u64,
    round: &Round,
    is_over: bool,
    starts: &[RoundStart],
) -> std::fmt::Result {
    let value = round.value.as_ref();
    let report = value.and_then(|value| RoundReport::from_value(value, &Limits::default()).ok());
    let status = match (&report, value) {
        (Some(report), _) => report.status().as_str(),
        (None, Some(_)) => "an invalid report",
        (None, None) if round.is_answered => "no report",
        (None, None) if is_over => "cut short",
        (None, None) => "not ended",
    };
    writeln!(page, "{BOLD}round {number}{BOLD:#}  {status}")?;
    if let Some(report) = &report {
        write_report(page, report, "  ")?;
    } else if let Some(value) = value {
        writeln!(page, "{}", shown::wrapped(&beginning(&format!("{value:#}")), "  ", "  "))?;
    }
    let last = round.attempts.last().map(|attempt| attempt.attempt);
    for attempt in &round.attempts {
        let missing_end = match is_over {
            _ if attempt.waits => "waits for a worker",
            _ if last != Some(attempt.attempt) => "lost with its runner",
            true => "ended with the run",
            false if attempt.worker.is_some() => "under way",
            false => "no end is recorded",
        };
        let text = shown::wrapped(&attempt_line(attempt, missing_end), "  ", "    ");
        writeln!(page, "{DIM}{text}{DIM:#}")?;
        if let Some(start) = RoundStart::find(starts, number, attempt.attempt) {
            let text = shown::wrapped(&format!("began at {}", start.workspace.told()), "    ", "      ");
            writeln!(page, "{DIM}{text}{DIM:#}")?;
        }
    }
    Ok(())
}

/// How one attempt went: `attempt 1: completed in 3.2s, 12.3k tokens, process 4711`.
fn attempt_line(attempt: &Attempt, missing_end: &str) -> String {
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
    if let Some(pid) = attempt.child.as_ref().and_then(harness_provider_cli::pid_of) {
        line.push_str(&format!(", process {pid}"));
    }
    if let Some(worker) = &attempt.worker {
        line.push_str(&format!(", on {}", shown::one_line(worker, 100)));
    }
    if let Some(diagnostic) = attempt.end.as_ref().and_then(|end| end.diagnostic.as_ref()) {
        line.push_str(&format!("; {}", shown::one_line(diagnostic.message(), 400)));
    }
    line
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
