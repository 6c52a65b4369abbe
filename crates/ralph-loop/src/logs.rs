use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use harness_engine_local::{RunHistory, RunState};
use harness_process::Utf8Decoder;

use crate::arguments::LogsArguments;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::settings::Settings;
use crate::shown::{self, BOLD, DIM};
use crate::state::State;

/// How often a run that is followed is looked at.
const LOOK: Duration = Duration::from_millis(150);

/// `ralph-loop logs`.
pub(crate) fn logs(arguments: &LogsArguments) -> Result<Exit, Failure> {
    if let Some(settings) = Settings::of_temporal(&arguments.engine)? {
        return Err(Failure::refuse(format!(
            "what the agents of a run on Temporal said stays on the workers that ran its rounds, below `calls/` in \
             their state directory; `{}` names the worker of each round. A run of this machine needs --engine local",
            crate::typed::command(&format!("show {}{}", arguments.run, settings.engine_flags()))
        )));
    }
    let state = State::open()?;
    let run = state.find(&arguments.run)?;
    let folder = state.calls().join(run.as_str());
    let mut done = 0;
    let mut open: Option<Transcript> = None;
    loop {
        let history = RunHistory::read(&**state.journals(), &run)?;
        let goes_on = arguments.follow && history.state == RunState::Running;
        let attempts = history
            .calls
            .iter()
            .flat_map(|(round, call)| call.attempts.iter().map(move |attempt| (*round, attempt.attempt)));
        let wanted = |(round, _): &(u64, u32)| arguments.round.is_none_or(|wanted| wanted == *round);
        let attempts: Vec<_> = attempts.filter(wanted).collect();
        if let (true, false, Some(round)) = (attempts.is_empty(), goes_on, arguments.round) {
            let rounds = shown::rounds(history.agents_started());
            return Err(Failure::refuse(format!("there is no round {round}: run {run} has {rounds}")));
        }
        for (index, (round, attempt)) in attempts.iter().enumerate().skip(done) {
            let transcript = match &mut open {
                Some(transcript) => transcript,
                None => {
                    let path = folder.join(format!("{round}-{attempt}/transcript.log"));
                    let heading = format!("round {round}, attempt {attempt}");
                    output::print(&format!("{BOLD}{heading}{BOLD:#}  {DIM}{}{DIM:#}\n", shown::path(&path)))?;
                    open.insert(Transcript::new(path))
                }
            };
            transcript.print_new()?;
            if index + 1 == attempts.len() && goes_on {
                break;
            }
            transcript.print_rest()?;
            done = index + 1;
            open = None;
        }
        if !goes_on {
            return Ok(Exit::Complete);
        }
        sleep(LOOK);
    }
}

/// A transcript that is printed while it grows.
struct Transcript {
    path: PathBuf,
    file: Option<File>,
    decoder: Utf8Decoder,
    /// A line whose end has not been written yet.
    begun: String,
}

impl Transcript {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None, decoder: Utf8Decoder::default(), begun: String::new() }
    }

    /// Prints what has been written since the last time, in whole lines.
    fn print_new(&mut self) -> Result<(), Failure> {
        const LONGEST_LINE: usize = 64 * 1024;
        self.open()?;
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut buffer = vec![0; LONGEST_LINE];
        loop {
            let length = file.read(&mut buffer).map_err(|error| unreadable(&self.path, &error))?;
            if length == 0 {
                return Ok(());
            }
            self.begun.push_str(&self.decoder.decode(&buffer[..length]));
            let whole = match self.begun.rfind('\n') {
                Some(end) => end + 1,
                None if self.begun.len() > LONGEST_LINE => self.begun.len(),
                None => 0,
            };
            let lines: String = self.begun.drain(..whole).collect();
            output::print(&harness_process::sanitize(&lines))?;
        }
    }

    /// Prints the last line, which has no end.
    fn print_rest(&mut self) -> Result<(), Failure> {
        if self.file.is_none() {
            return Ok(output::print(&format!("{DIM}(nothing is written down){DIM:#}\n"))?);
        }
        self.begun.push_str(&self.decoder.finish());
        if !self.begun.is_empty() {
            output::print(&format!("{}\n", harness_process::sanitize(&self.begun)))?;
            self.begun.clear();
        }
        Ok(())
    }

    /// Opens the file, once it is there.
    fn open(&mut self) -> Result<(), Failure> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unreadable(&self.path, &error)),
            }
        }
        Ok(())
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::environment(anyhow::anyhow!("cannot read {}: {error}", path.display()))
}
