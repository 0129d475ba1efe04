//! A client as it sees itself: its connection, its links, and the locks it was given.

use crate::oracle::Role;
use broker::{ConnectionId, Incoming, LinkId, LockToken, Number, TransactionId};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: ConnectionId,
    pub(super) links: Vec<ClientLink>,
    /// Links that were detached; some clients do not know it.
    pub(super) gone: Vec<LinkId>,
    pub(super) made_links: u32,
    pub(super) requests: u32,
    /// Sends whose outcome is not known yet, oldest first.
    pub(super) unanswered: Vec<(LinkId, u32)>,
    /// Transactions that it has declared, and some that are over.
    pub(super) transactions: Vec<Declared>,
    pub(super) ended: Vec<Declared>,
    /// The path that a question was about.
    pub(super) asked: BTreeMap<u32, String>,
}

#[derive(Debug)]
pub(super) struct ClientLink {
    pub(super) id: LinkId,
    /// The partition of its queue.
    pub(super) nth: usize,
    pub(super) path: String,
    pub(super) role: Role,
    pub(super) next_delivery: u32,
    pub(super) delivered: u64,
    /// It wants a session and has not been given one.
    pub(super) is_waiting: bool,
    pub(super) session: Option<Arc<str>>,
    pub(super) unfinished: Option<Unfinished>,
}

/// A large message on its way.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) number: usize,
    pub(super) id: u64,
    pub(super) facts: Incoming,
    pub(super) session: Option<Arc<str>>,
    pub(super) sent: Vec<Vec<u8>>,
    /// The parts to come, the next one last.
    pub(super) rest: Vec<Vec<u8>>,
}

/// A transaction, and its partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Declared {
    pub(super) nth: usize,
    pub(super) id: TransactionId,
}

/// A lock that some client was given.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) path: String,
    pub(super) token: LockToken,
    pub(super) number: Number,
}

impl Client {
    pub(super) fn new(id: ConnectionId) -> Client {
        Client {
            id,
            links: Vec::new(),
            gone: Vec::new(),
            made_links: 0,
            requests: 0,
            unanswered: Vec::new(),
            transactions: Vec::new(),
            ended: Vec::new(),
            asked: BTreeMap::new(),
        }
    }

    pub(super) fn link(&mut self, path: &str, role: Role, nth: usize) -> LinkId {
        self.made_links += 1;
        let id = LinkId { connection: self.id, link: self.made_links };
        self.links.push(ClientLink {
            id,
            nth,
            path: path.to_owned(),
            role,
            next_delivery: 0,
            delivered: 0,
            is_waiting: false,
            session: None,
            unfinished: None,
        });
        id
    }
}
