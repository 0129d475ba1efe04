//! What is asked, counted, so that the background removal can tell when it would be in somebody's way.

use crate::limits::{PURGE_RESTS, PURGE_SLICE, PURGE_SLICE_ALONE};
use engine::commit::Moment;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What has happened since the start.
#[derive(Debug, Default)]
pub struct Activity {
    reads: AtomicU64,
    writes: AtomicU64,
    appends: AtomicU64,
    appended_bytes: AtomicU64,
}

impl Activity {
    pub(crate) fn reading(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn writing(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn appended(&self, bytes: usize) {
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.appended_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Requests that read, and that write.
    pub fn asked(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.writes.load(Ordering::Relaxed))
    }

    /// Appends to the journal, and their bytes.
    pub fn written(&self) -> (u64, u64) {
        (self.appends.load(Ordering::Relaxed), self.appended_bytes.load(Ordering::Relaxed))
    }
}

/// How the background removal spends only what requests leave over (C-14, C-15).
#[derive(Debug, Default)]
pub(crate) struct PurgeRest {
    asked: (u64, u64),
    ended: Moment,
    took: Duration,
}

impl PurgeRest {
    /// When the next slice may begin: at once while nobody asks, else after a rest.
    pub(crate) fn may_begin(&self, now: Moment, activity: &Activity) -> Moment {
        match self.is_alone(activity) {
            true => now,
            false => self.ended + self.took * PURGE_RESTS,
        }
    }

    /// How many items the next slice may remove.
    pub(crate) fn slice(&self, activity: &Activity) -> usize {
        if self.is_alone(activity) { PURGE_SLICE_ALONE } else { PURGE_SLICE }
    }

    /// Nobody has asked anything since the last slice.
    fn is_alone(&self, activity: &Activity) -> bool {
        activity.asked() == self.asked
    }

    pub(crate) fn ended(&mut self, began: Moment, now: Moment, activity: &Activity) {
        (self.asked, self.ended, self.took) = (activity.asked(), now, now.since(began));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_removal_rests_while_somebody_asks_and_not_otherwise() {
        let (mut purge_rest, activity) = (PurgeRest::default(), Activity::default());
        purge_rest.ended(Moment(100), Moment(200), &activity);
        assert_eq!(purge_rest.may_begin(Moment(201), &activity), Moment(201), "nobody asks");
        assert_eq!(purge_rest.slice(&activity), PURGE_SLICE_ALONE);
        activity.reading();
        assert_eq!(purge_rest.may_begin(Moment(201), &activity), Moment(200 + 100 * u64::from(PURGE_RESTS)));
        assert_eq!(purge_rest.slice(&activity), PURGE_SLICE);
    }
}
