use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use harness_process::{ChildSpec, Environment, Input, Limits, Mark, Output, Shutdown, Transcript};
use harness_subagent::{
    Capabilities, Error, ErrorKind, Result, StartSubagent, SubagentProvider, SubagentRun,
};

use crate::call_files::CallFiles;
use crate::child_id::child_id;
use crate::run::{CliRun, Course};
use crate::schema_files::SchemaFiles;
use crate::{instructions, value_file};

/// Runs any program as an agent.
///
/// The child works in the workspace that its parent names, which must be a path. It gets the prompt on standard
/// input, or in a file, with one paragraph appended on how to hand in its value. See the
/// [crate's documentation](crate) for its environment and for how its end is judged.
///
/// Children are supervised by [`harness_process`], so starts need a tokio runtime with I/O and time.
#[derive(Clone, Debug)]
pub struct CommandProvider {
    name: String,
    program: OsString,
    arguments: Arc<[OsString]>,
    files: PathBuf,
    hand_in: HandIn,
    prompt: PromptChannel,
    environment: Environment,
    limits: Limits,
    shutdown: Shutdown,
    max_value_bytes: u64,
    max_prompt_bytes: Option<usize>,
    transcript_cap: u64,
    schemas: Arc<SchemaFiles>,
}

/// How a child hands in its value.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum HandIn {
    /// In the value file; see [`value_file`]. Standard output is free for whatever the program says.
    #[default]
    File,
    /// As the whole of standard output, which must be one JSON document.
    StandardOutput,
}

/// How a child gets its prompt.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum PromptChannel {
    /// On standard input, to its end.
    #[default]
    StandardInput,
    /// In the file that [`PROMPT_FILE`](crate::PROMPT_FILE) names. Standard input is empty.
    File,
}

impl CommandProvider {
    /// Makes a provider named `name` that runs `program`.
    ///
    /// A program without a slash is looked up in `PATH`. No shell is involved. The files of every call go to a
    /// directory of its own below `files`, which is made when it is missing; see the [crate's documentation](crate).
    #[must_use]
    pub fn new(name: impl Into<String>, program: impl Into<OsString>, files: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            arguments: Arc::new([]),
            files: files.into(),
            hand_in: HandIn::default(),
            prompt: PromptChannel::default(),
            environment: Environment::basic(),
            limits: Limits::default(),
            shutdown: Shutdown::default(),
            max_value_bytes: value_file::DEFAULT_MAX_BYTES,
            max_prompt_bytes: None,
            transcript_cap: Transcript::CAP,
            schemas: Arc::default(),
        }
    }

    /// Sets the program's arguments, passed as they are.
    #[must_use]
    pub fn with_arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how a child hands in its value.
    #[must_use]
    pub fn with_hand_in(mut self, hand_in: HandIn) -> Self {
        self.hand_in = hand_in;
        self
    }

    /// Sets how a child gets its prompt.
    #[must_use]
    pub fn with_prompt(mut self, prompt: PromptChannel) -> Self {
        self.prompt = prompt;
        self
    }

    /// Sets what a child finds in its environment beside the variables of this crate. Credentials are passed only when
    /// they are named here.
    #[must_use]
    pub fn with_environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Sets how long a child may take.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how a child that has to go is told so.
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

    /// Sets the longest prompt that the program can take, in bytes, the appended paragraph included. A request with a
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

    fn launch(&self, request: StartSubagent, files: &CallFiles) -> Result<CliRun> {
        let StartSubagent { prompt, origin, parent, cancellation, output, .. } = request;
        let workspace = Path::new(&parent.workspace);
        if !workspace.is_absolute() {
            return Err(refusal(format!("workspace {:?} must be an absolute path here", parent.workspace)));
        }
        let Some(depth) = parent.depth.checked_add(1) else {
            return Err(refusal("there is no depth below the parent's, do the work without delegating"));
        };

        let mut environment = self.environment.clone().set(crate::DEPTH, depth.to_string());
        if let Some(origin) = &origin {
            environment = environment
                .set(crate::RUN, &*origin.run)
                .set(crate::CALL, origin.call.to_string())
                .set(crate::ATTEMPT, origin.attempt.to_string());
        }
        let mut schema_file = None;
        let prompt = match &output {
            None => prompt,
            Some(contract) => {
                let file = self.schemas.file(files.run(), contract.schema()).map_err(unwritable)?;
                environment = environment.set(crate::SCHEMA_FILE, &file.path);
                let schema = &*schema_file.insert(file).text;
                match self.hand_in {
                    HandIn::File => {
                        environment = environment.set(crate::VALUE_FILE, files.value());
                        instructions::by_file(prompt, schema, files.value())
                    }
                    HandIn::StandardOutput => instructions::by_standard_output(prompt, schema),
                }
            }
        };
        if let Some(max) = self.max_prompt_bytes.filter(|max| prompt.len() > *max) {
            return Err(refusal(format!(
                "the prompt has {} bytes and the program takes {max} at most, shorten it",
                prompt.len()
            )));
        }
        let input = match self.prompt {
            PromptChannel::StandardInput => Input::Bytes(prompt.into_bytes()),
            PromptChannel::File => {
                let path = files.write("prompt.txt", prompt.as_bytes()).map_err(unwritable)?;
                environment = environment.set(crate::PROMPT_FILE, path);
                Input::Empty
            }
        };

        let label = origin.as_ref().map_or_else(String::new, mark_label);
        let spec = ChildSpec::new(&self.program)
            .with_arguments(self.arguments.iter())
            .with_directory(workspace)
            .with_environment(environment)
            .with_mark(Mark::new(label))
            .with_input(input)
            .with_output(Output::Stream)
            .with_transcript(Transcript::new(files.transcript()).with_cap(self.transcript_cap))
            .with_limits(self.limits)
            .with_shutdown(self.shutdown.clone())
            .with_cancellation(cancellation.clone());
        let child = harness_process::start(spec)
            .map_err(|error| Error::new(ErrorKind::Provider, "cannot start the child").with_source(error))?;
        if let (Some(file), Some(contract)) = (schema_file, &output) {
            self.schemas.keep(files.run(), contract.schema(), file);
        }
        let course = Course {
            value: (output.is_some() && self.hand_in == HandIn::File).then(|| files.value().to_owned()),
            value_on_output: output.is_some() && self.hand_in == HandIn::StandardOutput,
            max_value_bytes: self.max_value_bytes,
            transcript: files.transcript(),
        };
        let id = child_id(&self.name, files.directory(), child.pid());
        Ok(CliRun::drive(id, child, course))
    }
}

/// Refuses a request that cannot be carried out here, and says why.
pub fn refusal(why: impl Into<String>) -> Error {
    let why = io::Error::new(io::ErrorKind::InvalidInput, why.into());
    Error::new(ErrorKind::Provider, "cannot start the child").with_source(why)
}

/// Refuses a request whose files cannot be written.
#[must_use]
pub fn unwritable(error: io::Error) -> Error {
    Error::new(ErrorKind::Provider, "cannot write the files of the call").with_source(error)
}

/// Names the call in the mark of its processes, as far as a mark can hold it.
#[must_use]
pub fn mark_label(origin: &harness_subagent::Origin) -> String {
    const LONGEST_RUN: usize = 200;
    let plain = |byte: u8| if byte.is_ascii_graphic() && byte != b',' { char::from(byte) } else { '_' };
    let run: String = origin.run.bytes().take(LONGEST_RUN).map(plain).collect();
    format!("{run}/{}/{}", origin.call, origin.attempt)
}

#[async_trait]
impl SubagentProvider for CommandProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_output_contract(true)
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
