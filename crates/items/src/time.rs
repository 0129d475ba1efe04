//! The items' own time: milliseconds UTC since 1970, the owner's until tests move it. It never runs backwards (C-42).

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

impl Time {
    /// Before everything.
    pub const AT_ONCE: Time = Time(i64::MIN);
    /// After everything.
    pub const NEVER: Time = Time(i64::MAX);

    /// Whole seconds, rounded down: what `_ts` says (C-29).
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    pub fn after_ms(self, ms: i64) -> Time {
        Time(self.0.saturating_add(ms))
    }
}
