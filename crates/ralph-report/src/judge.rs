//! The rules about a report, in both of the orders in which they are judged.

use std::borrow::Cow;

use crate::{
    Field, InvalidReport, Limits, RoundReportRef, Status, ViolationKind,
    document::Node,
    given::Given,
    plain::read_plain,
    text,
    violation::{Findings, Measure, Step},
};

/// In which order, and under which names, the rules are judged.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// As the loop judges what a child reports: each rule by its own name, the status after the texts, unknown keys
    /// near the end.
    Loop,
    /// As a caller of the loop judges a report it got back, when it knows which status it must have: keys and status
    /// first, and all about shape under one name.
    Consumer(Status),
}

impl Order {
    /// Returns the name that a rule about shape goes by.
    const fn shape(self, kind: ViolationKind) -> ViolationKind {
        match self {
            Self::Loop => kind,
            Self::Consumer(_) => ViolationKind::MalformedReport,
        }
    }
}

/// Reads a text and judges it.
pub(crate) fn judge_text<'a>(
    text: &'a [u8],
    order: Order,
    limits: &Limits,
) -> Result<RoundReportRef<'a>, InvalidReport> {
    // The quick way descends two levels and builds nothing but the fields of a report.
    let may_be_plain = text.len() <= limits.max_bytes() && limits.max_depth() >= 2;
    if may_be_plain
        && let Some(report) = read_plain(text)
        && obeys(&report, order, limits)
    {
        // There are two ways to say yes, and they must not differ.
        debug_assert!(Node::parse(text, limits).and_then(|node| judge(node, order, limits)).is_ok());
        return Ok(report);
    }
    judge(Node::parse(text, limits)?, order, limits)
}

/// Returns whether no rule is broken. Which one is, and where, is for [`judge`] to say.
fn obeys(report: &RoundReportRef<'_>, order: Order, limits: &Limits) -> bool {
    let RoundReportRef { status, summary, evidence, next_steps, blocker } = report;
    let is_list = |items: &[Cow<'_, str>]| items.iter().all(|item| text::is_normalized(item));
    let has_what_its_status_asks_for = match status {
        Status::Continue => !next_steps.is_empty() && blocker.is_empty(),
        Status::Complete => !evidence.is_empty() && next_steps.is_empty() && blocker.is_empty(),
        Status::Blocked => !blocker.is_empty(),
    };
    let has_expected_status = match order {
        Order::Loop => true,
        Order::Consumer(expected) => *status == expected,
    };
    has_expected_status
        && has_what_its_status_asks_for
        && text::is_normalized(summary)
        && is_list(evidence)
        && is_list(next_steps)
        && text::is_trimmed(blocker)
        && report.serialized_len() <= limits.max_report_chars()
}

/// Judges a document. Nothing in it is changed on the way into the report.
pub(crate) fn judge<'a>(
    document: Node<'a>,
    order: Order,
    limits: &Limits,
) -> Result<RoundReportRef<'a>, InvalidReport> {
    let entries = match document {
        Node::Object(entries) => entries,
        other => {
            let complaint = format!("is {}: send an object with the keys {KEYS}", other.what());
            let kind = order.shape(ViolationKind::NotAnObject);
            return Err(InvalidReport::whole(kind, Some(Field::Object), &complaint));
        }
    };
    let given = Given::new(entries);
    let mut bench = Bench { given: &given, order, findings: Findings::default() };
    match order {
        Order::Loop => {
            bench.judge_shape();
            match given.status() {
                Some(status) => bench.judge_status_rules(status),
                None => bench.refuse_status(),
            }
            bench.judge_unknown_keys();
        }
        Order::Consumer(expected) => {
            bench.judge_missing_keys();
            bench.judge_unknown_keys();
            let as_expected = bench.judge_expected_status(expected);
            bench.judge_shape();
            if as_expected {
                bench.judge_status_rules(expected);
            }
        }
    }
    bench.judge_size(limits.max_report_chars());
    match bench.findings.into_refusal() {
        Some(refusal) => Err(refusal),
        None => Ok(given.into_report()),
    }
}

const KEYS: &str = "status, summary, evidence, nextSteps and blocker";

/// Where the judging is done: each method judges a group of rules and adds what it finds.
struct Bench<'g, 'a> {
    given: &'g Given<'a>,
    order: Order,
    findings: Findings,
}

impl Bench<'_, '_> {
    fn judge_missing_keys(&mut self) {
        for (field, value) in self.given.fields() {
            if value.is_none() {
                self.findings.add(ViolationKind::MalformedReport, Field::Keys, &[key(field)], || {
                    format!("is missing: give each of the keys {KEYS}")
                });
            }
        }
    }

    fn judge_unknown_keys(&mut self) {
        for unknown in &self.given.unknown {
            let kind = self.order.shape(ViolationKind::UnknownKey);
            self.findings.add_key(kind, unknown, || {
                format!("has the unknown key {}: give the keys {KEYS}, and no others", quoted(unknown))
            });
        }
    }

    /// Returns whether the status is the expected one.
    fn judge_expected_status(&mut self, expected: Status) -> bool {
        let given = &self.given.status;
        let as_expected = self.given.status() == Some(expected);
        if let (Some(status), false) = (given, as_expected) {
            self.findings.add(ViolationKind::MalformedReport, Field::Status, &[key(Field::Status)], || {
                format!("is {}: only \"{expected}\" is accepted here", shown(status))
            });
        }
        as_expected
    }

    fn refuse_status(&mut self) {
        let found = self.given.status.as_ref().map_or(Cow::Borrowed("missing"), shown);
        self.findings.add(ViolationKind::StatusInvalid, Field::Status, &[key(Field::Status)], || {
            format!("is {found}: give \"continue\", \"complete\" or \"blocked\", in lower case")
        });
    }

    /// Judges the four fields beside the status: there, of their types and normalized.
    fn judge_shape(&mut self) {
        let given = self.given;
        self.judge_text(given.summary.as_ref(), Field::Summary, ViolationKind::SummaryNotNormalized);
        self.judge_list(given.evidence.as_ref(), Field::Evidence);
        self.judge_list(given.next_steps.as_ref(), Field::NextSteps);
        self.judge_text(given.blocker.as_ref(), Field::Blocker, ViolationKind::BlockerNotNormalized);
    }

    fn judge_text(&mut self, value: Option<&Node<'_>>, field: Field, kind: ViolationKind) {
        let kind = self.order.shape(kind);
        let place = [key(field)];
        let remedy = match field {
            Field::Blocker => "give a string, \"\" unless the status is blocked",
            _ => "give a string that is not empty",
        };
        match value {
            Some(Node::Text(text)) if text.is_empty() && field != Field::Blocker => {
                self.findings.add(kind, field, &place, || format!("is empty: {remedy}"));
            }
            Some(Node::Text(text)) => self.judge_edges(text, kind, field, &place),
            Some(other) => {
                let found = other.what();
                self.findings.add(kind, field, &place, || format!("is {found}: {remedy}"));
            }
            None => self.judge_absence(kind, field, remedy),
        }
    }

    fn judge_list(&mut self, value: Option<&Node<'_>>, field: Field) {
        const REMEDY: &str = "give an array of strings, [] for none";

        let kind = self.order.shape(ViolationKind::ListNotNormalized);
        match value {
            Some(Node::Texts(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.judge_item(item, index, kind, field);
                }
            }
            Some(Node::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    match item {
                        Node::Text(item) => self.judge_item(item, index, kind, field),
                        other => self.findings.add(kind, field, &[key(field), Step::Item(index)], || {
                            format!("is {}: give a string that is not empty", other.what())
                        }),
                    }
                }
            }
            Some(other) => {
                self.findings.add(kind, field, &[key(field)], || format!("is {}: {REMEDY}", other.what()));
            }
            None => self.judge_absence(kind, field, REMEDY),
        }
    }

    fn judge_item(&mut self, item: &str, index: usize, kind: ViolationKind, field: Field) {
        let place = [key(field), Step::Item(index)];
        if item.is_empty() {
            self.findings
                .add(kind, field, &place, || "is empty: give a string that is not, or leave it out".into());
        } else {
            self.judge_edges(item, kind, field, &place);
        }
    }

    fn judge_edges(&mut self, given: &str, kind: ViolationKind, field: Field, place: &[Step<'_>]) {
        if text::is_trimmed(given) {
            return;
        }
        self.findings.add(kind, field, place, || {
            let blank = |c: Option<char>| c.filter(|c| text::is_blank(*c)).map(u32::from);
            match (blank(given.chars().next()), blank(given.chars().next_back())) {
                (Some(first), Some(last)) => {
                    format!("starts and ends with white space (U+{first:04X}, U+{last:04X}): remove it")
                }
                (Some(first), None) => format!("starts with white space (U+{first:04X}): remove it"),
                (None, last) => {
                    format!("ends with white space (U+{:04X}): remove it", last.unwrap_or_default())
                }
            }
        });
    }

    /// Refuses a field that is not there, unless its absence was already held against the set of keys.
    fn judge_absence(&mut self, kind: ViolationKind, field: Field, remedy: &str) {
        if let Order::Loop = self.order {
            self.findings.add(kind, field, &[key(field)], || format!("is missing: {remedy}"));
        }
    }

    /// Judges what `status` asks of the other fields, as far as they have their types.
    fn judge_status_rules(&mut self, status: Status) {
        use ViolationKind::{BlockedNeedsBlocker, CompleteNeedsEvidence, ContinueNeedsNextSteps};

        let Given { evidence, next_steps, blocker, .. } = self.given;
        let [evidence, next_steps, blocker] = [has_items(evidence), has_items(next_steps), has_text(blocker)];
        let mut refuse = |kind, field, complaint: &str| {
            self.findings.add(kind, field, &[key(field)], || complaint.to_owned());
        };
        match status {
            Status::Continue => {
                if next_steps == Some(false) {
                    let complaint = "is empty: a report that continues names at least one next step";
                    refuse(ContinueNeedsNextSteps, Field::NextSteps, complaint);
                }
                if blocker == Some(true) {
                    let complaint = "is not empty: a report that continues has the blocker \"\"";
                    refuse(ContinueNeedsNextSteps, Field::Blocker, complaint);
                }
            }
            Status::Complete => {
                if evidence == Some(false) {
                    let complaint = "is empty: a complete report names at least one piece of evidence";
                    refuse(CompleteNeedsEvidence, Field::Evidence, complaint);
                }
                if next_steps == Some(true) {
                    let complaint = "is not empty: a complete report has no next steps, give []";
                    refuse(CompleteNeedsEvidence, Field::NextSteps, complaint);
                }
                if blocker == Some(true) {
                    let complaint = "is not empty: a complete report has the blocker \"\"";
                    refuse(CompleteNeedsEvidence, Field::Blocker, complaint);
                }
            }
            Status::Blocked => {
                if blocker == Some(false) {
                    let complaint = "is empty: a blocked report says what blocks it";
                    refuse(BlockedNeedsBlocker, Field::Blocker, complaint);
                }
            }
        }
    }

    fn judge_size(&mut self, limit: usize) {
        let Some(actual) = self.given.canonical_len().filter(|actual| *actual > limit) else {
            return;
        };
        self.findings.add_excess(ViolationKind::HandoffOversized, Measure { actual, limit }, || {
            format!("has {actual} characters as compact JSON: shorten it to {limit}")
        });
    }
}

const fn key(field: Field) -> Step<'static> {
    Step::Key(field.as_str())
}

/// Returns whether a list has items, if it is one.
fn has_items(value: &Option<Node<'_>>) -> Option<bool> {
    match value {
        Some(Node::Texts(items)) => Some(!items.is_empty()),
        // An array of nothing is one of texts.
        Some(Node::Array(_)) => Some(true),
        _ => None,
    }
}

/// Returns whether a text is there to be read, if it is one.
fn has_text(value: &Option<Node<'_>>) -> Option<bool> {
    match value {
        Some(Node::Text(text)) => Some(!text.is_empty()),
        _ => None,
    }
}

/// Says what `value` is, a text by itself.
fn shown(value: &Node<'_>) -> Cow<'static, str> {
    match value {
        Node::Text(text) => Cow::Owned(quoted(text)),
        other => Cow::Borrowed(other.what()),
    }
}

/// Quotes `text` for a message, cut if it is long.
fn quoted(text: &str) -> String {
    const MOST_CHARS: usize = 40;

    let start = text::truncate_utf16(text, MOST_CHARS);
    let mark = if start.len() < text.len() { "…" } else { "" };
    let mut quoted = String::new();
    for c in start.chars() {
        match c {
            '\'' => quoted.push(c),
            _ => quoted.extend(c.escape_debug()),
        }
    }
    format!("\"{quoted}{mark}\"")
}
