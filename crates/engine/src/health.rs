//! How the partition is, as health and metrics ask it.
//!
//! Everything here can be asked while the partition's thread waits for the disk.

use crate::limits::{LARGE_GAP_MS, SYNC_PENDING_MOST};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Why the partition cannot be relied on. The text is for anybody: it names no file and no entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the journal is closed; the log says why")]
    Closed,
    #[error("the disk has not confirmed a write for {0} seconds")]
    SyncPending(u64),
    #[error("the disk is full: sends are refused, receiving and completing go on")]
    Short,
    #[error("something that was stored is damaged; the log says where")]
    Damaged,
}

/// Whether a sync is on its way, and since when.
#[derive(Debug)]
pub struct PendingSync {
    started: Instant,
    /// Milliseconds from `started` to the sync that is on its way, and one more; zero if there is none.
    since: AtomicU64,
}

impl Default for PendingSync {
    fn default() -> PendingSync {
        PendingSync { started: Instant::now(), since: AtomicU64::new(0) }
    }
}

impl PendingSync {
    pub fn began(&self) {
        let since = self.started.elapsed().as_millis() as u64;
        self.since.store(since + 1, Ordering::Release);
    }

    pub fn ended(&self) {
        self.since.store(0, Ordering::Release);
    }

    /// For how many seconds the sync that is on its way has been, if that is longer than anybody should wait for one.
    pub fn problem(&self, now: Instant) -> Option<u64> {
        let since = self.since.load(Ordering::Acquire).checked_sub(1)?;
        let pending = now.saturating_duration_since(self.started + Duration::from_millis(since));
        (pending >= SYNC_PENDING_MOST).then_some(pending.as_secs())
    }
}

#[derive(Debug, Default)]
pub struct Health {
    is_short: AtomicBool,
    is_closed: AtomicBool,
    damage: Mutex<Option<String>>,
    damages: AtomicU64,
    sync: PendingSync,
    ahead_ms: AtomicI64,
}

impl Health {
    /// Everything that ails it at `now`; nothing, if what is sent now would be stored.
    pub fn problems(&self, now: Instant) -> Vec<Problem> {
        [
            self.is_closed.load(Ordering::Acquire).then_some(Problem::Closed),
            self.sync.problem(now).map(Problem::SyncPending),
            self.is_short().then_some(Problem::Short),
            self.damage().map(|_| Problem::Damaged),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// How far the owner's time was ahead of the machine's clock at the start, if that is worth telling.
    pub fn large_gap_ms(&self) -> Option<i64> {
        Some(self.ahead_ms.load(Ordering::Relaxed)).filter(|ahead| *ahead > LARGE_GAP_MS)
    }

    /// Whether the journal is without its reserve, so that sends are refused.
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// The first damage that was found in what is stored, with file and offset.
    pub fn damage(&self) -> Option<String> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often damage was found; the same place counts each time that somebody meets it.
    pub fn damages(&self) -> u64 {
        self.damages.load(Ordering::Relaxed)
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

    pub(crate) fn set_ahead(&self, milliseconds: i64) {
        self.ahead_ms.store(milliseconds, Ordering::Relaxed);
    }

    /// The journal is short: so many bytes more must be free before messages are taken again. Or it is not.
    pub(crate) fn set_short(&self, lacking_bytes: Option<u64>) {
        let was_short = self.is_short.swap(lacking_bytes.is_some(), Ordering::Relaxed);
        match lacking_bytes {
            Some(lacking_bytes) if !was_short => {
                let megabytes = lacking_bytes.div_ceil(1024 * 1024);
                tracing::error!(
                    "the disk is full: sends are refused, receiving and completing go on; sending resumes when \
                     {megabytes} MiB more are free or received messages have made as much room"
                );
            }
            None if was_short => tracing::warn!("the disk has room again: sending goes on"),
            _ => {}
        }
    }

    pub(crate) fn report_damage(&self, damage: &str) {
        tracing::error!("{damage}");
        self.damages.fetch_add(1, Ordering::Relaxed);
        let mut first = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| damage.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_named_and_goes_with_its_cause() {
        let health = Health::default();
        let now = Instant::now();
        assert_eq!(health.problems(now), []);
        health.set_short(Some(1));
        health.report_damage("segment 7 at 4096");
        assert_eq!(health.problems(now), [Problem::Short, Problem::Damaged]);
        health.set_short(None);
        health.close();
        assert_eq!(health.problems(now), [Problem::Closed, Problem::Damaged]);
        assert!(!Problem::Damaged.to_string().contains("4096"));
    }

    #[test]
    fn a_sync_is_ill_after_five_seconds_and_not_before() {
        let health = Health::default();
        health.sync_began();
        let began =
            health.sync.started + Duration::from_millis(health.sync.since.load(Ordering::Relaxed) - 1);
        assert_eq!(health.problems(began + SYNC_PENDING_MOST - Duration::from_millis(1)), []);
        assert_eq!(health.problems(began + SYNC_PENDING_MOST), [Problem::SyncPending(5)]);
        health.sync_ended();
        assert_eq!(health.problems(began + 2 * SYNC_PENDING_MOST), []);
    }

    #[test]
    fn only_a_large_gap_is_worth_telling() {
        let health = Health::default();
        health.set_ahead(LARGE_GAP_MS);
        assert_eq!(health.large_gap_ms(), None);
        health.set_ahead(LARGE_GAP_MS + 1);
        assert_eq!(health.large_gap_ms(), Some(LARGE_GAP_MS + 1));
    }
}
