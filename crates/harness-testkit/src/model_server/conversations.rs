//! Which turn a question gets.

use std::collections::HashMap;

use super::exchange::Place;
use super::question::Question;
use super::script::{Conversation, Script};
use super::turn::Turn;

/// The conversations that have begun.
#[derive(Debug)]
pub(super) struct Conversations {
    script: Script,
    /// By their keys; a key can be taken again by a later conversation.
    open: HashMap<Key, Open>,
    begun: usize,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Key {
    Session(String),
    Opening(String),
}

#[derive(Debug)]
struct Open {
    number: usize,
    /// Its place in the script, `None` if it fits nothing there.
    script: Option<usize>,
    /// The turn that is next, and how often it has been played.
    next: usize,
    played: u32,
    /// True if the last turn was something that the agent can build on.
    answered: bool,
}

impl Conversations {
    pub(super) fn new(script: Script) -> Self {
        Self { script, open: HashMap::new(), begun: 0 }
    }

    /// Returns the turn that is played for `question`, and its place unless it is an aside.
    pub(super) fn turn_for(&mut self, question: &Question) -> (Turn, Option<Place>) {
        if let Some(turn) = self.aside(question) {
            return (turn, None);
        }
        let key = match &question.session {
            Some(session) => Key::Session(session.clone()),
            None => Key::Opening(question.opening()),
        };
        let begins_again = |open: &Open| {
            // With the same words and nothing remembered, after an answer: this is somebody new.
            matches!(key, Key::Opening(_)) && open.answered && !question.has_history()
        };
        if self.open.get(&key).is_none_or(begins_again) {
            self.begun += 1;
            let number = self.begun;
            let script = self.script.conversations.iter().position(|one| one.fits(question, number));
            self.open.insert(key.clone(), Open { number, script, next: 0, played: 0, answered: false });
        }
        let open = self.open.get_mut(&key).expect("it was put there if it was not there");
        let (turn, at) = match open.script {
            Some(script) => open.advance(&self.script.conversations[script]),
            None => (Turn::error(400).with_message("the script has no conversation that this fits"), 0),
        };
        open.answered = turn.is_answer();
        (turn, Some(Place { conversation: open.number, turn: at + 1 }))
    }

    fn aside(&self, question: &Question) -> Option<Turn> {
        let text = question.text();
        let scripted = self.script.asides.iter().find(|(part, _)| text.contains(part.as_str()));
        match scripted {
            Some((_, turn)) => Some(turn.clone()),
            None if question.tools.is_empty() && !self.script.counting_toolless => Some(Turn::text("ok")),
            None => None,
        }
    }
}

impl Open {
    fn advance(&mut self, script: &Conversation) -> (Turn, usize) {
        while let Some(turn) = script.turns.get(self.next) {
            let at = self.next;
            if turn.times.is_some_and(|times| self.played >= times) {
                (self.next, self.played) = (at + 1, 0);
                continue;
            }
            self.played = self.played.saturating_add(1);
            return (turn.clone(), at);
        }
        let over = || Turn::error(400).with_message("the script of this conversation is at its end");
        (script.after.clone().unwrap_or_else(over), script.turns.len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model_server::question::Dialect;

    fn question(opening: &str, history: bool, headers: &[(&str, &str)]) -> Question {
        let mut messages = vec![json!({"role": "user", "content": opening})];
        if history {
            messages.push(json!({"role": "assistant", "content": "said"}));
            messages.push(json!({"role": "user", "content": "and then"}));
        }
        let body = json!({"messages": messages, "tools": [{"type": "function", "function": {"name": "x"}}]});
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Question::read(Dialect::OpenAiChat, "/v1/chat/completions", &headers, &body)
    }

    fn place(conversations: &mut Conversations, question: &Question) -> (usize, usize) {
        let place = conversations.turn_for(question).1.expect("it is no aside");
        (place.conversation, place.turn)
    }

    fn three_turns() -> Conversations {
        let turns = [Turn::error(429).times(2), Turn::text("a").times(0), Turn::text("b"), Turn::text("c")];
        Conversations::new(Script::new([Conversation::new(turns)]))
    }

    #[test]
    fn a_turn_is_played_as_often_as_it_says() {
        let mut talk = three_turns();
        let turns: Vec<_> = [false, false, false, true, true, true]
            .map(|history| place(&mut talk, &question("hello", history, &[])))
            .into();
        assert_eq!(turns, [(1, 1), (1, 1), (1, 3), (1, 4), (1, 5), (1, 5)]);
    }

    #[test]
    fn the_same_words_with_no_history_begin_anew_only_after_an_answer() {
        let mut talk = three_turns();
        let blank = question("hello", false, &[]);
        let turns = [(); 5].map(|()| place(&mut talk, &blank));
        assert_eq!(turns, [(1, 1), (1, 1), (1, 3), (2, 1), (2, 1)]);
    }

    #[test]
    fn a_session_is_one_conversation_whatever_is_said() {
        let mut talk = three_turns();
        let said = |words| question(words, false, &[("session_id", "s")]);
        let turns = ["a", "b", "c", "d"].map(|words| place(&mut talk, &said(words)));
        assert_eq!(turns, [(1, 1), (1, 1), (1, 3), (1, 4)]);
    }

    #[test]
    fn the_first_that_fits_is_taken_and_nothing_that_does_not() {
        let script = Script::new([
            Conversation::new([Turn::text("second")]).on_number(2),
            Conversation::new([Turn::text("marked")]).containing("mark").speaking(Dialect::OpenAiChat),
            Conversation::new([Turn::text("other")]).speaking(Dialect::Gemini),
        ]);
        let mut talk = Conversations::new(script);
        let said = |turn: Turn| format!("{turn:?}");
        assert!(said(talk.turn_for(&question("a mark", false, &[])).0).contains("marked"));
        assert!(said(talk.turn_for(&question("b mark", false, &[])).0).contains("second"));
        assert!(said(talk.turn_for(&question("c", false, &[])).0).contains("no conversation"));
    }

    #[test]
    fn asides_move_nothing() {
        let mut talk = Conversations::new(
            Script::new([Conversation::new([Turn::text("a")])]).with_aside("title", Turn::text("T")),
        );
        assert_eq!(talk.turn_for(&question("a title", false, &[])).1, None);
        let mut toolless = question("hello", false, &[]);
        toolless.tools.clear();
        assert_eq!(talk.turn_for(&toolless).1, None);
        talk.script.counting_toolless = true;
        assert_eq!(place(&mut talk, &toolless), (1, 1));
    }
}
