//! Our server over HTTP, for a client that speaks nothing else.
//!
//! It carries messages and adds nothing: each session that begins is another server process, a POST is one message, and
//! its answer is the message with the same id. What the server says in between is dropped.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The longest message.
const MAX_BYTES: usize = 1 << 20;
/// The longest that an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The listener, and the servers that it has started. They end with this.
pub(crate) struct Bridge {
    pub(crate) url: String,
    sessions: Arc<Sessions>,
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.sessions.all.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Listens on the loopback interface until the process ends.
pub(crate) fn serve(start: impl Fn() -> Command + Send + Sync + 'static) -> Result<Bridge> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    let sessions = Arc::new(Sessions { start: Box::new(start), all: Mutex::default() });
    let bridge = Bridge { url, sessions: Arc::clone(&sessions) };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sessions = Arc::clone(&sessions);
            thread::spawn(move || {
                // A client that goes away, or sends what is no request, gets no answer.
                let _ = connection(stream, &sessions);
            });
        }
    });
    Ok(bridge)
}

struct Sessions {
    start: Box<dyn Fn() -> Command + Send + Sync>,
    all: Mutex<HashMap<String, Arc<Mutex<Session>>>>,
}

struct Session {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<Value>,
}

impl Sessions {
    fn begin(&self) -> Result<(String, Arc<Mutex<Session>>)> {
        let mut command = (self.start)();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("the server cannot be started")?;
        let requests = child.stdin.take().context("a pipe")?;
        let answers = BufReader::new(child.stdout.take().context("a pipe")?);
        let (send, receive) = channel();
        thread::spawn(move || {
            for line in answers.lines().map_while(Result::ok) {
                if let Ok(message) = serde_json::from_str(&line)
                    && send.send(message).is_err()
                {
                    break;
                }
            }
        });
        let session = Arc::new(Mutex::new(Session { child, requests, answers: receive }));
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let id = format!("session-{}", all.len() + 1);
        all.insert(id.clone(), Arc::clone(&session));
        Ok((id, session))
    }

    fn get(&self, id: &str) -> Option<Arc<Mutex<Session>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }
}

impl Session {
    /// Sends a message, and returns the answer to one that wants one.
    fn send(&mut self, message: &Value) -> Result<Option<Value>> {
        self.requests.write_all(format!("{message}\n").as_bytes())?;
        if message.get("id").is_none() || message.get("method").is_none() {
            return Ok(None);
        }
        loop {
            let answer = self.answers.recv_timeout(PATIENCE).context("the server does not answer")?;
            if answer["id"] == message["id"] && answer.get("method").is_none() {
                return Ok(Some(answer));
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The end of its input would do, and nobody waits here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connection(stream: TcpStream, sessions: &Sessions) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let method = line.split(' ').next().unwrap_or_default().to_owned();
        let (mut length, mut session) = (0, None);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let Some((name, value)) = header.trim_end().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse()?,
                "mcp-session-id" => session = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        ensure!(length <= MAX_BYTES, "the message is too long");
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let (status, session, answer) = match method.as_str() {
            "POST" => match post(sessions, session, &serde_json::from_slice(&body)?)? {
                (session, Some(answer)) => ("200 OK", session, answer.to_string()),
                (session, None) => ("202 Accepted", session, String::new()),
            },
            "DELETE" => ("200 OK", None, String::new()),
            _ => ("405 Method Not Allowed", None, String::new()),
        };
        let session = session.map_or_else(String::new, |id| format!("mcp-session-id: {id}\r\n"));
        write!(
            writer,
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{session}content-length: {}\r\n\r\n{answer}",
            answer.len()
        )?;
    }
}

fn post(sessions: &Sessions, id: Option<String>, message: &Value) -> Result<(Option<String>, Option<Value>)> {
    let (id, session) = match id.and_then(|id| Some((id.clone(), sessions.get(&id)?))) {
        Some(known) => known,
        None => sessions.begin()?,
    };
    let answer = session.lock().unwrap_or_else(PoisonError::into_inner).send(message)?;
    Ok((Some(id), answer))
}
