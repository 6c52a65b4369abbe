//! Auto traits are part of the interface.

use ralph_tool::{
    CallContext, CallView, ConfigWarning, EndedRun, EngineLacksWorkflow, Envelope, Handoff, Installation,
    InvalidConfig, InvalidMaxRounds, Progress, PromptSection, ProviderProblem, RalphConfig, RalphError,
    RalphResult, RalphStatus, RalphTool, Registration, ResultView, ToolDefinition, terminal,
};

fn assert_send_sync<T: Send + Sync + 'static>() {}

fn assert_error<T: std::error::Error + Send + Sync + 'static>() {}

#[test]
fn every_public_type_can_cross_threads() {
    assert_send_sync::<CallContext>();
    assert_send_sync::<CallView>();
    assert_send_sync::<ConfigWarning>();
    assert_send_sync::<EndedRun>();
    assert_send_sync::<Envelope>();
    assert_send_sync::<Handoff>();
    assert_send_sync::<Installation>();
    assert_send_sync::<Progress>();
    assert_send_sync::<PromptSection>();
    assert_send_sync::<ProviderProblem>();
    assert_send_sync::<RalphConfig>();
    assert_send_sync::<RalphResult>();
    assert_send_sync::<RalphStatus>();
    assert_send_sync::<RalphTool>();
    assert_send_sync::<Registration>();
    assert_send_sync::<ResultView>();
    assert_send_sync::<ToolDefinition>();
    assert_send_sync::<terminal::Terminal>();
}

#[test]
fn every_error_is_one() {
    assert_error::<EngineLacksWorkflow>();
    assert_error::<InvalidConfig>();
    assert_error::<InvalidMaxRounds>();
    assert_error::<RalphError>();
    assert_error::<terminal::InvalidTerminal>();
}

#[test]
fn the_future_of_a_call_can_be_spawned() {
    fn assert_send<T: Send>(_: &T) {}
    let stage = crate::stage::Stage::settable(serde_json::json!({}));
    let args = serde_json::json!({});
    assert_send(&stage.tool.call(&args, CallContext::default()));
}
