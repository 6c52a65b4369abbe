//! `runs`, `show` and `cancel` on a Temporal server.

use std::time::Duration;

use futures::{StreamExt, stream};
use harness_engine_temporal::Work;
use serde_json::json;

use super::remote_run::facts;
use super::server::{self, new_runtime, refused};
use super::watch::{self, Needed};
use crate::arguments::{DisplayArguments, ShowArguments};
use crate::exit::{Exit, Failure};
use crate::runs::{self, Listed};
use crate::settings::Settings;
use crate::show;
use crate::{output, typed};

/// `ralph-loop runs --engine temporal`.
pub(super) fn runs(display: DisplayArguments, settings: &Settings) -> Result<Exit, Failure> {
    /// The most runs that are listed: each is read whole.
    const MOST: usize = 100;
    const AT_ONCE: usize = 8;
    let listed = new_runtime()?.block_on(async {
        let engine = server::look_at(settings).await?;
        let runs = engine.list("", MOST).await.map_err(refused)?;
        let read = async |run| {
            let known = engine.read(&run).await;
            let known = known.map(|record| server::account(&run, record)).map_err(|error| error.to_string());
            Listed { run, known }
        };
        Ok::<_, Failure>(stream::iter(runs).map(read).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await)
    })?;
    if listed.len() == MOST && !display.json {
        output::print(&format!("The latest {MOST} runs:\n"))?;
    }
    runs::list(listed, display, &format!("There are no runs yet, on {}.", server::told(&settings.temporal)))
}

/// `ralph-loop show --engine temporal`.
pub(super) fn show(arguments: &ShowArguments, settings: &Settings) -> Result<Exit, Failure> {
    let (account, queue, round_limit) = new_runtime()?.block_on(async {
        let engine = server::look_at(settings).await?;
        let run = server::find(&engine, &arguments.run).await?;
        let record = engine.read(&run).await.map_err(refused)?;
        let (queue, round_limit) = (record.child_queue.clone(), record.call_limit);
        Ok::<_, Failure>((server::account(&run, record), queue, round_limit))
    })?;
    let agent = account.request.provider.clone().unwrap_or_default();
    if arguments.display.json {
        let mut shown = show::as_json(&account, &[]);
        shown["agent"] = json!(agent);
        shown["queue"] = json!(queue);
        output::json(&shown)?;
        return Ok(Exit::Complete);
    }
    let max_rounds = account.request.args["maxRounds"].as_u64().unwrap_or(0);
    let facts = facts(settings, &agent, &queue, max_rounds, round_limit);
    let short: String = account.run.as_str().chars().take(8).collect();
    let next = match account.is_over() {
        false => Some("attach"),
        true => show::goes_on(&account).then_some("continue"),
    };
    let next = next.map(|next| format!("{next} {short}{}", settings.engine_flags()));
    let page = show::page(&account, &facts, &[], next.as_deref());
    output::print(&page.expect("a text takes all that is written to it"))?;
    Ok(Exit::Complete)
}

/// Says who takes loops from the queue.
pub(super) fn look(settings: &Settings) -> Result<(bool, String), Failure> {
    let workers = new_runtime()?.block_on(async {
        let engine = server::look_at(settings).await?;
        engine.workers(&settings.temporal.queue.value, Work::Bodies).await.map_err(refused)
    })?;
    let names: Vec<_> =
        workers.iter().filter(|worker| watch::is_alive(worker)).map(|worker| &*worker.identity).collect();
    let (server, queue) = (server::told(&settings.temporal), &settings.temporal.queue.value);
    Ok(match names.is_empty() {
        true => (false, format!("{server} answers; no worker takes loops from the queue {queue}")),
        false => (
            true,
            format!("{server} answers; loops from the queue {queue} are taken by {}", names.join(", ")),
        ),
    })
}

/// `ralph-loop cancel --engine temporal`.
pub(super) fn cancel(name: &str, settings: &Settings) -> Result<Exit, Failure> {
    /// How long a run may take to end before we say so: a heartbeat, and an agent's own way out.
    const PATIENCE: Duration = Duration::from_secs(90);
    let told = new_runtime()?.block_on(async {
        let engine = server::look_at(settings).await?;
        let run = server::find(&engine, name).await?;
        let record = engine.read(&run).await.map_err(refused)?;
        let queue = record.child_queue.clone();
        let before = server::account(&run, record);
        if before.is_over() {
            return Ok(format!("run {run} has ended already ({})\n", before.outcome_name()));
        }
        engine.cancel(&run, "cancelled by `ralph-loop cancel`").await.map_err(refused)?;
        let attached = engine.attach(&run).await.map_err(refused)?;
        if tokio::time::timeout(PATIENCE, attached.result()).await.is_err() {
            let agent = before.request.provider.clone().unwrap_or_default();
            let needed = Needed::by_a_run(&settings.temporal.queue.value, &queue, &agent);
            let why = watch::missing(&engine, &needed).await.unwrap_or_else(|| {
                format!("`{}` shows where it is", typed::command(&format!("show {run}{}", settings.engine_flags())))
            });
            return Err(Failure::environment(anyhow::anyhow!(
                "the server has noted the cancellation of run {run}, which has not ended within {} seconds: {why}",
                PATIENCE.as_secs()
            )));
        }
        let outcome = server::account_soon(&engine, &run).await.map(|account| account.outcome_name());
        Ok(match outcome.as_deref() {
            None | Some("cancelled") => format!("run {run} is cancelled, and no worker has anything of it\n"),
            Some(outcome) => format!("run {run} ended ({outcome}) before it could be cancelled\n"),
        })
    })?;
    output::print(&told)?;
    Ok(Exit::Complete)
}
