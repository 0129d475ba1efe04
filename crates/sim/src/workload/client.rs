//! A client as it sees itself: its connection, its links, and the locks it was given.

use crate::oracle::Role;
use broker::{ConnectionId, Incoming, LinkId, LockToken, Number};
use std::collections::BTreeMap;

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
    pub(super) unfinished: Option<Unfinished>,
}

/// A large message on its way.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) number: usize,
    pub(super) id: u64,
    pub(super) facts: Incoming,
    pub(super) sent: Vec<Vec<u8>>,
    /// The pieces to come, the next one last.
    pub(super) rest: Vec<Vec<u8>>,
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
            asked: BTreeMap::new(),
        }
    }

    pub(super) fn link(&mut self, path: &str, role: Role, nth: usize) -> LinkId {
        self.made_links += 1;
        let id = LinkId { connection: self.id, link: self.made_links };
        let (path, unfinished) = (path.to_owned(), None);
        self.links.push(ClientLink { id, nth, path, role, next_delivery: 0, delivered: 0, unfinished });
        id
    }
}
