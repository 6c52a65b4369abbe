use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use harness_workflow::{RunError, RunId};
use ralph_report::{RoundReport, Status};
use ralph_tool::{Envelope, RalphError, RalphStatus};
use serde_json::json;

use crate::account::Totals;
use crate::arguments::DisplayArguments;
use crate::exit::Exit;
use crate::shown::{self, BAD, BOLD, DIM, GOOD, WARN};
use crate::{output, typed};

/// What is known of a run that is over, beside its outcome.
pub(crate) struct Ending<'a> {
    pub(crate) run: &'a RunId,
    /// How much it was, if that is known.
    pub(crate) totals: Option<Totals>,
    /// Where the files of its rounds are, if they are here.
    pub(crate) files: Option<PathBuf>,
    /// The flags that the next command needs to find the run, each after a blank.
    pub(crate) flags: String,
}

/// Tells how a run ended, and what to type next.
pub(crate) fn tell(
    ending: &Ending<'_>,
    outcome: &Result<Envelope, RalphError>,
    exit: Exit,
    display: DisplayArguments,
) -> io::Result<()> {
    if display.json {
        let mut line = json!({ "event": "outcome", "run": ending.run, "exitStatus": exit.code() });
        if let Some(totals) = &ending.totals {
            line["tookMs"] = json!(u64::try_from(totals.lasted.as_millis()).unwrap_or(u64::MAX));
            line["usage"] = json!(totals.usage);
        }
        match outcome {
            Ok(envelope) => line["result"] = envelope.to_value(),
            Err(error) => line["error"] = json!(RunError::from(error)),
        }
        return output::json(&line);
    }
    output::print(&page(ending, outcome, exit).expect("a text takes all that is written to it"))
}

fn page(
    ending: &Ending<'_>,
    outcome: &Result<Envelope, RalphError>,
    exit: Exit,
) -> Result<String, std::fmt::Error> {
    let mut page = String::from("\n");
    let report = match outcome {
        Ok(envelope) => {
            let result = envelope.result();
            let rounds = shown::rounds(result.rounds_started());
            match result.status() {
                RalphStatus::Complete => {
                    let told = "A worker reported the objective complete";
                    let rest = format!("{told} after {rounds}. Nobody verified it.");
                    let text = shown::wrapped(&rest, "", "");
                    writeln!(page, "{}", text.replacen(told, &format!("{GOOD}{told}{GOOD:#}"), 1))?;
                }
                RalphStatus::Blocked => {
                    writeln!(page, "{BAD}A worker reported a blocker{BAD:#} after {rounds}.")?;
                }
                RalphStatus::BudgetLimited => {
                    writeln!(page, "{WARN}The limit of {rounds} was reached{WARN:#}, with work left.")?;
                }
            }
            Some(result.report())
        }
        Err(error) => {
            let mut told = format!("{error}");
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                write!(told, ": {error}")?;
                cause = error.source();
            }
            writeln!(page, "{BAD}{}{BAD:#}", shown::wrapped(&capitalized(&told), "", ""))?;
            for violation in error.violations().iter().skip(1) {
                writeln!(page, "{}", shown::wrapped(&violation.message, "  - ", "    "))?;
            }
            error.last_report()
        }
    };
    if let Some(report) = report {
        if outcome.is_err() {
            writeln!(page, "\nThe last accepted report:")?;
        }
        write_report(&mut page, report, "  ")?;
    }
    let disposal = match outcome {
        Ok(envelope) => envelope.disposal_error(),
        Err(error) => error.disposal_error(),
    };
    if let Some(error) = disposal {
        writeln!(
            page,
            "{BAD}{}{BAD:#}",
            shown::wrapped(&format!("Not everything of the run is gone: {error}"), "", "")
        )?;
    }

    if let Some(totals) = &ending.totals {
        let used = shown::usage(totals.usage).map_or_else(String::new, |used| format!(", {used}"));
        let rounds = shown::rounds(totals.rounds_started);
        writeln!(
            page,
            "\n{DIM}{rounds}, {}{used}, exit status {}{DIM:#}",
            shown::duration(totals.lasted),
            exit.code()
        )?;
        if let Some(files) = &ending.files {
            writeln!(page, "{DIM}files: {}{DIM:#}", shown::path(files))?;
        }
    }
    writeln!(page, "next: {BOLD}{}{BOLD:#}", next(ending, outcome))?;
    Ok(page)
}

/// The command that makes most sense now.
fn next(ending: &Ending<'_>, outcome: &Result<Envelope, RalphError>) -> String {
    let short: String = ending.run.as_str().chars().take(8).collect();
    let has_logs = ending.files.is_some();
    let command = match outcome {
        Ok(envelope) if envelope.result().status() == RalphStatus::Complete => format!("show {short}"),
        Ok(_) => format!("continue {short}"),
        Err(RalphError::InvalidReport { .. }) => format!("show {short}"),
        Err(error) if error.last_report().is_some() => format!("continue {short}"),
        Err(error) if has_logs && error.run().is_some_and(|run| run.agents_started() > 0) => {
            format!("logs {short}")
        }
        Err(error) if error.run().is_some() => format!("show {short}"),
        Err(_) => return typed::command("run --help"),
    };
    typed::command(&format!("{command}{}", ending.flags))
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

/// Writes a report for people.
pub(crate) fn write_report(page: &mut String, report: &RoundReport, indent: &str) -> std::fmt::Result {
    writeln!(page, "{}", shown::wrapped(report.summary(), indent, indent))?;
    write_list(page, "evidence", report.evidence(), indent)?;
    write_list(page, "next steps", report.next_steps(), indent)?;
    if report.status() == Status::Blocked {
        write_list(page, "blocker", &[report.blocker().to_owned()], indent)?;
    }
    Ok(())
}

fn write_list(page: &mut String, title: &str, items: &[String], indent: &str) -> std::fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    writeln!(page, "{indent}{DIM}{title}{DIM:#}")?;
    for item in items {
        writeln!(page, "{}", shown::wrapped(item, &format!("{indent}- "), &format!("{indent}  ")))?;
    }
    Ok(())
}
