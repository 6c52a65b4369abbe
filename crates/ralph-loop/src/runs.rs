use std::cmp::Reverse;
use std::fmt::Write;
use std::path::Path;

use harness_engine_local::RunHistory;
use harness_workflow::RunId;
use serde_json::json;
use textwrap::core::display_width;

use crate::account::Account;
use crate::arguments::{DisplayArguments, RunsArguments};
use crate::exit::{Exit, Failure};
use crate::settings::Settings;
use crate::shown::{self, BAD, BOLD};
use crate::state::State;
use crate::temporal::{self, Request};
use crate::{output, typed};

/// `ralph-loop runs`.
pub(crate) fn runs(arguments: &RunsArguments) -> Result<Exit, Failure> {
    if let Some(settings) = Settings::of_temporal(&arguments.engine)? {
        return temporal::carry_out(Request::Runs(arguments.display), settings);
    }
    let state = State::open()?;
    let runs = RunHistory::read_all(&**state.journals())?;
    let runs = runs.into_iter().map(|listed| Listed {
        known: listed
            .history
            .map(|history| Account::of_journal(&listed.run, history))
            .map_err(|error| error.to_string()),
        run: listed.run,
    });
    let nothing = format!("There are no runs yet. `{}` makes one.", typed::command("demo"));
    list(runs.collect(), arguments.display, &nothing)
}

/// A run in the list of all: what is known of it, or why that cannot be read.
pub(crate) struct Listed {
    pub(crate) run: RunId,
    pub(crate) known: Result<Account, String>,
}

/// Prints the runs, the latest first, or for people that there is `nothing`.
pub(crate) fn list(mut runs: Vec<Listed>, display: DisplayArguments, nothing: &str) -> Result<Exit, Failure> {
    runs.sort_by_key(|listed| Reverse(listed.known.as_ref().map_or(0, |account| account.started_ms)));
    if display.json {
        for Listed { run, known } in &runs {
            output::json(&match known {
                Ok(account) => account.overview(),
                Err(problem) => json!({ "run": run, "state": "unreadable", "problem": problem }),
            })?;
        }
    } else if runs.is_empty() {
        output::print(&format!("{nothing}\n"))?;
    } else {
        output::print(&table(runs.iter().map(row).collect(), shown::terminal_width()))?;
    }
    Ok(Exit::Complete)
}

const COLUMNS: [&str; 7] = ["run", "age", "state", "outcome", "rounds", "workspace", "objective"];

/// One line of the table: its cells, or what is wrong with the run.
struct Row {
    id: String,
    cells: Result<[String; 6], String>,
}

fn row(listed: &Listed) -> Row {
    let id = listed.run.as_str().chars().take(8).collect();
    let known = listed.known.as_ref().map_err(|problem| shown::one_line(problem, 200));
    let cells = known.map(|account| {
        let workspace = shown::path(Path::new(&account.request.parent.workspace));
        [
            shown::age(shown::since(account.started_ms)),
            account.state_name().to_owned(),
            account.outcome_name(),
            account.rounds_started().to_string(),
            shown::one_line(&workspace, usize::MAX),
            shown::one_line(account.objective(), 400),
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
