use std::time::Duration;

use jiff::civil::Time;
use jiff::{Timestamp, ZonedDateTime};

/// When a run is cancelled because its time is up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Deadline {
    /// At the next occurrence of a time of day, here.
    At(Time),
    /// So long after the start.
    After(Duration),
}

/// Reads a time of day (`07:00`) or a duration (`8h`).
pub(crate) fn parse(text: &str) -> Result<Deadline, String> {
    if let Ok(time) = text.parse::<Time>() {
        return Ok(Deadline::At(time));
    }
    crate::arguments::duration(text)
        .map(Deadline::After)
        .map_err(|_| "give a time of day such as 07:00, or a duration such as 8h".to_owned())
}

impl Deadline {
    /// Returns the moment that is meant, seen from `now`.
    pub(crate) fn resolve(self, now: &ZonedDateTime) -> anyhow::Result<Timestamp> {
        let moment = match self {
            Self::After(duration) => now.timestamp().checked_add(duration)?,
            Self::At(time) => {
                let today = now.date().to_datetime(time).to_zoned_datetime(now.time_zone().clone())?;
                if today > *now {
                    today.timestamp()
                } else {
                    now.date()
                        .tomorrow()?
                        .to_datetime(time)
                        .to_zoned_datetime(now.time_zone().clone())?
                        .timestamp()
                }
            }
        };
        Ok(moment)
    }
}

/// Waits until the clock on the wall shows `moment`.
///
/// The wait is looked at again at least every half minute, so that a machine that slept past the moment notices soon
/// after waking.
pub(crate) async fn wait_until(moment: Timestamp) {
    const LONGEST: Duration = Duration::from_secs(30);
    loop {
        let left = moment.duration_since(Timestamp::now());
        match Duration::try_from(left) {
            Ok(left) if !left.is_zero() => tokio::time::sleep(left.min(LONGEST)).await,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, now: &str, expected: &str) {
        let now: ZonedDateTime = now.parse().unwrap();
        let expected: ZonedDateTime = expected.parse().unwrap();
        assert_eq!(parse(text).unwrap().resolve(&now).unwrap(), expected.timestamp());
    }

    #[test]
    fn a_time_of_day_is_the_next_one() {
        check("07:00", "2026-03-01T22:00[UTC]", "2026-03-02T07:00[UTC]");
        check("07:00", "2026-03-01T06:59[UTC]", "2026-03-01T07:00[UTC]");
        check("07:00", "2026-03-01T07:00[UTC]", "2026-03-02T07:00[UTC]");
    }

    #[test]
    fn a_duration_counts_from_now() {
        check("8h", "2026-03-01T22:00[UTC]", "2026-03-02T06:00[UTC]");
        assert!(parse("25:00").is_err());
        assert!(parse("tomorrow").is_err());
    }
}
