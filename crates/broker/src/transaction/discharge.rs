//! The beginning and the end of transactions. A commit is decided whole: every operation is looked at again, for time has passed,
//! and then all of them are taken in their order, or none.

use super::stage::TOO_LATE;
use super::{Delivery, Operation, Operations, Phase, Way};
use crate::Broker;
use crate::command::{Arrivals, Outcome};
use crate::decision::{Context, Decision, LocalContext, LocalDecision};
use crate::effect::{Effect, Notice, Settled, StoredOverlay};
use crate::ids::{EntityId, LinkId, NamespaceId, Source, TransactionId};
use crate::limits::CONNECTION_TRANSACTIONS;
use crate::planted::{Bug, is_planted};
use crate::queue::send::Parts;
use crate::record::Record;
use crate::refusal::Refusal;

const GONE: &str = "An entity that it concerns is gone.";

/// Where the messages of a delivery end up.
#[derive(Debug, Clone, Copy)]
enum Place {
    Stored(EntityId),
    /// In the transfer dead-letter queue of the entity on the way: their destination takes none (S-114).
    TransferDeadLetter(EntityId),
}

impl Settled {
    /// How a settlement with this outcome comes out.
    pub(super) fn of(outcome: &Outcome) -> Settled {
        match outcome {
            Outcome::Complete => Settled::Completed,
            Outcome::Abandon(_) => Settled::Abandoned,
            Outcome::Release => Settled::Released,
            Outcome::Defer(_) => Settled::Deferred,
            Outcome::DeadLetter(_) => Settled::DeadLettered,
        }
    }
}

impl Broker {
    /// Transactions are declared on links of their own (S-217: not in every tier).
    pub(crate) fn attach_coordinator(
        &mut self,
        link: LinkId,
        namespace: NamespaceId,
        decision: &mut Decision,
    ) {
        match self.tier_of(namespace).check_transactions() {
            Ok(()) => {
                self.volatile.transactions.attach(link, namespace);
                let (max_message_bytes, wants_ids) = (0, false);
                decision.effect(Notice::Attached { link, max_message_bytes, wants_ids, session: None });
            }
            Err(refusal) => decision.effect(Notice::Detached { link, refusal }),
        }
    }

    pub(crate) fn declare(&mut self, link: LinkId, delivery: u32, decision: &mut Decision) {
        let transactions = &self.volatile.transactions;
        if !transactions.coordinators.contains_key(&link) {
            return;
        }
        let open = transactions.charges.get(&link.connection).map_or(0, |charges| charges.transactions);
        if open >= CONNECTION_TRANSACTIONS {
            let refusal = Refusal::TooManyTransactions(CONNECTION_TRANSACTIONS);
            return decision.effect(Notice::Rejected { link, delivery, refusal });
        }
        let transaction = TransactionId(transactions.last.0 + 1);
        self.volatile.transactions.declare(link, transaction);
        decision.effect(Notice::Declared { link, delivery, transaction });
    }

    pub(crate) fn discharge(
        &mut self,
        link: LinkId,
        delivery: u32,
        transaction: TransactionId,
        is_failed: bool,
        decision: &mut LocalDecision<'_>,
    ) {
        let found = self.volatile.transactions.of(transaction, link.connection);
        let ended = match found.filter(|found| found.awaiting.is_none()) {
            None => Err(Refusal::UnknownTransaction),
            Some(found) if found.reading > 0 && !is_failed => {
                return self.volatile.transactions.set_awaited(transaction, delivery);
            }
            Some(_) if is_failed => {
                self.give_up(transaction, decision);
                Ok(())
            }
            Some(_) => self.commit(transaction, decision),
        };
        match ended {
            Ok(()) => decision.effect(Effect::Accepted { link, delivery }),
            Err(refusal) => decision.effect(Notice::Rejected { link, delivery, refusal }),
        }
    }

    /// An operation that a commit waited for is decided.
    pub(super) fn resume_discharge(&mut self, transaction: TransactionId, decision: &mut LocalDecision<'_>) {
        let Some(found) = self.volatile.transactions.open.get(&transaction) else { return };
        let (link, Some(delivery), 0) = (found.coordinator, found.awaiting, found.reading) else { return };
        match self.commit(transaction, decision) {
            Ok(()) => decision.effect(Effect::Accepted { link, delivery }),
            Err(refusal) => decision.effect(Notice::Rejected { link, delivery, refusal }),
        }
    }

    /// An operation will not be decided: a message that it needs cannot be read. A commit that waits for it is refused.
    pub(crate) fn operation_failed(&mut self, transaction: TransactionId, decision: &mut Decision) {
        self.volatile.transactions.end_read(transaction);
        let Some(found) = self.volatile.transactions.open.get(&transaction) else { return };
        let (link, Some(delivery)) = (found.coordinator, found.awaiting) else { return };
        self.volatile.transactions.forget(transaction);
        let refusal = Refusal::RolledBack(Refusal::Unreadable.to_string().into());
        decision.effect(Notice::Rejected { link, delivery, refusal });
    }

    /// Nothing happens to the messages: who has them locked has them still (S-215).
    fn give_up(&mut self, transaction: TransactionId, decision: &mut LocalDecision<'_>) {
        let context = decision.context();
        let operations = self.volatile.transactions.forget(transaction);
        if is_planted(Bug::CountedRollBack) {
            for operation in operations.into_iter().flat_map(|operations| operations.list) {
                if let Operation::Settle { source, token, .. } = operation
                    && self.check_lock(source, token, context).is_ok()
                {
                    self.settle_locked(source, token.sequence(), &Outcome::Abandon(None), decision);
                }
            }
        }
    }

    fn commit(
        &mut self,
        transaction: TransactionId,
        decision: &mut LocalDecision<'_>,
    ) -> Result<(), Refusal> {
        let context = decision.context();
        if let Phase::RolledBack(why) = &self.volatile.transactions.open[&transaction].phase {
            let refusal = Refusal::RolledBack(why.clone());
            self.volatile.transactions.forget(transaction);
            return Err(refusal);
        }
        let operations = self.volatile.transactions.forget(transaction).expect("it is open");
        if operations.is_overdue(context.now) {
            return Err(Refusal::RolledBack(TOO_LATE.into()));
        }
        self.check_operations(&operations, context)
            .map_err(|why| Refusal::RolledBack(why.to_string().into()))?;
        let mut list = operations.list;
        if is_planted(Bug::HalfTransaction) && list.len() > 1 {
            list.pop();
        }
        for operation in list {
            match operation {
                Operation::Send(delivery) => self.commit_messages(delivery, decision),
                Operation::Settle { source, token, outcome, stored } => {
                    let (entity, sequence) = (source.entity, token.sequence());
                    if let Some(StoredOverlay { body, length }) = stored {
                        self.write(Record::OverlayStored { entity, sequence, body, length }, decision);
                    }
                    self.settle_as_recorded(source, sequence, outcome, decision);
                    self.volatile.set_used(source.entity, context.now);
                }
            }
        }
        Ok(())
    }

    /// Whether everything that was checked when it came still holds. The state is that before the transaction: as with a
    /// batch, an entity that has room takes all of it.
    fn check_operations(&self, operations: &Operations, context: LocalContext) -> Result<(), Refusal> {
        for operation in &operations.list {
            match operation {
                Operation::Send(delivery) => self.check_delivery(delivery)?,
                Operation::Settle { source, token, .. } => {
                    if self.durable.queue(source.entity).is_none() {
                        return Err(Refusal::NotAllowed(GONE));
                    }
                    self.check_lock(*source, *token, context)?;
                }
            }
        }
        Ok(())
    }

    /// Whether messages can be sent.
    fn check_delivery(&self, delivery: &Delivery) -> Result<(), Refusal> {
        let (Way::To(entity) | Way::Via(entity, _)) = &delivery.way;
        if self.durable.queue(*entity).is_none() {
            return Err(Refusal::NotAllowed(GONE));
        }
        let part_bytes = delivery.parts.iter().map(|parts| parts.bytes).sum();
        self.check_way(&delivery.way, &delivery.messages, &delivery.sessions, part_bytes)
    }

    /// Where messages are stored that were checked.
    fn place_of(&self, way: &Way) -> Place {
        match way {
            Way::To(entity) => Place::Stored(*entity),
            Way::Via(via, destination) => {
                let namespace = self.queue_of(Source::main(*via)).namespace;
                let target = self.resolve_target(namespace, destination).expect("checked before");
                match self.queue_of(target).settings.status.may_send() {
                    true => Place::Stored(target.entity),
                    false => Place::TransferDeadLetter(*via),
                }
            }
        }
    }

    fn commit_messages(&mut self, delivery: Delivery, decision: &mut LocalDecision<'_>) {
        let context = decision.context();
        let place = self.place_of(&delivery.way);
        let Delivery { way, messages, sessions, parts, numbers } = delivery;
        for (at, (message, parts)) in messages.iter().zip(parts).enumerate() {
            let entity = match place {
                Place::Stored(entity) => entity,
                Place::TransferDeadLetter(via) => {
                    self.transfer_dead_letter_message(via, message, parts, decision);
                    continue;
                }
            };
            if is_planted(Bug::TransferredTwice)
                && let Way::Via(via, _) = &way
            {
                let again = Parts { stored: parts.stored, ..Parts::default() };
                self.transfer_dead_letter_message(*via, message, again, decision);
            }
            if self.is_duplicate(entity, message, context) {
                continue;
            }
            let session = sessions.get(at);
            let number = numbers.as_ref().map(|numbers| numbers[at]);
            match number.filter(|_| message.scheduled > context.now) {
                Some(number) => {
                    self.store_reserved(entity, number, message, session, parts, decision);
                }
                None => {
                    let arrivals = Arrivals::default();
                    self.store(entity, message, session, parts, arrivals, decision);
                }
            }
        }
        let (Place::Stored(entity) | Place::TransferDeadLetter(entity)) = place;
        self.volatile.set_accessed(entity, context.now);
        let (Way::To(entity) | Way::Via(entity, _)) = way;
        self.volatile.set_accessed(entity, context.now);
    }

    /// Rolls back what has taken too long (S-213).
    pub(crate) fn end_overdue(&mut self, context: Context) {
        while let Some(transaction) = self.next_overdue(context) {
            self.roll_back(transaction, TOO_LATE);
        }
    }

    fn next_overdue(&self, context: Context) -> Option<TransactionId> {
        let is_due =
            |namespace, deadline| deadline <= context.now.local(self.volatile.clock_offset(namespace));
        let mut deadlines = self.volatile.transactions.deadlines();
        deadlines.find(|(namespace, deadline, _)| is_due(*namespace, *deadline)).map(|(.., id)| id)
    }
}
