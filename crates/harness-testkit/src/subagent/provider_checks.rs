//! One check for each clause of `SubagentProvider` and `SubagentRun`. The sentence over a check is the clause.

#![expect(clippy::missing_panics_doc, reason = "a check panics when its clause is broken")]

use std::pin::pin;

use harness_subagent::{
    ErrorKind, OutputContract, Result, RuleRef, StartSubagent, StopReason, SubagentResult, SubagentRun,
    ToolRestriction,
};
use serde_json::json;

use super::{ProviderFixture, StandardChild};
use crate::wait::{comes_true, poll_once, within};

/// A provider's name never changes.
pub async fn name_never_changes(fixture: &dyn ProviderFixture) {
    let provider = fixture.provider();
    let before = provider.name().to_owned();
    let run = start(fixture, &StandardChild::Completes).await;
    assert_eq!(provider.name(), before, "a start changed the name");
    dispose(fixture, &*run).await;
    assert_eq!(provider.name(), before, "a disposal changed the name");
}

/// What a provider can be asked for never changes.
pub async fn capabilities_never_change(fixture: &dyn ProviderFixture) {
    let provider = fixture.provider();
    let before = provider.capabilities();
    let run = start(fixture, &StandardChild::Completes).await;
    assert_eq!(provider.capabilities(), before, "a start changed the capabilities");
    dispose(fixture, &*run).await;
    assert_eq!(provider.capabilities(), before, "a disposal changed the capabilities");
}

/// A provider says whether a child sees what its parent has seen, and never changes its answer.
pub async fn inherited_context_is_as_declared(fixture: &dyn ProviderFixture) {
    let provider = fixture.provider();
    let declared = fixture.traits().inherits_parent_context;
    assert_eq!(provider.inherits_parent_context(), declared, "the fixture declares otherwise");
    let run = start(fixture, &StandardChild::Completes).await;
    assert_eq!(provider.inherits_parent_context(), declared, "a start changed the answer");
    dispose(fixture, &*run).await;
}

/// A provider accepts what its capabilities say that it can be asked for.
pub async fn declared_capabilities_are_accepted(fixture: &dyn ProviderFixture) {
    let (capabilities, traits) = (fixture.provider().capabilities(), fixture.traits());
    let mut requests = Vec::new();
    let plain = || fixture.request(&StandardChild::Completes);
    if capabilities.output_contract {
        let value = json!({ "answer": "asked for" });
        requests.push(fixture.request(&StandardChild::HandsIn(value)).with_output(answer_contract()));
    }
    if capabilities.depth_limit {
        let depth = plain().parent.depth + 1;
        requests.push(plain().with_max_depth(depth));
    }
    if capabilities.tool_restriction {
        requests.push(plain().with_tools(ToolRestriction::deny(["a-tool-that-nobody-has"])));
    }
    if capabilities.persona {
        let persona = traits.persona.expect("a fixture names a persona when its provider takes one");
        requests.push(plain().with_persona(persona));
    }
    if capabilities.model_choice {
        let model = traits.model.expect("a fixture names a model when its provider takes one");
        requests.push(plain().with_model(model));
    }
    for request in requests {
        let described = format!("{request:?}");
        match try_start(fixture, request).await {
            Ok(run) => dispose(fixture, &*run).await,
            Err(error) => panic!("{error} ({:?}), for {described}", error.kind()),
        }
    }
}

/// Starts may overlap, and none shares the failure of another.
pub async fn overlapping_children_share_no_failure(fixture: &dyn ProviderFixture) {
    let failing = start(fixture, &StandardChild::Fails).await;
    let completing = start(fixture, &StandardChild::Completes).await;
    let failure = ok_result(fixture, &*failing).await;
    assert!(!failure.stop_reason.is_completed(), "the failing child completed");
    let success = ok_result(fixture, &*completing).await;
    assert_eq!(success.stop_reason, StopReason::COMPLETED, "the failure of one child reached another");
    release(fixture, &*failing).await;
    release(fixture, &*completing).await;
}

/// Starts may overlap, and none shares the cancellation of another.
pub async fn overlapping_children_share_no_cancellation(fixture: &dyn ProviderFixture) {
    let request = fixture.request(&StandardChild::Hangs);
    let cancellation = request.cancellation.clone();
    let cancelled = started(fixture, request).await;
    let running = start(fixture, &StandardChild::Hangs).await;
    cancellation.cancel();
    ok_result(fixture, &*cancelled).await;
    still_running(&*running, "the cancellation of one child reached another").await;
    dispose(fixture, &*cancelled).await;
    dispose(fixture, &*running).await;
}

/// Starts may overlap, and none shares the cleanup of another.
pub async fn overlapping_children_share_no_cleanup(fixture: &dyn ProviderFixture) {
    let disposed = start(fixture, &StandardChild::Hangs).await;
    let running = start(fixture, &StandardChild::Hangs).await;
    dispose(fixture, &*disposed).await;
    still_running(&*running, "the disposal of one child reached another").await;
    assert!(fixture.alive() > 0, "the disposal of one child took another one away");
    dispose(fixture, &*running).await;
}

/// A start that fails says so with the provider's own error as its source.
pub async fn refused_start_has_its_source(fixture: &dyn ProviderFixture) {
    if !fixture.traits().can_refuse_start {
        return;
    }
    let Err(error) = try_start(fixture, fixture.request(&StandardChild::Unstartable)).await else {
        panic!("a child that cannot be started was started");
    };
    assert_eq!(error.kind(), ErrorKind::Provider, "{error}");
    assert!(std::error::Error::source(&error).is_some(), "the error has no source: {error}");
}

/// Before ownership passes, the provider must release whatever it created.
pub async fn refused_start_leaves_no_child(fixture: &dyn ProviderFixture) {
    if !fixture.traits().can_refuse_start {
        return;
    }
    let refused = try_start(fixture, fixture.request(&StandardChild::Unstartable)).await;
    assert!(refused.is_err(), "a child that cannot be started was started");
    assert_eq!(fixture.alive(), 0, "the refused start left something behind");
}

/// What goes wrong after the start is a result of the run, not an error of the start.
pub async fn failing_child_is_a_result(fixture: &dyn ProviderFixture) {
    let run = match try_start(fixture, fixture.request(&StandardChild::Fails)).await {
        Ok(run) => run,
        Err(error) => panic!("the failure of the child became one of the start: {error}"),
    };
    let result = ok_result(fixture, &*run).await;
    assert!(!result.stop_reason.is_completed(), "the failing child completed");
    release(fixture, &*run).await;
}

/// A request that is cancelled before there is a child is refused.
pub async fn request_cancelled_beforehand_is_refused(fixture: &dyn ProviderFixture) {
    let request = fixture.request(&StandardChild::Completes);
    request.cancellation.cancel();
    match try_start(fixture, request).await {
        Ok(run) => {
            dispose(fixture, &*run).await;
            panic!("a cancelled request was started");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}"),
    }
    assert_eq!(fixture.alive(), 0, "the refused start left something behind");
}

/// A request that is cancelled after the start ends the child, whose result then says so.
pub async fn cancelled_child_ends_as_aborted(fixture: &dyn ProviderFixture) {
    let request = fixture.request(&StandardChild::Hangs);
    let cancellation = request.cancellation.clone();
    let run = started(fixture, request).await;
    cancellation.cancel();
    let result = ok_result(fixture, &*run).await;
    assert_eq!(result.stop_reason, StopReason::ABORTED);
    dispose(fixture, &*run).await;
}

/// If the future of a start is dropped, no child is left behind.
pub async fn dropped_start_leaves_no_child(fixture: &dyn ProviderFixture) {
    let provider = fixture.provider();
    // A start is dropped after one poll, after two, and so on, until it gets to its end.
    for polls in 1..=16 {
        let mut start = Box::pin(provider.start(fixture.request(&StandardChild::Hangs)));
        let mut run = None;
        for poll in 0..polls {
            if poll > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            run = poll_once(start.as_mut()).await;
            if run.is_some() {
                break;
            }
        }
        drop(start);
        let ended = run.is_some();
        if let Some(run) = run {
            dispose(fixture, &*run.unwrap_or_else(|error| panic!("the start failed: {error}"))).await;
        }
        let gone = comes_true(fixture.patience(), || fixture.alive() == 0).await;
        assert!(gone, "a start that was dropped after {polls} polls left a child behind");
        if ended {
            return;
        }
    }
}

/// A child's id is never empty.
pub async fn id_is_not_empty(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Completes).await;
    assert!(!run.id().as_str().is_empty(), "the id is empty");
    dispose(fixture, &*run).await;
}

/// A child's id never changes.
pub async fn id_never_changes(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Completes).await;
    let before = run.id().clone();
    ok_result(fixture, &*run).await;
    assert_eq!(run.id(), &before, "the result changed the id");
    dispose(fixture, &*run).await;
    assert_eq!(run.id(), &before, "the disposal changed the id");
}

/// The result may be asked for any number of times, and every call gets the same answer.
pub async fn result_can_be_asked_for_again(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Completes).await;
    let first = ok_result(fixture, &*run).await;
    for _ in 0..3 {
        assert_eq!(ok_result(fixture, &*run).await, first, "a later call got another answer");
    }
    dispose(fixture, &*run).await;
}

/// The result may be asked for at once by several, and every one gets the same answer.
pub async fn results_asked_for_at_once_agree(fixture: &dyn ProviderFixture) {
    let request = fixture.request(&StandardChild::Hangs);
    let cancellation = request.cancellation.clone();
    let run = started(fixture, request).await;
    {
        let (mut first, mut second) = (pin!(run.result()), pin!(run.result()));
        let early = (poll_once(first.as_mut()).await, poll_once(second.as_mut()).await);
        assert!(early.0.is_none() && early.1.is_none(), "the child runs, but its result is there: {early:?}");
        cancellation.cancel();
        let (first, second) =
            within(fixture.patience(), "the result", async { tokio::join!(first, second) }).await;
        assert_eq!(expect_result(first), expect_result(second), "two waiters got two answers");
    }
    dispose(fixture, &*run).await;
}

/// The result may be asked for after the disposal, and is the same as before.
pub async fn result_after_dispose_is_the_same(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Completes).await;
    let before = ok_result(fixture, &*run).await;
    dispose(fixture, &*run).await;
    assert_eq!(ok_result(fixture, &*run).await, before, "the disposal changed the result");
}

/// Waiting drives nothing that a dropped wait would stop.
pub async fn child_goes_on_without_a_waiter(fixture: &dyn ProviderFixture) {
    let request = fixture.request(&StandardChild::Hangs);
    let cancellation = request.cancellation.clone();
    let run = started(fixture, request).await;
    {
        let mut wait = pin!(run.result());
        let early = poll_once(wait.as_mut()).await;
        assert!(early.is_none(), "the child runs, but its result is there: {early:?}");
    }
    cancellation.cancel();
    ok_result(fixture, &*run).await;
    dispose(fixture, &*run).await;
}

/// A child that had completed before its cancellation stays completed.
pub async fn completed_child_stays_completed(fixture: &dyn ProviderFixture) {
    let request = fixture.request(&StandardChild::Completes);
    let cancellation = request.cancellation.clone();
    let run = started(fixture, request).await;
    let before = ok_result(fixture, &*run).await;
    assert_eq!(before.stop_reason, StopReason::COMPLETED);
    cancellation.cancel();
    assert_eq!(ok_result(fixture, &*run).await, before, "a late cancellation changed the result");
    dispose(fixture, &*run).await;
}

/// A child whose end the provider cannot know is an error of its result, each time.
pub async fn lost_child_is_an_error_of_its_result(fixture: &dyn ProviderFixture) {
    if !fixture.traits().can_lose {
        return;
    }
    let run = start(fixture, &StandardChild::Lost).await;
    for _ in 0..2 {
        match within(fixture.patience(), "the result", run.result()).await {
            Ok(result) => panic!("a lost child has a result: {result:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::RunLost, "{error}"),
        }
    }
    release(fixture, &*run).await;
}

/// A success has no diagnostic.
pub async fn success_has_no_diagnostic(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Completes).await;
    let result = ok_result(fixture, &*run).await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED);
    assert_eq!(result.diagnostic, None);
    dispose(fixture, &*run).await;
}

/// A diagnostic says why a child did not complete.
pub async fn failure_has_a_diagnostic(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Fails).await;
    let result = ok_result(fixture, &*run).await;
    let said = result.diagnostic.as_ref().map(|diagnostic| diagnostic.message().trim());
    assert!(said.is_some_and(|message| !message.is_empty()), "{result:?}");
    release(fixture, &*run).await;
}

/// Where the provider can tell what a child used, it tells it of failed children too.
pub async fn usage_is_told_of_failed_children_too(fixture: &dyn ProviderFixture) {
    let told = fixture.traits().tells_usage;
    for child in [StandardChild::Completes, StandardChild::Fails] {
        let run = start(fixture, &child).await;
        let result = ok_result(fixture, &*run).await;
        assert_eq!(result.usage.is_some(), told, "{child:?}: {result:?}");
        release(fixture, &*run).await;
    }
}

/// The result names the session that the provider's own side knows the child by, where there is one.
pub async fn session_id_is_told(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Completes).await;
    let result = ok_result(fixture, &*run).await;
    assert_eq!(result.session_id.is_some(), fixture.traits().tells_session_id, "{result:?}");
    assert_ne!(result.session_id.as_deref(), Some(""));
    dispose(fixture, &*run).await;
}

/// The value that a child hands in under an output contract is delivered as it is.
pub async fn value_is_delivered_as_handed_in(fixture: &dyn ProviderFixture) {
    let value = json!({ "answer": "forty-two \u{1f600}", "list": [1, 2.5, null, true] });
    let (child, contract) = if fixture.provider().capabilities().output_contract {
        (StandardChild::HandsIn(value.clone()), Some(answer_contract()))
    } else {
        (StandardChild::Completes, None)
    };
    let mut request = fixture.request(&child);
    request.output = contract;
    let expected = request.output.is_some().then_some(value);
    let run = started(fixture, request).await;
    let result = ok_result(fixture, &*run).await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED, "{result:?}");
    assert_eq!(result.structured, expected, "a child without a contract hands nothing in");
    dispose(fixture, &*run).await;
}

/// Nobody below the caller of the child turns a broken rule into a verdict.
pub async fn broken_rule_is_no_verdict(fixture: &dyn ProviderFixture) {
    if !fixture.provider().capabilities().output_contract {
        return;
    }
    let value = json!({ "answer": "against the rule" });
    let rule = fixture.traits().refusing_rule.unwrap_or_else(|| RuleRef::new("a-rule-for-others"));
    let request = fixture
        .request(&StandardChild::HandsIn(value.clone()))
        .with_output(answer_contract().with_rule(rule));
    let run = started(fixture, request).await;
    let result = ok_result(fixture, &*run).await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED, "{result:?}");
    assert_eq!(result.structured, Some(value), "the last refused value is delivered");
    dispose(fixture, &*run).await;
}

/// The disposal ends the child if it still runs, and waits until it and all it held are gone.
pub async fn dispose_waits_until_a_running_child_is_gone(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Hangs).await;
    assert!(fixture.alive() > 0, "the fixture does not see a child that runs");
    dispose(fixture, &*run).await;
    assert_eq!(fixture.alive(), 0, "the disposal returned before the child was gone");
}

/// The caller disposes of a run also after a result.
pub async fn dispose_after_a_result_releases_the_child(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Completes).await;
    ok_result(fixture, &*run).await;
    dispose(fixture, &*run).await;
    assert_eq!(fixture.alive(), 0, "something of the child is left");
}

/// A repeated disposal gets the same answer as the first.
pub async fn repeated_dispose_gets_the_same_answer(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Completes).await;
    dispose(fixture, &*run).await;
    dispose(fixture, &*run).await;
}

/// A concurrent disposal waits for the first.
pub async fn concurrent_dispose_waits_for_the_first(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Hangs).await;
    let disposed = || async {
        let answer = run.dispose().await;
        (answer, fixture.alive())
    };
    let answers =
        within(fixture.patience(), "the release", async { tokio::join!(disposed(), disposed()) }).await;
    let ((first, _), (second, alive)) = answers;
    assert!(first.is_ok() && second.is_ok(), "{first:?}, {second:?}");
    assert_eq!(alive, 0, "the second disposal returned before the child was gone");
}

/// After a disposal the result resolves at once.
pub async fn result_resolves_at_once_after_dispose(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Hangs).await;
    dispose(fixture, &*run).await;
    let result = poll_once(pin!(run.result())).await.expect("the result of a disposed child is there");
    assert!(!expect_result(result).stop_reason.is_completed(), "a child that was ended has not completed");
}

/// A dropped disposal may leave the release unfinished, but the next one goes on with it.
pub async fn dropped_dispose_is_gone_on_with(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Hangs).await;
    // The wait is dropped at its first pause, if it has one.
    let _ = poll_once(pin!(run.dispose())).await;
    dispose(fixture, &*run).await;
    assert_eq!(fixture.alive(), 0, "the second disposal did not finish the release");
}

/// A provider must bound the release of a child by itself.
pub async fn release_of_a_stubborn_child_is_bounded(fixture: &dyn ProviderFixture) {
    if !fixture.traits().can_ignore_cancellation {
        return;
    }
    let run = start(fixture, &StandardChild::Stubborn).await;
    dispose(fixture, &*run).await;
    assert_eq!(fixture.alive(), 0, "the child outlived its disposal");
}

/// A release that fails is an error of the disposal, each time.
pub async fn failed_release_is_an_error_of_the_dispose(fixture: &dyn ProviderFixture) {
    if !fixture.traits().can_fail_release {
        return;
    }
    let run = start(fixture, &StandardChild::Unreleasable).await;
    for _ in 0..2 {
        match within(fixture.patience(), "the release", run.dispose()).await {
            Ok(()) => panic!("the failed release was not told"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Release, "{error}"),
        }
    }
}

/// A fault of the child is never an error of its disposal.
pub async fn fault_of_the_child_is_no_error_of_its_dispose(fixture: &dyn ProviderFixture) {
    let mut children = vec![StandardChild::Fails];
    children.extend(fixture.traits().can_lose.then_some(StandardChild::Lost));
    for child in children {
        let run = start(fixture, &child).await;
        let _ = within(fixture.patience(), "the result", run.result()).await;
        dispose(fixture, &*run).await;
    }
}

/// What a child does can be watched, where the provider can tell it.
pub async fn activity_is_as_declared(fixture: &dyn ProviderFixture) {
    let run = start(fixture, &StandardChild::Hangs).await;
    let silent = run.activity().is_silent();
    assert_eq!(silent, !fixture.traits().tells_activity, "the fixture declares otherwise");
    dispose(fixture, &*run).await;
}

/// The stream of activity is bounded and ends with the child.
pub async fn activity_ends_with_the_child(fixture: &dyn ProviderFixture) {
    let request = fixture.request(&StandardChild::Hangs);
    let cancellation = request.cancellation.clone();
    let run = started(fixture, request).await;
    let mut activity = run.activity();
    cancellation.cancel();
    ok_result(fixture, &*run).await;
    within(fixture.patience(), "the end of the activity", async { while activity.next().await.is_some() {} })
        .await;
    dispose(fixture, &*run).await;
}

/// A contract that admits any object.
fn answer_contract() -> OutputContract {
    let schema =
        json!({ "type": "object", "properties": { "answer": { "type": "string" } }, "required": ["answer"] });
    OutputContract::new(schema).expect("the schema is within the subset")
}

async fn try_start(fixture: &dyn ProviderFixture, request: StartSubagent) -> Result<Box<dyn SubagentRun>> {
    within(fixture.patience(), "the start", fixture.provider().start(request)).await
}

async fn started(fixture: &dyn ProviderFixture, request: StartSubagent) -> Box<dyn SubagentRun> {
    match try_start(fixture, request).await {
        Ok(run) => run,
        Err(error) => panic!("the start failed: {error} ({:?})", error.kind()),
    }
}

async fn start(fixture: &dyn ProviderFixture, child: &StandardChild) -> Box<dyn SubagentRun> {
    started(fixture, fixture.request(child)).await
}

async fn ok_result(fixture: &dyn ProviderFixture, run: &dyn SubagentRun) -> SubagentResult {
    expect_result(within(fixture.patience(), "the result", run.result()).await)
}

fn expect_result(result: Result<SubagentResult>) -> SubagentResult {
    result.unwrap_or_else(|error| panic!("the child was lost: {error} ({:?})", error.kind()))
}

async fn dispose(fixture: &dyn ProviderFixture, run: &dyn SubagentRun) {
    if let Err(error) = within(fixture.patience(), "the release", run.dispose()).await {
        panic!("the release failed: {error} ({:?})", error.kind());
    }
}

/// Disposes of a run in a check of something else than disposals.
async fn release(fixture: &dyn ProviderFixture, run: &dyn SubagentRun) {
    let _ = within(fixture.patience(), "the release", run.dispose()).await;
}

async fn still_running(run: &dyn SubagentRun, otherwise: &str) {
    tokio::task::yield_now().await;
    let early = poll_once(pin!(run.result())).await;
    assert!(early.is_none(), "{otherwise}: {early:?}");
}
