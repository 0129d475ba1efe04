//! What a start finds.

use super::expiries::Expiries;
use super::live::LiveSessions;
use super::{Lock, Presence, Volatile};
use crate::durable::{Durable, Queue};
use crate::ids::{EntityId, IdMap, Sequence};
use crate::nonce::Nonces;
use crate::planted::{Bug, is_planted};
use crate::queue::index::{Index, State};
use crate::session::register::Session;
use crate::time::LocalTime;
use crate::timers::EntityTimer;
use crate::topic::routes::Routes;
use std::collections::BTreeSet;

impl Volatile {
    /// What a broker starts with whose durable state was just read: nobody there, everything free, nothing locked
    /// except what a planned stop has kept.
    pub fn rebuilt(durable: &Durable, key: u128) -> Volatile {
        let mut volatile = Volatile { nonces: Nonces::new(key), ..Volatile::default() };
        for entity in 0..durable.next_entity().0 {
            let namespace = durable.namespace_of(EntityId(entity));
            volatile.entities.push(namespace.map(|namespace| Presence { namespace, ..Presence::default() }));
        }
        for (namespace, offset) in durable.clock_offsets() {
            volatile.set_offset(namespace, offset);
        }
        for kept in durable.kept_locks() {
            let lock = Lock { token: kept.token, until: kept.until };
            volatile.add_lock(kept.source, lock);
        }
        for (topic, _) in durable.topics().topics() {
            volatile.set_routes(topic, Routes::of(durable.topics(), topic));
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
            presence.expiries = Expiries::of(&queue.index);
            let expires = presence.expiries.earliest();
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
                volatile.redirect(entity);
            }
            let is_mortal = !queue.settings.auto_delete_on_idle.is_max();
            for (timer, at) in [
                (EntityTimer::Expire, expires),
                (EntityTimer::Activate, due),
                // At the first opportunity: only then is it known since when the entity is idle.
                (EntityTimer::Idle, if is_mortal { LocalTime::AT_ONCE } else { LocalTime::NEVER }),
            ] {
                volatile.arm(entity, timer, at);
            }
        }
        volatile
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
