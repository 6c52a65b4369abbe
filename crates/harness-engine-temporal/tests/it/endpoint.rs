//! How a server is reached: certificates, keys and namespaces, seen from the server's side.

use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness_engine_temporal::{ConnectError, DeclaredRoutes, Endpoint, TemporalConfig, TemporalEngine, Tls};
use harness_workflow::{RunId, WorkflowCatalog};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tracing_subscriber::fmt::MakeWriter;

use crate::tls::{Authority, Signed, acceptor};

const KEY: &str = "key-that-nobody-may-see";

/// What a server was asked.
#[derive(Clone, Debug)]
struct Asked {
    method: String,
    authorization: Option<String>,
    namespace: Option<String>,
}

/// A server that writes down what it is asked, and has none of the methods.
struct Listening {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Listening {
    async fn start(tls: TlsAcceptor) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, seen) = (tls.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, seen).await;
                    }
                });
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::new(format!("https://{}", self.address))
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, seen: Arc<Mutex<Vec<Asked>>>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let header = |name: &str| Some(request.headers().get(name)?.to_str().unwrap().to_owned());
        seen.lock().unwrap().push(Asked {
            method: request.uri().path().rsplit('/').next().unwrap_or_default().to_owned(),
            authorization: header("authorization"),
            namespace: header("temporal-namespace"),
        });
        let answer = Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "12")
            .header("grpc-message", "unknown method")
            .body(Empty::<Bytes>::new());
        async { Ok::<_, Infallible>(answer.unwrap()) }
    });
    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn connect(endpoint: &Endpoint) -> Result<TemporalEngine, ConnectError> {
    let routes = Arc::new(DeclaredRoutes::default());
    TemporalEngine::connect(endpoint, WorkflowCatalog::new(), routes, TemporalConfig::default()).await
}

fn tls(authority: &Authority) -> Tls {
    Tls::default().with_server_ca(authority.pem())
}

fn with_client(tls: Tls, client: &Signed) -> Tls {
    tls.with_client(client.certificate.pem(), client.key.serialize_pem())
}

/// Fails unless the server could not be reached.
#[track_caller]
fn assert_unreachable(outcome: Result<TemporalEngine, ConnectError>) {
    assert!(matches!(outcome, Err(ConnectError::Unreachable { .. })), "{outcome:?}");
}

/// An error with its causes, as a reporter shows it, and as a debugger does.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(" {cause} {cause:?}"));
        next = cause.source();
    }
    text
}

#[tokio::test]
async fn a_key_and_a_namespace_go_with_every_request() {
    let authority = Authority::new();
    let server = Listening::start(acceptor(&authority.server("127.0.0.1"), None)).await;
    let endpoint =
        server.endpoint().with_tls(tls(&authority)).with_api_key(KEY).with_namespace("agents.of.one.team");
    let engine = connect(&endpoint).await.unwrap();
    assert!(engine.cancel(&RunId::from("run"), "enough").await.is_err(), "the server has no such method");
    let asked = server.asked();
    let methods: Vec<&str> = asked.iter().map(|asked| asked.method.as_str()).collect();
    assert_eq!(methods, ["GetSystemInfo", "RequestCancelWorkflowExecution"]);
    for asked in &asked {
        assert_eq!(asked.authorization.as_deref(), Some(&*format!("Bearer {KEY}")), "{asked:?}");
    }
    // The first request is about the server, not about a namespace.
    assert_eq!(asked[1].namespace.as_deref(), Some("agents.of.one.team"));
}

#[tokio::test]
async fn without_a_key_nothing_is_sent_for_one() {
    let authority = Authority::new();
    let server = Listening::start(acceptor(&authority.server("127.0.0.1"), None)).await;
    connect(&server.endpoint().with_tls(tls(&authority))).await.unwrap();
    assert!(server.asked().iter().all(|asked| asked.authorization.is_none()), "{:?}", server.asked());
}

#[tokio::test]
async fn a_key_is_never_sent_in_clear() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let said = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut said = vec![0; 4096];
        let length = stream.read(&mut said).await.unwrap();
        said.truncate(length);
        said
    });
    let endpoint = Endpoint::new(format!("http://{address}")).with_api_key(KEY);
    assert_unreachable(connect(&endpoint).await);
    let said = said.await.unwrap();
    // The first byte of a handshake of TLS.
    assert_eq!(said.first(), Some(&22), "{:?}", String::from_utf8_lossy(&said));
    assert!(!said.windows(KEY.len()).any(|window| window == KEY.as_bytes()));
}

#[tokio::test]
async fn settings_for_tls_hold_also_where_the_address_says_http() {
    let authority = Authority::new();
    let server = Listening::start(acceptor(&authority.server("127.0.0.1"), None)).await;
    let endpoint = Endpoint::new(format!("http://{}", server.address)).with_tls(tls(&authority));
    connect(&endpoint).await.unwrap();
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn a_server_that_somebody_else_vouches_for_is_not_believed() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = Listening::start(acceptor(&other.server("127.0.0.1"), None)).await;
    assert_unreachable(connect(&server.endpoint().with_tls(tls(&authority)).with_api_key(KEY)).await);
    // Nor are those whom the system trusts enough.
    assert_unreachable(connect(&server.endpoint().with_api_key(KEY)).await);
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn a_server_has_the_name_of_the_address_or_the_one_that_was_given() {
    let authority = Authority::new();
    let server = Listening::start(acceptor(&authority.server("temporal.internal"), None)).await;
    assert_unreachable(connect(&server.endpoint().with_tls(tls(&authority))).await);
    let named = tls(&authority).with_server_name("temporal.internal");
    connect(&server.endpoint().with_tls(named)).await.unwrap();
    let misnamed = tls(&authority).with_server_name("elsewhere.internal");
    assert_unreachable(connect(&server.endpoint().with_tls(misnamed)).await);
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn a_server_that_asks_for_a_client_certificate_gets_the_one_that_was_given() {
    let (authority, clients, others) = (Authority::new(), Authority::new(), Authority::new());
    let server = Listening::start(acceptor(&authority.server("127.0.0.1"), Some(&clients))).await;
    assert_unreachable(connect(&server.endpoint().with_tls(tls(&authority))).await);
    let foreign = with_client(tls(&authority), &others.client());
    assert_unreachable(connect(&server.endpoint().with_tls(foreign)).await);
    assert!(server.asked().is_empty());
    let ours = with_client(tls(&authority), &clients.client());
    connect(&server.endpoint().with_tls(ours)).await.unwrap();
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn settings_that_the_library_would_leave_out_are_refused() {
    let client = Authority::new().client();
    let (certificate, key) = (client.certificate.pem(), client.key.serialize_pem());
    let endpoint = || Endpoint::new("https://127.0.0.1:1");
    let with = |tls: Tls| endpoint().with_tls(tls);
    for (endpoint, expected) in [
        (endpoint().with_api_key(""), "api_key"),
        (endpoint().with_api_key("two\nlines"), "api_key"),
        (endpoint().with_api_key("schlüssel"), "api_key"),
        (with(Tls::default().with_server_ca("")), "server_ca"),
        (with(Tls::default().with_server_ca("no certificate")), "server_ca"),
        (with(Tls::default().with_server_ca(key.clone())), "server_ca"),
        (with(Tls::default().with_client("none", key.clone())), "client"),
        (with(Tls::default().with_client(certificate.clone(), "none")), "client"),
        (with(Tls::default().with_client(certificate.clone(), certificate.clone())), "client"),
    ] {
        match connect(&endpoint).await {
            Err(ConnectError::Setting { setting, .. }) => assert_eq!(setting, expected),
            other => panic!("{endpoint:?}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::new(format!("http://{}", listener.local_addr().unwrap()));
    let outcome = tokio::time::timeout(Duration::from_secs(60), connect(&endpoint)).await;
    assert_unreachable(outcome.expect("the wait has a bound"));
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn secrets_are_in_no_log_no_error_and_no_debug_output() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (authority, clients) = (Authority::new(), Authority::new());
    let server = Listening::start(acceptor(&authority.server("127.0.0.1"), Some(&clients))).await;
    let client = clients.client();
    let private = client.key.serialize_pem();
    let endpoint = server.endpoint().with_tls(with_client(tls(&authority), &client)).with_api_key(KEY);
    let engine = connect(&endpoint).await.unwrap();
    let refused = engine.cancel(&RunId::from("run"), "enough").await.unwrap_err();
    let lost = connect(&endpoint.clone().with_tls(tls(&authority))).await.unwrap_err();
    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(!logged.is_empty());
    let private = private.lines().nth(1).unwrap();
    for text in [format!("{endpoint:?} {engine:?}"), told(&refused), told(&lost), logged] {
        for secret in [KEY, private] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}
