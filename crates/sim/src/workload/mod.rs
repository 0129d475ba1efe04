//! What clients do: a few connections with links that come and go, sending, receiving and settling as they please.
//!
//! Clients need not behave: they use tokens that are not theirs, links that are gone and queues that never were. They
//! do keep to what the doors guarantee: ids are never reused, and a message's bytes are there.

mod ask;
mod body;
mod client;
mod receive;
mod send;

pub use body::{Body, message_number};

use crate::hash::hash_bytes;
use crate::oracle::{Door, Oracle, Role, Shared};
use crate::random::Random;
use broker::{Command, ConnectionId, ReceiveMode};
use client::{Client, Held};
use engine::{Batch, Item, Outgoing, Sent};
use std::sync::Arc;

/// Clients at once. Enough that they compete, few enough that they meet.
const CLIENTS: usize = 4;
const LINKS: usize = 6;

/// Queues that may exist. The last one is small and fills up.
const PATHS: [&str; 4] = ["orders", "Invoices/eu", "quick", "tiny"];

#[derive(Debug)]
pub struct Workload {
    random: Random,
    clients: Vec<Client>,
    /// Locks that were handed out, whoever has them; some are used again long after.
    held: Vec<Held>,
    connections: u32,
    /// Whether this run sends large messages.
    is_heavy: bool,
    has_begun: bool,
    pub commands: u64,
}

impl Workload {
    pub fn new(mut random: Random) -> Workload {
        let is_heavy = random.once_in(8);
        Workload {
            random,
            clients: Vec::new(),
            held: Vec::new(),
            connections: 0,
            is_heavy,
            has_begun: false,
            commands: 0,
        }
    }

    /// Everybody is gone, with the process.
    pub fn disconnect_all(&mut self) {
        self.clients.clear();
        // Some remember their tokens and try them again.
        self.held.truncate(3);
    }

    /// What the clients hand over next.
    pub fn step(&mut self, shared: &Arc<Shared>) -> Vec<Item> {
        let mut items = Vec::new();
        if self.clients.len() < CLIENTS && (self.clients.is_empty() || self.random.once_in(4)) {
            items.push(self.connect(shared));
        }
        let mut oracle = shared.lock();
        if self.random.once_in(40) {
            let at = self.random.below(self.clients.len() as u64) as usize;
            let client = self.clients.remove(at);
            oracle.disconnected(client.id);
            items.push(Item::Disconnect { connection: client.id });
        }
        if self.random.once_in(12) && items.is_empty() {
            items.extend(self.describe_alone(&mut oracle));
            return items;
        }
        for _ in 0..self.random.between(1, 3) {
            if !self.clients.is_empty() {
                let at = self.random.below(self.clients.len() as u64) as usize;
                items.push(Item::Batch(self.batch(at, &mut oracle)));
            }
        }
        items
    }

    fn connect(&mut self, shared: &Arc<Shared>) -> Item {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        self.clients.push(Client::new(connection));
        shared.lock().connected(connection);
        Item::Connect { connection, mailbox: Arc::new(Door { connection, shared: shared.clone() }) }
    }

    fn batch(&mut self, at: usize, oracle: &mut Oracle) -> Batch {
        let mut batch = Batch::default();
        if !std::mem::replace(&mut self.has_begun, true) {
            // The first who comes makes the queues.
            PATHS.iter().for_each(|path| self.create_usual(at, path, &mut batch, oracle));
        }
        for _ in 0..self.random.between(1, 6) {
            self.act(at, &mut batch, oracle);
        }
        self.commands += batch.commands.len() as u64;
        batch
    }

    fn act(&mut self, at: usize, batch: &mut Batch, oracle: &mut Oracle) {
        match self.random.below(100) {
            0..9 => self.attach(at, batch, oracle),
            9..12 => self.detach(at, batch, oracle),
            12..45 => self.send(at, batch, oracle),
            45..66 => self.credit(at, batch, oracle),
            66..94 => self.settle(at, batch, oracle),
            _ => self.ask(at, batch, oracle),
        }
    }

    fn attach(&mut self, at: usize, batch: &mut Batch, oracle: &mut Oracle) {
        if self.clients[at].links.len() >= LINKS {
            return;
        }
        let path = match self.random.below(20) {
            0 => "nowhere".to_owned(),
            1 => "disabled".to_owned(),
            2 => "sessions".to_owned(),
            _ => self.path(),
        };
        let role = match self.random.below(8) {
            0..3 => Role::Sender,
            3..7 => Role::Receiver(ReceiveMode::PeekLock),
            _ => Role::Receiver(ReceiveMode::ReceiveAndDelete),
        };
        let link = self.clients[at].link(&path, role);
        oracle.attach(link, &path, role);
        let namespace = broker::NamespaceId(0);
        let path = path.into();
        batch.commands.push(match role {
            Role::Sender => Command::AttachSender { link, namespace, path },
            Role::Receiver(mode) => Command::AttachReceiver { link, namespace, path, mode },
        });
    }

    fn detach(&mut self, at: usize, batch: &mut Batch, oracle: &mut Oracle) {
        let links = &mut self.clients[at].links;
        if links.is_empty() {
            return;
        }
        let gone = links.remove(self.random.below(links.len() as u64) as usize);
        oracle.detach(gone.id);
        batch.commands.push(Command::Detach { link: gone.id });
    }

    /// A queue's path, in some spelling.
    fn path(&mut self) -> String {
        let path = *self.random.pick(&PATHS);
        if self.random.once_in(10) { path.to_uppercase() } else { path.to_owned() }
    }

    /// The links of a client in one role.
    fn pick_link(&mut self, at: usize, is_it: impl Fn(&Role) -> bool) -> Option<usize> {
        let links = &self.clients[at].links;
        let fitting: Vec<usize> = (0..links.len()).filter(|n| is_it(&links[*n].role)).collect();
        (!fitting.is_empty()).then(|| *self.random.pick(&fitting))
    }

    /// Effects reach the clients. `may_fail` says whether a body may be unreadable by now.
    pub fn receive(&mut self, outgoing: Vec<Outgoing>, may_fail: impl Fn() -> bool, oracle: &mut Oracle) {
        for each in outgoing {
            match each {
                Outgoing::Deliver(sent) => self.take(&sent, &may_fail, oracle),
                Outgoing::Detached { link, .. } => {
                    let client = self.clients.iter_mut().find(|client| client.id == link.connection);
                    if let Some(client) = client {
                        client.links.retain(|other| other.id != link);
                    }
                }
                _ => {}
            }
        }
    }

    /// A message reaches whoever it was for, who reads it.
    pub fn take(&mut self, sent: &Sent, may_fail: impl Fn() -> bool, oracle: &mut Oracle) {
        let mut whole = Vec::new();
        let read = sent.parts.iter().chain([&sent.place]).try_for_each(|place| place.read_into(&mut whole));
        match read {
            Ok(()) => oracle.read(sent, hash_bytes(&whole), whole.len()),
            Err(error) if !may_fail() => oracle.fail(format!("I1: a stored body cannot be read: {error}")),
            Err(_) => return,
        }
        let client = self.clients.iter_mut().find(|client| client.id == sent.link.connection);
        let link = client.and_then(|client| client.links.iter_mut().find(|link| link.id == sent.link));
        let Some(link) = link else { return };
        link.delivered += 1;
        if sent.mode == ReceiveMode::PeekLock {
            self.held.push(Held { path: link.path.to_lowercase(), token: sent.delivery.token });
        }
    }
}
