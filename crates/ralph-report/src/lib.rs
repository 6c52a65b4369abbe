//! The round report of a Ralph loop: its schema, its validator, its size measure and its violations.
//!
//! In a Ralph loop one fresh child after the other works on the same objective, and each ends its round with a
//! report: five fields that say where things stand. The loop acts on nothing else, so a report is either exactly
//! right or refused. This crate decides which, and says why.
//!
//! It only judges. It does no I/O, needs no runtime, and never repairs a report: nothing is trimmed, dropped or filled
//! in on the way. Running a loop, or a child, is for other crates.
//!
//! Depend on it if your plugin is handed a round report, makes one, or shows one.
//!
//! # Validate a report
//!
//! [`RoundReport::parse`] takes the text as it came, as bytes or as `&str`, and gives a report or every reason why it
//! is none:
//!
//! ```
//! use ralph_report::{InvalidReport, Limits, Outcome, RoundReport};
//!
//! /// Says what a child's answer means, in a line for people or in as many as it takes for the child.
//! fn receive(answer: &[u8]) -> Result<String, String> {
//!     match RoundReport::parse(answer, &Limits::default()) {
//!         Ok(report) => Ok(match report.outcome() {
//!             Outcome::Continue { next_steps } => format!("next: {}", next_steps[0]),
//!             Outcome::Complete { evidence } => format!("done: {}", evidence.join(", ")),
//!             Outcome::Blocked { blocker } => format!("stuck: {blocker}"),
//!         }),
//!         Err(refusal) => Err(correction(&refusal)),
//!     }
//! }
//!
//! /// Tells the child what to correct. `answer` is untouched, should you want to show it too.
//! fn correction(refusal: &InvalidReport) -> String {
//!     let mut text = String::from("Your report was not accepted. Send it again, corrected:\n");
//!     for violation in refusal.violations() {
//!         text.push_str(&format!("- {violation}\n"));
//!     }
//!     text
//! }
//!
//! let answer = br#"{
//!     "status": "complete",
//!     "summary": "Ported the parser.",
//!     "evidence": ["cargo test: 214 passed"],
//!     "nextSteps": [],
//!     "blocker": ""
//! }"#;
//! assert_eq!(receive(answer).unwrap(), "done: cargo test: 214 passed");
//!
//! let answer = br#"{"status": "complete", "summary": "Ported the parser. ", "evidence": "all of it", "nextSteps": []}"#;
//! assert_eq!(
//!     receive(answer).unwrap_err(),
//!     "Your report was not accepted. Send it again, corrected:\n\
//!      - /summary ends with white space (U+0020): remove it\n\
//!      - /evidence is a string: give an array of strings, [] for none\n\
//!      - /blocker is missing: give a string, \"\" unless the status is blocked\n",
//! );
//! ```
//!
//! If your plugin already holds a [`serde_json::Value`], there is [`RoundReport::from_value`]. If it only wants the
//! verdict, [`RoundReportRef`] borrows from the input instead of copying it.
//!
//! # What a report says
//!
//! An object with exactly five keys:
//!
//! | key | | `continue` | `complete` | `blocked` |
//! |---|---|---|---|---|
//! | `status` | one of the three words | | | |
//! | `summary` | a text, not empty | | | |
//! | `evidence` | a list of texts, none of them empty | | at least one | |
//! | `nextSteps` | a list of texts, none of them empty | at least one | none | |
//! | `blocker` | a text | `""` | `""` | not empty |
//!
//! No text may start or end with [white space](text::is_blank); inside of a text anything goes. And the whole of it,
//! written as compact JSON, has at most [16384 UTF-16 code units](Limits::max_report_chars), whatever spelling it
//! came in.
//!
//! # Two orders, and which one you want
//!
//! The rules are the same, but there are two places in a loop where they are judged, and they go about it in different
//! orders. The order decides which violation comes first, and with it the [category](InvalidReport::category).
//!
//! - **The loop's**: [`parse`](RoundReport::parse) and [`from_value`](RoundReport::from_value). Each rule has a name of
//!   its own. *This is the one you want* in a plugin that receives a report from whoever wrote it.
//! - **The consumer's**: [`parse_as`](RoundReport::parse_as) and [`from_value_as`](RoundReport::from_value_as). For a
//!   caller who decodes what a finished loop returned and knows from the outcome around the report which status it must
//!   have. Keys and status come first, and all about shape is one category, `malformed-report`.
//!
//! | | the loop | the consumer |
//! |---|---|---|
//! | 1 | no object: `not-an-object` | no object, missing or unknown keys, another status than expected, then the shape of each field: `malformed-report` |
//! | 2 | `summary-not-normalized` | |
//! | 3 | `list-not-normalized` | |
//! | 4 | `blocker-not-normalized` | |
//! | 5 | `continue-needs-next-steps`, `complete-needs-evidence`, `blocked-needs-blocker`, `status-invalid` | the first three of these |
//! | 6 | `unknown-key` | |
//! | 7 | `handoff-oversized` | `handoff-oversized` |
//!
//! Where a rule cannot be judged because an earlier one left nothing to judge, it is left out: a list that is no list
//! is not held to have items, and a report whose fields lack their types has no length.
//!
//! # What becomes of hostile input
//!
//! A text is bounded before anything is done with it, by [`Limits`] of their own. Four verdicts come before both orders
//! and stand alone, as such a text does not say anything clearly:
//!
//! | input | verdict |
//! |---|---|
//! | more than [`max_bytes`](Limits::max_bytes) (1 MiB) | `input-oversized` |
//! | more than [`max_depth`](Limits::max_depth) (127) levels of arrays and objects, be it 10^5, closed or not | `nesting-limit` |
//! | nothing, prose, a text cut short, a code fence around the report | `unparsable` |
//! | text behind the document, or a second document | `unparsable` |
//! | a byte order mark in front | `unparsable` |
//! | bytes that are not UTF-8 | `unparsable` |
//! | a NUL or another control character as it is | `unparsable` |
//! | a surrogate without its other half, `"\ud800"`, anywhere | `unparsable` |
//! | a number that is not finite, `1e400` or `NaN`, anywhere | `unparsable` |
//! | a key twice in one object, anywhere and however spelled | `duplicate-key` |
//! | `null`, an array, the report within an array or a string | `not-an-object` |
//! | `"Complete"`, `" complete"`, `{"complete": null}` as a status | `status-invalid` |
//! | `evidence` as a string | `list-not-normalized` |
//! | an item that is a number, `null` or a list | `list-not-normalized` |
//! | a million items | `input-oversized`; under larger limits `handoff-oversized`, or 100 violations and a count of the rest |
//! | NUL escaped, `"\u0000"`, inside a text | accepted, and counts six units |
//! | keys in another order, blanks around tokens, any escapes | accepted: it is the same report |
//!
//! Where two of the first ten apply, the one higher up is the verdict: a text that has a key twice and then breaks off
//! is `unparsable`. Parsing takes memory in proportion to the text, a few dozen bytes for each of its bytes at most.
//! What a violation says is short, with control characters escaped.
//!
//! The verdict does not depend on which features of `serde_json` other crates in the build turn on. To make that so, an
//! object with the single key `$serde_json::private::Number` is taken for the number that it spells.
//!
//! # For other languages, and for models
//!
//! [`schema`] has the report as JSON Schema: one for the model that writes it, one with the whole contract for
//! validators in other languages. With the feature `proptest1` there are strategies for property tests, for valid
//! reports and for reports that break exactly one rule.

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod borrowed;
mod document;
mod given;
mod judge;
mod limits;
mod plain;
mod report;
pub mod schema;
mod status;
#[cfg(feature = "proptest1")]
pub mod strategies;
pub mod text;
mod violation;

pub use borrowed::RoundReportRef;
pub use limits::Limits;
pub use report::{Outcome, RoundReport};
pub use status::Status;
pub use violation::{Field, InvalidReport, Measure, Violation, ViolationKind};

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
