//! The coordinator of transactions: a link on which they are declared and discharged, and what is done
//! within them on other links of the connection.
//!
//! Nobody needs a claim for it, because whatever is done within a transaction is judged as it would be outside.

use super::connection::ConnectionTask;
use super::intake::Frame;
use super::link::Kind;
use crate::limits::{COORDINATOR_REQUEST_BYTES, REQUEST_CREDIT, STRANGER_TRANSACTIONS};
use amqp::transaction::Request;
use amqp::{AttachReply, LinkKey, State};
use broker::{Command, Settled, TransactionId};

/// The id of a transaction as clients know it.
fn id_of(transaction: TransactionId) -> Vec<u8> {
    transaction.0.to_be_bytes().to_vec()
}

/// The transaction that a client means. What is no id of ours is none that ever was.
pub(super) fn transaction_of(id: &[u8]) -> TransactionId {
    id.try_into().map_or(TransactionId(0), |id| TransactionId(u64::from_be_bytes(id)))
}

/// What is asked for, as a part of a transaction if it is one.
pub(super) fn within(transaction: Option<TransactionId>, command: Command) -> Command {
    match transaction {
        None => command,
        Some(transaction) => Command::Within { transaction, command: Box::new(command) },
    }
}

impl<S> ConnectionTask<S> {
    pub(super) fn attach_coordinator(&mut self, key: LinkKey) -> Kind {
        let (link, namespace) = (self.engine.link(key.0), self.namespace.id);
        self.batch.commands.push(Command::AttachCoordinator { link, namespace });
        Kind::Coordinator { partial: Vec::new() }
    }

    pub(super) fn coordinator_attached(&mut self, key: LinkKey) {
        let max_message_size = Some(COORDINATOR_REQUEST_BYTES);
        self.machine.accept(key, AttachReply { max_message_size, ..AttachReply::default() });
        self.machine.grant(key, REQUEST_CREDIT);
    }

    /// A transfer says that it is part of a transaction, or it says nothing that we understand.
    pub(super) fn note_transaction(&mut self, key: LinkKey, state: State) {
        let State::Transactional { txn_id, .. } = state else {
            let error = self.origin.not_implemented("A transfer that goes on with another", "");
            self.forget(key);
            return self.machine.detach(key, Some(&error));
        };
        let transaction = Some(transaction_of(&txn_id));
        match self.links.get_mut(&key.0).map(|link| &mut link.kind) {
            Some(Kind::Sender(sender)) => sender.transaction = transaction,
            Some(Kind::ManagementRequests(requests)) => requests.transaction = transaction,
            _ => {}
        }
    }

    /// The transaction of the delivery that has ended on a link.
    pub(super) fn take_transaction(&mut self, key: LinkKey) -> Option<TransactionId> {
        match self.links.get_mut(&key.0).map(|link| &mut link.kind) {
            Some(Kind::Sender(sender)) => sender.transaction.take(),
            Some(Kind::ManagementRequests(requests)) => requests.transaction.take(),
            _ => None,
        }
    }

    /// A delivery that was part of a transaction is refused here: the transaction is spoiled, for its client may not look
    /// at what became of each send.
    pub(super) fn spoil(&mut self, key: LinkKey) {
        if let Some(transaction) = self.take_transaction(key) {
            let link = self.engine.link(key.0);
            self.batch.commands.push(Command::Spoil { link, transaction });
        }
    }

    /// A delivery came on a link that is gone, or was refused. Nobody hears of it, so the commit must tell (S-218).
    pub(super) fn spoil_unheard(&mut self, key: LinkKey, state: &State) {
        if let State::Transactional { txn_id, .. } = state {
            let (link, transaction) = (self.engine.link(key.0), transaction_of(txn_id));
            self.batch.commands.push(Command::Spoil { link, transaction });
        }
    }

    /// Somebody declares or discharges.
    pub(super) fn coordinate(&mut self, key: LinkKey, frame: Frame<'_>, payload: &[u8]) {
        let (link, delivery) = (self.engine.link(key.0), frame.delivery_id);
        let refused = match Request::decode(payload) {
            Ok(Request::Declare) if !self.has_claim && self.stranger_declares >= STRANGER_TRANSACTIONS => {
                let text = "Without a claim a connection may declare no more transactions.";
                self.origin.error("amqp:unauthorized-access", text, "")
            }
            Ok(Request::Declare) => {
                self.stranger_declares += usize::from(!self.has_claim);
                return self.batch.commands.push(Command::Declare { link, delivery });
            }
            Ok(Request::Discharge { txn_id, fail }) => {
                let (transaction, is_failed) = (transaction_of(txn_id), fail);
                let command = Command::Discharge { link, delivery, transaction, is_failed };
                return self.batch.commands.push(command);
            }
            Err(_) => {
                let text = "A coordinator is told to declare or to discharge a transaction.";
                self.origin.error(amqp::condition::DECODE_ERROR, text, "")
            }
        };
        self.machine.settle_incoming(key, delivery, delivery, &State::rejected(refused));
    }

    pub(super) fn declared(&mut self, key: LinkKey, delivery: u32, transaction: TransactionId) {
        let state = State::Declared { txn_id: id_of(transaction) };
        self.machine.settle_incoming(key, delivery, delivery, &state);
    }

    /// A send or a settlement waits for the end of its transaction: the answer says of which.
    pub(super) fn staged(
        &mut self,
        key: LinkKey,
        delivery: u32,
        transaction: TransactionId,
        outcome: Option<Settled>,
    ) {
        let inner = outcome.map_or(State::Accepted, super::settle::state_of);
        let state = State::Transactional { txn_id: id_of(transaction), outcome: Some(Box::new(inner)) };
        match outcome {
            None => self.machine.settle_incoming(key, delivery, delivery, &state),
            Some(_) => self.machine.settle_outgoing(key, delivery, delivery, &state),
        }
    }
}
