use serde_json::json;

use crate::subagent::MockChild;
use crate::workflow::bench::{Bench, assert_value, dispose, quiet, result_of, while_awaited};
use crate::workflow::{Ask, EngineConstructor, Step};

fn asks(count: usize) -> Vec<Ask> {
    (1..=count).map(|number| Ask::new(format!("call {number}"))).collect()
}

/// The calls of a combinator run side by side.
pub async fn calls_overlap(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::hanging(), MockChild::hanging()]);
    let run = bench.start(&[Step::Parallel(asks(2))]).await;
    while_awaited(&*run, "both children at once", bench.provider.wait_for_child(2)).await;
    bench.provider.finish(2);
    bench.provider.finish(1);
    assert_value(&result_of(&*run).await, &json!([["finished", "finished"]]));
    dispose(&*run).await;
}

/// A call waits for a free slot, and a slot is free once its child was released.
pub async fn slots_bound_the_children(constructor: &EngineConstructor) {
    let bench = Bench::new(constructor).await;
    bench.children([MockChild::text("slow").with_held_dispose()]);
    bench.provider.set_default(MockChild::hanging());
    let run = bench.start(&[Step::Parallel(asks(3))]).await;
    while_awaited(&*run, "two children", bench.provider.wait_for_child(2)).await;
    quiet().await;
    assert_eq!(bench.provider.starts(), 2, "the third call waits for a slot");
    let slow = bench.first_calls(2)[0];
    bench.provider.release_dispose(1);
    while_awaited(&*run, "the third child", bench.provider.wait_for_child(3)).await;
    bench.provider.finish(2);
    bench.provider.finish(3);
    let yields: Vec<&str> = (1..=3).map(|call| if call == slow { "slow" } else { "finished" }).collect();
    assert_value(&result_of(&*run).await, &json!([yields]));
    assert_eq!(bench.provider.most_live(), Bench::MAX_CONCURRENT);
    dispose(&*run).await;
}

/// Slots are given in the order of the calls.
pub async fn slots_are_given_in_the_order_of_the_calls(constructor: &EngineConstructor) {
    let bench = Bench::with(constructor, harness_subagent::Capabilities::ALL, |fixture| {
        fixture.max_concurrent = 1;
    })
    .await;
    let count = usize::try_from(bench.engine.max_agents()).unwrap_or(usize::MAX).min(5);
    assert_value(&bench.run(&[Step::Parallel(asks(count))]).await, &json!([vec!["done"; count]]));
    let prompts: Vec<String> = bench.provider.requests().into_iter().map(|asked| asked.prompt).collect();
    let expected: Vec<String> = asks(count).into_iter().map(|ask| ask.prompt).collect();
    assert_eq!(prompts, expected);
}
