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
