//! Transactions: sends, settlements and schedules that happen together or not at all (S-210 to S-218).
//!
//! What is asked for within a transaction is checked at once and kept here, in memory, until the transaction is discharged:
//! then all of it is decided in one go, which is one batch of the journal, or none of it. The bodies of messages are stored
//! when they come, as the parts of a large message are: garbage until a record names them. So a crash, like everything else
//! that ends a transaction early, leaves nothing of it behind.
//!
//! What must always hold: an open transaction has changed nothing that anybody but its connection could see; its messages
//! stay locked as long as their locks last, whatever becomes of it (S-215).

mod discharge;
mod stage;
#[cfg(test)]
mod tests;

use crate::command::{Incoming, Outcome, SessionIds};
use crate::effect::StoredOverlay;
use crate::ids::{
    BodyId, ConnectionId, EntityId, IdMap, LinkId, LockToken, NamespaceId, Sequence, Source, TransactionId,
};
use crate::queue::send::Parts;
use crate::time::LocalTime;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Every transaction that is not discharged.
#[derive(Debug, Default)]
pub struct Transactions {
    last: TransactionId,
    coordinators: IdMap<LinkId, Coordinator>,
    open: IdMap<TransactionId, Transaction>,
    /// When they end by themselves, in the time of their namespace.
    deadlines: BTreeSet<(NamespaceId, LocalTime, TransactionId)>,
    /// Locks whose messages will be settled by a commit.
    claimed: IdMap<LockToken, TransactionId>,
    charges: IdMap<ConnectionId, Charges>,
    /// What all of them hold in memory.
    held: u64,
}

/// A link on which transactions are declared.
#[derive(Debug, Default)]
struct Coordinator {
    namespace: NamespaceId,
    transactions: BTreeSet<TransactionId>,
}

#[derive(Debug)]
pub(crate) struct Transaction {
    coordinator: LinkId,
    namespace: NamespaceId,
    /// Operations that wait until a message was read.
    reading: u32,
    /// The delivery of a commit that waits for them.
    awaiting: Option<u32>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Open(Box<Operations>),
    /// It was rolled back before it was discharged, and this is why.
    RolledBack(Box<str>),
}

/// What a transaction will do.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    list: Vec<Operation>,
    /// When it ends by itself, once there was an operation.
    deadline: Option<LocalTime>,
    messages: usize,
    settlements: usize,
    charge: Charge,
    /// What chooses the partition of its messages, of each partitioned entity (S-216).
    partitions: Vec<(EntityId, u64)>,
}

/// What is kept for the messages of a transaction.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Bytes on disk.
    stored: u64,
    /// Bytes in memory.
    held: u64,
}

/// What the transactions of one connection cost.
#[derive(Debug, Default)]
struct Charges {
    transactions: usize,
    charge: Charge,
}

/// What all open transactions keep.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Staged {
    pub transactions: usize,
    /// On disk, and in memory.
    pub stored_bytes: u64,
    pub held_bytes: u64,
}

/// One operation.
#[derive(Debug)]
pub(crate) enum Operation {
    Send(Delivery),
    /// With changes as records have them; those that are not small are stored.
    Settle {
        source: Source,
        token: LockToken,
        outcome: Outcome,
        stored: Option<StoredOverlay>,
    },
}

/// Messages that were sent or scheduled together.
#[derive(Debug)]
pub(crate) struct Delivery {
    way: Way,
    messages: Vec<Incoming>,
    sessions: SessionIds,
    /// Where each of them is stored.
    parts: Vec<Parts>,
    /// The numbers that were told of scheduled messages (S-48).
    numbers: Option<Vec<Sequence>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Way {
    To(EntityId),
    /// S-114.
    Via(EntityId, Arc<str>),
}

impl Transactions {
    pub(crate) fn attach(&mut self, link: LinkId, namespace: NamespaceId) {
        let coordinator = Coordinator { namespace, ..Coordinator::default() };
        let before = self.coordinators.insert(link, coordinator);
        assert!(before.is_none(), "link {link:?} was attached twice");
    }

    /// Everything that the link has not discharged is rolled back (S-213).
    pub(crate) fn detach(&mut self, link: LinkId) {
        let Some(coordinator) = self.coordinators.remove(&link) else { return };
        for transaction in coordinator.transactions {
            self.forget(transaction);
        }
    }

    fn declare(&mut self, link: LinkId, transaction: TransactionId) {
        let coordinator = self.coordinators.get_mut(&link).expect("it was looked at");
        coordinator.transactions.insert(transaction);
        let (namespace, phase) = (coordinator.namespace, Phase::Open(Box::default()));
        let declared = Transaction { coordinator: link, namespace, reading: 0, awaiting: None, phase };
        self.open.insert(transaction, declared);
        self.last = transaction;
        self.charges.entry(link.connection).or_default().transactions += 1;
    }

    /// There was an operation; the first one sets the end of the transaction.
    fn set_deadline(&mut self, transaction: TransactionId, deadline: LocalTime) {
        let namespace = self.open[&transaction].namespace;
        if let Some(operations) = self.operations_mut(transaction)
            && operations.deadline.is_none()
        {
            operations.deadline = Some(deadline);
            self.deadlines.insert((namespace, deadline, transaction));
        }
    }

    /// An operation waits until a message was read.
    fn begin_read(&mut self, transaction: TransactionId) {
        self.change(transaction, |each| each.reading += 1);
    }

    fn end_read(&mut self, transaction: TransactionId) {
        self.change(transaction, |each| each.reading -= 1);
    }

    /// A commit waits for such operations.
    fn set_awaited(&mut self, transaction: TransactionId, delivery: u32) {
        self.change(transaction, |each| each.awaiting = Some(delivery));
    }

    fn roll_back(&mut self, transaction: TransactionId, why: Box<str>) {
        self.clear(transaction);
        self.change(transaction, |each| each.phase = Phase::RolledBack(why));
    }

    fn change(&mut self, transaction: TransactionId, change: impl FnOnce(&mut Transaction)) {
        if let Some(each) = self.open.get_mut(&transaction) {
            change(each);
        }
    }

    fn operations_mut(&mut self, transaction: TransactionId) -> Option<&mut Operations> {
        match &mut self.open.get_mut(&transaction)?.phase {
            Phase::Open(operations) => Some(operations),
            Phase::RolledBack(_) => None,
        }
    }

    /// Adds what is to be done at the commit.
    fn add(&mut self, transaction: TransactionId, operation: Operation, charge: Charge) {
        if let Operation::Settle { token, .. } = &operation {
            self.claimed.insert(*token, transaction);
        }
        let Some(each) = self.open.get_mut(&transaction) else { return };
        let Phase::Open(operations) = &mut each.phase else { return };
        match &operation {
            Operation::Send(delivery) => operations.messages += delivery.messages.len(),
            Operation::Settle { .. } => operations.settlements += 1,
        }
        operations.charge.add(charge);
        self.held += charge.held;
        operations.list.push(operation);
        self.charges.entry(each.coordinator.connection).or_default().charge.add(charge);
    }

    /// Takes what a transaction would have done, and with it everything that was kept for it.
    fn clear(&mut self, transaction: TransactionId) -> Option<Operations> {
        let each = self.open.get_mut(&transaction)?;
        let Phase::Open(operations) = &mut each.phase else { return None };
        let operations = std::mem::take(&mut **operations);
        if let Some(deadline) = operations.deadline {
            self.deadlines.remove(&(each.namespace, deadline, transaction));
        }
        for operation in &operations.list {
            if let Operation::Settle { token, .. } = operation {
                self.claimed.remove(token);
            }
        }
        if let Some(charges) = self.charges.get_mut(&each.coordinator.connection) {
            charges.charge.take(operations.charge);
            self.held -= operations.charge.held;
        }
        Some(operations)
    }

    /// Forgets a transaction that is discharged or whose coordinator is gone.
    fn forget(&mut self, transaction: TransactionId) -> Option<Operations> {
        let operations = self.clear(transaction);
        let each = self.open.remove(&transaction)?;
        if let Some(coordinator) = self.coordinators.get_mut(&each.coordinator) {
            coordinator.transactions.remove(&transaction);
        }
        let connection = each.coordinator.connection;
        if let Some(charges) = self.charges.get_mut(&connection) {
            charges.transactions -= 1;
            if charges.transactions == 0 {
                assert_eq!(charges.charge, Charge::default(), "what is charged to nobody is given back");
                self.charges.remove(&connection);
            }
        }
        operations
    }

    /// What is kept for those that are open.
    pub(crate) fn staged(&self) -> Staged {
        let charges = self.charges.values();
        charges.fold(Staged::default(), |sum, charges| Staged {
            transactions: sum.transactions + charges.transactions,
            stored_bytes: sum.stored_bytes + charges.charge.stored,
            held_bytes: sum.held_bytes + charges.charge.held,
        })
    }

    /// A transaction of that connection.
    fn of(&self, transaction: TransactionId, connection: ConnectionId) -> Option<&Transaction> {
        self.open.get(&transaction).filter(|each| each.coordinator.connection == connection)
    }

    pub(crate) fn namespace_of(&self, link: LinkId) -> NamespaceId {
        self.coordinators.get(&link).map_or(NamespaceId::default(), |coordinator| coordinator.namespace)
    }

    /// Whether a message is to be settled by a transaction that can still be committed.
    pub(crate) fn claims(&self, token: LockToken, now: LocalTime) -> bool {
        if self.claimed.is_empty() {
            return false;
        }
        let operations = self.claimed.get(&token).and_then(|id| match &self.open.get(id)?.phase {
            Phase::Open(operations) => Some(operations),
            Phase::RolledBack(_) => None,
        });
        operations.is_some_and(|operations| !operations.is_overdue(now))
    }

    /// When the next transaction of each namespace ends by itself.
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = (NamespaceId, LocalTime, TransactionId)> {
        let mut from = self.deadlines.first().copied();
        std::iter::from_fn(move || {
            let (namespace, deadline, transaction) = from?;
            let next = (NamespaceId(namespace.0 + 1), LocalTime::AT_ONCE, TransactionId(0));
            from = self.deadlines.range(next..).next().copied();
            Some((namespace, deadline, transaction))
        })
    }

    /// Bodies that are stored for a commit.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = BodyId> {
        let open = self.open.values().filter_map(|each| match &each.phase {
            Phase::Open(operations) => Some(operations),
            Phase::RolledBack(_) => None,
        });
        open.flat_map(|operations| &operations.list).flat_map(|operation| {
            let (parts, stored) = match operation {
                Operation::Send(delivery) => (&delivery.parts[..], None),
                Operation::Settle { stored, .. } => (&[][..], *stored),
            };
            let messages =
                parts.iter().flat_map(|parts| parts.bodies.iter().flatten().copied().chain(parts.stored));
            messages.chain(stored.map(|stored| stored.body))
        })
    }
}

impl Operations {
    fn is_overdue(&self, now: LocalTime) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl Charge {
    fn add(&mut self, other: Charge) {
        self.stored += other.stored;
        self.held += other.held;
    }

    fn take(&mut self, other: Charge) {
        self.stored -= other.stored;
        self.held -= other.held;
    }
}
