//! Nothing is left of a run that has been disposed of.

use harness_testkit::subagent::MockChild;
use harness_workflow::{AgentCall, WorkflowRun};
use serde_json::json;
use tokio::runtime::Handle;

use crate::bodies::{Bench, Body, request};

/// Waits until the runtime has let go of the tasks that have ended, for a while at most.
async fn assert_no_task_is_left() {
    for _ in 0..100 {
        if Handle::current().metrics().num_alive_tasks() == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} tasks are left", Handle::current().metrics().num_alive_tasks());
}

#[tokio::test(start_paused = true)]
async fn no_task_is_left_after_a_disposal_however_the_run_ended() {
    let bench = Bench::new(Body::new(|context| async move {
        match context.args().as_str().unwrap() {
            "completes" => Ok(json!(1)),
            "panics" => panic!("on purpose"),
            "ignores" => std::future::pending().await,
            "leaves a child" => {
                let mut call = Box::pin(context.agent(AgentCall::new("stray")));
                std::future::poll_fn(|cx| {
                    let _ = call.as_mut().poll(cx);
                    std::task::Poll::Ready(())
                })
                .await;
                Ok(json!(2))
            }
            _ => context.agent(AgentCall::new("hang")).await.map(|_| json!(3)),
        }
    }));
    bench.provider.set_default(MockChild::hanging());
    for args in ["completes", "panics", "ignores", "leaves a child", "hangs"] {
        for cancels in [false, true] {
            let run = bench.start(request().with_args(json!(args))).await;
            tokio::task::yield_now().await;
            if cancels {
                run.cancel("enough");
                run.result().await;
            }
            run.dispose().await.unwrap();
            assert_no_task_is_left().await;
            bench.assert_clean();
        }
    }
    let run: Box<dyn WorkflowRun> = bench.start(request().with_args(json!("ignores"))).await;
    drop(run);
    tokio::time::sleep(crate::bodies::GRACE).await;
    assert_no_task_is_left().await;
}
