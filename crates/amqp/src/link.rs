//! One link, seen from the server: its decision, its credit, and the delivery that is still arriving on it
//! (AMQP 1.0 part 2, 2.6).

use crate::connection::LinkKey;
use crate::limits::DEFAULT_MESSAGE_BYTES;
use crate::performative::{Attach, Flow, Role};
use crate::serial::{distance, remaining};
use crate::state::State;

/// Our deliveries on a link are counted from here. The client is told in the attach reply.
pub(crate) const INITIAL_DELIVERY_COUNT: u32 = 0;

#[derive(Debug)]
pub(crate) enum Phase {
    /// The client attached; the door has not answered. Its attach is kept to be repeated.
    Undecided(Box<Attach>),
    Attached,
    /// The client detached it without closing it and has yet to say what became of so many deliveries of it. Nothing more is
    /// sent on it; our detach is still to come.
    Leaving {
        unsettled: usize,
    },
    /// We wrote our detach and wait for the client's; whatever else comes is ignored.
    Detaching,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) key: LinkKey,
    pub(crate) session: u32,
    pub(crate) handle: u32,
    /// Ours: we send to a client that attached as receiver.
    pub(crate) role: Role,
    pub(crate) phase: Phase,
    pub(crate) delivery_count: u32,
    /// Outstanding: what we may send, or what we allowed the client to send.
    pub(crate) credit: u32,
    pub(crate) max_message_bytes: u64,
    /// Deliveries sent unsettled are not remembered.
    pub(crate) is_untracked: bool,
    pub(crate) arriving: Option<Arriving>,
    /// What its attach is counted as.
    pub(crate) attach_bytes: usize,
}

/// A delivery of which some frames came. There is one at most on a link.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) delivery_id: u32,
    pub(crate) format: u32,
    pub(crate) settled: bool,
    /// The state that the first frame brought, kept for a delivery that turns out too large.
    pub(crate) state: Option<State>,
    pub(crate) bytes: u64,
    /// How many of those the door has passed on.
    pub(crate) passed_on: u64,
    /// It grew past the link's maximum; the rest is counted, not handed on.
    pub(crate) is_discarded: bool,
}

impl Arriving {
    /// What it takes of the connection's budget: what the door holds for it.
    pub(crate) fn counted_bytes(&self) -> u64 {
        if self.is_discarded { 0 } else { self.bytes.saturating_sub(self.passed_on) }
    }
}

impl Link {
    pub(crate) fn new(key: LinkKey, session: u32, attach: Box<Attach>, attach_bytes: usize) -> Link {
        let role = attach.role.opposite();
        let delivery_count = match role {
            Role::Sender => INITIAL_DELIVERY_COUNT,
            Role::Receiver => attach.initial_delivery_count.unwrap_or(0),
        };
        Link {
            key,
            session,
            handle: attach.handle,
            role,
            phase: Phase::Undecided(attach),
            delivery_count,
            credit: 0,
            max_message_bytes: DEFAULT_MESSAGE_BYTES,
            is_untracked: false,
            arriving: None,
            attach_bytes,
        }
    }

    /// What an attach reply says: the sending side must name the count it starts from.
    pub(crate) fn initial_delivery_count(&self) -> Option<u32> {
        (self.role == Role::Sender).then_some(INITIAL_DELIVERY_COUNT)
    }

    pub(crate) fn is_attached(&self) -> bool {
        matches!(self.phase, Phase::Attached)
    }

    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving { .. })
    }

    pub(crate) fn is_detaching(&self) -> bool {
        matches!(self.phase, Phase::Detaching)
    }

    /// Takes the credit of a flow from a client that receives: what it allows, less what it has not seen yet
    ///
    pub(crate) fn take_credit(&mut self, flow: &Flow<'_>) {
        if let Some(allowed) = flow.link_credit {
            let seen = flow.delivery_count.unwrap_or(INITIAL_DELIVERY_COUNT);
            self.credit = remaining(seen, allowed, self.delivery_count);
        }
    }

    /// Takes the count of a flow from a client that sends: it owns delivery-count (2.6.7) and advances it without
    /// deliveries when it gives credit back. Its idea of the credit is ignored: Python claims ten thousand.
    pub(crate) fn take_count(&mut self, flow: &Flow<'_>) {
        let advance = flow.delivery_count.and_then(|count| distance(self.delivery_count, count));
        if let Some(advance) = advance
            && advance <= self.credit
        {
            self.delivery_count = self.delivery_count.wrapping_add(advance);
            self.credit -= advance;
        }
    }

    /// Counts a delivery, either way. A client that sends without credit is tolerated, as Python does.
    pub(crate) fn count_delivery(&mut self) {
        self.delivery_count = self.delivery_count.wrapping_add(1);
        self.credit = self.credit.saturating_sub(1);
    }

    /// Completes `session_flow` with what this link has to say.
    pub(crate) fn flow<'a>(&self, session_flow: Flow<'a>) -> Flow<'a> {
        Flow {
            handle: Some(self.handle),
            delivery_count: Some(self.delivery_count),
            link_credit: Some(self.credit),
            available: (self.role == Role::Sender).then_some(0),
            ..session_flow
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(role: Role) -> Link {
        Link::new(LinkKey(0), 0, Box::new(Attach::new("n", 4, role)), 0)
    }

    fn flow(delivery_count: Option<u32>, link_credit: u32) -> Flow<'static> {
        Flow { handle: Some(4), delivery_count, link_credit: Some(link_credit), ..Flow::default() }
    }

    #[test]
    fn credit_is_what_the_client_allows_less_what_it_has_not_seen() {
        //
        let mut link = link(Role::Receiver);
        link.take_credit(&flow(None, 5));
        assert_eq!(link.credit, 5);
        link.count_delivery();
        link.count_delivery();
        link.take_credit(&flow(Some(1), 10));
        assert_eq!((link.credit, link.delivery_count), (9, 2));
        link.take_credit(&flow(Some(2), 0));
        assert_eq!(link.credit, 0);
    }

    #[test]
    fn a_flow_from_a_sending_client_gives_credit_back_but_never_takes_any() {
        //
        let mut link = link(Role::Sender);
        link.credit = 100;
        link.take_count(&flow(Some(0), 10_000));
        assert_eq!((link.credit, link.delivery_count), (100, 0));
        link.take_count(&flow(Some(40), 0));
        assert_eq!((link.credit, link.delivery_count), (60, 40));
        link.take_count(&flow(Some(5000), 0));
        link.take_count(&flow(Some(3), 0));
        assert_eq!((link.credit, link.delivery_count), (60, 40));
    }

    #[test]
    fn a_client_that_overruns_its_credit_is_tolerated() {
        //
        let mut link = link(Role::Sender);
        link.count_delivery();
        assert_eq!((link.credit, link.delivery_count), (0, 1));
    }
}
