//! Request charges, in hundredths of a unit (P-79): a simple model with the known points. A read of 1 KiB is 1 unit and of
//! 100 KiB 10; a write of 1 KiB is 5.71 and of 100 KiB about 50; changing or removing what was there costs half as much again.

/// Reading or changing a definition; what was not found; what was not changed.
pub const PLAIN: u64 = 100;
/// Making a database or container.
pub const DEFINE: u64 = 495;
/// A query or feed before it reads anything.
pub const QUERY: u64 = 230;
/// Removing an expired item, of the request units that are left over.
pub const PURGE: u64 = 571;

pub fn read(bytes: usize) -> u64 {
    linear(bytes, 100, 900)
}

pub fn create(bytes: usize) -> u64 {
    linear(bytes, 571, 4_500)
}

/// Replacing or deleting what has this size, afterwards or before.
pub fn change(bytes: usize) -> u64 {
    create(bytes) * 3 / 2
}

/// `first` for the first KiB, and `more` for the ninety-nine behind it.
fn linear(bytes: usize, first: u64, more: u64) -> u64 {
    let behind = (bytes as u64).saturating_sub(1_024);
    first + more * behind / (99 * 1_024)
}

/// A page of a feed or query: what was looked at, and what was returned.
pub fn page(steps: u64, returned_bytes: u64) -> u64 {
    QUERY + steps * 5 + returned_bytes * 30 / 1_024
}

#[cfg(test)]
mod tests {
    use super::*;

    // P-79
    #[test]
    fn charges_have_the_known_points_and_rise_with_size() {
        assert_eq!((read(10), read(1_024), read(100 * 1_024)), (100, 100, 1_000));
        assert_eq!((create(10), create(1_024), create(100 * 1_024)), (571, 571, 5_071));
        assert_eq!(change(1_024), 856);
        assert!(page(10, 2_048) > page(9, 2_048) && page(10, 4_096) > page(10, 2_048));
    }
}
