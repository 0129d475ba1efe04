//! Transactions (S-210 to S-218): what is asked for within one is done with its commit, all of it in one append, or never;
//! a client that rolls back finds every lock as it was.
//!
//! The oracle knows of a transaction what its client was told: what is staged, what was refused, how it ended. A message
//! of a transaction may be stored only while its commit is being decided, and a lock may be used up only then.

use super::expect::Due;
use super::{Fate, LinkState, Lock, Oracle, Question};
use broker::limits::{TRANSACTION_MESSAGES, TRANSACTION_TIME};
use broker::{
    ConnectionId, EntityId, LinkId, LocalTime, LockToken, NamespaceId, Number, Outcome, Refusal, RequestId,
    Sequence, Settled, State, SubQueue, TransactionId,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where coordinators are: nothing of the second namespace is part of a transaction.
const NAMESPACE: NamespaceId = NamespaceId(0);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Its client has asked for its end: a commit, or a roll-back.
    Discharging {
        is_failed: bool,
    },
    Committed,
    RolledBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// Nothing, or nothing yet.
    Nothing,
    Staged,
    Refused,
}

#[derive(Debug)]
enum What {
    Send {
        link: LinkId,
        delivery: u32,
        path: Arc<str>,
        entity: Option<EntityId>,
        /// The entity on the way, if there is one, and otherwise that of the link.
        way: Option<EntityId>,
        bytes: u64,
        count: usize,
    },
    Settle {
        path: Arc<str>,
        entity: Option<EntityId>,
        token: LockToken,
        outcome: Outcome,
    },
}

#[derive(Debug)]
struct Operation {
    what: What,
    heard: Heard,
    /// Its transaction was known to be rolled back when it was asked for.
    is_late: bool,
}

#[derive(Debug)]
struct Transaction {
    coordinator: LinkId,
    phase: Phase,
    operations: Vec<Operation>,
    /// A send was refused, so that nothing can come of it (S-218).
    is_spoiled: bool,
    /// The first operation was asked for at this time or later, and was certainly decided by then.
    asked: Option<LocalTime>,
    begun: Option<LocalTime>,
    /// The append that has committed it.
    position: Option<u64>,
    /// The turn in which it was over at the latest.
    ended: Option<u64>,
}

/// One operation: the transaction, and its place there. No transaction: none of that name was open.
#[derive(Debug, Clone, Copy)]
struct Place {
    transaction: Option<usize>,
    operation: usize,
}

/// Every transaction that ever was.
#[derive(Debug, Default)]
pub struct Transactions {
    all: Vec<Transaction>,
    /// Those of this life by their names.
    names: BTreeMap<TransactionId, usize>,
    /// Operations that are answered on a link.
    on_links: BTreeMap<(LinkId, u32), Place>,
    /// Those that are answered as a question.
    in_questions: BTreeMap<(ConnectionId, u32), Vec<Place>>,
    discharges: BTreeMap<(LinkId, u32), Option<usize>>,
    /// What is submitted now is part of this one.
    within: Option<TransactionId>,
}

/// Stands for a transaction that was not open: nothing of it may ever happen.
const NONE: usize = usize::MAX;

impl Transaction {
    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Discharging { .. })
    }

    fn has_unheard(&self) -> bool {
        self.operations.iter().any(|operation| operation.heard == Heard::Nothing)
    }

    /// Bytes of messages that are staged, at least and at most.
    fn bytes(&self, may_be_over: bool) -> (u64, u64) {
        // How much a settlement has stored of changed properties depends on what was changed of the message before.
        let sum = |counts: &dyn Fn(Heard) -> bool, of_settlement: u64| {
            let counted = self.operations.iter().filter(|operation| counts(operation.heard));
            let bytes = counted.map(|operation| match operation.what {
                What::Send { bytes, .. } => bytes,
                What::Settle { .. } => of_settlement,
            });
            bytes.sum::<u64>()
        };
        let least = match self.is_spoiled || may_be_over || self.has_unheard() {
            true => 0,
            false => sum(&|heard| heard == Heard::Staged, 0),
        };
        let most = match self.is_spoiled {
            true => 0,
            false => sum(&|heard| heard != Heard::Refused, message::limits::OVERLAY_BYTES as u64),
        };
        (least, most)
    }
}

impl Oracle {
    /// Everything that is submitted from now on is part of a transaction, or of none.
    pub fn within(&mut self, transaction: Option<TransactionId>) {
        self.transactions.within = transaction;
    }

    pub(super) fn is_within(&self) -> bool {
        self.transactions.within.is_some()
    }

    pub fn declare(&mut self, link: LinkId, delivery: u32) {
        self.expect(link.connection, Due::Declare(link, delivery), false);
    }

    pub(super) fn declared(&mut self, link: LinkId, delivery: u32, id: TransactionId) {
        self.answered(link.connection, |due| *due == Due::Declare(link, delivery));
        let declared = Transaction {
            coordinator: link,
            phase: Phase::Open,
            operations: Vec::new(),
            is_spoiled: false,
            asked: None,
            begun: None,
            position: None,
            ended: None,
        };
        let transactions = &mut self.transactions;
        let is_new = transactions.names.insert(id, transactions.all.len()).is_none();
        transactions.all.push(declared);
        // Its coordinator may have gone before its client heard of it.
        if let Some(LinkState::Gone(turn)) = self.links.get(&link).map(|link| link.state) {
            self.end_transactions(|each| each.coordinator == link, turn);
        }
        if !is_new {
            self.fail(format!("{id:?} was declared twice"));
        }
    }

    /// The transaction that is meant, if its client may use it.
    fn open(&self, id: TransactionId, connection: ConnectionId) -> Option<usize> {
        let at = self.transactions.names.get(&id).copied()?;
        let each = &self.transactions.all[at];
        (each.phase == Phase::Open && each.coordinator.connection == connection).then_some(at)
    }

    /// The earliest time at which what is submitted now is decided: in a batch that waits for the disk time stands still.
    fn earliest_now(&self) -> LocalTime {
        self.clocks.earliest(NAMESPACE, if self.is_at_rest() { self.now } else { self.began })
    }

    /// An operation is asked for within the transaction of the moment.
    fn operate(&mut self, connection: ConnectionId, what: What) -> Place {
        let now = self.earliest_now();
        let at = self.transactions.within.and_then(|id| self.open(id, connection));
        let Some(at) = at else { return Place { transaction: None, operation: 0 } };
        let each = &mut self.transactions.all[at];
        each.asked.get_or_insert(now);
        let is_late = each.is_spoiled;
        each.operations.push(Operation { what, heard: Heard::Nothing, is_late });
        Place { transaction: Some(at), operation: each.operations.len() - 1 }
    }

    /// The entity that a link was attached to.
    fn way_of(&self, link: LinkId) -> Option<EntityId> {
        self.links.get(&link).and_then(|link| self.ledger.find(&link.queue))
    }

    /// A delivery is sent within a transaction.
    pub(super) fn send_within(&mut self, link: LinkId, delivery: u32) {
        let Some(range) = self.deliveries.get(&(link, delivery)).cloned() else { return };
        let messages = &self.messages[range.clone()];
        let bytes = messages.iter().map(|message| u64::from(message.length)).sum();
        let path = messages.first().map(|message| message.path.clone()).unwrap_or_default();
        let (entity, count) = (self.ledger.find(&path), messages.len());
        let way = self.way_of(link);
        let what = What::Send { link, delivery, path, entity, way, bytes, count };
        let place = self.operate(link.connection, what);
        let within = Some(place.transaction.unwrap_or(NONE));
        self.messages[range].iter_mut().for_each(|message| message.within = within);
        self.transactions.on_links.insert((link, delivery), place);
        if self.links.get(&link).is_some_and(|link| link.destination.is_some()) {
            self.coverage.variant("send by way of another in a transaction");
        }
    }

    /// Locks are to be used up by a commit.
    pub(super) fn settle_within(&mut self, link: LinkId, delivery: u32, token: LockToken, outcome: &Outcome) {
        let path = self.links.get(&link).map(|link| link.queue.clone()).unwrap_or_default();
        let place = self.claim(link.connection, path, token, outcome);
        self.transactions.on_links.insert((link, delivery), place);
    }

    fn claim(
        &mut self,
        connection: ConnectionId,
        path: Arc<str>,
        token: LockToken,
        outcome: &Outcome,
    ) -> Place {
        let entity = self.ledger.find(&path);
        let what = What::Settle { path, entity, token, outcome: outcome.clone() };
        let place = self.operate(connection, what);
        if let Some(at) = place.transaction
            && let Some(lock) = entity.and_then(|entity| self.lock_at(entity, token))
        {
            lock.claims.push(at);
        }
        place
    }

    /// A question is asked within a transaction.
    pub(super) fn ask_within(&mut self, request: RequestId, question: &Question) {
        let connection = request.connection;
        match question {
            Question::SettleWithin(path, tokens, outcome) => {
                let path: Arc<str> = super::ledger::split(path).0.into();
                let claim = |token: &LockToken| self.claim(connection, path.clone(), *token, outcome);
                let places = tokens.iter().map(claim).collect();
                self.transactions.in_questions.insert(super::asker(request), places);
            }
            Question::ScheduleWithin(_, link, delivery) => {
                self.send_within(*link, *delivery);
                let place = self.transactions.on_links.remove(&(*link, *delivery));
                self.transactions.in_questions.insert(super::asker(request), place.into_iter().collect());
            }
            // A renewal happens at once; it is one of those that begin a transaction.
            _ => {
                let now = self.earliest_now();
                let at = self.transactions.within.and_then(|id| self.open(id, connection));
                if let Some(at) = at {
                    self.transactions.all[at].asked.get_or_insert(now);
                }
            }
        }
    }

    /// Something is staged, or was refused.
    fn heard(&mut self, place: Place, heard: Heard) {
        let latest = self.clocks.latest(NAMESPACE, self.now);
        let Some(at) = place.transaction else {
            if heard == Heard::Staged {
                self.fail("S-210: something is part of a transaction that is not open");
            }
            return;
        };
        let each = &mut self.transactions.all[at];
        let operation = &mut each.operations[place.operation];
        operation.heard = heard;
        if heard == Heard::Staged {
            each.begun.get_or_insert(latest);
            if operation.is_late {
                self.fail("S-218: something is part of a transaction that is rolled back");
            }
        }
    }

    /// A send or a settlement will happen with the commit.
    pub(super) fn staged(&mut self, link: LinkId, delivery: u32, outcome: Option<Settled>) {
        self.trace.add(&[10, u64::from(link.link), u64::from(delivery)]);
        let Some(place) = self.transactions.on_links.get(&(link, delivery)).copied() else {
            return self.fail(format!("delivery {delivery} of {link:?} is part of a transaction unasked"));
        };
        match outcome {
            None => {
                self.answered(link.connection, |due| *due == Due::Send(link, delivery));
                let has_destination = self.links.get(&link).is_some_and(|link| link.destination.is_some());
                if let Some(rule) = self.must_refuse(link, delivery)
                    && !(rule == "NotAllowed" && has_destination)
                {
                    self.fail(format!("delivery {delivery} is part of a transaction against {rule}"));
                }
                let range = self.deliveries[&(link, delivery)].clone();
                self.messages[range].iter_mut().for_each(|message| message.fate = Fate::Unknown);
                self.coverage.variant("sent in a transaction");
            }
            Some(outcome) => {
                let is_it = |due: &Due| matches!(due, Due::Settle(l, d, _) if (*l, *d) == (link, delivery));
                self.answered(link.connection, is_it);
                self.coverage.variant(match outcome {
                    Settled::Completed => "completed in a transaction",
                    Settled::Abandoned => "abandoned in a transaction",
                    Settled::Released => "released in a transaction",
                    Settled::Deferred => "deferred in a transaction",
                    Settled::DeadLettered => "dead-lettered in a transaction",
                });
            }
        }
        self.heard(place, Heard::Staged);
    }

    /// What became of a question that was asked within a transaction.
    pub(super) fn heard_by_question(
        &mut self,
        request: RequestId,
        question: &Question,
        answer: Result<(), &Refusal>,
    ) {
        let Some(places) = self.transactions.in_questions.remove(&super::asker(request)) else { return };
        let is_send = matches!(question, Question::ScheduleWithin(..));
        for place in places {
            match answer {
                Ok(()) => self.heard(place, Heard::Staged),
                Err(refusal) => self.refused_within(Some(place), refusal, is_send),
            }
        }
        if answer.is_ok() {
            let what =
                if is_send { "scheduled in a transaction" } else { "settled by a request in a transaction" };
            self.coverage.variant(what);
        }
    }

    /// An operation was refused. A send that fails spoils its transaction (S-218).
    fn refused_within(&mut self, place: Option<Place>, refusal: &Refusal, is_send: bool) {
        let Some(place) = place else { return };
        let is_right = match (refusal, place.transaction) {
            (Refusal::UnknownTransaction, at) => {
                at.is_none_or(|at| self.may_be_overtaken(at, place.operation))
            }
            (_, None) => !is_send,
            (Refusal::RolledBack(_), Some(at)) => self.may_be_rolled_back(at),
            _ => true,
        };
        if !is_right {
            self.fail(format!("an operation of a transaction was wrongly refused: {refusal}"));
        }
        self.heard(place, Heard::Refused);
        if let Some(at) = place.transaction.filter(|_| is_send) {
            self.transactions.all[at].is_spoiled = true;
        }
    }

    /// Whether an operation has to read a message first, so that the end of its transaction may overtake it.
    fn may_be_overtaken(&self, at: usize, operation: usize) -> bool {
        let each = &self.transactions.all[at];
        let is_changing = each.operations.get(operation).is_some_and(|operation| match &operation.what {
            What::Settle { outcome, .. } => super::expect::is_changing(outcome),
            What::Send { .. } => false,
        });
        is_changing && each.phase != Phase::Open
    }

    /// Whether something was sent within a transaction, and so is refused for other reasons too. Says whether that may be.
    pub(super) fn send_refused_within(
        &mut self,
        link: LinkId,
        delivery: u32,
        refusal: &Refusal,
    ) -> Option<bool> {
        let place = self.transactions.on_links.get(&(link, delivery)).copied()?;
        let count = self.of_delivery(link, delivery).len();
        let staged: usize = place.transaction.map_or(0, |at| {
            let operations = &self.transactions.all[at].operations[..place.operation];
            operations
                .iter()
                .map(|operation| if let What::Send { count, .. } = operation.what { count } else { 0 })
                .sum()
        });
        self.refused_within(Some(place), refusal, true);
        match refusal {
            Refusal::UnknownTransaction | Refusal::RolledBack(_) => Some(true),
            Refusal::TransactionFull(_) => Some(staged + count > TRANSACTION_MESSAGES),
            // All messages of a partitioned entity need one key (S-216).
            Refusal::NotAllowed(_) => {
                let path = self.links.get(&link).map(|link| link.path.clone()).unwrap_or_default();
                let queue = self.ledger.find(&path).and_then(|entity| self.ledger.queues.get(&entity));
                let may_have = queue.is_none_or(|queue| queue.settings.partitioning) || self.went(&path);
                may_have.then_some(true)
            }
            _ => None,
        }
    }

    /// What became of a settlement within a transaction, if it was one. Says whether the lock may have been claimed.
    pub(super) fn settle_refused_within(&mut self, link: LinkId, delivery: u32, refusal: &Refusal) -> bool {
        let place = self.transactions.on_links.get(&(link, delivery)).copied();
        self.refused_within(place, refusal, false);
        place.is_some()
    }

    /// Whether a lock may have been claimed by a transaction that was open in this turn, besides by so many operations.
    pub(super) fn may_be_claimed(&self, lock: &Lock, own: usize) -> bool {
        let may_be_open = |at: &&usize| {
            let each = &self.transactions.all[**at];
            each.ended.is_none_or(|turn| turn >= self.turn) && !self.is_over(each)
        };
        lock.claims.iter().filter(may_be_open).count() > own
    }

    /// Whether the two minutes of a transaction were certainly over when this turn began (S-213).
    fn is_over(&self, each: &Transaction) -> bool {
        let end = each.begun.map(|begun| begun.after(TRANSACTION_TIME));
        end.is_some_and(|end| end <= self.clocks.earliest(NAMESPACE, self.began))
    }

    fn may_be_over(&self, each: &Transaction) -> bool {
        let end = each.asked.map(|asked| asked.after(TRANSACTION_TIME));
        end.is_some_and(|end| end <= self.clocks.latest(NAMESPACE, self.now))
    }

    fn may_be_rolled_back(&self, at: usize) -> bool {
        let each = &self.transactions.all[at];
        each.is_spoiled || each.has_unheard() || self.may_be_over(each)
    }

    pub fn discharge(&mut self, link: LinkId, delivery: u32, id: TransactionId, is_failed: bool) {
        let at = self.open(id, link.connection);
        self.transactions.discharges.insert((link, delivery), at);
        // It waits for what must be read first.
        self.expect(link.connection, Due::Discharge(link, delivery), true);
        let is_here = self.links.get(&link).is_some_and(|link| !matches!(link.state, LinkState::Gone(_)));
        let Some(at) = at.filter(|_| is_here) else { return };
        self.transactions.all[at].phase = Phase::Discharging { is_failed };
        if !is_failed {
            self.touch_operations(at);
            self.use_locks(at, |lock, outcome| lock.asked.push(outcome));
        }
    }

    /// A commit uses what it is about.
    fn touch_operations(&mut self, at: usize) {
        for operation in &self.transactions.all[at].operations {
            let (path, link) = match &operation.what {
                What::Send { path, link, .. } => (path, self.links.get(link).map(|link| &link.queue)),
                What::Settle { path, .. } => (path, None),
            };
            for path in [Some(path), link].into_iter().flatten() {
                if let Some(entity) = self.ledger.find(path)
                    && let Some(queue) = self.ledger.queues.get_mut(&entity)
                {
                    queue.is_touched = true;
                }
            }
        }
    }

    /// Does something with every lock that a transaction has claimed.
    fn use_locks(&mut self, at: usize, each: impl Fn(&mut Lock, Outcome)) {
        for operation in &self.transactions.all[at].operations {
            if let What::Settle { entity: Some(entity), token, outcome, .. } = &operation.what
                && operation.heard != Heard::Refused
                && let Some(lock) = self.locks.get_mut(&(*entity, token.sequence()))
                && lock.token == *token
            {
                each(lock, outcome.clone());
            }
        }
    }

    pub(super) fn is_coordinator(&self, link: LinkId) -> bool {
        self.links.get(&link).is_some_and(|link| link.role == super::Role::Coordinator)
    }

    /// A transaction was discharged as its client wished.
    pub(super) fn discharged(&mut self, link: LinkId, delivery: u32) {
        self.answered(link.connection, |due| *due == Due::Discharge(link, delivery));
        let Some(Some(at)) = self.transactions.discharges.remove(&(link, delivery)) else {
            return self.fail("S-210: a transaction was discharged that is not open");
        };
        let is_failed = self.transactions.all[at].phase == Phase::Discharging { is_failed: true };
        if is_failed {
            self.finish(at, Phase::RolledBack);
            return self.coverage.variant("transaction rolled back");
        }
        let each = &self.transactions.all[at];
        if each.is_spoiled {
            self.fail("S-218: a transaction was committed though a send of it was refused");
        } else if self.is_over(each) {
            self.fail("S-213: a transaction was committed after its two minutes");
        }
        self.finish(at, Phase::Committed);
        self.coverage.variant("transaction committed");
        for operation in std::mem::take(&mut self.transactions.all[at].operations) {
            if operation.heard != Heard::Staged {
                continue;
            }
            match operation.what {
                What::Send { link, delivery, .. } => self.taken(link, delivery),
                What::Settle { path, entity, token, outcome } => {
                    self.confirmed(&path, token, settled(&outcome));
                    let is_back =
                        |lock: &Lock| lock.returned.is_some() || lock.is_hazy || lock.token != token;
                    if let (Outcome::Abandon(_), Some(entity)) = (&outcome, entity)
                        && !self.locks.get(&(entity, token.sequence())).is_none_or(is_back)
                    {
                        let sequence = token.sequence();
                        self.fail(format!("S-211: {sequence:?} was abandoned by a commit and is locked"));
                    }
                }
            }
        }
    }

    /// A declaration or a discharge was refused.
    pub(super) fn coordinator_refused(&mut self, link: LinkId, delivery: u32, refusal: &Refusal) {
        if let Refusal::TooManyTransactions(most) = refusal {
            self.answered(link.connection, |due| *due == Due::Declare(link, delivery));
            let is_its = |each: &&Transaction| each.coordinator.connection == link.connection;
            let declared = self.transactions.all.iter().filter(is_its).count();
            if declared < *most {
                self.fail(format!("{declared} transactions of a connection are called too many"));
            }
            return;
        }
        self.answered(link.connection, |due| *due == Due::Discharge(link, delivery));
        let at = self.transactions.discharges.remove(&(link, delivery)).flatten();
        let Some(at) = at else {
            if *refusal != Refusal::UnknownTransaction {
                self.fail(format!("a transaction that is not open was refused as {refusal}"));
            }
            return;
        };
        let is_failed = self.transactions.all[at].phase == Phase::Discharging { is_failed: true };
        let is_done = self.transactions.all[at].position.is_some();
        if is_failed || is_done || !matches!(refusal, Refusal::RolledBack(_)) {
            return self.fail(format!("S-211: a transaction was refused, done: {is_done}: {refusal}"));
        }
        if !self.may_refuse_commit(at) {
            let operations = &self.transactions.all[at].operations;
            return self.fail(format!("S-211: a commit was wrongly refused: {refusal}: {operations:?}"));
        }
        let is_over = self.is_over(&self.transactions.all[at]);
        self.coverage.variant(if is_over { "transaction took too long" } else { "commit refused" });
        // Every lock is as it was (S-215).
        self.use_locks(at, |lock, outcome| {
            if let Some(nth) = lock.asked.iter().rposition(|asked| *asked == outcome) {
                lock.asked.remove(nth);
            }
        });
        self.finish(at, Phase::RolledBack);
    }

    /// Whether a commit may find that something has changed since it was staged.
    fn may_refuse_commit(&self, at: usize) -> bool {
        if self.may_be_rolled_back(at) || self.may_lack_room || self.may_not_read || self.is_blurred {
            return true;
        }
        let staged = self.transactions.all[at].operations.iter();
        staged.filter(|operation| operation.heard == Heard::Staged).any(|operation| match &operation.what {
            What::Send { link, path, entity, way, .. } => {
                let lacks = self.links.get(link).is_some_and(|link| self.may_lack_destination(link));
                let is_question = link.link == u32::MAX;
                self.ledger.find(path) != *entity
                    || self.way_of(*link) != *way
                    || self.went(path)
                    || lacks
                    || if is_question { self.may_refuse_path(path) } else { self.may_be_full(*link) }
            }
            What::Settle { path, entity, token, .. } => {
                let lock = entity.and_then(|entity| self.locks.get(&(entity, token.sequence())));
                let now = entity.map_or(LocalTime::NEVER, |entity| self.here(entity));
                self.ledger.find(path) != *entity
                    || self.went(path)
                    || self.is_updating(path)
                    || lock.is_none_or(|lock| {
                        lock.token != *token
                            || lock.is_hazy
                            || lock.renewals > 0
                            || lock.until <= now
                            || lock.returned.is_some()
                            || lock.asked.len() > 1
                            || self.may_be_claimed(lock, 1)
                    })
            }
        })
    }

    fn finish(&mut self, at: usize, phase: Phase) {
        let turn = self.turn;
        let each = &mut self.transactions.all[at];
        each.phase = phase;
        each.ended.get_or_insert(turn);
    }

    /// Transactions are over with their coordinator, by that turn. One that is being discharged may still be committed.
    fn end_transactions(&mut self, is_it: impl Fn(&Transaction) -> bool, turn: u64) {
        let mut is_lost = false;
        for each in self.transactions.all.iter_mut().filter(|each| each.is_open() && is_it(each)) {
            each.ended.get_or_insert(turn);
            if each.phase == Phase::Open {
                each.phase = Phase::RolledBack;
                is_lost |= !each.operations.is_empty();
            }
        }
        if is_lost {
            self.coverage.variant("transaction lost with its coordinator");
        }
    }

    pub(super) fn coordinator_left(&mut self, link: LinkId, turn: u64) {
        self.end_transactions(|each| each.coordinator == link, turn);
    }

    pub(super) fn connection_left(&mut self, connection: ConnectionId, turn: u64) {
        self.end_transactions(|each| each.coordinator.connection == connection, turn);
    }

    /// The partition rests: what was not answered will not happen any more.
    pub(super) fn end_turn_of_transactions(&mut self) {
        let turn = self.turn;
        let Transactions { all, names, .. } = &mut self.transactions;
        for at in names.values() {
            let each = &mut all[*at];
            if each.is_open() && each.ended.is_some_and(|ended| ended <= turn) {
                each.phase = if each.position.is_some() { Phase::Committed } else { Phase::RolledBack };
            }
        }
        let all = &self.transactions.all;
        self.transactions.names.retain(|_, at| all[*at].is_open());
    }

    /// A new life knows of no transaction.
    pub(super) fn forget_transactions(&mut self) {
        let has_lost =
            |each: &Transaction| each.is_open() && each.position.is_none() && !each.operations.is_empty();
        let names = std::mem::take(&mut self.transactions.names);
        if names.values().any(|at| has_lost(&self.transactions.all[*at])) {
            self.coverage.variant("transaction lost in a crash");
        }
        let turn = self.turn;
        for at in names.into_values() {
            let each = &mut self.transactions.all[at];
            if each.is_open() {
                each.phase = if each.position.is_some() { Phase::Committed } else { Phase::RolledBack };
                each.ended.get_or_insert(turn);
            }
        }
        self.transactions.on_links.clear();
        self.transactions.in_questions.clear();
        self.transactions.discharges.clear();
    }

    /// A message that was sent within a transaction is stored: only by its commit, which is one append (S-211).
    pub(super) fn stored_within(&mut self, number: usize) -> Option<&'static str> {
        let at = self.messages[number].within?;
        let position = self.ledger.position + 1;
        let Some(each) = self.transactions.all.get_mut(at) else {
            return Some("S-210: it was sent in a transaction that was not open");
        };
        if each.phase != (Phase::Discharging { is_failed: false }) {
            return Some("S-211: it was sent in a transaction that is not being committed");
        }
        match each.position.replace(position) {
            Some(before) if before != position => Some("S-211: its transaction is in two appends"),
            _ => {
                self.committing.insert(at);
                None
            }
        }
    }

    /// An append is complete: of a transaction that it commits, it has everything.
    pub(super) fn check_committed(&mut self) {
        for at in std::mem::take(&mut self.committing) {
            let staged = self.transactions.all[at].operations.iter();
            let missing =
                staged.filter(|operation| operation.heard == Heard::Staged).find(
                    |operation| match &operation.what {
                        What::Send { link, delivery, .. } => {
                            let range = self.deliveries[&(*link, *delivery)].clone();
                            range.into_iter().any(|number| {
                                let message = &self.messages[number];
                                let is_stored = message.place.is_some() || message.is_published;
                                !is_stored && !self.may_be_dropped(number) && !self.may_be_unwanted(number)
                            })
                        }
                        What::Settle { entity, token, outcome, .. } => {
                            let queue = entity.and_then(|entity| self.ledger.queues.get(&entity));
                            let present = queue.and_then(|queue| queue.present.get(&token.sequence()));
                            present.is_some_and(|present| match outcome {
                                Outcome::Complete => true,
                                Outcome::DeadLetter(_) => present.sub != SubQueue::DeadLetter,
                                Outcome::Defer(_) => present.state != State::Deferred && present.is_main(),
                                Outcome::Abandon(_) | Outcome::Release => false,
                            })
                        }
                    },
                );
            if let Some(missing) = missing {
                let what = format!("S-211: an append has half of a transaction; {missing:?} is missing");
                return self.fail(what);
            }
        }
    }

    /// What the broker keeps for transactions is what open ones have, and nothing without any.
    pub fn check_staged(&mut self, transactions: usize, bytes: u64, held: u64) {
        let open = || {
            self.transactions
                .names
                .values()
                .map(|at| &self.transactions.all[*at])
                .filter(|each| each.is_open())
        };
        let expected = open().count();
        let (mut least, mut most) = (0, 0);
        for each in open() {
            let (at_least, at_most) = each.bytes(self.may_be_over(each));
            (least, most) = (least + at_least, most + at_most);
        }
        let is_held = held == 0 || expected > 0;
        if transactions != expected || !(least..=most).contains(&bytes) || !is_held {
            self.fail(format!(
                "S-213: {transactions} transactions are kept with {bytes} bytes, and {held} in memory; \
                 {expected} are open, with {least} to {most} bytes"
            ));
        }
    }

    /// Whether a message was given its number when it was scheduled within a transaction (S-48).
    pub(super) fn is_reserved(&self, number: usize) -> bool {
        let message = &self.messages[number];
        message.within.is_some() && message.link.link == u32::MAX
    }

    /// A message that was scheduled within a transaction takes the number that its sender was told.
    pub(super) fn take_reserved(&mut self, number: usize, entity: EntityId, sequence: Sequence) -> bool {
        let reserved = self.messages[number].reserved.replace((entity, sequence));
        let queue = self.ledger.queues.get_mut(&entity);
        let is_kept = queue.is_some_and(|queue| queue.history.unskip(sequence));
        is_kept && reserved.is_none_or(|reserved| reserved == (entity, sequence))
    }

    /// Scheduling within a transaction was answered with numbers.
    pub(super) fn told_reserved(&mut self, path: &str, link: LinkId, delivery: u32, numbers: &[Number]) {
        let range = self.deliveries[&(link, delivery)].clone();
        if range.len() != numbers.len() {
            return self.fail("another number of messages was scheduled");
        }
        let Some(entity) = self.ledger.find(path).filter(|_| !self.went(path)) else { return };
        for (told, number) in numbers.iter().zip(range) {
            let sequence = super::duplicate::sequence_of(*told);
            let Some(queue) = self.ledger.queues.get_mut(&entity) else { return };
            let is_its_own = match self.messages[number].reserved {
                Some(reserved) => reserved == (entity, sequence),
                None => queue.history.tell_skipped(sequence),
            };
            self.messages[number].reserved = Some((entity, sequence));
            if !is_its_own {
                return self
                    .fail(format!("message {number} was scheduled as {told:?}, which is not its own"));
            }
        }
    }
}

fn settled(outcome: &Outcome) -> Settled {
    match outcome {
        Outcome::Complete => Settled::Completed,
        Outcome::Abandon(_) => Settled::Abandoned,
        Outcome::Release => Settled::Released,
        Outcome::Defer(_) => Settled::Deferred,
        Outcome::DeadLetter(_) => Settled::DeadLettered,
    }
}
