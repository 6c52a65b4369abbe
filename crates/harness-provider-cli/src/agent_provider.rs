use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use harness_process::{ChildSpec, Environment, Input, Limits, Mark, Output, Shutdown, Transcript};
use harness_subagent::{
    Capabilities, Error, ErrorKind, OutputRuleCatalog, Result, StartSubagent, SubagentProvider, SubagentRun,
};

use crate::agent::{Assignment, Launch, Way, Words};
use crate::call_files::CallFiles;
use crate::capture::Capture;
use crate::child_id::child_id;
use crate::command::{mark_label, refusal, unwritable};
use crate::detect::{self, Detected};
use crate::private_home::PrivateHome;
use crate::run::CliRun;
use crate::talk::{Source, Talk};
use crate::{AgentHandIn, AgentKind, CaptureServer, Permissions, instructions, value_file};

/// Runs a real coding agent: one that is installed on this machine, in the user's name.
///
/// A child works in the workspace that its parent names, which must be an absolute path. It is hermetic: of the
/// user's own settings, hooks, plugins, servers and memories nothing reaches it, its state is in a directory that only
/// it has and that is removed afterwards, and only credentials are carried over. [`Features::left_out`] has the
/// list, and each agent's module ([`claude_code`](crate::claude_code), [`codex`](crate::codex)) says how.
///
/// What a child may do without being asked is what [`with_permissions`](Self::with_permissions) says, and
/// [`permissions_in_words`](Self::permissions_in_words) tells people so before anything is started.
///
/// [`Features::left_out`]: crate::Features::left_out
///
/// # Handing in a value
///
/// A contract's value comes by the agent's own schema mode or by a [`CaptureServer`]; see [`AgentHandIn`]. A value
/// that is missing, or that the rule of the contract refuses, is handed back to the same child with the violations,
/// [`with_corrections`](Self::with_corrections) times at most, where the agent can be spoken to. The value that is
/// delivered is the first one accepted, else the last one refused. A rule that the provider's catalog lacks
/// corrects nothing. The provider gives no verdict: whoever called the child judges the value again.
///
/// # How the end is judged
///
/// From what was done to the child, from the agent's own structured events and from the exit status, never from what a
/// model said. A child that was cancelled or exceeded a limit ends as `aborted` or `timed-out`, whatever it said. An
/// accepted value completes every other end. Then the agent's own closing event decides, then the exit status. What
/// the child used, and its session, are told for every end as far as the agent told them.
///
/// ```
/// use harness_provider_cli::{AgentKind, AgentProvider, Permissions};
///
/// let provider = AgentProvider::new(AgentKind::ClaudeCode, "/var/lib/my-app/calls")
///     .with_model("sonnet")
///     .with_permissions(Permissions::ReadOnly);
/// println!("The agent may: {}", provider.permissions_in_words());
/// ```
#[derive(Clone, Debug)]
pub struct AgentProvider {
    name: String,
    kind: AgentKind,
    files: PathBuf,
    options: Arc<Options>,
}

/// What can be chosen about an agent's children.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) model: Option<String>,
    pub(crate) permissions: Permissions,
    pub(crate) allowed_tools: Vec<String>,
    pub(crate) hand_in: Option<AgentHandIn>,
    pub(crate) capture: Option<CaptureServer>,
    pub(crate) instructions: bool,
    pub(crate) rules: OutputRuleCatalog,
    pub(crate) corrections: u32,
    pub(crate) max_turns: Option<u32>,
    pub(crate) max_cost_usd_micros: Option<u64>,
    pub(crate) environment: Environment,
    pub(crate) limits: Limits,
    pub(crate) shutdown: Shutdown,
    pub(crate) max_value_bytes: u64,
    pub(crate) transcript_cap: u64,
}

impl AgentProvider {
    /// How often a value is handed back unless [`with_corrections`](Self::with_corrections) says otherwise.
    pub const CORRECTIONS: u32 = 2;

    /// Makes a provider of `kind`, named as the kind is.
    ///
    /// The files of every call go to a directory of its own below `files`, which is made when it is missing; see the
    /// [crate's documentation](crate).
    #[must_use]
    pub fn new(kind: AgentKind, files: impl Into<PathBuf>) -> Self {
        let options = Options {
            program: kind.features().program.into(),
            arguments: Vec::new(),
            model: None,
            permissions: Permissions::default(),
            allowed_tools: Vec::new(),
            hand_in: None,
            capture: None,
            instructions: true,
            rules: OutputRuleCatalog::new(),
            corrections: Self::CORRECTIONS,
            max_turns: None,
            max_cost_usd_micros: None,
            environment: Environment::basic(),
            limits: Limits::default(),
            shutdown: Shutdown::default().with_delivered_grace(detect::DELIVERED_GRACE),
            max_value_bytes: value_file::DEFAULT_MAX_BYTES,
            transcript_cap: Transcript::CAP,
        };
        Self { name: kind.as_str().to_owned(), kind, files: files.into(), options: Arc::new(options) }
    }

    /// Sets the name under which the provider is registered.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the program, in place of the agent's usual one. A program without a slash is looked up in `PATH`.
    #[must_use]
    pub fn with_program(self, program: impl Into<OsString>) -> Self {
        let program = program.into();
        self.set(|options| options.program = program)
    }

    /// Sets arguments that are added to those the provider makes, for what it has no name for.
    ///
    /// They stand where the agent takes options, behind the provider's own, so they can undo what makes a child
    /// hermetic. Whoever sets them takes care of that.
    #[must_use]
    pub fn with_arguments(self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        self.set(|options| options.arguments = arguments)
    }

    /// Sets the model of requests that choose none. The agent chooses otherwise.
    #[must_use]
    pub fn with_model(self, model: impl Into<String>) -> Self {
        let model = model.into();
        self.set(|options| options.model = Some(model))
    }

    /// Sets what a child may do without being asked. [`Permissions::Workspace`] unless set.
    #[must_use]
    pub fn with_permissions(self, permissions: Permissions) -> Self {
        self.set(|options| options.permissions = permissions)
    }

    /// Sets tools that a child may use beside what its permissions allow, in the agent's own notation. Agents that
    /// have no such notation are refused at the start.
    #[must_use]
    pub fn with_allowed_tools(self, tools: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let tools = tools.into_iter().map(Into::into).collect();
        self.set(|options| options.allowed_tools = tools)
    }

    /// Sets how a value is handed in, in place of the first way in [`Features::hand_in`](crate::Features::hand_in)
    /// that is possible.
    #[must_use]
    pub fn with_hand_in(self, hand_in: AgentHandIn) -> Self {
        self.set(|options| options.hand_in = Some(hand_in))
    }

    /// Sets the server by which values are captured.
    #[must_use]
    pub fn with_capture(self, server: CaptureServer) -> Self {
        self.set(|options| options.capture = Some(server))
    }

    /// Says whether a child reads the workspace's own file of instructions. It does unless told otherwise.
    #[must_use]
    pub fn with_instructions(self, read: bool) -> Self {
        self.set(|options| options.instructions = read)
    }

    /// Sets the output rules by which the provider lets a child correct itself.
    #[must_use]
    pub fn with_rules(self, rules: OutputRuleCatalog) -> Self {
        self.set(|options| options.rules = rules)
    }

    /// Sets how often a missing or refused value is handed back to the same child.
    #[must_use]
    pub fn with_corrections(self, times: u32) -> Self {
        self.set(|options| options.corrections = times)
    }

    /// Limits the agent's own turns. Agents that know no such limit are refused at the start.
    #[must_use]
    pub fn with_max_turns(self, turns: impl Into<Option<u32>>) -> Self {
        let turns = turns.into();
        self.set(|options| options.max_turns = turns)
    }

    /// Limits the money that one child may use, in millionths of a US dollar. Agents that know no such limit are
    /// refused at the start. It is checked after the spending, so it can be exceeded by one answer.
    #[must_use]
    pub fn with_max_cost_usd_micros(self, micros: impl Into<Option<u64>>) -> Self {
        let micros = micros.into();
        self.set(|options| options.max_cost_usd_micros = micros)
    }

    /// Sets what a child finds in its environment beside what the provider sets and the credentials of its vendor
    /// ([`Features::credentials`](crate::Features::credentials)), which are always let through.
    #[must_use]
    pub fn with_environment(self, environment: Environment) -> Self {
        self.set(|options| options.environment = environment)
    }

    /// Sets how long a child may take.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        self.set(|options| options.limits = limits)
    }

    /// Sets the graces with which a child is ended. Its gentle step is the agent's own and stays.
    #[must_use]
    pub fn with_shutdown(self, shutdown: Shutdown) -> Self {
        self.set(|options| options.shutdown = shutdown)
    }

    /// Sets the longest value that is read, in bytes. A longer one is unreadable.
    #[must_use]
    pub fn with_max_value_bytes(self, max: u64) -> Self {
        self.set(|options| options.max_value_bytes = max)
    }

    /// Sets how many bytes of what a child says its transcript holds at most, 64 MiB unless set.
    #[must_use]
    pub fn with_transcript_cap(self, cap: u64) -> Self {
        self.set(|options| options.transcript_cap = cap)
    }

    fn set(mut self, set: impl FnOnce(&mut Options)) -> Self {
        set(Arc::make_mut(&mut self.options));
        self
    }

    /// Returns which agent this is.
    #[must_use]
    pub fn kind(&self) -> AgentKind {
        self.kind
    }

    /// Returns what a child may do without being asked.
    #[must_use]
    pub fn permissions(&self) -> Permissions {
        self.options.permissions
    }

    /// Tells, in words for people, what a child may do without being asked.
    #[must_use]
    pub fn permissions_in_words(&self) -> String {
        let mut words = self.kind.features().permissions_in_words(self.options.permissions).to_owned();
        if !self.options.allowed_tools.is_empty() {
            words.push_str("; and use ");
            words.push_str(&self.options.allowed_tools.join(", "));
        }
        words
    }

    /// Returns how a value is handed in, or nothing where the way that was asked for lacks something.
    #[must_use]
    pub fn hand_in(&self) -> Option<AgentHandIn> {
        let features = self.kind.features();
        let possible = |way: &AgentHandIn| match way {
            AgentHandIn::Schema => true,
            AgentHandIn::Capture => self.options.capture.is_some(),
        };
        let asked_for = self.options.hand_in;
        features
            .hand_in
            .iter()
            .copied()
            .find(|way| possible(way) && asked_for.is_none_or(|asked| asked == *way))
    }

    /// Finds out whether the agent is installed, in which version, and what is known about its login.
    ///
    /// Runs the program once, to ask for its version, and nothing else; no network is used. Takes 15 seconds at most.
    /// Must be called within a tokio runtime whose I/O and time are enabled.
    pub async fn detect(&self) -> Detected {
        detect::detect(self.kind, &self.options.program, &self.environment()).await
    }

    /// The environment of a child before its agent adds to it.
    fn environment(&self) -> Environment {
        let credentials = self.kind.features().credentials;
        credentials.iter().fold(self.options.environment.clone(), Environment::allow)
    }

    /// Refuses what the agent does not know.
    fn check(&self, request: &StartSubagent) -> io::Result<()> {
        let features = self.kind.features();
        let title = features.title;
        let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if self.options.max_turns.is_some() && !features.turn_limit {
            return refused(format!("{title} has no limit on its turns, leave it out"));
        }
        if self.options.max_cost_usd_micros.is_some() && !features.budget_limit {
            return refused(format!("{title} has no limit on what it costs, leave it out"));
        }
        if !self.options.allowed_tools.is_empty() && !features.allowed_tools {
            return refused(format!("{title} has no list of allowed tools, leave it out"));
        }
        if let Some(provider) = request.model.as_ref().and_then(|model| model.provider.as_deref()) {
            return refused(format!(
                "{title} knows models by name alone, leave out the provider {provider:?}"
            ));
        }
        if !Path::new(&request.parent.workspace).is_absolute() {
            return refused(format!(
                "workspace {:?} must be an absolute path here",
                request.parent.workspace
            ));
        }
        if request.output.is_some() && self.hand_in().is_none() {
            return refused(match self.options.hand_in {
                Some(AgentHandIn::Capture) | None => {
                    format!("{title} hands in values by a capture server, name one")
                }
                Some(way) => format!("{title} has no way named {way} to hand in a value"),
            });
        }
        Ok(())
    }

    fn launch(&self, request: StartSubagent, files: &CallFiles) -> Result<CliRun> {
        let refused =
            |error: io::Error| Error::new(ErrorKind::Provider, "cannot start the child").with_source(error);
        self.check(&request).map_err(refused)?;
        let StartSubagent { prompt, origin, parent, cancellation, output, model, .. } = request;
        let Some(depth) = parent.depth.checked_add(1) else {
            return Err(refusal("there is no depth below the parent's, do the work without delegating"));
        };
        let agent = self.kind.agent();
        let features = self.kind.features();
        let options = &*self.options;

        let mut environment = self.environment().set(crate::DEPTH, depth.to_string());
        if let Some(origin) = &origin {
            environment = environment
                .set(crate::RUN, &*origin.run)
                .set(crate::CALL, origin.call.to_string())
                .set(crate::ATTEMPT, origin.attempt.to_string());
        }
        let way = match (&output, self.hand_in()) {
            (Some(contract), Some(hand_in)) => {
                let schema = contract.schema().to_string();
                let file = files.write("schema.json", schema.as_bytes()).map_err(unwritable)?;
                Some(match (hand_in, &options.capture) {
                    (AgentHandIn::Capture, Some(server)) => {
                        let corrections = options.corrections;
                        Capture::prepare(server, contract, &file, corrections, origin.as_ref(), files)
                            .map(Way::Capture)
                            .map_err(refused)?
                    }
                    _ => Way::Schema { schema, file },
                })
            }
            _ => None,
        };
        let how = way.as_ref().map(|way| agent.how_to_hand_in(way));
        let prompt = match &how {
            Some(how) => instructions::with_how(prompt, how),
            None => prompt,
        };
        if let Some(max) = features.max_prompt_characters
            && prompt.len() > max
            && prompt.chars().count() > max
        {
            return Err(refusal(format!(
                "the prompt has {} characters and {} takes {max} at most, shorten it",
                prompt.chars().count(),
                features.title
            )));
        }
        let home = PrivateHome::create(files.directory().join("home")).map_err(unwritable)?;
        let model = model.and_then(|model| model.model);
        let workspace = Path::new(&parent.workspace);
        let Launch { arguments, environment, words, gentle } = agent
            .launch(&Assignment {
                options,
                prompt: &prompt,
                model: model.as_deref().or(options.model.as_deref()),
                way: way.as_ref(),
                workspace,
                home: home.path(),
                files,
                environment,
            })
            .map_err(refused)?;
        let (input, words) = match words {
            Words::Once(words) => (Input::Bytes(words), None),
            Words::First(words) => (Input::Piped, Some(words)),
        };

        let found = harness_process::find_program(&options.program, environment.value("PATH").as_deref());
        let found = found
            .map_err(|error| Error::new(ErrorKind::Provider, "cannot start the child").with_source(error))?;
        let label = origin.as_ref().map_or_else(String::new, mark_label);
        let spec = ChildSpec::new(agent.native(found))
            .with_arguments(arguments)
            .with_directory(workspace)
            .with_environment(environment)
            .with_mark(Mark::new(label))
            .with_input(input)
            .with_output(Output::Stream)
            .with_transcript(Transcript::new(files.transcript()).with_cap(options.transcript_cap))
            .with_limits(options.limits)
            .with_shutdown(options.shutdown.clone().with_gentle(gentle))
            .with_cancellation(cancellation.clone());
        let child = harness_process::start(spec)
            .map_err(|error| Error::new(ErrorKind::Provider, "cannot start the child").with_source(error))?;
        let talk = Talk {
            title: features.title,
            conversation: agent.conversation(way.as_ref()),
            words,
            source: way.map(|way| match way {
                Way::Schema { .. } => Source::Told,
                Way::Capture(capture) => Source::Captured(capture.files),
            }),
            how: how.unwrap_or_default(),
            rule: output.as_ref().and_then(|contract| contract.rule().cloned()),
            rules: options.rules.clone(),
            corrections: options.corrections,
            max_value_bytes: options.max_value_bytes,
            transcript: files.transcript(),
            home,
        };
        let id = child_id(&self.name, files.directory(), child.pid());
        Ok(CliRun::follow(id, child.control(), |activity| talk.follow(child, activity)))
    }
}

#[async_trait]
impl SubagentProvider for AgentProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        let able = self.hand_in().is_some();
        Capabilities::NONE.with_output_contract(able).with_model_choice(true)
    }

    fn inherits_parent_context(&self) -> bool {
        false
    }

    async fn start(&self, request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
        if request.cancellation.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "the request was cancelled before the start"));
        }
        let files = CallFiles::create(&self.files, request.origin.as_ref()).map_err(|error| {
            Error::new(
                ErrorKind::Provider,
                format!("cannot make a directory for the call's files below {}", self.files.display()),
            )
            .with_source(error)
        })?;
        match self.launch(request, &files) {
            Ok(run) => Ok(Box::new(run)),
            Err(error) => {
                files.discard();
                Err(error)
            }
        }
    }
}
