//! Where work for a partition gathers. One lock per hand-over, and one wake-up per silence at most.

use crate::batch::Batch;
use crate::limits::UNDURABLE_BYTES;
use crate::mailbox::Mailbox;
use crate::snapshots::Snapshotted;
use broker::{BodyId, Command, ConnectionId, Fronts, Sequence, Source};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// One piece of work.
#[derive(Debug)]
pub enum Item {
    Connect {
        connection: ConnectionId,
        mailbox: Arc<dyn Mailbox>,
    },
    /// The connection is gone, and its links with it.
    Disconnect {
        connection: ConnectionId,
    },
    Batch(Batch),
    /// A command that needed stored bodies comes again, with them.
    Again {
        command: Command,
        material: Vec<(BodyId, Vec<u8>)>,
    },
    /// A command needed stored bodies, and they cannot be read.
    Unreadable {
        command: Command,
        why: String,
    },
    /// Messages were read that are to be removed before they leave.
    Checked(Checked),
    /// Bodies were read that are to be copied; those that are left did not fit.
    Copied {
        copies: Vec<(BodyId, Vec<u8>)>,
        unread: Vec<(BodyId, BodyId)>,
        failure: Option<Uncopied>,
    },
    /// Somebody reads what is stored again and wants the next piece of it.
    Scrub {
        after: journal::Position,
        reply: mpsc::Sender<Option<journal::Scrub>>,
    },
    /// A snapshot was written.
    Snapshotted(Box<Snapshotted>),
    /// A snapshot found no room.
    SnapshotPutOff(String),
    /// The append in flight is durable, and its effects have left.
    Committed,
    /// The sync thread has failed or found another owner.
    Failed(String),
    /// Finish what was begun, seal the journal, end.
    Stop,
}

/// A body that could not be read when it was to be copied.
#[derive(Debug)]
pub struct Uncopied {
    /// Under which it lies.
    pub(crate) stored: BodyId,
    pub(crate) why: String,
    /// It may be read some other time, and is among those that were not read.
    pub(crate) is_passing: bool,
}

/// What was found of messages that a receiver is to have for good.
#[derive(Debug)]
pub struct Checked {
    pub(crate) source: Source,
    pub(crate) whole: Vec<Sequence>,
    pub(crate) damaged: Vec<Sequence>,
    /// What is wrong with those, with file and offset.
    pub(crate) damage: Vec<String>,
    /// What they hold, where that was asked for; nothing of those that cannot be read.
    pub(crate) content: Option<Fronts>,
}

impl Checked {
    pub(crate) fn new(source: Source) -> Checked {
        Checked { source, whole: Vec::new(), damaged: Vec::new(), damage: Vec::new(), content: None }
    }
}

#[derive(Debug, Default)]
struct Waiting {
    items: Vec<Item>,
    is_asleep: bool,
    /// It is to look, though nothing may have arrived.
    is_called: bool,
}

#[derive(Debug)]
pub struct Inbox {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    undurable_bytes: AtomicUsize,
    budget_bytes: usize,
    room: Notify,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox::with_budget(UNDURABLE_BYTES)
    }
}

impl Inbox {
    /// An inbox that has room while less than `budget_bytes` of what was handed over is undurable.
    pub fn with_budget(budget_bytes: usize) -> Inbox {
        Inbox {
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            undurable_bytes: AtomicUsize::new(0),
            budget_bytes,
            room: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn put(&self, item: Item) {
        if self.leave(item) {
            self.call();
        }
    }

    /// Puts something without waking anybody. Says whether the partition's thread sleeps, and must be called unless somebody
    /// else sees to it.
    #[must_use]
    pub(crate) fn leave(&self, item: Item) -> bool {
        if let Item::Batch(batch) = &item {
            self.undurable_bytes.fetch_add(batch.held_bytes(), Ordering::Relaxed);
        }
        let mut waiting = self.lock();
        waiting.items.push(item);
        waiting.is_asleep
    }

    /// Wakes the partition's thread, if it sleeps.
    pub(crate) fn call(&self) {
        let mut waiting = self.lock();
        if waiting.is_asleep {
            waiting.is_asleep = false;
            waiting.is_called = true;
            drop(waiting);
            self.arrived.notify_one();
        }
    }

    /// Puts something that can wait until there is something else: nobody is woken for it.
    pub(crate) fn put_quietly(&self, item: Item) {
        self.lock().items.push(item);
    }

    /// As if the partition's thread slept here.
    #[cfg(test)]
    pub(crate) fn pretend_sleep(&self) {
        self.lock().is_asleep = true;
    }

    #[cfg(test)]
    pub(crate) fn is_asleep(&self) -> bool {
        self.lock().is_asleep
    }

    /// Whether anything waits but news of the disk.
    pub(crate) fn has_work(&self) -> bool {
        self.lock().items.iter().any(|item| !matches!(item, Item::Committed))
    }

    pub fn is_empty(&self) -> bool {
        self.lock().items.is_empty()
    }

    /// Takes all that waits; waits itself until something does, or for `patience`. Returns whether somebody has called.
    pub fn take(&self, into: &mut Vec<Item>, patience: Option<Duration>) -> bool {
        let mut waiting = self.lock();
        let mut is_called = false;
        if waiting.items.is_empty() && patience != Some(Duration::ZERO) {
            waiting.is_asleep = true;
            let is_idle = |waiting: &mut Waiting| waiting.items.is_empty() && !waiting.is_called;
            waiting = match patience {
                Some(patience) => {
                    self.arrived
                        .wait_timeout_while(waiting, patience, is_idle)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self.arrived.wait_while(waiting, is_idle).unwrap_or_else(PoisonError::into_inner),
            };
            waiting.is_asleep = false;
            is_called = std::mem::take(&mut waiting.is_called);
        }
        into.append(&mut waiting.items);
        is_called
    }

    /// Takes all that waits instead of the partition's thread, if that sleeps. Otherwise it has or will have it in its own
    /// hands, and nobody may go before it.
    pub(crate) fn take_instead(&self, into: &mut Vec<Item>) -> bool {
        let mut waiting = self.lock();
        if waiting.is_asleep {
            into.append(&mut waiting.items);
        }
        waiting.is_asleep
    }

    /// `bytes` of what was handed over are durable, or refused, and no longer held.
    pub(crate) fn release(&self, bytes: usize) {
        let before = self.undurable_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if before >= self.budget_bytes && before - bytes < self.budget_bytes {
            self.room.notify_waiters();
        }
    }

    /// Bytes that were handed over and are neither durable nor refused yet.
    pub fn undurable_bytes(&self) -> usize {
        self.undurable_bytes.load(Ordering::Relaxed)
    }

    pub fn has_room(&self) -> bool {
        self.undurable_bytes() < self.budget_bytes
    }

    /// Waits until less is undurable than the budget allows.
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

    fn holding(bytes: usize) -> Item {
        Item::Batch(Batch { bodies: vec![0; bytes], ..Batch::default() })
    }

    #[tokio::test(flavor = "current_thread")]
    async fn whoever_waits_for_room_goes_on_when_there_is_some() {
        let inbox = Inbox::default();
        inbox.put(holding(UNDURABLE_BYTES - 1));
        inbox.room().await;
        inbox.put(holding(1));
        assert!(!inbox.has_room());
        // The waiter is polled first and must be woken by the release.
        tokio::join!(biased; inbox.room(), async { inbox.release(1) });
        assert!(inbox.has_room());
    }
}
