use std::sync::{Arc, OnceLock};

use harness_subagent::SubagentRegistry;
use harness_workflow::{WorkflowEngine, WorkflowRef, WorkflowRun};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    CallContext, CallView, Envelope, PromptSection, RalphConfig, RalphError, ResultView, ToolDefinition,
    call, render, workflow_ref,
};

/// The `ralph` tool: what a host gives to its model.
///
/// # Contract
///
/// A host shows the [`definition`](Self::definition) and the [`prompt_section`](Self::prompt_section) to its model and
/// passes each call on to [`call`](Self::call). It must not run a call beside others that work in the same workspace.
///
/// The tool keeps nothing between calls, so calls are independent of each other.
#[derive(Clone, Debug)]
pub struct RalphTool {
    config: RalphConfig,
    engine: Arc<dyn WorkflowEngine>,
    registry: Arc<dyn SubagentRegistry>,
    /// Made when it is first asked for, and shared with the tools that were made of this one.
    definition: Arc<OnceLock<ToolDefinition>>,
}

impl RalphTool {
    /// Makes the tool.
    ///
    /// `engine` runs the loop: its catalog must have [`workflow`](crate::workflow()). `registry` must be the one from
    /// which the engine starts children: a call looks the configured provider up there first. What is configured and
    /// cannot work ([`RalphConfig::warnings`]) is logged.
    ///
    /// # Errors
    ///
    /// [`EngineLacksWorkflow`].
    pub fn new(
        config: RalphConfig,
        engine: Arc<dyn WorkflowEngine>,
        registry: Arc<dyn SubagentRegistry>,
    ) -> Result<Self, EngineLacksWorkflow> {
        let workflow = workflow_ref();
        if engine.workflow(&workflow).is_none() {
            return Err(EngineLacksWorkflow { workflow });
        }
        for warning in config.warnings(engine.max_agents()) {
            tracing::warn!(code = warning.code(), "{warning}");
        }
        Ok(Self { config, engine, registry, definition: Arc::default() })
    }

    /// Makes the same tool on another engine, with the configuration, the registry and the definition of this one.
    ///
    /// For a host whose calls each have an engine of their own, such as one that prepares something before a run may
    /// start. It costs next to nothing, and warns of nothing again.
    ///
    /// # Errors
    ///
    /// [`EngineLacksWorkflow`].
    pub fn with_engine(&self, engine: Arc<dyn WorkflowEngine>) -> Result<Self, EngineLacksWorkflow> {
        let workflow = workflow_ref();
        if engine.workflow(&workflow).is_none() {
            return Err(EngineLacksWorkflow { workflow });
        }
        Ok(Self { engine, ..self.clone() })
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &RalphConfig {
        &self.config
    }

    /// Returns what a model is told of the tool. Never changes.
    #[must_use]
    pub fn definition(&self) -> &ToolDefinition {
        self.definition.get_or_init(|| ToolDefinition::new(&self.config))
    }

    /// Returns what a model is told about when to use the tool. Never changes.
    #[must_use]
    pub fn prompt_section(&self) -> PromptSection {
        PromptSection::RALPH
    }

    /// Refuses arguments that a [`call`](Self::call) refuses whoever makes it: those that are not formed well, that
    /// have no objective, or that want rounds which nobody may have. For a host that prepares something for a run.
    ///
    /// # Errors
    ///
    /// What the call would return.
    pub fn check(&self, args: &Value) -> Result<(), RalphError> {
        call::check(&self.config, args)
    }

    /// Runs the loop and returns how it ended.
    ///
    /// - The host has checked that the arguments fit the input schema and that the call is not cancelled already. It
    ///   need not: bad arguments are refused here too, and a run whose call was cancelled beforehand ends as cancelled
    ///   without a worker.
    /// - Refusals come in this order: the form of the arguments, the calling agent, the objective, the rounds, the
    ///   provider, the handoff, the engine. Until then nothing is started.
    /// - The run is the call's own: when this returns, the run has been disposed of, whatever happened. Why that failed,
    ///   if it did, is attached to what is returned and changes nothing else.
    /// - When the context's token is cancelled, the run is; its workers are gone when this returns.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the run is cancelled and left to the engine to release.
    ///
    /// # Errors
    ///
    /// See [`RalphError`].
    pub async fn call(&self, args: &Value, context: CallContext) -> Result<Envelope, RalphError> {
        call::run(&self.config, &*self.engine, &*self.registry, args, context).await
    }

    /// Waits for a run of the loop that is there already, and returns how it ended as [`call`](Self::call) does.
    ///
    /// This is for a run that its engine has resumed after a crash. `args` are the arguments in the request that the
    /// run was started with. From here on the run is this call's own, as one that it has started, and cancelling
    /// `cancellation` cancels it. The configuration of this tool has no say in it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the run is cancelled and left to the engine to release.
    ///
    /// # Errors
    ///
    /// [`RalphError::InvalidArguments`] for arguments that are not the loop's, in which case the run is cancelled, and
    /// whatever comes of the run.
    pub async fn follow(
        &self,
        run: Box<dyn WorkflowRun>,
        args: &Value,
        cancellation: CancellationToken,
    ) -> Result<Envelope, RalphError> {
        call::follow(run, args, &cancellation).await
    }

    /// Returns what the calling model is shown of a call: at most [`RalphConfig::max_result_chars`] UTF-16 code units.
    #[must_use]
    pub fn render(&self, outcome: &Result<Envelope, RalphError>) -> String {
        let max_chars = self.config.max_result_chars();
        match outcome {
            Ok(envelope) => render::result(envelope.result(), max_chars),
            Err(error) => render::error(error, max_chars),
        }
    }

    /// Returns how a call is shown to people, or nothing when its arguments do not fit the input schema.
    #[must_use]
    pub fn call_view(&self, args: &Value) -> Option<CallView> {
        CallView::of(args)
    }

    /// Returns how the result of a call is shown to people, or nothing when its arguments do not fit the input schema.
    #[must_use]
    pub fn result_view(&self, args: &Value) -> Option<ResultView> {
        ResultView::of(args)
    }
}

/// The engine cannot run the Ralph loop.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the engine has no workflow {workflow}; add ralph_tool::workflow() to its catalog")]
#[non_exhaustive]
pub struct EngineLacksWorkflow {
    /// The workflow that is missing.
    pub workflow: WorkflowRef,
}
