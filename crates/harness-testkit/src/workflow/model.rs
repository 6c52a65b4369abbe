//! Schedules of starts, ends of children, cancellations and disposals, and a model of what an engine makes of them.
//!
//! [`schedules`] draws them, [`check_schedule`] plays one on an engine and compares the engine with the model after
//! each, and [`hold_to_model`] does so for many and shrinks what fails. A schedule is plain data and its
//! [`Debug`](fmt::Debug) text is the Rust that makes it, so a failure that was shrunk is copied into a test of its own.

use std::fmt;

mod play;
mod reference;
mod strategy;

pub use play::{check_schedule, hold_to_model};
pub use strategy::{child_plans, run_plans, run_results, schedules};

/// What one child does in a [`RunPlan`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ChildPlan {
    /// It completes at once.
    Completes,
    /// It stops at once without completing.
    Fails,
    /// It is lost at once.
    IsLost,
    /// It cannot be started.
    IsRefused,
    /// It completes when [`Action::Finish`] says so.
    Waits,
}

/// What one run does: it asks its children one after the other, and leaves the number of those that have ended as a
/// checkpoint after each.
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub struct RunPlan {
    /// The children.
    pub children: Vec<ChildPlan>,
}

impl RunPlan {
    /// Makes a plan.
    #[must_use]
    pub fn new(children: Vec<ChildPlan>) -> Self {
        Self { children }
    }
}

/// What happens next in a [`Schedule`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// The run is started. Every other action on a run that has not been started does nothing.
    Start,
    /// The child that waits ends.
    Finish,
    /// The caller cancels the run.
    Cancel,
    /// The caller disposes of the run and waits for it.
    Dispose,
    /// Two callers dispose of the run at once.
    DisposeTwice,
    /// The caller drops a wait for the result.
    DropWait,
    /// The caller drops the run.
    Drop,
    /// Everything happens that can happen by itself.
    Settle,
}

/// Runs of one engine and what happens to them.
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub struct Schedule {
    /// The runs.
    pub runs: Vec<RunPlan>,
    /// What happens, each with the index of its run.
    pub actions: Vec<(usize, Action)>,
}

impl Schedule {
    /// Makes a schedule.
    #[must_use]
    pub fn new(runs: Vec<RunPlan>, actions: Vec<(usize, Action)>) -> Self {
        Self { runs, actions }
    }
}

/// Writes the Rust that makes the plan.
impl fmt::Debug for RunPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let children: Vec<String> =
            self.children.iter().map(|child| format!("ChildPlan::{child:?}")).collect();
        write!(f, "RunPlan::new(vec![{}])", children.join(", "))
    }
}

/// Writes the Rust that makes the schedule.
impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let actions: Vec<String> =
            self.actions.iter().map(|(run, action)| format!("({run}, Action::{action:?})")).collect();
        write!(f, "Schedule::new(vec!{:?}, vec![{}])", self.runs, actions.join(", "))
    }
}
