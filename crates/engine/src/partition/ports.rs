//! The connections as a partition sees them, with the effects that are on their way to each.
//!
//! What must hold: effects of one connection leave in the order in which they were decided. So a free one waits like the
//! others while something of the same connection waits for the disk.

use crate::budget::Budget;
use crate::commit::Releasable;
use crate::mailbox::{Mailbox, Outgoing};
use broker::ids::IdMap;
use broker::{Command, ConnectionId, LinkId};
use std::sync::Arc;

#[derive(Debug)]
struct Port {
    mailbox: Arc<dyn Mailbox>,
    links: Vec<LinkId>,
    /// Effects that leave when what is being decided has been.
    free: Vec<Outgoing>,
    /// Effects that wait for the draft, or for the append in flight when the draft is empty.
    gated: Vec<Outgoing>,
    /// The append in flight carries effects for this connection.
    is_in_flight: bool,
}

#[derive(Debug, Default)]
pub(super) struct Ports {
    ports: IdMap<ConnectionId, Port>,
    /// Connections with free effects, with gated ones, and with some that wait for the append in flight.
    free: Vec<ConnectionId>,
    gated: Vec<ConnectionId>,
    in_flight: Vec<ConnectionId>,
}

/// Effects that wait for an append, and the bytes that are held until then.
#[derive(Debug)]
pub struct Unreleased {
    releases: Vec<(Arc<dyn Mailbox>, Vec<Outgoing>)>,
    held_bytes: usize,
    budget: Arc<Budget>,
}

impl Releasable for Unreleased {
    fn release(self) {
        for (mailbox, outgoing) in self.releases {
            mailbox.put(outgoing);
        }
        self.budget.release(self.held_bytes);
    }
}

impl Unreleased {
    pub(super) fn outgoing(&mut self) -> impl Iterator<Item = &mut Vec<Outgoing>> {
        self.releases.iter_mut().map(|(_, outgoing)| outgoing)
    }
}

impl Ports {
    pub(super) fn open(&mut self, connection: ConnectionId, mailbox: Arc<dyn Mailbox>) {
        let (links, free, gated) = (Vec::new(), Vec::new(), Vec::new());
        self.ports.insert(connection, Port { mailbox, links, free, gated, is_in_flight: false });
    }

    /// The links that were attached there, if it was open.
    pub(super) fn close(&mut self, connection: ConnectionId) -> Vec<LinkId> {
        self.ports.remove(&connection).map_or_else(Vec::new, |port| port.links)
    }

    /// Links are remembered by their connection, so that losing it loses them all.
    pub(super) fn note_link(&mut self, command: &Command) {
        match command {
            Command::AttachSender { link, .. }
            | Command::AttachVia { link, .. }
            | Command::AttachCoordinator { link, .. }
            | Command::AttachReceiver { link, .. }
            | Command::AcceptSession { link, .. } => {
                if let Some(port) = self.ports.get_mut(&link.connection) {
                    port.links.push(*link);
                }
            }
            Command::Detach { link } => self.forget_link(*link),
            _ => {}
        }
    }

    pub(super) fn forget_link(&mut self, link: LinkId) {
        if let Some(port) = self.ports.get_mut(&link.connection) {
            port.links.retain(|other| *other != link);
        }
    }

    /// Where the next effect of a connection goes, if it is there. `is_free`: it rests on what is durable already.
    pub(super) fn list(&mut self, connection: ConnectionId, is_free: bool) -> Option<&mut Vec<Outgoing>> {
        let port = self.ports.get_mut(&connection)?;
        let is_free = is_free && port.gated.is_empty() && !port.is_in_flight;
        let (list, connections) =
            if is_free { (&mut port.free, &mut self.free) } else { (&mut port.gated, &mut self.gated) };
        if list.is_empty() {
            connections.push(connection);
        }
        Some(list)
    }

    /// So many commands of a connection were decided.
    pub(super) fn decided(&self, connection: Option<ConnectionId>, commands: usize) {
        if let Some(port) = connection.and_then(|connection| self.ports.get(&connection)) {
            port.mailbox.decided(commands);
        }
    }

    /// Whether an effect waits for what is not written yet.
    pub(super) fn has_gated(&self) -> bool {
        !self.gated.is_empty()
    }

    /// Lets free effects go.
    pub(super) fn flush_free(&mut self) {
        for connection in self.free.drain(..) {
            if let Some(port) = self.ports.get_mut(&connection) {
                port.mailbox.put(std::mem::take(&mut port.free));
            }
        }
    }

    /// Lets gated effects go: everything so far is durable.
    pub(super) fn flush_gated(&mut self, mut place: impl FnMut(&mut [Outgoing])) {
        for connection in self.gated.drain(..) {
            if let Some(port) = self.ports.get_mut(&connection) {
                place(&mut port.gated);
                port.mailbox.put(std::mem::take(&mut port.gated));
            }
        }
    }

    /// Everything that waits for the append that was just written.
    pub(super) fn take_waiting(
        &mut self,
        held_bytes: usize,
        budget: Arc<Budget>,
        mut place: impl FnMut(&mut [Outgoing]),
    ) -> Unreleased {
        assert!(self.in_flight.is_empty(), "one append at a time");
        self.in_flight.append(&mut self.gated);
        let mut releases = Vec::with_capacity(self.in_flight.len());
        for connection in &self.in_flight {
            if let Some(port) = self.ports.get_mut(connection) {
                port.is_in_flight = true;
                place(&mut port.gated);
                releases.push((Arc::clone(&port.mailbox), std::mem::take(&mut port.gated)));
            }
        }
        Unreleased { releases, held_bytes, budget }
    }

    /// The append in flight is durable, and what waited for it has left.
    pub(super) fn committed(&mut self) {
        for connection in self.in_flight.drain(..) {
            if let Some(port) = self.ports.get_mut(&connection) {
                port.is_in_flight = false;
            }
        }
    }

    /// Effects that have not left.
    pub(super) fn held(&self) -> usize {
        self.ports.values().map(|port| port.free.len() + port.gated.len()).sum()
    }
}
