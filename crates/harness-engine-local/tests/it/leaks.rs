//! Nothing is left of a run that has been disposed of.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness_engine_local::JsonlStore;
use harness_testkit::subagent::MockChild;
use harness_workflow::{AgentCall, WorkflowRun};
use serde_json::json;
use tokio::runtime::Handle;

use crate::bodies::{Bench, Body, ask_in_turn, request};

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

/// The threads of this process that have the name `name`.
fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|comm| comm.trim_end() == name).count()
}

#[cfg(target_os = "linux")]
#[test]
fn runs_add_no_threads_of_their_own_and_none_outlives_the_runtime() {
    const NAME: &str = "leak-test";
    const RUNS: usize = 100;
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(JsonlStore::open(folder.path().join("runs")).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name(NAME)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let bench = crate::journal::bench(&(store as _), Body::new(ask_in_turn));
        for _ in 0..RUNS {
            bench.provider.script([MockChild::text("done")]);
            bench.run(request().with_args(json!(1))).await;
        }
    });
    // Two workers, and the few that the runtime keeps for blocking calls: none for each run.
    let alive = threads(NAME);
    assert!((2..RUNS / 4).contains(&alive), "{alive} threads after {RUNS} runs");
    drop(runtime);
    let patience = Instant::now() + Duration::from_secs(10);
    while threads(NAME) > 0 {
        assert!(Instant::now() < patience, "{} threads outlive the runtime", threads(NAME));
        std::thread::yield_now();
    }
}
