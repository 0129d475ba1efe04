//! The owner's time: milliseconds UTC, handed in with each command and written into each batch. Nothing in this crate
//! looks at a clock.

/// An instant. Two of them subtract to a [`Span`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

/// A length of time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub u64);

impl Time {
    /// Later than anything: what never happens is due then.
    pub const NEVER: Time = Time(i64::MAX);

    /// The instant that lies `span` later, or never if that is beyond the calendar.
    pub fn after(self, span: Span) -> Time {
        i64::try_from(span.0).ok().and_then(|span| self.0.checked_add(span)).map_or(Time::NEVER, Time)
    }

    pub fn is_never(self) -> bool {
        self == Time::NEVER
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_beyond_the_calendar_ends_never() {
        assert_eq!(Time(1).after(Span::MAX), Time::NEVER);
        assert_eq!(Time(i64::MAX - 1).after(Span(2)), Time::NEVER);
        assert_eq!(Time(5).after(Span(7)), Time(12));
    }
}
