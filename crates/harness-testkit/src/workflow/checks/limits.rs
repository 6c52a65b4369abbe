use harness_workflow::RunStopReason;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::subagent::MockChild;
use crate::workflow::bench::{Bench, assert_value, code_of, dispose, request, result_of};
use crate::workflow::{EngineConstructor, Step};

fn calls(count: u64) -> Vec<Step> {
    (1..=count).map(|number| Step::ask(format!("call {number}"))).collect()
}

/// A run may make as many calls as its request says, and not one more.
pub async fn requested_cap_is_kept(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let cap = bench.engine.max_agents().min(2);
    for (asked, code) in [(cap, None), (cap + 1, Some("agent-cap"))] {
        let before = bench.provider.starts();
        let run =
            bench.start_with(request(&calls(asked)).with_max_agents(cap), CancellationToken::new()).await;
        let result = result_of(&*run).await;
        assert_eq!(result.error().map(|error| error.code().as_str()), code, "{asked} calls");
        assert_eq!(result.agents_started(), cap, "a refused call does not count");
        assert_eq!(bench.provider.starts() - before, cap);
        dispose(&*run).await;
    }
}

/// Without a cap in the request, the engine's ceiling is the cap.
pub async fn ceiling_is_the_cap_without_one(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    let ceiling = bench.engine.max_agents();
    let result = bench.run(&calls(ceiling)).await;
    assert_value(&result, &json!(vec!["done"; usize::try_from(ceiling).unwrap_or(usize::MAX)]));
    let result = bench.run(&calls(ceiling + 1)).await;
    assert_eq!(result.stop_reason(), RunStopReason::Error);
    assert_eq!(code_of(&result), "agent-cap");
}

/// A combinator takes as many items as the engine's limit, and not one more.
pub async fn items_of_a_combinator_are_bounded(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    assert_value(&bench.run(&[Step::Items(Bench::MAX_ITEMS)]).await, &json!([Bench::MAX_ITEMS]));
    let result = bench.run(&[Step::Items(Bench::MAX_ITEMS + 1)]).await;
    assert_eq!(code_of(&result), "item-cap");
}

/// A call counts also when its child could not be started, and so does the try.
pub async fn call_without_a_child_counts(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::text("one"), MockChild::refused()]);
    let result = bench.run(&[Step::ask("one"), Step::Try(vec![Step::ask("two")])]).await;
    assert_value(&result, &json!(["one", { "error": "agent-start" }]));
    assert_eq!((result.agents_started(), result.attempts()), (2, 2));
}
