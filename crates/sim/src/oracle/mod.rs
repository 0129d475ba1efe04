//! The oracle: what every client asked and was told, what was committed, and whether that is as promised.
//!
//! It sees three things: what clients submit (`expect.rs`), what is written to the journal and becomes durable
//! (`commit.rs`), and what leaves (`effect.rs`). It never asks the broker what is right. The first violation is kept;
//! everything after it may be nonsense.

mod clock;
mod commit;
mod duplicate;
mod effect;
mod expect;
pub mod forward;
pub mod ledger;
mod publish;
mod reply;
mod session;
mod shown;
pub mod topic;
mod transaction;
mod via;
pub mod watched;

use crate::coverage::Coverage;
use crate::hash::Trace;
use broker::ids::{IdHasher, IdMap};
use broker::{
    ConnectionId, EntityId, LinkId, LocalTime, LockToken, MessageKey, Outcome, ReceiveMode, Record,
    RequestId, Sequence, Span, State, SubQueue, Tier, Time,
};
use engine::{Mailbox, Outgoing};
use ledger::{Ledger, Present, SUB_QUEUES, path_of};
use message::Overlay;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use watched::Appended;

use clock::{Clocks, Visit};
pub use expect::{NewMessage, Question};
use transaction::Transactions;

/// Turns after which live state is compared with its replay, besides every end of a life.
const COMPARED_TURNS: u64 = 256;

/// What became of a send, as its sender knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Waiting,
    Accepted,
    Refused,
    /// The connection or the process ended before the answer, or the sender wanted none.
    Unknown,
}

/// Why a message is no longer in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    Completed,
    /// Given to a receiver that wanted no lock.
    Taken,
    Expired,
    Purged,
    Cancelled,
    /// Where it was forwarded to it had been before (S-177).
    Duplicate,
    /// With its queue.
    Deleted,
    /// It became copies.
    Published,
}

#[derive(Debug)]
pub struct Message {
    /// Where it was sent to, or where it is, folded.
    pub path: Arc<str>,
    pub link: LinkId,
    pub delivery: u32,
    /// Hash of each stored part, in order.
    pub parts: Vec<u64>,
    /// Hash of the whole.
    pub hash: u64,
    pub length: u32,
    pub time_to_live: Span,
    pub scheduled: LocalTime,
    /// It was stored before its time, and has waited for it.
    pub has_waited: bool,
    pub keys_differ: bool,
    pub session: Option<Arc<str>>,
    /// The id by which its sender knows it, zero without one, and its partition key.
    pub id: u64,
    pub partition: u64,
    pub fate: Fate,
    pub place: Option<(EntityId, Sequence)>,
    /// Where it was stored first.
    pub first: Option<(EntityId, Sequence)>,
    /// It was accepted and dropped, being a duplicate.
    pub is_dropped: bool,
    pub delivered: u32,
    pub gone: Option<Gone>,
    /// A receiver was told that it is completed.
    pub is_confirmed: bool,
    /// It was at a topic, and lives on in its copies, if it has any.
    pub is_published: bool,
    /// The transaction that it is part of.
    pub within: Option<usize>,
    /// The number that it was given when it was scheduled within a transaction.
    pub reserved: Option<(EntityId, Sequence)>,
    /// The message that was sent: itself, or the one that it is a copy of; and all copies of it.
    pub root: usize,
    pub copies: Vec<usize>,
}

impl Message {
    fn new(root: usize, link: LinkId, delivery: u32, path: Arc<str>, told: NewMessage) -> Message {
        let NewMessage { parts, hash, length, time_to_live, scheduled, keys_differ, .. } = told;
        let NewMessage { id, partition, session, .. } = told;
        Message {
            path,
            link,
            delivery,
            parts,
            hash,
            length,
            time_to_live,
            scheduled,
            has_waited: false,
            keys_differ,
            session,
            id,
            partition,
            fate: Fate::Unknown,
            place: None,
            first: None,
            is_dropped: false,
            delivered: 0,
            gone: None,
            is_confirmed: false,
            is_published: false,
            within: None,
            reserved: None,
            root,
            copies: Vec::new(),
        }
    }

    /// A copy of a message, in that place.
    fn copied(root: &Message, path: Arc<str>, place: (EntityId, Sequence)) -> Message {
        // The bytes say what it is called: wherever it is sent on, that counts (S-177).
        let (time_to_live, id, partition) = (root.time_to_live, root.id, root.partition);
        let (session, scheduled) = (root.session.clone(), root.scheduled);
        let blank = NewMessage::blank(root.length);
        let told = NewMessage { time_to_live, id, partition, session, scheduled, ..blank };
        let mut copy = Message::new(root.root, root.link, root.delivery, path, told);
        (copy.place, copy.first) = (Some(place), Some(place));
        copy
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Sender,
    Receiver(ReceiveMode),
    /// Declares and discharges transactions.
    Coordinator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Attaching,
    Attached,
    /// Since this turn.
    Gone(u64),
}

#[derive(Debug)]
struct Link {
    path: Arc<str>,
    /// Where a sender's messages go on to, if that is another entity (S-114).
    destination: Option<Arc<str>>,
    /// The queue of the path, and the sub-queue that is meant.
    queue: Arc<str>,
    sub: SubQueue,
    role: Role,
    state: LinkState,
    /// Whether it waited for messages when the partition last rested.
    was_waiting: bool,
    delivered: u64,
    /// Credit that was given: the limit, and whether it was a drain.
    grants: VecDeque<(u64, bool)>,
    /// The session that it wants: that one, or whichever is free. None, if it wants none.
    wants: Option<Option<Arc<str>>>,
    /// The session that it was given.
    holds: Option<Arc<str>>,
}

#[derive(Debug)]
struct Lock {
    token: LockToken,
    until: LocalTime,
    /// It had ended when its holder heard of it, and may be gone.
    is_hazy: bool,
    /// How often somebody has asked for more time and not heard.
    renewals: u32,
    /// The question that gave it its end, by its place among all: answers to two connections may cross.
    renewed: u64,
    /// What was asked with this token.
    asked: Vec<Outcome>,
    /// The transactions that are to use it up, open or not.
    claims: Vec<usize>,
    /// The turn in which its delivery failed, by a committed record.
    returned: Option<u64>,
    /// The session with which it was locked.
    session: Option<Arc<str>>,
    /// The turn in which the holder of that session left.
    vacated: Option<u64>,
}

/// Who has a session, and until when.
#[derive(Debug)]
struct Holding {
    link: LinkId,
    until: LocalTime,
    /// How often its holder has asked for more time and not heard.
    renewals: u32,
    /// The turn in which it got it, and the one in which it left.
    since: u64,
    left: Option<u64>,
    /// Who had it before, and the turn in which that ended.
    former: Option<(ConnectionId, u64)>,
}

/// Why a copy goes to the dead-letter queue at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unfit {
    /// A rule has failed for it (S-200).
    Rule,
    /// It has no session where one is required (S-20).
    NoSession,
}

/// Locks that nobody was told about.
#[derive(Debug, Default)]
struct UntoldLocks {
    /// They end by then.
    until: LocalTime,
    /// Some begin in this turn.
    is_new: bool,
}

#[derive(Debug)]
pub struct Oracle {
    /// Which partition it watches.
    nth: usize,
    /// The owner's time.
    pub now: Time,
    pub clocks: Clocks,
    /// The instants that moves of this turn have come to, and what happened there.
    visits: Vec<Visit>,
    /// Counts the times between two moments of rest: nothing on its way, everything answered.
    pub turn: u64,
    /// Whether something has happened since the last rest.
    is_open: bool,
    /// When this turn began.
    began: Time,
    /// An append of this turn was still on its way when more was decided, so that what leaves may be older news.
    is_blurred: bool,
    /// A read of the disk has failed in this life: messages may be withheld for the time of a lock, and nobody told.
    pub has_unread: bool,
    pub ledger: Ledger,
    pub messages: Vec<Message>,
    pub coverage: Coverage,
    pub trace: Trace,
    pub violation: Option<String>,
    /// Whether everything is printed that happens.
    pub is_telling: bool,
    links: BTreeMap<LinkId, Link>,
    expected: BTreeMap<ConnectionId, VecDeque<expect::Expected>>,
    /// The messages of each delivery: all of them are stored or none.
    deliveries: IdMap<(LinkId, u32), Range<usize>>,
    /// What is not answered yet, with its place among all that was ever asked. Questions are decided in their order.
    questions: BTreeMap<(ConnectionId, u32), (u64, Question)>,
    questions_asked: u64,
    /// What was asked in this turn, answered or not.
    asked: Vec<Question>,
    locks: IdMap<(EntityId, Sequence), Lock>,
    holdings: BTreeMap<(EntityId, Arc<str>), Holding>,
    transactions: Transactions,
    /// Transactions of which the append that is being looked at has something.
    committing: BTreeSet<usize>,
    /// The link on which a message is being delivered.
    delivering: Option<LinkId>,
    /// Queues from which a client that vanished may have been given messages that never reached it, and until when
    /// those may be locked.
    untold_locks: BTreeMap<EntityId, UntoldLocks>,
    tokens: HashSet<u128, BuildHasherDefault<IdHasher>>,
    settled_sends: Vec<(LinkId, u32)>,
    /// Written, not known to be durable.
    pending: Option<Appended>,
    /// An id that was noted; the next record must be its message.
    noted: Option<(EntityId, MessageKey)>,
    /// Copies that nobody may receive; the next records must bury them.
    unfit: BTreeMap<(EntityId, Sequence), Unfit>,
    /// All that was changed of messages of which the next record says what becomes of them.
    restated: BTreeMap<(EntityId, Sequence), Overlay>,
    /// Copies that an action has changed much; the next records must say that this is stored.
    loaded: BTreeSet<(EntityId, Sequence)>,
    /// Messages whose next record must say what session they are in.
    joining: BTreeSet<(EntityId, Sequence)>,
    /// The first message that waits at a topic although its time has come, and since when.
    overdue: BTreeMap<(EntityId, Sequence), LocalTime>,
    /// A violation, unless it turns out that something could not be read.
    suspicion: Option<String>,
    /// The position at which the broker's counters were looked at last.
    compared: u64,
    /// What was committed up to a position, in one number.
    fingerprint: Option<(u64, u64)>,
    /// How often something was created, changed or deleted in this turn.
    changes: u32,
    /// Queues with dead letters that have an open destination, and since when.
    waiting: BTreeMap<EntityId, LocalTime>,
    creations: BTreeSet<String>,
    tier: Tier,
    drained: u32,
    /// The process has ended; nothing may leave.
    is_dead: bool,
    /// It has begun again, and nothing has happened yet.
    is_new_life: bool,
    /// The disk may be full in this life, so that sends may be refused.
    pub may_lack_room: bool,
    /// The disk may fail in this life, so that bodies may be unreadable.
    may_not_read: bool,
    /// Another owner has taken the journal over in this life.
    pub is_fenced: bool,
}

impl Default for Oracle {
    fn default() -> Oracle {
        Oracle {
            nth: 0,
            now: Time::AT_ONCE,
            clocks: Clocks::default(),
            visits: Vec::new(),
            turn: 0,
            is_open: false,
            began: Time::AT_ONCE,
            is_blurred: false,
            has_unread: false,
            ledger: Ledger::default(),
            messages: Vec::new(),
            coverage: Coverage::default(),
            trace: Trace::default(),
            violation: None,
            is_telling: false,
            links: BTreeMap::new(),
            expected: BTreeMap::new(),
            deliveries: IdMap::default(),
            questions: BTreeMap::new(),
            questions_asked: 0,
            asked: Vec::new(),
            locks: IdMap::default(),
            holdings: BTreeMap::new(),
            transactions: Transactions::default(),
            committing: BTreeSet::new(),
            delivering: None,
            untold_locks: BTreeMap::new(),
            tokens: HashSet::default(),
            settled_sends: Vec::new(),
            pending: None,
            noted: None,
            unfit: BTreeMap::new(),
            restated: BTreeMap::new(),
            loaded: BTreeSet::new(),
            joining: BTreeSet::new(),
            overdue: BTreeMap::new(),
            suspicion: None,
            compared: 0,
            fingerprint: None,
            changes: 0,
            waiting: BTreeMap::new(),
            creations: BTreeSet::new(),
            tier: Tier::default(),
            drained: 0,
            is_dead: false,
            is_new_life: false,
            may_lack_room: false,
            may_not_read: false,
            is_fenced: false,
        }
    }
}

impl Oracle {
    pub fn fail(&mut self, what: impl Into<String>) {
        if self.violation.is_none() {
            self.violation = Some(format!("turn {}: {}", self.turn, what.into()));
        }
    }

    pub fn begin(&mut self, nth: usize, tier: Tier, is_telling: bool) {
        (self.nth, self.tier, self.is_telling) = (nth, tier, is_telling);
    }

    /// The process begins again, on a disk that may do this.
    pub fn begin_life(&mut self, may_lack_room: bool, may_not_read: bool) {
        (self.may_lack_room, self.may_not_read) = (may_lack_room, may_not_read);
        self.is_fenced = false;
    }

    pub fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_telling {
            println!("{}: turn {} at {}: {}", self.nth, self.turn, self.now.0, what());
        }
    }

    pub fn begin_turn(&mut self, now: Time) {
        self.now = now;
        if std::mem::take(&mut self.is_new_life) {
            // Owner time goes on from the last batch: what was used after that was used in a time that is to come.
            let clocks = &self.clocks;
            self.ledger
                .queues
                .values_mut()
                .for_each(|queue| queue.used = queue.used.min(clocks.at(queue.namespace, now)));
        }
        if !std::mem::replace(&mut self.is_open, true) {
            self.turn += 1;
            self.began = now;
            self.is_blurred = false;
        } else if self.pending.is_some() {
            self.is_blurred = true;
        }
    }

    /// Whether all that was decided is durable and answered.
    pub fn is_at_rest(&self) -> bool {
        !self.is_open
    }

    /// The same, in this life: after a start something may be due at once.
    pub fn has_rested(&self) -> bool {
        !self.is_open && !self.is_new_life && !self.is_dead
    }

    /// The turn in which what is submitted now is decided.
    fn coming(&self) -> u64 {
        self.turn + u64::from(!self.is_open)
    }

    /// The partition rests: everything was answered that must be, what is due is done, and memory is what the journal
    /// says.
    pub fn end_turn(&mut self, live: &broker::Durable) {
        if let Some(what) = self.suspicion.take().filter(|_| !self.has_unread) {
            self.fail(what);
        }
        self.clocks.settle();
        self.check_due();
        self.check_forwarded();
        if self.turn.is_multiple_of(COMPARED_TURNS) {
            self.check_locks();
        }
        self.end_last_turn(live);
    }

    /// The partition has stopped. What was due then is done in the next life.
    pub fn end_last_turn(&mut self, live: &broker::Durable) {
        self.is_open = false;
        if let Some(pending) = &self.pending {
            let position = pending.position;
            self.fail(format!("batch {position} was neither committed nor reported as failed"));
        }
        if self.turn.is_multiple_of(COMPARED_TURNS) {
            self.compare(live);
        }
        // What nothing was written about is as it was.
        if self.compared != self.ledger.position
            && let Err(what) = self.ledger.compare(live)
        {
            self.fail(format!("counters: {what}"));
        }
        self.compared = self.ledger.position;
        self.check_order();
        self.end_untold_locks();
        self.end_expectations();
        self.end_settled_sends();
        self.end_turn_of_transactions();
        self.ledger.end_turn(self.now, &self.clocks);
        self.clocks.end_turn();
        self.visits.clear();
        let expected = &self.expected;
        self.questions.retain(|(connection, _), _| expected.contains_key(connection));
        self.asked.clear();
        self.changes = 0;
        self.trace.add(&[self.turn, self.now.0 as u64, self.ledger.position]);
    }

    /// The locks of those who vanished have begun by now, and end by themselves.
    fn end_untold_locks(&mut self) {
        let (now, clocks, queues) = (self.now, &self.clocks, &self.ledger.queues);
        self.untold_locks.retain(|entity, untold| {
            let Some(queue) = queues.get(entity) else { return false };
            let now = clocks.latest(queue.namespace, now);
            if std::mem::take(&mut untold.is_new)
                && let Some(longest) = queue.durations.iter().max()
            {
                untold.until = untold.until.max(now.after(*longest));
            }
            now < untold.until
        });
    }

    /// Somebody who vanished in this turn may have been given messages of a queue.
    fn add_untold_locks(&mut self, entity: EntityId) {
        self.untold_locks.entry(entity).or_default().is_new = true;
    }

    /// The fingerprint of what was committed.
    fn committed_fingerprint(&mut self) -> u64 {
        let position = self.ledger.position;
        match self.fingerprint {
            Some((of, fingerprint)) if of == position => fingerprint,
            _ => {
                let fingerprint = self.ledger.replayed.fingerprint();
                self.fingerprint = Some((position, fingerprint));
                fingerprint
            }
        }
    }

    fn compare(&mut self, live: &broker::Durable) {
        let fingerprint = live.fingerprint();
        if fingerprint != self.committed_fingerprint() {
            self.fail(format!("I12: state differs from its replay at position {}", self.ledger.position));
        }
        self.trace.add(&[fingerprint]);
    }

    /// Messages are handed out oldest first (S-85): none that was free before this turn was passed over.
    fn check_order(&mut self) {
        if self.is_blurred || self.has_unread {
            return;
        }
        for (entity, queue) in &self.ledger.queues {
            let is_quiet = queue.newest_in_turn == [Sequence(0); 3] && queue.newest_by_session.is_empty();
            if is_quiet || self.untold_locks.contains_key(entity) {
                continue;
            }
            if let Some(what) = self.passed_over_in_session(*entity, queue) {
                return self.fail(what);
            }
            for (newest, sub) in queue.newest_in_turn.into_iter().zip(SUB_QUEUES) {
                let is_passed_over = |sequence: &Sequence, present: &Present| {
                    present.state == State::Active
                        && present.sub == sub
                        && match self.locks.get(&(*entity, *sequence)) {
                            Some(lock) => lock.is_free_before(self.turn),
                            None => present.stored < self.turn,
                        }
                };
                // Sessions are looked at one by one.
                if queue.settings.requires_session && sub == SubQueue::Main {
                    continue;
                }
                let mut older = queue.present.range(..newest);
                if let Some((older, _)) = older.find(|(older, present)| is_passed_over(older, present)) {
                    let what = format!("{older:?} of {} was free and passed over by {newest:?}", queue.path);
                    return self.fail(what);
                }
            }
        }
    }

    /// What the clock decides has happened: expiry, also when nobody listens, activation, and the end of idleness.
    fn check_due(&mut self) {
        let (mut late, mut overdue) = (None, Vec::new());
        for (entity, queue) in &self.ledger.queues {
            let now = self.clocks.at(queue.namespace, self.now);
            // What cannot be read is locked for nobody, and nobody is told.
            let is_locked = |sequence: &Sequence| {
                let lock = self.locks.get(&(*entity, *sequence));
                self.has_unread
                    || self.untold_locks.contains_key(entity)
                    || lock.is_some_and(|lock| lock.returned.is_none() && now < lock.latest())
            };
            let due = queue.expiries.iter().take_while(|(at, _)| *at <= now);
            if let Some((_, sequence)) = due.into_iter().find(|(_, sequence)| !is_locked(sequence)) {
                late = Some(format!("I8: {sequence:?} of {} has expired and is there", queue.path));
            }
            if let Some((_, sequence)) = queue.schedule.first().filter(|(at, _)| *at <= now) {
                if let ledger::Kind::Topic(_) = queue.kind {
                    overdue.push((*entity, *sequence));
                    continue;
                }
                late = Some(format!("I8: {sequence:?} of {} is due and waits", queue.path));
            }
            let idle = queue.settings.auto_delete_on_idle;
            if !idle.is_max()
                && queue.settings.forward_to.is_none()
                && queue.counts.scheduled == 0
                && self.ledger.family(queue).all(|each| !each.is_touched && each.touched.after(idle) <= now)
                && !self.has_links(queue)
            {
                late = Some(format!("{} is idle since {:?} and is there", queue.path, queue.touched));
            }
        }
        if let Some(late) = late {
            self.fail(late);
        }
        self.check_overdue(&overdue);
    }

    /// Whether anybody is or was attached to a queue in this life, or to a subscription that a topic has or had.
    fn has_links(&self, queue: &ledger::Queue) -> bool {
        let path = queue.path.to_lowercase();
        self.links.values().any(|link| {
            let rest = link.queue.strip_prefix(&*path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("/subscriptions/"))
        })
    }

    /// What is due at a topic may have to be read before it is published, and for that be on disk: it is tried again a
    /// moment later.
    fn check_overdue(&mut self, overdue: &[(EntityId, Sequence)]) {
        if self.has_unread || overdue.is_empty() {
            return self.overdue.clear();
        }
        self.overdue.retain(|waiting, _| overdue.contains(waiting));
        for waiting in overdue {
            let now = self.here(waiting.0);
            let since = *self.overdue.entry(*waiting).or_insert(now);
            if since.after(Span(1)) < now {
                self.fail(format!("I8: {waiting:?} is due and waits since {since:?}"));
            }
        }
    }

    /// A lock that has ended has given its message back (S-86).
    fn check_locks(&mut self) {
        let is_stuck = |((entity, _), lock): &(&(EntityId, Sequence), &Lock)| {
            !lock.is_hazy
                && lock.latest() <= self.local(*entity, self.now)
                && lock.returned.is_none()
                && lock.asked.is_empty()
        };
        if let Some(((entity, sequence), lock)) = self.locks.iter().find(is_stuck) {
            let what =
                format!("I5: {sequence:?} of {entity:?} is locked since its lock ended at {:?}", lock.until);
            self.fail(what);
        }
    }

    /// A planned stop has kept every lock that certainly is held (S-93).
    pub fn check_kept(&mut self) {
        let is_lost = |((entity, _), lock): &(&(EntityId, Sequence), &Lock)| {
            // The lock of a session ends with its link.
            lock.session.is_none()
                && !lock.is_hazy
                && self.local(*entity, self.now) < lock.until
                && (lock.renewals, lock.returned) == (0, None)
                && lock.asked.is_empty()
                && !self.ledger.kept.iter().any(|kept| kept.token == lock.token && kept.until == lock.until)
        };
        if let Some(((entity, sequence), _)) = self.locks.iter().find(is_lost) {
            let what = format!("the lock on {sequence:?} of {entity:?} was not kept by a planned stop");
            self.fail(what);
        }
    }

    /// What a process had in memory is what the journal has, and what it was about to write.
    fn compare_at_death(&mut self, live: &broker::Durable, unwritten: &[u8], time: Time) {
        let position = self.ledger.position;
        let is_written =
            self.pending.as_ref().is_none_or(|pending| pending.has_failed) && unwritten.is_empty();
        if is_written {
            if live.fingerprint() != self.committed_fingerprint() {
                self.fail(format!("I12: state differs from its replay at a crash at position {position}"));
            }
            return;
        }
        let mut replayed = self.ledger.replayed.clone();
        if let Some(pending) = self.pending.as_ref().filter(|pending| !pending.has_failed) {
            pending.records.iter().for_each(|record| replayed.apply(record, Time(pending.time)));
        }
        let mut rest = unwritten;
        while !rest.is_empty() {
            match Record::decode(&mut rest) {
                Ok(record) => replayed.apply(&record, time),
                Err(why) => return self.fail(format!("an unwritten record cannot be read: {why}")),
            }
        }
        if live.fingerprint() != replayed.fingerprint() {
            self.fail(format!("I12: state differs from its replay at a crash behind position {position}"));
        }
    }

    /// The process is gone, and with it every connection, link and lock. `live` is what it had in memory.
    /// `unwritten` are the records that it had decided and not written.
    pub fn died(&mut self, live: &broker::Durable, unwritten: &[u8], time: Time) {
        self.compare_at_death(live, unwritten, time);
        let is_move = |asked: &(u64, Question)| matches!(asked.1, Question::Advance(..));
        if self.questions.values().any(is_move) {
            self.coverage.fault("crash while time is moved");
        }
        self.is_dead = true;
        self.suspicion = None;
        self.is_open = false;
        let connections: Vec<ConnectionId> = self.expected.keys().copied().collect();
        connections.into_iter().for_each(|connection| self.forget(connection));
        self.settled_sends.clear();
    }

    /// A new life has read the journal up to `tail`.
    pub fn recovered(&mut self, tail: u64, durable: &broker::Durable) {
        let committed = self.ledger.position;
        let tried = self.pending.as_ref().map_or(committed, |pending| pending.position);
        if !(committed..=tried).contains(&tail) {
            self.fail(format!(
                "the journal ends at {tail}; {committed} were acknowledged and {tried} written"
            ));
        } else if tail > committed {
            self.coverage.fault("last append kept");
            self.committed(tail);
        } else if self.pending.take().is_some() {
            self.coverage.fault("last append lost");
        }
        let fingerprint = durable.fingerprint();
        if fingerprint != self.committed_fingerprint() {
            self.fail(format!("I12: what was replayed up to {tail} is not what was committed"));
        }
        if let Err(what) = self.ledger.compare(durable) {
            self.fail(format!("counters after recovery: {what}"));
        }
        self.forget_transactions();
        // Only what a planned stop has kept is still locked.
        let kept = &self.ledger.kept;
        self.locks
            .retain(|_, lock| kept.iter().any(|kept| kept.token == lock.token && lock.returned.is_none()));
        for lock in self.locks.values_mut() {
            lock.asked.clear();
            lock.claims.clear();
            if let Some(kept) = kept.iter().find(|kept| kept.token == lock.token) {
                (lock.until, lock.renewals) = (kept.until, 0);
            }
        }
        self.questions.clear();
        self.asked.clear();
        self.changes = 0;
        self.untold_locks.clear();
        self.has_unread = false;
        for kept in kept.iter().filter(|kept| !self.locks.values().any(|lock| lock.token == kept.token)) {
            let untold = self.untold_locks.entry(kept.source.entity).or_default();
            untold.until = kept.until.max(untold.until);
        }
        self.links.clear();
        self.holdings.clear();
        self.waiting.clear();
        self.overdue.clear();
        // After a start everything counts as just used.
        self.ledger.queues.values_mut().for_each(|queue| queue.is_touched = true);
        self.clocks.end_turn();
        self.visits.clear();
        self.ledger.end_turn(self.now, &self.clocks);
        self.ledger.queues.values_mut().for_each(|queue| queue.is_touched = true);
        (self.is_dead, self.is_new_life) = (false, true);
        self.trace.add(&[tail, fingerprint]);
    }

    /// A number for the next delivery or question of the last drain.
    pub fn next_drained(&mut self) -> u32 {
        self.drained += 1;
        self.drained
    }

    /// The path from which a message was received.
    pub fn path_of(&self, delivery: &broker::Delivery) -> Option<String> {
        let key = self.locks.iter().find(|(_, lock)| lock.token == delivery.token).map(|(key, _)| *key)?;
        let queue = self.ledger.queues.get(&key.0)?;
        Some(path_of(&queue.path, queue.present.get(&key.1)?.sub).to_lowercase())
    }

    /// After a full drain: everything that was accepted was delivered, or went by rule, and nothing is left (I1).
    pub fn end(&mut self) {
        let open = self.ledger.queues.values().filter(|queue| queue.may_receive());
        let left: usize = open.map(|queue| queue.present.len()).sum();
        if left > 0 {
            self.fail(format!("I1: {left} messages were not delivered by the last drain"));
        }
        for number in 0..self.messages.len() {
            let message = &self.messages[number];
            let is_accounted = message.is_dropped || message.is_published;
            if message.fate == Fate::Accepted && message.place.is_none() && !is_accounted {
                self.fail(format!("I1: message {number} was accepted and is nowhere"));
            } else if message.gone == Some(Gone::Completed) && message.delivered == 0 {
                self.fail(format!("I1: message {number} was completed and never delivered"));
            }
        }
    }
}

/// The oracle and the effects that have left, shared by the journal, the mailboxes and the world.
#[derive(Debug, Default)]
pub struct Shared {
    oracle: Mutex<Oracle>,
    outgoing: Mutex<Vec<Outgoing>>,
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has left since the last call.
    pub fn take(&self) -> Vec<Outgoing> {
        std::mem::take(&mut *self.outgoing.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Where the effects for one connection leave.
#[derive(Debug)]
pub struct OracleMailbox {
    pub connection: ConnectionId,
    pub shared: Arc<Shared>,
}

impl Mailbox for OracleMailbox {
    fn put(&self, outgoing: Vec<Outgoing>) {
        let mut oracle = self.shared.lock();
        outgoing.iter().for_each(|each| oracle.left(self.connection, each));
        drop(oracle);
        self.shared.outgoing.lock().unwrap_or_else(PoisonError::into_inner).extend(outgoing);
    }

    /// Simulated clients do not wait for room.
    fn decided(&self, _: usize) {}
}

/// Whom a request came from.
fn asker(request: RequestId) -> (ConnectionId, u32) {
    (request.connection, request.request)
}
