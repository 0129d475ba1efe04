//! RFC 1982 serial numbers of 32 bits: delivery ids, transfer ids and delivery counts wrap around.

/// How far `later` is after `earlier`; `None` when it is before it.
pub(crate) fn distance(earlier: u32, later: u32) -> Option<u32> {
    let ahead = later.wrapping_sub(earlier);
    (ahead < 1 << 31).then_some(ahead)
}

/// What is left of `allowance`, counted from `seen`, for someone who has already reached `now`.
///
/// The same sum serves link credit (AMQP 1.0 part 2, 2.6.7) and the incoming window (2.5.6). A peer that claims to
/// have seen more than was sent is taken to have seen everything.
pub(crate) fn remaining(seen: u32, allowance: u32, now: u32) -> u32 {
    allowance.saturating_sub(distance(seen, now).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_counted_across_the_wrap_and_never_backwards() {
        assert_eq!(distance(u32::MAX, 1), Some(2));
        assert_eq!(distance(1, u32::MAX), None);
        assert_eq!(distance(5, 5), Some(0));
        assert_eq!(distance(0, (1 << 31) - 1), Some((1 << 31) - 1));
        assert_eq!(distance(0, 1 << 31), None);
    }

    #[test]
    fn what_is_in_flight_is_taken_from_the_allowance() {
        assert_eq!(remaining(10, 5, 12), 3);
        assert_eq!(remaining(10, 5, 20), 0);
        assert_eq!(remaining(u32::MAX, u32::MAX, 1), u32::MAX - 2);
        assert_eq!(remaining(20, 5, 10), 5);
    }
}
