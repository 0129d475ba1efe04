//! What does not survive: links, credit, locks, and which messages are free to be handed out. Rebuilt empty; every
//! change goes through a [`Touch`], as every durable change goes through a record.

use crate::command::ReceiveMode;
use crate::durable::Durable;
use crate::ids::{BodyId, EntityId, IdMap, LinkId, LockToken, Position, Sequence};
use crate::limits::IDLE_TIMERS;
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

#[derive(Debug, Default)]
pub struct Volatile {
    pub(crate) links: IdMap<LinkId, Link>,
    /// By entity id, beside the durable queues.
    queues: Vec<Ready>,
    /// What becomes free once a position is committed, in the order of positions.
    awaiting: VecDeque<Awaiting>,
    /// Queues that have messages to hand out and perhaps somebody who wants them.
    pub(crate) stirred: VecDeque<EntityId>,
    timers: BinaryHeap<Reverse<Timer>>,
    held_locks: usize,
    /// There is no room to store messages.
    pub(crate) is_full: bool,
    nonce: u64,
    /// The time of the latest send or receive of each entity.
    pub(crate) accessed: IdMap<EntityId, Time>,
}

#[derive(Debug)]
pub struct Link {
    pub entity: EntityId,
    pub role: Role,
}

#[derive(Debug)]
pub enum Role {
    /// Parts of a large message that is still arriving.
    Sender { parts: Vec<BodyId>, part_bytes: u64 },
    Receiver {
        mode: ReceiveMode,
        /// Messages handed out on this link since it was attached.
        delivered: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    pub token: LockToken,
    pub until: Time,
}

/// The hand-out side of a queue.
#[derive(Debug, Default)]
pub struct Ready {
    /// Everything below was handed out at least once, or is gone.
    pub cursor: Sequence,
    /// Messages up to here are committed.
    pub committed: Sequence,
    /// Handed out before, and free again: these go first, being older (S-85).
    pub returned: BTreeSet<Sequence>,
    pub locks: IdMap<Sequence, Lock>,
    /// Who waits for messages, in the order in which the credit came (S-97).
    pub waiting: VecDeque<(LinkId, u32)>,
    is_stirred: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Awaiting {
    position: Position,
    entity: EntityId,
    what: Freed,
}

#[derive(Debug, PartialEq, Eq)]
enum Freed {
    /// New messages up to here.
    Arrived(Sequence),
    Returned(Sequence),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    at: Time,
    entity: EntityId,
    token: u128,
}

/// A change of memory only.
#[derive(Debug)]
pub enum Touch {
    Attached {
        link: LinkId,
        entity: EntityId,
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
    /// A message handed out before will be free again once `position` is committed.
    Returned {
        entity: EntityId,
        sequence: Sequence,
        position: Position,
    },
    /// A message is taken from the queue, whoever takes it.
    Taken {
        entity: EntityId,
        sequence: Sequence,
    },
    /// One unit of the credit at the head of the line is used.
    Served {
        entity: EntityId,
    },
    Locked {
        entity: EntityId,
        lock: Lock,
    },
    Unlocked {
        entity: EntityId,
        sequence: Sequence,
    },
    PartStored {
        link: LinkId,
        body: BodyId,
        length: u64,
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
    EntityCreated {
        entity: EntityId,
    },
    EntityDeleted {
        entity: EntityId,
    },
    Committed {
        position: Position,
    },
    Accessed {
        entity: EntityId,
        time: Time,
    },
}

/// Stands in for the bytes of a message of which a part was refused.
pub(crate) const PART_REFUSED: u64 = u64::MAX;

impl Volatile {
    /// Bodies that are stored and that no record names yet: parts of messages that are still arriving.
    pub(crate) fn pinned_bodies(&self) -> Vec<BodyId> {
        let parts = self.links.values().filter_map(|link| match &link.role {
            Role::Sender { parts, .. } => Some(parts),
            Role::Receiver { .. } => None,
        });
        parts.flatten().copied().collect()
    }

    /// What a broker starts with whose durable state was just read: nothing locked, nobody there, everything free.
    pub fn rebuilt(durable: &Durable, nonce: u64) -> Volatile {
        let mut volatile = Volatile { nonce, ..Volatile::default() };
        volatile.queues.resize_with(durable.next_entity().0 as usize, Ready::default);
        for (entity, queue) in durable.queues() {
            volatile.queues[entity.0 as usize].committed = Sequence(queue.next.0 - 1);
        }
        volatile
    }

    pub fn ready(&self, entity: EntityId) -> &Ready {
        &self.queues[entity.0 as usize]
    }

    pub fn lock(&self, entity: EntityId, token: LockToken, now: Time) -> Option<Lock> {
        let lock = self.ready(entity).locks.get(&token.sequence())?;
        (lock.token == token && now < lock.until).then_some(*lock)
    }

    pub fn link(&self, link: LinkId) -> Option<&Link> {
        self.links.get(&link)
    }

    pub fn apply(&mut self, touch: Touch) {
        match touch {
            Touch::Attached { link, entity, role } => {
                let before = self.links.insert(link, Link { entity, role });
                assert!(before.is_none(), "link {link:?} was attached twice");
            }
            Touch::Detached { link } => {
                if let Some(gone) = self.links.remove(&link) {
                    self.queues[gone.entity.0 as usize].waiting.retain(|(waiting, _)| *waiting != link);
                }
            }
            Touch::Credited { link, credit } => self.set_credit(link, credit),
            Touch::Arrived { entity, sequence, position } => match self.awaiting.back_mut() {
                Some(Awaiting { position: p, entity: e, what: Freed::Arrived(last) })
                    if *p == position && *e == entity =>
                {
                    *last = sequence;
                }
                _ => {
                    self.awaiting.push_back(Awaiting { position, entity, what: Freed::Arrived(sequence) });
                }
            },
            Touch::Returned { entity, sequence, position } => {
                self.awaiting.push_back(Awaiting { position, entity, what: Freed::Returned(sequence) });
            }
            Touch::Taken { entity, sequence } => {
                let ready = &mut self.queues[entity.0 as usize];
                if !ready.returned.remove(&sequence) {
                    ready.cursor = sequence.next();
                }
            }
            Touch::Served { entity } => {
                let waiting = &mut self.queues[entity.0 as usize].waiting;
                let (link, credit) = waiting.front_mut().expect("only who waits is served");
                let link = *link;
                *credit -= 1;
                if *credit == 0 {
                    waiting.pop_front();
                }
                if let Some(Link { role: Role::Receiver { delivered, .. }, .. }) = self.links.get_mut(&link) {
                    *delivered += 1;
                }
            }
            Touch::Locked { entity, lock } => {
                let before = self.queues[entity.0 as usize].locks.insert(lock.token.sequence(), lock);
                assert!(before.is_none(), "message {} was locked twice", lock.token.sequence().0);
                self.held_locks += 1;
                self.timers.push(Reverse(Timer { at: lock.until, entity, token: lock.token.0 }));
                self.drop_idle_timers();
            }
            Touch::Unlocked { entity, sequence } => {
                let lock = self.queues[entity.0 as usize].locks.remove(&sequence);
                assert!(lock.is_some(), "message {} was not locked", sequence.0);
                self.held_locks -= 1;
            }
            Touch::PartStored { link, body, length } => {
                if let Some(Link { role: Role::Sender { parts, part_bytes }, .. }) = self.links.get_mut(&link)
                {
                    parts.push(body);
                    *part_bytes += length;
                }
            }
            Touch::PartsDropped { link } => {
                if let Some(Link { role: Role::Sender { parts, part_bytes }, .. }) = self.links.get_mut(&link)
                {
                    parts.clear();
                    *part_bytes = 0;
                }
            }
            Touch::PartRefused { link } => {
                if let Some(Link { role: Role::Sender { parts, part_bytes }, .. }) = self.links.get_mut(&link)
                {
                    parts.clear();
                    *part_bytes = PART_REFUSED;
                }
            }
            Touch::RoomChanged { is_full } => self.is_full = is_full,
            Touch::EntityCreated { entity } => {
                assert_eq!(entity.0 as usize, self.queues.len(), "entities come in order");
                self.queues.push(Ready::default());
            }
            Touch::EntityDeleted { entity } => {
                let ready = std::mem::take(&mut self.queues[entity.0 as usize]);
                self.held_locks -= ready.locks.len();
                self.accessed.remove(&entity);
            }
            Touch::Committed { position } => self.commit(position),
            Touch::Accessed { entity, time } => {
                self.accessed.insert(entity, time);
            }
        }
    }

    fn set_credit(&mut self, link: LinkId, credit: u32) {
        let Some(entity) = self.links.get(&link).map(|link| link.entity) else { return };
        let waiting = &mut self.queues[entity.0 as usize].waiting;
        let held: u32 = waiting.iter().filter(|(who, _)| *who == link).map(|(_, credit)| credit).sum();
        if credit < held {
            // Less than before: the newest credit goes first, so that the place in the line is kept.
            let mut surplus = held - credit;
            for (who, credit) in waiting.iter_mut().rev() {
                if *who == link {
                    let cut = surplus.min(*credit);
                    *credit -= cut;
                    surplus -= cut;
                }
            }
            waiting.retain(|(_, credit)| *credit > 0);
        } else if credit > held {
            match waiting.back_mut() {
                Some((last, more)) if *last == link => *more += credit - held,
                _ => waiting.push_back((link, credit - held)),
            }
            self.stir(entity);
        }
    }

    /// The credit that a link has left with the broker.
    pub fn credit(&self, link: LinkId) -> u32 {
        let Some(entity) = self.links.get(&link).map(|link| link.entity) else { return 0 };
        self.ready(entity).waiting.iter().filter(|(who, _)| *who == link).map(|(_, credit)| credit).sum()
    }

    fn stir(&mut self, entity: EntityId) {
        let ready = &mut self.queues[entity.0 as usize];
        if !ready.is_stirred {
            ready.is_stirred = true;
            self.stirred.push_back(entity);
        }
    }

    /// The next queue that may have something to hand out.
    pub(crate) fn next_stirred(&mut self) -> Option<EntityId> {
        let entity = self.stirred.pop_front()?;
        self.queues[entity.0 as usize].is_stirred = false;
        Some(entity)
    }

    pub(crate) fn stir_again(&mut self, entity: EntityId) {
        self.stir(entity);
    }

    fn commit(&mut self, position: Position) {
        while let Some(awaiting) = self.awaiting.pop_front_if(|awaiting| awaiting.position <= position) {
            let ready = &mut self.queues[awaiting.entity.0 as usize];
            match awaiting.what {
                Freed::Arrived(last) => ready.committed = ready.committed.max(last),
                Freed::Returned(sequence) => {
                    ready.returned.insert(sequence);
                }
            }
            self.stir(awaiting.entity);
        }
    }

    /// A message that was unlocked without a record (handed back unread) is free at once.
    pub(crate) fn free_now(&mut self, entity: EntityId, sequence: Sequence) {
        self.queues[entity.0 as usize].returned.insert(sequence);
        self.stir(entity);
    }

    /// Timers of locks that are gone stay in the heap until they outnumber the living; then all of them go at once,
    /// so that memory follows the locks that are held, not the messages that passed.
    fn drop_idle_timers(&mut self) {
        if self.timers.len() > 2 * self.held_locks + IDLE_TIMERS {
            let timers = std::mem::take(&mut self.timers);
            self.timers = timers.into_iter().filter(|Reverse(timer)| self.is_due_later(timer)).collect();
        }
    }

    fn is_due_later(&self, timer: &Timer) -> bool {
        let token = LockToken(timer.token);
        let lock = self.queues[timer.entity.0 as usize].locks.get(&token.sequence());
        lock.is_some_and(|lock| lock.token == token && lock.until == timer.at)
    }

    /// When the next lock ends.
    pub fn next_due(&self) -> Option<Time> {
        self.timers.peek().map(|Reverse(timer)| timer.at)
    }

    /// Takes the next lock that has ended by `now`, if any. Locks that were settled meanwhile are passed over.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<(EntityId, Lock)> {
        while let Some(Reverse(timer)) = self.timers.peek().copied() {
            if timer.at > now {
                return None;
            }
            self.timers.pop();
            if self.is_due_later(&timer) {
                return Some((timer.entity, Lock { token: LockToken(timer.token), until: timer.at }));
            }
        }
        None
    }

    /// A number that no delivery of this run had before and that an outsider cannot guess.
    pub(crate) fn fresh_nonce(&mut self) -> u64 {
        // SplitMix64, from a seed that whoever runs the broker has drawn at random.
        self.nonce = self.nonce.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.nonce;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ConnectionId;

    const ENTITY: EntityId = EntityId(0);

    fn link(number: u32) -> LinkId {
        LinkId { connection: ConnectionId(1), link: number }
    }

    fn with_receivers(count: u32) -> Volatile {
        let mut volatile = Volatile::default();
        volatile.apply(Touch::EntityCreated { entity: ENTITY });
        for number in 0..count {
            let role = Role::Receiver { mode: ReceiveMode::PeekLock, delivered: 0 };
            volatile.apply(Touch::Attached { link: link(number), entity: ENTITY, role });
        }
        volatile
    }

    #[test]
    fn credit_is_served_in_the_order_in_which_it_came() {
        // S-97
        let mut volatile = with_receivers(2);
        volatile.apply(Touch::Credited { link: link(0), credit: 1 });
        volatile.apply(Touch::Credited { link: link(1), credit: 2 });
        volatile.apply(Touch::Credited { link: link(0), credit: 3 });
        let mut served = Vec::new();
        while let Some((who, _)) = volatile.ready(ENTITY).waiting.front() {
            served.push(who.link);
            volatile.apply(Touch::Served { entity: ENTITY });
        }
        assert_eq!(served, [0, 1, 1, 0, 0]);
    }

    #[test]
    fn taking_credit_back_keeps_the_place_in_the_line() {
        let mut volatile = with_receivers(2);
        volatile.apply(Touch::Credited { link: link(0), credit: 2 });
        volatile.apply(Touch::Credited { link: link(1), credit: 1 });
        volatile.apply(Touch::Credited { link: link(0), credit: 5 });
        volatile.apply(Touch::Credited { link: link(0), credit: 1 });
        assert_eq!(volatile.ready(ENTITY).waiting, [(link(0), 1), (link(1), 1)]);
        volatile.apply(Touch::Credited { link: link(0), credit: 0 });
        assert_eq!(volatile.ready(ENTITY).waiting, [(link(1), 1)]);
    }

    #[test]
    fn timers_of_settled_locks_do_not_pile_up() {
        let mut volatile = with_receivers(0);
        for number in 1..=100_000 {
            let token = LockToken::new(number, Sequence(number));
            volatile.apply(Touch::Locked { entity: ENTITY, lock: Lock { token, until: Time(60_000) } });
            volatile.apply(Touch::Unlocked { entity: ENTITY, sequence: Sequence(number) });
        }
        assert!(volatile.timers.len() <= 2 * IDLE_TIMERS);
        assert_eq!(volatile.take_due(Time::NEVER), None);
    }
}
