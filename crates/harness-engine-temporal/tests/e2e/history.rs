//! What the server has in its histories, read without the engine.

use std::collections::HashMap;

use futures::TryStreamExt;
use temporalio_client::{
    Client, ClientOptions, Connection, ConnectionOptions, UntypedWorkflow, WorkflowExecutionInfo,
    WorkflowFetchHistoryOptions, WorkflowHandle,
};
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use tokio::runtime::Runtime;

use crate::server::Server;

type Result<T> = std::result::Result<T, String>;

/// A client of a server.
pub(crate) struct Histories {
    runtime: Runtime,
    client: Client,
}

impl Histories {
    pub(crate) fn at(server: &Server) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let options = ConnectionOptions::new(server.address().parse::<temporalio_client::Url>().unwrap());
            let connection = Connection::connect(options.build()).await.unwrap();
            Client::new(connection, ClientOptions::new("default").build()).unwrap()
        });
        Self { runtime, client }
    }

    fn handle(&self, run: &str, execution: Option<String>) -> WorkflowHandle<Client, UntypedWorkflow> {
        let info = WorkflowExecutionInfo::builder()
            .namespace("default")
            .workflow_id(run)
            .maybe_run_id(execution)
            .build();
        WorkflowHandle::new(self.client.clone(), info)
    }

    /// Returns the histories of a run, the first one first.
    pub(crate) fn of(&self, run: &str) -> Result<Vec<Vec<HistoryEvent>>> {
        let last = self.events(run, None)?;
        let mut next = last.first().and_then(|event| match &event.attributes {
            Some(Attributes::WorkflowExecutionStartedEventAttributes(started)) => {
                Some(started.first_execution_run_id.clone())
            }
            _ => None,
        });
        let mut histories = Vec::new();
        while let Some(execution) = next {
            let events = self.events(run, Some(execution))?;
            next = events.last().and_then(|event| match &event.attributes {
                Some(Attributes::WorkflowExecutionContinuedAsNewEventAttributes(continued)) => {
                    Some(continued.new_execution_run_id.clone())
                }
                _ => None,
            });
            histories.push(events);
        }
        Ok(histories)
    }

    fn events(&self, run: &str, execution: Option<String>) -> Result<Vec<HistoryEvent>> {
        let events = self.handle(run, execution).fetch_history(WorkflowFetchHistoryOptions::default());
        self.runtime.block_on(events.try_collect()).map_err(|error| error.to_string())
    }

    /// Returns the attempts that came to their end, with the call of each, in their order.
    pub(crate) fn completions(&self, run: &str) -> Result<Vec<(u64, u32)>> {
        let mut completed = Vec::new();
        for events in self.of(run)? {
            let mut scheduled = HashMap::new();
            for event in events {
                match event.attributes {
                    Some(Attributes::ActivityTaskScheduledEventAttributes(asked)) => {
                        scheduled.insert(event.event_id, asked.activity_id);
                    }
                    Some(Attributes::ActivityTaskCompletedEventAttributes(done)) => {
                        let id = &scheduled[&done.scheduled_event_id];
                        let mut parts = id.split('.');
                        let mut next = || parts.next().ok_or_else(|| format!("{id} is foreign"));
                        completed.push((next()?.parse().unwrap(), next()?.parse().unwrap()));
                    }
                    _ => {}
                }
            }
        }
        Ok(completed)
    }
}
