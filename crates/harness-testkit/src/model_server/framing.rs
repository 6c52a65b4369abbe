//! How an answer is laid out in the body of an HTTP response.

use super::question::{Dialect, Question};
use super::reply::{Event, Reply};

/// One of the layouts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Framing {
    Whole,
    ServerSentEvents,
    /// Gemini's streams, unless `alt=sse` asks for events.
    JsonArray,
}

impl Framing {
    pub(super) fn of(question: &Question, path: &str) -> Self {
        match question.dialect {
            _ if !question.streaming => Self::Whole,
            Dialect::Gemini if !path.contains("alt=sse") => Self::JsonArray,
            _ => Self::ServerSentEvents,
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Whole | Self::JsonArray => "application/json",
            Self::ServerSentEvents => "text/event-stream",
        }
    }

    /// Returns the whole body in the pieces in which it is given.
    pub(super) fn chunks(self, reply: &Reply<'_>) -> Vec<String> {
        match self {
            Self::Whole => {
                let mut body = reply.whole().to_string();
                let mut middle = body.len() / 2;
                while !body.is_char_boundary(middle) {
                    middle += 1;
                }
                let rest = body.split_off(middle);
                vec![body, rest]
            }
            Self::ServerSentEvents => reply.events().iter().map(Event::to_sse).collect(),
            Self::JsonArray => {
                let opened = (0..).zip(reply.events());
                let element = |(at, event): (usize, Event)| {
                    format!("{}{}", if at == 0 { "[" } else { ",\n" }, event.to_json())
                };
                opened.map(element).chain(["]".to_owned()]).collect()
            }
        }
    }

    /// Returns what ends a stream with `event` after `given` others.
    pub(super) fn last(self, event: &Event, given: usize) -> Vec<String> {
        match self {
            Self::JsonArray => vec![format!("{}{}]", if given == 0 { "[" } else { ",\n" }, event.to_json())],
            Self::Whole | Self::ServerSentEvents => vec![event.to_sse()],
        }
    }
}
