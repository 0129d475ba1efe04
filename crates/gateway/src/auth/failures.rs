//! Wrong keys: the more of them come from an address, the longer it waits for an answer.
//!
//! A key is judged before anybody waits: the right one is never held up, whatever others at the same address have tried,
//! and no address pays for another.

use crate::limits::{
    FAILURE_ADDRESSES, FAILURE_DELAY, FAILURE_DELAY_MOST, FAILURE_FORGIVENESS, FREE_FAILURES,
};
use crate::places::AddressGroup;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub struct Failures {
    table: Mutex<HashMap<AddressGroup, Tally>>,
}

#[derive(Debug, Clone, Copy)]
struct Tally {
    count: u32,
    /// When the count was right.
    at: Instant,
}

impl Tally {
    fn count_at(self, now: Instant) -> u32 {
        let forgiven = now.duration_since(self.at).as_millis() / FAILURE_FORGIVENESS.as_millis();
        self.count.saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX))
    }
}

impl Failures {
    /// Notes a key that was wrong, and says how long its answer shall wait.
    pub fn failed(&self, address: IpAddr, now: Instant) -> Duration {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let group = AddressGroup::of(address);
        if table.len() >= FAILURE_ADDRESSES && !table.contains_key(&group) {
            make_room(&mut table, now);
        }
        let tally = table.entry(group).or_insert(Tally { count: 0, at: now });
        let count = tally.count_at(now).saturating_add(1);
        *tally = Tally { count, at: now };
        match count.checked_sub(FREE_FAILURES + 1) {
            None => Duration::ZERO,
            Some(beyond) => FAILURE_DELAY.saturating_mul(1 << beyond.min(16)).min(FAILURE_DELAY_MOST),
        }
    }
}

/// Forgets what is forgiven, else the one that has been quiet the longest.
fn make_room(table: &mut HashMap<AddressGroup, Tally>, now: Instant) {
    table.retain(|_, tally| tally.count_at(now) > 0);
    if table.len() >= FAILURE_ADDRESSES
        && let Some(quietest) = table.iter().min_by_key(|(_, tally)| tally.at).map(|(address, _)| *address)
    {
        table.remove(&quietest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + last).into()
    }

    #[test]
    fn the_first_failures_are_free_and_the_rest_cost_more_and_more() {
        let (failures, now) = (Failures::default(), Instant::now());
        for _ in 0..FREE_FAILURES {
            assert_eq!(failures.failed(address(1), now), Duration::ZERO);
        }
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            let delay = failures.failed(address(1), now);
            assert!(delay > last || delay == FAILURE_DELAY_MOST, "{delay:?}");
            last = delay;
        }
        assert_eq!(last, FAILURE_DELAY_MOST);
        assert_eq!(failures.failed(address(2), now), Duration::ZERO, "another address pays nothing");
    }

    #[test]
    fn failures_are_forgiven_with_time() {
        let (failures, now) = (Failures::default(), Instant::now());
        for _ in 0..FREE_FAILURES {
            failures.failed(address(1), now);
        }
        let later = now + FAILURE_FORGIVENESS;
        assert_eq!(failures.failed(address(1), later), Duration::ZERO);
        assert_eq!(failures.failed(address(1), later), FAILURE_DELAY);
    }

    #[test]
    fn many_addresses_do_not_fill_the_memory() {
        let (failures, now) = (Failures::default(), Instant::now());
        for last in 0..3 * FAILURE_ADDRESSES as u32 {
            failures.failed(address(last), now);
        }
        assert_eq!(failures.table.lock().unwrap().len(), FAILURE_ADDRESSES);
    }
}
