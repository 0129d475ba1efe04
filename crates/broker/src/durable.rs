//! What survives: everything that records have said. Rebuilt by replaying them, so [`Durable::apply`] must accept
//! whatever was ever recorded and may rely on nothing but itself and the time of the batch.

use crate::access::AccessRule;
use crate::effect::{Extra, Forwarded};
use crate::extras::Extras;
use crate::ids::{BodyId, EntityId, IdHasher, IdMap, NamespaceId, Number, Sequence, Source, SubQueue};
use crate::planted::{Bug, is_planted};
use crate::queue::history::History;
use crate::queue::index::{Index, Reason, Slot, State};
use crate::record::{KeptLock, Record};
use crate::session::register::{Part, Session, SessionState, Sessions};
use crate::settings::QueueSettings;
use crate::time::{Lead, LocalTime, Span, Time};
use crate::topic::change::Change;
use crate::topic::{SUBSCRIPTIONS, Subscription, Topic, Topics};
use message::overlay::Overlay;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub struct Durable {
    /// Entities by namespace and case-folded path (S-250).
    pub(crate) names: BTreeMap<(NamespaceId, Box<str>), EntityId>,
    /// By entity id. Ids are never reused, so the place of a deleted entity stays empty.
    /// Shared with a snapshot that is being written; the first change after it copies the queue, not its messages.
    pub(crate) entities: Vec<Option<Arc<Queue>>>,
    pub(crate) next_body: BodyId,
    /// The locks that a planned stop has left. Any record after them makes them void.
    pub(crate) kept_locks: Arc<[KeptLock]>,
    pub(crate) topics: Topics,
    /// Authorization rules of the entities that have any.
    pub(crate) access: BTreeMap<EntityId, Vec<AccessRule>>,
    /// By number; the first is called `default`. Compared without regard to case.
    pub(crate) namespaces: Vec<Namespace>,
    /// How far the time of a namespace is ahead of the owner's, where it was ever moved.
    pub(crate) leads: BTreeMap<NamespaceId, Lead>,
    /// Where bodies lie that were copied forward: the id that messages know, and the one of the newest copy.
    pub(crate) moved: Arc<IdMap<BodyId, BodyId>>,
}

/// A namespace, and since when there is one; of `default`, since it was first asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Namespace {
    pub name: Box<str>,
    pub created: Option<LocalTime>,
}

/// What holds messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Queue,
    /// Holds only what is scheduled (S-180).
    Topic,
    Subscription {
        topic: EntityId,
    },
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Queue => "Queue",
            Kind::Topic => "Topic",
            Kind::Subscription { .. } => "Subscription",
        }
    }
}

/// A queue, or the messages of a topic or of a subscription, which live by the same rules.
#[derive(Debug, Clone)]
pub struct Queue {
    pub kind: Kind,
    pub namespace: NamespaceId,
    pub path: Box<str>,
    /// Of a topic or a subscription: what its own settings mean for its messages.
    pub settings: QueueSettings,
    pub created: LocalTime,
    pub updated: LocalTime,
    /// The id in the top bits of its numbers, if it is partitioned (S-221).
    pub partition: u16,
    /// The number that the next message will take.
    pub next: Sequence,
    /// What is received, deferred or scheduled.
    pub index: Index,
    /// The dead-letter queue. Numbers are those of `index`, and a message is in one part of the queue alone.
    pub dead: Index,
    /// The transfer dead-letter queue, while there is anything in it: few queues ever have one (S-114).
    pub stranded: Option<Box<Index>>,
    pub extras: Extras,
    /// What it looks for duplicates in (S-160).
    pub history: History,
    pub counts: Counts,
    pub bytes: u64,
    /// The sessions of its messages, where anybody may ask for them.
    pub sessions: Option<Box<Sessions>>,
    /// Of a topic: the bytes that its subscriptions hold (S-235).
    pub below: u64,
    /// Of a subscription: what most of its messages had for a number at the topic is so much more than the one that they
    /// have here (S-36). What differs says so in its extra.
    pub lead: u64,
}

/// How many messages an entity holds, by what has become of them (S-233).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Counts {
    /// Ready for delivery, or delivered and locked.
    pub active: u64,
    pub deferred: u64,
    pub scheduled: u64,
    pub dead_letter: u64,
    pub transfer_dead_letter: u64,
}

/// Numbers of a partitioned entity count in 48 bits (S-32, S-33).
const PARTITION_SHIFT: u32 = 48;
const COUNTER: u64 = (1 << PARTITION_SHIFT) - 1;

/// A partitioned entity lives in one of sixteen partitions, all of which are here (S-221).
pub const PARTITIONS: u16 = 16;

/// The partition that an entity lives in, should it be partitioned.
pub(crate) fn partition_of(entity: EntityId) -> u16 {
    (entity.0 % u32::from(PARTITIONS)) as u16
}

impl Counts {
    pub fn total(&self) -> u64 {
        self.active + self.deferred + self.scheduled + self.dead_letter + self.transfer_dead_letter
    }

    fn of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Active => &mut self.active,
            State::Deferred => &mut self.deferred,
            State::Scheduled => &mut self.scheduled,
            State::Gone => unreachable!("what is gone is not counted"),
        }
    }
}

impl Queue {
    pub(crate) fn empty(
        kind: Kind,
        entity: EntityId,
        namespace: NamespaceId,
        path: Box<str>,
        settings: QueueSettings,
        time: LocalTime,
    ) -> Queue {
        Queue {
            kind,
            namespace,
            path,
            settings,
            created: time,
            updated: time,
            // The numbers of a subscription are those of the partition of its topic.
            partition: partition_of(if let Kind::Subscription { topic } = kind { topic } else { entity }),
            next: Sequence(1),
            index: Index::default(),
            dead: Index::default(),
            stranded: None,
            extras: Extras::default(),
            history: History::default(),
            counts: Counts::default(),
            bytes: 0,
            below: 0,
            lead: 0,
            sessions: None,
        }
    }

    /// Everything that counts for its quota (S-235).
    pub fn held_bytes(&self) -> u64 {
        self.bytes + self.below
    }

    /// The number that a message had where it was sent, if that was another entity (S-36).
    pub fn first_number(&self, sequence: Sequence) -> Option<Number> {
        let forwarded = self.extras.get(&sequence).and_then(|extra| extra.forwarded);
        let is_copy = matches!(self.kind, Kind::Subscription { .. });
        let copied = || is_copy.then(|| self.number(Sequence(sequence.0.wrapping_add(self.lead))));
        forwarded.map(|forwarded| forwarded.number).or_else(copied)
    }

    /// The body that a message begins with.
    pub(crate) fn first_body(&self, sequence: Sequence, slot: &Slot) -> BodyId {
        let parts = self.extras.get(&sequence).map(|extra| &extra.parts[..]).unwrap_or_default();
        parts.first().copied().unwrap_or(slot.body)
    }

    /// The messages of a part of the queue, if it has any.
    pub fn part(&self, sub: SubQueue) -> Option<&Index> {
        match sub {
            SubQueue::Main => Some(&self.index),
            SubQueue::DeadLetter => Some(&self.dead),
            SubQueue::TransferDeadLetter => self.stranded.as_deref(),
        }
    }

    /// The number by which clients know a message.
    pub fn number(&self, sequence: Sequence) -> Number {
        if self.settings.partitioning {
            Number(u64::from(self.partition) << PARTITION_SHIFT | sequence.0 & COUNTER)
        } else {
            Number(sequence.0)
        }
    }

    /// The newest message that may have this number.
    pub fn sequence(&self, number: Number) -> Option<Sequence> {
        if !self.settings.partitioning {
            return Some(Sequence(number.0));
        }
        if number.0 >> PARTITION_SHIFT != u64::from(self.partition) {
            return None;
        }
        let newest = self.next.0 & !COUNTER | number.0 & COUNTER;
        if newest < self.next.0 {
            Some(Sequence(newest))
        } else {
            newest.checked_sub(COUNTER + 1).map(Sequence)
        }
    }

    pub(crate) fn push(&mut self, sequence: Sequence, slot: Slot) {
        assert_eq!(sequence, self.next, "numbers have no gaps");
        self.next = sequence.next();
        self.index.push(sequence, slot);
        *self.counts.of(slot.state()) += 1;
        self.bytes += u64::from(slot.length);
    }

    /// Adds a message that waits for its time, under the next number or one that was kept for it (`Skipped`).
    pub(crate) fn put_scheduled(&mut self, sequence: Sequence, slot: Slot) {
        if sequence >= self.next {
            return self.push(sequence, slot);
        }
        self.index.insert(sequence, slot);
        self.counts.scheduled += 1;
        self.bytes += u64::from(slot.length);
    }

    /// Takes a message out of wherever it is.
    pub(crate) fn remove(&mut self, sequence: Sequence) -> Slot {
        let slot = match self.index.remove(sequence) {
            Some(slot) => {
                *self.counts.of(slot.state()) -= 1;
                slot
            }
            None => {
                let slot = self.unbury(sequence);
                slot.expect("only a message that is there is recorded as removed")
            }
        };
        self.bytes -= u64::from(slot.length);
        if let Some(sessions) = &mut self.sessions {
            sessions.leave(sequence);
        }
        slot
    }

    /// Takes a message out of whichever dead-letter queue has it.
    fn unbury(&mut self, sequence: Sequence) -> Option<Slot> {
        if let Some(slot) = self.dead.remove(sequence) {
            self.counts.dead_letter -= 1;
            return Some(slot);
        }
        let slot = self.stranded.as_mut()?.remove(sequence)?;
        self.counts.transfer_dead_letter -= 1;
        if self.counts.transfer_dead_letter == 0 {
            self.stranded = None;
        }
        Some(slot)
    }

    /// Whichever dead-letter queue has a message.
    fn grave_of(&mut self, sequence: Sequence) -> &mut Index {
        match &mut self.stranded {
            Some(stranded) if stranded.get(sequence).is_some() => stranded,
            _ => &mut self.dead,
        }
    }

    /// A message, wherever in the queue it is.
    pub fn get(&self, sequence: Sequence) -> Option<&Slot> {
        let stranded = || self.stranded.as_ref()?.get(sequence);
        self.index.get(sequence).or_else(|| self.dead.get(sequence)).or_else(stranded)
    }

    /// All messages: those that are received, then dead letters, then those of the transfer dead-letter queue.
    pub fn parts(&self) -> impl Iterator<Item = &Index> {
        [&self.index, &self.dead].into_iter().chain(self.stranded.as_deref())
    }

    /// A delivery has failed. In a dead-letter queue the count stands still (S-115).
    fn raise_count(&mut self, sequence: Sequence) {
        match self.index.get_mut(sequence) {
            Some(slot) => slot.raise_count(),
            None => assert!(self.get(sequence).is_some(), "only a message that is there returns"),
        }
    }

    fn defer(&mut self, sequence: Sequence) {
        match self.index.get(sequence) {
            Some(slot) => {
                *self.counts.of(slot.state()) -= 1;
                self.counts.deferred += 1;
                self.index.set_state(sequence, State::Deferred);
                if let Some(sessions) = &mut self.sessions {
                    sessions.set_aside(sequence);
                }
            }
            None => self.grave_of(sequence).set_state(sequence, State::Deferred),
        }
    }

    fn dead_letter(&mut self, sequence: Sequence, reason: Reason) {
        let slot = self.index.remove(sequence).expect("only a message that is there is dead-lettered");
        *self.counts.of(slot.state()) -= 1;
        self.counts.dead_letter += 1;
        self.dead.insert(sequence, slot.dead(reason));
        if let Some(sessions) = &mut self.sessions {
            sessions.bury(sequence);
        }
    }

    /// A message begins in the transfer dead-letter queue.
    fn strand(&mut self, sequence: Sequence, slot: Slot) {
        assert_eq!(sequence, self.next, "numbers have no gaps");
        self.next = sequence.next();
        self.stranded.get_or_insert_default().push(sequence, slot);
        self.counts.transfer_dead_letter += 1;
        self.bytes += u64::from(slot.length);
    }

    /// Whether it remembers the sessions of its messages: it, or whatever it forwards to, may ask for them.
    pub fn keeps_sessions(&self) -> bool {
        let QueueSettings { requires_session, forward_to, forward_dead_letters_to, .. } = &self.settings;
        // A topic holds what is scheduled, and its copies may need the session.
        let is_asked = self.kind == Kind::Topic || *requires_session;
        is_asked || forward_to.is_some() || forward_dead_letters_to.is_some()
    }

    /// The session of a message, if it is remembered.
    pub fn session_of(&self, sequence: Sequence) -> Option<&Arc<str>> {
        self.sessions.as_ref()?.of(sequence)
    }

    /// A message that is there belongs to a session.
    pub(crate) fn join(&mut self, sequence: Sequence, session: &Arc<str>) {
        let part = match self.index.get(sequence).map(Slot::state) {
            Some(State::Active) => Part::Active,
            Some(_) => Part::Aside,
            None => Part::Dead,
        };
        self.sessions.get_or_insert_default().join(sequence, session, part);
    }

    fn set_session_state(&mut self, session: &Arc<str>, state: Option<SessionState>) {
        self.bytes += state.map_or(0, |state| u64::from(state.length));
        let before = self.sessions.get_or_insert_default().set_state(session, state);
        self.bytes -= before.map_or(0, |state| u64::from(state.length));
    }

    pub(crate) fn merge(&mut self, sequence: Sequence, overlay: Option<&Overlay>) {
        if let Some(overlay) = overlay {
            self.extras.edit(sequence, |extra| {
                let merged = extra.overlay.get_or_insert_default().merge(overlay);
                merged.expect("the change was checked before");
            });
        }
    }

    fn add_extra(&mut self, sequence: Sequence, parts: Option<&[BodyId]>, time_to_live: Span) {
        let time_to_live = (!time_to_live.is_max()).then_some(time_to_live);
        if parts.is_some() || time_to_live.is_some() {
            let parts = parts.map(<[BodyId]>::to_vec).unwrap_or_default();
            self.extras.insert(sequence, Arc::new(Extra { parts, time_to_live, ..Extra::default() }));
        }
    }
}

impl Durable {
    pub fn new() -> Durable {
        let default = Namespace { name: "default".into(), created: None };
        Durable { next_body: BodyId(1), namespaces: vec![default], ..Durable::default() }
    }

    /// What holds the messages of an entity: of a queue, a topic or a subscription.
    pub fn queue(&self, entity: EntityId) -> Option<&Queue> {
        self.entities.get(entity.0 as usize)?.as_deref()
    }

    /// A queue that is not part of a topic.
    pub(crate) fn plain_queue(&self, entity: EntityId) -> Option<&Queue> {
        self.queue(entity).filter(|queue| queue.kind == Kind::Queue)
    }

    pub fn access(&self, entity: EntityId) -> &[AccessRule] {
        self.access.get(&entity).map_or(&[], Vec::as_slice)
    }

    pub fn namespace_named(&self, name: &str) -> Option<NamespaceId> {
        let at = self.namespaces.iter().position(|known| known.name.eq_ignore_ascii_case(name))?;
        Some(NamespaceId(at as u32))
    }

    pub fn namespace(&self, namespace: NamespaceId) -> Option<&Namespace> {
        self.namespaces.get(namespace.0 as usize)
    }

    pub fn namespace_names(&self) -> Vec<Box<str>> {
        self.namespaces.iter().map(|known| known.name.clone()).collect()
    }

    pub fn next_namespace(&self) -> NamespaceId {
        NamespaceId(self.namespaces.len() as u32)
    }

    pub(crate) fn queue_mut(&mut self, entity: EntityId) -> &mut Queue {
        self.entities
            .get_mut(entity.0 as usize)
            .and_then(Option::as_mut)
            .map(Arc::make_mut)
            .expect("a record names only entities that exist at its place in the journal")
    }

    pub fn next_entity(&self) -> EntityId {
        EntityId(self.entities.len() as u32)
    }

    pub fn next_body(&self) -> BodyId {
        self.next_body
    }

    /// The locks of a planned stop, if nothing was recorded since.
    pub fn kept_locks(&self) -> &[KeptLock] {
        &self.kept_locks
    }

    /// Where the bytes of a body lie: under its own id, or under that of the newest copy.
    pub fn stored_as(&self, body: BodyId) -> BodyId {
        if self.moved.is_empty() { body } else { self.moved.get(&body).copied().unwrap_or(body) }
    }

    pub fn find(&self, namespace: NamespaceId, path: &str) -> Option<EntityId> {
        self.names.get(&(namespace, fold(path))).copied()
    }

    /// Every entity, for rebuilding what is not stored.
    pub fn queues(&self) -> impl Iterator<Item = (EntityId, &Queue)> {
        self.entities
            .iter()
            .enumerate()
            .filter_map(|(id, queue)| Some((EntityId(id as u32), queue.as_deref()?)))
    }

    pub fn namespace_of(&self, entity: EntityId) -> Option<NamespaceId> {
        self.queue(entity).map(|queue| queue.namespace)
    }

    /// The namespaces whose time was moved, and by how many milliseconds it is ahead of the owner's.
    pub fn leads(&self) -> impl Iterator<Item = (NamespaceId, i64)> {
        self.leads.iter().map(|(namespace, lead)| (*namespace, lead.0))
    }

    /// Takes a record back into memory, whose batch has the owner's time `time`.
    pub fn apply(&mut self, record: &Record, time: Time) {
        if let Some((namespace, to)) = moved_clock(record) {
            return self.move_clock(namespace, to, time);
        }
        let dated = if self.leads.is_empty() { None } else { self.namespace_of_record(record) };
        let lead = dated.and_then(|namespace| self.leads.get(&namespace)).copied().unwrap_or_default();
        self.apply_local(record, time.local(lead));
    }

    /// Somebody moved the time of a namespace to `to`, when the owner's was `owner`.
    pub(crate) fn move_clock(&mut self, namespace: NamespaceId, to: LocalTime, owner: Time) {
        self.kept_locks = Arc::default();
        self.leads.insert(namespace, to.lead_over(owner));
    }

    /// Whose time a record is told in; of those that are told in none, nobody's.
    pub(crate) fn namespace_of_record(&self, record: &Record) -> Option<NamespaceId> {
        match record {
            Record::QueueCreated { namespace, .. } => Some(*namespace),
            Record::Enqueued { entity, .. }
            | Record::Scheduled { entity, .. }
            | Record::TransferDeadLettered { entity, .. }
            | Record::Activated { entity, .. }
            | Record::SessionStateSet { entity, .. }
            | Record::Noted { entity, .. } => self.namespace_of(*entity),
            Record::Forwarded { source, .. } => self.namespace_of(source.entity),
            Record::Published(published) => self.namespace_of(published.topic),
            Record::Managed(change) => match &**change {
                Change::TopicCreated { namespace, .. } => Some(*namespace),
                Change::SubscriptionCreated { topic: entity, .. }
                | Change::QueueUpdated { entity, .. }
                | Change::TopicUpdated { entity, .. }
                | Change::SubscriptionUpdated { entity, .. }
                | Change::RulePut { subscription: entity, .. }
                | Change::RuleRemoved { subscription: entity, .. } => self.namespace_of(*entity),
                // Whoever names namespaces asks in the first of them.
                Change::NamespaceNamed { .. } => Some(NamespaceId(0)),
                // The rules are dated by themselves, and a move says where it leads to.
                Change::AccessChanged { .. } | Change::ClockMoved { .. } => None,
            },
            Record::EntityDeleted { .. }
            | Record::PartStored { .. }
            | Record::Skipped { .. }
            | Record::InSession { .. }
            | Record::Removed { .. }
            | Record::Returned { .. }
            | Record::Deferred { .. }
            | Record::DeadLettered { .. }
            | Record::LocksKept { .. }
            | Record::Relocated { .. } => None,
        }
    }

    /// Takes a record into memory. `time` is that of the namespace that it speaks of.
    pub(crate) fn apply_local(&mut self, record: &Record, time: LocalTime) {
        if !self.kept_locks.is_empty() {
            self.kept_locks = Arc::default();
        }
        match record {
            Record::QueueCreated { entity, namespace, path, settings } => {
                self.create(*entity, *namespace, path, settings, time);
            }
            Record::EntityDeleted { entity } => {
                self.access.remove(entity);
                self.delete(*entity);
            }
            Record::Managed(change) => self.apply_change(change, time),
            Record::PartStored { body } => self.take_body(*body),
            Record::Relocated { body, copy } => {
                self.take_body(*copy);
                Arc::make_mut(&mut self.moved).insert(*body, *copy);
            }
            Record::Enqueued { entity, sequence, body, length, expires, parts } => {
                self.name_body(*body);
                let queue = self.queue_mut(*entity);
                queue.push(*sequence, Slot::active(*body, *length, time, *expires));
                if let Some(parts) = parts {
                    queue.add_extra(*sequence, Some(parts), Span::MAX);
                }
            }
            Record::Scheduled { entity, sequence, body, length, due, time_to_live, parts } => {
                self.name_body(*body);
                let queue = self.queue_mut(*entity);
                queue.put_scheduled(*sequence, Slot::scheduled(*body, *length, time, *due));
                queue.add_extra(*sequence, parts.as_deref(), *time_to_live);
            }
            Record::Activated { entity, scheduled, sequence, expires } => {
                let queue = self.queue_mut(*entity);
                let session = queue.session_of(*scheduled).cloned();
                let slot = queue.remove(*scheduled);
                queue.push(*sequence, Slot::active(slot.body, slot.length, time, *expires));
                if let Some(session) = session {
                    queue.join(*sequence, &session);
                }
                if let Some(mut extra) = queue.extras.remove(scheduled) {
                    Arc::make_mut(&mut extra).time_to_live = None;
                    if *extra != Extra::default() {
                        queue.extras.insert(*sequence, extra);
                    }
                }
            }
            Record::Removed { entity, first, count } => {
                let queue = self.queue_mut(*entity);
                let before = queue.bytes;
                for number in first.0..first.0 + u64::from(*count) {
                    queue.remove(Sequence(number));
                    queue.extras.remove(&Sequence(number));
                }
                let (kind, gone) = (queue.kind, before - queue.bytes);
                if is_planted(Bug::Numbering) && queue.counts.total() == 0 {
                    queue.next = *first;
                }
                self.take_from_topic(kind, gone);
            }
            Record::Returned { entity, sequence, overlay } => {
                let queue = self.queue_mut(*entity);
                queue.raise_count(*sequence);
                queue.merge(*sequence, overlay.as_deref());
            }
            Record::Deferred { entity, sequence, overlay } => {
                let queue = self.queue_mut(*entity);
                queue.raise_count(*sequence);
                queue.defer(*sequence);
                queue.merge(*sequence, overlay.as_deref());
            }
            Record::DeadLettered { entity, sequence, reason, is_failure, overlay } => {
                let queue = self.queue_mut(*entity);
                if *is_failure {
                    queue.raise_count(*sequence);
                }
                queue.dead_letter(*sequence, *reason);
                queue.merge(*sequence, overlay.as_deref());
            }
            Record::TransferDeadLettered { entity, sequence, body, length, reason, parts } => {
                self.name_body(*body);
                let queue = self.queue_mut(*entity);
                // It lives until somebody receives it.
                queue.strand(*sequence, Slot::active(*body, *length, time, LocalTime::NEVER).dead(*reason));
                queue.add_extra(*sequence, parts.as_deref(), Span::MAX);
            }
            Record::Noted { entity, id } => {
                let queue = self.queue_mut(*entity);
                queue.history.note(*id, time, queue.settings.duplicate_window);
            }
            Record::Skipped { entity, sequence } => {
                let queue = self.queue_mut(*entity);
                assert_eq!(*sequence, queue.next, "numbers have no gaps");
                queue.next = sequence.next();
            }
            Record::Forwarded { source, sequence, target, number, expires, due, overlay } => {
                let session = self.queue_mut(source.entity).session_of(*sequence).cloned();
                let (slot, mut extra) = self.take_out(*source, *sequence);
                let queue = self.queue_mut(*target);
                match due {
                    None => queue.push(*number, Slot::active(slot.body, slot.length, time, *expires)),
                    Some(due) => {
                        queue.push(*number, Slot::scheduled(slot.body, slot.length, time, *due));
                        let life = (!expires.is_never()).then(|| Span((expires.0 - due.0).max(0) as u64));
                        Arc::make_mut(&mut extra).time_to_live = life;
                    }
                }
                queue.extras.insert(*number, extra);
                queue.merge(*number, overlay.as_deref());
                if let Some(session) = session.filter(|_| queue.keeps_sessions()) {
                    queue.join(*number, &session);
                }
            }
            Record::InSession { entity, sequence, session } => {
                self.queue_mut(*entity).join(*sequence, session);
            }
            Record::SessionStateSet { entity, session, state } => {
                if let Some((body, _)) = state {
                    self.take_body(*body);
                }
                let state = state.map(|(body, length)| SessionState { body, length, changed: time });
                let queue = self.queue_mut(*entity);
                let (before, kind) = (queue.bytes, queue.kind);
                queue.set_session_state(session, state);
                let after = queue.bytes;
                if let Kind::Subscription { topic } = kind {
                    let topic = self.queue_mut(topic);
                    topic.below = topic.below + after - before;
                }
            }
            Record::Published(published) => self.publish(published, time),
            Record::LocksKept { locks } => self.kept_locks = locks.iter().copied().collect(),
        }
    }

    fn create(
        &mut self,
        entity: EntityId,
        namespace: NamespaceId,
        path: &str,
        settings: &QueueSettings,
        time: LocalTime,
    ) {
        assert_eq!(entity, self.next_entity(), "entity ids are handed out in order");
        let taken = self.names.insert((namespace, fold(path)), entity);
        assert!(taken.is_none(), "queue '{path}' was created twice");
        let queue = Queue::empty(Kind::Queue, entity, namespace, path.into(), settings.clone(), time);
        self.entities.push(Some(Arc::new(queue)));
    }

    /// An entity goes with everything below it.
    fn delete(&mut self, entity: EntityId) {
        let Some(queue) = self.entities[entity.0 as usize].take() else { return };
        match queue.kind {
            Kind::Queue => drop(self.names.remove(&(queue.namespace, fold(&queue.path)))),
            Kind::Topic => {
                self.names.remove(&(queue.namespace, fold(&queue.path)));
                let topic = self.topics.remove(entity);
                for subscription in topic.iter().flat_map(|topic| topic.subscriptions.values()) {
                    self.entities[subscription.0 as usize] = None;
                }
            }
            Kind::Subscription { .. } => {
                self.topics.remove(entity);
                self.take_from_topic(queue.kind, queue.bytes);
            }
        }
    }

    /// Bytes that a subscription held are gone from its topic too.
    pub(crate) fn take_from_topic(&mut self, kind: Kind, bytes: u64) {
        if let Kind::Subscription { topic } = kind {
            self.queue_mut(topic).below -= bytes;
        }
    }

    /// Takes out a message that goes on to another entity, with what it has besides its slot. It remembers where it came
    /// from (S-36) and how far (S-173).
    pub(crate) fn take_out(&mut self, source: Source, sequence: Sequence) -> (Slot, Arc<Extra>) {
        let from = self.queue_mut(source.entity);
        let number = from.first_number(sequence).unwrap_or_else(|| from.number(sequence));
        let left = from.index.get(sequence).copied().filter(|_| is_planted(Bug::ForwardedTwice));
        let slot = left.unwrap_or_else(|| from.remove(sequence));
        let kind = from.kind;
        let mut extra = from.extras.remove(&sequence).unwrap_or_default();
        let forwarded = Arc::make_mut(&mut extra).forwarded.get_or_insert(Forwarded { number, hops: 0 });
        forwarded.hops += 1;
        self.take_from_topic(kind, slot.length.into());
        (slot, extra)
    }

    fn apply_change(&mut self, change: &Change, time: LocalTime) {
        // Ids are handed out in order, whatever they are for.
        if let Change::TopicCreated { entity, .. } | Change::SubscriptionCreated { entity, .. } = change {
            assert_eq!(*entity, self.next_entity(), "entity ids are handed out in order");
        }
        self.put_change(change, time);
    }

    /// Gives an entity its place, which is behind all others or was left for it.
    pub(crate) fn put_entity(&mut self, entity: EntityId, queue: Queue) {
        let at = entity.0 as usize;
        if self.entities.len() <= at {
            self.entities.resize(at + 1, None);
        }
        self.entities[at] = Some(Arc::new(queue));
    }

    /// Takes a change, in any order of entities.
    fn put_change(&mut self, change: &Change, time: LocalTime) {
        match change {
            Change::QueueUpdated { entity, settings } => {
                let queue = self.queue_mut(*entity);
                (queue.settings, queue.updated) = ((**settings).clone(), time);
            }
            Change::TopicCreated { entity, namespace, path, settings } => {
                let taken = self.names.insert((*namespace, fold(path)), *entity);
                assert!(taken.is_none(), "topic '{path}' was created twice");
                let topic = Topic {
                    namespace: *namespace,
                    path: path.clone(),
                    settings: (**settings).clone(),
                    created: time,
                    updated: time,
                    subscriptions: BTreeMap::new(),
                };
                let settings = settings.of_messages();
                let queue = Queue::empty(Kind::Topic, *entity, *namespace, path.clone(), settings, time);
                self.topics.add_topic(*entity, topic);
                self.put_entity(*entity, queue);
            }
            Change::SubscriptionCreated { entity, topic, name, settings } => {
                let subscription = Subscription {
                    topic: *topic,
                    name: name.clone(),
                    settings: (**settings).clone(),
                    created: time,
                    updated: time,
                    rules: BTreeMap::new(),
                };
                let above = self.queue(*topic).expect("a subscription has its topic");
                let path = format!("{}/{SUBSCRIPTIONS}/{name}", above.path).into();
                let kind = Kind::Subscription { topic: *topic };
                let settings = settings.of_messages(&above.settings);
                let queue = Queue::empty(kind, *entity, above.namespace, path, settings, time);
                self.topics.add_subscription(*entity, subscription);
                self.put_entity(*entity, queue);
            }
            Change::AccessChanged { entity, rules } => {
                self.access.insert(*entity, rules.clone());
            }
            Change::NamespaceNamed { namespace, name } => {
                if *namespace == NamespaceId(0) {
                    self.namespaces[0].created = Some(time);
                } else {
                    assert_eq!(*namespace, self.next_namespace(), "namespaces are numbered in order");
                    self.namespaces.push(Namespace { name: name.clone(), created: Some(time) });
                }
            }
            Change::ClockMoved { .. } => unreachable!("only `move_clock` moves a clock"),
            Change::TopicUpdated { entity, settings } => {
                let queue = self.queue_mut(*entity);
                (queue.settings, queue.updated) = (settings.of_messages(), time);
                self.topics.apply(change, time);
            }
            Change::SubscriptionUpdated { entity, settings } => {
                let queue = self.queue_mut(*entity);
                (queue.settings, queue.updated) = (settings.of_messages(&queue.settings), time);
                self.topics.apply(change, time);
            }
            Change::RulePut { .. } | Change::RuleRemoved { .. } => self.topics.apply(change, time),
        }
    }

    /// Everything that was managed besides queues, as the changes that make it again.
    pub(crate) fn managed(&self) -> Vec<(LocalTime, Change)> {
        let named = self.namespaces.iter().enumerate().filter_map(|(number, known)| {
            let namespace = NamespaceId(number as u32);
            Some((known.created?, Change::NamespaceNamed { namespace, name: known.name.clone() }))
        });
        let access = self.access.iter().map(|(entity, rules)| {
            (LocalTime(0), Change::AccessChanged { entity: *entity, rules: rules.clone() })
        });
        // Where the clocks were when the owner's time began.
        let moved = self.leads.iter().map(|(namespace, lead)| {
            (LocalTime(0), Change::ClockMoved { namespace: *namespace, to: Time(0).local(*lead) })
        });
        named.chain(moved).chain(self.topics.changes()).chain(access).collect()
    }

    /// Takes back a change that [`Durable::managed`] gave. False when it contradicts what is there.
    pub(crate) fn restore(&mut self, change: &Change, time: LocalTime) -> bool {
        let is_new = |entity: &EntityId| self.queue(*entity).is_none();
        let fits = match change {
            Change::TopicCreated { entity, namespace, path, .. } => {
                is_new(entity) && self.find(*namespace, path).is_none()
            }
            Change::SubscriptionCreated { entity, .. } => is_new(entity) && self.topics.fits(change),
            Change::NamespaceNamed { namespace, .. } => {
                *namespace == NamespaceId(0) || *namespace == self.next_namespace()
            }
            Change::AccessChanged { .. } => true,
            Change::ClockMoved { namespace, .. } => *namespace < self.next_namespace(),
            Change::QueueUpdated { .. } => false,
            other => self.topics.fits(other),
        };
        match change {
            Change::ClockMoved { namespace, to } if fits => self.move_clock(*namespace, *to, Time(0)),
            _ if fits => self.put_change(change, time),
            _ => {}
        }
        fits
    }

    pub(crate) fn take_body(&mut self, body: BodyId) {
        assert_eq!(body, self.next_body, "body ids are handed out in order");
        self.next_body = BodyId(body.0 + 1);
    }

    /// A record names a body: the next one, which it brings, or one that was stored before, by `PartStored`.
    pub(crate) fn name_body(&mut self, body: BodyId) {
        if body >= self.next_body {
            self.take_body(body);
        }
    }

    /// A number that two equal states share and two different ones hardly ever do. Compares a replayed state with
    /// the one that wrote the journal.
    pub fn fingerprint(&self) -> u64 {
        // It guards against mistakes and not against anybody, and is taken of whole states: quick is enough.
        let mut hasher = IdHasher::default();
        hasher.write_u64(1);
        (self.next_body, self.next_entity(), &self.kept_locks).hash(&mut hasher);
        self.names.hash(&mut hasher);
        (&self.topics, &self.access, &self.namespaces, &self.leads).hash(&mut hasher);
        for (id, queue) in self.queues() {
            (id, &queue.path, &queue.settings, queue.created, queue.updated).hash(&mut hasher);
            (queue.partition, queue.next, queue.counts, queue.bytes).hash(&mut hasher);
            (queue.kind, queue.below, queue.lead).hash(&mut hasher);
            queue.history.hash(&mut hasher);
            if let Some(sessions) = &queue.sessions {
                sessions.hash(&mut hasher);
                let state =
                    |(_, session): (_, &Session)| session.state.map(|state| self.stored_as(state.body));
                sessions.iter().filter_map(state).for_each(|stored| stored.hash(&mut hasher));
            }
            for part in queue.parts() {
                for (sequence, slot) in part.iter() {
                    let extra = queue.extras.get(&sequence);
                    (sequence, slot, extra, self.stored_as(slot.body)).hash(&mut hasher);
                    let parts = extra.iter().flat_map(|extra| &extra.parts);
                    parts.for_each(|part| self.stored_as(*part).hash(&mut hasher));
                }
                u64::MAX.hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

/// Whose time a record moves, and to where, if it does.
fn moved_clock(record: &Record) -> Option<(NamespaceId, LocalTime)> {
    match record {
        Record::Managed(change) => match &**change {
            Change::ClockMoved { namespace, to } => Some((*namespace, *to)),
            _ => None,
        },
        _ => None,
    }
}

/// Paths are compared without regard to case (S-250).
pub(crate) fn fold(path: &str) -> Box<str> {
    path.to_lowercase().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Outcome;
    use crate::command::ReceiveMode::PeekLock;
    use crate::effect::Answer;
    use crate::testing::World;
    use std::collections::BTreeSet;

    fn partitioned() -> World {
        let mut world = World::new();
        (0..5).for_each(|n| world.create(&format!("other{n}"), QueueSettings::default()));
        world.create("q", QueueSettings { partitioning: true, ..QueueSettings::default() });
        world
    }

    fn numbers(world: &mut World, path: &str) -> Vec<u64> {
        world.receive(path, PeekLock, 9).iter().map(|each| each.number.0).collect()
    }

    #[test]
    fn a_partitioned_queue_numbers_within_its_partition() {
        // S-32, S-221
        let mut world = partitioned();
        world.send_committed("q", 2);
        assert_eq!(numbers(&mut world, "q"), [5 << 48 | 1, 5 << 48 | 2]);
        world.send_committed("other0", 2);
        assert_eq!(numbers(&mut world, "other0"), [1, 2]);
    }

    #[test]
    fn an_exhausted_range_starts_again_at_zero_and_messages_are_still_found() {
        // S-33
        let mut world = partitioned();
        let entity = world.broker.durable.find(NamespaceId(0), "q").unwrap();
        world.is_checked = false;
        world.broker.durable.queue_mut(entity).next = Sequence((1 << 48) - 1);
        world.send_committed("q", 3);
        let received = world.receive("q", PeekLock, 9);
        let numbers: Vec<_> = received.iter().map(|each| each.number.0).collect();
        assert_eq!(numbers, [5 << 48 | 0xffff_ffff_ffff, 5 << 48, 5 << 48 | 1]);
        for delivery in &received {
            world.settle_tokens("q", &[delivery.token], Outcome::Defer(None)).unwrap();
        }
        let Ok(Answer::Messages(again)) = world.receive_deferred("q", &numbers, PeekLock) else { panic!() };
        assert_eq!(
            again.iter().map(|each| each.sequence).collect::<Vec<_>>(),
            received.iter().map(|each| each.sequence).collect::<Vec<_>>()
        );
        let queue = world.queue("q");
        assert_eq!(queue.sequence(Number(4 << 48 | 1)), None);
        assert_eq!(queue.sequence(Number(5 << 48 | 2)), Some(Sequence(2)));
    }

    #[test]
    fn two_states_that_differ_have_different_fingerprints() {
        let state = |act: &dyn Fn(&mut World, crate::LinkId)| {
            let mut world = World::with_queue("q");
            world.send_committed("q", 1);
            let link = world.receiver("q", PeekLock, 1);
            act(&mut world, link);
            world.broker.durable.fingerprint()
        };
        let settled = |outcome: Outcome| {
            state(&move |world, link| {
                let token = world.token(1);
                world.settle(link, 0, token, outcome.clone());
            })
        };
        let states = [
            state(&|_, _| {}),
            settled(Outcome::Complete),
            settled(Outcome::Abandon(None)),
            settled(Outcome::Defer(None)),
            settled(Outcome::DeadLetter(None)),
            state(&|world, _| world.keep_locks()),
            state(&|world, _| {
                drop(world.update("q", QueueSettings { express: true, ..QueueSettings::default() }))
            }),
        ];
        let different: BTreeSet<_> = states.into_iter().collect();
        assert_eq!(different.len(), states.len());
    }
}
