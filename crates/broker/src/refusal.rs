//! Every way to say no. A refusal is normal business, part of the answer; the doors translate it into a condition or
//! a status, each in one place and without a catch-all.

use crate::ids::{Number, Sequence};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The path names nothing.
    #[error("the messaging entity '{0}' could not be found")]
    EntityNotFound(Box<str>),
    /// The path is taken (S-250: by a queue or a topic, whatever its letters' case).
    #[error("an entity called '{0}' exists already")]
    EntityExists(Box<str>),
    /// The path breaks the rules for names.
    #[error("'{name}' is not a valid entity name: {why}")]
    InvalidName { name: Box<str>, why: &'static str },
    /// A property's value is outside its range.
    #[error("{}", of_setting(property, why))]
    InvalidSetting { property: &'static str, why: Box<str> },
    /// S-260.
    #[error("The value for the '{property}' property of an existing {kind} can't be changed.")]
    Unchangeable { property: &'static str, kind: &'static str },
    /// The configured tier does not have it (S-261).
    #[error("'{property}' is not available in the {tier} tier")]
    NotInTier { property: &'static str, tier: &'static str },
    /// S-171.
    #[error("The auto forwarding destination entity does not exist: '{0}'.")]
    ForwardTargetNotFound(Box<str>),
    #[error("the topic holds {0} subscriptions, which is its limit")]
    TooManySubscriptions(usize),
    #[error("the topic holds {0} SQL filters, which is its limit")]
    TooManySqlFilters(usize),
    #[error("the topic holds {0} correlation filters, which is its limit")]
    TooManyCorrelationFilters(usize),
    /// The namespace holds as many entities as it may.
    #[error("the namespace holds {0} entities, which is its limit")]
    TooManyEntities(usize),
    /// S-98.
    #[error("entity '{name}' has {limit} receivers, which is its limit")]
    TooManyReceivers { name: Box<str>, limit: usize },
    /// A request names more than one request may.
    #[error("the request names {count} {what}; the limit is {limit}")]
    TooMany { what: &'static str, count: usize, limit: usize },
    /// The entity's status forbids it (S-230).
    #[error("entity '{0}' is disabled for this operation")]
    EntityDisabled(Box<str>),
    /// The operation makes no sense on this entity.
    #[error("{0}")]
    NotAllowed(&'static str),
    /// S-17.
    #[error("the message has {size} bytes; the limit of the entity is {limit}")]
    MessageTooLarge { size: u64, limit: u64 },
    /// S-16.
    #[error("the batch has {count} messages; the limit is {limit}")]
    BatchTooLarge { count: usize, limit: usize },
    /// S-18: one property, its name included. The doors find it.
    #[error("the property '{name}' has {size} bytes with its name; the limit of one property is {limit}")]
    PropertyTooLarge { name: Box<str>, size: usize, limit: usize },
    /// S-18.
    #[error("the properties have {size} bytes; the limit is {limit}")]
    PropertiesTooLarge { size: usize, limit: usize },
    /// S-19.
    #[error(
        "The maximum entity size has been reached or exceeded for {kind}: '{name}'. Size of entity in bytes:{size}, Max entity size in bytes:{limit}."
    )]
    QueueFull { kind: &'static str, name: Box<str>, size: u64, limit: u64 },
    /// The disk is full. Receiving and completing go on, and make room.
    #[error("the disk of the server is full; receive messages or free space, and sending goes on by itself")]
    NoSpace,
    /// S-92.
    #[error(
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."
    )]
    LockLost(Sequence),
    /// S-92, S-146.
    #[error("The session lock has expired on the MessageSession. Accept a new MessageSession.")]
    SessionLockLost,
    /// S-143.
    #[error("The requested session '{0}' cannot be accepted. It may be locked by another receiver.")]
    SessionCannotBeLocked(Box<str>),
    /// No message of this number can be cancelled (S-42) or received by its number (S-122).
    #[error("The message with sequence number {} could not be found.", .0.0)]
    MessageNotFound(Number),
    /// The disk does not give back what was stored.
    #[error(
        "a stored message cannot be read; it is kept as it is, and the log of the server names file and offset"
    )]
    Unreadable,
    /// No transaction of this connection has that id: it was never declared, or is discharged.
    #[error("The transaction is not known on this connection; it may have been discharged already.")]
    UnknownTransaction,
    /// The transaction is rolled back, and nothing of it was done.
    #[error("The transaction was rolled back: {0}")]
    RolledBack(Box<str>),
    /// S-214.
    #[error("Cannot send more than {0} messages in a single transaction.")]
    TransactionFull(usize),
    #[error("the connection has {0} open transactions, which is its limit")]
    TooManyTransactions(usize),
    /// What a connection has sent in open transactions takes too much room.
    #[error("the open transactions of the connection hold {size} bytes; the limit is {limit}")]
    TransactionsTooLarge { size: u64, limit: u64 },
    /// The server cannot do this.
    #[error("{0} is not supported by this version")]
    NotSupported(&'static str),
}

/// What is wrong with a setting. Where the service has words of its own they stand alone (H-71, K-26).
fn of_setting(property: &str, why: &str) -> String {
    match why.starts_with("The ") {
        true => why.to_owned(),
        false => format!("the value of '{property}' is invalid: {why}"),
    }
}
