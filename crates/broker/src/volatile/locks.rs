//! Locks of messages, and the timers that end them.

use super::presences::Presences;
use super::{Volatile, live};
use crate::ids::{EntityId, LockToken, NamespaceId, Sequence, Source, SubQueue};
use crate::planted::{Bug, is_planted};
use crate::time::{LocalTime, Time};
use crate::timers::{Due, LockTimer};
use crate::touched::touched;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    pub token: LockToken,
    pub until: LocalTime,
}

impl Volatile {
    /// The lock of that token, if it lasts.
    pub fn lock(&self, source: Source, token: LockToken, now: LocalTime) -> Option<Lock> {
        touched(1);
        let lock = self.ready(source).locks.get(&token.sequence())?;
        let is_held = now < lock.until || is_planted(Bug::Lock);
        (lock.token == token && is_held).then_some(*lock)
    }

    /// Every lock that is held.
    pub(crate) fn locks(&self) -> impl Iterator<Item = (Source, Lock)> {
        self.entities.iter().flat_map(|(entity, presence)| {
            let entity = EntityId(entity as u32);
            let subs = [SubQueue::Main, SubQueue::DeadLetter, SubQueue::TransferDeadLetter];
            subs.into_iter().zip(&presence.sub_queues).flat_map(move |(sub, ready)| {
                ready.locks.values().map(move |lock| (Source { entity, sub }, *lock))
            })
        })
    }

    pub(crate) fn add_lock(&mut self, source: Source, lock: Lock) {
        let before = self.ready_mut(source).locks.insert(lock.token.sequence(), lock);
        assert!(before.is_none(), "message {} was locked twice", lock.token.sequence().0);
        self.held_locks += 1;
        self.time_lock(source, lock);
    }

    /// A free message is locked for nobody. `before` are those that were to come before it in order, and still do.
    pub(crate) fn withhold(&mut self, source: Source, lock: Lock, before: Vec<Sequence>) {
        let (ready, sequence) = (self.ready_mut(source), lock.token.sequence());
        if !ready.returned.remove(&sequence) {
            ready.cursor = ready.cursor.max(sequence.next());
            ready.returned.extend(before);
        }
        self.add_lock(source, lock);
    }

    /// The lock of this token lasts until another time.
    pub(crate) fn renew_lock(&mut self, source: Source, lock: Lock) {
        let held = self.ready_mut(source).locks.get_mut(&lock.token.sequence());
        let held = held.expect("only a lock that is held is renewed");
        assert_eq!(held.token, lock.token, "only its holder renews a lock");
        held.until = lock.until;
        self.time_lock(source, lock);
    }

    pub(crate) fn unlock(&mut self, source: Source, sequence: Sequence) {
        touched(1);
        let lock = self.ready_mut(source).locks.remove(&sequence);
        assert!(lock.is_some(), "message {} was not locked", sequence.0);
        self.held_locks -= 1;
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
}

fn is_held(entities: &Presences, timer: &LockTimer) -> bool {
    let presence = &entities[timer.source.entity.0 as usize];
    if let Some(ticket) = live::ticket_of(timer) {
        return presence.sessions.as_ref().is_some_and(|sessions| sessions.timed(ticket, timer.at).is_some());
    }
    let ready = &presence.sub_queues[timer.source.sub as usize];
    let token = LockToken(timer.token);
    let lock = ready.locks.get(&token.sequence());
    lock.is_some_and(|lock| lock.token == token && lock.until == timer.at)
}
