use std::time::Duration;

/// One look at the clock: how long since a fixed moment, counted in two ways.
///
/// The two drift apart when the machine is suspended and never otherwise; setting the date changes
/// neither.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Reading {
    /// The time that the machine was awake.
    pub(crate) awake: Duration,
    /// All the time.
    pub(crate) elapsed: Duration,
}

impl Reading {
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            awake: self.awake.saturating_sub(earlier.awake),
            elapsed: self.elapsed.saturating_sub(earlier.elapsed),
        }
    }
}

/// Tells the time, for real or by a script.
pub(crate) trait Clock {
    fn now(&self) -> Reading;
}

/// The clocks of the system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[cfg(target_os = "linux")]
    fn now(&self) -> Reading {
        use rustix::time::{ClockId, clock_gettime};
        let read = |clock| {
            let time = clock_gettime(clock);
            let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
            Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
        };
        Reading { awake: read(ClockId::Monotonic), elapsed: read(ClockId::Boottime) }
    }

    /// On macOS the standard library's clock stands still while the machine sleeps, and the
    /// monotonic one of the C library goes on.
    #[cfg(target_os = "macos")]
    fn now(&self) -> Reading {
        use rustix::time::{ClockId, clock_gettime};
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        let awake = START.get_or_init(std::time::Instant::now).elapsed();
        let time = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Reading { awake, elapsed: Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)) }
    }
}
