use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    self as acp, AuthMethod, AuthenticateRequest, CancelNotification, ContentBlock, Error, Implementation,
    InitializeRequest, InitializeResponse, McpServer, McpServerStdio, NewSessionRequest, NewSessionResponse,
    PromptRequest, PromptResponse, SessionConfigKind, SessionConfigOption, SessionConfigOptionCategory,
    SessionConfigSelectOptions, SessionId, SessionNotification, SetSessionConfigOptionRequest,
    SetSessionModeRequest, TextContent,
};
use harness_process::ChildStdin;
use harness_provider_cli::parts::CaptureFiles;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::message::Message;
use crate::own_tool::OwnTool;
use crate::peer::Peer;
use crate::permission::{Asked, Permissions, nobody_chose};
use crate::said::Said;

/// The longest payload that is taken apart. In memory a small object is a hundred times as large as its text.
const MAX_PAYLOAD: usize = 1024 * 1024;
/// How often it is looked whether the value is there.
const LOOK: Duration = Duration::from_secs(1);

/// What one conversation is about.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) workspace: PathBuf,
    pub(crate) prompt: String,
    pub(crate) capture: Option<McpServerStdio>,
    pub(crate) authentication: Option<String>,
    pub(crate) mode: Option<String>,
    pub(crate) options: Vec<(String, String)>,
    pub(crate) permissions: Permissions,
    pub(crate) own_tool: Option<OwnTool>,
    pub(crate) patience: Patience,
    /// Where the value appears, of a child that was asked for one.
    pub(crate) value: Option<CaptureFiles>,
    /// What the agent is told, in the same session, when it has come to its end without a value, and how often.
    pub(crate) reminder: String,
    pub(crate) reminders: u32,
}

impl Topic {
    /// Nothing but a greeting, which may take as long as `limit`.
    pub(crate) fn greeting(limit: Duration) -> Self {
        Self {
            workspace: PathBuf::new(),
            prompt: String::new(),
            own_tool: None,
            capture: None,
            authentication: None,
            mode: None,
            options: Vec::new(),
            permissions: Permissions::Reject,
            patience: Patience { handshake: limit, settle: Duration::ZERO, cancel: Duration::ZERO },
            value: None,
            reminder: String::new(),
            reminders: 0,
        }
    }
}

/// How long the agent may take over what is not its work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// To answer what comes before the prompt.
    pub(crate) handshake: Duration,
    /// To end the prompt after its value is there.
    pub(crate) settle: Duration,
    /// To end the prompt after it was asked to.
    pub(crate) cancel: Duration,
}

/// How a conversation ended.
#[derive(Debug)]
pub(crate) enum Settlement {
    /// The agent answered the prompt.
    Answered { stop_reason: Stop, usage: Option<acp::Usage>, rejections: u32 },
    /// The value is there, and the agent did not come to its end by itself.
    Enough { usage: Option<acp::Usage> },
    /// The agent refused a request.
    Refused { method: &'static str, error: Error },
    /// The agent cannot do what it is configured for, or did not keep to the protocol.
    Unfit { why: String },
    /// The agent did not come as far as the prompt in time.
    Slow,
    /// We cancelled, whatever the agent said after that.
    Cancelled { usage: Option<acp::Usage> },
    /// The agent said nothing more.
    Gone,
}

impl Settlement {
    /// Returns what the agent said about its tokens.
    pub(crate) fn usage(&self) -> Option<&acp::Usage> {
        match self {
            Self::Answered { usage, .. } | Self::Enough { usage } | Self::Cancelled { usage } => {
                usage.as_ref()
            }
            _ => None,
        }
    }
}

/// Why an agent says that it stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    Named(acp::StopReason),
    /// A reason that the protocol did not know when this was written.
    Unknown,
}

/// The agent's side of the first exchange.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub(crate) agent: Option<Implementation>,
    pub(crate) auth_methods: Vec<AuthMethod>,
}

/// Holds one conversation: from the greeting to the end of one prompt.
#[derive(Debug)]
pub(crate) struct Conversation {
    peer: Peer,
    said: Said,
    stop: CancellationToken,
    topic: Topic,
    session: Option<SessionId>,
    look: Interval,
    /// What our patience is for at the moment, and when it is over.
    waiting: Waiting,
    rejections: u32,
}

#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// For the agent to get as far as the prompt.
    Handshake { until: Instant },
    /// For the agent to do its work. The limits of the child are the only ones.
    Work,
    /// For the agent to end after it has handed in its value.
    Settling { until: Instant },
    /// For the agent to end after we asked it to.
    Stopping { until: Instant, cause: Cause },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cause {
    Cancelled,
    Enough,
}

impl Waiting {
    fn until(self) -> Option<Instant> {
        match self {
            Self::Work => None,
            Self::Handshake { until } | Self::Settling { until } | Self::Stopping { until, .. } => {
                Some(until)
            }
        }
    }
}

enum Event {
    Cancelled,
    Late,
    Look,
    Heard(Message),
    Gone,
}

impl Conversation {
    pub(crate) fn new(peer: Peer, said: Said, stop: CancellationToken, topic: Topic) -> Self {
        let mut look = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let waiting = Waiting::Handshake { until: Instant::now() + topic.patience.handshake };
        Self { peer, said, stop, topic, session: None, look, waiting, rejections: 0 }
    }

    /// Talks with the agent until there is nothing more to say.
    pub(crate) async fn hold(&mut self) -> Settlement {
        match self.prepare().await {
            Ok(session) => self.prompt(session).await,
            Err(settlement) => settlement,
        }
    }

    /// Greets the agent and returns what it says of itself.
    pub(crate) async fn greet(&mut self) -> Result<Greeting, Settlement> {
        let me = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        // No capability: the agent has files and shells of its own, and nobody here lends it others.
        let request = InitializeRequest::new(ProtocolVersion::V1).client_info(me);
        let greeting: InitializeResponse = self.ask("initialize", &request).await?;
        if greeting.protocol_version != ProtocolVersion::V1 {
            let why = format!("it speaks version {} of the protocol, not 1", greeting.protocol_version);
            return Err(Settlement::Unfit { why });
        }
        let InitializeResponse { agent_info, auth_methods, .. } = greeting;
        Ok(Greeting { agent: agent_info, auth_methods })
    }

    /// Stops listening. Returns the id of the session, what the agent said, and the way to the agent, which is told by
    /// its end that there is nothing more to come.
    pub(crate) fn finish(self) -> (Option<String>, Said, Option<ChildStdin>) {
        (self.session.map(|session| session.to_string()), self.said, self.peer.into_stdin())
    }

    async fn prepare(&mut self) -> Result<SessionId, Settlement> {
        let greeting = self.greet().await?;
        if let (Some(tool), Some(agent)) = (&mut self.topic.own_tool, &greeting.agent) {
            tool.meet(&agent.name);
        }
        if let Some(method) = self.topic.authentication.clone() {
            let offered: Vec<_> =
                greeting.auth_methods.iter().map(|method| method.id().to_string()).collect();
            if !offered.contains(&method) {
                return Err(lacks("way to authenticate", &method, &offered));
            }
            self.ask::<Option<serde::de::IgnoredAny>>("authenticate", &AuthenticateRequest::new(method))
                .await?;
        }
        let servers = self.topic.capture.take().map(McpServer::Stdio).into_iter().collect();
        let request = NewSessionRequest::new(&self.topic.workspace).mcp_servers(servers);
        let session: NewSessionResponse = self.ask("session/new", &request).await?;
        let id = session.session_id.clone();
        self.session = Some(id.clone());
        if let Some(mode) = self.topic.mode.clone() {
            self.choose_mode(&session, &mode).await?;
        }
        for (option, value) in std::mem::take(&mut self.topic.options) {
            self.set_option(&id, &option, &value).await?;
        }
        Ok(id)
    }

    async fn choose_mode(&mut self, session: &NewSessionResponse, mode: &str) -> Result<(), Settlement> {
        let id = &session.session_id;
        let modes = session.modes.as_ref().map(|modes| modes.available_modes.as_slice()).unwrap_or_default();
        if modes.iter().any(|offered| &*offered.id.0 == mode) {
            let request = SetSessionModeRequest::new(id.clone(), mode.to_owned());
            self.ask::<Option<serde::de::IgnoredAny>>("session/set_mode", &request).await?;
            return Ok(());
        }
        let options = session.config_options.as_deref().unwrap_or_default();
        let mut offered: Vec<_> = modes.iter().map(|mode| mode.id.to_string()).collect();
        for option in
            options.iter().filter(|option| option.category == Some(SessionConfigOptionCategory::Mode))
        {
            let values = values(option);
            if values.iter().any(|value| value == mode) {
                return self.set_option(id, &option.id.0, mode).await;
            }
            offered.extend(values);
        }
        Err(lacks("mode", mode, &offered))
    }

    async fn set_option(&mut self, session: &SessionId, option: &str, value: &str) -> Result<(), Settlement> {
        let request = SetSessionConfigOptionRequest::new(session.clone(), option.to_owned(), value);
        self.ask::<Option<serde::de::IgnoredAny>>("session/set_config_option", &request).await?;
        Ok(())
    }

    /// Has the agent work until it has come to its end with a value, or is not reminded of it any more.
    async fn prompt(&mut self, session: SessionId) -> Settlement {
        let mut text = std::mem::take(&mut self.topic.prompt);
        loop {
            let settlement = self.prompt_once(&session, std::mem::take(&mut text)).await;
            let ended = matches!(
                settlement,
                Settlement::Answered {
                    stop_reason: Stop::Named(acp::StopReason::EndTurn),
                    rejections: 0,
                    ..
                }
            );
            if !ended || self.topic.reminders == 0 || !self.lacks_value() {
                return settlement;
            }
            self.topic.reminders -= 1;
            text.clone_from(&self.topic.reminder);
        }
    }

    async fn prompt_once(&mut self, session: &SessionId, text: String) -> Settlement {
        self.waiting = Waiting::Work;
        let request = PromptRequest::new(session.clone(), vec![ContentBlock::Text(TextContent::new(text))]);
        let number = self.peer.request("session/prompt", &request);
        drop(request);
        let outcome = match self.answer(number).await {
            Ok(outcome) => outcome.map(|result| stop(&result)),
            Err(settlement) => return settlement,
        };
        match (self.cause(), outcome) {
            // What an agent answers that we have asked to stop is anything at all, so its word for it does not count.
            (Some(cause), outcome) => {
                cause.settlement(outcome.ok().and_then(Result::ok).and_then(|(_, usage)| usage))
            }
            (None, Ok(Ok((stop_reason, usage)))) => {
                Settlement::Answered { stop_reason, usage, rejections: self.rejections }
            }
            (None, Ok(Err(why))) => unreadable("session/prompt", &why),
            (None, Err(error)) => Settlement::Refused { method: "session/prompt", error },
        }
    }

    /// Says whether a value is asked for and nothing at all was handed in.
    fn lacks_value(&self) -> bool {
        let is_there = |path: &Path| path.symlink_metadata().is_ok();
        let files = self.topic.value.as_ref();
        files.is_some_and(|files| !is_there(&files.accepted) && !is_there(&files.refused))
    }

    /// Makes a request and takes its answer apart.
    async fn ask<T: DeserializeOwned>(
        &mut self,
        method: &'static str,
        parameters: &impl Serialize,
    ) -> Result<T, Settlement> {
        let number = self.peer.request(method, parameters);
        match self.answer(number).await? {
            Ok(result) => read(&result).map_err(|why| unreadable(method, &why)),
            Err(error) => Err(Settlement::Refused { method, error }),
        }
    }

    /// Waits for the answer to the request of this number, and heeds everything else meanwhile.
    async fn answer(&mut self, number: u64) -> Result<Result<Box<RawValue>, Error>, Settlement> {
        loop {
            match self.event().await {
                Event::Heard(Message::Answer { to, outcome }) if to == number => return Ok(outcome),
                // The second answer to a request, or one that nobody asked for.
                Event::Heard(Message::Answer { to, .. }) => {
                    tracing::debug!(request = to, "the agent answered what it was not asked");
                }
                Event::Heard(Message::Notification { method, parameters }) => self.note(&method, &parameters),
                Event::Heard(Message::Request { id, method, parameters }) => {
                    self.serve(&id, &method, &parameters);
                }
                Event::Gone => {
                    return Err(self.cause().map_or(Settlement::Gone, |cause| cause.settlement(None)));
                }
                Event::Look => {
                    let files = self.topic.value.as_ref();
                    if files.is_some_and(|files| files.accepted.symlink_metadata().is_ok()) {
                        self.waiting =
                            Waiting::Settling { until: Instant::now() + self.topic.patience.settle };
                    }
                }
                Event::Cancelled => match self.waiting {
                    Waiting::Handshake { .. } => return Err(Settlement::Cancelled { usage: None }),
                    _ => self.stop(Cause::Cancelled),
                },
                Event::Late => match self.waiting {
                    Waiting::Handshake { .. } => return Err(Settlement::Slow),
                    Waiting::Stopping { cause, .. } => return Err(cause.settlement(None)),
                    Waiting::Settling { .. } | Waiting::Work => self.stop(Cause::Enough),
                },
            }
        }
    }

    /// Waits for the next thing to happen. Cancel safe.
    async fn event(&mut self) -> Event {
        let until = self.waiting.until();
        let late = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled(), if self.cause() != Some(Cause::Cancelled) => Event::Cancelled,
            () = late => Event::Late,
            _ = self.look.tick(), if matches!(self.waiting, Waiting::Work) => Event::Look,
            message = self.peer.next() => message.map_or(Event::Gone, Event::Heard),
        }
    }

    /// Why the prompt is being stopped, if it is.
    fn cause(&self) -> Option<Cause> {
        match self.waiting {
            Waiting::Stopping { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// Asks the agent to end the prompt. From here on only our own record counts.
    fn stop(&mut self, cause: Cause) {
        let Some(session) = self.session.clone() else { return };
        let until = match self.waiting {
            // It was asked already, and asking again gives it no more time.
            Waiting::Stopping { until, .. } => until,
            _ => {
                self.peer.notify("session/cancel", &CancelNotification::new(session));
                Instant::now() + self.topic.patience.cancel
            }
        };
        self.waiting = Waiting::Stopping { until, cause };
    }

    fn note(&mut self, method: &str, parameters: &RawValue) {
        // Others are extensions that nobody asked for.
        if method == "session/update" {
            match read::<SessionNotification>(parameters) {
                Ok(update) if self.session.as_ref().is_none_or(|ours| *ours == update.session_id) => {
                    if let Some(tool) = &mut self.topic.own_tool {
                        tool.note(&update.update);
                    }
                    self.said.hear(update);
                }
                Ok(_) => {}
                Err(why) => tracing::debug!(%why, "an update of the agent was passed over"),
            }
        }
    }

    fn serve(&mut self, id: &RawValue, method: &str, parameters: &RawValue) {
        if method != "session/request_permission" {
            return self.peer.refuse(id, &Error::method_not_found());
        }
        if self.cause().is_some() || self.stop.is_cancelled() {
            return self.peer.answer(id, &nobody_chose());
        }
        match serde_json::from_str::<Asked>(parameters.get()) {
            Ok(asked) => {
                let ours =
                    self.topic.own_tool.as_ref().is_some_and(|tool| tool.is_asked_for(&asked.tool_call));
                let permissions = if ours { Permissions::Allow } else { self.topic.permissions };
                let (answer, granted) = asked.answer(permissions);
                if !granted {
                    self.rejections = self.rejections.saturating_add(1);
                    self.said.tell("was refused a permission that it asked for");
                }
                self.peer.answer(id, &answer);
            }
            Err(error) => self.peer.refuse(id, &Error::invalid_params().data(error.to_string())),
        }
    }
}

impl Cause {
    fn settlement(self, usage: Option<acp::Usage>) -> Settlement {
        match self {
            Self::Cancelled => Settlement::Cancelled { usage },
            Self::Enough => Settlement::Enough { usage },
        }
    }
}

/// Takes the answer to a prompt apart.
fn stop(result: &RawValue) -> Result<(Stop, Option<acp::Usage>), String> {
    /// An answer whose stop reason the protocol did not know when this was written.
    #[derive(serde::Deserialize)]
    struct Later {
        #[serde(rename = "stopReason")]
        _stop_reason: String,
    }
    match read::<PromptResponse>(result) {
        Ok(answer) => Ok((Stop::Named(answer.stop_reason), answer.usage)),
        Err(why) => read::<Later>(result).map(|_| (Stop::Unknown, None)).map_err(|_| why),
    }
}

fn unreadable(method: &str, why: &str) -> Settlement {
    Settlement::Unfit { why: format!("its answer to {method} cannot be read: {why}") }
}

fn read<T: DeserializeOwned>(payload: &RawValue) -> Result<T, String> {
    if payload.get().len() > MAX_PAYLOAD {
        return Err(format!("it is longer than {MAX_PAYLOAD} bytes"));
    }
    serde_json::from_str(payload.get()).map_err(|error| error.to_string())
}

/// The values that an option offers.
fn values(option: &SessionConfigOption) -> Vec<String> {
    let SessionConfigKind::Select(select) = &option.kind else { return Vec::new() };
    match &select.options {
        SessionConfigSelectOptions::Ungrouped(options) => {
            options.iter().map(|option| option.value.to_string()).collect()
        }
        SessionConfigSelectOptions::Grouped(groups) => {
            groups.iter().flat_map(|group| &group.options).map(|option| option.value.to_string()).collect()
        }
        _ => Vec::new(),
    }
}

fn lacks(what: &str, wanted: &str, offered: &[String]) -> Settlement {
    let offers = if offered.is_empty() { "none".to_owned() } else { offered.join(", ") };
    Settlement::Unfit { why: format!("it has no {what} {wanted:?}, it offers: {offers}") }
}
