//! What is due when: the ends of locks, one by one, and for each entity the next message that expires, the next that is
//! scheduled, and the end of its idleness. Rebuilt from the state, never stored.
//!
//! Timers speak the time of their namespace. Nearly always that is the owner's; a namespace whose time was moved has
//! timers of its own, which are asked with its own time. Only `NamespaceTimers` knows the owner's.

use crate::ids::{EntityId, IdMap, LockToken, NamespaceId, Sequence, Source};
use crate::limits::IDLE_TIMERS;
use crate::time::{ClockOffset, LocalTime, Time};
use crate::touched::touched;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// What an entity has to do at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntityTimer {
    /// Messages expire.
    Expire,
    /// Scheduled messages are due.
    Activate,
    /// Perhaps it was idle for long enough.
    Idle,
    /// Messages wait for their destination.
    Forward,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockTimer {
    pub(crate) at: LocalTime,
    pub(crate) source: Source,
    pub(crate) token: u128,
}

impl LockTimer {
    /// Locks of one instant end in the order of their messages, so that what comes of it is in that order too. A token
    /// begins with a number that nobody can guess: by itself it would shuffle them.
    fn order(&self) -> (LocalTime, Source, Sequence, u128) {
        (self.at, self.source, LockToken(self.token).sequence(), self.token)
    }
}

impl Ord for LockTimer {
    fn cmp(&self, other: &LockTimer) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for LockTimer {
    fn partial_cmp(&self, other: &LockTimer) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Lock(LockTimer),
    Entity(EntityId, EntityTimer),
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    locks: BinaryHeap<Reverse<LockTimer>>,
    entities: BTreeSet<(LocalTime, EntityId, EntityTimer)>,
    armed: IdMap<EntityId, [LocalTime; 4]>,
}

/// The timers of all namespaces, asked in the owner's time.
#[derive(Debug, Default)]
pub(crate) struct NamespaceTimers {
    usual: Timers,
    ahead: BTreeMap<NamespaceId, Ahead>,
}

/// The timers of a namespace whose time was moved.
#[derive(Debug, Default)]
struct Ahead {
    offset: ClockOffset,
    timers: Timers,
}

impl NamespaceTimers {
    /// Whether the time of any namespace was ever moved.
    pub(crate) fn is_usual(&self) -> bool {
        self.ahead.is_empty()
    }

    /// How far a namespace is ahead of the owner.
    pub(crate) fn offset(&self, namespace: NamespaceId) -> ClockOffset {
        self.ahead.get(&namespace).map_or(ClockOffset::default(), |ahead| ahead.offset)
    }

    pub(crate) fn of(&self, namespace: NamespaceId) -> &Timers {
        self.ahead.get(&namespace).map_or(&self.usual, |ahead| &ahead.timers)
    }

    pub(crate) fn of_mut(&mut self, namespace: NamespaceId) -> &mut Timers {
        match self.ahead.get_mut(&namespace) {
            Some(ahead) => &mut ahead.timers,
            None => &mut self.usual,
        }
    }

    /// Gives a namespace a time of its own. The first time its timers leave the others; `is_theirs` knows them.
    pub(crate) fn set_offset(
        &mut self,
        namespace: NamespaceId,
        offset: ClockOffset,
        is_theirs: impl Fn(EntityId) -> bool,
    ) {
        let usual = &mut self.usual;
        let ahead = self.ahead.entry(namespace);
        let ahead = ahead.or_insert_with(|| Ahead { offset, timers: usual.split(is_theirs) });
        ahead.offset = offset;
    }

    /// When something is next due, in the owner's time.
    pub(crate) fn next_due(&self) -> Option<Time> {
        let usual = self.usual.next_due().map(|due| due.owners(ClockOffset::default()));
        let own = |ahead: &Ahead| ahead.timers.next_due().map(|due| due.owners(ahead.offset));
        usual.into_iter().chain(self.ahead.values().filter_map(own)).min()
    }

    /// Takes something that is due when the owner's time is `now`; in each namespace what is due first.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<Due> {
        let ahead = self.ahead.values_mut();
        let mut own = ahead.filter_map(|ahead| ahead.timers.take_due(now.local(ahead.offset)));
        self.usual.take_due(now.local(ClockOffset::default())).or_else(|| own.next())
    }
}

impl Timers {
    /// Takes out the timers of some entities.
    fn split(&mut self, is_theirs: impl Fn(EntityId) -> bool) -> Timers {
        let (theirs, others): (BinaryHeap<_>, BinaryHeap<_>) =
            std::mem::take(&mut self.locks).into_iter().partition(|timer| is_theirs(timer.0.source.entity));
        self.locks = others;
        let mut split = Timers { locks: theirs, ..Timers::default() };
        let armed: Vec<_> =
            self.entities.iter().filter(|(_, entity, _)| is_theirs(*entity)).copied().collect();
        for (at, entity, timer) in armed {
            self.arm(entity, timer, LocalTime::NEVER);
            split.arm(entity, timer, at);
        }
        split
    }

    pub(crate) fn add_lock(&mut self, timer: LockTimer) {
        self.locks.push(Reverse(timer));
    }

    #[cfg(test)]
    pub(crate) fn lock_count(&self) -> usize {
        self.locks.len()
    }

    /// Timers of locks that are gone stay in the heap until they outnumber the living; then all of them go at once,
    /// so that memory follows the locks that are held, not the messages that passed.
    pub(crate) fn has_too_many(&self, held_locks: usize) -> bool {
        self.locks.len() > 2 * held_locks + IDLE_TIMERS
    }

    pub(crate) fn keep_locks(&mut self, is_held: impl Fn(&LockTimer) -> bool) {
        let locks = std::mem::take(&mut self.locks);
        self.locks = locks.into_iter().filter(|Reverse(timer)| is_held(timer)).collect();
    }

    /// Sets when a timer of an entity is due, instead of when it was.
    pub(crate) fn arm(&mut self, entity: EntityId, timer: EntityTimer, at: LocalTime) {
        let before = self.armed(entity, timer);
        if before == at {
            return;
        }
        touched(1);
        self.armed.entry(entity).or_insert([LocalTime::NEVER; 4])[timer as usize] = at;
        self.entities.remove(&(before, entity, timer));
        if !at.is_never() {
            self.entities.insert((at, entity, timer));
        }
    }

    pub(crate) fn armed(&self, entity: EntityId, timer: EntityTimer) -> LocalTime {
        self.armed.get(&entity).map_or(LocalTime::NEVER, |armed| armed[timer as usize])
    }

    pub(crate) fn disarm(&mut self, entity: EntityId) {
        for timer in [EntityTimer::Expire, EntityTimer::Activate, EntityTimer::Idle, EntityTimer::Forward] {
            self.arm(entity, timer, LocalTime::NEVER);
        }
        self.armed.remove(&entity);
    }

    pub(crate) fn next_due(&self) -> Option<LocalTime> {
        let lock = self.locks.peek().map(|Reverse(timer)| timer.at);
        let timer = self.entities.first().map(|(at, ..)| *at);
        lock.into_iter().chain(timer).min()
    }

    /// Takes what is due first. A lock goes before an entity's timer of the same instant: what it held may then expire.
    pub(crate) fn take_due(&mut self, now: LocalTime) -> Option<Due> {
        let due = self.next_due().filter(|due| *due <= now)?;
        touched(1);
        if self.locks.peek().is_some_and(|Reverse(timer)| timer.at == due) {
            return self.locks.pop().map(|Reverse(timer)| Due::Lock(timer));
        }
        let (_, entity, timer) = self.entities.pop_first()?;
        if let Some(armed) = self.armed.get_mut(&entity) {
            armed[timer as usize] = LocalTime::NEVER;
        }
        Some(Due::Entity(entity, timer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_order_and_locks_go_first() {
        let mut timers = Timers::default();
        let lock = LockTimer { at: LocalTime(2), source: Source::default(), token: 1 };
        timers.add_lock(lock);
        timers.arm(EntityId(1), EntityTimer::Idle, LocalTime(2));
        timers.arm(EntityId(2), EntityTimer::Expire, LocalTime(1));
        timers.arm(EntityId(3), EntityTimer::Expire, LocalTime(3));
        assert_eq!(timers.next_due(), Some(LocalTime(1)));
        assert_eq!(timers.take_due(LocalTime(2)), Some(Due::Entity(EntityId(2), EntityTimer::Expire)));
        assert_eq!(timers.take_due(LocalTime(2)), Some(Due::Lock(lock)));
        assert_eq!(timers.take_due(LocalTime(2)), Some(Due::Entity(EntityId(1), EntityTimer::Idle)));
        assert_eq!(timers.take_due(LocalTime(2)), None);
    }

    #[test]
    fn locks_of_one_instant_end_in_the_order_of_their_messages() {
        let mut timers = Timers::default();
        for (nonce, sequence) in [(9, 1), (5, 3), (7, 2), (1, 4)] {
            let token = LockToken::new(nonce, Sequence(sequence)).0;
            timers.add_lock(LockTimer { at: LocalTime(2), source: Source::default(), token });
        }
        let ended = std::iter::from_fn(|| match timers.take_due(LocalTime(2)) {
            Some(Due::Lock(timer)) => Some(LockToken(timer.token).sequence().0),
            _ => None,
        });
        assert_eq!(ended.collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_chore_has_one_time() {
        let mut timers = Timers::default();
        timers.arm(EntityId(1), EntityTimer::Idle, LocalTime(2));
        timers.arm(EntityId(1), EntityTimer::Idle, LocalTime(5));
        assert_eq!(timers.next_due(), Some(LocalTime(5)));
        timers.disarm(EntityId(1));
        assert_eq!(timers.next_due(), None);
    }
}
