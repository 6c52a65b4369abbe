use serde_json::Value;

use super::question::Question;

/// One request that the server got, and what became of it.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Its number, counted from 1 in the order in which requests were read.
    pub number: usize,
    /// The method of HTTP.
    pub method: String,
    /// The path, with the query.
    pub path: String,
    /// The headers, their names in lower case. Keys and tokens are left out of the values.
    pub headers: Vec<(String, String)>,
    /// The body; null if there was none, or none that is JSON.
    pub body: Value,
    /// What it was for.
    pub purpose: Purpose,
    /// The turn that was played for it; `None` for whatever is no part of a conversation.
    pub place: Option<Place>,
    /// How it ended; `None` while it is being answered.
    pub ending: Option<Ending>,
}

/// What a request is for.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum Purpose {
    /// It asks a model.
    Question(Box<Question>),
    /// It asks how many tokens a question has.
    TokenCount,
    /// It asks which models there are.
    ModelList,
    /// It asks whether the server is there.
    Health,
    /// The server knows no such path, or could not read the body.
    Unknown,
}

/// Where in the script a request was answered.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// The number of the conversation, counted from 1 in the order in which they began.
    pub conversation: usize,
    /// The number of the turn, counted from 1; one more than there are for what comes after the last.
    pub turn: usize,
}

/// How an exchange ended.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// The whole answer was given to the connection.
    Answered,
    /// The script broke the connection.
    Broken,
    /// The client left before it had the whole answer.
    ClientLeft,
    /// The server stopped before the whole answer was given.
    ServerStopped,
}

impl Exchange {
    /// Returns what the model was asked, if this is such a request.
    #[must_use]
    pub fn question(&self) -> Option<&Question> {
        match &self.purpose {
            Purpose::Question(question) => Some(question),
            _ => None,
        }
    }

    /// Returns the first header called `name`, which is in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}
