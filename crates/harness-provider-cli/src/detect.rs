use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use harness_process::{ChildSpec, Environment, Limits, Output, Shutdown, StartError, sanitize};

use crate::{AgentKind, Version};

/// How long a child may go on after it has handed in its value, unless the provider is told otherwise. A model has
/// to come to its last words, which may take it a while.
pub(crate) const DELIVERED_GRACE: Duration = Duration::from_secs(30);

/// What is known of an agent on this machine.
#[derive(Debug)]
#[non_exhaustive]
pub struct Detected {
    /// The program that would be run, past a shim where there is a native one, or why there is none.
    pub program: Result<PathBuf, StartError>,
    /// Its version, where it could be told.
    pub version: Option<Version>,
    /// What it said when it was asked for its version, where that was no version: its first line, or how it ended.
    pub trouble: Option<String>,
    /// Whether the version is one between the oldest and the newest that were tested.
    pub tested: bool,
    /// Whether its vendor will accept a child, as far as that can be known without asking.
    pub login: Login,
}

/// What is known, without asking anybody, about whether an agent's vendor will accept a child.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Login {
    /// There are credentials there. Whether they are still good is not known.
    Present(String),
    /// There are none where they would be looked for.
    Absent,
    /// They may be where this crate does not look, such as a keychain.
    Unknown(String),
}

impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present(place) => write!(f, "credentials in {place}"),
            Self::Absent => f.write_str("no credentials found"),
            Self::Unknown(why) => write!(f, "not known: {why}"),
        }
    }
}

pub(crate) async fn detect(kind: AgentKind, program: &OsStr, environment: &Environment) -> Detected {
    let agent = kind.agent();
    let login = agent.login(environment);
    let program = harness_process::find_program(program, environment.value("PATH").as_deref());
    let program = program.map(|found| agent.native(found));
    let mut detected = Detected { program, version: None, trouble: None, tested: false, login };
    let Ok(program) = &detected.program else { return detected };
    match ask_for_version(program, environment).await {
        Ok(said) => {
            detected.version = agent.version(&said);
            detected.tested = detected.version.is_some_and(|version| kind.features().is_tested(version));
            if detected.version.is_none() {
                detected.trouble = Some(match said.lines().next() {
                    Some(line) => format!("it says {line:?} when it is asked for its version"),
                    None => "it says nothing when it is asked for its version".to_owned(),
                });
            }
        }
        Err(trouble) => detected.trouble = Some(trouble),
    }
    detected
}

async fn ask_for_version(program: &std::path::Path, environment: &Environment) -> Result<String, String> {
    const LONGEST: usize = 4096;
    let spec = ChildSpec::new(program)
        .with_arguments(["--version"])
        .with_directory(std::env::temp_dir())
        .with_environment(environment.clone().set("DISABLE_AUTOUPDATER", "1"))
        .with_output(Output::Collect { max: LONGEST })
        .with_limits(Limits::default().with_deadline(Duration::from_secs(10)))
        .with_shutdown(Shutdown::default().with_graces(Duration::from_secs(1)));
    let mut child = harness_process::start(spec).map_err(|error| error.to_string())?;
    let report = child.wait().await;
    if !report.succeeded() {
        return Err(format!("asked for its version, it ended as {:?}", report.ending));
    }
    let said = report.collected.as_ref().map(|collected| collected.bytes.as_slice()).unwrap_or_default();
    Ok(sanitize(&String::from_utf8_lossy(said)).trim().to_owned())
}
