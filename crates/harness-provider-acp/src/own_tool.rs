use std::collections::VecDeque;

use agent_client_protocol_schema::v1::{Meta, SessionUpdate};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Knows the tool by which a child hands in its value from all others.
///
/// Handing in is what the child was started for, so it is never refused. No agent says in the same way which tool it
/// asks for. What counts is what the agent itself says, exactly, and never the tool's input, which is the model's.
#[derive(Debug)]
pub(crate) struct OwnTool {
    server: String,
    names: [String; 3],
    /// The agent says of itself that it is codex-acp, whose input of a permission request is not the model's.
    is_codex: bool,
    /// The latest calls of the tool.
    calls: VecDeque<String>,
}

/// More calls than an agent has open at the same time.
const CALLS: usize = 64;

/// The call for which an agent asks for a permission, as far as it is looked into.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskedCall {
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    raw_input: Option<Box<RawValue>>,
    #[serde(default, rename = "_meta")]
    meta: Option<Box<RawValue>>,
}

impl OwnTool {
    pub(crate) fn new(server: &str, tool: &str) -> Self {
        let names =
            [format!("mcp__{server}__{tool}"), format!("mcp_{server}_{tool}"), format!("{server}_{tool}")];
        Self { server: server.to_owned(), names, is_codex: false, calls: VecDeque::new() }
    }

    /// Takes note of how the agent calls itself.
    pub(crate) fn meet(&mut self, agent: &str) {
        self.is_codex = agent == "codex-acp";
    }

    /// Takes note of a call that begins or goes on.
    pub(crate) fn note(&mut self, update: &SessionUpdate) {
        let (call, name, meta) = match update {
            SessionUpdate::ToolCall(call) => (&call.tool_call_id, call.name.as_deref(), call.meta.as_ref()),
            SessionUpdate::ToolCallUpdate(update) => {
                (&update.tool_call_id, update.fields.name.as_deref(), update.meta.as_ref())
            }
            _ => return,
        };
        let name = name.or_else(|| claude_tool(meta?));
        if name.is_some_and(|name| self.is_named(name)) && !self.knows(&call.0) {
            if self.calls.len() == CALLS {
                self.calls.pop_front();
            }
            self.calls.push_back(call.to_string());
        }
    }

    /// Says whether an agent that asks for `call` asks for this tool.
    pub(crate) fn is_asked_for(&self, call: &AskedCall) -> bool {
        if call.name.as_deref().is_some_and(|name| self.is_named(name)) {
            return true;
        }
        let meta = call.meta.as_deref().and_then(|meta| serde_json::from_str::<Meta>(meta.get()).ok());
        if let Some(name) = meta.as_ref().and_then(claude_tool) {
            return self.is_named(name);
        }
        call.tool_call_id.as_deref().is_some_and(|id| self.knows(id))
            || (self.is_codex && call.raw_input.as_deref().is_some_and(|input| self.is_codex_approval(input)))
    }

    fn is_named(&self, name: &str) -> bool {
        self.names.iter().any(|ours| ours == name)
    }

    fn knows(&self, call: &str) -> bool {
        self.calls.iter().any(|known| known == call)
    }

    /// Codex asks for a server's tool by a form of its own; ours has one tool only.
    fn is_codex_approval(&self, input: &RawValue) -> bool {
        #[derive(Deserialize)]
        struct Approval {
            server_name: String,
            request: Form,
        }
        #[derive(Deserialize)]
        struct Form {
            #[serde(rename = "_meta")]
            meta: Kind,
        }
        #[derive(Deserialize)]
        struct Kind {
            codex_approval_kind: String,
        }
        serde_json::from_str::<Approval>(input.get()).is_ok_and(|approval| {
            approval.server_name == self.server
                && approval.request.meta.codex_approval_kind == "mcp_tool_call"
        })
    }
}

/// The name of the tool, as claude-agent-acp gives it beside the protocol.
fn claude_tool(meta: &Meta) -> Option<&str> {
    meta.get("claudeCode")?.get("toolName")?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn own_tool() -> OwnTool {
        OwnTool::new("kit", "hand_in")
    }

    #[track_caller]
    fn check(tool: &OwnTool, call: Value, expected: bool) {
        let asked = serde_json::from_str(&call.to_string()).unwrap();
        assert_eq!(tool.is_asked_for(&asked), expected, "{call}");
    }

    fn codex_approval(server: &str, kind: &str) -> Value {
        let request = json!({ "mode": "form", "_meta": { "codex_approval_kind": kind } });
        json!({ "toolCallId": "c", "title": "Approve", "rawInput": { "server_name": server, "request": request } })
    }

    #[test]
    fn the_models_words_make_no_tool_ours() {
        let tool = own_tool();
        check(&tool, json!({}), false);
        check(&tool, json!({ "toolCallId": "c", "title": "mcp__kit__hand_in" }), false);
        check(&tool, json!({ "toolCallId": "c", "rawInput": { "server": "kit", "tool": "hand_in" } }), false);
        check(&tool, json!({ "toolCallId": "c", "rawInput": "mcp__kit__hand_in" }), false);
        check(&tool, codex_approval("kit", "mcp_tool_call"), false);
    }

    #[test]
    fn the_agents_own_name_for_the_tool_makes_it_ours() {
        let tool = own_tool();
        for name in ["mcp__kit__hand_in", "mcp_kit_hand_in", "kit_hand_in"] {
            check(&tool, json!({ "toolCallId": "c", "name": name }), true);
        }
        check(&tool, json!({ "toolCallId": "c", "name": "mcp__kit__other" }), false);
        check(&tool, json!({ "_meta": { "claudeCode": { "toolName": "mcp__kit__hand_in" } } }), true);
        check(&tool, json!({ "_meta": { "claudeCode": { "toolName": "Bash" } } }), false);
    }

    #[test]
    fn a_call_that_was_told_before_is_known_by_its_id() {
        let mut tool = own_tool();
        let update = |id: &str, name: &str| {
            let meta = json!({ "claudeCode": { "toolName": name } });
            let update =
                json!({ "sessionUpdate": "tool_call", "toolCallId": id, "title": "t", "_meta": meta });
            serde_json::from_value::<SessionUpdate>(update).unwrap()
        };
        tool.note(&update("ours", "mcp__kit__hand_in"));
        tool.note(&update("other", "Bash"));
        check(&tool, json!({ "toolCallId": "ours" }), true);
        check(&tool, json!({ "toolCallId": "other" }), false);
        for number in 0..CALLS {
            tool.note(&update(&number.to_string(), "mcp__kit__hand_in"));
            tool.note(&update(&number.to_string(), "mcp__kit__hand_in"));
        }
        assert_eq!(tool.calls.len(), CALLS);
        check(&tool, json!({ "toolCallId": "ours" }), false);
    }

    #[test]
    fn codex_asks_by_a_form_of_its_own() {
        let mut tool = own_tool();
        tool.meet("codex-acp");
        check(&tool, codex_approval("kit", "mcp_tool_call"), true);
        check(&tool, codex_approval("other", "mcp_tool_call"), false);
        check(&tool, codex_approval("kit", "command"), false);
        check(&tool, json!({ "toolCallId": "c", "rawInput": { "command": ["rm"] } }), false);
    }
}
