//! A toy harness: agents that talk to a model and call tools, and hooks that watch over the calls.
//!
//! Nothing in here knows of subagents. Your harness has all of this already, in its own form.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use harness_subagent::{Activity, ActivitySender, AgentId, Usage};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Writes an agent's part of the conversation. A real one calls a vendor.
#[async_trait]
pub(crate) trait Model: Debug + Send + Sync {
    async fn reply(&self, request: &ModelRequest) -> Reply;
}

/// What the model gets to see.
#[derive(Clone, Debug)]
pub(crate) struct ModelRequest {
    pub(crate) system: String,
    /// The name and the parameters of each tool, the latter as a schema.
    pub(crate) tools: Vec<(String, Value)>,
    pub(crate) messages: Vec<Message>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    User(String),
    Assistant(String),
    ToolResult { call: String, content: String, is_error: bool },
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) end: ReplyEnd,
    pub(crate) usage: Usage,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplyEnd {
    Done,
    CutOff,
    Declined,
}

#[derive(Clone, Debug)]
pub(crate) struct ToolCall {
    /// The model's own id of the call. Models have been seen to use one twice.
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) arguments: Value,
}

#[async_trait]
pub(crate) trait Tool: Debug + Send + Sync {
    fn name(&self) -> &str;

    fn parameters(&self) -> Value;

    /// Carries out one call. `execution` is unique within the agent.
    async fn call(&self, execution: u64, arguments: &Value) -> ToolOutcome;
}

#[derive(Clone, Debug)]
pub(crate) struct ToolOutcome {
    pub(crate) content: String,
    pub(crate) is_error: bool,
    /// Whether the turn is over after this response.
    pub(crate) concludes: bool,
}

impl ToolOutcome {
    pub(crate) fn success(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: false, concludes: false }
    }

    pub(crate) fn error(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: true, concludes: false }
    }
}

/// Watches over an agent's tool calls.
pub(crate) trait Hook: Debug + Send + Sync {
    /// Denies a call before it is carried out. One hook that denies is enough.
    fn deny(&self, _call: &ToolCall) -> Option<String> {
        None
    }

    /// Changes or blocks what a tool answered. A blocked outcome is an error outcome.
    fn review(&self, _call: &ToolCall, _outcome: &mut ToolOutcome) {}

    /// Takes note of the outcome that the model will see, when nobody can change it any more.
    fn settled(&self, _execution: u64, _call: &ToolCall, _outcome: &ToolOutcome) {}
}

/// One live agent.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) id: AgentId,
    pub(crate) workspace: String,
    pub(crate) depth: u32,
    /// How deep this agent's own children may be, where that is limited.
    pub(crate) max_depth: Option<u32>,
    pub(crate) system: String,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) hooks: Vec<Arc<dyn Hook>>,
    pub(crate) cancellation: CancellationToken,
}

/// How one turn of an agent went.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The last thing that the agent said, if it said anything.
    pub(crate) output: String,
    pub(crate) end: TurnEnd,
    pub(crate) usage: Usage,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TurnEnd {
    Completed,
    CutOff,
    Declined,
    OutOfSteps,
    Aborted,
}

/// The agents of this process, and what they have in common.
#[derive(Debug)]
pub(crate) struct Harness {
    model: Arc<dyn Model>,
    tools: Vec<Arc<dyn Tool>>,
    hooks: Vec<Arc<dyn Hook>>,
    live: Mutex<HashMap<AgentId, Arc<Agent>>>,
    named: AtomicU64,
}

impl Harness {
    /// How many times one turn may ask the model.
    const MAX_STEPS: u32 = 16;

    pub(crate) fn new(
        model: Arc<dyn Model>,
        tools: Vec<Arc<dyn Tool>>,
        hooks: Vec<Arc<dyn Hook>>,
    ) -> Arc<Self> {
        Arc::new(Self { model, tools, hooks, live: Mutex::default(), named: AtomicU64::new(0) })
    }

    /// Opens the human's own agent.
    pub(crate) fn open_root(&self, workspace: &str) -> Arc<Agent> {
        self.publish(Agent {
            id: self.new_id("root"),
            workspace: workspace.to_owned(),
            depth: 0,
            max_depth: None,
            system: "You are a careful engineer.".to_owned(),
            tools: self.tools.clone(),
            hooks: self.hooks.clone(),
            cancellation: CancellationToken::new(),
        })
    }

    pub(crate) fn new_id(&self, kind: &str) -> AgentId {
        AgentId::new(format!("{kind}-{}", self.named.fetch_add(1, Ordering::Relaxed) + 1))
    }

    pub(crate) fn publish(&self, agent: Agent) -> Arc<Agent> {
        let agent = Arc::new(agent);
        self.live().insert(agent.id.clone(), Arc::clone(&agent));
        agent
    }

    pub(crate) fn find(&self, id: &AgentId) -> Option<Arc<Agent>> {
        self.live().get(id).cloned()
    }

    pub(crate) fn close(&self, id: &AgentId) {
        self.live().remove(id);
    }

    /// Counts the agents that are live now.
    pub(crate) fn population(&self) -> usize {
        self.live().len()
    }

    fn live(&self) -> MutexGuard<'_, HashMap<AgentId, Arc<Agent>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `agent` answer `prompt`, asking the model and calling tools until the turn is over.
    pub(crate) async fn take_turn(&self, agent: &Agent, prompt: String, activity: &ActivitySender) -> Turn {
        let mut turn = Turn { output: String::new(), end: TurnEnd::OutOfSteps, usage: Usage::default() };
        // Dropping the conversation at any of its waits is fine, so this is all that cancelling takes.
        let end = tokio::select! {
            biased;
            () = agent.cancellation.cancelled() => TurnEnd::Aborted,
            end = self.converse(agent, prompt, activity, &mut turn) => end,
        };
        turn.end = end;
        turn
    }

    async fn converse(
        &self,
        agent: &Agent,
        prompt: String,
        activity: &ActivitySender,
        turn: &mut Turn,
    ) -> TurnEnd {
        let mut request = ModelRequest {
            system: agent.system.clone(),
            tools: agent.tools.iter().map(|tool| (tool.name().to_owned(), tool.parameters())).collect(),
            messages: vec![Message::User(prompt)],
        };
        let mut executions = 0;
        for _ in 0..Self::MAX_STEPS {
            let reply = self.model.reply(&request).await;
            turn.usage = turn.usage.plus(reply.usage);
            if !reply.text.is_empty() {
                turn.output.clone_from(&reply.text);
                request.messages.push(Message::Assistant(reply.text));
            }
            match reply.end {
                ReplyEnd::CutOff => return TurnEnd::CutOff,
                ReplyEnd::Declined => return TurnEnd::Declined,
                ReplyEnd::Done if reply.calls.is_empty() => return TurnEnd::Completed,
                ReplyEnd::Done => {}
            }
            let mut concluded = false;
            for call in reply.calls {
                activity.send(Activity::new(format!("calls {}", call.tool)).with_usage(turn.usage));
                executions += 1;
                let outcome = execute(agent, executions, &call).await;
                concluded |= outcome.concludes;
                request.messages.push(Message::ToolResult {
                    call: call.id,
                    content: outcome.content,
                    is_error: outcome.is_error,
                });
            }
            if concluded {
                return TurnEnd::Completed;
            }
        }
        TurnEnd::OutOfSteps
    }
}

/// Takes one tool call through the hooks.
async fn execute(agent: &Agent, execution: u64, call: &ToolCall) -> ToolOutcome {
    let denied = agent.hooks.iter().find_map(|hook| hook.deny(call));
    let tool = agent.tools.iter().find(|tool| tool.name() == call.tool);
    let outcome = match (denied, tool) {
        (Some(reason), _) => ToolOutcome::error(reason),
        (None, None) => ToolOutcome::error(format!("there is no tool named {:?}", call.tool)),
        (None, Some(tool)) => {
            let mut outcome = tool.call(execution, &call.arguments).await;
            for hook in &agent.hooks {
                hook.review(call, &mut outcome);
            }
            outcome
        }
    };
    for hook in &agent.hooks {
        hook.settled(execution, call, &outcome);
    }
    outcome
}
