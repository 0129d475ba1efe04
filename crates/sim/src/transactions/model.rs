//! What must be true: what each queue holds, who holds what, and what open transactions will do.

use super::world::Heard;
use broker::limits::TRANSACTION_TIME;
use broker::{LockToken, Outcome, TransactionId};
use std::collections::BTreeMap;

/// Queues that messages are sent to; their dead-letter queues come behind them.
pub const QUEUES: usize = 2;
pub const PLACES: [&str; 2 * QUEUES] = ["a", "b", "a/$DeadLetterQueue", "b/$DeadLetterQueue"];

/// The messages of one place, and how often each was delivered in vain.
pub type Place = BTreeMap<u32, u32>;

#[derive(Debug, Clone, Default)]
pub struct Model {
    pub places: Vec<Place>,
    held: Vec<Held>,
    transactions: Vec<Transaction>,
}

#[derive(Debug, Clone)]
struct Held {
    queue: usize,
    message: u32,
    token: LockToken,
    until: i64,
    /// It will be settled by that transaction.
    claim: Option<TransactionId>,
}

#[derive(Debug, Clone)]
struct Transaction {
    id: TransactionId,
    connection: usize,
    deadline: Option<i64>,
    is_spoiled: bool,
    sends: Vec<(usize, Vec<u32>)>,
    settlements: Vec<(usize, u32, LockToken, Outcome)>,
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Committed,
    Refused,
    RolledBack,
}

impl Model {
    /// A connection is there, without anything that it had before.
    pub fn connected(&mut self, connection: usize) {
        self.places.resize(PLACES.len(), Place::new());
        let lost: Vec<_> = self.open(connection);
        lost.into_iter().for_each(|transaction| self.forget(transaction));
    }

    /// Everything but what is stored is gone.
    pub fn restarted(&mut self) {
        self.held.clear();
        self.transactions.clear();
    }

    /// Locks and transactions end.
    pub fn pass(&mut self, now: i64) {
        let ended: Vec<_> = self.held.extract_if(.., |held| held.until <= now).collect();
        for held in ended {
            self.raise(held.queue, held.message);
        }
        let is_late = |each: &&mut Transaction| each.deadline.is_some_and(|deadline| deadline <= now);
        let late: Vec<_> = self.transactions.iter_mut().filter(is_late).map(|each| each.id).collect();
        late.into_iter().for_each(|transaction| self.spoil(transaction));
    }

    fn raise(&mut self, queue: usize, message: u32) {
        *self.places[queue].get_mut(&message).expect("what is locked is there") += 1;
    }

    pub fn open(&self, connection: usize) -> Vec<TransactionId> {
        let of = self.transactions.iter().filter(|each| each.connection == connection);
        of.map(|each| each.id).collect()
    }

    pub fn held(&self, queue: usize) -> Vec<(u32, LockToken)> {
        let of = self.held.iter().filter(|held| held.queue == queue);
        of.map(|held| (held.message, held.token)).collect()
    }

    pub fn send(&mut self, queue: usize, messages: &[u32]) {
        self.places[queue].extend(messages.iter().map(|message| (*message, 0)));
    }

    pub fn locked(&mut self, queue: usize, message: u32, token: LockToken, until: i64) {
        assert!(
            self.places[queue].contains_key(&message),
            "message {message} was delivered and is not there"
        );
        assert!(!self.held.iter().any(|held| held.message == message), "message {message} is held already");
        self.held.push(Held { queue, message, token, until, claim: None });
    }

    pub fn declared(&mut self, connection: usize, id: TransactionId) {
        let (sends, settlements) = (Vec::new(), Vec::new());
        let declared = Transaction { id, connection, deadline: None, is_spoiled: false, sends, settlements };
        self.transactions.push(declared);
    }

    fn find(&mut self, id: TransactionId) -> &mut Transaction {
        self.transactions.iter_mut().find(|each| each.id == id).expect("it is open")
    }

    /// Whether something may join a transaction; the first that does sets its end.
    fn join(&mut self, id: TransactionId, now: i64) -> bool {
        let each = self.find(id);
        let is_open = !each.is_spoiled && each.deadline.is_none_or(|deadline| now < deadline);
        if is_open {
            each.deadline.get_or_insert(now + TRANSACTION_TIME.0 as i64);
        }
        is_open
    }

    pub fn send_within(&mut self, id: TransactionId, queue: usize, messages: &[u32], now: i64) -> Heard {
        if !self.join(id, now) {
            self.spoil(id);
            return Heard::Refused("RolledBack");
        }
        self.find(id).sends.push((queue, messages.to_vec()));
        Heard::Staged
    }

    /// Nothing more can come of a transaction.
    pub fn spoil(&mut self, id: TransactionId) {
        let each = self.find(id);
        each.is_spoiled = true;
        (each.sends, each.settlements) = Default::default();
        self.unclaim(id);
    }

    fn unclaim(&mut self, id: TransactionId) {
        self.held.iter_mut().filter(|held| held.claim == Some(id)).for_each(|held| held.claim = None);
    }

    fn forget(&mut self, id: TransactionId) {
        self.unclaim(id);
        self.transactions.retain(|each| each.id != id);
    }

    pub fn settle_within(
        &mut self,
        id: TransactionId,
        queue: usize,
        message: u32,
        token: LockToken,
        outcome: Outcome,
        now: i64,
    ) -> Heard {
        if !self.join(id, now) {
            self.spoil(id);
            return Heard::Refused("RolledBack");
        }
        let held = self.held.iter_mut().find(|held| held.token == token).expect("it is held");
        if held.claim.is_some() {
            return Heard::Refused("LockLost");
        }
        held.claim = Some(id);
        self.find(id).settlements.push((queue, message, token, outcome));
        Heard::Staged
    }

    pub fn settle(
        &mut self,
        queue: usize,
        message: u32,
        token: LockToken,
        outcome: &Outcome,
        now: i64,
    ) -> Heard {
        let held = self.held.iter().find(|held| held.token == token).expect("it is held");
        let claim = held.claim;
        let is_claimed = claim.is_some_and(|id| {
            let each = self.transactions.iter().find(|each| each.id == id);
            each.is_some_and(|each| each.deadline.is_none_or(|deadline| now < deadline))
        });
        if is_claimed {
            return Heard::Refused("LockLost");
        }
        self.apply(queue, message, token, outcome);
        Heard::Settled
    }

    fn apply(&mut self, queue: usize, message: u32, token: LockToken, outcome: &Outcome) {
        self.held.retain(|held| held.token != token);
        match outcome {
            Outcome::Complete => drop(self.places[queue].remove(&message)),
            Outcome::Abandon(_) | Outcome::Defer(_) => self.raise(queue, message),
            Outcome::DeadLetter(_) => {
                let count = self.places[queue].remove(&message).expect("what is locked is there");
                self.places[QUEUES + queue].insert(message, count);
            }
            Outcome::Release => {}
        }
    }

    pub fn discharge(&mut self, id: TransactionId, is_failed: bool, now: i64) -> (Heard, Ended) {
        let each = self.find(id).clone();
        let is_late = each.deadline.is_some_and(|deadline| deadline <= now);
        let is_held = |token: &LockToken| self.held.iter().any(|held| held.token == *token);
        let is_lost = !each.settlements.iter().all(|(_, _, token, _)| is_held(token));
        self.forget(id);
        if is_failed {
            return (Heard::Accepted, Ended::RolledBack);
        }
        if each.is_spoiled || is_late || is_lost {
            return (Heard::Refused("RolledBack"), Ended::Refused);
        }
        for (queue, messages) in &each.sends {
            self.send(*queue, messages);
        }
        for (queue, message, token, outcome) in &each.settlements {
            self.apply(*queue, *message, *token, outcome);
        }
        (Heard::Accepted, Ended::Committed)
    }
}
