//! Two times, in milliseconds UTC. The *owner's* ([`Time`]) is that of the process: it is handed in with each command and
//! written into each batch. A *namespace's own* ([`LocalTime`]) is the owner's until somebody moves it; everything that
//! clients see, and everything that is due, is in it. Nothing in this crate looks at a clock.
//!
//! What must always hold: one becomes the other here and nowhere else, by the [`ClockOffset`] of a namespace.

use std::fmt;

/// An instant of the owner's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

/// An instant of a namespace's own time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LocalTime(pub i64);

/// How many milliseconds a namespace's own time is ahead of the owner's: none, until it is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClockOffset(pub i64);

/// A length of time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub u64);

impl Time {
    /// Earlier than anything: what is due then is due at once.
    pub const AT_ONCE: Time = Time(i64::MIN);

    /// The same instant in the time of a namespace.
    pub fn local(self, offset: ClockOffset) -> LocalTime {
        LocalTime(self.0.saturating_add(offset.0))
    }
}

impl LocalTime {
    /// Later than anything: what never happens is due then.
    pub const NEVER: LocalTime = LocalTime(i64::MAX);
    /// Earlier than anything: what is due then is due at once.
    pub const AT_ONCE: LocalTime = LocalTime(i64::MIN);

    /// The same instant in the owner's time. What is due at once or never is that for everybody.
    pub fn owners(self, offset: ClockOffset) -> Time {
        Time(if self == LocalTime::AT_ONCE { self.0 } else { self.0.saturating_sub(offset.0) })
    }

    /// How far a namespace is ahead that has this time while the owner has that.
    pub fn offset_from(self, owner: Time) -> ClockOffset {
        ClockOffset(self.0.saturating_sub(owner.0))
    }

    /// The instant `span` later, or never if that is beyond the calendar.
    pub fn after(self, span: Span) -> LocalTime {
        i64::try_from(span.0)
            .ok()
            .and_then(|span| self.0.checked_add(span))
            .map_or(LocalTime::NEVER, LocalTime)
    }

    pub fn is_never(self) -> bool {
        self == LocalTime::NEVER
    }
}

impl Span {
    pub const MAX: Span = Span(u64::MAX);

    pub const fn seconds(seconds: u64) -> Span {
        Span(seconds * 1_000)
    }

    pub const fn minutes(minutes: u64) -> Span {
        Span::seconds(minutes * 60)
    }

    pub fn is_max(self) -> bool {
        self == Span::MAX
    }
}

/// The longest duration of the service, which means "for ever": from so many days on it is.
const LONGEST: &str = "P10675199DT2H48M5.4775807S";
pub const LONGEST_DAYS: u64 = 10_675_199;

/// In milliseconds, as a [`Span`] is.
pub const SECOND: u64 = 1_000;
pub const MINUTE: u64 = 60 * SECOND;
pub const HOUR: u64 = 60 * MINUTE;
pub const DAY: u64 = 24 * HOUR;

/// As the bus writes it: `P1DT2H`, with days, hours, minutes and seconds only (H-28).
impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= LONGEST_DAYS * DAY {
            return formatter.write_str(LONGEST);
        }
        let (days, clock) = (self.0 / DAY, self.0 % DAY);
        let (hours, minutes) = (clock / HOUR, clock % HOUR / MINUTE);
        let (seconds, thousandths) = (clock % MINUTE / SECOND, clock % SECOND);
        let part =
            |number: u64, unit: &str| if number > 0 { format!("{number}{unit}") } else { String::new() };
        let second = match thousandths {
            0 => part(seconds, "S"),
            _ => format!("{}S", format!("{seconds}.{thousandths:03}").trim_end_matches('0')),
        };
        let time = format!("{}{}{second}", part(hours, "H"), part(minutes, "M"));
        match (days, time.is_empty()) {
            (0, true) => formatter.write_str("PT0S"),
            (_, true) => write!(formatter, "P{days}D"),
            (_, false) => write!(formatter, "P{}T{time}", part(days, "D")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_beyond_the_calendar_ends_never() {
        assert_eq!(LocalTime(1).after(Span::MAX), LocalTime::NEVER);
        assert_eq!(LocalTime(i64::MAX - 1).after(Span(2)), LocalTime::NEVER);
        assert_eq!(LocalTime(5).after(Span(7)), LocalTime(12));
    }

    #[test]
    fn one_time_becomes_the_other_and_back() {
        let offset = ClockOffset(3_600_000);
        assert_eq!(Time(5).local(offset), LocalTime(3_600_005));
        assert_eq!(LocalTime(3_600_005).owners(offset), Time(5));
        assert_eq!(LocalTime(3_600_005).offset_from(Time(5)), offset);
        assert_eq!(Time(5).local(ClockOffset::default()), LocalTime(5));
        assert_eq!(LocalTime::AT_ONCE.owners(offset), Time::AT_ONCE);
        assert_eq!(LocalTime::AT_ONCE.owners(ClockOffset(-1)), Time::AT_ONCE);
    }
}
