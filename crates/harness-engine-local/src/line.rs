//! One line of a journal.

use serde::{Deserialize, Serialize};

use crate::journal::{Entry, Record};

const VERSION: u32 = 1;
const CHECKSUM_KEY: &[u8] = b",\"crc32\":\"";
const CHECKSUM_END: &[u8] = b"\"}\n";
const CHECKSUM_DIGITS: usize = 8;

#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    seq: u64,
    time: u64,
    #[serde(flatten)]
    entry: &'a Entry,
}

/// Adds the line of an entry to `lines`.
pub(crate) fn encode(lines: &mut Vec<u8>, sequence: u64, time_ms: u64, entry: &Entry) {
    let start = lines.len();
    let line = Line { v: VERSION, seq: sequence, time: time_ms, entry };
    serde_json::to_writer(&mut *lines, &line).expect("entries have text keys only");
    let checksum = crc32fast::hash(&lines[start..]);
    // The checksum becomes the last key of the object.
    lines.pop();
    lines.extend_from_slice(CHECKSUM_KEY);
    lines.extend_from_slice(format!("{checksum:08x}").as_bytes());
    lines.extend_from_slice(CHECKSUM_END);
}

/// Reads the line that must have the number `sequence`, or says what is wrong with it.
pub(crate) fn parse(line: &[u8], sequence: u64) -> Result<Record, String> {
    let (object, checksum) = split(line).ok_or("it has no checksum")?;
    let mut object = object.to_vec();
    object.push(b'}');
    if format!("{:08x}", crc32fast::hash(&object)).as_bytes() != checksum {
        return Err("its checksum is another".to_owned());
    }
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    let version: Version = serde_json::from_slice(&object).map_err(|error| error.to_string())?;
    if version.v != VERSION {
        return Err(format!("its format has version {}, this program reads {VERSION}", version.v));
    }
    let record: Record = serde_json::from_slice(&object).map_err(|error| error.to_string())?;
    if record.sequence != sequence {
        return Err(format!("it has the number {}", record.sequence));
    }
    Ok(record)
}

/// Takes a line apart into the object without its end and the checksum.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_suffix(CHECKSUM_END)?;
    let (rest, checksum) = rest.split_at_checked(rest.len().checked_sub(CHECKSUM_DIGITS)?)?;
    Some((rest.strip_suffix(CHECKSUM_KEY)?, checksum))
}

#[cfg(test)]
mod tests {
    use harness_workflow::{RunError, RunResult};
    use serde_json::json;

    use super::*;
    use crate::journal::{Answer, CallFingerprint};

    #[test]
    fn every_kind_of_entry_survives_its_line() {
        let fingerprint = CallFingerprint { prompt: "abc".into(), terms: None };
        let nested = (1..100).fold(json!(0.1), |inner, _| json!({ "in": inner }));
        let entries = [
            Entry::RunStarted { request: "abc".into() },
            Entry::RunResumed,
            Entry::Phase { title: "one\ntwo".into() },
            Entry::Log { message: String::new() },
            Entry::Checkpoint { value: json!(null) },
            Entry::AgentStarted {
                call: 1,
                attempt: 2,
                label: "l".into(),
                phase: Some("p".into()),
                fingerprint,
            },
            Entry::AgentSpawned { call: u64::MAX, attempt: 1, child: "c".into() },
            Entry::AgentEnded { call: 1, attempt: 1, answer: Answer::Value(nested), end: None },
            Entry::AgentEnded {
                call: 1,
                attempt: 1,
                answer: Answer::Value(json!([
                    -0.0,
                    1.7976931348623157e308,
                    5e-324,
                    u64::MAX,
                    i64::MIN,
                    null
                ])),
                end: None,
            },
            Entry::CancelRequested { reason: "enough".into() },
            Entry::RunFinished {
                result: RunResult::cancelled(RunError::cancelled("x")).with_checkpoint(Some(json!(null))),
            },
        ];
        for entry in entries {
            let mut line = Vec::new();
            encode(&mut line, 7, 1234, &entry);
            assert!(serde_json::from_slice::<serde_json::Value>(&line).is_ok(), "a line is JSON");
            assert_eq!(parse(&line, 7).unwrap(), Record::new(7, 1234, entry));
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let mut line = Vec::new();
        encode(&mut line, 1, 1234, &Entry::Log { message: "said".into() });
        for index in 0..line.len() {
            let mut changed = line.clone();
            changed[index] ^= 1;
            assert!(parse(&changed, 1).is_err(), "{index}");
        }
        assert!(parse(&line, 2).unwrap_err().contains("number 1"));
        assert!(parse(b"\n", 1).is_err());
    }
}
