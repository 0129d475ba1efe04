//! What the doors hold: a way to hand work over and to be answered.

use crate::batch::Batch;
use crate::budget::Budget;
use crate::cache::Cache;
use crate::commit::Pauses;
use crate::health::Health;
use crate::mailbox::{Asks, Outbox};
use crate::partition::Counters;
use crate::read::{Ahead, BodyRead};
use crate::runner::SharedPartition;
use crate::work::Work;
use broker::{Answer, Command, ConnectionId, LinkId, Refusal, RequestId};
use journal::Place;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tokio::sync::oneshot;

/// The engine has stopped; there will be no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server is stopping")]
pub struct Stopped;

#[derive(Debug, Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    partition: Arc<SharedPartition>,
    budget: Arc<Budget>,
    asks: Arc<Asks>,
    cache: Arc<Cache>,
    counters: Arc<Counters>,
    ahead: Arc<Ahead>,
    health: Arc<Health>,
    connections: AtomicU32,
    is_closed: AtomicBool,
}

impl Handle {
    pub(crate) fn new(
        partition: Arc<SharedPartition>,
        asks: Arc<Asks>,
        health: Arc<Health>,
        (budget, cache, counters): (Arc<Budget>, Arc<Cache>, Arc<Counters>),
    ) -> Handle {
        let (connections, is_closed) = (AtomicU32::new(1), AtomicBool::new(false));
        let ahead = Arc::default();
        let inner = Inner { partition, budget, asks, cache, counters, ahead, health, connections, is_closed };
        Handle { inner: Arc::new(inner) }
    }

    /// Registers a connection. Dropping it detaches its links.
    pub fn connect(&self) -> Connection {
        let id = ConnectionId(self.inner.connections.fetch_add(1, Ordering::Relaxed));
        let outbox = Arc::new(Outbox::default());
        // The thread that holds the partition when the first work of this connection is there takes both, in this order.
        self.inner.partition.inbox().leave(Work::Connect { connection: id, mailbox: outbox.clone() });
        Connection { id, outbox, handle: self.clone() }
    }

    /// Asks one question and waits for its answer.
    pub async fn ask(
        &self,
        question: impl FnOnce(RequestId) -> Command,
    ) -> Result<Result<Answer, Refusal>, Stopped> {
        let (reply, answer) = oneshot::channel();
        let request = self.inner.asks.open(reply);
        // Looked at after the question is known: the thread that closes marks it first and then drops the questions it knows.
        if self.is_closed() {
            return Err(Stopped);
        }
        let batch = Batch { commands: vec![question(request)], ..Batch::default() };
        self.hand_over(batch);
        answer.await.map_err(|_| Stopped)
    }

    pub fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    /// How the partition is.
    pub fn health(&self) -> &Health {
        &self.inner.health
    }

    pub fn cache(&self) -> &Cache {
        &self.inner.cache
    }

    /// Starts to read bodies of `bytes` in all. With `is_ahead` there is no room for them yet, and `None` means that too
    /// much was read ahead already.
    pub fn read(&self, places: Vec<Place>, bytes: usize, is_ahead: bool) -> Option<BodyRead> {
        BodyRead::start(&self.inner.ahead, &self.inner.health, places, bytes, is_ahead)
    }

    /// To be called by a thread that has nothing left to do for connections, before it waits for what clients send. Pauses it
    /// while nothing is gained by looking: see [`crate::commit::Gather`].
    pub fn pause(&self) {
        self.inner.partition.pause();
    }

    /// Where threads pause.
    pub fn pauses(&self) -> &Arc<Pauses> {
        self.inner.partition.pauses()
    }

    pub fn is_closed(&self) -> bool {
        self.inner.is_closed.load(Ordering::Acquire)
    }

    /// Counts a batch until it is durable or refused, and has it decided: here and now, if nobody else is at it.
    fn hand_over(&self, batch: Batch) {
        self.inner.budget.hold(batch.held_bytes());
        self.inner.partition.hand_over(Work::Batch(batch));
    }

    pub(crate) fn stop(&self) {
        self.inner.partition.inbox().put(Work::Stop);
    }

    pub(crate) fn close(&self) {
        self.inner.health.close();
        self.inner.is_closed.store(true, Ordering::Release);
        self.inner.asks.close();
    }
}

/// A client's connection to the engine.
#[derive(Debug)]
pub struct Connection {
    id: ConnectionId,
    outbox: Arc<Outbox>,
    handle: Handle,
}

impl Connection {
    pub fn link(&self, link: u32) -> LinkId {
        LinkId { connection: self.id, link }
    }

    pub fn request(&self, request: u32) -> RequestId {
        RequestId { connection: self.id, request }
    }

    /// Hands work over. Wait for [`Connection::room`] before reading more of it from a socket.
    pub fn submit(&self, batch: Batch) {
        self.outbox.handed_over(batch.commands.len());
        self.handle.hand_over(batch);
    }

    /// Whether the partition holds less than it may; otherwise sockets are not read.
    pub fn has_room(&self) -> bool {
        self.handle.inner.budget.has_room()
    }

    pub async fn room(&self) {
        self.handle.inner.budget.room().await;
    }

    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.handle.inner.partition.hand_over(Work::Disconnect { connection: self.id });
    }
}
