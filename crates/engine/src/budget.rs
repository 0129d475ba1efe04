//! Bytes that were handed over and are neither durable nor refused, and the connections that wait until there are fewer.

use crate::limits::UNDURABLE_BYTES;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Beyond it sockets are not read.
#[derive(Debug)]
pub struct Budget {
    held_bytes: AtomicUsize,
    most_bytes: usize,
    room: Notify,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(UNDURABLE_BYTES)
    }
}

impl Budget {
    /// There is room while less than `most_bytes` are held.
    pub fn new(most_bytes: usize) -> Budget {
        Budget { held_bytes: AtomicUsize::new(0), most_bytes, room: Notify::new() }
    }

    pub fn hold(&self, bytes: usize) {
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes are durable, or refused.
    pub fn release(&self, bytes: usize) {
        let before = self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes are given back of {before} that are held");
        if before >= self.most_bytes && before - bytes < self.most_bytes {
            self.room.notify_waiters();
        }
    }

    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    pub fn has_room(&self) -> bool {
        self.held_bytes() < self.most_bytes
    }

    /// Waits until there is room.
    pub async fn room(&self) {
        loop {
            let notified = self.room.notified();
            if self.has_room() {
                return;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn whoever_waits_for_room_goes_on_when_there_is_some() {
        let budget = Budget::new(1_000);
        budget.hold(999);
        budget.room().await;
        budget.hold(1);
        assert!(!budget.has_room());
        // The waiter is polled first and must be woken by the release.
        tokio::join!(biased; budget.room(), async { budget.release(1) });
        assert!(budget.has_room());
    }

    #[test]
    #[should_panic(expected = "11 bytes are given back of 10")]
    fn what_was_never_held_cannot_be_given_back() {
        let budget = Budget::default();
        budget.hold(10);
        budget.release(11);
    }
}
