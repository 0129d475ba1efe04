//! One partition: a broker and its journal, in the hands of one thread.
//!
//! It never waits by itself, except for its own sync when there is nothing else to do: whoever runs it gives it work
//! ([`Partition::accept`]) and turns ([`Partition::turn`]). That is what lets the simulator run the same code without
//! threads. What must hold: an effect leaves only when everything it may have seen is durable, effects of one
//! connection leave in the order in which they were decided, and one append is in flight at most.

use crate::batch::Batch;
use crate::cache::Cache;
use crate::inbox::{Inbox, Item};
use crate::limits::{APPEND_BYTES, TAIL_CACHE_BYTES};
use crate::mailbox::{self, Mailbox, Outgoing, Sent};
use crate::runner::{HandSync, ReadJob, SyncJob, Workers};
use broker::ids::IdMap;
use broker::planted::{Bug, is_planted};
use broker::{
    Answer, BodyId, Broker, Command, ConnectionId, Context, Decided, Decision, Delivery, Effect, LinkId,
    Needs, Position, Release, Time,
};
use bytes::Bytes;
use journal::{BODY_PREFIX_BYTES, Draft, Journal, Place};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What has happened since the start, for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    pub appends: AtomicU64,
    pub appended_bytes: AtomicU64,
    pub stored_messages: AtomicU64,
    pub delivered_messages: AtomicU64,
}

/// How soon the partition wants its next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// There is more to do.
    Now,
    /// Something is due then.
    At(Time),
    /// Only when something arrives.
    OnArrival,
    /// It was told to stop and has: everything is durable.
    Stopped,
}

/// A connection as seen from here.
#[derive(Debug)]
struct Port {
    mailbox: Arc<dyn Mailbox>,
    links: Vec<LinkId>,
    /// Effects that may leave at the end of this turn.
    free: Vec<Outgoing>,
    /// Effects that wait for the draft, or for the append in flight when the draft is empty.
    gated: Vec<Outgoing>,
    /// Effects of this connection wait for the append in flight; nothing may overtake them.
    is_in_flight: bool,
}

#[derive(Debug)]
pub struct Partition {
    broker: Broker,
    journal: Box<dyn Journal>,
    cache: Arc<Cache>,
    inbox: Arc<Inbox>,
    workers: Workers,
    counters: Arc<Counters>,
    ports: IdMap<ConnectionId, Port>,
    /// Connections with free effects, and with gated ones.
    free: Vec<ConnectionId>,
    gated: Vec<ConnectionId>,
    in_flight: Option<InFlight>,
    backlog: VecDeque<Item>,
    decision: Decision,
    draft: Draft,
    /// Bytes handed over whose records are in the draft.
    draft_held_bytes: usize,
    draft_body_bytes: usize,
    next: Position,
    /// Commands whose bodies are being read; they come again.
    reading: usize,
    is_stopping: bool,
    is_sealed: bool,
}

#[derive(Debug)]
struct InFlight {
    position: Position,
    connections: Vec<ConnectionId>,
}

impl Partition {
    /// A partition that does everything on the thread that turns it.
    pub fn alone(broker: Broker, journal: Box<dyn Journal>, inbox: Arc<Inbox>) -> Partition {
        let cache = Arc::new(Cache::new(TAIL_CACHE_BYTES));
        Partition::new(broker, journal, cache, inbox, Workers::default(), Arc::default())
    }

    /// A partition that hands the sync of an append over when more work waits, to whoever turns it.
    pub fn by_hand(broker: Broker, journal: Box<dyn Journal>, inbox: Arc<Inbox>) -> (Partition, HandSync) {
        let (sync, by_hand) = HandSync::pair();
        let mut partition = Partition::alone(broker, journal, inbox);
        partition.workers.sync = Some(sync);
        (partition, by_hand)
    }

    pub(crate) fn new(
        broker: Broker,
        journal: Box<dyn Journal>,
        cache: Arc<Cache>,
        inbox: Arc<Inbox>,
        workers: Workers,
        counters: Arc<Counters>,
    ) -> Partition {
        let next = Position(journal.tail().0 + 1);
        Partition {
            broker,
            journal,
            cache,
            inbox,
            workers,
            counters,
            ports: IdMap::default(),
            free: Vec::new(),
            gated: Vec::new(),
            in_flight: None,
            backlog: VecDeque::new(),
            decision: Decision::default(),
            draft: Draft::default(),
            draft_held_bytes: 0,
            draft_body_bytes: 0,
            next,
            reading: 0,
            is_stopping: false,
            is_sealed: false,
        }
    }

    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Takes work. News of the append in flight goes first: everything else may be waiting for it.
    pub fn accept(&mut self, items: &mut Vec<Item>, now: Time) -> Result<(), String> {
        for item in items.drain(..) {
            match item {
                Item::Committed => self.finish(now),
                Item::Failed(why) => return Err(why),
                Item::Stop => self.is_stopping = true,
                other => self.backlog.push_back(other),
            }
        }
        Ok(())
    }

    /// Decides what waits, lets go what may go, and starts the next append. An error is final: the journal is in
    /// nobody knows what state, and the process must stop.
    pub fn turn(&mut self, now: Time) -> Result<Turn, String> {
        while !self.is_draft_full()
            && let Some(item) = self.backlog.pop_front()
        {
            self.handle(item, now);
        }
        let context = self.context(now);
        if self.broker.next_due().is_some_and(|due| due <= context.now) {
            self.broker.tick(context, &mut self.decision);
            self.take_decision(&Bytes::new());
        }
        self.flush_free();
        while self.in_flight.is_none() && self.draft.record_count > 0 {
            self.append(now)?;
            self.flush_free();
        }
        if self.in_flight.is_none() {
            self.flush_gated();
        }
        self.next_turn()
    }

    fn next_turn(&mut self) -> Result<Turn, String> {
        let is_idle = self.in_flight.is_none() && self.backlog.is_empty() && self.reading == 0;
        if self.is_stopping && is_idle {
            self.seal()?;
            return Ok(Turn::Stopped);
        }
        Ok(match self.broker.next_due() {
            Some(Time(i64::MIN)) => Turn::Now,
            _ if !self.backlog.is_empty() && !self.is_draft_full() => Turn::Now,
            // Whatever is due is decided with the time of the next draft: after the append in flight.
            _ if self.draft.record_count > 0 => Turn::OnArrival,
            Some(due) => Turn::At(due),
            None => Turn::OnArrival,
        })
    }

    /// Nothing has happened for a while: says so in the journal.
    pub fn seal(&mut self) -> Result<(), String> {
        if !self.is_sealed && self.in_flight.is_none() {
            self.journal.seal().map_err(|error| error.to_string())?;
            self.is_sealed = true;
        }
        Ok(())
    }

    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// What does not fit waits for the next append: the journal takes only so much at once.
    fn is_draft_full(&self) -> bool {
        self.draft_body_bytes + self.draft.records.len() >= APPEND_BYTES
    }

    /// All records of one batch have one time, which replay reads from the batch: that of its first record.
    fn context(&mut self, now: Time) -> Context {
        if self.draft.record_count == 0 && self.decision.records.is_empty() {
            self.draft.time = now.0;
        }
        Context { now: Time(self.draft.time), position: self.next }
    }

    fn handle(&mut self, item: Item, now: Time) {
        match item {
            Item::Batch(batch) => self.decide_batch(batch, now),
            Item::Connect { connection, mailbox } => {
                let port = Port {
                    mailbox,
                    links: Vec::new(),
                    free: Vec::new(),
                    gated: Vec::new(),
                    is_in_flight: false,
                };
                self.ports.insert(connection, port);
            }
            Item::Disconnect { connection } => {
                let Some(port) = self.ports.remove(&connection) else { return };
                for link in port.links {
                    let decided = self.decide(&Command::Detach { link }, &[], &[], now);
                    assert_eq!(decided, Decided::Done, "a link goes without looking at bodies");
                    self.take_decision(&Bytes::new());
                }
            }
            Item::Again { command, material } => {
                self.reading -= 1;
                let material: Vec<_> = material.iter().map(|(body, bytes)| (*body, &bytes[..])).collect();
                if let Decided::Needs(needs) = self.decide(&command, &[], &material, now) {
                    self.fetch(&command, needs, now);
                }
                self.take_decision(&Bytes::new());
            }
            Item::Committed | Item::Failed(_) | Item::Stop => unreachable!("taken by accept"),
        }
    }

    fn decide_batch(&mut self, batch: Batch, now: Time) {
        self.draft_held_bytes += batch.held_bytes();
        // A buffer that is mostly air would be held for as long as the cache wants it.
        let bodies = if batch.bodies.capacity() > 2 * batch.bodies.len() {
            Bytes::copy_from_slice(&batch.bodies)
        } else {
            Bytes::from(batch.bodies)
        };
        for command in &batch.commands {
            self.note_link(command);
            if let Decided::Needs(needs) = self.decide(command, &batch.messages, &[], now) {
                self.fetch(command, needs, now);
            }
        }
        self.take_decision(&bodies);
    }

    fn decide(
        &mut self,
        command: &Command,
        messages: &[broker::Incoming],
        material: broker::Material<'_>,
        now: Time,
    ) -> Decided {
        let context = self.context(now);
        self.broker.decide(command, messages, material, context, &mut self.decision)
    }

    /// Links are remembered by their connection, so that losing it loses them all.
    fn note_link(&mut self, command: &Command) {
        match command {
            Command::AttachSender { link, .. } | Command::AttachReceiver { link, .. } => {
                if let Some(port) = self.ports.get_mut(&link.connection) {
                    port.links.push(*link);
                }
            }
            Command::Detach { link } => {
                if let Some(port) = self.ports.get_mut(&link.connection) {
                    port.links.retain(|other| other != link);
                }
            }
            _ => {}
        }
    }

    /// Gets what a decision needs: from the cache and at once, or from disk, on another thread if there is one.
    fn fetch(&mut self, command: &Command, needs: Needs, now: Time) {
        let mut cached = Vec::new();
        self.cache.get(needs.0.iter().copied(), &mut cached);
        if cached.iter().all(Option::is_some) {
            let cached: Vec<_> = cached.into_iter().flatten().collect();
            let material: Vec<_> =
                needs.0.iter().copied().zip(cached.iter().map(|bytes| &bytes[..])).collect();
            let decided = self.decide(command, &[], &material, now);
            assert_eq!(decided, Decided::Done, "a command asks once");
            return;
        }
        let places: Vec<_> = needs
            .0
            .iter()
            .filter_map(|body| Some((*body, self.journal.place(journal_body(*body))?)))
            .collect();
        self.reading += 1;
        self.workers.read(ReadJob { command: command.clone(), places }, &self.inbox);
    }

    /// Moves what was decided into the draft and to the ports. `bodies` is the buffer that the commands spoke of.
    fn take_decision(&mut self, bodies: &Bytes) {
        let mut decision = std::mem::take(&mut self.decision);
        self.take_bodies(&decision.bodies, bodies);
        for record in &decision.records {
            record.encode(&mut self.draft.records);
        }
        self.draft.record_count += decision.records.len() as u32;
        for release in decision.effects.drain(..) {
            self.route(release);
        }
        decision.clear();
        self.decision = decision;
    }

    /// Adds stored bodies to the draft: neighbours in the buffer stay one piece.
    fn take_bodies(&mut self, stored: &[broker::Intake], bodies: &Bytes) {
        // A buffer of which little is stored would be held whole by the cache for that little.
        let stored_bytes: usize =
            stored.iter().map(|intake| BODY_PREFIX_BYTES + intake.length as usize).sum();
        let is_mostly_refused = 2 * stored_bytes < bodies.len();
        let mut rest = stored;
        while let Some(first) = rest.first() {
            let start = first.offset as usize;
            let mut end = start;
            let run = rest
                .iter()
                .take_while(|intake| {
                    let is_next = intake.offset as usize == end;
                    end += if is_next { BODY_PREFIX_BYTES + intake.length as usize } else { 0 };
                    is_next
                })
                .count();
            let piece = match is_mostly_refused {
                true => Bytes::copy_from_slice(&bodies[start..end]),
                false => bodies.slice(start..end),
            };
            let from = self.draft.body_lengths.len();
            let first_id = BodyId(self.journal.next_body().0 + from as u64);
            self.draft.body_lengths.extend(rest[..run].iter().map(|intake| intake.length));
            self.cache.put(first_id, &self.draft.body_lengths[from..], &piece);
            self.draft_body_bytes += piece.len();
            self.draft.pieces.push(piece);
            rest = &rest[run..];
        }
        self.counters.stored_messages.fetch_add(stored.len() as u64, Ordering::Relaxed);
    }

    fn route(&mut self, release: Release) {
        let connection = release.effect.connection();
        let Some(port) = self.ports.get_mut(&connection) else { return };
        let is_free = release.is_free && port.gated.is_empty() && !port.is_in_flight;
        let (list, connections) =
            if is_free { (&mut port.free, &mut self.free) } else { (&mut port.gated, &mut self.gated) };
        if list.is_empty() {
            connections.push(connection);
        }
        if let Effect::Detached { link, .. } = &release.effect {
            port.links.retain(|other| other != link);
        }
        match release.effect {
            Effect::Accepted { delivery, .. } if delivery % 16 == 15 && is_planted(Bug::LostEffect) => {}
            Effect::Deliver { link, mode, delivery } => {
                let (place, parts) = places(&*self.journal, &delivery);
                self.counters.delivered_messages.fetch_add(1, Ordering::Relaxed);
                list.push(Outgoing::Deliver(Sent { link, mode, delivery, place, parts }));
            }
            // Its messages may be as new as the draft: they have their places when it is written.
            Effect::Answered { request, answer } => {
                list.push(Outgoing::Answered { request, answer, places: Vec::new() });
            }
            effect => mailbox::push(list, effect),
        }
    }

    fn flush_free(&mut self) {
        for connection in self.free.drain(..) {
            if let Some(port) = self.ports.get_mut(&connection) {
                port.mailbox.put(std::mem::take(&mut port.free));
            }
        }
    }

    /// Nothing is pending: what waited for everything so far waits for nothing.
    fn flush_gated(&mut self) {
        for connection in self.gated.drain(..) {
            if let Some(port) = self.ports.get_mut(&connection) {
                place_answers(&*self.journal, &mut port.gated);
                port.mailbox.put(std::mem::take(&mut port.gated));
            }
        }
        self.inbox.release(std::mem::take(&mut self.draft_held_bytes));
    }

    /// Writes the draft, and has it synced: by ourselves if nothing waits, else elsewhere while we go on deciding.
    fn append(&mut self, now: Time) -> Result<(), String> {
        let position = self.next;
        let at = journal::Position(position.0);
        let ticket = self.journal.append(&self.draft, at).map_err(|error| error.to_string())?;
        self.counters.appends.fetch_add(1, Ordering::Relaxed);
        self.counters.appended_bytes.fetch_add(self.draft_body_bytes as u64, Ordering::Relaxed);
        self.next = Position(position.0 + 1);
        self.is_sealed = false;
        self.draft.clear();
        self.draft_body_bytes = 0;
        let connections = std::mem::take(&mut self.gated);
        let mut releases = Vec::with_capacity(connections.len());
        for connection in &connections {
            if let Some(port) = self.ports.get_mut(connection) {
                port.is_in_flight = true;
                place_answers(&*self.journal, &mut port.gated);
                releases.push((Arc::clone(&port.mailbox), std::mem::take(&mut port.gated)));
            }
        }
        self.in_flight = Some(InFlight { position, connections });
        let job = SyncJob { ticket, releases, held_bytes: std::mem::take(&mut self.draft_held_bytes) };
        let is_busy = !self.backlog.is_empty() || !self.inbox.is_empty();
        match &self.workers.sync {
            Some(thread) if is_busy => thread.start(job),
            _ => {
                job.run(&self.inbox)?;
                self.finish(now);
            }
        }
        Ok(())
    }

    fn finish(&mut self, now: Time) {
        let in_flight = self.in_flight.take().expect("an append is in flight");
        for connection in in_flight.connections {
            if let Some(port) = self.ports.get_mut(&connection) {
                port.is_in_flight = false;
            }
        }
        let context = self.context(now);
        self.broker.committed(in_flight.position, context, &mut self.decision);
        self.take_decision(&Bytes::new());
    }
}

/// Where the body of a message lies, and the parts before it.
fn places(journal: &dyn Journal, delivery: &Delivery) -> (Place, Vec<Place>) {
    let place =
        |body| journal.place(journal_body(body)).expect("the body of a message that is there is there");
    let parts = delivery.extra.as_ref().map(|extra| extra.parts.iter().copied().map(place).collect());
    (place(delivery.body), parts.unwrap_or_default())
}

/// Says of answers that are about to leave where their messages lie.
fn place_answers(journal: &dyn Journal, outgoing: &mut [Outgoing]) {
    for each in outgoing {
        if let Outgoing::Answered { answer: Ok(Answer::Messages(messages)), places: found, .. } = each {
            found.extend(messages.iter().map(|message| {
                let (place, mut parts) = places(journal, message);
                parts.push(place);
                parts
            }));
        }
    }
}

fn journal_body(body: BodyId) -> journal::BodyId {
    journal::BodyId(body.0)
}

#[cfg(test)]
mod tests;
