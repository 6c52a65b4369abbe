//! Runs through a gate that speaks TLS and asks for client certificates, in a namespace of their own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness_engine_temporal::{
    Endpoint, OwnRoutes, TemporalConfig, TemporalEngine, TemporalWorker, Tls, WorkerConfig,
};
use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, Parent, SubagentRegistry};
use harness_testkit::subagent::{MockChild, MockProvider};
use harness_testkit::workflow::{ScriptedBody, Step};
use harness_workflow::{ErrorKind, RunId, StartRun, WorkflowEngine};
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::server::{OTHER_NAMESPACE, Server};
use crate::tls::{Authority, acceptor};

pub(crate) fn run(server: &mut Server) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(through_the_gate(server.socket()))
}

/// Takes connections over TLS and hands them on; counts those that were let through.
async fn gate(tls: TlsAcceptor, behind: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let passed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&passed);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, counter) = (tls.clone(), Arc::clone(&counter));
            tokio::spawn(async move {
                let Ok(mut stream) = tls.accept(stream).await else { return };
                counter.fetch_add(1, Ordering::Relaxed);
                let mut server = TcpStream::connect(behind).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut server).await;
            });
        }
    });
    (address, passed)
}

async fn through_the_gate(server: SocketAddr) -> Result<(), String> {
    let (authority, clients) = (Authority::new(), Authority::new());
    let certificate = authority.server("temporal.internal");
    let (gate, passed) = gate(acceptor(&certificate, Some(&clients)), server).await;
    let client = clients.client();
    let open = Tls::default().with_server_ca(authority.pem()).with_server_name("temporal.internal");
    let tls = open.clone().with_client(client.certificate.pem(), client.key.serialize_pem());
    let endpoint = Endpoint::new(format!("https://{gate}"))
        .with_namespace(OTHER_NAMESPACE)
        .with_api_key("for the gate's own use")
        .with_tls(tls);

    let registry: Arc<dyn SubagentRegistry> = Arc::new(LocalRegistry::new());
    let (provider, children) = MockProvider::new(Capabilities::ALL);
    children.set_default(MockChild::text("done"));
    registry.register(provider).unwrap();
    let catalog = ScriptedBody::catalog();
    let queue = "secure".to_owned();
    let config = WorkerConfig::default()
        .with_queue(Some(queue.clone()))
        .with_child_queues([queue.clone()])
        .with_cancellation_grace(Duration::from_secs(2));
    let worker = TemporalWorker::start(endpoint.clone(), catalog.clone(), Arc::clone(&registry), config);
    let worker = worker.await.map_err(|error| format!("{error:?}"))?;
    let routes = Arc::new(OwnRoutes::new(registry, queue.clone()));
    let config = TemporalConfig::default().with_provider("mock").with_queue(queue);
    let engine = TemporalEngine::connect(&endpoint, catalog.clone(), routes.clone(), config.clone());
    let engine = engine.await.map_err(|error| format!("{error:?}"))?;
    let id = RunId::from("secure");
    let request = StartRun::new(ScriptedBody::workflow_ref(), Parent::new("me", "."))
        .with_run_id(id.clone())
        .with_args(json!([Step::ask("one"), Step::ask("two")]));
    let run = engine.start(request, CancellationToken::new()).await.map_err(|error| error.to_string())?;
    let result = run.result().await;
    run.dispose().await.map_err(|error| error.to_string())?;
    worker.shut_down();
    worker.ended().await.map_err(|error| format!("{error:?}"))?;
    if result.value() != Some(&json!(["done", "done"])) {
        return Err(format!("{result:?}"));
    }
    let let_through = passed.load(Ordering::Relaxed);

    // What is in one namespace is not in another.
    let elsewhere = endpoint.clone().with_namespace("default");
    let elsewhere = TemporalEngine::connect(&elsewhere, catalog.clone(), routes.clone(), config.clone());
    let elsewhere = elsewhere.await.map_err(|error| format!("{error:?}"))?;
    match elsewhere.attach(&id).await {
        Err(error) if error.kind() == ErrorKind::InvalidArgument => {}
        other => return Err(format!("another namespace has the run as well: {other:?}")),
    }
    let nowhere = endpoint.clone().with_namespace("nobody-made-it");
    let nowhere = TemporalEngine::connect(&nowhere, catalog.clone(), routes.clone(), config.clone());
    match nowhere.await.map_err(|error| format!("{error:?}"))?.attach(&id).await {
        Err(_) => {}
        Ok(run) => return Err(format!("a namespace that is not there has the run: {run:?}")),
    }

    // Without a certificate nobody gets through.
    let before = passed.load(Ordering::Relaxed);
    let stranger = TemporalEngine::connect(&endpoint.with_tls(open), catalog, routes, config).await;
    if stranger.is_ok() || passed.load(Ordering::Relaxed) != before {
        return Err("the gate lets strangers in".to_owned());
    }
    println!("  a worker and a client went through the gate, over {let_through} connections");
    Ok(())
}
