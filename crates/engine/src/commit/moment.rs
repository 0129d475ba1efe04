//! Time as the disk feels it: microseconds that only ever rise. What is due by the clock on the wall is not counted in it.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Microseconds since some start that does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// How long ago `earlier` was; nothing, if it is yet to come.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;

    fn sub(self, time: Duration) -> Moment {
        Moment(self.0.saturating_sub(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }
}
