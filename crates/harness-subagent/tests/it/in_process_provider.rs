//! The example's provider, held to what its comments promise.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use harness_registry_local::LocalRegistry;
use harness_subagent::{
    AgentId, ErrorKind, OutputContract, OutputRule, OutputRuleCatalog, OutputViolation, Parent, RuleRef,
    StartSubagent, StopReason, SubagentProvider, SubagentRegistry, SubagentRun, ToolRestriction,
};
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

#[path = "../../examples/in_process_provider/capture.rs"]
pub(crate) mod capture;
#[path = "../../examples/in_process_provider/harness.rs"]
pub(crate) mod harness;
#[path = "../../examples/in_process_provider/provider.rs"]
pub(crate) mod provider;
#[path = "../../examples/in_process_provider/script.rs"]
pub(crate) mod script;

use harness::{
    Agent, Harness, Hook, Message, Model, ModelRequest, Reply, ReplyEnd, Tool, ToolCall, ToolOutcome,
};
use provider::InProcessProvider;
use script::{ScriptedModel, calls, says};

const OUTPUT: &str = capture::TOOL;

/// A tool that counts its calls.
#[derive(Debug, Default)]
struct Note(AtomicU32);

#[async_trait]
impl Tool for Note {
    fn name(&self) -> &str {
        "note"
    }

    fn parameters(&self) -> Value {
        json!({ "type": "object" })
    }

    async fn call(&self, _execution: u64, arguments: &Value) -> ToolOutcome {
        assert!(arguments.get("panic").is_none(), "the tool was told to panic");
        self.0.fetch_add(1, Ordering::SeqCst);
        ToolOutcome::success("noted")
    }
}

/// Refuses values whose `n` is odd.
#[derive(Debug)]
struct Even;

impl OutputRule for Even {
    fn check(&self, value: &Value, _parameters: &Value) -> Result<(), Vec<OutputViolation>> {
        if value["n"].as_i64().is_some_and(|n| n % 2 == 0) {
            return Ok(());
        }
        Err(vec![OutputViolation::new("/n", "odd", "make it even")])
    }
}

/// A harness with one root agent, its provider, and what it has been asked.
struct Setup {
    model: Arc<ScriptedModel>,
    note: Arc<Note>,
    harness: Arc<Harness>,
    root: Arc<Agent>,
    provider: Arc<InProcessProvider>,
}

fn setup(replies: impl IntoIterator<Item = Reply>) -> Setup {
    with_hooks(replies, Vec::new())
}

fn with_hooks(replies: impl IntoIterator<Item = Reply>, hooks: Vec<Arc<dyn Hook>>) -> Setup {
    let model = Arc::new(ScriptedModel::new(replies));
    let note = Arc::new(Note::default());
    let harness = Harness::new(model.clone(), vec![note.clone()], hooks);
    let root = harness.open_root("/w");
    let provider = provider(&harness);
    Setup { model, note, harness, root, provider }
}

fn provider(harness: &Arc<Harness>) -> Arc<InProcessProvider> {
    let rules = OutputRuleCatalog::new().with("even", Arc::new(Even)).unwrap();
    Arc::new(InProcessProvider::new(Arc::clone(harness), rules))
}

impl Setup {
    fn parent(&self) -> Parent {
        Parent::new(self.root.id.clone(), "/w")
    }

    fn request(&self) -> StartSubagent {
        StartSubagent::new("do it", self.parent())
    }

    async fn start(&self, request: StartSubagent) -> Box<dyn SubagentRun> {
        self.provider.start(request).await.unwrap()
    }

    /// Runs one child under a contract and returns how it ended.
    async fn child(&self, contract: OutputContract) -> harness_subagent::SubagentResult {
        self.start(self.request().with_output(contract)).await.result().await.unwrap()
    }

    /// The tool results that the model has seen last, as contents and error marks.
    fn seen(&self) -> Vec<(String, bool)> {
        let asked = self.model.asked();
        let results = asked.last().unwrap().messages.iter().filter_map(|message| match message {
            Message::ToolResult { content, is_error, .. } => Some((content.clone(), *is_error)),
            _ => None,
        });
        results.collect()
    }
}

fn contract() -> OutputContract {
    let schema = json!({
        "type": "object",
        "properties": { "n": { "type": "integer" } },
        "required": ["n"],
    });
    OutputContract::new(schema).unwrap()
}

fn hands_in(n: Value) -> Reply {
    calls("", [(OUTPUT, json!({ "n": n }))])
}

#[tokio::test]
async fn a_value_that_fits_is_delivered_without_asking_the_model_again() {
    let setup = setup([calls("here", [(OUTPUT, json!({ "n": 1 }))])]);
    let result = setup.child(contract()).await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED);
    assert_eq!(result.structured, Some(json!({ "n": 1 })));
    assert_eq!(result.output, "here");
    assert_eq!(setup.model.asked().len(), 1);
}

#[tokio::test]
async fn calls_after_the_capture_are_denied_and_earlier_ones_are_not() {
    let note = || ("note", json!({}));
    let setup =
        setup([calls("", [note(), (OUTPUT, json!({ "n": 1 })), note(), (OUTPUT, json!({ "n": 2 }))])]);
    let result = setup.child(contract()).await;
    assert_eq!(result.structured, Some(json!({ "n": 1 })), "the first capture wins");
    assert_eq!(setup.note.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_value_that_does_not_fit_is_corrected_in_the_same_turn() {
    let setup = setup([hands_in(json!("one")), hands_in(json!(1))]);
    let result = setup.child(contract()).await;
    assert_eq!(result.structured, Some(json!({ "n": 1 })));
    assert_eq!(setup.model.asked().len(), 2);
    let seen = setup.seen();
    assert!(seen[0].1 && seen[0].0.contains("/n"), "{seen:?}");
}

#[tokio::test]
async fn a_value_that_breaks_the_rule_is_corrected_in_the_same_turn() {
    let setup = setup([hands_in(json!(1)), hands_in(json!(2)), hands_in(json!(4))]);
    let result = setup.child(contract().with_rule(RuleRef::new("even"))).await;
    assert_eq!(result.structured, Some(json!({ "n": 2 })), "the first that the rule accepts");
    let seen = setup.seen();
    assert!(seen[0].1 && seen[0].0.contains("/n: make it even"), "{seen:?}");
}

#[tokio::test]
async fn the_last_value_that_broke_the_rule_is_delivered_without_a_verdict() {
    let setup = setup([hands_in(json!(1)), hands_in(json!(3)), hands_in(json!("x")), says("I give up.")]);
    let result = setup.child(contract().with_rule(RuleRef::new("even"))).await;
    assert_eq!(result.stop_reason, StopReason::COMPLETED);
    assert_eq!(result.structured, Some(json!({ "n": 3 })));
    assert_eq!(result.output, "I give up.");
}

#[tokio::test]
async fn a_value_that_never_fits_is_kept_beside_the_failure() {
    let setup = setup([hands_in(json!("x")), says("done")]);
    let result = setup.child(contract()).await;
    assert_eq!(result.stop_reason, StopReason::SCHEMA_REFUSED);
    assert_eq!(result.structured, Some(json!({ "n": "x" })));
    assert!(result.diagnostic.is_some());
}

#[tokio::test]
async fn a_turn_that_ends_without_a_value_is_not_followed_by_another() {
    let setup = setup([says("all is well"), hands_in(json!(1))]);
    let result = setup.child(contract()).await;
    assert_eq!(result.stop_reason, StopReason::NO_VALUE);
    assert_eq!(result.output, "all is well");
    assert_eq!(setup.model.asked().len(), 1);
}

#[tokio::test]
async fn a_child_that_fails_keeps_its_own_reason() {
    for (end, reason) in
        [(ReplyEnd::CutOff, StopReason::MAX_TOKENS), (ReplyEnd::Declined, StopReason::REFUSAL)]
    {
        let setup = setup([Reply { end, ..says("half of") }]);
        let result = setup.child(contract()).await;
        assert_eq!((result.stop_reason, &*result.output), (reason, "half of"));
        assert!(result.diagnostic.is_some());
    }
}

#[tokio::test]
async fn a_turn_without_end_is_bounded() {
    let setup = setup(std::iter::repeat_n(calls("again", [("note", json!({}))]), 100));
    assert_eq!(setup.child(contract()).await.stop_reason, StopReason::TURN_LIMIT);
}

/// Cancels while the model writes its last words.
#[derive(Debug)]
struct CancelsAndEnds(CancellationToken);

#[async_trait]
impl Model for CancelsAndEnds {
    async fn reply(&self, _request: &ModelRequest) -> Reply {
        self.0.cancel();
        says("done")
    }
}

#[tokio::test]
async fn a_cancelled_turn_that_ends_cleanly_without_a_value_is_aborted() {
    for (output, reason) in [(Some(contract()), StopReason::ABORTED), (None, StopReason::COMPLETED)] {
        let token = CancellationToken::new();
        let harness = Harness::new(Arc::new(CancelsAndEnds(token.clone())), Vec::new(), Vec::new());
        let parent = Parent::new(harness.open_root("/w").id.clone(), "/w");
        let mut request = StartSubagent::new("x", parent).with_cancellation(token);
        request.output = output;
        let run = provider(&harness).start(request).await.unwrap();
        assert_eq!(run.result().await.unwrap().stop_reason, reason);
    }
}

/// Does something to the outcome of the first hand-in that succeeds.
#[derive(Debug)]
struct Reviewer {
    done: AtomicBool,
    act: fn(&mut ToolOutcome),
}

fn reviewer(act: fn(&mut ToolOutcome)) -> Arc<dyn Hook> {
    Arc::new(Reviewer { done: AtomicBool::new(false), act })
}

impl Hook for Reviewer {
    fn review(&self, call: &ToolCall, outcome: &mut ToolOutcome) {
        if call.tool == OUTPUT && !outcome.is_error && !self.done.swap(true, Ordering::SeqCst) {
            (self.act)(outcome);
        }
    }
}

fn block(outcome: &mut ToolOutcome) {
    *outcome = ToolOutcome::error("blocked by policy");
}

#[tokio::test]
async fn a_blocked_hand_in_is_discarded_and_the_turn_goes_on() {
    let setup = with_hooks([hands_in(json!(1)), says("so be it")], vec![reviewer(block)]);
    let result = setup.child(contract()).await;
    assert_eq!((result.stop_reason, result.structured), (StopReason::NO_VALUE, None));
    assert_eq!(setup.model.asked().len(), 2);
    assert_eq!(setup.seen(), [("blocked by policy".to_owned(), true)]);
}

#[tokio::test]
async fn a_blocked_hand_in_can_be_followed_by_another() {
    let setup = with_hooks([hands_in(json!(1)), hands_in(json!(2))], vec![reviewer(block)]);
    assert_eq!(setup.child(contract()).await.structured, Some(json!({ "n": 2 })));
}

#[tokio::test]
async fn a_hand_in_whose_words_are_rewritten_still_counts() {
    let rewrite = |outcome: &mut ToolOutcome| outcome.content = "thanks".to_owned();
    let setup = with_hooks([hands_in(json!(1))], vec![reviewer(rewrite)]);
    let result = setup.child(contract()).await;
    assert_eq!((result.stop_reason, result.structured), (StopReason::COMPLETED, Some(json!({ "n": 1 }))));
}

#[tokio::test]
async fn another_call_under_the_same_id_promotes_nothing() {
    let same = |tool: &str, arguments| ToolCall { id: "same".to_owned(), tool: tool.to_owned(), arguments };
    let reply = Reply { calls: vec![same(OUTPUT, json!({ "n": 1 })), same("note", json!({}))], ..says("") };
    let setup = with_hooks([reply, says("done")], vec![reviewer(block)]);
    let result = setup.child(contract()).await;
    assert_eq!(setup.note.0.load(Ordering::SeqCst), 1, "the other call succeeded");
    assert_eq!((result.stop_reason, result.structured), (StopReason::NO_VALUE, None));
}

/// Denies every hand-in before it is carried out.
#[derive(Debug)]
struct DeniesHandIns;

impl Hook for DeniesHandIns {
    fn deny(&self, call: &ToolCall) -> Option<String> {
        (call.tool == OUTPUT).then(|| "not now".to_owned())
    }
}

#[tokio::test]
async fn a_hand_in_that_is_denied_beforehand_is_not_staged() {
    let setup = with_hooks([hands_in(json!(1)), says("done")], vec![Arc::new(DeniesHandIns)]);
    assert_eq!(setup.child(contract()).await.stop_reason, StopReason::NO_VALUE);
    assert_eq!(setup.seen(), [("not now".to_owned(), true)]);
}

#[tokio::test]
async fn only_a_child_under_a_contract_has_the_tool_and_the_instruction() {
    let setup = setup([hands_in(json!(1)), says("done")]);
    let run = setup.start(setup.request()).await;
    let result = run.result().await.unwrap();
    assert_eq!((result.stop_reason, result.structured), (StopReason::COMPLETED, None));
    assert_eq!(setup.seen(), [(format!("there is no tool named {OUTPUT:?}"), true)]);
    let plain = &setup.model.asked()[0];
    assert!(!plain.system.contains(OUTPUT));
    assert!(plain.tools.iter().all(|(name, _)| name != OUTPUT));
    assert_eq!(plain.messages, [Message::User("do it".to_owned())], "the prompt is passed on verbatim");

    let setup = self::setup([hands_in(json!(1))]);
    setup.child(contract()).await;
    let structured = &setup.model.asked()[0];
    assert!(structured.system.starts_with(&plain.system), "the instruction comes last");
    assert!(structured.system.contains(OUTPUT));
    assert_eq!(structured.messages, plain.messages);
    assert!(setup.root.tools.iter().all(|tool| tool.name() != OUTPUT), "nothing is given to the parent");
}

#[tokio::test]
async fn children_at_once_see_their_own_schema_each() {
    let setup = setup([hands_in(json!(1)), calls("", [(OUTPUT, json!({ "other": "x" }))])]);
    let other = json!({
        "type": "object", "properties": { "other": { "type": "string" } }, "required": ["other"],
    });
    let second = OutputContract::new(other).unwrap();
    let (one, two) = tokio::join!(setup.child(contract()), setup.child(second.clone()));
    assert_eq!(one.structured, Some(json!({ "n": 1 })));
    assert_eq!(two.structured, Some(json!({ "other": "x" })));
    let schemas: Vec<Value> =
        setup.model.asked().into_iter().map(|asked| asked.tools.last().unwrap().1.clone()).collect();
    assert_eq!(schemas, [contract().schema().as_ref().clone(), second.schema().as_ref().clone()]);
}

#[track_caller]
fn refused(answer: harness_subagent::Result<Box<dyn SubagentRun>>, source: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    let found = error.source().unwrap().to_string();
    assert!(found.contains(source), "{found}");
}

#[tokio::test]
async fn what_cannot_be_started_is_refused_and_leaves_nothing() {
    let setup = setup([]);
    let token = CancellationToken::new();
    token.cancel();
    let start = |request| setup.provider.start(request);
    let cancelled = start(setup.request().with_cancellation(token)).await.unwrap_err();
    assert_eq!(cancelled.kind(), ErrorKind::Cancelled);
    let stranger = StartSubagent::new("x", Parent::new("stranger", "/w"));
    refused(start(stranger).await, "stranger");
    let unknown = contract().with_rule(RuleRef::new("absent"));
    refused(start(setup.request().with_output(unknown)).await, "absent");
    refused(start(setup.request().with_max_depth(0)).await, "depth 1");

    yield_now().await;
    assert!(setup.model.asked().is_empty());
    assert_eq!(setup.harness.population(), 1, "only the root is live");
}

#[tokio::test]
async fn the_depth_that_the_harness_knows_wins_over_a_lesser_claim() {
    let setup = setup([]);
    let child = setup.start(setup.request().with_max_depth(2)).await;
    let live = setup.harness.find(child.id()).unwrap();
    assert_eq!((live.depth, live.max_depth, live.workspace.as_str()), (1, Some(2), "/w"));

    let below =
        |id: &AgentId, depth| StartSubagent::new("x", Parent::new(id.clone(), "/w").with_depth(depth));
    let grandchild = setup.start(below(child.id(), 0)).await;
    let live = setup.harness.find(grandchild.id()).unwrap();
    assert_eq!((live.depth, live.max_depth), (2, Some(2)), "the limit is handed down");
    refused(setup.provider.start(below(grandchild.id(), 0)).await, "depth 3");
    refused(setup.provider.start(below(child.id(), 5)).await, "depth 6");
}

#[tokio::test]
async fn a_tool_restriction_leaves_the_capture_tool() {
    let setup = setup([hands_in(json!(1)), hands_in(json!(1))]);
    for tools in [ToolRestriction::deny(["note"]), ToolRestriction::allow_only(["other"])] {
        let run = setup.start(setup.request().with_output(contract()).with_tools(tools)).await;
        run.result().await.unwrap();
        let asked = setup.model.asked();
        let names: Vec<&str> = asked.last().unwrap().tools.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, [OUTPUT]);
    }
}

#[tokio::test]
async fn cancelling_ends_the_child_and_keeps_what_it_said() {
    let setup = setup([calls("so far", [("note", json!({}))])]);
    let request = setup.request();
    let run = setup.start(request.clone()).await;
    while setup.model.asked().len() < 2 {
        yield_now().await;
    }
    assert!(setup.harness.find(run.id()).is_some());
    request.cancellation.cancel();
    let result = run.result().await.unwrap();
    assert_eq!((result.stop_reason, &*result.output), (StopReason::ABORTED, "so far"));
    assert!(result.usage.is_some());
    assert!(setup.harness.find(run.id()).is_none());
}

#[tokio::test]
async fn disposing_ends_this_child_alone_and_waits_for_it() {
    let setup = setup([]);
    let request = setup.request();
    let (one, two) = (setup.start(request.clone()).await, setup.start(request.clone()).await);
    yield_now().await;
    let (first, second) = tokio::join!(one.dispose(), one.dispose());
    first.unwrap();
    second.unwrap();
    assert!(setup.harness.find(one.id()).is_none());
    assert_eq!(one.result().await.unwrap().stop_reason, StopReason::ABORTED);
    assert!(setup.harness.find(two.id()).is_some());
    assert!(!request.cancellation.is_cancelled());
}

#[tokio::test]
async fn a_child_that_has_completed_stays_so() {
    let setup = setup([says("done")]);
    let request = setup.request();
    let run = setup.start(request.clone()).await;
    assert_eq!(run.result().await.unwrap().stop_reason, StopReason::COMPLETED);
    request.cancellation.cancel();
    run.dispose().await.unwrap();
    assert_eq!(run.result().await.unwrap().stop_reason, StopReason::COMPLETED);
}

#[tokio::test]
async fn a_dropped_run_ends_its_child() {
    let setup = setup([]);
    let run = setup.start(setup.request()).await;
    let id = run.id().clone();
    yield_now().await;
    assert!(setup.harness.find(&id).is_some());
    drop(run);
    yield_now().await;
    assert!(setup.harness.find(&id).is_none());
}

#[tokio::test]
async fn a_child_whose_task_panics_is_lost_and_leaves_the_harness() {
    let setup = setup([calls("", [("note", json!({ "panic": true }))])]);
    let run = setup.start(setup.request()).await;
    let mut activity = run.activity();
    assert_eq!(run.result().await.unwrap_err().kind(), ErrorKind::RunLost);
    run.dispose().await.unwrap();
    assert!(setup.harness.find(run.id()).is_none());
    assert_eq!(activity.next().await.unwrap().text, "calls note");
    assert_eq!(activity.next().await, None);
}

#[tokio::test]
async fn the_activity_ends_with_the_child() {
    let setup = setup([calls("", [("note", json!({}))]), says("done")]);
    let run = setup.start(setup.request()).await;
    let mut activity = run.activity();
    let first = activity.next().await.unwrap();
    assert_eq!(first.text, "calls note");
    assert_eq!(first.usage.unwrap().input_tokens, 100);
    assert_eq!(activity.next().await, None);
    run.result().await.unwrap();
    assert!(run.activity().is_silent());
}

#[tokio::test]
async fn a_registry_lets_the_outcome_stand() {
    let setup = setup([hands_in(json!(2)), hands_in(json!("x")), says("done"), says("nothing")]);
    let registry = LocalRegistry::new();
    let mut reasons = Vec::new();
    for _ in 0..3 {
        let request = setup.request().with_output(contract());
        let run = registry.start_on(&(setup.provider.clone() as _), request).await.unwrap();
        reasons.push(run.result().await.unwrap().stop_reason);
        run.dispose().await.unwrap();
    }
    assert_eq!(reasons, [StopReason::COMPLETED, StopReason::SCHEMA_REFUSED, StopReason::NO_VALUE]);
}
