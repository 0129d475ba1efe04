//! How long to wait for more before an append is written. One function, [`Gather::write_at`], says it; the rest is what it
//! has measured.
//!
//! A sync costs the same whether it carries one message or a hundred, so at a steady pace the CPU time of a message is
//! decided by how many share one. Waiting costs time that somebody feels. So a lone message waits for nothing; what
//! nobody waits for rides along with the next append that somebody does; and while messages keep coming in during a sync,
//! the next one begins no sooner than a sync's time after the last one has ended. `docs/design/0005` has the numbers.

use super::machine::Drafted;
use super::moment::Moment;
use std::time::Duration;

/// How long what nobody waits for may lie undurable: settlements that no client wants confirmed, messages that were sent
/// settled. If the machine fails meanwhile it is as if they had come that much later.
pub const UNAWAITED_MOST: Duration = Duration::from_millis(1);

/// The most that is waited for more, whatever the disk is like: on a slow one a sync takes long enough.
pub const GATHER_MOST: Duration = Duration::from_micros(300);

/// How often in a row it may be in vain to gather before it is tried as seldom as it gets: for one append of 64.
const MOST_FAILURES: u32 = 6;

#[derive(Debug, Default)]
pub struct Gather {
    /// What a sync takes, smoothed.
    sync_time: Duration,
    /// When the last one has ended.
    ended: Moment,
    /// Somebody brought something to wait for while the last append was in flight, and while this one is.
    came_meanwhile: bool,
    comes_meanwhile: bool,
    /// How much there was when waiting for more began.
    waiting_with: Option<u32>,
    /// How many times in a row nothing more came, and for how many appends it is not tried for that.
    failures: u32,
    rest: u32,
}

impl Gather {
    /// When to write a draft that was begun, or first waited for, at `since`.
    pub(super) fn write_at(&self, drafted: Drafted, since: Moment) -> Moment {
        if drafted.is_full {
            return since;
        }
        if !drafted.is_awaited {
            return since + UNAWAITED_MOST;
        }
        let is_more_sure_to_come = self.came_meanwhile && self.rest == 0;
        if !is_more_sure_to_come {
            return since;
        }
        let time = self.sync_time.min(GATHER_MOST);
        since.max(self.ended + time).min(since + time)
    }

    /// So much is drafted now and somebody waits for it.
    pub(super) fn arrived(&mut self, is_in_flight: bool) {
        self.comes_meanwhile |= is_in_flight;
    }

    /// With so much drafted, more is waited for.
    pub(super) fn waits(&mut self, records: u32) {
        self.waiting_with.get_or_insert(records);
    }

    /// So much was written.
    pub(super) fn written(&mut self, records: u32) {
        match self.waiting_with.take() {
            // The connections that would send wait already: they send when they are answered, and not before.
            Some(before) if records <= before => {
                self.failures = (self.failures + 1).min(MOST_FAILURES);
                self.rest = 1 << self.failures;
            }
            Some(_) => self.failures = 0,
            None => self.rest = self.rest.saturating_sub(1),
        }
    }

    pub(super) fn synced(&mut self, since: Moment, now: Moment) {
        let took = now.since(since);
        self.sync_time = if self.sync_time.is_zero() { took } else { (self.sync_time * 7 + took) / 8 };
        self.came_meanwhile = std::mem::take(&mut self.comes_meanwhile);
        self.ended = now;
    }

    pub(super) fn last_synced(&self) -> Moment {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAITED: Drafted = Drafted { records: 1, is_awaited: true, is_full: false };
    const SYNC: Duration = Duration::from_micros(100);

    /// The last sync has ended at 1,000.
    fn after_a_sync(came_meanwhile: bool) -> Gather {
        let mut gather = Gather::default();
        if came_meanwhile {
            gather.arrived(true);
        }
        gather.synced(Moment(900), Moment(1_000));
        gather
    }

    #[test]
    fn a_lone_message_waits_for_nothing() {
        assert_eq!(Gather::default().write_at(AWAITED, Moment(5)), Moment(5));
        assert_eq!(after_a_sync(false).write_at(AWAITED, Moment(1_001)), Moment(1_001));
        let late = Moment(1_000) + SYNC;
        assert_eq!(after_a_sync(true).write_at(AWAITED, late), late, "the last sync is long over");
    }

    #[test]
    fn while_more_keeps_coming_a_sync_begins_no_sooner_than_a_syncs_time_after_the_last() {
        let gather = after_a_sync(true);
        assert_eq!(gather.write_at(AWAITED, Moment(1_030)), Moment(1_100));
        assert_eq!(gather.write_at(AWAITED, Moment(950)), Moment(1_050), "nothing waits longer than that");
        let full = Drafted { is_full: true, ..AWAITED };
        assert_eq!(gather.write_at(full, Moment(1_030)), Moment(1_030));
    }

    #[test]
    fn a_slow_disk_is_not_waited_for_longer() {
        let mut gather = Gather::default();
        gather.arrived(true);
        gather.synced(Moment(0), Moment(10_000));
        assert_eq!(gather.write_at(AWAITED, Moment(10_000)), Moment(10_000) + GATHER_MOST);
    }

    #[test]
    fn what_nobody_waits_for_rides_along_or_is_written_a_little_later() {
        let unawaited = Drafted { is_awaited: false, ..AWAITED };
        assert_eq!(Gather::default().write_at(unawaited, Moment(5)), Moment(5) + UNAWAITED_MOST);
    }

    #[test]
    fn where_everybody_waits_for_an_answer_gathering_is_given_up() {
        let mut gather = after_a_sync(true);
        let mut tried = 0;
        for _ in 0..1_000 {
            if gather.write_at(AWAITED, Moment(1_010)) > Moment(1_010) {
                gather.waits(7);
                tried += 1;
            }
            gather.written(7);
        }
        assert!((10..30).contains(&tried), "{tried}");
        gather.rest = 0;
        gather.waits(7);
        gather.written(8);
        assert_eq!((gather.failures, gather.rest), (0, 0), "one that pays is enough");
    }
}
