use std::time::Duration;

use crate::clock::Reading;

/// How long a child may take. A limit of `None` is switched off.
///
/// The first-byte and the idle limit count only time in which the machine was awake, so a suspended
/// laptop wakes up to a child that is still allowed to go on. The deadline also counts time asleep:
/// when it passed during sleep, the child gets [`Limits::WAKING`] to finish, and then it is over.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// From the start to the first byte on standard output or standard error. 15 minutes by default:
    /// many agents say nothing before they are done.
    pub first_byte: Option<Duration>,
    /// From any byte to the next. 15 minutes by default. Does not run while the caller is the one who
    /// keeps the child waiting by not reading what it said.
    pub idle: Option<Duration>,
    /// From the start to the end. 2 hours by default.
    pub deadline: Option<Duration>,
}

/// A limit that a child exceeded.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Limit {
    /// It said nothing at all.
    FirstByte,
    /// It fell silent.
    Idle,
    /// It took too long.
    Deadline,
}

impl Limits {
    /// What is left of a deadline that passed while the machine slept.
    pub const WAKING: Duration = Duration::from_secs(60);

    /// Returns the same limits with another first-byte limit.
    #[must_use]
    pub fn with_first_byte(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.first_byte = limit.into();
        self
    }

    /// Returns the same limits with another idle limit.
    #[must_use]
    pub fn with_idle(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.idle = limit.into();
        self
    }

    /// Returns the same limits with another deadline.
    #[must_use]
    pub fn with_deadline(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.deadline = limit.into();
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
        Self { first_byte: minutes(15), idle: minutes(15), deadline: minutes(120) }
    }
}

/// Applies limits to readings of the clock.
#[derive(Debug)]
pub(crate) struct Watch {
    limits: Limits,
    start: Reading,
    first_byte: Option<Reading>,
    last_byte: Reading,
    last_look: Reading,
    /// The last time we noticed that the machine had been asleep.
    woke: Option<Reading>,
}

/// The clocks are read one after the other; less of a gap than this is no sleep.
const SLEEP: Duration = Duration::from_secs(1);

impl Watch {
    pub(crate) fn new(limits: Limits, now: Reading) -> Self {
        Self { limits, start: now, first_byte: None, last_byte: now, last_look: now, woke: None }
    }

    /// Takes note of output, or of something else that excuses silence.
    pub(crate) fn life(&mut self, now: Reading) {
        self.first_byte.get_or_insert(now);
        self.last_byte = now;
    }

    /// Takes note that silence was not the child's choice.
    pub(crate) fn excuse(&mut self, now: Reading) {
        self.last_byte = now;
    }

    pub(crate) fn first_byte(&self) -> Option<Duration> {
        self.first_byte.map(|reading| reading.since(self.start).awake)
    }

    /// Returns the limit that is exceeded at `now`, or else how long to wait before asking again.
    pub(crate) fn look(&mut self, now: Reading) -> Result<Duration, Limit> {
        let passed = now.since(self.last_look);
        if passed.elapsed > passed.awake + SLEEP {
            self.woke = Some(now);
        }
        self.last_look = now;

        let silence = match self.first_byte {
            None => (self.limits.first_byte, now.since(self.start).awake, Limit::FirstByte),
            Some(_) => (self.limits.idle, now.since(self.last_byte).awake, Limit::Idle),
        };
        let age = now.since(self.start);
        // Time asleep counts, but not before the child has had a moment to finish after waking up.
        let slept = age.elapsed.saturating_sub(age.awake);
        let slept = if slept < SLEEP { Duration::ZERO } else { slept };
        let waking =
            self.woke.map_or(Duration::ZERO, |woke| Limits::WAKING.saturating_sub(now.since(woke).awake));
        let total = (self.limits.deadline, age.awake + slept, Limit::Deadline);

        let mut next = Duration::MAX;
        for (limit, used, name) in [total, silence] {
            let Some(limit) = limit else { continue };
            let left = match name {
                Limit::Deadline => {
                    let awake = limit.saturating_sub(age.awake);
                    awake.min(limit.saturating_sub(used).max(waking))
                }
                Limit::FirstByte | Limit::Idle => limit.saturating_sub(used),
            };
            if left.is_zero() {
                return Err(name);
            }
            next = next.min(left);
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(awake: u64, asleep: u64) -> Reading {
        Reading { awake: Duration::from_secs(awake), elapsed: Duration::from_secs(awake + asleep) }
    }

    fn watch() -> Watch {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        Watch::new(Limits { first_byte: seconds(10), idle: seconds(20), deadline: seconds(100) }, at(0, 0))
    }

    #[test]
    fn a_child_that_says_nothing_exceeds_the_first_byte_limit() {
        let mut watch = watch();
        assert_eq!(watch.look(at(9, 0)), Ok(Duration::from_secs(1)));
        assert_eq!(watch.look(at(10, 0)), Err(Limit::FirstByte));
    }

    #[test]
    fn a_child_that_falls_silent_exceeds_the_idle_limit() {
        let mut watch = watch();
        watch.life(at(5, 0));
        assert_eq!(watch.look(at(24, 0)), Ok(Duration::from_secs(1)));
        assert_eq!(watch.look(at(25, 0)), Err(Limit::Idle));
    }

    #[test]
    fn a_chatty_child_exceeds_the_deadline() {
        let mut watch = watch();
        for second in (0..100).step_by(5) {
            watch.life(at(second, 0));
            assert!(watch.look(at(second, 0)).is_ok(), "at {second} s");
        }
        assert_eq!(watch.look(at(100, 0)), Err(Limit::Deadline));
    }

    #[test]
    fn a_night_asleep_is_not_silence() {
        let mut watch = watch();
        assert!(watch.look(at(5, 0)).is_ok());
        assert_eq!(watch.look(at(6, 30_000)), Ok(Duration::from_secs(4)), "first byte");
        watch.life(at(7, 30_000));
        assert_eq!(watch.look(at(8, 60_000)), Ok(Duration::from_secs(19)), "idle");
    }

    #[test]
    fn a_deadline_passed_asleep_leaves_a_moment_to_finish() {
        let mut watch = watch();
        watch.life(at(10, 0));
        assert!(watch.look(at(10, 0)).is_ok());
        for second in [11, 30, 50, 69] {
            watch.life(at(second, 30_000));
            assert!(watch.look(at(second, 30_000)).is_ok(), "at {second} s");
        }
        watch.life(at(71, 30_000));
        assert_eq!(watch.look(at(71, 30_000)), Err(Limit::Deadline));
    }

    #[test]
    fn many_short_sleeps_do_not_let_the_deadline_slip() {
        let mut watch = watch();
        let mut second = 0;
        while watch.look(at(second, second * 100)).is_ok() {
            second += 1;
            watch.life(at(second, second * 100));
        }
        assert_eq!(second, 100);
    }

    #[test]
    fn limits_that_are_off_never_end_anything() {
        let limits = Limits { first_byte: None, idle: None, deadline: None };
        let mut watch = Watch::new(limits, at(0, 0));
        assert_eq!(watch.look(at(1_000_000, 1_000_000)), Ok(Duration::MAX));
    }
}
