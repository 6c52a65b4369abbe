use serde_json::Value;

/// An API that models are asked through.
#[expect(clippy::exhaustive_enums, reason = "the server speaks these four, and tests go through all of them")]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Dialect {
    /// Anthropic's Messages, at `/v1/messages`.
    AnthropicMessages,
    /// `OpenAI`'s Responses, at `/v1/responses`.
    OpenAiResponses,
    /// `OpenAI`'s Chat Completions, at `/v1/chat/completions`.
    OpenAiChat,
    /// Gemini's `generateContent`, at `/v1beta/models/MODEL:generateContent` and `:streamGenerateContent`.
    Gemini,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::AnthropicMessages, Self::OpenAiResponses, Self::OpenAiChat, Self::Gemini];
}

/// What a model was asked, read alike in every dialect.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Question {
    /// The dialect it was asked in.
    pub dialect: Dialect,
    /// The model that was named; empty if none was.
    pub model: String,
    /// True if the answer is to come as a stream.
    pub streaming: bool,
    /// The messages so far, the instructions of the system first. What an agent only says that its model had said is
    /// left out.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<OfferedTool>,
    /// The JSON Schema that the answer is to have, where the dialect has a place for one.
    pub schema: Option<Value>,
    /// The id of the session that the agent has sent along.
    pub session: Option<String>,
}

/// One message of a conversation.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: String,
    /// All text in it, results of tools included; what a model wanted to call is not.
    pub text: String,
}

/// A tool that the model may call.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OfferedTool {
    /// Its name.
    pub name: String,
    /// The namespace that it is in; Responses has them.
    pub namespace: Option<String>,
    /// True if it takes a free text in place of JSON.
    pub takes_text: bool,
}

impl Question {
    /// Returns what the user said before the model said anything.
    #[must_use]
    pub fn opening(&self) -> String {
        let opening = self.messages.iter().take_while(|message| message.role != "assistant");
        join(opening.filter(|message| message.role == "user"))
    }

    /// Returns the text of all messages.
    #[must_use]
    pub fn text(&self) -> String {
        join(self.messages.iter())
    }

    /// Returns the text of the last message; empty if there is none.
    #[must_use]
    pub fn last(&self) -> &str {
        self.messages.last().map_or("", |message| &message.text)
    }

    /// True if the model has said something before.
    #[must_use]
    pub fn has_history(&self) -> bool {
        self.messages.iter().any(|message| message.role == "assistant")
    }

    /// Returns the offered tool that is meant by `name`: the one of that name, else the first one whose name ends
    /// in `_` and that name.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&OfferedTool> {
        let of_server =
            |tool: &&OfferedTool| tool.name.strip_suffix(name).is_some_and(|server| server.ends_with('_'));
        let mut tools = self.tools.iter();
        tools.clone().find(|tool| tool.name == name).or_else(|| tools.find(of_server))
    }

    pub(super) fn read(dialect: Dialect, path: &str, headers: &[(String, String)], body: &Value) -> Self {
        let mut question = Self {
            dialect,
            model: text(&body["model"]),
            streaming: body["stream"] == true,
            messages: Vec::new(),
            tools: Vec::new(),
            schema: None,
            session: session(headers, body),
        };
        match dialect {
            Dialect::AnthropicMessages => question.read_messages(body),
            Dialect::OpenAiResponses => question.read_responses(body),
            Dialect::OpenAiChat => question.read_chat(body),
            Dialect::Gemini => question.read_gemini(path, body),
        }
        question
    }

    fn read_messages(&mut self, body: &Value) {
        self.message("system", text(&body["system"]));
        for message in list(&body["messages"]) {
            // Results of tools come in the user's name.
            let results = list(&message["content"]).any(|part| part["type"] == "tool_result");
            let role = text(&message["role"]);
            self.message(if results { "tool" } else { &role }, text(&message["content"]));
        }
        for tool in list(&body["tools"]) {
            self.offer(text(&tool["name"]), None, false);
        }
        let format = [&body["output_format"], &body["output_config"]["format"]];
        self.schema = format.into_iter().find_map(|format| format.get("schema").cloned());
    }

    fn read_responses(&mut self, body: &Value) {
        self.message("system", text(&body["instructions"]));
        if body["input"].is_string() {
            self.message("user", text(&body["input"]));
        }
        for item in list(&body["input"]) {
            match item["type"].as_str().unwrap_or("message") {
                "message" => self.message(&text(&item["role"]), text(&item["content"])),
                kind if kind.ends_with("_output") => self.message("tool", text(&item["output"])),
                kind if kind.ends_with("_call") => self.message("assistant", String::new()),
                _ => {}
            }
        }
        for tool in list(&body["tools"]) {
            if tool["type"] == "namespace" {
                for inner in list(&tool["tools"]) {
                    self.offer(text(&inner["name"]), tool["name"].as_str(), inner["type"] == "custom");
                }
            } else {
                // A tool of the provider's own has no name but its type.
                let name = tool["name"].as_str().or_else(|| tool["type"].as_str()).unwrap_or_default();
                self.offer(name.to_owned(), None, tool["type"] == "custom");
            }
        }
        let format = &body["text"]["format"];
        self.schema = format.get("schema").cloned();
    }

    fn read_chat(&mut self, body: &Value) {
        for message in list(&body["messages"]) {
            let (role, text) = (text(&message["role"]), text(&message["content"]));
            if !(role == "assistant" && text == WORDS_OF_THE_AGENT) {
                self.message(&role, text);
            }
        }
        for tool in list(&body["tools"]) {
            self.offer(text(&tool["function"]["name"]), None, false);
        }
        self.schema = body["response_format"]["json_schema"].get("schema").cloned();
    }

    fn read_gemini(&mut self, path: &str, body: &Value) {
        let name = path.split("models/").nth(1).and_then(|rest| rest.split(':').next());
        self.model = name.unwrap_or_default().to_owned();
        self.streaming = path.contains(":streamGenerateContent");
        self.message("system", text(&body["systemInstruction"]));
        for content in list(&body["contents"]) {
            let results = list(&content["parts"]).any(|part| part.get("functionResponse").is_some());
            let role = match content["role"].as_str() {
                Some("model") => "assistant",
                _ if results => "tool",
                other => other.unwrap_or("user"),
            };
            self.message(role, text(&content["parts"]));
        }
        for tool in list(&body["tools"]) {
            for declaration in list(&tool["functionDeclarations"]) {
                self.offer(text(&declaration["name"]), None, false);
            }
        }
        let config = &body["generationConfig"];
        self.schema = config.get("responseJsonSchema").or_else(|| config.get("responseSchema")).cloned();
    }

    /// Adds a message. One without text counts only as a sign that the model has spoken.
    fn message(&mut self, role: &str, text: String) {
        if !text.is_empty() || role == "assistant" {
            self.messages.push(Message { role: role.to_owned(), text });
        }
    }

    fn offer(&mut self, name: String, namespace: Option<&str>, takes_text: bool) {
        self.tools.push(OfferedTool { name, namespace: namespace.map(str::to_owned), takes_text });
    }
}

/// What Qwen Code has its model say before the first prompt. No model has said it, so it is no history.
const WORDS_OF_THE_AGENT: &str = "Got it. Thanks for the context!";

/// The headers by which agents name their sessions.
const SESSION_HEADERS: &[&str] = &[
    "x-claude-code-session-id",
    "session_id",
    "session-id",
    "x-session-id",
    "x-session-affinity",
    "x-opencode-session",
];

fn session(headers: &[(String, String)], body: &Value) -> Option<String> {
    let header = |name: &&str| {
        let found = headers.iter().find(|(other, value)| other == name && !value.is_empty())?;
        Some(found.1.clone())
    };
    SESSION_HEADERS
        .iter()
        .find_map(header)
        .or_else(|| session_of_user(body["metadata"]["user_id"].as_str()?))
        .or_else(|| Some(body["prompt_cache_key"].as_str()?.to_owned()))
}

/// Claude puts the session into the id of the user, after other ids: `…_session_UUID` or `"session_id":"UUID"`.
fn session_of_user(user: &str) -> Option<String> {
    let (_, rest) = user.rsplit_once("session")?;
    let is_uuid = |word: &&str| word.len() == 36 && word.matches('-').count() == 4;
    let mut words = rest.split(|char: char| !(char.is_ascii_hexdigit() || char == '-'));
    words.find(is_uuid).map(str::to_owned)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns all text in a piece of content, whatever shape it has.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<String> = parts.iter().map(text).filter(|text| !text.is_empty()).collect();
            texts.join("\n")
        }
        Value::Object(part) => {
            let inner = ["text", "output", "content", "parts"].into_iter().find_map(|key| part.get(key));
            match (inner, part.get("functionResponse")) {
                (Some(inner), _) => text(inner),
                (None, Some(response)) => response["response"].to_string(),
                (None, None) => String::new(),
            }
        }
        _ => String::new(),
    }
}

fn join<'a>(messages: impl Iterator<Item = &'a Message>) -> String {
    let texts: Vec<&str> =
        messages.map(|message| message.text.as_str()).filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UUID: &str = "256fe4fc-0000-4000-8000-000000000001";

    fn read(dialect: Dialect, body: &Value) -> Question {
        Question::read(dialect, "/v1beta/models/m:streamGenerateContent", &[], body)
    }

    fn roles(question: &Question) -> Vec<(&str, &str)> {
        question.messages.iter().map(|message| (message.role.as_str(), message.text.as_str())).collect()
    }

    #[test]
    fn messages_of_anthropic_are_read() {
        let question = read(
            Dialect::AnthropicMessages,
            &json!({
                "model": "m", "stream": true, "system": [{"type": "text", "text": "be good"}],
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "Bash", "input": {}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "out"}]},
                ],
                "tools": [{"name": "Bash"}, {"name": "mcp__s__hand_in"}],
            }),
        );
        assert_eq!(
            roles(&question),
            [("system", "be good"), ("user", "a\nb"), ("assistant", ""), ("tool", "out")]
        );
        assert_eq!(
            (question.opening().as_str(), question.last(), question.has_history()),
            ("a\nb", "out", true)
        );
        assert!(question.streaming);
        assert_eq!(question.tool("hand_in").unwrap().name, "mcp__s__hand_in");
        assert_eq!(question.tool("and_in"), None);
    }

    #[test]
    fn input_of_responses_is_read() {
        let question = read(
            Dialect::OpenAiResponses,
            &json!({
                "instructions": "be good",
                "input": [
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
                    {"type": "reasoning"},
                    {"type": "function_call", "name": "x", "arguments": "{}"},
                    {"type": "function_call_output", "output": "out"},
                ],
                "tools": [
                    {"type": "function", "name": "x"}, {"type": "custom", "name": "patch"}, {"type": "web_search"},
                    {"type": "namespace", "name": "mcp__s", "tools": [{"type": "function", "name": "hand_in"}]},
                ],
                "text": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
                "prompt_cache_key": "k",
            }),
        );
        assert_eq!(
            roles(&question),
            [("system", "be good"), ("user", "a"), ("assistant", ""), ("tool", "out")]
        );
        let names: Vec<&str> = question.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["x", "patch", "web_search", "hand_in"]);
        assert_eq!(question.tool("hand_in").unwrap().namespace.as_deref(), Some("mcp__s"));
        assert!(question.tool("patch").unwrap().takes_text);
        assert_eq!(question.schema, Some(json!({"type": "object"})));
        assert_eq!(question.session.as_deref(), Some("k"));
    }

    #[test]
    fn messages_of_chat_are_read() {
        let question = read(
            Dialect::OpenAiChat,
            &json!({
                "messages": [
                    {"role": "user", "content": "a"},
                    {"role": "assistant", "content": null, "tool_calls": []},
                    {"role": "tool", "content": "out"},
                ],
                "tools": [{"type": "function", "function": {"name": "x"}}],
                "response_format": {"type": "json_schema", "json_schema": {"schema": {}}},
            }),
        );
        assert_eq!(roles(&question), [("user", "a"), ("assistant", ""), ("tool", "out")]);
        assert_eq!((question.tools.len(), question.schema), (1, Some(json!({}))));
    }

    #[test]
    fn what_an_agent_puts_into_the_mouth_of_its_model_is_no_history() {
        let question = read(
            Dialect::OpenAiChat,
            &json!({
                "messages": [
                    {"role": "user", "content": "where you are"},
                    {"role": "assistant", "content": "Got it. Thanks for the context!"},
                    {"role": "user", "content": [{"type": "text", "text": "what to do"}]},
                ],
            }),
        );
        assert_eq!(
            (question.opening().as_str(), question.has_history()),
            ("where you are\nwhat to do", false)
        );
    }

    #[test]
    fn contents_of_gemini_are_read() {
        let question = read(
            Dialect::Gemini,
            &json!({
                "systemInstruction": {"parts": [{"text": "be good"}]},
                "contents": [
                    {"role": "user", "parts": [{"text": "a"}]},
                    {"role": "model", "parts": [{"functionCall": {"name": "x"}}]},
                    {"role": "user", "parts": [{"functionResponse": {"name": "x", "response": {"output": "out"}}}]},
                ],
                "tools": [{"functionDeclarations": [{"name": "x"}]}],
            }),
        );
        assert_eq!((question.model.as_str(), question.streaming), ("m", true));
        assert_eq!((question.opening().as_str(), question.last()), ("a", r#"{"output":"out"}"#));
        assert!(question.has_history() && question.tool("x").is_some());
    }

    #[test]
    fn a_session_is_read_after_the_other_ids_of_the_user() {
        let other = "11111111-2222-4333-8444-555555555555";
        for user in [
            format!("user_ab_account_{other}_session_{UUID}"),
            json!({"account_uuid": other, "session_id": UUID}).to_string(),
        ] {
            assert_eq!(session_of_user(&user).as_deref(), Some(UUID), "{user}");
        }
        assert_eq!(session_of_user(&format!("account_{other}")), None);
    }

    #[test]
    fn a_header_names_the_session_before_the_body_does() {
        let headers = [("session_id".to_owned(), "s".to_owned())];
        assert_eq!(session(&headers, &json!({"prompt_cache_key": "k"})).as_deref(), Some("s"));
    }
}
