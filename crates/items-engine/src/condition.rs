//! How the items are, for those who ask from outside: health, metrics.

use crate::limits::SYNC_PENDING_MOST;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Why the items cannot be relied on. The text is for anybody: it names no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the journal of the items is closed; the log says why")]
    Closed,
    #[error("the disk has not confirmed a write of items for {0} seconds")]
    SyncPending(u64),
    #[error("the disk is full: items are not written, reading and deleting go on")]
    Full,
}

#[derive(Debug)]
pub struct Condition {
    is_full: AtomicBool,
    is_closed: AtomicBool,
    started: Instant,
    /// Milliseconds from `started` to the sync that is on its way, and one more; zero if there is none.
    syncing_since: AtomicU64,
}

impl Default for Condition {
    fn default() -> Condition {
        Condition {
            is_full: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            started: Instant::now(),
            syncing_since: AtomicU64::new(0),
        }
    }
}

impl Condition {
    /// Everything that ails the items at `now`; nothing, if what is written now would be stored.
    pub fn problems(&self, now: Instant) -> Vec<Problem> {
        let pending = self.sync_pending(now).filter(|pending| *pending >= SYNC_PENDING_MOST);
        [
            self.is_closed.load(Ordering::Acquire).then_some(Problem::Closed),
            pending.map(|pending| Problem::SyncPending(pending.as_secs())),
            self.is_full.load(Ordering::Relaxed).then_some(Problem::Full),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn sync_pending(&self, now: Instant) -> Option<Duration> {
        let since = self.syncing_since.load(Ordering::Acquire).checked_sub(1)?;
        Some(now.saturating_duration_since(self.started + Duration::from_millis(since)))
    }

    pub(crate) fn sync_began(&self) {
        let since = self.started.elapsed().as_millis() as u64;
        self.syncing_since.store(since + 1, Ordering::Release);
    }

    pub(crate) fn sync_ended(&self) {
        self.syncing_since.store(0, Ordering::Release);
    }

    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        if self.is_full.swap(is_full, Ordering::Relaxed) == is_full {
            return;
        }
        match is_full {
            true => tracing::error!("the disk is full: items are not written, reading and deleting go on"),
            false => tracing::warn!("the disk has room again: items are written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_named_and_goes_with_its_cause() {
        let condition = Condition::default();
        let now = Instant::now();
        assert_eq!(condition.problems(now), []);
        condition.set_full(true);
        condition.sync_began();
        assert_eq!(condition.problems(now + SYNC_PENDING_MOST), [Problem::SyncPending(5), Problem::Full]);
        condition.set_full(false);
        condition.sync_ended();
        condition.close();
        assert_eq!(condition.problems(now + SYNC_PENDING_MOST), [Problem::Closed]);
    }
}
