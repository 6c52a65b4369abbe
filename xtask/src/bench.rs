//! `bench`: ours against its anchor, as the benches of the crates measure it.
//!
//! A bench target without the standard harness prints what it likes and ends with one line of JSON:
//! an array of rows. The rows of all benches become one table and `target/bench/summary.json`.
//!
//! Nothing that is measured fails the command: a missed target is a row that says so, and a bench
//! that breaks is a row with its error. Only a name that does not exist is refused.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    args::Args,
    cargo,
    outcome::Outcome,
    workspace::{Crate, Target, Workspace},
};

/// One comparison.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Row {
    what: String,
    ours: Value,
    anchor: Value,
    ratio: Option<f64>,
    /// The smallest and the largest ratio of the sweeps.
    spread: Option<[f64; 2]>,
    /// The ratio to reach: a number is the most that is fine, a text says it otherwise.
    #[serde(default)]
    target: Value,
    /// `None` without a target.
    met: Option<bool>,
    /// Whatever else the bench tells; kept in the summary.
    #[serde(flatten)]
    more: BTreeMap<String, Value>,
}

pub(crate) fn run(mut args: Args, workspace: &Workspace) -> Result<Outcome> {
    let name = args.name();
    args.finish()?;
    let chosen = choose(&workspace.crates, name.as_deref())?;

    let mut rows = Vec::new();
    for (member, target) in chosen {
        match measure(workspace, member, target) {
            Ok(more) => rows.extend(more),
            Err(error) => {
                eprintln!("error: the bench {} of {} broke: {error:#}", target.name, member.name);
                rows.push(broken(member, target, &format!("{error:#}")));
            }
        }
    }

    print!("{}", table(&rows));
    let folder = workspace.target.join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("could not make `{}`", folder.display()))?;
    let path = folder.join("summary.json");
    let text = serde_json::to_string_pretty(&rows).context("could not write the rows")?;
    fs::write(&path, text + "\n").with_context(|| format!("could not write `{}`", path.display()))?;
    println!("rows written to {}", path.display());
    Ok(Outcome::Passed)
}

/// Returns the benches called `name`, or those of the crate called so; all without a name.
fn choose<'a>(crates: &'a [Crate], name: Option<&str>) -> Result<Vec<(&'a Crate, &'a Target)>> {
    let all = || crates.iter().flat_map(|member| member.benches.iter().map(move |target| (member, target)));
    let Some(name) = name else { return Ok(all().collect()) };
    let chosen: Vec<_> =
        all().filter(|(member, target)| member.name == name || target.name == name).collect();
    if chosen.is_empty() {
        let list: Vec<String> =
            all().map(|(member, target)| format!("{} (of {})", target.name, member.name)).collect();
        bail!("no bench is called `{name}`; there are: {}", list.join(", "));
    }
    Ok(chosen)
}

fn measure(workspace: &Workspace, member: &Crate, target: &Target) -> Result<Vec<Row>> {
    let mut command = cargo::cargo(
        &workspace.root,
        ["bench", "--quiet", "--package", &member.name, "--bench", &target.name],
    );
    let last = cargo::last_line(command.args(target.features()))?;
    ensure!(last.success, "it failed; its last line was: {}", last.text.unwrap_or_default());
    read_rows(last.text.as_deref().context("it printed nothing")?)
}

fn read_rows(line: &str) -> Result<Vec<Row>> {
    serde_json::from_str(line).with_context(|| format!("its last line is no array of rows: {line}"))
}

/// The row of a bench that has no rows to show.
fn broken(member: &Crate, target: &Target, error: &str) -> Row {
    Row {
        what: format!("{} of {} BROKE", target.name, member.name),
        ours: Value::Null,
        anchor: Value::Null,
        ratio: None,
        spread: None,
        target: Value::Null,
        met: Some(false),
        more: BTreeMap::from([("error".to_owned(), Value::from(error))]),
    }
}

fn table(rows: &[Row]) -> String {
    let mut lines = vec![["what", "ours", "anchor", "ratio", "spread", "target", "met"].map(str::to_owned)];
    lines.extend(rows.iter().map(cells));
    let mut widths = [0; 7];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (at, (cell, width)) in line.iter().zip(widths).enumerate() {
            // Texts to the left, numbers to the right.
            let padded =
                if matches!(at, 0 | 6) { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            row.push_str(&padded);
            row.push_str("  ");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

fn cells(row: &Row) -> [String; 7] {
    let ratio = |ratio: f64| format!("{ratio:.3}");
    [
        row.what.clone(),
        value(&row.ours),
        value(&row.anchor),
        row.ratio.map_or_else(dash, ratio),
        row.spread.map_or_else(dash, |[least, most]| format!("{least:.3}..{most:.3}")),
        value(&row.target),
        row.met.map_or_else(dash, |met| if met { "yes" } else { "NO" }.to_owned()),
    ]
}

fn dash() -> String {
    "-".to_owned()
}

/// A measured value: a text as the bench wrote it (with its unit), a number with three decimals at most.
fn value(value: &Value) -> String {
    match value {
        Value::Null => dash(),
        Value::String(text) => text.clone(),
        other => match other.as_f64() {
            Some(number) => ((number * 1000.0).round() / 1000.0).to_string(),
            None => other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"[{"what":"parse 600 bytes","ours":1.23456,"anchor":"1.5 µs","ratio":0.8,"spread":[0.7,0.95],"target":1.2,"met":true,"allocations":4},
        {"what":"owned","ours":null,"anchor":null,"ratio":1.5,"spread":[1.4,1.6],"target":null,"met":null}]"#;

    fn member(name: &str, benches: &[&str]) -> Crate {
        Crate {
            name: name.to_owned(),
            benches: benches.iter().map(|name| Target::named(name)).collect(),
            ..Crate::default()
        }
    }

    #[test]
    fn a_last_line_without_rows_is_refused() {
        assert!(read_rows("done").is_err());
        assert!(read_rows(r#"[{"what":"x"}]"#).is_err());
    }

    #[test]
    fn unknown_benches_are_refused_with_the_list() {
        let crates = [member("ralph-report", &["report"])];
        let error = choose(&crates, Some("reprot")).unwrap_err().to_string();
        assert!(error.contains("report (of ralph-report)"), "{error}");
    }

    #[test]
    fn a_name_is_that_of_a_bench_or_of_a_crate() {
        let crates = [member("ralph-report", &["report", "text"]), member("ralph-tool", &["report"])];
        assert_eq!(choose(&crates, Some("report")).unwrap().len(), 2);
        assert_eq!(choose(&crates, Some("ralph-report")).unwrap().len(), 2);
        assert_eq!(choose(&crates, None).unwrap().len(), 3);
    }

    #[test]
    fn the_table_shows_every_row_under_its_heading() {
        let table = table(&read_rows(LINE).unwrap());
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "what              ours  anchor  ratio        spread  target  met");
        assert_eq!(lines[1], "parse 600 bytes  1.235  1.5 µs  0.800  0.700..0.950     1.2  yes");
        assert_eq!(lines[2], "owned                -       -  1.500  1.400..1.600       -  -");
    }

    #[test]
    fn a_broken_bench_is_a_row_that_is_not_met() {
        let crates = [member("ralph-report", &["report"])];
        let row = broken(&crates[0], &crates[0].benches[0], "it failed");
        assert_eq!(row.met, Some(false));
        assert!(table(&[row]).contains("report of ralph-report BROKE"));
    }

    #[test]
    fn the_summary_keeps_what_the_table_leaves_out() {
        let rows = read_rows(LINE).unwrap();
        let summary = serde_json::to_value(&rows).unwrap();
        assert_eq!(summary[0]["allocations"], 4);
        assert_eq!(summary[1]["met"], Value::Null);
    }
}
