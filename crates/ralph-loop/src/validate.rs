use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use ralph_report::{InvalidReport, Limits, RoundReport};
use serde_json::json;

use crate::arguments::{SchemaArguments, ValidateArguments, WhichSchema};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::shown::{self, BAD, GOOD};

/// The longest line or file that is read: longer ones are refused unread.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// `ralph-loop validate`.
pub(crate) fn validate(arguments: &ValidateArguments) -> Result<Exit, Failure> {
    let limits =
        Limits::default().with_max_report_chars(usize::try_from(arguments.max_chars).unwrap_or(usize::MAX));
    let mut all_valid = true;
    let mut check = |name: &str, bytes: &[u8]| {
        let verdict = RoundReport::parse(bytes, &limits);
        all_valid &= verdict.is_ok();
        if arguments.display.json {
            return output::json(&match &verdict {
                Ok(report) => json!({
                    "source": name, "valid": true, "status": report.status().as_str(), "length": report.serialized_len(),
                }),
                Err(refusal) => json!({ "source": name, "valid": false, "violations": refusal.violations() }),
            });
        }
        let name = harness_process::sanitize(name);
        let mut text = match &verdict {
            Ok(report) => format!(
                "{name}: {GOOD}valid{GOOD:#}, {}, {} UTF-16 units\n",
                report.status().as_str(),
                report.serialized_len()
            ),
            Err(_) => format!("{name}: {BAD}not valid{BAD:#}\n"),
        };
        for violation in verdict.as_ref().err().into_iter().flat_map(InvalidReport::violations) {
            text.push_str(&shown::wrapped(&violation.to_string(), "  - ", "    "));
            text.push('\n');
        }
        output::print(&text)
    };
    for path in &arguments.files {
        let name = path.display().to_string();
        if path == Path::new("-") {
            lines("standard input", io::stdin().lock(), &mut check)?;
        } else {
            let file = std::fs::File::open(path)
                .with_context(|| format!("cannot open {name}"))
                .map_err(Failure::usage)?;
            if path.extension().is_some_and(|extension| extension == "jsonl" || extension == "ndjson") {
                lines(&name, BufReader::new(file), &mut check)?;
            } else {
                check(&name, &bounded(file, &name)?)?;
            }
        }
    }
    Ok(if all_valid { Exit::Complete } else { Exit::InvalidReport })
}

fn lines(
    name: &str,
    mut input: impl BufRead,
    check: &mut impl FnMut(&str, &[u8]) -> io::Result<()>,
) -> Result<(), Failure> {
    for number in 1_u64.. {
        let mut line = Vec::new();
        let read = input.by_ref().take(MAX_BYTES + 1).read_until(b'\n', &mut line);
        if read.with_context(|| format!("cannot read {name}")).map_err(Failure::usage)? == 0 {
            break;
        }
        if line.len() as u64 > MAX_BYTES {
            return Err(too_long(&format!("line {number} of {name}")));
        }
        if !line.trim_ascii().is_empty() {
            check(&format!("{name}:{number}"), line.strip_suffix(b"\n").unwrap_or(&line))?;
        }
    }
    Ok(())
}

fn bounded(file: std::fs::File, name: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {name}"))
        .map_err(Failure::usage)?;
    if bytes.len() as u64 > MAX_BYTES { Err(too_long(name)) } else { Ok(bytes) }
}

fn too_long(name: &str) -> Failure {
    Failure::refuse(format!("{name} is longer than {MAX_BYTES} bytes, and no report is"))
}

/// `ralph-loop schema`.
pub(crate) fn schema(arguments: &SchemaArguments) -> Result<Exit, Failure> {
    let schema = match arguments.which {
        WhichSchema::Full => ralph_report::schema::full_schema(),
        WhichSchema::Child => ralph_report::schema::child_schema(),
    };
    output::print(&format!("{schema:#}\n"))?;
    Ok(Exit::Complete)
}
