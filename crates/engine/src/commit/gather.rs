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
pub const UNAWAITED_MOST: Duration = Duration::from_millis(5);

/// The most that is waited for more, whatever the disk is like: on a slow one a sync takes long enough.
pub const GATHER_MOST: Duration = Duration::from_micros(300);

#[derive(Debug, Default)]
pub struct Gather {
    /// What a sync takes, smoothed.
    sync_time: Duration,
    ended: Moment,
    /// Somebody brought something to wait for while an append was in flight: this one, and the one before.
    came_meanwhile: bool,
    comes_meanwhile: bool,
}

impl Gather {
    /// When to write a draft that was begun at `since`.
    pub(super) fn write_at(&self, drafted: Drafted, since: Moment) -> Moment {
        if drafted.is_full {
            return since;
        }
        if !drafted.is_awaited {
            return since + UNAWAITED_MOST;
        }
        if !self.came_meanwhile {
            return since;
        }
        // More is sure to come.
        let time = self.sync_time.min(GATHER_MOST);
        since.max(self.ended + time).min(since + time)
    }

    pub(super) fn arrived(&mut self, is_awaited: bool, is_in_flight: bool) {
        self.comes_meanwhile |= is_awaited && is_in_flight;
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
