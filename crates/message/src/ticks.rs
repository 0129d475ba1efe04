//! Ticks, in which clients of .NET count: a hundred nanoseconds each, and an instant since the year 1.

pub const TICKS_PER_MS: i64 = 10_000;

/// Milliseconds from the year 1 to 1970.
const EPOCH_MS: i64 = 62_135_596_800_000;

/// An instant in ticks, from milliseconds since 1970.
pub fn of_ms(milliseconds: i64) -> i64 {
    milliseconds.saturating_mul(TICKS_PER_MS).saturating_add(EPOCH_MS * TICKS_PER_MS)
}

/// Milliseconds since 1970, from an instant in ticks.
pub fn to_ms(ticks: i64) -> i64 {
    ticks / TICKS_PER_MS - EPOCH_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_the_same_in_ticks_and_in_milliseconds() {
        for (milliseconds, ticks) in [
            (0, 621_355_968_000_000_000),
            (1, 621_355_968_000_010_000),
            (-1, 621_355_967_999_990_000),
            (-62_135_596_800_000, 0),
            (253_402_300_799_999, 3_155_378_975_999_990_000),
        ] {
            assert_eq!(of_ms(milliseconds), ticks);
            assert_eq!(to_ms(ticks), milliseconds);
        }
        assert_eq!(to_ms(621_355_968_000_019_999), 1, "what is less than a millisecond is left out");
        assert_eq!(of_ms(i64::MAX), i64::MAX);
    }
}
