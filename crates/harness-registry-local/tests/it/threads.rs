//! Many threads at once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use harness_registry_local::LocalRegistry;
use harness_subagent::{ErrorKind, SubagentEvent, SubagentObserver, SubagentRegistry, SubagentResult};
use serde_json::json;

use crate::double::{Double, Notes, contract, request};

const THREADS: u32 = 8;

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Counts the living by the events.
#[derive(Debug, Default)]
struct Census {
    alive: AtomicU32,
    most: AtomicU32,
    sequences: Mutex<Vec<u64>>,
}

impl SubagentObserver for Census {
    fn observe(&self, event: &SubagentEvent<'_>) {
        match event {
            SubagentEvent::Started { child } => {
                let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(alive, Ordering::SeqCst);
                self.sequences.lock().unwrap().push(child.sequence);
            }
            SubagentEvent::Ended { .. } => {
                self.alive.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        }
    }
}

#[test]
fn racing_starts_never_exceed_the_total() {
    let registry = LocalRegistry::builder().max_children_per_tree(100).build().unwrap();
    let census = Arc::new(Census::default());
    registry.observe(census.clone());
    let (started, barrier) = (AtomicU32::new(0), Barrier::new(THREADS as usize));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let provider = Double::new("p");
                barrier.wait();
                block_on(async {
                    for _ in 0..50 {
                        match registry.start_on(&(provider.clone() as _), request()).await {
                            Ok(run) => {
                                started.fetch_add(1, Ordering::SeqCst);
                                run.dispose().await.unwrap();
                            }
                            Err(error) => assert_eq!(error.kind(), ErrorKind::BudgetExhausted),
                        }
                    }
                });
            });
        }
    });
    assert_eq!(started.load(Ordering::SeqCst), 100);
    assert_eq!(census.alive.load(Ordering::SeqCst), 0);
    let mut sequences = census.sequences.lock().unwrap().clone();
    sequences.sort_unstable();
    assert_eq!(sequences, (1..=100).collect::<Vec<u64>>());
}

#[test]
fn racing_starts_never_exceed_the_living() {
    let registry = LocalRegistry::builder().max_active_per_tree(3).build().unwrap();
    let (alive, barrier) = (AtomicU32::new(0), Barrier::new(THREADS as usize));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let provider = Double::new("p");
                barrier.wait();
                block_on(async {
                    for _ in 0..200 {
                        match registry.start_on(&(provider.clone() as _), request()).await {
                            Ok(run) => {
                                assert!(alive.fetch_add(1, Ordering::SeqCst) < 3);
                                thread::yield_now();
                                alive.fetch_sub(1, Ordering::SeqCst);
                                drop(run);
                            }
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Capacity),
                        }
                    }
                });
            });
        }
    });
    block_on(async {
        let provider = Double::new("p");
        let mut runs = Vec::new();
        for _ in 0..3 {
            runs.push(registry.start_on(&(provider.clone() as _), request()).await.unwrap());
        }
    });
}

#[test]
fn racing_registrations_leave_one_provider_and_events_in_order() {
    let registry = LocalRegistry::new();
    let notes = Arc::new(Notes::default());
    registry.observe(notes.clone());
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..100 {
                    if registry.register(Double::new("p")).is_ok() {
                        registry.unregister("p").unwrap();
                    }
                }
            });
        }
    });
    let lines = notes.lines();
    assert!(!lines.is_empty());
    for pair in lines.chunks(2) {
        assert_eq!(pair, ["added p", "removed p"]);
    }
}

#[test]
fn racing_waits_get_the_same_judgement() {
    let provider = Double::new("p");
    let child = provider.then_child("c");
    let registry = LocalRegistry::new();
    let run =
        block_on(registry.start_on(&(provider.clone() as _), request().with_output(contract()))).unwrap();
    let barrier = Barrier::new(THREADS as usize + 1);
    thread::scope(|scope| {
        let waits: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    block_on(run.result()).unwrap()
                })
            })
            .collect();
        barrier.wait();
        child.ends(SubagentResult::handed_in(json!({ "n": "no" })));
        let results: Vec<SubagentResult> = waits.into_iter().map(|wait| wait.join().unwrap()).collect();
        assert!(results.iter().all(|result| *result == results[0]));
        assert_eq!(results[0].stop_reason.as_str(), "schema-refused");
    });
}
