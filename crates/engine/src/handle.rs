//! What the doors hold: a way to hand work over and to be answered.

use crate::batch::Batch;
use crate::cache::Cache;
use crate::condition::Condition;
use crate::inbox::{Inbox, Item};
use crate::mailbox::{Asks, Outbox};
use crate::partition::Counters;
use crate::read::{Ahead, Reading};
use crate::runner::House;
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
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    house: Arc<House>,
    inbox: Arc<Inbox>,
    asks: Arc<Asks>,
    cache: Arc<Cache>,
    counters: Arc<Counters>,
    ahead: Arc<Ahead>,
    condition: Arc<Condition>,
    connections: AtomicU32,
    is_closed: AtomicBool,
}

impl Handle {
    pub(crate) fn new(
        house: Arc<House>,
        inbox: Arc<Inbox>,
        asks: Arc<Asks>,
        cache: Arc<Cache>,
        counters: Arc<Counters>,
        condition: Arc<Condition>,
    ) -> Handle {
        let (connections, is_closed) = (AtomicU32::new(1), AtomicBool::new(false));
        let ahead = Arc::default();
        let shared = Shared { house, inbox, asks, cache, counters, ahead, condition, connections, is_closed };
        Handle { shared: Arc::new(shared) }
    }

    /// Registers a connection. Dropping it detaches its links.
    pub fn connect(&self) -> Connection {
        let id = ConnectionId(self.shared.connections.fetch_add(1, Ordering::Relaxed));
        let outbox = Arc::new(Outbox::default());
        self.shared.inbox.put(Item::Connect { connection: id, mailbox: outbox.clone() });
        Connection { id, outbox, handle: self.clone() }
    }

    /// Asks one question and waits for its answer.
    pub async fn ask(
        &self,
        question: impl FnOnce(RequestId) -> Command,
    ) -> Result<Result<Answer, Refusal>, Stopped> {
        let (reply, answer) = oneshot::channel();
        let request = self.shared.asks.open(reply);
        // Looked at after the question is known: whoever closes marks it first and then drops the questions it knows.
        if self.is_closed() {
            return Err(Stopped);
        }
        let batch = Batch { commands: vec![question(request)], ..Batch::default() };
        self.shared.inbox.put(Item::Batch(batch));
        answer.await.map_err(|_| Stopped)
    }

    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// How the partition is.
    pub fn condition(&self) -> &Condition {
        &self.shared.condition
    }

    pub fn cache(&self) -> &Cache {
        &self.shared.cache
    }

    /// Starts to read bodies of `bytes` in all. With `is_ahead` there is no room for them yet, and `None` means that too
    /// much was read ahead already.
    pub fn read(&self, places: Vec<Place>, bytes: usize, is_ahead: bool) -> Option<Reading> {
        Reading::start(&self.shared.ahead, &self.shared.condition, places, bytes, is_ahead)
    }

    pub fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::Acquire)
    }

    pub(crate) fn stop(&self) {
        self.shared.inbox.put(Item::Stop);
    }

    pub(crate) fn close(&self) {
        self.shared.condition.close();
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.asks.close();
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
        let shared = &self.handle.shared;
        if shared.inbox.leave(Item::Batch(batch)) && !shared.house.decide_meanwhile(&shared.inbox) {
            shared.inbox.call();
        }
    }

    /// Whether the partition holds less than it may; otherwise sockets are not read.
    pub fn has_room(&self) -> bool {
        self.handle.shared.inbox.has_room()
    }

    pub async fn room(&self) {
        self.handle.shared.inbox.room().await;
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
        self.handle.shared.inbox.put(Item::Disconnect { connection: self.id });
    }
}
