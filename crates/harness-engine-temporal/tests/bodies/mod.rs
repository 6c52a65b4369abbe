//! The body whose runs are recorded and replayed, as it was recorded and as it was changed.

use std::sync::Arc;

use async_trait::async_trait;
use harness_testkit::workflow::ScriptedBody;
use harness_workflow::{
    AgentCall, AgentOutcome, ErrorCode, Stage, Workflow, WorkflowCatalog, WorkflowContext, WorkflowError,
    WorkflowMeta,
};
use serde_json::{Value, json};

/// What was changed since.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Change {
    Nothing,
    OneCallMore,
    OneCallLess,
    OtherOrder,
    OtherPrompt,
    OtherLabel,
    SpeaksLater,
    EndsAtOnce,
    /// Something else to say, and another value.
    OtherWords,
}

/// Reads every item, takes all through two stages at once, and sums up.
#[derive(Debug)]
pub(crate) struct Survey {
    meta: WorkflowMeta,
    change: Change,
}

impl Survey {
    async fn ask(
        &self,
        context: &WorkflowContext,
        label: &str,
        prompt: String,
    ) -> Result<Value, WorkflowError> {
        let label = if self.change == Change::OtherLabel { format!("the {label}") } else { label.to_owned() };
        let prompt = if self.change == Change::OtherPrompt { format!("{prompt}, please") } else { prompt };
        match context.agent(AgentCall::new(prompt).with_label(label)).await? {
            AgentOutcome::Value(value) => Ok(value),
            AgentOutcome::NoValue(_) => Ok(Value::Null),
        }
    }
}

/// The bodies that histories were recorded of, with this change.
pub(crate) fn catalog(change: Change) -> WorkflowCatalog {
    let meta = WorkflowMeta::new("survey", 1, "Reads items, takes them through two stages, and sums up.");
    let survey = Survey { meta, change };
    WorkflowCatalog::new()
        .with(Arc::new(ScriptedBody::default()))
        .and_then(|catalog| catalog.with(Arc::new(survey)))
        .expect("both can be used, and have names of their own")
}

#[async_trait]
impl Workflow for Survey {
    fn meta(&self) -> &WorkflowMeta {
        &self.meta
    }

    async fn run(&self, context: WorkflowContext) -> Result<Value, WorkflowError> {
        let refused = || WorkflowError::new(ErrorCode::INVALID_ARGUMENT, "a list of items is needed");
        let mut items = context.args().as_array().cloned().ok_or_else(refused)?;
        if self.change == Change::EndsAtOnce {
            return Ok(Value::Null);
        }
        if self.change == Change::OtherOrder {
            items.reverse();
        }
        if self.change != Change::SpeaksLater {
            context.phase("read")?;
        }
        let mut read = Vec::new();
        for item in &items {
            read.push(self.ask(&context, "read", format!("read {item}")).await?);
            context.checkpoint(json!(read))?;
        }
        context.phase("stages")?;
        if self.change == Change::OneCallMore {
            self.ask(&context, "again", "read it all once more".to_owned()).await?;
        }
        let (this, shared) = (self, &context);
        let draft = Stage::new(move |input| async move {
            this.ask(shared, "draft", format!("draft {} of {}", input.index, input.item)).await
        });
        let check = Stage::new(move |input| async move {
            this.ask(shared, "check", format!("check {} of {}", input.previous, input.item)).await
        });
        let stages = context.pipeline(items, &[draft, check]).await?;
        if self.change == Change::OneCallLess {
            return Ok(json!(stages));
        }
        context.log(if self.change == Change::OtherWords { "nearly" } else { "nearly done" })?;
        let sums = ["short", "long"].map(|kind| this.ask(shared, "sum", format!("a {kind} sum")));
        let sums = context.parallel(sums).await?;
        Ok(json!({ "sums": sums, "rest": if self.change == Change::OtherWords { 1 } else { 0 } }))
    }
}
