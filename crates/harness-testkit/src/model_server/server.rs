use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::answer::answer;
use super::conversations::Conversations;
use super::exchange::{Ending, Exchange, Purpose};
use super::script::Script;
use super::turn::Turn;

/// How many exchanges are kept, and how many bytes of their bodies.
const KEPT_EXCHANGES: usize = 10_000;
const KEPT_BYTES: usize = 512 << 20;
/// How many connections are served at a time; more wait.
const CONNECTIONS: usize = 256;
/// How long a connection may be idle.
const IDLE_TIME: Duration = Duration::from_secs(600);

/// A model server that plays a script.
///
/// It listens on a free port of `127.0.0.1`, on a thread of its own, until it is dropped. A request body may have 32
/// MiB; ten thousand exchanges and 512 MiB of bodies are kept, and requests after that are refused. Up to 256
/// connections are served at a time.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    url: String,
    shared: Arc<Shared>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl ModelServer {
    /// Starts a server that plays `script`.
    ///
    /// It is ready for connections when this returns.
    ///
    /// # Errors
    ///
    /// If there is no port, no thread or no room for a runtime.
    pub fn start(script: Script) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let shared = Arc::new(Shared::new(script));
        let stop = CancellationToken::new();
        let thread = thread::Builder::new().name("model-server".to_owned()).spawn({
            let (shared, stop) = (Arc::clone(&shared), stop.clone());
            move || runtime.block_on(serve(listener, shared, stop))
        })?;
        Ok(Self { address, url: format!("http://{address}"), shared, stop, thread: Some(thread) })
    }

    /// Returns where the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address as `http://127.0.0.1:PORT`. Any prefix may stand before the paths of the APIs.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns all exchanges so far.
    #[must_use]
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.shared.state().exchanges.clone()
    }

    /// Returns the exchanges of conversation `number`, counted from 1 in the order in which they began.
    #[must_use]
    pub fn conversation(&self, number: usize) -> Vec<Exchange> {
        let state = self.shared.state();
        let is_of_it =
            |exchange: &&Exchange| exchange.place.is_some_and(|place| place.conversation == number);
        state.exchanges.iter().filter(is_of_it).cloned().collect()
    }

    /// Waits until `look` finds something in the exchanges, at most for `limit`.
    ///
    /// `look` is called at once and whenever an exchange begins or ends. It blocks the thread and, while `look` runs,
    /// the server.
    pub fn wait_until<T>(
        &self,
        limit: Duration,
        mut look: impl FnMut(&[Exchange]) -> Option<T>,
    ) -> Option<T> {
        let started = Instant::now();
        let mut state = self.shared.state();
        loop {
            if let Some(found) = look(&state.exchanges) {
                return Some(found);
            }
            let left = limit.checked_sub(started.elapsed()).filter(|left| !left.is_zero())?;
            (state, _) =
                self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of the server is one in a test; it has been printed.
            let _ = thread.join();
        }
    }
}

/// What the server and its owner both see.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) script: Script,
    state: Mutex<State>,
    changed: Condvar,
    stopping: AtomicBool,
}

#[derive(Debug)]
struct State {
    conversations: Conversations,
    exchanges: Vec<Exchange>,
    kept_bytes: usize,
}

impl Shared {
    fn new(script: Script) -> Self {
        let conversations = Conversations::new(script.clone());
        let state = State { conversations, exchanges: Vec::new(), kept_bytes: 0 };
        Self { script, state: Mutex::new(state), changed: Condvar::new(), stopping: AtomicBool::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self, number: usize, ending: Ending) {
        if let Some(exchange) = self.state().exchanges.get_mut(number - 1) {
            exchange.ending = Some(ending);
        }
        self.changed.notify_all();
    }

    /// Notes a request; returns its number, and what is played for it if it is a question.
    ///
    /// Returns `None` if no more are kept.
    pub(super) fn begin(&self, mut exchange: Exchange, bytes: usize) -> Option<(usize, Option<Turn>)> {
        let mut state = self.state();
        if state.exchanges.len() >= KEPT_EXCHANGES || state.kept_bytes + bytes > KEPT_BYTES {
            return None;
        }
        let turn = match &exchange.purpose {
            Purpose::Question(question) => {
                let (turn, place) = state.conversations.turn_for(question);
                exchange.place = place;
                Some(turn)
            }
            _ => None,
        };
        let number = state.exchanges.len() + 1;
        exchange.number = number;
        state.kept_bytes += bytes;
        state.exchanges.push(exchange);
        drop(state);
        self.changed.notify_all();
        Some((number, turn))
    }
}

async fn serve(listener: tokio::net::TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    let accept = async {
        loop {
            let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes the semaphore");
            let Ok((stream, _)) = listener.accept().await else {
                // The client is gone already, or there are no files left to open; later there may be.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let shared = Arc::clone(&shared);
            connections.spawn(async move {
                let _place = place;
                let service = service_fn(move |request| answer(Arc::clone(&shared), request));
                let mut builder = http1::Builder::new();
                builder.timer(TokioTimer::new()).header_read_timeout(IDLE_TIME);
                // A connection ends with an error when the script or the client breaks it; the receipt knows.
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
            while connections.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = accept => {}
    }
}
