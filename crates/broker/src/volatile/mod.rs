//! What does not survive: links, credit, locks, and which messages are free to be handed out. Rebuilt empty; every
//! change goes through a [`Touch`], as every durable change goes through a record.

use crate::clock::ClockMove;
use crate::command::ReceiveMode;
use crate::durable::{Durable, Queue};
use crate::ids::{
    BodyId, EntityId, IdMap, LinkId, LockToken, MessageKey, NamespaceId, Position, Sequence, Source, SubQueue,
};
use crate::line::Line;
use crate::nonce::Nonces;
use crate::planted::{Bug, is_planted};
use crate::queue::doubt::Fronts;
use crate::queue::index::{Index, State};
use crate::session::live::{self, LiveSessions};
use crate::session::register::Session;
use crate::tier::Tier;
use crate::time::{ClockOffset, LocalTime, Time};
use crate::timers::{Agenda, Chore, Due, LockTimer, Timers};
use crate::topic::routes::Routes;
use crate::transaction::{self, Transactions};
use crate::work::touched;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Volatile {
    pub(crate) links: IdMap<LinkId, Link>,
    /// By entity id, beside the durable queues.
    entities: Vec<Presence>,
    /// What becomes free once a position is committed, in the order of positions.
    awaiting: VecDeque<Awaiting>,
    /// Queues that have messages to hand out and perhaps somebody who wants them.
    pub(crate) stirred: VecDeque<Source>,
    pub(crate) timers: Agenda,
    /// The time of a namespace is being moved; nothing is handed out meanwhile.
    pub(crate) clock_move: Option<Box<ClockMove>>,
    /// Of messages and of sessions.
    pub(crate) held_locks: usize,
    /// There is no room to store messages.
    pub(crate) is_full: bool,
    /// Of the namespaces that have one of their own.
    pub(crate) tiers: IdMap<NamespaceId, Tier>,
    pub(crate) transactions: Transactions,
    nonces: Nonces,
    /// Of the topics that were published to since their rules last changed.
    pub(crate) routes: IdMap<EntityId, Arc<Routes>>,
}

#[derive(Debug)]
pub struct Link {
    pub source: Source,
    pub role: Role,
}

#[derive(Debug)]
pub enum Role {
    /// Parts of a large message that is still arriving.
    Sender {
        parts: Vec<BodyId>,
        part_bytes: u64,
        /// Of such a message to a topic: what lies in front of its body.
        front: Option<Box<[u8]>>,
        /// Where its messages go, if that is not the entity that it is attached to (S-114).
        destination: Option<Arc<str>>,
    },
    Receiver {
        mode: ReceiveMode,
        /// Messages handed out on this link since it was attached.
        delivered: u64,
        /// The session that it holds, where it must hold one.
        session: Option<Arc<str>>,
    },
    /// Will be a receiver once a session is free.
    Waiting { mode: ReceiveMode },
}

impl Role {
    pub(crate) fn sender(destination: Option<Arc<str>>) -> Role {
        Role::Sender { parts: Vec::new(), part_bytes: 0, front: None, destination }
    }

    /// Whether it receives, now or when there is a session for it.
    pub fn receives(&self) -> bool {
        matches!(self, Role::Receiver { .. } | Role::Waiting { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    pub token: LockToken,
    pub until: LocalTime,
}

/// Who is there at an entity, and since when nobody was.
#[derive(Debug, Default)]
pub struct Presence {
    pub namespace: NamespaceId,
    sub_queues: [Ready; 3],
    pub receivers: usize,
    /// The latest send or receive (S-237).
    pub accessed: Option<LocalTime>,
    /// Scheduled messages in the order in which they are due.
    pub schedule: BTreeSet<(LocalTime, Sequence)>,
    /// The latest of whatever keeps it from being idle (S-71); unknown after a start.
    pub used: Option<LocalTime>,
    /// Message ids of the history and when they were taken (S-160).
    pub seen: IdMap<MessageKey, LocalTime>,
    /// Of an entity that requires sessions, once there was one.
    pub(crate) sessions: Option<Box<LiveSessions>>,
}

/// The hand-out side of a queue.
#[derive(Debug, Default)]
pub struct Ready {
    /// Everything below was handed out at least once, or is gone, or is not received in order.
    pub cursor: Sequence,
    /// Messages up to here are committed.
    pub committed: Sequence,
    /// Handed out before, and free again: these go first, being older (S-85). In a dead-letter queue, which does not
    /// fill in the order of its numbers, everything that is free.
    pub returned: BTreeSet<Sequence>,
    pub locks: IdMap<Sequence, Lock>,
    /// Who waits for messages, in the order in which the credit came (S-97).
    pub waiting: Line,
    /// Dead letters that were to be forwarded and have come too far. Nobody receives them while the others are forwarded.
    resting: BTreeSet<Sequence>,
    /// Messages that are known to be readable, and may be removed before they leave.
    pub vouched: BTreeSet<Sequence>,
    /// Some are being read to find out, or for what the rules of a topic ask for.
    pub is_checking: bool,
    /// Of those up to [`Ready::committed`], the ones that are not: they took numbers that were told before.
    pub unwritten: BTreeSet<Sequence>,
    /// What was read of messages that are about to be published; nothing of those that cannot be read.
    fronts: BTreeMap<Sequence, Option<Box<[u8]>>>,
    /// Who gets what there is and is then told that this was all.
    pub draining: Vec<LinkId>,
    is_stirred: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Awaiting {
    position: Position,
    source: Source,
    what: Freed,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// New messages up to here.
    Arrived(Sequence),
    Returned(Sequence),
    /// One that has a number among earlier ones.
    Written(Sequence),
    /// A new message of a session.
    Joined(Arc<str>, Sequence),
    /// One of a session, back from its receiver.
    Rejoined(Arc<str>, Sequence),
}

/// A change of memory only.
#[derive(Debug)]
pub enum Touch {
    Attached {
        link: LinkId,
        source: Source,
        role: Role,
    },
    Detached {
        link: LinkId,
    },
    /// The link waits for `credit` messages in all, instead of what it waited for.
    Credited {
        link: LinkId,
        credit: u32,
    },
    /// A new message will be free once `position` is committed.
    Arrived {
        entity: EntityId,
        sequence: Sequence,
        position: Position,
    },
    /// A message that waits for its time under an earlier number can be read once `position` is committed.
    Unwritten {
        source: Source,
        sequence: Sequence,
        position: Position,
    },
    /// A message out of its order will be free once `position` is committed.
    Returned {
        source: Source,
        sequence: Sequence,
        position: Position,
    },
    /// The next free message is no longer free, whoever takes it.
    Taken {
        source: Source,
        sequence: Sequence,
    },
    /// A message is no longer free, in whatever order it would have come.
    Withdrawn {
        source: Source,
        sequence: Sequence,
    },
    /// Nothing below `to` is to be handed out in order.
    Passed {
        source: Source,
        to: Sequence,
    },
    /// One unit of the credit at the head of the line is used.
    Served {
        source: Source,
    },
    Locked {
        source: Source,
        lock: Lock,
    },
    /// The lock of this token lasts until another time.
    Renewed {
        source: Source,
        lock: Lock,
    },
    Unlocked {
        source: Source,
        sequence: Sequence,
    },
    /// Messages are being read that can be removed only afterwards.
    Doubted {
        source: Source,
    },
    /// They were read.
    Checked {
        source: Source,
        whole: BTreeSet<Sequence>,
    },
    /// They were read for the rules of a topic; those that could not be have nothing.
    Read {
        source: Source,
        fronts: Fronts,
    },
    /// A free message is locked for nobody. `before` are those that were to come before it in order, and still do.
    Withheld {
        source: Source,
        lock: Lock,
        before: Vec<Sequence>,
    },
    /// A link is to be told when it has got everything.
    Draining {
        source: Source,
        link: LinkId,
    },
    DrainEnded {
        source: Source,
        link: LinkId,
    },
    PartStored {
        link: LinkId,
        body: BodyId,
        length: u64,
        front: Option<Box<[u8]>>,
    },
    PartsDropped {
        link: LinkId,
    },
    /// A part found no room; the message that it belongs to cannot be stored any more.
    PartRefused {
        link: LinkId,
    },
    RoomChanged {
        is_full: bool,
    },
    /// An id was taken into the history.
    Noted {
        entity: EntityId,
        id: MessageKey,
        time: LocalTime,
    },
    /// An id that was taken at that time is no longer in the history.
    Forgotten {
        entity: EntityId,
        id: MessageKey,
        time: LocalTime,
    },
    /// A free message is not to be forwarded.
    Rested {
        source: Source,
        sequence: Sequence,
    },
    TierSet {
        namespace: NamespaceId,
        tier: Tier,
    },
    /// The rules of a topic were made ready, or have changed since.
    Routed {
        topic: EntityId,
        routes: Option<Arc<Routes>>,
    },
    /// Whether an entity forwards, and where, may have changed.
    Redirected {
        entity: EntityId,
    },
    EntityCreated {
        entity: EntityId,
        namespace: NamespaceId,
        time: LocalTime,
    },
    EntityDeleted {
        entity: EntityId,
    },
    Committed {
        position: Position,
    },
    /// A message waits for its time.
    Scheduled {
        entity: EntityId,
        due: LocalTime,
        sequence: Sequence,
    },
    /// A message waits no more.
    Unscheduled {
        entity: EntityId,
        due: LocalTime,
        sequence: Sequence,
    },
    /// Somebody sent or received.
    Accessed {
        entity: EntityId,
        time: LocalTime,
    },
    /// Something else happened that keeps an entity from being idle.
    Used {
        entity: EntityId,
        time: LocalTime,
    },
    /// Something happened to a session, or to who waits for one.
    Session {
        entity: EntityId,
        change: live::Change,
    },
    /// Something happened to a transaction.
    Transaction(transaction::Change),
    /// The time of a namespace is so far ahead of the owner's.
    TimeMoved {
        namespace: NamespaceId,
        offset: ClockOffset,
    },
    /// There is something to do at an entity then, and no earlier.
    Armed {
        entity: EntityId,
        chore: Chore,
        at: LocalTime,
    },
}

/// Stands in for the bytes of a message of which a part was refused.
pub(crate) const PART_REFUSED: u64 = u64::MAX;

impl Volatile {
    /// Bodies that are stored and that no record names yet: parts of messages that are still arriving, and messages of
    /// transactions.
    pub(crate) fn pinned_bodies(&self) -> Vec<BodyId> {
        let parts = self.links.values().filter_map(|link| match &link.role {
            Role::Sender { parts, .. } => Some(parts),
            Role::Receiver { .. } | Role::Waiting { .. } => None,
        });
        let staged = self.transactions.bodies().filter(|_| !is_planted(Bug::StagedBytesLost));
        parts.flatten().copied().chain(staged).collect()
    }

    /// What a broker starts with whose durable state was just read: nobody there, everything free, nothing locked
    /// except what a planned stop has kept.
    pub fn rebuilt(durable: &Durable, key: u128) -> Volatile {
        let mut volatile = Volatile { nonces: Nonces::new(key), ..Volatile::default() };
        for entity in 0..durable.next_entity().0 {
            let namespace = durable.namespace_of(EntityId(entity)).unwrap_or_default();
            volatile.entities.push(Presence { namespace, ..Presence::default() });
        }
        for (&namespace, &offset) in &durable.clock_offsets {
            volatile.apply(Touch::TimeMoved { namespace, offset });
        }
        for kept in durable.kept_locks() {
            let lock = Lock { token: kept.token, until: kept.until };
            volatile.apply(Touch::Locked { source: kept.source, lock });
        }
        for (entity, queue) in durable.queues() {
            let [main, dead, transfer_dead] = &mut volatile.entities[entity.0 as usize].sub_queues;
            main.committed = Sequence(queue.next.0 - 1);
            (main.cursor, main.returned) = handed_out(queue, &main.locks);
            dead.returned = free_letters(&queue.dead, &dead.locks);
            if let Some(letters) = &queue.transfer_dead {
                transfer_dead.returned = free_letters(letters, &transfer_dead.locks);
            }
            let mut schedule = BTreeSet::new();
            if queue.counts.scheduled > 0 {
                let waiting = queue.index.iter().filter(|(_, slot)| slot.state() == State::Scheduled);
                schedule.extend(waiting.map(|(sequence, slot)| (slot.expires, sequence)));
            }
            let due = schedule.first().map_or(LocalTime::NEVER, |(due, _)| *due);
            let presence = &mut volatile.entities[entity.0 as usize];
            presence.schedule = schedule;
            if queue.settings.requires_session
                && let Some(sessions) = &queue.sessions
            {
                let first = |session: &Session| session.active.next_from(Sequence(0));
                let open = sessions.iter().filter_map(|(id, session)| Some((id.clone(), first(session)?)));
                presence.sessions = Some(Box::new(LiveSessions::opened(open)));
            }
            if !is_planted(Bug::DuplicateAfterStart) {
                presence.seen = queue.history.iter().map(|noted| (noted.id, noted.time)).collect();
            }
            if queue.settings.forward_to.is_some() || queue.settings.forward_dead_letters_to.is_some() {
                volatile.apply(Touch::Redirected { entity });
            }
            let is_mortal = !queue.settings.auto_delete_on_idle.is_max();
            for (chore, at) in [
                (Chore::Expire, queue.index.earliest()),
                (Chore::Activate, due),
                // At the first opportunity: only then is it known since when the entity is idle.
                (Chore::Idle, if is_mortal { LocalTime::AT_ONCE } else { LocalTime::NEVER }),
            ] {
                volatile.apply(Touch::Armed { entity, chore, at });
            }
        }
        volatile
    }

    pub fn presence(&self, entity: EntityId) -> &Presence {
        &self.entities[entity.0 as usize]
    }

    pub(crate) fn presence_mut(&mut self, entity: EntityId) -> &mut Presence {
        &mut self.entities[entity.0 as usize]
    }

    pub fn ready(&self, source: Source) -> &Ready {
        &self.entities[source.entity.0 as usize].sub_queues[source.sub as usize]
    }

    pub(crate) fn ready_mut(&mut self, source: Source) -> &mut Ready {
        &mut self.entities[source.entity.0 as usize].sub_queues[source.sub as usize]
    }

    pub fn lock(&self, source: Source, token: LockToken, now: LocalTime) -> Option<Lock> {
        touched(1);
        let lock = self.ready(source).locks.get(&token.sequence())?;
        let is_held = now < lock.until || is_planted(Bug::Lock);
        (lock.token == token && is_held).then_some(*lock)
    }

    /// Every lock that is held.
    pub(crate) fn locks(&self) -> impl Iterator<Item = (Source, Lock)> {
        self.entities.iter().enumerate().flat_map(|(entity, presence)| {
            let entity = EntityId(entity as u32);
            let subs = [SubQueue::Main, SubQueue::DeadLetter, SubQueue::TransferDeadLetter];
            subs.into_iter().zip(&presence.sub_queues).flat_map(move |(sub, ready)| {
                ready.locks.values().map(move |lock| (Source { entity, sub }, *lock))
            })
        })
    }

    /// What was read of a message, if it was; taken, for it is needed once.
    pub(crate) fn take_front(&mut self, source: Source, sequence: Sequence) -> Option<Option<Box<[u8]>>> {
        self.ready_mut(source).fronts.remove(&sequence)
    }

    pub fn link(&self, link: LinkId) -> Option<&Link> {
        self.links.get(&link)
    }

    /// Whether somebody at an entity waits for messages.
    pub(crate) fn is_awaited(&self, entity: EntityId) -> bool {
        let presence = self.presence(entity);
        let is_session_awaited = presence.sessions.as_ref().is_some_and(|sessions| sessions.is_awaited());
        is_session_awaited || presence.sub_queues.iter().any(|ready| !ready.waiting.is_empty())
    }

    pub fn apply(&mut self, touch: Touch) {
        match touch {
            Touch::Attached { link, source, role } => {
                self.entities[source.entity.0 as usize].receivers += usize::from(role.receives());
                if matches!(role, Role::Waiting { .. }) {
                    self.sessions_mut(source.entity).waiting.set(link, 1);
                    self.stir(source);
                }
                let before = self.links.insert(link, Link { source, role });
                assert!(before.is_none(), "link {link:?} was attached twice");
            }
            Touch::Detached { link } => {
                if let Some(Link { source, role }) = self.links.remove(&link) {
                    self.entities[source.entity.0 as usize].receivers -= usize::from(role.receives());
                    match role {
                        Role::Receiver { session: Some(session), .. } => {
                            self.vacate(source.entity, &session, link);
                        }
                        Role::Waiting { .. } => self.sessions_mut(source.entity).waiting.remove(link),
                        Role::Receiver { session: None, .. } | Role::Sender { .. } => {}
                    }
                    let ready = self.ready_mut(source);
                    ready.waiting.remove(link);
                    ready.draining.retain(|draining| *draining != link);
                }
            }
            Touch::Credited { link, credit } => self.set_credit(link, credit),
            Touch::Arrived { entity, sequence, position } => {
                let source = Source::main(entity);
                match self.awaiting.back_mut() {
                    Some(Awaiting { position: p, source: s, what: Freed::Arrived(last) })
                        if *p == position && *s == source =>
                    {
                        *last = sequence;
                    }
                    _ => {
                        let what = Freed::Arrived(sequence);
                        self.awaiting.push_back(Awaiting { position, source, what });
                    }
                }
            }
            Touch::Returned { source, sequence, position } => {
                self.await_commit(source, position, Freed::Returned(sequence));
            }
            Touch::Unwritten { source, sequence, position } => {
                self.ready_mut(source).unwritten.insert(sequence);
                self.await_commit(source, position, Freed::Written(sequence));
            }
            Touch::Transaction(change) => self.transactions.apply(change),
            Touch::Session { entity, change } => self.apply_session(entity, change),
            Touch::Taken { source, sequence } => {
                touched(1);
                let ready = self.ready_mut(source);
                ready.vouched.remove(&sequence);
                if !ready.returned.remove(&sequence) {
                    ready.cursor = ready.cursor.max(sequence.next());
                }
            }
            Touch::Withdrawn { source, sequence } => {
                touched(1);
                self.ready_mut(source).returned.remove(&sequence);
            }
            Touch::Passed { source, to } => {
                let ready = self.ready_mut(source);
                ready.cursor = ready.cursor.max(to);
            }
            Touch::Served { source } => {
                let link = self.ready_mut(source).waiting.serve();
                if let Some(Link { role: Role::Receiver { delivered, .. }, .. }) = self.links.get_mut(&link) {
                    *delivered += 1;
                }
            }
            Touch::Locked { source, lock } => {
                let before = self.ready_mut(source).locks.insert(lock.token.sequence(), lock);
                assert!(before.is_none(), "message {} was locked twice", lock.token.sequence().0);
                self.held_locks += 1;
                self.time_lock(source, lock);
            }
            Touch::Renewed { source, lock } => {
                let held = self.ready_mut(source).locks.get_mut(&lock.token.sequence());
                let held = held.expect("only a lock that is held is renewed");
                assert_eq!(held.token, lock.token, "only its holder renews a lock");
                held.until = lock.until;
                self.time_lock(source, lock);
            }
            Touch::Unlocked { source, sequence } => {
                touched(1);
                let lock = self.ready_mut(source).locks.remove(&sequence);
                assert!(lock.is_some(), "message {} was not locked", sequence.0);
                self.held_locks -= 1;
            }
            Touch::Doubted { source } => self.ready_mut(source).is_checking = true,
            Touch::Checked { source, whole } => {
                let ready = self.ready_mut(source);
                ready.is_checking = false;
                ready.vouched = whole;
            }
            Touch::Read { source, fronts } => {
                let ready = self.ready_mut(source);
                ready.is_checking = false;
                ready.fronts = fronts.into_iter().collect();
            }
            Touch::Withheld { source, lock, before } => {
                let (ready, sequence) = (self.ready_mut(source), lock.token.sequence());
                if !ready.returned.remove(&sequence) {
                    ready.cursor = ready.cursor.max(sequence.next());
                    ready.returned.extend(before);
                }
                self.apply(Touch::Locked { source, lock });
            }
            Touch::Draining { source, link } => self.ready_mut(source).draining.push(link),
            Touch::DrainEnded { source, link } => {
                self.ready_mut(source).draining.retain(|each| *each != link)
            }
            Touch::PartStored { link, body, length, front } => {
                if let Some(Link { role: Role::Sender { parts, part_bytes, front: kept, .. }, .. }) =
                    self.links.get_mut(&link)
                {
                    parts.push(body);
                    *part_bytes += length;
                    *kept = front.or(kept.take());
                }
            }
            Touch::PartsDropped { link } => {
                if let Some(Link { role: Role::Sender { parts, part_bytes, front, .. }, .. }) =
                    self.links.get_mut(&link)
                {
                    parts.clear();
                    *part_bytes = 0;
                    *front = None;
                }
            }
            Touch::PartRefused { link } => {
                if let Some(Link { role: Role::Sender { parts, part_bytes, .. }, .. }) =
                    self.links.get_mut(&link)
                {
                    parts.clear();
                    *part_bytes = PART_REFUSED;
                }
            }
            Touch::RoomChanged { is_full } => self.is_full = is_full,
            Touch::Noted { entity, id, time } => {
                touched(1);
                self.entities[entity.0 as usize].seen.insert(id, time);
            }
            Touch::Forgotten { entity, id, time } => {
                // It may have been taken again since.
                let seen = &mut self.entities[entity.0 as usize].seen;
                if seen.get(&id) == Some(&time) {
                    seen.remove(&id);
                }
            }
            Touch::TierSet { namespace, tier } => {
                self.tiers.insert(namespace, tier);
            }
            Touch::Routed { topic, routes } => match routes {
                Some(routes) => drop(self.routes.insert(topic, routes)),
                None => drop(self.routes.remove(&topic)),
            },
            Touch::Rested { source, sequence } => {
                let ready = self.ready_mut(source);
                ready.returned.remove(&sequence);
                ready.resting.insert(sequence);
            }
            Touch::Redirected { entity } => {
                for source in [Source::main(entity), Source::dead_letter(entity)] {
                    let ready = self.ready_mut(source);
                    ready.returned.append(&mut ready.resting);
                    ready.fronts.clear();
                    self.stir(source);
                }
            }
            Touch::EntityCreated { entity, namespace, time } => {
                assert_eq!(entity.0 as usize, self.entities.len(), "entities come in order");
                self.entities.push(Presence { namespace, used: Some(time), ..Presence::default() });
            }
            Touch::EntityDeleted { entity } => {
                let presence = std::mem::take(&mut self.entities[entity.0 as usize]);
                self.held_locks -= presence.sub_queues.iter().map(|ready| ready.locks.len()).sum::<usize>();
                self.held_locks -= presence.sessions.as_ref().map_or(0, |sessions| sessions.held());
                self.timers.of_mut(presence.namespace).disarm(entity);
            }
            Touch::Committed { position } => self.commit(position),
            Touch::Accessed { entity, time } => {
                let presence = &mut self.entities[entity.0 as usize];
                presence.accessed = Some(time);
                presence.used = Some(time);
            }
            Touch::Used { entity, time } => self.entities[entity.0 as usize].used = Some(time),
            Touch::Scheduled { entity, due, sequence } => {
                touched(1);
                self.entities[entity.0 as usize].schedule.insert((due, sequence));
            }
            Touch::Unscheduled { entity, due, sequence } => {
                touched(1);
                let was_there = self.entities[entity.0 as usize].schedule.remove(&(due, sequence));
                assert!(was_there, "message {} was not scheduled", sequence.0);
            }
            Touch::TimeMoved { namespace, offset } => {
                let entities = &self.entities;
                let is_theirs = |entity: EntityId| entities[entity.0 as usize].namespace == namespace;
                self.timers.set_offset(namespace, offset, is_theirs);
            }
            Touch::Armed { entity, chore, at } => self.timers_of(entity).arm(entity, chore, at),
        }
    }

    fn set_credit(&mut self, link: LinkId, credit: u32) {
        let Some(Link { source, role }) = self.links.get(&link) else { return };
        let source = *source;
        if let Role::Receiver { session: Some(session), .. } = role {
            let session = Arc::clone(session);
            return self.credit_session(source.entity, &session, link, credit);
        }
        if self.ready_mut(source).waiting.set(link, credit) {
            self.stir(source);
        }
    }

    /// The credit that a link has left with the broker.
    pub fn credit(&self, link: LinkId) -> u32 {
        let Some(Link { source, role }) = self.links.get(&link) else { return 0 };
        match role {
            Role::Receiver { session: Some(session), .. } => {
                let holder = self.sessions(source.entity).and_then(|sessions| sessions.holder(session));
                holder.map_or(0, |holder| holder.credit)
            }
            // Whoever waits for a session keeps its entity as whoever waits for messages does.
            Role::Waiting { .. } => 1,
            _ => self.ready(*source).waiting.credit(link),
        }
    }

    pub(crate) fn stir(&mut self, source: Source) {
        let ready = self.ready_mut(source);
        if !ready.is_stirred {
            ready.is_stirred = true;
            self.stirred.push_back(source);
        }
    }

    /// The next queue that may have something to hand out.
    pub(crate) fn next_stirred(&mut self) -> Option<Source> {
        let source = self.stirred.pop_front()?;
        self.ready_mut(source).is_stirred = false;
        Some(source)
    }

    fn commit(&mut self, position: Position) {
        while let Some(awaiting) = self.awaiting.pop_front_if(|awaiting| awaiting.position <= position) {
            let ready = self.ready_mut(awaiting.source);
            match awaiting.what {
                Freed::Arrived(last) => ready.committed = ready.committed.max(last),
                Freed::Returned(sequence) => {
                    ready.returned.insert(sequence);
                }
                Freed::Written(sequence) => {
                    ready.unwritten.remove(&sequence);
                    ready.committed = ready.committed.max(sequence);
                }
                Freed::Joined(session, sequence) => {
                    ready.committed = ready.committed.max(sequence);
                    self.rejoin(awaiting.source.entity, session, sequence, true);
                }
                Freed::Rejoined(session, sequence) => {
                    self.rejoin(awaiting.source.entity, session, sequence, false);
                }
            }
            self.stir(awaiting.source);
        }
    }

    /// The queues in which something becomes free with `position`, and whether that is new there.
    pub(crate) fn freed_by(&self, position: Position) -> impl Iterator<Item = (Source, bool)> {
        let is_freed = move |awaiting: &&Awaiting| awaiting.position <= position;
        let freed = self.awaiting.iter().take_while(is_freed);
        freed.map(|awaiting| (awaiting.source, matches!(awaiting.what, Freed::Arrived(_))))
    }

    /// A message that was unlocked without a record (handed back unread) is free at once.
    pub(crate) fn free_now(&mut self, source: Source, sequence: Sequence) {
        self.ready_mut(source).returned.insert(sequence);
        self.stir(source);
    }

    pub(crate) fn await_commit(&mut self, source: Source, position: Position, what: Freed) {
        self.awaiting.push_back(Awaiting { position, source, what });
    }

    fn time_lock(&mut self, source: Source, lock: Lock) {
        self.time(LockTimer { at: lock.until, source, token: lock.token.0 });
    }

    pub(crate) fn time(&mut self, timer: LockTimer) {
        touched(1);
        let held_locks = self.held_locks;
        let timers = self.timers.of_mut(self.entities[timer.source.entity.0 as usize].namespace);
        timers.add_lock(timer);
        if timers.has_too_many(held_locks) {
            let entities = &self.entities;
            timers.keep_locks(|timer| is_held(entities, timer));
        }
    }

    fn timers_of(&mut self, entity: EntityId) -> &mut Timers {
        self.timers.of_mut(self.entities[entity.0 as usize].namespace)
    }

    /// How far the time at an entity is ahead of the owner's.
    pub(crate) fn clock_offset_at(&self, entity: EntityId) -> ClockOffset {
        match self.timers.is_usual() {
            true => ClockOffset::default(),
            false => self.timers.offset(self.presence(entity).namespace),
        }
    }

    /// When something is next due, in the owner's time.
    pub fn next_due(&self) -> Option<Time> {
        let ends = self.transactions.deadlines();
        let ends = ends.map(|(namespace, deadline, _)| deadline.owners(self.timers.offset(namespace)));
        self.timers.next_due().into_iter().chain(ends).min()
    }

    /// When that chore of an entity is due; never, if it has none.
    pub(crate) fn armed(&self, entity: EntityId, chore: Chore) -> LocalTime {
        self.timers.of(self.presence(entity).namespace).armed(entity, chore)
    }

    /// Takes something that is due by `now` of the owner, if anything is. Locks that were settled meanwhile are passed
    /// over.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<Due> {
        loop {
            match self.timers.take_due(now)? {
                Due::Lock(timer) if !is_held(&self.entities, &timer) => {}
                due => return Some(due),
            }
        }
    }

    /// Takes what is due first in a namespace, if that is not after `until` of its own time, and says when it was due.
    pub(crate) fn take_first(
        &mut self,
        namespace: NamespaceId,
        until: LocalTime,
    ) -> Option<(LocalTime, Due)> {
        let timers = self.timers.of_mut(namespace);
        loop {
            let at = timers.next_due()?;
            match timers.take_due(until)? {
                Due::Lock(timer) if !is_held(&self.entities, &timer) => {}
                due => return Some((at, due)),
            }
        }
    }

    /// A number that no delivery of this run had before and that an outsider cannot guess.
    pub(crate) fn fresh_nonce(&mut self) -> u64 {
        self.nonces.fresh()
    }
}

/// Where to go on handing out after a planned stop, and what is free before that: everything up to the last message
/// whose lock was kept had been handed out.
fn handed_out(queue: &Queue, locks: &IdMap<Sequence, Lock>) -> (Sequence, BTreeSet<Sequence>) {
    let is_active =
        |sequence: &&Sequence| queue.index.get(**sequence).is_some_and(|slot| slot.state() == State::Active);
    let cursor = locks.keys().filter(is_active).max().map_or(Sequence(0), |last| last.next());
    let mut returned = BTreeSet::new();
    let mut from = Sequence(0);
    while let Some((sequence, _)) = queue.index.next_active_from(from)
        && sequence < cursor
    {
        if !locks.contains_key(&sequence) {
            returned.insert(sequence);
        }
        from = sequence.next();
    }
    (cursor, returned)
}

/// What is free in a dead-letter queue after a start.
fn free_letters(letters: &Index, locks: &IdMap<Sequence, Lock>) -> BTreeSet<Sequence> {
    let active = letters.iter().filter(|(_, slot)| slot.state() == State::Active);
    active.map(|(sequence, _)| sequence).filter(|sequence| !locks.contains_key(sequence)).collect()
}

fn is_held(entities: &[Presence], timer: &LockTimer) -> bool {
    let presence = &entities[timer.source.entity.0 as usize];
    if let Some(ticket) = live::ticket_of(timer) {
        return presence.sessions.as_ref().is_some_and(|sessions| sessions.timed(ticket, timer.at).is_some());
    }
    let ready = &presence.sub_queues[timer.source.sub as usize];
    let token = LockToken(timer.token);
    let lock = ready.locks.get(&token.sequence());
    lock.is_some_and(|lock| lock.token == token && lock.until == timer.at)
}

#[cfg(test)]
mod tests;
