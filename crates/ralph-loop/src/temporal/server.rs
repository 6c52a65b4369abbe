//! The server: how to reach it, and how its runs are found.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use harness_engine_temporal::{
    ConnectError, DeclaredRoutes, Endpoint, Route, RunRecord, TemporalConfig, TemporalEngine, Tls,
};
use harness_subagent::{Capabilities, ProviderInfo};
use harness_workflow::{Error, ErrorKind, RunId};
use tokio::runtime::Runtime;

use crate::account::{Account, Attempt, Round, Standing};
use crate::exit::Failure;
use crate::settings::Settings;
use crate::temporal_settings::TemporalSettings;

pub(super) fn new_runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .map_err(Failure::environment)
}

/// Returns where the server is and how to reach it. Certificates and keys are read here, and stay in this process.
pub(super) fn endpoint(settings: &TemporalSettings) -> Result<Endpoint, Failure> {
    let address = settings.address.value.as_ref().ok_or_else(|| {
        Failure::refuse(
            "it is not known where the Temporal server is; give --temporal-address, as in \
             `--temporal-address http://127.0.0.1:7233`, or `address` in the table `[temporal]` of your settings",
        )
    })?;
    let mut endpoint = Endpoint::new(address).with_namespace(&settings.namespace.value);
    let mut tls = None;
    if let Some(path) = &settings.tls_ca.value {
        tls = Some(tls.unwrap_or_else(Tls::default).with_server_ca(read(path)?));
    }
    if let Some(name) = &settings.tls_server_name.value {
        tls = Some(tls.unwrap_or_default().with_server_name(name));
    }
    match (&settings.tls_cert.value, &settings.tls_key.value) {
        (Some(certificate), Some(key)) => {
            tls = Some(tls.unwrap_or_default().with_client(read(certificate)?, read(key)?));
        }
        (None, None) => {}
        _ => {
            return Err(Failure::refuse(
                "a client has a certificate and a key: set both of `tls-cert` and `tls-key`, or neither",
            ));
        }
    }
    if let Some(tls) = tls {
        endpoint = endpoint.with_tls(tls);
    }
    if let Some(key) = &settings.api_key.value {
        endpoint = endpoint.with_api_key(key.reveal());
    } else if let Some(path) = &settings.api_key_file.value {
        let key = String::from_utf8(read(path)?).ok();
        let key = key.as_deref().map(str::trim).filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| Failure::environment(anyhow!("{} holds no key", path.display())))?;
        endpoint = endpoint.with_api_key(key);
    }
    Ok(endpoint)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .with_context(|| format!("cannot read {}", path.display()))
        .map_err(Failure::environment)
}

/// Tells where the server is, for people.
pub(super) fn told(settings: &TemporalSettings) -> String {
    let address = settings.address.value.as_deref().unwrap_or("?");
    format!("Temporal at {address}, namespace {}", settings.namespace.value)
}

/// Sends the children of one agent to their queue.
///
/// Every agent of a worker begins with an empty context and hands in a report. What more it can do, its worker judges.
pub(super) fn routes(settings: &TemporalSettings, agent: &str) -> DeclaredRoutes {
    let provider = ProviderInfo::new(agent, Capabilities::NONE.with_output_contract(true));
    DeclaredRoutes::default().with(Route::new(settings.queue_of(agent), provider))
}

/// The engine of someone who starts no run.
pub(super) async fn look_at(settings: &Settings) -> Result<TemporalEngine, Failure> {
    connect(settings, DeclaredRoutes::default(), TemporalConfig::default()).await
}

pub(super) async fn connect(
    settings: &Settings,
    routes: DeclaredRoutes,
    config: TemporalConfig,
) -> Result<TemporalEngine, Failure> {
    let endpoint = endpoint(&settings.temporal)?;
    let config = config
        .with_queue(&settings.temporal.queue.value)
        .with_heartbeat_timeout(settings.temporal.heartbeat_timeout.value);
    TemporalEngine::connect(&endpoint, ralph_tool::workflows(), Arc::new(routes), config)
        .await
        .map_err(not_connected)
}

fn not_connected(error: ConnectError) -> Failure {
    if is_ill_configured(&error) { Failure::usage(error) } else { Failure::environment(error) }
}

/// Says whether it is what was given that is wrong, and not the server or the way there.
pub(super) fn is_ill_configured(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Address { .. } | ConnectError::Setting { .. })
}

/// Sorts what the server refuses: a run that is not there is the user's, all else the server's.
pub(super) fn refused(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::InvalidArgument => Failure::usage(error),
        _ => Failure::environment(error),
    }
}

/// Finds the one run whose id is or begins with `name`.
pub(super) async fn find(engine: &TemporalEngine, name: &str) -> Result<RunId, Failure> {
    const LENGTH_OF_AN_ID: usize = 36;
    // A whole id needs no search, which lags behind.
    if name.len() >= LENGTH_OF_AN_ID {
        return Ok(RunId::from(name.to_owned()));
    }
    let unknown = || {
        Failure::refuse(format!(
            "the server knows no run named {name:?}, or no longer; `ralph-loop runs --engine temporal` lists them"
        ))
    };
    if name.is_empty() {
        return Err(unknown());
    }
    let mut found = engine.list(name, 2).await.map_err(refused)?.into_iter();
    match (found.next(), found.next()) {
        (Some(run), None) => Ok(run),
        (None, _) => Err(unknown()),
        (Some(one), Some(two)) => {
            Err(Failure::refuse(format!("{name:?} could be {one} or {two} or others; give more of the id")))
        }
    }
}

/// What the histories of a run tell.
pub(super) fn account(run: &RunId, record: RunRecord) -> Account {
    let rounds = record.calls.into_iter().map(|(number, call)| {
        let attempts = call.attempts.into_iter().map(|attempt| Attempt {
            attempt: attempt.attempt,
            started_ms: attempt.started_ms.unwrap_or(attempt.asked_ms),
            ended_ms: attempt.ended_ms,
            waits: attempt.started_ms.is_none() && attempt.ended_ms.is_none(),
            worker: attempt.worker,
            child: attempt.child,
            end: attempt.end,
        });
        let round = Round {
            attempts: attempts.collect(),
            is_answered: call.answer.is_some(),
            value: match call.answer {
                Some(Ok(harness_workflow::AgentOutcome::Value(value))) => Some(value),
                _ => None,
            },
        };
        (number, round)
    });
    Account {
        run: run.clone(),
        rounds: rounds.collect::<BTreeMap<_, _>>(),
        request: record.request,
        standing: record.result.map_or(Standing::Running, Standing::Ended),
        started_ms: record.started_ms,
        updated_ms: record.updated_ms,
        resumptions: 0,
        cancel_reason: record.cancel_reason,
        checkpoint: record.checkpoint,
    }
}

/// Reads what is known of a run, unless that takes too long.
pub(super) async fn account_soon(engine: &TemporalEngine, run: &RunId) -> Option<Account> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let record = tokio::time::timeout(PATIENCE, engine.read(run)).await;
    record.ok().and_then(Result::ok).map(|record| account(run, record))
}
