use std::time::Duration;

use agent_client_protocol_schema::v1::{ContentBlock, Cost, SessionNotification, SessionUpdate};
use harness_process::sanitize;
use harness_subagent::{Activity, ActivitySender};
use tokio::time::Instant;

/// How much is kept of what an agent says.
const MAX_BYTES: usize = 64 * 1024;
/// How often a piece of the agent's text is told as activity, at most.
const TELL: Duration = Duration::from_millis(250);

/// What an agent has told of its work.
#[derive(Debug)]
pub(crate) struct Said {
    activity: ActivitySender,
    told: Option<Instant>,
    text: String,
    /// Something else came after the last piece of text, so the next one begins on a new line.
    interrupted: bool,
    cost: Option<Cost>,
}

impl Said {
    pub(crate) fn new(activity: ActivitySender) -> Self {
        Self { activity, told: None, text: String::new(), interrupted: false, cost: None }
    }

    /// Takes note of an update.
    pub(crate) fn hear(&mut self, update: SessionNotification) {
        match update.update {
            SessionUpdate::AgentMessageChunk(chunk) => {
                if let ContentBlock::Text(text) = chunk.content {
                    self.keep(&text.text);
                    self.tell_text();
                }
            }
            SessionUpdate::ToolCall(call) => self.tell(&call.title),
            SessionUpdate::ToolCallUpdate(update) => {
                if let Some(title) = &update.fields.title {
                    self.tell(title);
                }
            }
            SessionUpdate::UsageUpdate(usage) => self.cost = usage.cost.or(self.cost.take()),
            // Thoughts, plans, commands, and whatever else there will be.
            _ => {}
        }
    }

    /// Tells what happens now, whatever was told before.
    pub(crate) fn tell(&mut self, what: &str) {
        self.interrupted = true;
        self.told = Some(Instant::now());
        self.activity.send(Activity::new(sanitize(what)));
    }

    /// Returns what the session has cost so far.
    pub(crate) fn cost(&self) -> Option<&Cost> {
        self.cost.as_ref()
    }

    /// Returns the last of what the agent said, as text that is harmless to a terminal.
    pub(crate) fn into_text(self) -> String {
        let start = self.text.ceil_char_boundary(self.text.len().saturating_sub(MAX_BYTES));
        sanitize(&self.text[start..]).into_owned()
    }

    fn keep(&mut self, text: &str) {
        if std::mem::take(&mut self.interrupted) && !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(text);
        if self.text.len() > 2 * MAX_BYTES {
            let cut = self.text.ceil_char_boundary(self.text.len() - MAX_BYTES);
            self.text.drain(..cut);
        }
    }

    fn tell_text(&mut self) {
        let now = Instant::now();
        if self.told.is_some_and(|told| now < told + TELL) {
            return;
        }
        let tail = self.text.ceil_char_boundary(self.text.len().saturating_sub(Activity::MAX_TEXT_BYTES));
        let line = self.text[tail..].lines().rev().map(str::trim).find(|line| !line.is_empty());
        if let Some(line) = line {
            self.told = Some(now);
            self.activity.send(Activity::new(sanitize(line)));
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v1::{ContentChunk, TextContent, ToolCall, UsageUpdate};

    use super::*;

    fn said() -> Said {
        Said::new(ActivitySender::new(4))
    }

    fn chunk(text: &str) -> SessionNotification {
        let content = ContentBlock::Text(TextContent::new(text));
        SessionNotification::new("s", SessionUpdate::AgentMessageChunk(ContentChunk::new(content)))
    }

    #[test]
    fn pieces_of_text_join_and_a_tool_call_ends_a_line() {
        let mut said = said();
        said.hear(chunk("one "));
        said.hear(chunk("two"));
        said.hear(SessionNotification::new("s", SessionUpdate::ToolCall(ToolCall::new("t", "ls"))));
        said.hear(chunk("three\x1b[31m"));
        assert_eq!(said.into_text(), "one two\nthree␛[31m");
    }

    #[test]
    fn only_the_last_of_a_long_text_is_kept() {
        let mut said = said();
        for _ in 0..100 {
            said.hear(chunk(&"é".repeat(5000)));
            assert!(said.text.len() <= 2 * MAX_BYTES);
        }
        said.hear(chunk("end"));
        let text = said.into_text();
        assert!(text.len() <= MAX_BYTES && text.ends_with("éend"), "{}", text.len());
    }

    #[test]
    fn the_last_cost_that_was_told_counts() {
        let mut said = said();
        let update = |usage| SessionNotification::new("s", SessionUpdate::UsageUpdate(usage));
        said.hear(update(UsageUpdate::new(1, 2).cost(Cost::new(0.5, "USD"))));
        said.hear(update(UsageUpdate::new(1, 2)));
        assert_eq!(said.cost(), Some(&Cost::new(0.5, "USD")));
    }
}
