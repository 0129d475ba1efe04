//! One partition: a broker and its journal, in the hands of one thread at a time.
//!
//! It never waits by itself, except for its own sync when there is nothing else to do: whoever runs it gives it work
//! ([`Partition::accept`]) and turns ([`Partition::turn`]). That is what lets the simulator run the same code without
//! threads. What must hold: an effect leaves only when everything it may have seen is durable, effects of one
//! connection leave in the order in which they were decided, and an append is written when the one before is durable.

use crate::batch::Batch;
use crate::cache::Cache;
use crate::condition::Condition;
use crate::foresight::Foresight;
use crate::inbox::{Checked, Inbox, Item};
use crate::limits::{
    APPEND_BYTES, FULL_RETRY_MS, MEANWHILE_ITEMS, TAIL_CACHE_BYTES, TURN_BYTES, UNHEARD_APPENDS,
};
use crate::mailbox::{self, Mailbox, Outgoing, Sent};
use crate::runner::{CheckJob, HandSync, Next, ReadJob, SyncJob, Waiting, Workers};
use crate::upkeep::{Pace, Upkeep};
use broker::ids::IdMap;
use broker::planted::{Bug, is_planted};
use broker::{
    Answer, Arrivals, BodyId, Broker, Command, ConnectionId, Context, Decided, Decision, Delivery, Doubt,
    Effect, LinkId, Needs, Position, Release, Sequence, Time,
};
use bytes::Bytes;
use journal::{BODY_PREFIX_BYTES, Draft, Journal, Place, SnapshotInfo};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What has happened since the start, for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    pub appends: AtomicU64,
    /// Everything that was written for them, with what frames them.
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
    /// Appends in flight that effects of this connection wait for; nothing may overtake them.
    in_flight: u32,
}

#[derive(Debug)]
pub struct Partition {
    pub(crate) broker: Broker,
    /// Before the journal, so that their work has ended when it closes.
    pub(crate) workers: Workers,
    pub(crate) journal: Box<dyn Journal>,
    cache: Arc<Cache>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) upkeep: Upkeep,
    pub(crate) condition: Arc<Condition>,
    counters: Arc<Counters>,
    ports: IdMap<ConnectionId, Port>,
    /// Connections with free effects, and with gated ones.
    free: Vec<ConnectionId>,
    gated: Vec<ConnectionId>,
    /// What was written and is not known to be durable, oldest first. All but the newest are: their news are under way.
    in_flight: VecDeque<InFlight>,
    backlog: VecDeque<Item>,
    pub(crate) decision: Decision,
    draft: Draft,
    /// Bytes handed over whose records are in the draft.
    draft_held_bytes: usize,
    draft_body_bytes: usize,
    next: Position,
    /// Where bodies lie whose copies are in the draft: the copies have no place before it is written.
    pub(crate) moving: IdMap<BodyId, BodyId>,
    /// Commands whose bodies are being read; they come again.
    reading: usize,
    is_stopping: bool,
    /// More came during the last sync: then it is worth while to decide during the next. What was only left at the sync thread's
    /// door does not count: the partition is called for it, and is quickest if it also syncs by itself.
    is_busy: bool,
    /// More came during the sync before the last.
    was_busy: bool,
    /// What was written last is not durable yet, and nothing else may be written.
    is_at_disk: bool,
    foresight: Foresight,
    is_sealed: bool,
    /// Nothing has happened for a while, and nothing was made of that yet.
    pub(crate) is_quiet: bool,
    /// The draft found no room and waits.
    pub(crate) is_stuck: bool,
    /// The disk is full, and is asked again then.
    pub(crate) full_until: Option<Time>,
    /// Of the newest batch.
    pub(crate) last_time: Time,
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
        let upkeep = Upkeep::new(Pace::default(), &[], &journal.stretches());
        Partition {
            broker,
            journal,
            cache,
            inbox,
            workers,
            upkeep,
            condition: Arc::default(),
            counters,
            ports: IdMap::default(),
            free: Vec::new(),
            gated: Vec::new(),
            in_flight: VecDeque::new(),
            backlog: VecDeque::new(),
            decision: Decision::default(),
            draft: Draft::default(),
            draft_held_bytes: 0,
            draft_body_bytes: 0,
            next,
            moving: IdMap::default(),
            reading: 0,
            is_stopping: false,
            is_busy: false,
            was_busy: false,
            is_at_disk: false,
            foresight: Foresight::default(),
            is_sealed: false,
            is_quiet: false,
            is_stuck: false,
            full_until: None,
            last_time: Time(0),
        }
    }

    /// Goes on where recovery has ended, at a pace of its own.
    #[must_use]
    pub fn tended(mut self, pace: Pace, snapshots: &[SnapshotInfo], last_time: Option<Time>) -> Partition {
        self.upkeep = Upkeep::new(pace, snapshots, &self.journal.stretches());
        self.last_time = last_time.unwrap_or(Time(0));
        self
    }

    pub fn condition(&self) -> &Arc<Condition> {
        &self.condition
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
                Item::Snapshotted(done) => {
                    self.broker.forget_moved(&done.forgotten);
                    self.upkeep.snapshotted(*done);
                    self.is_quiet = true;
                }
                Item::SnapshotPutOff(why) => {
                    tracing::warn!("a snapshot was put off: {why}");
                    self.upkeep.put_off();
                }
                Item::Scrub { after, reply } => {
                    // Whoever asked may have been told to stop.
                    let _ = reply.send(self.journal.scrub(after));
                }
                other => self.backlog.push_back(other),
            }
        }
        Ok(())
    }

    /// Decides what waits, lets go what may go, and starts the next append. An error is final: the journal is in
    /// nobody knows what state, and the process must stop.
    pub fn turn(&mut self, now: Time) -> Result<Turn, String> {
        self.decide_waiting(now, usize::MAX);
        let context = self.context(now);
        if !self.is_draft_full() && self.broker.next_due().is_some_and(|due| due <= context.now) {
            self.broker.tick(context, &mut self.decision);
            self.take_decision(&Bytes::new());
        }
        self.flush_free();
        self.is_stuck &= self.full_until.is_some_and(|until| now < until);
        while self.in_flight.is_empty() && self.draft.record_count > 0 && !self.is_stuck {
            self.append(now)?;
            self.flush_free();
        }
        if self.in_flight.is_empty() && !self.is_stuck {
            self.flush_gated();
        }
        self.tend(now)?;
        self.prepare_next();
        self.next_turn(now)
    }

    /// Decides what waits, on the thread of somebody who has other things to do: no file is touched, and what is due is left.
    /// Returns when the partition wants a turn of its own, which is now unless it was busy. What is decided while an append is in
    /// flight is written when that is durable, like all that is decided meanwhile; after a short silence the thread that syncs
    /// gets it at once.
    pub(crate) fn decide_meanwhile(&mut self, now: Time) -> Result<Turn, String> {
        if !self.is_in_rush() || self.is_stopping {
            // What the news have let go may go before anybody else writes something.
            self.flush_free();
            return Ok(Turn::Now);
        }
        self.decide_waiting(now, MEANWHILE_ITEMS);
        self.flush_free();
        if self.is_at_disk {
            self.prepare_next();
        } else if !self.start_meanwhile(now)? {
            return Ok(Turn::Now);
        }
        let now_of_draft = self.context(now).now;
        let is_due = self.broker.next_due().is_some_and(|due| due <= now_of_draft);
        let is_upkeep_due = self.upkeep_due().is_some_and(|due| due <= now);
        Ok(if is_due || is_upkeep_due { Turn::Now } else { self.next_turn_of_broker() })
    }

    /// Whether others may decide for the partition: the disk is busy, or was busy with more than one append in a row, and then
    /// the thread that syncs goes on without it.
    pub(crate) fn is_in_rush(&self) -> bool {
        let is_pausing = (self.is_busy || self.was_busy) && self.workers.sync.is_some();
        self.is_at_disk || (is_pausing && self.may_run_ahead())
    }

    /// Whether something may be written before the partition has heard of what was written before.
    fn may_run_ahead(&self) -> bool {
        !self.is_stuck && self.in_flight.len() < UNHEARD_APPENDS
    }

    /// Has the draft written by the thread that syncs, if nothing but that is left to do. Says whether it goes there.
    fn start_meanwhile(&mut self, now: Time) -> Result<bool, String> {
        // A snapshot begins with a look at everything, which is not for the thread of somebody else.
        if self.draft.record_count == 0 || self.upkeep.wants_snapshot() || !self.prepare() {
            return Ok(false);
        }
        let Some(job) = self.write(now)? else { return Ok(false) };
        self.workers.sync.as_ref().expect("without that thread there is no pause").start(job);
        Ok(true)
    }

    /// The disk is busy: does what can be done for the next append, if that is likely to stay as it is.
    fn prepare_next(&mut self) {
        let is_next = self.is_at_disk && self.draft.record_count > 0;
        if is_next && self.foresight.is_likely_last(self.gated.len()) && self.prepare() {
            self.foresight.prepared(self.draft.record_count);
        }
    }

    fn prepare(&mut self) -> bool {
        self.journal.prepare(&self.draft, journal::Position(self.next.0))
    }

    /// While the time of a namespace is moved, everything else waits: nothing may be decided in between.
    fn decide_waiting(&mut self, now: Time, most_items: usize) {
        for _ in 0..most_items {
            if self.is_draft_full() {
                return;
            }
            let Some(item) = self.next_item() else { return };
            self.handle(item, now);
        }
    }

    /// When there is something to do for the journal.
    fn upkeep_due(&self) -> Option<Time> {
        self.upkeep.due().or(self.is_quiet.then_some(self.upkeep.next_step))
    }

    /// The next thing to decide. A move waits for nothing but what it has asked for itself.
    fn next_item(&mut self) -> Option<Item> {
        if !self.broker.is_moving() {
            return self.backlog.pop_front();
        }
        let at = self.backlog.iter().position(|item| matches!(item, Item::Checked(_)))?;
        self.backlog.remove(at)
    }

    /// The newest batch that is known to be durable.
    pub(crate) fn committed(&self) -> journal::Position {
        let next = self.in_flight.front().map_or(self.next, |in_flight| in_flight.position);
        journal::Position(next.0 - 1)
    }

    /// Nothing is being written, and nothing waits to be.
    pub(crate) fn is_at_rest(&self) -> bool {
        let is_idle = self.backlog.is_empty() && !self.broker.is_moving();
        self.in_flight.is_empty() && self.draft.record_count == 0 && is_idle
    }

    fn next_turn(&mut self, now: Time) -> Result<Turn, String> {
        // What found no room was told to nobody, and is not waited for.
        if self.is_stopping && self.is_stuck {
            return Ok(Turn::Stopped);
        }
        if self.is_stopping && self.is_at_rest() && self.reading == 0 {
            if self.keep_locks(now)? {
                return Ok(Turn::Now);
            }
            self.seal()?;
            self.snapshot_at_stop()?;
            return Ok(Turn::Stopped);
        }
        let own = match (self.full_until, self.upkeep_due()) {
            (Some(retry), Some(due)) => Some(retry.min(due)),
            (either, other) => either.or(other),
        };
        let turn = self.next_turn_of_broker();
        Ok(match (turn, own) {
            (Turn::At(due), Some(own)) => Turn::At(due.min(own)),
            (Turn::OnArrival, Some(own)) => Turn::At(own),
            (turn, _) => turn,
        })
    }

    /// Writes the locks that are held as the last record of all. Says whether there was something to write.
    fn keep_locks(&mut self, now: Time) -> Result<bool, String> {
        let context = self.context(now);
        self.broker.keep_locks(context, &mut self.decision);
        self.take_decision(&Bytes::new());
        let is_news = self.draft.record_count > 0;
        if is_news {
            self.append(now)?;
        }
        Ok(is_news)
    }

    fn next_turn_of_broker(&self) -> Turn {
        match self.broker.next_due() {
            _ if self.broker.is_waiting() => {
                let is_read = self.backlog.iter().any(|item| matches!(item, Item::Checked(_)));
                if is_read { Turn::Now } else { Turn::OnArrival }
            }
            // A move goes on when what it has decided is on its way to the disk.
            _ if self.broker.is_moving() && self.draft.record_count > 0 => Turn::OnArrival,
            Some(Time(i64::MIN)) => Turn::Now,
            _ if !self.backlog.is_empty() && !self.is_draft_full() => Turn::Now,
            // Whatever is due is decided with the time of the next draft: after the append in flight.
            _ if self.draft.record_count > 0 => Turn::OnArrival,
            Some(due) => Turn::At(due),
            None => Turn::OnArrival,
        }
    }

    /// Nothing has happened for a while: says so in the journal.
    pub fn seal(&mut self) -> Result<(), String> {
        if !self.is_sealed && self.in_flight.is_empty() {
            match self.journal.seal() {
                Ok(()) => self.is_sealed = true,
                // A seal is a luxury.
                Err(journal::Error::Full { .. }) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        self.is_quiet = true;
        Ok(())
    }

    /// What was decided and is not written: its records, encoded, and their time.
    pub fn unwritten(&self) -> (&[u8], Time) {
        (&self.draft.records, Time(self.draft.time))
    }

    /// Whether something was decided that finds no room on the disk.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Effects that have not left: for the end of the turn, or for the disk.
    pub fn held_effects(&self) -> usize {
        self.ports.values().map(|port| port.free.len() + port.gated.len()).sum()
    }

    /// Of what is written next.
    pub(crate) fn next_position(&self) -> Position {
        self.next
    }

    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// What does not fit waits for the next append: the journal takes only so much at once.
    fn is_draft_full(&self) -> bool {
        self.draft_body_bytes + self.draft.records.len() >= APPEND_BYTES
    }

    /// All records of one batch have one time, which replay reads from the batch: that of its first record.
    pub(crate) fn context(&mut self, now: Time) -> Context {
        if self.draft.record_count == 0 && self.decision.records.is_empty() {
            self.draft.time = now.0;
        }
        Context { now: Time(self.draft.time), position: self.next }
    }

    fn handle(&mut self, item: Item, now: Time) {
        match item {
            Item::Batch(batch) => self.decide_batch(batch, now),
            Item::Connect { connection, mailbox } => {
                let port =
                    Port { mailbox, links: Vec::new(), free: Vec::new(), gated: Vec::new(), in_flight: 0 };
                self.ports.insert(connection, port);
            }
            Item::Disconnect { connection } => {
                let Some(port) = self.ports.remove(&connection) else { return };
                for link in port.links {
                    let decided = self.decide(&Command::Detach { link }, Arrivals::default(), &[], now);
                    assert_eq!(decided, Decided::Done, "a link goes without looking at bodies");
                    self.take_decision(&Bytes::new());
                }
            }
            Item::Again { command, material } => {
                self.reading -= 1;
                let material: Vec<_> = material.iter().map(|(body, bytes)| (*body, &bytes[..])).collect();
                let decided = self.decide(&command, Arrivals::default(), &material, now);
                self.fetch_if_needed(&command, decided, now);
                self.take_decision(&Bytes::new());
            }
            Item::Unreadable { command, why } => {
                self.reading -= 1;
                self.condition.report_damage(&why);
                self.context(now);
                self.broker.refuse_unreadable(&command, &mut self.decision);
                self.take_decision(&Bytes::new());
            }
            Item::Checked(checked) => self.checked(checked, now),
            Item::Copied { copies, unread, failure } => self.copied(copies, unread, failure, now),
            Item::Committed
            | Item::Failed(_)
            | Item::Stop
            | Item::Snapshotted(_)
            | Item::SnapshotPutOff(_)
            | Item::Scrub { .. } => unreachable!("taken by accept"),
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
        for (nth, command) in batch.commands.iter().enumerate() {
            // What becomes many copies, or changes much, may be more than one append holds: the rest waits for the next.
            if self.decision.weight > TURN_BYTES {
                self.take_decision(&bodies);
                if self.is_draft_full() {
                    let (commands, bodies) = (batch.commands[nth..].to_vec(), bodies.to_vec());
                    let rest = Batch { commands, messages: batch.messages, bodies, ..Batch::default() };
                    self.draft_held_bytes -= rest.held_bytes();
                    return self.backlog.push_front(Item::Batch(rest));
                }
            }
            self.note_link(command);
            let arrivals =
                Arrivals { messages: &batch.messages, bodies: &bodies, prefix_bytes: BODY_PREFIX_BYTES };
            let decided = self.decide(command, arrivals, &[], now);
            self.fetch_if_needed(command, decided, now);
        }
        self.take_decision(&bodies);
    }

    fn decide(
        &mut self,
        command: &Command,
        arrivals: Arrivals<'_>,
        material: broker::Material<'_>,
        now: Time,
    ) -> Decided {
        let context = self.context(now);
        self.broker.decide(command, arrivals, material, context, &mut self.decision)
    }

    /// Links are remembered by their connection, so that losing it loses them all.
    fn note_link(&mut self, command: &Command) {
        match command {
            Command::AttachSender { link, .. }
            | Command::AttachVia { link, .. }
            | Command::AttachReceiver { link, .. }
            | Command::AcceptSession { link, .. } => {
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

    fn fetch_if_needed(&mut self, command: &Command, decided: Decided, now: Time) {
        match decided {
            Decided::Done => {}
            Decided::Needs(needs) => self.fetch(command, needs, false, now),
            Decided::Check(needs) => self.fetch(command, needs, true, now),
        }
    }

    /// Gets what a decision needs: from the cache and at once, or from disk, on another thread if there is one.
    fn fetch(&mut self, command: &Command, needs: Needs, is_check: bool, now: Time) {
        let mut cached = Vec::new();
        self.cache.get(needs.0.iter().copied(), &mut cached);
        if cached.iter().all(Option::is_some) {
            let cached: Vec<_> = cached.into_iter().flatten().collect();
            let material: Vec<_> =
                needs.0.iter().copied().zip(cached.iter().map(|bytes| &bytes[..])).collect();
            let decided = self.decide(command, Arrivals::default(), &material, now);
            assert_eq!(decided, Decided::Done, "a command asks once");
            return;
        }
        let journal = &*self.journal;
        let place = |body: &BodyId| Some((*body, place_in(journal, self.stored_as(*body))?));
        let places: Vec<_> = needs.0.iter().filter_map(place).collect();
        self.reading += 1;
        self.workers.read(ReadJob { command: command.clone(), places, is_check }, &self.inbox);
    }

    /// Finds out whether messages can be read: those in the cache are whole, for they never left memory.
    fn check(&mut self, doubt: Doubt) {
        let bodies = doubt.messages.iter().flat_map(|(_, bodies)| bodies.iter().copied());
        let mut cached = Vec::new();
        self.cache.get(bodies, &mut cached);
        let source = doubt.source;
        self.reading += 1;
        if cached.iter().all(Option::is_some) {
            let sequences = doubt.messages.iter().map(|(sequence, _)| *sequence);
            let mut checked = Checked::new(source);
            if doubt.wants_content {
                let content = cached.into_iter().flatten().map(|bytes| Some(bytes[..].into()));
                checked.content = Some(sequences.zip(content).collect());
            } else {
                checked.whole = sequences.collect();
            }
            return self.backlog.push_back(Item::Checked(checked));
        }
        let place = |body| {
            place_in(&*self.journal, self.stored_as(body)).expect("what may be handed out was written")
        };
        let places =
            |(sequence, bodies): (Sequence, Vec<BodyId>)| (sequence, bodies.into_iter().map(place).collect());
        let messages = doubt.messages.into_iter().map(places).collect();
        let wants_content = doubt.wants_content;
        self.workers.check(CheckJob { source, messages, wants_content }, &self.inbox);
    }

    fn checked(&mut self, checked: Checked, now: Time) {
        self.reading -= 1;
        checked.damage.iter().for_each(|damage| self.condition.report_damage(damage));
        let context = self.context(now);
        let Checked { source, whole, damaged, content, .. } = checked;
        match content {
            Some(content) => self.broker.read(source, content, context, &mut self.decision),
            None => self.broker.checked(source, &whole, &damaged, context, &mut self.decision),
        }
        self.take_decision(&Bytes::new());
    }

    /// Where the journal has a body.
    fn stored_as(&self, body: BodyId) -> journal::BodyId {
        let moving = self.moving.get(&body).copied();
        journal::BodyId(moving.unwrap_or_else(|| self.broker.durable().stored_as(body)).0)
    }

    /// Moves what was decided into the draft and to the ports. `bodies` is the buffer that the commands spoke of.
    pub(crate) fn take_decision(&mut self, bodies: &Bytes) {
        let mut decision = std::mem::take(&mut self.decision);
        self.take_bodies(&decision.bodies, bodies);
        for record in &decision.records {
            record.encode(&mut self.draft.records);
        }
        self.draft.record_count += decision.records.len() as u32;
        for release in decision.effects.drain(..) {
            self.route(release);
        }
        for doubt in decision.doubts.drain(..) {
            self.check(doubt);
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
        let is_free = release.is_free && port.gated.is_empty() && port.in_flight == 0;
        let (list, connections) =
            if is_free { (&mut port.free, &mut self.free) } else { (&mut port.gated, &mut self.gated) };
        if list.is_empty() {
            connections.push(connection);
        }
        if let Effect::Detached { link, .. } = &release.effect {
            port.links.retain(|other| other != link);
        }
        let (durable, moving, journal) = (self.broker.durable(), &self.moving, &self.journal);
        let place = |body| {
            let stored = moving.get(&body).copied().unwrap_or_else(|| durable.stored_as(body));
            place_in(&**journal, journal::BodyId(stored.0))
        };
        match release.effect {
            Effect::Accepted { delivery, .. } if delivery % 16 == 15 && is_planted(Bug::LostEffect) => {}
            Effect::Deliver { link, mode, delivery } => {
                let mut parts = all_places(&delivery, place).expect("what may be handed out was written");
                let place = parts.pop().expect("the body is the last of them");
                self.counters.delivered_messages.fetch_add(1, Ordering::Relaxed);
                list.push(Outgoing::Deliver(Sent { link, mode, delivery, place, parts }));
            }
            Effect::Answered { request, answer } => {
                // Those that are as new as the draft get their places when it is written.
                let placed = |message| all_places(message, place).unwrap_or_default();
                let places = bodies_of(&answer).iter().map(placed).collect();
                list.push(Outgoing::Answered { request, answer, places });
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
    pub(crate) fn append(&mut self, now: Time) -> Result<(), String> {
        let Some(job) = self.write(now)? else { return Ok(()) };
        let has_more = !self.backlog.is_empty() || !self.inbox.is_empty();
        match &self.workers.sync {
            Some(thread) if has_more || self.is_busy => thread.start(job),
            _ => {
                let waiting = job.wait()?;
                (self.is_busy, self.was_busy) = (!self.inbox.is_empty(), false);
                waiting.go(&self.inbox);
                self.finish(now);
            }
        }
        Ok(())
    }

    /// The append before is durable, which is about to be told: writes what was decided meanwhile, if there is something,
    /// so that the disk need not wait until that has been heard.
    pub(crate) fn follow(&mut self, now: Time) -> Result<Option<Next>, String> {
        let has_next = self.draft.record_count > 0;
        (self.is_busy, self.was_busy) = (has_next, self.is_busy);
        self.is_at_disk = false;
        if !has_next || !self.may_run_ahead() {
            return Ok(None);
        }
        let is_awaited = self.in_flight.back().is_none_or(|durable| self.broker.is_awaited(durable.position));
        // What did not fit can be decided while the disk is busy with what did.
        let is_awaited = is_awaited || !self.backlog.is_empty();
        Ok(self.write(now)?.map(|job| Next { job, is_awaited }))
    }

    /// Writes the draft: what is left to do is to sync it. Nothing, if there is no room for it.
    fn write(&mut self, now: Time) -> Result<Option<SyncJob>, String> {
        let position = self.next;
        let at = journal::Position(position.0);
        let ticket = match self.journal.append(&self.draft, at) {
            Ok(ticket) => ticket,
            Err(journal::Error::Full { .. }) => {
                // Nothing was written and nothing was told: what was decided waits until there is room.
                self.is_stuck = true;
                self.full_until = Some(Time(now.0 + FULL_RETRY_MS));
                return Ok(None);
            }
            Err(error) => return Err(error.to_string()),
        };
        self.last_time = Time(self.draft.time);
        let body_bytes = self.draft.body_lengths.iter().map(|length| *length as usize).sum();
        let batch_bytes = self.journal.batch_bytes(&self.draft);
        self.upkeep.appended(batch_bytes, body_bytes);
        self.counters.appends.fetch_add(1, Ordering::Relaxed);
        self.counters.appended_bytes.fetch_add(batch_bytes as u64, Ordering::Relaxed);
        self.next = Position(position.0 + 1);
        self.is_sealed = false;
        self.is_at_disk = true;
        self.foresight.written(self.draft.record_count, self.gated.len());
        self.draft.clear();
        self.moving.clear();
        self.draft_body_bytes = 0;
        self.share_state(at, self.last_time);
        let connections = std::mem::take(&mut self.gated);
        let mut releases = Vec::with_capacity(connections.len());
        for connection in &connections {
            if let Some(port) = self.ports.get_mut(connection) {
                port.in_flight += 1;
                place_answers(&*self.journal, &mut port.gated);
                releases.push((Arc::clone(&port.mailbox), std::mem::take(&mut port.gated)));
            }
        }
        self.in_flight.push_back(InFlight { position, connections });
        self.condition.sync_began();
        let held_bytes = std::mem::take(&mut self.draft_held_bytes);
        Ok(Some(SyncJob { ticket, waiting: Waiting { releases, held_bytes } }))
    }

    /// The oldest append is durable, and what waited for it has left.
    fn finish(&mut self, now: Time) {
        let in_flight = self.in_flight.pop_front().expect("an append is in flight");
        if self.in_flight.is_empty() {
            self.is_at_disk = false;
            self.condition.sync_ended();
        }
        for connection in in_flight.connections {
            if let Some(port) = self.ports.get_mut(&connection) {
                port.in_flight -= 1;
            }
        }
        self.start_snapshot(journal::Position(in_flight.position.0));
        let context = self.context(now);
        self.broker.committed(in_flight.position, context, &mut self.decision);
        self.take_decision(&Bytes::new());
    }
}

/// Says of answers that are about to leave where those of their messages lie that were not written before.
fn place_answers(journal: &dyn Journal, outgoing: &mut [Outgoing]) {
    for each in outgoing {
        if let Outgoing::Answered { answer, places, .. } = each {
            let messages = bodies_of(answer);
            for (message, found) in messages.iter().zip(places).filter(|(_, found)| found.is_empty()) {
                let place = |body: BodyId| place_in(journal, journal::BodyId(body.0));
                *found = all_places(message, place).expect("what is written has its place");
            }
        }
    }
}

/// What an answer has bodies of.
fn bodies_of(answer: &Result<Answer, broker::Refusal>) -> &[Delivery] {
    match answer {
        Ok(Answer::Messages(messages)) => messages,
        Ok(Answer::SessionState(Some(state))) => std::slice::from_ref(state),
        _ => &[],
    }
}

/// Where a body lies; none, if it is not written yet. One that was written and is in no file any more has a place too, which
/// cannot be read: the damage is told to whoever needs that body, and nobody else suffers.
fn place_in(journal: &dyn Journal, stored: journal::BodyId) -> Option<Place> {
    let missing = || (stored < journal.next_body()).then(|| Place::nowhere(stored));
    journal.place(stored).or_else(missing)
}

/// Where a message lies: the parts before its body, and its body. None, if it is not written yet.
fn all_places(message: &Delivery, place: impl Fn(BodyId) -> Option<Place>) -> Option<Vec<Place>> {
    let parts = message.extra.as_ref().map_or(&[][..], |extra| &extra.parts);
    parts.iter().chain([&message.body]).map(|body| place(*body)).collect()
}

#[cfg(test)]
mod tests;
