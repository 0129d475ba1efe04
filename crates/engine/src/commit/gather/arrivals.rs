//! Whether more is sure to come, learned from what comes while an append is in flight: whoever comes then does not wait for its
//! answer, so nothing that is gathered for keeps them away.
//!
//! While sockets are not read nobody sees whether anybody comes. So not every append goes unwatched. Where all wait for an
//! answer nobody comes during a watched append that was gathered for, and gathering rests, each time for twice as long.

use super::super::limits::{GATHER_FAILURES_MOST, GATHER_LASTING, ONE_ARRIVAL, UNWATCHED_MOST};
use std::time::Duration;

/// How many must usually come for it to pay: `least`, in [`ONE_ARRIVAL`]s, within `time`, where a sync takes `sync_time`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needed {
    pub(super) time: Duration,
    pub(super) sync_time: Duration,
    pub(super) least: u32,
}

#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// How many came while the append in flight was, with something to wait for; or the last one, if none is in flight.
    came_in_flight: u32,
    /// The same of the appends that were watched, smoothed, in [`ONE_ARRIVAL`]s.
    usual: u32,
    /// The append in flight is watched: sockets are read meanwhile.
    is_watched: bool,
    /// So many appends need not be watched.
    pub(super) unwatched: u32,
    /// More was gathered for the append in flight, and for how many without a break.
    was_sure: bool,
    lasted: u32,
    /// How often in a row that was soon over, and for how many appends it is not tried for that.
    failures: u32,
    pub(super) resting: u32,
}

impl Arrivals {
    /// Whether so much usually comes that it pays to gather.
    pub(super) fn are_sure(&self, needed: Needed) -> bool {
        let comes = needed.time.as_micros() as u64 * u64::from(self.usual);
        let least = needed.sync_time.as_micros() as u64 * u64::from(needed.least);
        self.resting == 0 && self.usual > 0 && comes >= least
    }

    /// Some came while the last append was in flight, and wait. Those whom it has answered come again at once if all wait for
    /// their answers: a sync's time brings both together, and from then on they share each append.
    pub(super) fn are_split(&self) -> bool {
        self.came_in_flight > 0
    }

    /// Whether sockets are to be read while the append in flight is.
    pub(super) fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// Whether sockets need not be read while the next append is in flight.
    pub(super) fn may_go_unwatched(&self) -> bool {
        self.unwatched > 0
    }

    /// Somebody came while an append was in flight.
    pub(super) fn came(&mut self) {
        self.came_in_flight += 1;
    }

    /// An append was written. Sockets may go unread meanwhile with `may_pause` alone.
    pub(super) fn written(&mut self, needed: Needed, may_pause: bool) {
        self.came_in_flight = 0;
        self.was_sure = self.are_sure(needed);
        self.is_watched = !may_pause || !self.was_sure || self.unwatched == 0;
        self.unwatched = self.unwatched.saturating_sub(1);
        if self.was_sure {
            self.lasted += 1;
        } else {
            self.resting = self.resting.saturating_sub(1);
        }
    }

    /// It is durable. Takes in what came meanwhile, if somebody has watched.
    pub(super) fn synced(&mut self, needed: Needed) {
        if !self.is_watched {
            return;
        }
        // Where two and more have come each time and now none does, everybody waits for an answer.
        let is_over = self.came_in_flight == 0 && self.usual >= 2 * ONE_ARRIVAL;
        // Rounded up, or one that comes each time would never be one.
        self.usual = if is_over {
            0
        } else {
            (self.usual * 7 + self.came_in_flight.min(ONE_ARRIVAL) * ONE_ARRIVAL).div_ceil(8)
        };
        // The first that is gathered for is watched, to see whether those who came before come again.
        self.unwatched = if self.was_sure { (4 * self.came_in_flight).min(UNWATCHED_MOST) } else { 0 };
        if self.was_sure && !self.are_sure(needed) {
            self.failures =
                if self.lasted < GATHER_LASTING { (self.failures + 1).min(GATHER_FAILURES_MOST) } else { 0 };
            self.resting = (1 << self.failures) - 1;
            self.lasted = 0;
        }
    }
}
