use std::cmp::Reverse;
use std::fmt::Write;
use std::path::Path;

use harness_engine_local::{JournalError, ListedRun, RunHistory, RunState};
use harness_workflow::{RunId, RunStopReason};
use serde_json::{Value, json};
use textwrap::core::display_width;

use crate::arguments::DisplayArguments;
use crate::exit::{Exit, Failure};
use crate::shown::{self, BAD, BOLD};
use crate::state::State;
use crate::stops::TIME_IS_UP;
use crate::{output, typed};

/// `ralph-loop runs`.
pub(crate) fn runs(display: DisplayArguments) -> Result<Exit, Failure> {
    let state = State::open()?;
    let mut runs = RunHistory::read_all(&**state.journals())?;
    runs.sort_by_key(|listed| Reverse(listed.history.as_ref().map_or(0, |history| history.started_ms)));
    if display.json {
        for ListedRun { run, history, .. } in &runs {
            output::json(&match history {
                Ok(history) => overview(run, history),
                Err(error) => json!({ "run": run, "state": "unreadable", "problem": error.to_string() }),
            })?;
        }
    } else if runs.is_empty() {
        output::print(&format!("There are no runs yet. `{}` makes one.\n", typed::command("demo")))?;
    } else {
        let rows = runs.iter().map(|listed| row(&listed.run, listed.history.as_ref()));
        output::print(&table(rows.collect(), shown::terminal_width()))?;
    }
    Ok(Exit::Complete)
}

const COLUMNS: [&str; 7] = ["run", "age", "state", "outcome", "rounds", "workspace", "objective"];

/// One line of the table: its cells, or what is wrong with the run.
struct Row {
    id: String,
    cells: Result<[String; 6], String>,
}

fn row(run: &RunId, history: Result<&RunHistory, &JournalError>) -> Row {
    let id = run.as_str().chars().take(8).collect();
    let cells = history.map_err(|error| shown::one_line(&error.to_string(), 200)).map(|history| {
        let workspace = shown::path(Path::new(&history.request.parent.workspace));
        [
            shown::age(shown::since(history.started_ms)),
            state_name(history).to_owned(),
            outcome_name(history),
            history.agents_started().to_string(),
            shown::one_line(&workspace, usize::MAX),
            shown::one_line(objective(history), 400),
        ]
    });
    Row { id, cells }
}

/// Makes the table: every column as wide as it needs, the workspace and the objective as far as there is room.
fn table(rows: Vec<Row>, width: usize) -> String {
    const GAP: usize = 2;
    const LEAST_OBJECTIVE: usize = 20;
    const MOST_WORKSPACE: usize = 24;
    let mut widths: [usize; 7] = std::array::from_fn(|column| COLUMNS[column].len());
    for row in &rows {
        widths[0] = widths[0].max(display_width(&row.id));
        if let Ok(cells) = &row.cells {
            for (width, cell) in widths[1..].iter_mut().zip(cells) {
                *width = display_width(cell).max(*width);
            }
        }
    }
    let fixed: usize = widths[..5].iter().map(|width| width + GAP).sum();
    let room = width.saturating_sub(fixed);
    widths[5] =
        widths[5].min(MOST_WORKSPACE).min(room.saturating_sub(LEAST_OBJECTIVE + GAP)).max(COLUMNS[5].len());
    let objective = room.saturating_sub(widths[5] + GAP).max(LEAST_OBJECTIVE);

    let mut text = String::new();
    let add = |text: &mut String, cells: [&str; 7], style: anstyle::Style| {
        let mut line = String::new();
        for (column, cell) in cells.into_iter().enumerate() {
            let cell = match column {
                5 => shown::cut_front(cell, widths[5]),
                6 => shown::cut(cell, objective),
                _ => cell.to_owned(),
            };
            let blank = " ".repeat(widths[column].saturating_sub(display_width(&cell)));
            // Numbers to the right, texts to the left.
            line.push_str(&if matches!(column, 1 | 4) { blank + &cell } else { cell + &blank });
            line.push_str("  ");
        }
        writeln!(text, "{style}{}{style:#}", line.trim_end())
            .expect("a text takes all that is written to it");
    };
    add(&mut text, COLUMNS, BOLD);
    for row in &rows {
        match &row.cells {
            Ok([age, state, outcome, rounds, workspace, objective]) => {
                add(
                    &mut text,
                    [&row.id, age, state, outcome, rounds, workspace, objective],
                    anstyle::Style::new(),
                );
            }
            // What is wrong goes across the columns that it has nothing for.
            Err(problem) => {
                let line = format!(
                    "{}  {}  unreadable: {problem}",
                    shown::padded(&row.id, widths[0]),
                    " ".repeat(widths[1])
                );
                writeln!(text, "{BAD}{}{BAD:#}", shown::cut(&line, width))
                    .expect("a text takes all that is written to it");
            }
        }
    }
    text
}

/// What there is to say of a run without its rounds.
pub(crate) fn overview(run: &RunId, history: &RunHistory) -> Value {
    json!({
        "run": run,
        "state": state_name(history),
        "outcome": outcome_name(history),
        "startedMs": history.started_ms,
        "updatedMs": history.updated_ms,
        "roundsStarted": history.agents_started(),
        "attempts": history.attempts(),
        "resumptions": history.resumptions,
        "cancelReason": history.cancel_reason,
        "workspace": history.request.parent.workspace,
        "objective": objective(history),
        "usage": history.usage(),
    })
}

pub(crate) fn state_name(history: &RunHistory) -> &'static str {
    match &history.state {
        RunState::Running => "running",
        RunState::Interrupted => "interrupted",
        RunState::Finished(_) => "ended",
        _ => "unknown",
    }
}

/// The loop's own status of a run that completed; how it ended, of any other.
pub(crate) fn outcome_name(history: &RunHistory) -> String {
    let RunState::Finished(result) = &history.state else { return String::new() };
    match result.value() {
        Some(value) => value["status"].as_str().unwrap_or("unknown").to_owned(),
        None if result.stop_reason() == RunStopReason::Cancelled => {
            if history.cancel_reason.as_deref() == Some(TIME_IS_UP) { "deadline" } else { "cancelled" }
                .to_owned()
        }
        None => result.error().map_or_else(String::new, |error| error.code().to_string()),
    }
}

pub(crate) fn objective(history: &RunHistory) -> &str {
    history.request.args["objective"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stay_aligned_under_wide_characters_and_fit_the_width() {
        let cells = |workspace: &str, objective: &str| {
            ["5m", "ended", "complete", "12", workspace, objective].map(str::to_owned)
        };
        let rows = vec![
            Row {
                id: "3f2a0000".into(),
                cells: Ok(cells("/a/漢字の長い長い長い長い道", "修正する 😀 すべてのテストを通す")),
            },
            Row {
                id: "4f2a0000".into(),
                cells: Ok(cells("~/work", "make the tests pass, and then some more of it")),
            },
            Row { id: "5f2a0000".into(), cells: Err("line 3 is not as it was written".into()) },
        ];
        let text = table(rows, 90);
        let plain = anstream::adapter::strip_str(&text).to_string();
        let lines: Vec<&str> = plain.lines().collect();
        let column = |line: &str, cell: &str| display_width(&line[..line.find(cell).unwrap()]);
        assert!(lines.iter().all(|line| display_width(line) <= 90), "{plain}");
        assert_eq!(column(lines[0], "objective"), column(lines[1], "修正"));
        assert_eq!(column(lines[0], "objective"), column(lines[2], "make"));
        assert_eq!(column(lines[0], "workspace"), column(lines[2], "~/work"));
        assert!(lines[1].contains("…"), "{plain}");
        assert!(lines[3].starts_with("5f2a0000") && lines[3].contains("line 3"), "{plain}");
    }
}
