//! What was given for each key of a report, before anything is judged.

use std::borrow::Cow;

use crate::{Field, RoundReportRef, Status, document::Node, report::canonical_len};

/// What was given for each key of a report, and the other keys in the order of their code points.
#[derive(Default)]
pub(crate) struct Given<'a> {
    pub(crate) status: Option<Node<'a>>,
    pub(crate) summary: Option<Node<'a>>,
    pub(crate) evidence: Option<Node<'a>>,
    pub(crate) next_steps: Option<Node<'a>>,
    pub(crate) blocker: Option<Node<'a>>,
    pub(crate) unknown: Vec<Cow<'a, str>>,
}

impl<'a> Given<'a> {
    /// Sorts the entries of an object without duplicate keys.
    pub(crate) fn new(entries: Vec<(Cow<'a, str>, Node<'a>)>) -> Self {
        let mut given = Self::default();
        for (key, value) in entries {
            let place = match &*key {
                "status" => &mut given.status,
                "summary" => &mut given.summary,
                "evidence" => &mut given.evidence,
                "nextSteps" => &mut given.next_steps,
                "blocker" => &mut given.blocker,
                _ => {
                    given.unknown.push(key);
                    continue;
                }
            };
            *place = Some(value);
        }
        given.unknown.sort_unstable();
        given
    }

    pub(crate) fn status(&self) -> Option<Status> {
        match &self.status {
            Some(Node::Text(name)) => Status::from_name(name),
            _ => None,
        }
    }

    pub(crate) fn fields(&self) -> [(Field, Option<&Node<'a>>); 5] {
        [
            (Field::Status, self.status.as_ref()),
            (Field::Summary, self.summary.as_ref()),
            (Field::Evidence, self.evidence.as_ref()),
            (Field::NextSteps, self.next_steps.as_ref()),
            (Field::Blocker, self.blocker.as_ref()),
        ]
    }

    /// Returns the length of the canonical JSON of the five fields, if each has its type.
    pub(crate) fn canonical_len(&self) -> Option<usize> {
        let status = self.status()?;
        match (&self.summary, &self.evidence, &self.next_steps, &self.blocker) {
            (
                Some(Node::Text(summary)),
                Some(Node::Texts(evidence)),
                Some(Node::Texts(next_steps)),
                Some(Node::Text(blocker)),
            ) => Some(canonical_len(status, summary, evidence, next_steps, blocker)),
            _ => None,
        }
    }

    /// Makes the report out of what was judged to be one.
    pub(crate) fn into_report(self) -> RoundReportRef<'a> {
        let status = self.status();
        match (status, self.summary, self.evidence, self.next_steps, self.blocker) {
            (
                Some(status),
                Some(Node::Text(summary)),
                Some(Node::Texts(evidence)),
                Some(Node::Texts(next_steps)),
                Some(Node::Text(blocker)),
            ) => RoundReportRef { status, summary, evidence, next_steps, blocker },
            _ => unreachable!("each field was judged to have its type"),
        }
    }
}
