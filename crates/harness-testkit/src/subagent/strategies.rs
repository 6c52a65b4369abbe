//! Strategies for property tests of registries, providers and whatever runs children.
//!
//! ```
//! use harness_subagent::{Capabilities, SubagentProvider};
//! use harness_testkit::subagent::{MockProvider, strategies};
//! use proptest::prelude::*;
//!
//! proptest! {
//!     /// No child of a scripted provider is left when each run is disposed of.
//!     fn nothing_is_left(
//!         children in proptest::collection::vec(strategies::children(), 0..4),
//!         request in strategies::requests(Capabilities::ALL),
//!     ) {
//!         let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
//!         runtime.block_on(async {
//!             let (provider, handle) = MockProvider::new(Capabilities::ALL);
//!             let count = children.len();
//!             handle.script(children);
//!             for _ in 0..count {
//!                 if let Ok(run) = provider.start(request.clone()).await {
//!                     let _ = run.dispose().await;
//!                 }
//!             }
//!             handle.assert_nothing_left();
//!         });
//!     }
//! }
//! # nothing_is_left();
//! ```

use std::time::Duration;

use harness_subagent::{
    Capabilities, Diagnostic, ModelChoice, Origin, OutputContract, Parent, StartSubagent, StopReason,
    SubagentResult, ToolRestriction, Usage,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::MockChild;

/// Stop reasons: those that the seam names, success among them, and now and then one that nobody knows.
pub fn stop_reasons() -> impl Strategy<Value = StopReason> {
    prop_oneof![
        8 => proptest::sample::select(StopReason::KNOWN),
        1 => "[a-z]{1,12}(-[a-z]{1,12})?".prop_map(StopReason::other),
    ]
}

/// Stop reasons that are no success.
pub fn failures() -> impl Strategy<Value = StopReason> {
    stop_reasons().prop_filter("a success is no failure", |reason| !reason.is_completed())
}

/// Plain JSON values of any shape, small and not deep.
pub fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (-1.0e6..1.0e6_f64).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map("[a-z]{1,4}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// The contract that [`requests`] ask for values under: an object whose `answer` is a text.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "the schema is always the same")]
pub fn contract() -> OutputContract {
    let schema = json!({
        "type": "object",
        "properties": { "answer": { "type": "string" } },
        "required": ["answer"],
        "additionalProperties": false,
    });
    OutputContract::new(schema).expect("the schema is within the subset")
}

/// Values that the schema of [`contract`] admits.
pub fn admitted_values() -> impl Strategy<Value = Value> {
    ".{0,16}".prop_map(|answer: String| json!({ "answer": answer }))
}

/// Values that the schema of [`contract`] refuses.
pub fn refused_values() -> impl Strategy<Value = Value> {
    prop_oneof![
        values().prop_filter("an object may be admitted", |value| !value.is_object()),
        values().prop_map(|other| json!({ "answer": "", "other": other })),
        any::<i64>().prop_map(|number| json!({ "answer": number })),
        Just(json!({})),
    ]
}

/// What a child used.
pub fn usages() -> impl Strategy<Value = Usage> {
    (any::<u32>(), any::<u32>(), option::of(any::<u32>())).prop_map(|(input, output, cost)| {
        let usage = Usage::new(input.into(), output.into()).with_cached_input_tokens(u64::from(input) / 2);
        cost.map_or(usage, |cost| usage.with_cost_usd_micros(cost.into()))
    })
}

/// Results of any kind: successes with and without a value, fit or not, and failures.
pub fn results() -> impl Strategy<Value = SubagentResult> {
    let ended = prop_oneof![
        3 => admitted_values().prop_map(SubagentResult::handed_in),
        2 => refused_values().prop_map(SubagentResult::handed_in),
        2 => ".{0,16}".prop_map(SubagentResult::completed),
        3 => (failures(), ".{0,32}").prop_map(|(reason, why)| SubagentResult::stopped(reason, Diagnostic::new(why))),
    ];
    (ended, ".{0,8}", option::of(usages()), option::of("[a-z0-9]{1,8}")).prop_map(
        |(mut result, output, usage, session)| {
            if result.output.is_empty() {
                result.output = output;
            }
            result.usage = usage;
            result.session_id = session;
            result
        },
    )
}

/// Scripts of children: every way to start, to end and to be released that needs no handle.
///
/// Durations are at most a minute, on tokio's clock. A child may hang until it is cancelled or disposed of.
pub fn children() -> impl Strategy<Value = MockChild> {
    let ending = prop_oneof![
        8 => results().prop_map(MockChild::result),
        1 => Just(MockChild::lost()),
        1 => Just(MockChild::hanging()),
        1 => Just(MockChild::refused()),
    ];
    let seconds = || option::weighted(0.2, (1..60_u64).prop_map(Duration::from_secs));
    let rarely = || proptest::bool::weighted(0.1);
    (ending, seconds(), seconds(), rarely(), rarely(), rarely()).prop_map(
        |(mut child, start, release, deaf, asked, unreleasable)| {
            if let Some(delay) = start {
                child = child.with_slow_start(delay);
            }
            if let Some(delay) = release {
                child = child.with_slow_dispose(delay);
            }
            if deaf {
                child = child.ignoring_cancellation();
            }
            if asked && child.ends_with_its_start() {
                child = child.when_asked();
            }
            if unreleasable {
                child = child.with_failing_dispose();
            }
            child
        },
    )
}

/// Parents at depth 0 and below.
pub fn parents() -> impl Strategy<Value = Parent> {
    ("[a-z]{1,6}", "[a-z/]{1,12}", 0..4_u32)
        .prop_map(|(id, workspace, depth)| Parent::new(id, workspace).with_depth(depth))
}

/// Requests that ask for some of what `capabilities` allow, and for nothing else. A depth limit leaves room for the
/// child.
pub fn requests(capabilities: Capabilities) -> impl Strategy<Value = StartSubagent> {
    let tools = prop_oneof![
        vec("[a-z]{1,6}", 0..3).prop_map(ToolRestriction::deny),
        vec("[a-z]{1,6}", 0..3).prop_map(ToolRestriction::allow_only),
    ];
    let origin = ("[a-z0-9]{1,8}", 1..100_u64, 1..4_u32)
        .prop_map(|(run, call, attempt)| Origin::new(run, call, attempt));
    let shape = (
        ".{1,32}",
        parents(),
        option::of("[a-z ]{1,12}"),
        option::of(origin),
        any::<bool>(),
        option::of(1..4_u32),
        option::of(tools),
        option::of("[a-z]{1,8}"),
        option::of("[a-z0-9-]{1,8}"),
    );
    shape.prop_map(move |(prompt, parent, label, origin, output, room, tools, persona, model)| {
        let depth = parent.depth;
        let mut request = StartSubagent::new(prompt, parent);
        request.label = label;
        request.origin = origin;
        request.output = (output && capabilities.output_contract).then(contract);
        request.max_depth = room.filter(|_| capabilities.depth_limit).map(|room| depth + room);
        request.tools = tools.filter(|_| capabilities.tool_restriction);
        request.persona = persona.filter(|_| capabilities.persona);
        request.model = model.filter(|_| capabilities.model_choice).map(ModelChoice::model);
        request
    })
}
