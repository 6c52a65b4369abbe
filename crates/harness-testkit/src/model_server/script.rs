use super::question::{Dialect, Question};
use super::turn::Turn;

/// What a [`ModelServer`](super::ModelServer) plays.
///
/// A conversation that begins is given to the first [`Conversation`] that it fits, and stays there. What fits none,
/// and what comes after the last turn, is answered with HTTP 400, so that no agent goes on in vain.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub(super) conversations: Vec<Conversation>,
    pub(super) asides: Vec<(String, Turn)>,
    pub(super) capture_tools: Vec<String>,
    pub(super) counting_toolless: bool,
    pub(super) models: Vec<String>,
}

impl Script {
    /// A script of these conversations.
    #[must_use]
    pub fn new(conversations: impl IntoIterator<Item = Conversation>) -> Self {
        Self { conversations: conversations.into_iter().collect(), ..Self::default() }
    }

    /// A script of one conversation after the other: the first that begins gets the first, and so on.
    #[must_use]
    pub fn in_order(conversations: impl IntoIterator<Item = Conversation>) -> Self {
        Self::new((1..).zip(conversations).map(|(number, conversation)| conversation.on_number(number)))
    }

    /// Answers requests that contain `text` anywhere with `turn`, outside of every conversation.
    #[must_use]
    pub fn with_aside(mut self, text: impl Into<String>, turn: Turn) -> Self {
        self.asides.push((text.into(), turn));
        self
    }

    /// Hands values in by the tool `name`, or the offered one whose name ends in `_` and `name`, where one is
    /// offered. Of several the first is taken.
    #[must_use]
    pub fn with_capture_tool(mut self, name: impl Into<String>) -> Self {
        self.capture_tools.push(name.into());
        self
    }

    /// Lets requests without tools be part of conversations.
    #[must_use]
    pub fn counting_toolless(mut self) -> Self {
        self.counting_toolless = true;
        self
    }

    /// Adds a model to those that the server lists; without any it lists `fake-model`.
    #[must_use]
    pub fn with_model(mut self, name: impl Into<String>) -> Self {
        self.models.push(name.into());
        self
    }
}

/// One talk of an agent with its model: which one it is, and its turns.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    pub(super) turns: Vec<Turn>,
    pub(super) after: Option<Turn>,
    number: Option<usize>,
    texts: Vec<String>,
    dialect: Option<Dialect>,
}

impl Conversation {
    /// A conversation of these turns, which any beginning fits.
    #[must_use]
    pub fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self { turns: turns.into_iter().collect(), ..Self::default() }
    }

    /// Fits only conversation `number` of the server, counted from 1.
    #[must_use]
    pub fn on_number(mut self, number: usize) -> Self {
        self.number = Some(number);
        self
    }

    /// Fits only conversations whose first request contains `text` in some message.
    #[must_use]
    pub fn containing(mut self, text: impl Into<String>) -> Self {
        self.texts.push(text.into());
        self
    }

    /// Fits only conversations in `dialect`.
    #[must_use]
    pub fn speaking(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// Says what is played for every request after the last turn, instead of an error.
    #[must_use]
    pub fn then(mut self, turn: Turn) -> Self {
        self.after = Some(turn);
        self
    }

    pub(super) fn fits(&self, question: &Question, number: usize) -> bool {
        let text = question.text();
        self.number.is_none_or(|wanted| wanted == number)
            && self.dialect.is_none_or(|wanted| wanted == question.dialect)
            && self.texts.iter().all(|wanted| text.contains(wanted.as_str()))
    }
}
