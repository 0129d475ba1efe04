//! A SQL filter or action as it is evaluated: parsed once, when its rule is made ready.

use super::scalar::Scalar;
use message::system::SystemProperty;

/// Chains of AND and OR are flat; everything else nests no deeper than its text is long.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Constant(Scalar<'static>),
    Property(Property),
    /// `property(name)`, whose name is known only when it is evaluated.
    PropertyNamed(Box<Expression>),
    /// `@name`, of which nobody said the value.
    Unset(Box<str>),
    NewId,
    Negative(Box<Expression>),
    Arithmetic(Arithmetic, Box<[Expression; 2]>),
    Comparison(Comparison, Box<[Expression; 2]>),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    IsNull(Box<Expression>),
    Exists(Property),
    In(Box<Expression>, Vec<Expression>),
    Like(Box<Like>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Like {
    pub(super) value: Expression,
    pub(super) pattern: Expression,
    pub(super) escape: Option<Expression>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Plus,
    Minus,
    Times,
    Divided,
    Modulo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Different,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// A name with its scope (S-190).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Property {
    User(Box<str>),
    System(System),
}

/// A system property by its name, of any case (S-203).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum System {
    /// One that travels in the message.
    Carried(SystemProperty),
    TimeToLive,
    EnqueuedTime,
    ExpiresAt,
    SequenceNumber,
    Size,
    DeliveryCount,
    /// One that a message at a topic never has.
    Absent(Box<str>),
    /// No message has it: to ask for it is an error (S-195).
    Unknown(Box<str>),
}

/// Names of S-2 and S-3 that have no value at a topic.
const ABSENT: [&str; 4] = ["ForcePersistence", "LockedUntilUtc", "LockToken", "State"];

impl System {
    pub(super) fn named(name: &str) -> System {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match SystemProperty::from_name(name) {
            Some(property) => System::Carried(property),
            None if is("TimeToLive") => System::TimeToLive,
            None if is("EnqueuedTimeUtc") => System::EnqueuedTime,
            None if is("ExpiresAtUtc") => System::ExpiresAt,
            None if is("SequenceNumber") || is("EnqueuedSequenceNumber") => System::SequenceNumber,
            None if is("Size") => System::Size,
            None if is("DeliveryCount") => System::DeliveryCount,
            None if ABSENT.into_iter().any(is) => System::Absent(name.into()),
            None => System::Unknown(name.into()),
        }
    }
}

/// A part of an action.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Statement {
    Set(Property, Expression),
    Remove(Property),
}
