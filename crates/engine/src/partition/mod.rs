//! One bus partition: a broker and its journal, in the hands of one thread at a time.
//!
//! It is what [`crate::commit`] runs: work is accepted and decided (`decide.rs`), what was decided becomes an append
//! (`drafting.rs`), and effects leave to the connections they are for (`ports.rs`). It never waits by itself. What must
//! hold: an effect leaves only when everything it may have seen is durable, and effects of one connection leave in the
//! order in which they were decided.

mod decide;
mod drafting;
mod fetch;
mod places;
mod ports;
#[cfg(test)]
mod tests;

pub use ports::Unreleased;

use crate::budget::Budget;
use crate::cache::Cache;
use crate::clock::Clock;
use crate::commit::{Commit, Decider, DraftSize, Due, Inbox, Moment};
use crate::health::Health;
use crate::ids::ForBroker;
use crate::limits::{SEAL_AFTER, TAIL_CACHE_BYTES};
use crate::reserve::Reserve;
use crate::runner::Workers;
use crate::upkeep::{Upkeep, UpkeepSettings};
use crate::work::Work;
use broker::ids::IdMap;
use broker::{BodyId, Broker, Context, Decision, Position, Time};
use drafting::Drafting;
use journal::{Journal, Resolution, SnapshotInfo, Ticket};
use ports::Ports;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// What has happened since the start, for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    pub appends: AtomicU64,
    /// Everything that was written for them, with what frames them.
    pub appended_bytes: AtomicU64,
    pub stored_messages: AtomicU64,
    pub delivered_messages: AtomicU64,
    /// The most that one call of the broker has cost, in steps ([`broker::limits::SLICE_STEPS`]).
    pub longest_slice_steps: AtomicUsize,
}

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    No,
    Asked,
    Done,
}

/// Whether the journal says that everything in it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sealed {
    Yes,
    /// It is tried when nothing has happened for a while, and not before this.
    NotBefore(Moment),
}

#[derive(Debug)]
pub struct Partition {
    pub(crate) broker: Broker,
    /// Before the journal, so that their work has ended when it closes.
    pub(crate) workers: Workers,
    pub(crate) journal: Box<dyn Journal>,
    clock: Box<dyn Clock>,
    pub(crate) inbox: Arc<Inbox<Work>>,
    budget: Arc<Budget>,
    cache: Arc<Cache>,
    pub(crate) upkeep: Upkeep,
    pub(crate) reserve: Reserve<Time>,
    pub(crate) health: Arc<Health>,
    counters: Arc<Counters>,
    ports: Ports,
    backlog: VecDeque<Work>,
    pub(crate) decision: Decision,
    drafting: Drafting,
    /// The position of the append that is being decided.
    next_position: Position,
    /// What all calls of the broker have cost, in steps.
    worked_steps: usize,
    /// Commands whose bodies are being read; they come again.
    reading: usize,
    ending: Ending,
    sealed: Sealed,
    /// Nothing has happened for a while, and nothing was made of that yet.
    pub(crate) is_quiet: bool,
    /// The owner's time of the newest batch.
    pub(crate) last_time: Time,
    /// Why it cannot go on.
    failure: Option<String>,
}

/// What a partition shares with others.
#[derive(Debug)]
pub struct Environment {
    pub inbox: Arc<Inbox<Work>>,
    pub budget: Arc<Budget>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) workers: Workers,
}

impl Default for Environment {
    fn default() -> Environment {
        Environment {
            inbox: Arc::default(),
            budget: Arc::default(),
            cache: Arc::new(Cache::new(TAIL_CACHE_BYTES)),
            counters: Arc::default(),
            workers: Workers::default(),
        }
    }
}

impl Environment {
    pub fn new(inbox: Arc<Inbox<Work>>, budget: Arc<Budget>) -> Environment {
        Environment { inbox, budget, ..Environment::default() }
    }

    /// What connections use of it.
    pub(crate) fn shared(&self) -> (Arc<Budget>, Arc<Cache>, Arc<Counters>) {
        (self.budget.clone(), self.cache.clone(), self.counters.clone())
    }
}

impl Partition {
    pub fn new(
        broker: Broker,
        journal: Box<dyn Journal>,
        clock: Box<dyn Clock>,
        environment: Environment,
    ) -> Partition {
        let Environment { inbox, budget, cache, counters, workers } = environment;
        Partition {
            broker,
            workers,
            clock,
            inbox,
            budget,
            cache,
            upkeep: Upkeep::new(UpkeepSettings::default(), &[], &journal.stretches()),
            reserve: Reserve::default(),
            health: Arc::default(),
            counters,
            ports: Ports::default(),
            backlog: VecDeque::new(),
            decision: Decision::default(),
            drafting: Drafting::new(journal.next_body()),
            next_position: Position(journal.tail().for_broker().0 + 1),
            journal,
            worked_steps: 0,
            reading: 0,
            ending: Ending::No,
            sealed: Sealed::NotBefore(Moment(0)),
            is_quiet: false,
            last_time: Time(0),
            failure: None,
        }
    }

    /// Goes on where recovery has ended, with settings of its own.
    #[must_use]
    pub fn tended(
        mut self,
        settings: UpkeepSettings,
        snapshots: &[SnapshotInfo],
        last_time: Option<Time>,
    ) -> Partition {
        self.upkeep = Upkeep::new(settings, snapshots, &self.journal.stretches());
        self.last_time = last_time.unwrap_or(Time(0));
        self
    }

    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// What was decided and is not written: its records, encoded, and their time.
    pub fn unwritten(&self) -> (&[u8], Time) {
        (&self.drafting.draft.records, Time(self.drafting.draft.time))
    }

    /// Effects that have not left: for the end of a decision, or for the disk.
    pub fn held_effects(&self) -> usize {
        self.ports.held()
    }

    /// What the next record is decided with.
    pub(crate) fn context(&mut self, now: Time) -> Context {
        let now = self.drafting.time(self.decision.records.is_empty(), now);
        Context { now, position: self.next_position }
    }

    /// Whether somebody gets something when the draft is durable.
    fn is_awaited(&self) -> bool {
        self.ports.has_gated()
            || self.broker.is_awaited(self.next_position)
            || self.broker.is_advancing()
            || self.ending != Ending::No
    }

    /// Nothing is decided that is not written, and nothing waits to be decided.
    pub(crate) fn is_idle(&self) -> bool {
        self.drafting.is_empty() && self.backlog.is_empty() && !self.broker.is_advancing()
    }

    /// Where bodies are stored whose copies are in the draft.
    pub(crate) fn relocating(&mut self) -> &mut IdMap<BodyId, BodyId> {
        &mut self.drafting.relocating
    }

    /// An append is wanted though nothing need be recorded: two snapshots at one position would be one.
    pub(crate) fn want_append(&mut self, now: Time) {
        self.context(now);
        self.drafting.is_wanted = true;
    }

    /// Lets go what waits for nothing.
    fn flush(&mut self, commit: &Commit) {
        self.ports.flush_free();
        if self.drafting.is_empty() && !commit.is_in_flight() {
            let (journal, durable) = (&*self.journal, self.broker.durable());
            self.ports.flush_gated(|outgoing| places::place_answers(journal, durable, outgoing));
            self.budget.release(std::mem::take(&mut self.drafting.held_bytes));
        }
    }

    /// Says of the answers that wait for an append where their messages are stored, as far as the journal knows by now.
    fn place_waiting(&self, waiting: &mut Unreleased) {
        let (journal, durable) = (&*self.journal, self.broker.durable());
        waiting.outgoing().for_each(|outgoing| places::place_answers(journal, durable, outgoing));
    }

    /// Nothing has happened for a while: says so in the journal.
    fn seal(&mut self, moment: Moment) -> Result<(), journal::Error> {
        match self.journal.seal() {
            Ok(()) => self.sealed = Sealed::Yes,
            // Without a seal nothing is lost: damage at the tail may pass for an interrupted write, as before.
            Err(journal::Error::Full { .. }) => {
                self.sealed = Sealed::NotBefore(moment + crate::commit::FULL_RETRY)
            }
            Err(error) => return Err(error),
        }
        self.is_quiet = true;
        Ok(())
    }

    /// When the journal is to be sealed, if nothing happens before.
    fn seal_due(&self, commit: &Commit) -> Option<Moment> {
        let Sealed::NotBefore(least) = self.sealed else { return None };
        let is_still = !commit.is_in_flight() && self.is_idle();
        is_still.then(|| least.max(commit.last_synced() + SEAL_AFTER))
    }

    /// Whether the end was asked for and nothing else is left to do. What found no room was told to nobody, and is not
    /// waited for.
    fn can_end(&self, commit: &Commit) -> bool {
        let is_done = !commit.is_in_flight() && self.is_idle() && self.reading == 0;
        self.ending == Ending::Asked && (is_done || commit.is_full())
    }

    /// Writes the locks that are held as the last record of all, seals, and takes a last snapshot.
    fn end(&mut self, commit: &Commit, now: Time, moment: Moment) -> Result<(), journal::Error> {
        if !commit.is_full() {
            let context = self.context(now);
            self.broker.keep_locks(context, &mut self.decision);
            self.take_decision(&bytes::Bytes::new());
            if !self.drafting.is_empty() {
                return Ok(());
            }
            if self.sealed != Sealed::Yes {
                self.seal(moment)?;
            }
            self.snapshot_at_stop()?;
        }
        self.ending = Ending::Done;
        Ok(())
    }

    /// What is due by time, a slice of it.
    fn tick(&mut self, now: Time) {
        let context = self.context(now);
        if !self.drafting.is_full() && self.broker.next_due().is_some_and(|due| due <= context.now) {
            let before = self.broker.steps_spent(&self.decision);
            self.broker.tick(context, &mut self.decision);
            self.note_slice(before);
            self.take_decision(&bytes::Bytes::new());
        }
    }

    /// Notes what a call of the broker has cost, if it is the most so far.
    fn note_slice(&mut self, before: usize) {
        let took = self.broker.steps_spent(&self.decision).saturating_sub(before);
        debug_assert!(took <= broker::limits::SLICE_STEPS, "one call of the broker took {took} steps");
        self.worked_steps += took;
        let longest = &self.counters.longest_slice_steps;
        // Nobody else writes it.
        if took > longest.load(Ordering::Relaxed) {
            longest.store(took, Ordering::Relaxed);
        }
    }

    /// When the broker has something to decide though nothing arrives.
    fn broker_due(&self) -> Option<Time> {
        /// Earlier than any time.
        const AT_ONCE: Option<Time> = Some(Time::AT_ONCE);
        let is_blocked = !self.drafting.is_empty();
        match self.broker.next_due() {
            _ if self.broker.is_waiting() => {
                let is_read = self.backlog.iter().any(|work| matches!(work, Work::MessagesRead(_)));
                if is_read { AT_ONCE } else { None }
            }
            // An advance goes on when what it has decided is on its way to the disk.
            _ if self.broker.is_advancing() && is_blocked => None,
            AT_ONCE => AT_ONCE,
            _ if !self.backlog.is_empty() && !self.drafting.is_full() => AT_ONCE,
            // Whatever is due is decided with the time of the next draft.
            _ if is_blocked => None,
            due => due,
        }
    }

    /// The moment of a time of the owner.
    fn due_at(&mut self, time: Time) -> Due {
        let now = self.clock.now();
        match u64::try_from(time.0.saturating_sub(now.0)) {
            Ok(wait) if wait > 0 => Due::At(self.clock.moment() + Duration::from_millis(wait)),
            _ => Due::Now,
        }
    }
}

impl Decider for Partition {
    type Work = Work;
    type Unreleased = Unreleased;

    fn moment(&mut self) -> Moment {
        self.clock.moment()
    }

    fn accept(&mut self, work: Work) {
        match work {
            Work::Failed(why) => self.failure = Some(why),
            Work::Stop => self.ending = Ending::Asked,
            Work::Snapshotted(done) => {
                self.broker.forget_relocated(&done.forgotten);
                self.upkeep.snapshotted(*done);
                self.is_quiet = true;
            }
            Work::SnapshotPutOff(why) => {
                tracing::warn!("a snapshot was put off: {why}");
                self.upkeep.put_off();
            }
            Work::Scrub { after, reply } => {
                // The asker may have been told to stop.
                let _ = reply.send(self.journal.scrub(after));
            }
            other => self.backlog.push_back(other),
        }
    }

    fn decide(&mut self, most: usize, commit: &Commit) {
        let now = self.clock.now();
        self.decide_waiting(most, now);
        self.tick(now);
        self.flush(commit);
    }

    fn drafted(&self) -> Option<DraftSize> {
        self.drafting.drafted(self.is_awaited())
    }

    fn append(&mut self, at: journal::Position) -> Result<(Ticket, Unreleased), journal::Error> {
        assert_eq!(at.0, self.next_position.0, "what was decided is for this position");
        let ticket = self.journal.append(&self.drafting.draft, at)?;
        let draft = &self.drafting.draft;
        self.last_time = Time(draft.time);
        let body_bytes = draft.body_lengths.iter().map(|length| *length as usize).sum();
        let batch_bytes = self.journal.batch_bytes(draft);
        self.upkeep.appended(batch_bytes, body_bytes);
        self.counters.appends.fetch_add(1, Ordering::Relaxed);
        self.counters.appended_bytes.fetch_add(batch_bytes as u64, Ordering::Relaxed);
        self.next_position = Position(self.next_position.0 + 1);
        self.sealed = Sealed::NotBefore(Moment(0));
        let held_bytes = self.drafting.written();
        self.share_state(at, self.last_time);
        self.health.sync_began();
        let (journal, durable) = (&*self.journal, self.broker.durable());
        let place = |outgoing: &mut [_]| places::place_answers(journal, durable, outgoing);
        Ok((ticket, self.ports.take_waiting(held_bytes, Arc::clone(&self.budget), place)))
    }

    fn resolve(
        &mut self,
        at: journal::Position,
        waiting: &mut Unreleased,
    ) -> Result<Resolution, journal::Error> {
        let resolution = self.journal.resolve(at)?;
        self.place_waiting(waiting);
        Ok(resolution)
    }

    fn repeat(&mut self, at: journal::Position, waiting: &mut Unreleased) -> Result<Ticket, journal::Error> {
        let ticket = self.journal.append(&self.drafting.written, at)?;
        self.place_waiting(waiting);
        Ok(ticket)
    }

    fn committed(&mut self, at: journal::Position) {
        self.health.sync_ended();
        self.drafting.committed();
        self.ports.committed();
        self.start_snapshot(at);
        let now = self.clock.now();
        let context = self.context(now);
        let before = self.broker.steps_spent(&self.decision);
        self.broker.committed(at.for_broker(), context, &mut self.decision);
        self.note_slice(before);
        self.take_decision(&bytes::Bytes::new());
    }

    fn due(&mut self, commit: &Commit) -> Due {
        if self.can_end(commit) || self.failure.is_some() {
            return Due::Now;
        }
        let sealed = self.seal_due(commit).map_or(Due::Never, Due::At);
        let own = self.upkeep_due().into_iter().chain(self.reserve.due()).chain(self.broker_due()).min();
        own.map_or(Due::Never, |time| self.due_at(time)).or(sealed)
    }

    fn tend(&mut self, commit: &Commit) -> Result<(), journal::Error> {
        if let Some(why) = self.failure.take() {
            return Err(journal::Error::Stopped { why });
        }
        let (now, moment) = (self.clock.now(), self.clock.moment());
        self.tend_journal(commit, now)?;
        if self.seal_due(commit).is_some_and(|due| due <= moment) {
            self.seal(moment)?;
        }
        if self.can_end(commit) {
            self.end(commit, now, moment)?;
        }
        self.flush(commit);
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.ending == Ending::Done
    }
}
