//! Whole runs on the embedded engine, with a real registry and scripted workers.

use std::sync::Arc;

use harness_engine_local::{JournalStore, JsonlStore, LocalConfig, LocalEngine};
use harness_registry_local::LocalRegistry;
use harness_subagent::{Capabilities, ProviderInfo, StopReason};
use harness_testkit::subagent::{MockChild, MockProviderHandle};
use harness_workflow::{
    CallOutcome, RunId, WorkflowEngine, WorkflowEvent, WorkflowEventKind, WorkflowObserver,
};
use ralph_tool::{Envelope, RalphConfig, RalphError, RalphTool, rules, workflows};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::prompts::PromptParts;
use crate::stage::{
    blocked, cancelled_by, complete, context, continuing, fresh, parent, registry_with, report,
};

struct Scene {
    tool: RalphTool,
    workers: MockProviderHandle,
    events: Arc<Events>,
    _registry: Arc<LocalRegistry>,
}

#[derive(Debug, Default)]
struct Events(std::sync::Mutex<Vec<WorkflowEventKind>>);

impl WorkflowObserver for Events {
    fn observe(&self, event: &WorkflowEvent) {
        self.0.lock().unwrap().push(event.kind.clone());
    }
}

impl Scene {
    fn new(config: Value, children: impl IntoIterator<Item = MockChild>) -> Self {
        Self::with_provider(fresh("spawn"), config, children)
    }

    fn with_provider(
        info: ProviderInfo,
        config: Value,
        children: impl IntoIterator<Item = MockChild>,
    ) -> Self {
        let (registry, workers) = registry_with(info);
        workers.script(children);
        let engine = LocalEngine::new(Arc::clone(&registry) as _, workflows(), LocalConfig::default());
        let events = Arc::new(Events::default());
        engine.observe(Arc::clone(&events) as _);
        let config = RalphConfig::from_value(&config).unwrap();
        let tool = RalphTool::new(config, Arc::new(engine), Arc::clone(&registry) as _).unwrap();
        Self { tool, workers, events, _registry: registry }
    }

    async fn call(&self) -> Result<Envelope, RalphError> {
        self.tool.call(&json!({ "objective": "Port it" }), context()).await
    }

    fn call_ends(&self) -> Vec<CallOutcome> {
        let events = self.events.0.lock().unwrap();
        events
            .iter()
            .filter_map(|event| match event {
                WorkflowEventKind::AgentEnded { end, .. } => Some(end.outcome),
                _ => None,
            })
            .collect()
    }
}

#[tokio::test]
async fn two_rounds_are_two_fresh_workers_and_one_report_between_them() {
    let children = [MockChild::value(continuing("half way")), MockChild::value(complete("done"))];
    let scene = Scene::new(json!({}), children);
    let outcome = scene.call().await;
    let envelope = outcome.as_ref().unwrap();
    assert_eq!((envelope.agents_started(), envelope.result().rounds_started()), (2, 2));
    assert!(scene.tool.render(&outcome).contains("after 2 rounds:"));

    let requests = scene.workers.requests();
    let [one, two] = &requests[..] else { panic!("there are two workers") };
    for request in [one, two] {
        assert_eq!(*request.parent, parent());
        assert_eq!(request.persona, None);
        // Nothing of the caller's own conversation or identity is in what a worker is told.
        assert!(!request.prompt.contains("caller"), "{}", request.prompt);
        assert_eq!(PromptParts::read(&request.prompt).objective, "Port it");
    }
    assert_ne!(one.origin, two.origin);
    assert!(!one.prompt.contains("half way"));
    assert_eq!(PromptParts::read(&two.prompt).report, Some(continuing("half way")));

    assert_eq!(scene.workers.disposes(), [1, 2]);
    assert_eq!(scene.workers.most_live(), 1, "one after the other");
    scene.workers.assert_nothing_left();
    let events = scene.events.0.lock().unwrap();
    let phases = events.iter().filter(|event| matches!(event, WorkflowEventKind::Phase { .. })).count();
    assert_eq!(phases, 1);
}

#[tokio::test]
async fn a_worker_that_hits_its_token_limit_fails_its_round() {
    let children = [MockChild::value(continuing("half way")), MockChild::failing(StopReason::MAX_TOKENS)];
    let scene = Scene::new(json!({}), children);
    let error = scene.call().await.unwrap_err();
    assert_eq!((error.code(), error.round()), ("round-failed", Some(2)));
    assert_eq!(error.last_report(), Some(&report(&continuing("half way"))));
    assert_eq!(error.stop_reason(), Some(&StopReason::MAX_TOKENS));
    assert!(error.diagnostic().is_some());
    scene.workers.assert_nothing_left();
}

#[tokio::test]
async fn a_worker_without_a_report_or_with_one_that_the_schema_refuses_fails_its_round() {
    for (child, reason) in [
        (MockChild::text("I am done."), StopReason::NO_VALUE),
        (MockChild::schema_refused(), StopReason::SCHEMA_REFUSED),
    ] {
        let error = Scene::new(json!({}), [child]).call().await.unwrap_err();
        assert_eq!((error.code(), error.stop_reason()), ("round-failed", Some(&reason)));
    }
}

#[tokio::test]
async fn each_kind_of_report_leads_to_its_ending() {
    let padded = json!({ "status": "complete", "summary": "done ", "evidence": ["e"], "nextSteps": [], "blocker": "" });
    let aimless =
        json!({ "status": "continue", "summary": "s", "evidence": [], "nextSteps": [], "blocker": "" });
    for (config, value, expected) in [
        (json!({}), blocked("no key"), Ok("blocked")),
        (json!({ "maxRounds": 1 }), continuing("half"), Ok("budget-limited")),
        (json!({}), padded, Err("summary-not-normalized")),
        (json!({}), aimless, Err("continue-needs-next-steps")),
        (json!({ "maxHandoffChars": 100 }), complete(&"x".repeat(100)), Err("handoff-oversized")),
    ] {
        let scene = Scene::new(config, [MockChild::value(value)]);
        let outcome = scene.call().await;
        let found = match &outcome {
            Ok(envelope) => Ok(envelope.result().status().as_str()),
            Err(error) => Err(error.cause().unwrap()),
        };
        assert_eq!(found, expected);
        scene.workers.assert_nothing_left();
        if expected == Ok("budget-limited") {
            assert!(scene.tool.render(&outcome).contains("1 round limit"));
        }
    }
}

#[tokio::test]
async fn a_cancelled_call_ends_its_worker() {
    let scene = Scene::new(json!({}), [MockChild::hanging()]);
    let token = CancellationToken::new();
    let args = json!({ "objective": "Port it" });
    let call = scene.tool.call(&args, cancelled_by(&token));
    let cancel = async {
        scene.workers.wait_until_asked(1).await;
        token.cancel();
    };
    let (outcome, ()) = tokio::join!(call, cancel);
    assert_eq!(outcome.unwrap_err().code(), "cancelled");
    assert_eq!(scene.call_ends(), [CallOutcome::Cancelled]);
    assert_eq!(scene.workers.disposes(), [1]);
    scene.workers.assert_nothing_left();
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_its_worker() {
    let scene = Scene::new(json!({}), [MockChild::hanging()]);
    let args = json!({ "objective": "Port it" });
    tokio::select! {
        _ = scene.tool.call(&args, context()) => panic!("the worker hangs"),
        () = scene.workers.wait_until_asked(1) => {}
    }
    scene.workers.wait_until_none_live().await;
    assert_eq!(scene.workers.cancelled(), [1]);
    scene.workers.assert_nothing_left();
}

#[tokio::test]
async fn a_run_that_was_resumed_can_be_followed_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, workers) = registry_with(fresh("spawn"));
    let store = Arc::new(JsonlStore::open(folder.path()).unwrap());
    let engine = || {
        let registry = Arc::clone(&registry) as _;
        LocalEngine::durable(registry, workflows(), LocalConfig::default(), Arc::clone(&store) as _)
    };
    let tool = |engine| RalphTool::new(RalphConfig::default(), engine, Arc::clone(&registry) as _).unwrap();
    workers.script([MockChild::value(complete("done"))]);
    let args = json!({ "objective": "Port it", "maxRounds": 3 });
    let started = tool(Arc::new(engine())).call(&args, context().with_run_id("run-1")).await.unwrap();

    // The run is over, so its journal alone answers.
    let run = RunId::from("run-1");
    let resuming = Arc::new(engine());
    let request = store.read(&run).unwrap().request;
    let resumed = resuming.resume(&run, CancellationToken::new()).await.unwrap();
    let followed = tool(resuming).follow(resumed, &request.args, CancellationToken::new()).await.unwrap();
    assert_eq!(followed.to_value(), started.to_value());
    assert_eq!(workers.starts(), 1);

    let resuming = Arc::new(engine());
    let resumed = resuming.resume(&run, CancellationToken::new()).await.unwrap();
    let error = tool(resuming).follow(resumed, &json!({}), CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.code(), "invalid-arguments");
}

#[tokio::test]
async fn a_provider_that_can_restrict_tools_keeps_its_workers_from_the_tool() {
    for (able, kept) in [(true, true), (false, false)] {
        let info = ProviderInfo::new("spawn", Capabilities::ALL.with_tool_restriction(able));
        let scene = Scene::with_provider(info, json!({}), [MockChild::value(complete("done"))]);
        scene.call().await.unwrap();
        let request = scene.workers.request(1);
        assert_eq!(request.tools.is_some(), kept);
        assert!(request.prompt.contains("do not call the tool `ralph`"));
    }
}

#[tokio::test]
async fn a_worker_whose_provider_knows_the_rule_can_mend_its_report() {
    let bad = json!({ "status": "complete", "summary": "done ", "evidence": ["e"], "nextSteps": [], "blocker": "" });
    let scene = Scene::new(json!({}), [MockChild::tries([bad, complete("done")])]);
    scene.workers.set_rules(rules());
    assert_eq!(scene.call().await.unwrap().result().report(), &report(&complete("done")));
}

#[tokio::test]
async fn the_rule_judges_as_the_loop_does() {
    let rules = rules();
    let rule = harness_subagent::RuleRef::new(ralph_tool::REPORT_RULE);
    let limited = rule.clone().with_parameters(json!({ "maxHandoffChars": 80 }));
    let kinds = |rule: &harness_subagent::RuleRef, value: &Value| -> Vec<String> {
        rules.check(rule, value).unwrap().into_iter().map(|violation| violation.kind).collect()
    };
    assert!(kinds(&rule, &complete(&"x".repeat(20_000))).is_empty());
    assert_eq!(kinds(&limited, &complete("done")), ["handoff-oversized"]);
    assert_eq!(kinds(&limited, &json!(7)), ["not-an-object"]);
    let wrong =
        json!({ "status": "blocked", "summary": "", "evidence": [""], "nextSteps": [], "blocker": "" });
    assert_eq!(
        kinds(&rule, &wrong),
        ["summary-not-normalized", "list-not-normalized", "blocked-needs-blocker"]
    );
}
