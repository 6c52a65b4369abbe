use std::time::Duration;

use crate::{
    clock::Reading,
    limits::{Limit, Limits, Watch},
    shutdown::{Gentle, Shutdown},
};

/// Why a child is made to end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cause {
    Cancelled,
    Delivered,
    TimedOut(Limit),
}

/// What to do to the child now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Gentle,
    Term,
    Kill,
    /// It does not even die of KILL.
    GiveUp,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Running,
    Delivered { since: Reading },
    Taken { step: Step, since: Reading },
}

/// The course of one call from the start to the child's exit: what is done to the child, and when.
///
/// Does nothing itself and asks no clock.
#[derive(Debug)]
pub(crate) struct Course {
    watch: Watch,
    shutdown: Shutdown,
    phase: Phase,
    cause: Option<Cause>,
}

impl Course {
    pub(crate) fn new(limits: Limits, shutdown: Shutdown, now: Reading) -> Self {
        Self { watch: Watch::new(limits, now), shutdown, phase: Phase::Running, cause: None }
    }

    pub(crate) fn watch(&mut self) -> &mut Watch {
        &mut self.watch
    }

    /// Returns why the child is made to end, if it is. The first reason stays.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// The caller has what it wants from the child.
    pub(crate) fn delivered(&mut self, now: Reading) {
        if let Phase::Running = self.phase {
            self.phase = Phase::Delivered { since: now };
        }
    }

    /// Begins to end the child, unless that has begun.
    pub(crate) fn end(&mut self, cause: Cause, now: Reading) -> Option<Step> {
        if self.cause.is_some() {
            return None;
        }
        self.cause = Some(cause);
        let first = if self.shutdown.gentle == Gentle::None { Step::Term } else { Step::Gentle };
        Some(self.take(first, now))
    }

    /// Goes straight to KILL, unless that has been done.
    pub(crate) fn kill(&mut self, now: Reading) -> Option<Step> {
        self.cause.get_or_insert(Cause::Cancelled);
        match self.phase {
            Phase::Taken { step: Step::Kill | Step::GiveUp, .. } => None,
            _ => Some(self.take(Step::Kill, now)),
        }
    }

    /// The gentle step could not be taken.
    pub(crate) fn skip_gentle(&mut self, now: Reading) -> Step {
        self.take(Step::Term, now)
    }

    /// Returns the step that is due at `now`, or how long to wait before asking again.
    pub(crate) fn look(&mut self, now: Reading) -> Result<Duration, Step> {
        let (since, grace, next) = match self.phase {
            Phase::Running => {
                return self.watch.look(now).map_err(|limit| {
                    self.end(Cause::TimedOut(limit), now).expect("a running child is not being ended")
                });
            }
            Phase::Delivered { since } => (since, self.shutdown.delivered_grace, None),
            Phase::Taken { step: Step::Gentle, since } => {
                (since, self.shutdown.gentle_grace, Some(Step::Term))
            }
            Phase::Taken { step: Step::Term, since } => (since, self.shutdown.term_grace, Some(Step::Kill)),
            Phase::Taken { step: Step::Kill, since } => (since, self.shutdown.kill_grace, Some(Step::GiveUp)),
            Phase::Taken { step: Step::GiveUp, .. } => return Err(Step::GiveUp),
        };
        let left = grace.saturating_sub(now.since(since).awake);
        if !left.is_zero() {
            return Ok(left);
        }
        Err(match next {
            Some(step) => self.take(step, now),
            None => self.end(Cause::Delivered, now).expect("a delivered child is not being ended"),
        })
    }

    fn take(&mut self, step: Step, now: Reading) -> Step {
        self.phase = Phase::Taken { step, since: now };
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Reading {
        let time = Duration::from_secs(seconds);
        Reading { awake: time, elapsed: time }
    }

    fn course(gentle: Gentle) -> Course {
        let mut shutdown = Shutdown::default().with_gentle(gentle);
        shutdown.gentle_grace = Duration::from_secs(1);
        shutdown.term_grace = Duration::from_secs(2);
        shutdown.kill_grace = Duration::from_secs(3);
        shutdown.delivered_grace = Duration::from_secs(4);
        Course::new(Limits::default().with_first_byte(Duration::from_secs(10)), shutdown, at(0))
    }

    #[test]
    fn each_step_waits_for_the_grace_of_the_one_before() {
        let mut course = course(Gentle::Interrupt);
        assert_eq!(course.end(Cause::Cancelled, at(0)), Some(Step::Gentle));
        assert_eq!(course.look(at(0)), Ok(Duration::from_secs(1)));
        assert_eq!(course.look(at(1)), Err(Step::Term));
        assert_eq!(course.look(at(2)), Ok(Duration::from_secs(1)));
        assert_eq!(course.look(at(3)), Err(Step::Kill));
        assert_eq!(course.look(at(6)), Err(Step::GiveUp));
        assert_eq!(course.look(at(6)), Err(Step::GiveUp));
    }

    #[test]
    fn the_first_cause_stays() {
        let mut course = course(Gentle::None);
        assert_eq!(course.look(at(10)), Err(Step::Term));
        assert_eq!(course.end(Cause::Cancelled, at(10)), None);
        assert_eq!(course.cause(), Some(Cause::TimedOut(Limit::FirstByte)));
    }

    #[test]
    fn a_second_request_goes_straight_to_kill_and_a_third_does_nothing() {
        let mut course = course(Gentle::Interrupt);
        course.end(Cause::Cancelled, at(0));
        assert_eq!(course.kill(at(0)), Some(Step::Kill));
        assert_eq!(course.kill(at(0)), None);
    }

    #[test]
    fn a_child_that_delivered_is_past_its_limits_and_gets_its_grace() {
        let mut course = course(Gentle::None);
        course.delivered(at(9));
        assert_eq!(course.look(at(12)), Ok(Duration::from_secs(1)));
        assert_eq!(course.look(at(13)), Err(Step::Term));
        assert_eq!(course.cause(), Some(Cause::Delivered));
    }

    #[test]
    fn delivering_does_not_call_off_an_end_that_has_begun() {
        let mut course = course(Gentle::None);
        course.end(Cause::Cancelled, at(0));
        course.delivered(at(0));
        assert_eq!(course.look(at(2)), Err(Step::Kill));
    }
}
