//! What does not survive: links, credit, locks, and which messages are free to be handed out. Rebuilt at every start.
//!
//! What must always hold: this state changes by the methods of this folder alone. Decisions read it, and call them.

mod expiries;
mod links;
pub(crate) mod live;
mod locks;
mod presences;
mod reads;
mod ready;
mod rebuild;

use crate::clock::Advance;
use crate::ids::{BodyId, EntityId, IdMap, LinkId, MessageKey, NamespaceId, Sequence, Source};
use crate::nonce::Nonces;
use crate::planted::{Bug, is_planted};
use crate::queue::index::Index;
use crate::tier::Tier;
use crate::time::{ClockOffset, LocalTime, Time};
use crate::timers::{EntityTimer, NamespaceTimers, Timers};
use crate::topic::routes::Routes;
use crate::touched::touched;
use crate::transaction::Transactions;
use expiries::Expiries;
use live::LiveSessions;
use presences::Presences;
use reads::Reads;
use ready::{Awaiting, Freed};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

pub use links::{Link, Role};
pub(crate) use links::{PART_BEYOND_QUOTA, PART_REFUSED};
pub use locks::Lock;
pub use ready::Ready;

#[derive(Debug, Default)]
pub struct Volatile {
    links: IdMap<LinkId, Link>,
    /// By entity id, beside the durable queues.
    entities: Presences,
    /// What becomes free once a position is committed, in the order of positions.
    awaiting: VecDeque<Awaiting>,
    /// Queues that have messages to hand out and perhaps somebody who wants them.
    stirred: VecDeque<Source>,
    timers: NamespaceTimers,
    /// The time of a namespace is being moved; nothing is handed out meanwhile. `clock.rs` has its methods.
    pub(crate) advance: Option<Box<Advance>>,
    /// Locks that are held, of messages and of sessions.
    held_locks: usize,
    /// The journal is without its reserve: no message is stored.
    is_short: bool,
    /// Tiers of the namespaces that have one of their own.
    tiers: IdMap<NamespaceId, Tier>,
    /// `transaction/` has their methods.
    pub(crate) transactions: Transactions,
    nonces: Nonces,
    /// Routes of the topics that were published to since their rules last changed.
    routes: IdMap<EntityId, Arc<Routes>>,
    /// What is read of messages that are published next.
    reads: Reads,
}

/// Who is there at an entity, and since when nobody was.
#[derive(Debug, Default)]
pub struct Presence {
    pub namespace: NamespaceId,
    sub_queues: [Ready; 3],
    pub receivers: usize,
    /// What is stored of messages to it that are not whole.
    arriving_bytes: u64,
    /// The latest send or receive (S-237).
    pub accessed: Option<LocalTime>,
    /// Scheduled messages in the order in which they are due.
    pub schedule: BTreeSet<(LocalTime, Sequence)>,
    /// When its messages expire.
    pub(crate) expiries: Expiries,
    /// The latest of whatever keeps it from being idle (S-71); unknown after a start.
    pub used: Option<LocalTime>,
    /// Message ids of the history and when they were taken (S-160).
    pub seen: IdMap<MessageKey, LocalTime>,
    /// The live sessions of an entity that requires sessions, once there was one.
    pub(crate) sessions: Option<Box<LiveSessions>>,
}

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

    pub fn presence(&self, entity: EntityId) -> &Presence {
        &self.entities[entity.0 as usize]
    }

    fn presence_mut(&mut self, entity: EntityId) -> &mut Presence {
        &mut self.entities[entity.0 as usize]
    }

    pub fn ready(&self, source: Source) -> &Ready {
        &self.entities[source.entity.0 as usize].sub_queues[source.sub as usize]
    }

    fn ready_mut(&mut self, source: Source) -> &mut Ready {
        &mut self.entities[source.entity.0 as usize].sub_queues[source.sub as usize]
    }

    /// Whether somebody at an entity waits for messages.
    pub(crate) fn has_waiting_receiver(&self, entity: EntityId) -> bool {
        let presence = self.presence(entity);
        let is_session_awaited =
            presence.sessions.as_ref().is_some_and(|sessions| sessions.has_waiting_receiver());
        is_session_awaited || presence.sub_queues.iter().any(|ready| !ready.waiting.is_empty())
    }

    /// How many entities have somebody, or something to do.
    #[cfg(test)]
    pub(crate) fn present_entities(&self) -> usize {
        self.entities.iter().count()
    }

    /// Locks of messages and of sessions.
    pub(crate) fn held_locks(&self) -> usize {
        self.held_locks
    }

    pub(crate) fn create_entity(&mut self, entity: EntityId, namespace: NamespaceId, time: LocalTime) {
        assert_eq!(entity.0 as usize, self.entities.len(), "entities come in order");
        self.entities.push(Some(Presence { namespace, used: Some(time), ..Presence::default() }));
    }

    pub(crate) fn delete_entity(&mut self, entity: EntityId) {
        self.forget_reading(entity);
        let presence = self.entities.take(entity.0 as usize);
        self.held_locks -= presence.sub_queues.iter().map(|ready| ready.locks.len()).sum::<usize>();
        self.held_locks -= presence.sessions.as_ref().map_or(0, |sessions| sessions.held());
        self.timers.of_mut(presence.namespace).disarm(entity);
    }

    /// Somebody sent or received.
    pub(crate) fn set_accessed(&mut self, entity: EntityId, time: LocalTime) {
        self.presence_mut(entity).accessed = Some(time);
        self.set_used(entity, time);
    }

    /// Something happened that keeps an entity from being idle.
    pub(crate) fn set_used(&mut self, entity: EntityId, time: LocalTime) {
        self.presence_mut(entity).used = Some(time);
    }

    /// A message waits for its time.
    pub(crate) fn schedule(&mut self, entity: EntityId, due: LocalTime, sequence: Sequence) {
        touched(1);
        self.presence_mut(entity).schedule.insert((due, sequence));
    }

    /// A message waits no more.
    pub(crate) fn unschedule(&mut self, entity: EntityId, due: LocalTime, sequence: Sequence) {
        touched(1);
        let was_there = self.presence_mut(entity).schedule.remove(&(due, sequence));
        assert!(was_there, "message {} was not scheduled", sequence.0);
    }

    /// An id was taken into the history.
    pub(crate) fn note(&mut self, entity: EntityId, id: MessageKey, time: LocalTime) {
        touched(1);
        self.presence_mut(entity).seen.insert(id, time);
    }

    /// An id that was taken at that time is no longer in the history. It may have been taken again since.
    pub(crate) fn forget(&mut self, entity: EntityId, id: MessageKey, time: LocalTime) {
        let seen = &mut self.presence_mut(entity).seen;
        if seen.get(&id) == Some(&time) {
            seen.remove(&id);
        }
    }

    /// A message that came into `index`, that of an entity, expires then.
    pub(crate) fn add_expiry(&mut self, entity: EntityId, sequence: Sequence, at: LocalTime, index: &Index) {
        self.presence_mut(entity).expiries.add(sequence, at, index);
        let earliest = self.presence(entity).expiries.earliest();
        if earliest < self.armed(entity, EntityTimer::Expire) {
            self.timers_of(entity).arm(entity, EntityTimer::Expire, earliest);
        }
    }

    /// A chunk of messages was looked through; it is worth another look then.
    pub(crate) fn set_expiry(&mut self, entity: EntityId, chunk: u64, at: LocalTime) {
        self.presence_mut(entity).expiries.set(chunk, at);
    }

    /// Sets the timer of an entity to when its messages next expire.
    pub(crate) fn arm_expiry(&mut self, entity: EntityId) {
        let earliest = self.presence(entity).expiries.earliest();
        self.timers_of(entity).arm(entity, EntityTimer::Expire, earliest);
    }

    /// There is something to do at an entity then, and no earlier.
    pub(crate) fn arm(&mut self, entity: EntityId, timer: EntityTimer, at: LocalTime) {
        self.timers_of(entity).arm(entity, timer, at);
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

    /// When that timer of an entity is due; never, if it has none.
    pub(crate) fn armed(&self, entity: EntityId, timer: EntityTimer) -> LocalTime {
        self.timers.of(self.presence(entity).namespace).armed(entity, timer)
    }

    /// How far the time of a namespace is ahead of the owner's.
    pub(crate) fn clock_offset(&self, namespace: NamespaceId) -> ClockOffset {
        self.timers.offset(namespace)
    }

    /// Whether all namespaces have the owner's time.
    pub(crate) fn is_time_usual(&self) -> bool {
        self.timers.is_usual()
    }

    /// The time of a namespace is so far ahead of the owner's.
    pub(crate) fn set_offset(&mut self, namespace: NamespaceId, offset: ClockOffset) {
        let entities = &self.entities;
        let is_theirs = |entity: EntityId| entities[entity.0 as usize].namespace == namespace;
        self.timers.set_offset(namespace, offset, is_theirs);
    }

    /// The tier of a namespace that has one of its own.
    pub(crate) fn tier(&self, namespace: NamespaceId) -> Option<Tier> {
        self.tiers.get(&namespace).copied()
    }

    pub(crate) fn set_tier(&mut self, namespace: NamespaceId, tier: Tier) {
        self.tiers.insert(namespace, tier);
    }

    /// Whether the journal is without its reserve, so that no message is stored.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    pub(crate) fn set_short(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    pub(crate) fn routes(&self, topic: EntityId) -> Option<&Arc<Routes>> {
        self.routes.get(&topic)
    }

    /// To be changed with the rules. Nobody keeps routes beyond a decision.
    pub(crate) fn routes_mut(&mut self, topic: EntityId) -> &mut Routes {
        let routes = self.routes.get_mut(&topic).expect("a topic has routes from its beginning");
        Arc::get_mut(routes).expect("nobody reads them now")
    }

    /// A topic has come, with these rules.
    pub(crate) fn set_routes(&mut self, topic: EntityId, routes: Routes) {
        self.routes.insert(topic, Arc::new(routes));
    }

    pub(crate) fn drop_routes(&mut self, topic: EntityId) {
        self.routes.remove(&topic);
    }

    /// A number that no delivery of this run had before and that an outsider cannot guess.
    pub(crate) fn fresh_nonce(&mut self) -> u64 {
        self.nonces.fresh()
    }
}

#[cfg(test)]
mod tests;
