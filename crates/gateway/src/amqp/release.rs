//! Effects going out: answers become frames, messages take their place in the queue of their link.

use super::connection::ConnectionTask;
use super::link::Kind;
use amqp::{LinkKey, State};
use broker::Notice;
use engine::Outgoing;

impl<S> ConnectionTask<S> {
    /// Turns effects into frames until none are left or the output is full.
    pub(super) fn release(&mut self) {
        let mut taken = Vec::new();
        self.engine.outbox().take(&mut taken);
        if self.pending.is_empty() {
            // Not copied, and given back when it is empty: a connection keeps no room for its busiest moment.
            self.pending = taken.into();
        } else {
            self.pending.extend(taken);
        }
        while self.machine.output().len() < self.output_most
            && let Some(outgoing) = self.pending.pop_front()
        {
            self.answer(outgoing);
        }
        self.serve();
        self.serve_management();
    }

    fn answer(&mut self, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Deliver(sent) => self.queue(sent),
            Outgoing::Accepted { link, first, last } => {
                self.machine.settle_incoming(LinkKey(link.link), first, last, &State::Accepted);
            }
            Outgoing::Notice(Notice::Rejected { link, delivery, refusal }) => {
                let path = self.links.get(&link.link).map_or("", |link| link.kind.path());
                let error = self.origin.refusal(&refusal, path);
                let state = State::rejected(error);
                self.machine.settle_incoming(LinkKey(link.link), delivery, delivery, &state);
            }
            Outgoing::Notice(Notice::PartTaken { link, length }) => {
                if let Some(Kind::Sender(sender)) = self.links.get_mut(&link.link).map(|link| &mut link.kind)
                {
                    sender.arriving.part_taken(length as usize);
                    self.unstored_bytes -= length as usize;
                }
            }
            Outgoing::Settled { link, first, last, outcome } => {
                tracing::debug!(address = %self.peer.address, first, last, ?outcome, "settled");
                self.settled(LinkKey(link.link), first, last, outcome);
            }
            Outgoing::Notice(Notice::NotSettled { link, delivery, refusal }) => {
                self.not_settled(LinkKey(link.link), delivery, &refusal);
            }
            Outgoing::Notice(Notice::Declared { link, delivery, transaction }) => {
                self.declared(LinkKey(link.link), delivery, transaction);
            }
            Outgoing::Notice(Notice::Staged { link, delivery, transaction, outcome }) => {
                self.staged(LinkKey(link.link), delivery, transaction, outcome);
            }
            Outgoing::Notice(Notice::Drained { link }) => self.drained(LinkKey(link.link)),
            Outgoing::Notice(Notice::Attached { link, max_message_bytes, wants_ids, session }) => {
                let entity = self.links.get(&link.link).map_or("", |link| link.kind.path());
                tracing::debug!(address = %self.peer.address, entity, "attached");
                self.attached(LinkKey(link.link), max_message_bytes, wants_ids, session);
            }
            Outgoing::Notice(Notice::Detached { link, refusal }) => {
                self.detached(LinkKey(link.link), &refusal)
            }
            Outgoing::Answered { request, answer, places } => {
                self.answered(request.request, answer, places);
            }
        }
    }
}
