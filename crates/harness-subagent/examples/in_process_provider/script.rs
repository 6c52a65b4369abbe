//! A model that says what a script says.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use harness_subagent::Usage;
use serde_json::Value;

use super::harness::{Model, ModelRequest, Reply, ReplyEnd, ToolCall};

/// Plays its replies in order. When none is left it thinks forever.
#[derive(Debug)]
pub(crate) struct ScriptedModel {
    replies: Mutex<VecDeque<Reply>>,
    asked: Mutex<Vec<ModelRequest>>,
}

impl ScriptedModel {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self { replies: Mutex::new(replies.into_iter().collect()), asked: Mutex::default() }
    }

    /// Returns what the model was asked so far.
    pub(crate) fn asked(&self) -> Vec<ModelRequest> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Model for ScriptedModel {
    async fn reply(&self, request: &ModelRequest) -> Reply {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let reply = self.replies.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        match reply {
            Some(reply) => reply,
            None => pending().await,
        }
    }
}

/// A reply of words alone: the agent is done.
pub(crate) fn says(text: &str) -> Reply {
    Reply { text: text.to_owned(), calls: Vec::new(), end: ReplyEnd::Done, usage: Usage::new(100, 10) }
}

/// A reply that calls tools, each given as name and arguments.
pub(crate) fn calls(text: &str, calls: impl IntoIterator<Item = (&'static str, Value)>) -> Reply {
    let calls = calls
        .into_iter()
        .enumerate()
        .map(|(index, (tool, arguments))| ToolCall {
            id: format!("call-{index}"),
            tool: tool.to_owned(),
            arguments,
        })
        .collect();
    Reply { calls, ..says(text) }
}
