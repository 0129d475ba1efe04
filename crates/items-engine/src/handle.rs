//! What the doors hold.

use crate::activity::Activity;
use crate::asking::{Asking, Queries};
use crate::committed::{Committed, ReadOutcome};
use crate::condition::Condition;
use crate::engine::{Items, SharedClock};
use crate::limits::{LONG_READS, PAGE_STEPS, UNDURABLE_BYTES};
use crate::partition::{Asker, ReplyOrRefusal, Work};
use items::throttle::Throttle;
use items::{Command, Refusal, Reply};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, Semaphore, oneshot};

/// A way to ask and to be answered. Cheap to clone; all clones speak to the same engine.
#[derive(Debug, Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    items: Arc<Items>,
    readers: Arc<Committed>,
    clock: SharedClock,
    throttle: Arc<Mutex<Throttle>>,
    activity: Arc<Activity>,
    condition: Arc<Condition>,
    undurable: Arc<Undurable>,
    long_reads: Arc<Semaphore>,
    queries: Arc<Queries>,
    is_closed: AtomicBool,
}

/// Bytes of requests that are neither durable nor refused.
#[derive(Debug, Default)]
struct Undurable {
    bytes: AtomicUsize,
    room: Notify,
}

impl Undurable {
    /// Waits until less is held than may be, and holds `bytes` more.
    async fn hold(self: &Arc<Undurable>, bytes: usize) -> HeldBytes {
        loop {
            let notified = self.room.notified();
            if self.bytes.load(Ordering::Relaxed) < UNDURABLE_BYTES {
                break;
            }
            notified.await;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        HeldBytes { bytes, of: Arc::clone(self) }
    }
}

#[derive(Debug)]
struct HeldBytes {
    bytes: usize,
    of: Arc<Undurable>,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let before = self.of.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if before >= UNDURABLE_BYTES && before - self.bytes < UNDURABLE_BYTES {
            self.of.room.notify_waiters();
        }
    }
}

/// Somebody who waits for an answer. Dropped without one, the engine has stopped.
#[derive(Debug)]
pub struct Pending {
    reply: oneshot::Sender<ReplyOrRefusal>,
    _held: HeldBytes,
}

impl Asker for Pending {
    fn answer(self, answer: ReplyOrRefusal) {
        // An asker that has gone meanwhile needs no answer.
        let _ = self.reply.send(answer);
    }
}

impl Handle {
    pub(crate) fn new(
        items: Arc<Items>,
        readers: Arc<Committed>,
        clock: SharedClock,
        throttle: Arc<Mutex<Throttle>>,
        activity: Arc<Activity>,
        condition: Arc<Condition>,
    ) -> Handle {
        let undurable = Arc::default();
        let long_reads = Arc::new(Semaphore::new(LONG_READS));
        let (queries, is_closed) = (Arc::default(), AtomicBool::new(false));
        let inner = Inner {
            items,
            readers,
            clock,
            throttle,
            activity,
            condition,
            undurable,
            long_reads,
            queries,
            is_closed,
        };
        Handle { inner: Arc::new(inner) }
    }

    /// Asks one thing. The answer comes when everything it may have seen is durable.
    pub async fn ask(&self, command: Command) -> Result<Reply, Refusal> {
        if command.items_of().is_none() || !self.inner.readers.has_offers() {
            return self.ask_freely(command).await;
        }
        self.inner.admit(&command)?;
        // What it costs is known when it is done, and who is to pay for it from the command.
        let asked = command.clone();
        let answer = self.ask_freely(command).await;
        if let Ok(reply) = &answer {
            self.inner.spend(&asked, reply.charge);
        }
        answer
    }

    /// The same without a look at what is provisioned.
    async fn ask_freely(&self, command: Command) -> Result<Reply, Refusal> {
        if command.is_write() {
            return self.write(command).await;
        }
        self.inner.activity.reading();
        if is_short(&command) {
            return match self.inner.read(&command) {
                ReadOutcome::Done(answer) => answer,
                ReadOutcome::After => {
                    self.note().await?;
                    self.inner.read_noted(&command)
                }
            };
        }
        self.read_long(command).await
    }

    /// Reads on a thread for what takes long, when one is free. Whether it really rests on something having expired is not
    /// looked for: that would be a second reading as long as the first.
    async fn read_long(&self, command: Command) -> Result<Reply, Refusal> {
        let inner = &self.inner;
        let mut is_noted = inner.readers.newest().hides_something(inner.clock.now());
        if is_noted {
            self.note().await?;
        }
        let (asking, _waiting) = Asking::begin(&inner.queries);
        let permit = Arc::clone(&inner.long_reads).acquire_owned().await;
        let permit = permit.map_err(|_| Refusal::Stopped)?;
        let mut newest = inner.readers.newest();
        // The clock is read later: what is committed was written before now.
        let owner = inner.clock.now();
        if !is_noted && newest.hides_something(owner) {
            self.note().await?;
            newest = inner.readers.newest();
            is_noted = true;
        }
        let read = move || {
            // It goes on for a moment when who asked has gone, and counts as long as it does.
            let _permit = permit;
            let now = if is_noted { newest.noted_now() } else { newest.local_now(owner) };
            newest.read_watched(&command, now, PAGE_STEPS, &asking)
        };
        tokio::task::spawn_blocking(read).await.map_err(|_| Refusal::Stopped)?
    }

    /// To be called by a thread that has nothing left to do for connections, before it waits for what clients send: what was asked for
    /// until now is written. Once it was called, writes wait for the next call, or for a few syncs' time: see [`Shared::rest`].
    ///
    /// [`Shared::rest`]: ::engine::commit::Shared::rest
    pub fn rest(&self) {
        self.inner.items.rest();
    }

    /// Ends these pauses, from now on, when there is something to answer: they are of the threads that serve its doors.
    pub fn end_also(&self, pauses: Arc<::engine::commit::Pauses>) {
        self.inner.items.end_also(pauses);
    }

    /// Waits until the journal holds the owner's time, and readers see everything that was decided before.
    async fn note(&self) -> Result<(), Refusal> {
        let held = self.inner.undurable.hold(std::mem::size_of::<ReplyOrRefusal>()).await;
        self.hand_over(held, |asker| Work::Note { asker }).await.map(|_| ())
    }

    async fn write(&self, command: Command) -> Result<Reply, Refusal> {
        self.inner.activity.writing();
        let held = self.inner.undurable.hold(held_bytes(&command)).await;
        self.hand_over(held, |asker| Work::Ask { command, asker }).await
    }

    async fn hand_over(
        &self,
        held: HeldBytes,
        work: impl FnOnce(Pending) -> Work<Pending>,
    ) -> Result<Reply, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.inner.items.hand_over(work(Pending { reply, _held: held }));
        // Looked at after the question is known: closing marks it first and then drops the questions it finds.
        if self.inner.is_closed.load(Ordering::SeqCst) {
            return Err(Refusal::Stopped);
        }
        answer.await.unwrap_or(Err(Refusal::Stopped))
    }

    /// The time of the items, in milliseconds since 1970: `date` headers and tests.
    pub fn now_ms(&self) -> i64 {
        let inner = &self.inner;
        inner.clock.now().0.saturating_add(inner.readers.offset_ms())
    }

    /// How the items are.
    pub fn condition(&self) -> &Condition {
        &self.inner.condition
    }

    pub fn activity(&self) -> &Activity {
        &self.inner.activity
    }

    pub(crate) fn stop(&self) {
        self.inner.items.inbox().put(Work::Stop);
    }

    /// The partition has ended: nobody will be answered any more.
    pub(crate) fn close(&self) {
        self.inner.condition.close();
        self.inner.is_closed.store(true, Ordering::SeqCst);
        self.inner.items.inbox().take(&mut Vec::new());
    }
}

impl Inner {
    /// Whether what is provisioned for the container is not used up (P-80).
    fn admit(&self, command: &Command) -> Result<(), Refusal> {
        let newest = self.readers.newest();
        let now = newest.local_now(self.clock.now());
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner).admit(&newest.account, command, now)
    }

    fn spend(&self, command: &Command, charge: u64) {
        let newest = self.readers.newest();
        let now = newest.local_now(self.clock.now());
        let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        throttle.spend(&newest.account, command, charge, now);
    }

    /// Reads on this thread, on what is committed.
    fn read(&self, command: &Command) -> ReadOutcome {
        let newest = self.readers.newest();
        // The clock is read later: what is committed was written before now.
        newest.read(command, self.clock.now(), PAGE_STEPS)
    }

    /// The same as of the latest time that the journal knows.
    fn read_noted(&self, command: &Command) -> Result<Reply, Refusal> {
        self.readers.newest().read_noted(command, PAGE_STEPS)
    }
}

/// Whether reading it is a matter of microseconds.
fn is_short(command: &Command) -> bool {
    matches!(
        command,
        Command::ReadItem { .. }
            | Command::ReadDatabase { .. }
            | Command::ReadContainer { .. }
            | Command::ReadScript { .. }
            | Command::ReadUser { .. }
            | Command::ReadPermission { .. }
            | Command::ReadOffer { .. }
            | Command::ReadRanges { .. }
    )
}

/// Bytes that a command holds until it is durable.
fn held_bytes(command: &Command) -> usize {
    let body = match command {
        Command::CreateItem(write) | Command::UpsertItem(write) | Command::ReplaceItem { write, .. } => {
            write.body.len()
        }
        Command::PatchItem { body, .. }
        | Command::Batch { body, .. }
        | Command::Bulk { body, .. }
        | Command::CreateContainer { body, .. }
        | Command::ReplaceContainer { body, .. }
        | Command::CreateScript { body, .. }
        | Command::ReplaceScript { body, .. }
        | Command::CreatePermission { body, .. } => body.len(),
        _ => 0,
    };
    std::mem::size_of::<Command>() + body
}
