//! How the items are, as health and metrics ask it.

use engine::PendingSync;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Why the items cannot be relied on. The text is for anybody: it names no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the journal of the items is closed; the log says why")]
    Closed,
    #[error("the disk has not confirmed a write of items for {0} seconds")]
    SyncPending(u64),
    #[error("the disk is full: items are not written, reading and deleting go on")]
    Short,
}

#[derive(Debug, Default)]
pub struct Condition {
    is_short: AtomicBool,
    is_closed: AtomicBool,
    sync: PendingSync,
}

impl Condition {
    /// Everything that ails the items at `now`; nothing, if what is written now would be stored.
    pub fn problems(&self, now: Instant) -> Vec<Problem> {
        [
            self.is_closed.load(Ordering::Acquire).then_some(Problem::Closed),
            self.sync.problem(now).map(Problem::SyncPending),
            self.is_short.load(Ordering::Relaxed).then_some(Problem::Short),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    pub(crate) fn sync_began(&self) {
        self.sync.began();
    }

    pub(crate) fn sync_ended(&self) {
        self.sync.ended();
    }

    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    pub(crate) fn set_short(&self, is_short: bool) {
        if self.is_short.swap(is_short, Ordering::Relaxed) == is_short {
            return;
        }
        match is_short {
            true => tracing::error!("the disk is full: items are not written, reading and deleting go on"),
            false => tracing::warn!("the disk has room again: items are written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SYNC_PENDING_MOST;

    #[test]
    fn each_problem_is_named_and_goes_with_its_cause() {
        let condition = Condition::default();
        let now = Instant::now();
        assert_eq!(condition.problems(now), []);
        condition.set_short(true);
        condition.sync_began();
        assert_eq!(condition.problems(now + SYNC_PENDING_MOST), [Problem::SyncPending(5), Problem::Short]);
        condition.set_short(false);
        condition.sync_ended();
        condition.close();
        assert_eq!(condition.problems(now + SYNC_PENDING_MOST), [Problem::Closed]);
    }
}
