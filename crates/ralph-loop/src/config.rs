use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::arguments::ConfigArguments;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;
use crate::shown::{self, BOLD, DIM};
use crate::{output, run};

/// `ralph-loop config`.
pub(crate) fn config(arguments: &ConfigArguments) -> Result<Exit, Failure> {
    let workspace = run::workspace(&arguments.workspace.workspace)?;
    let settings = Settings::read(&workspace)?;
    let rows = settings.rows();
    if arguments.display.json {
        let files =
            settings.files.iter().map(|(path, is_there)| json!({ "path": path, "present": is_there }));
        let values = rows
            .iter()
            .map(|(name, value, origin)| (name.clone(), json!({ "value": value, "origin": origin })));
        output::json(&json!({
            "workspace": workspace,
            "files": files.collect::<Vec<_>>(),
            "settings": values.collect::<serde_json::Map<_, _>>(),
        }))?;
        return Ok(Exit::Complete);
    }
    output::print(&page(&settings, &rows).expect("a text takes all that is written to it"))?;
    Ok(Exit::Complete)
}

fn page(settings: &Settings, rows: &[(String, Value, String)]) -> Result<String, std::fmt::Error> {
    let origin = |origin: &String| shown::path(Path::new(origin));
    let shown: Vec<_> =
        rows.iter().map(|(name, value, from)| (name, toml_text(value), origin(from))).collect();
    let widest = |widths: &mut dyn Iterator<Item = usize>| widths.max().unwrap_or(0);
    let name_width = widest(&mut shown.iter().map(|(name, ..)| textwrap::core::display_width(name)));
    let value_width =
        widest(&mut shown.iter().map(|(_, value, _)| textwrap::core::display_width(value))).min(48);
    let mut page = String::new();
    for (name, value, origin) in shown {
        let (name, value) = (shown::padded(name, name_width), shown::padded(&value, value_width));
        writeln!(page, "{BOLD}{name}{BOLD:#}  {value}  {DIM}{origin}{DIM:#}")?;
    }
    page.push('\n');
    for (path, is_there) in &settings.files {
        let read = if *is_there { "read" } else { "not there" };
        writeln!(page, "{DIM}{}: {read}{DIM:#}", shown::path(path))?;
    }
    Ok(page)
}

/// A value as it could stand in a file; `-` for none.
fn toml_text(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::Array(values) => {
            format!("[{}]", values.iter().map(Value::to_string).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    };
    harness_process::sanitize(&text).into_owned()
}
