//! Work is decided piece by piece: what is recorded goes into the draft, what is to leave to the ports.

use super::Partition;
use super::places::{all_places, bodies_of, place_in};
use crate::batch::Batch;
use crate::ids::ForJournal;
use crate::limits::{TURN_BYTES, TURN_STEPS};
use crate::mailbox::{self, Outgoing, Sent};
use crate::work::Work;
use broker::planted::{Bug, is_planted};
use broker::{Arrivals, Body, Command, Decided, Effect, Material, Notice, Release, Time};
use bytes::Bytes;
use journal::BODY_PREFIX_BYTES;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

impl Partition {
    /// Decides at most so many pieces of what was accepted, as far as the draft has room, until somebody's turn is over: then
    /// work that has come meanwhile is looked at first.
    pub(super) fn decide_waiting(&mut self, most: usize, now: Time) {
        let begun = self.worked_steps;
        for _ in 0..most {
            if self.drafting.is_full() || self.worked_steps - begun > TURN_STEPS {
                return;
            }
            let Some(work) = self.next_work() else { return };
            self.decide_work(work, now);
        }
    }

    /// Puts back what is left of a batch, and behind it what else its connection has brought: behind all others.
    fn put_back(&mut self, rest: Batch) {
        let connection = rest.commands.first().map(Command::connection);
        let is_theirs = |work: &Work| match work {
            Work::Batch(batch) => batch.commands.first().map(Command::connection) == connection,
            Work::Disconnect { connection: other } => Some(*other) == connection,
            _ => false,
        };
        let waiting = std::mem::take(&mut self.backlog);
        let (theirs, others): (VecDeque<_>, VecDeque<_>) = waiting.into_iter().partition(is_theirs);
        self.backlog = others;
        self.backlog.push_back(Work::Batch(rest));
        self.backlog.extend(theirs);
    }

    /// The next thing to decide. An advance waits for nothing but what it has asked for itself.
    fn next_work(&mut self) -> Option<Work> {
        if !self.broker.is_advancing() {
            return self.backlog.pop_front();
        }
        let at = self.backlog.iter().position(|work| matches!(work, Work::MessagesRead(_)))?;
        self.backlog.remove(at)
    }

    fn decide_work(&mut self, work: Work, now: Time) {
        match work {
            Work::Batch(batch) => self.decide_batch(batch, now),
            Work::Connect { connection, mailbox } => {
                self.ports.open(connection, mailbox);
            }
            Work::Disconnect { connection } => {
                for link in self.ports.close(connection) {
                    let decided =
                        self.decide_one(&Command::Detach { link }, Arrivals::default(), Material::NONE, now);
                    assert_eq!(decided, Decided::Done, "a link goes without looking at bodies");
                    self.take_decision(&Bytes::new());
                }
            }
            Work::Again { waiting, material } => self.decide_again(waiting, &material, now),
            Work::Unreadable { waiting, why } => self.refuse_unreadable(&waiting, &why, now),
            Work::MessagesRead(read) => self.messages_read(read, now),
            Work::Copied { copies, unread, failure } => self.copied(copies, unread, failure, now),
            Work::Failed(_)
            | Work::Stop
            | Work::Snapshotted(_)
            | Work::SnapshotPutOff(_)
            | Work::Scrub { .. } => unreachable!("taken by accept"),
        }
    }

    fn decide_batch(&mut self, mut batch: Batch, now: Time) {
        self.drafting.held_bytes += batch.held_bytes();
        // A buffer that is mostly air would be held for as long as the cache wants it.
        let bodies = if batch.bodies.capacity() > 2 * batch.bodies.len() {
            Bytes::copy_from_slice(&batch.bodies)
        } else {
            Bytes::from(batch.bodies)
        };
        let begun = self.worked_steps;
        let connection = batch.commands.first().map(Command::connection);
        let mut waiting = 0;
        for nth in 0..batch.commands.len() {
            // What becomes many copies, or changes much, may be more than one append holds, and takes long: the rest waits
            // until the others have had their turn.
            if self.decision.weight > TURN_BYTES || self.worked_steps - begun > TURN_STEPS {
                self.take_decision(&bodies);
                let (commands, bodies) = (batch.commands.split_off(nth), bodies.to_vec());
                let (messages, extra_bytes) = (batch.messages, batch.extra_bytes);
                let rest = Batch { commands, messages, bodies, extra_bytes, ..Batch::default() };
                self.drafting.held_bytes -= rest.held_bytes();
                self.ports.decided(connection, nth - waiting);
                return self.put_back(rest);
            }
            let command = &mut batch.commands[nth];
            self.ports.note_link(command);
            let arrivals =
                Arrivals { messages: &batch.messages, bodies: &bodies, prefix_bytes: BODY_PREFIX_BYTES };
            if let Decided::Needs(needs) = self.decide_one(command, arrivals, Material::NONE, now) {
                waiting += usize::from(self.find_out(command, needs, now));
            }
        }
        self.ports.decided(connection, batch.commands.len() - waiting);
        self.take_decision(&bodies);
    }

    pub(super) fn decide_one(
        &mut self,
        command: &Command,
        arrivals: Arrivals<'_>,
        material: &Material,
        now: Time,
    ) -> Decided {
        let context = self.context(now);
        let before = self.broker.steps_spent(&self.decision);
        let decided = self.broker.decide(command, arrivals, material, context, &mut self.decision);
        self.note_slice(before);
        decided
    }

    /// Moves what was decided into the draft and to the ports. `bodies` is the buffer that the commands spoke of.
    pub(crate) fn take_decision(&mut self, bodies: &Bytes) {
        let mut decision = std::mem::take(&mut self.decision);
        self.drafting.take_bodies(&decision.bodies, &decision.made, bodies, &self.cache);
        self.drafting.take_records(&decision.records);
        let arrived = decision.bodies.iter().filter(|body| matches!(body, Body::Arrived(_))).count();
        self.counters.stored_messages.fetch_add(arrived as u64, Ordering::Relaxed);
        for release in decision.effects.drain(..) {
            self.route(release);
        }
        for request in decision.read_requests.drain(..) {
            self.read_messages(request);
        }
        decision.clear();
        self.decision = decision;
    }

    fn route(&mut self, release: Release) {
        if let Effect::Notice(Notice::Detached { link, .. }) = &release.effect {
            self.ports.forget_link(*link);
        }
        let Some(list) = self.ports.list(release.effect.connection(), release.is_free) else { return };
        let (durable, drafting, journal) = (self.broker.durable(), &self.drafting, &self.journal);
        let place = |body| {
            let stored = drafting.original(body).unwrap_or_else(|| durable.stored_as(body));
            place_in(&**journal, stored.for_journal())
        };
        match release.effect {
            Effect::Accepted { delivery, .. } if delivery % 16 == 15 && is_planted(Bug::LostEffect) => {}
            Effect::Deliver { link, mode, delivery } => {
                let mut parts = all_places(&delivery, place).expect("what may be handed out was written");
                let overlay = delivery.stored_overlay().and_then(|_| parts.pop()).map(Box::new);
                let place = parts.pop().expect("the body is the last of what it is made of");
                self.counters.delivered_messages.fetch_add(1, Ordering::Relaxed);
                list.push(Outgoing::Deliver(Sent { link, mode, delivery, place, parts, overlay }));
            }
            Effect::Answered { request, answer } => {
                // Those that are as new as the draft get their places when it is written.
                let placed = |message| all_places(message, place).unwrap_or_default();
                let places = bodies_of(&answer).iter().map(placed).collect();
                list.push(Outgoing::Answered { request, answer, places });
            }
            Effect::Accepted { link, delivery } => mailbox::accepted(list, link, delivery),
            Effect::Settled { link, delivery, outcome } => mailbox::settled(list, link, delivery, outcome),
            Effect::Notice(notice) => list.push(Outgoing::Notice(notice)),
        }
    }
}
