use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::{EnvVariable, McpServerStdio};
use async_trait::async_trait;
use harness_process::{
    ChildSpec, Environment, Gentle, Input, Limits, Mark, Output, Shutdown, StartError, Transcript,
};
use harness_provider_cli::parts::{
    CallFiles, Capture, CliRun, child_id, mark_label, missing, refusal, unwritable, with_how,
};
use harness_provider_cli::{ATTEMPT, CALL, CaptureServer, DEPTH, RUN, value_file};
use harness_subagent::{
    Capabilities, Error, ErrorKind, Origin, OutputContract, Result, StartSubagent, SubagentProvider,
    SubagentRun,
};

use crate::conversation::{Patience, Topic};
use crate::detect::{self, DetectedAgent};
use crate::follow::Course;
use crate::own_tool::OwnTool;
use crate::permission::Permissions;

/// Runs any agent that speaks the Agent Client Protocol.
///
/// Each child is a process of its own, with one session and one prompt. It works in the workspace that its parent
/// names, which must be a path. See the [crate's documentation](crate) for what it is told, for what it may ask, and for
/// how its end is judged.
///
/// Children are supervised by [`harness_process`], so starts need a tokio runtime with I/O and time.
#[derive(Clone, Debug)]
pub struct AcpProvider {
    name: String,
    program: OsString,
    arguments: Arc<[OsString]>,
    files: PathBuf,
    capture: Option<CaptureServer>,
    authentication: Option<String>,
    mode: Option<String>,
    options: Vec<(String, String)>,
    permissions: Permissions,
    environment: Environment,
    limits: Limits,
    handshake: Duration,
    settle: Duration,
    shutdown: Shutdown,
    max_value_bytes: u64,
    corrections: u32,
    max_prompt_bytes: Option<usize>,
    transcript_cap: u64,
}

impl AcpProvider {
    /// How long an agent may take to get ready for its prompt, unless set: 2 minutes.
    pub const HANDSHAKE: Duration = Duration::from_secs(120);
    /// How often a value is handed back unless [`with_corrections`](Self::with_corrections) says otherwise.
    pub const CORRECTIONS: u32 = 2;
    /// How long an agent may go on after its value was accepted, unless set: 30 seconds.
    pub const SETTLE: Duration = Duration::from_secs(30);

    /// Makes a provider named `name` that runs `program`, which serves the protocol on its standard streams.
    ///
    /// A program without a slash is looked up in `PATH`. No shell is involved. Name the agent itself rather than a
    /// wrapper around it, where there is one: a wrapper that is told to go may leave the agent behind, which is then
    /// killed. The files of every call go to a directory of its own below `files`, which is made when it is missing.
    #[must_use]
    pub fn new(name: impl Into<String>, program: impl Into<OsString>, files: impl Into<PathBuf>) -> Self {
        // An agent has a second from the end of its input to its exit. Those that never exit are told by a signal.
        let shutdown = Shutdown::default().with_delivered_grace(Duration::from_secs(1));
        Self {
            name: name.into(),
            program: program.into(),
            arguments: Arc::new([]),
            files: files.into(),
            capture: None,
            authentication: None,
            mode: None,
            options: Vec::new(),
            permissions: Permissions::default(),
            environment: Environment::basic(),
            limits: Limits::default(),
            handshake: Self::HANDSHAKE,
            settle: Self::SETTLE,
            shutdown,
            max_value_bytes: value_file::DEFAULT_MAX_BYTES,
            corrections: Self::CORRECTIONS,
            max_prompt_bytes: None,
            transcript_cap: Transcript::CAP,
        }
    }

    /// Sets the program's arguments, passed as they are.
    #[must_use]
    pub fn with_arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the server by which children hand in their values. Without one they cannot be asked for any.
    #[must_use]
    pub fn with_capture(mut self, server: CaptureServer) -> Self {
        self.capture = Some(server);
        self
    }

    /// Sets how often a missing or refused value is handed back to the same child: a refused one by the capture server,
    /// a missing one by another prompt in the same session.
    #[must_use]
    pub fn with_corrections(mut self, times: u32) -> Self {
        self.corrections = times;
        self
    }

    /// Has the agent authenticate itself by `method`, one of those that it offers, before its session begins.
    ///
    /// Most agents find what they need in their environment or their home, and need none.
    #[must_use]
    pub fn with_authentication(mut self, method: impl Into<String>) -> Self {
        self.authentication = Some(method.into());
        self
    }

    /// Puts the session into `mode`, by its id. An agent that does not offer it cannot be used.
    ///
    /// What an agent does unasked is up to its mode, and how its modes are called is up to the agent.
    #[must_use]
    pub fn with_mode(mut self, mode: impl Into<String>) -> Self {
        self.mode = Some(mode.into());
        self
    }

    /// Sets an option of the session, such as the model, by its id. An agent that refuses it cannot be used. Options
    /// are set in the order in which they are added, after the mode.
    #[must_use]
    pub fn with_option(mut self, option: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.push((option.into(), value.into()));
        self
    }

    /// Sets what an agent is told that asks for a permission.
    #[must_use]
    pub fn with_permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = permissions;
        self
    }

    /// Sets what a child finds in its environment beside the variables of the call. Credentials are passed only when
    /// they are named here.
    #[must_use]
    pub fn with_environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Sets how long a child may take, its prompt and all that goes with it. A prompt that never settles ends with it.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how long an agent may take to get ready for its prompt.
    #[must_use]
    pub fn with_handshake_limit(mut self, limit: Duration) -> Self {
        self.handshake = limit;
        self
    }

    /// Sets how long an agent may go on after its value was accepted, before it is asked to stop.
    #[must_use]
    pub fn with_settle_grace(mut self, grace: Duration) -> Self {
        self.settle = grace;
        self
    }

    /// Sets how a child that has to go is told so.
    ///
    /// - `gentle` is not used: an agent that is cancelled is asked to stop in the words of the protocol, and has
    ///   `gentle_grace` to answer.
    /// - After that, or when its prompt is answered, its input ends, and it has `delivered_grace` to exit, 1 second
    ///   unless set here.
    /// - What is still there gets TERM and KILL with their graces.
    #[must_use]
    pub fn with_shutdown(mut self, shutdown: Shutdown) -> Self {
        self.shutdown = shutdown;
        self
    }

    /// Sets the longest value that is read, in bytes. A longer one is unreadable.
    #[must_use]
    pub fn with_max_value_bytes(mut self, max: u64) -> Self {
        self.max_value_bytes = max;
        self
    }

    /// Sets the longest prompt that the agent can take, in bytes, the appended paragraph included. A request with a
    /// longer one is refused at its start. There is no limit otherwise.
    #[must_use]
    pub fn with_max_prompt_bytes(mut self, max: usize) -> Self {
        self.max_prompt_bytes = Some(max);
        self
    }

    /// Sets how many bytes of what a child says its transcript holds at most, 64 MiB unless set.
    #[must_use]
    pub fn with_transcript_cap(mut self, cap: u64) -> Self {
        self.transcript_cap = cap;
        self
    }

    /// Looks at the agent: whether it is there, and what it says of itself when it is greeted.
    ///
    /// The agent is started in the system's directory for temporary files, with the environment that its children get,
    /// and ended again. It gets no session, so its vendor hears nothing of it. That takes as long as the agent takes to
    /// start, and no longer than the [handshake limit](Self::with_handshake_limit) and the graces of the shutdown.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O and time.
    pub async fn detect(&self) -> DetectedAgent {
        detect::detect(self).await
    }

    pub(crate) fn find(&self) -> Result<PathBuf, StartError> {
        harness_process::find_program(&self.program, self.environment.value("PATH").as_deref())
    }

    pub(crate) fn handshake_limit(&self) -> Duration {
        self.handshake
    }

    /// Describes a child in `directory`, with everything that all of them share.
    pub(crate) fn spec(&self, directory: &Path) -> ChildSpec {
        let mut shutdown = self.shutdown.clone().with_gentle(Gentle::CloseInput);
        // What the agent itself is asked to do has had its grace before that.
        shutdown.gentle_grace = shutdown.delivered_grace;
        ChildSpec::new(&self.program)
            .with_arguments(self.arguments.iter())
            .with_directory(directory)
            .with_environment(self.environment.clone())
            .with_input(Input::Piped)
            .with_output(Output::Stream)
            .with_limits(self.limits)
            .with_shutdown(shutdown)
    }

    fn launch(&self, request: StartSubagent, files: &CallFiles) -> Result<CliRun> {
        let StartSubagent { prompt, origin, parent, cancellation, output, .. } = request;
        let workspace = Path::new(&parent.workspace);
        if !workspace.is_absolute() {
            return Err(refusal(format!("workspace {:?} must be an absolute path here", parent.workspace)));
        }
        let Some(depth) = parent.depth.checked_add(1) else {
            return Err(refusal("there is no depth below the parent's, do the work without delegating"));
        };
        let mut environment = self.environment.clone().set(DEPTH, depth.to_string());
        if let Some(origin) = &origin {
            environment = environment
                .set(RUN, &*origin.run)
                .set(CALL, origin.call.to_string())
                .set(ATTEMPT, origin.attempt.to_string());
        }
        let (prompt, reminder, capture) = match &output {
            None => (prompt, String::new(), None),
            Some(contract) => {
                let capture = self.capture(contract, origin.as_ref(), files)?;
                let how =
                    format!("by calling the tool `{}` of the server `{}`", capture.tool, capture.server);
                (with_how(prompt, &how), missing(&how), Some(capture))
            }
        };
        if let Some(max) = self.max_prompt_bytes.filter(|max| prompt.len() > *max) {
            return Err(refusal(format!(
                "the prompt has {} bytes and the agent takes {max} at most, shorten it",
                prompt.len()
            )));
        }

        let stop = cancellation.child_token();
        let spec = self
            .spec(workspace)
            .with_environment(environment)
            .with_mark(Mark::new(origin.as_ref().map_or_else(String::new, mark_label)))
            .with_transcript(Transcript::new(files.transcript()).with_cap(self.transcript_cap));
        let child = harness_process::start(spec)
            .map_err(|error| Error::new(ErrorKind::Provider, "cannot start the child").with_source(error))?;
        let value = capture.as_ref().map(|capture| capture.files.clone());
        let course = Course {
            topic: Topic {
                workspace: workspace.to_owned(),
                prompt,
                own_tool: capture.as_ref().map(|capture| OwnTool::new(&capture.server, &capture.tool)),
                capture: capture.map(as_server),
                authentication: self.authentication.clone(),
                mode: self.mode.clone(),
                options: self.options.clone(),
                permissions: self.permissions,
                patience: Patience {
                    handshake: self.handshake,
                    settle: self.settle,
                    cancel: self.shutdown.gentle_grace,
                },
                value: value.clone(),
                reminder,
                reminders: self.corrections,
            },
            stop: stop.clone(),
            value,
            max_value_bytes: self.max_value_bytes,
            transcript: files.transcript(),
        };
        let id = child_id(&self.name, files.directory(), child.pid());
        let control = child.control();
        Ok(CliRun::follow(id, control, |activity| course.follow(child, activity)).stopped_by(stop))
    }

    /// Prepares the server by which this child hands in its value.
    fn capture(
        &self,
        contract: &OutputContract,
        origin: Option<&Origin>,
        files: &CallFiles,
    ) -> Result<Capture> {
        let Some(server) = &self.capture else {
            return Err(refusal(
                "no capture server is configured, and there is no other way to hand in a value",
            ));
        };
        let schema =
            files.write("schema.json", contract.schema().to_string().as_bytes()).map_err(unwritable)?;
        Capture::prepare(server, contract, &schema, self.corrections, origin, files).map_err(unwritable)
    }
}

/// Describes the server as the protocol has it.
fn as_server(capture: Capture) -> McpServerStdio {
    let variables = capture.environment.into_iter().map(|(name, value)| EnvVariable::new(name, value));
    McpServerStdio::new(capture.server, capture.program).args(capture.arguments).env(variables.collect())
}

#[async_trait]
impl SubagentProvider for AcpProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_output_contract(self.capture.is_some())
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
