//! What the runs have reached: every variant by name, those never reached with a zero.
//!
//! The names come from matches without a catch-all, so a variant that is added must be named here.

use crate::faults::FAULTS;
use broker::ids::IdMap;
use broker::{Answer, Notice, Record, Refusal};
use engine::Outgoing;
use std::fmt;
use std::hash::{Hash, Hasher};

/// How often everything must be reached in a long search to count as tested.
pub const LEAST: u64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Record,
    Effect,
    Answer,
    Refusal,
    Fault,
    /// What a run did that no single record or effect shows.
    Variant,
}

/// What the workload never asks for, and why. A variant that is reached all the same is counted as `unexpected`.
const LEFT_OUT: [(Kind, &str, &str); 4] = [
    (Kind::Answer, "Access", OF_ACCESS),
    (Kind::Answer, "Namespaces", OF_ACCESS),
    (Kind::Refusal, "NotSupported", OF_DOORS),
    (Kind::Refusal, "TransactionsTooLarge", OF_SIZE),
];
const OF_ACCESS: &str = "access rules and lists of namespaces touch no message";
const OF_SIZE: &str = "a run has not so many bytes; a test of the broker has";
const OF_DOORS: &str = "only doors say so";
const UNEXPECTED: &str = "unexpected";

const RECORDS: [&str; 21] = [
    "QueueCreated",
    "Managed",
    "EntityDeleted",
    "PartStored",
    "Enqueued",
    "Scheduled",
    "Activated",
    "Removed",
    "Returned",
    "Deferred",
    "DeadLettered",
    "TransferDeadLettered",
    "Published",
    "Noted",
    "Skipped",
    "Forwarded",
    "LocksKept",
    "InSession",
    "SessionStateSet",
    "OverlayStored",
    "Relocated",
];
const EFFECTS: [&str; 12] = [
    "Accepted",
    "Rejected",
    "Settled",
    "NotSettled",
    "PartTaken",
    "Declared",
    "Staged",
    "Deliver",
    "Drained",
    "Attached",
    "Detached",
    "Answered",
];
const ANSWERS: [&str; 22] = [
    "Queue",
    "Queues",
    "Topic",
    "Topics",
    "Subscription",
    "Subscriptions",
    "Rule",
    "Rules",
    "Deleted",
    "Settled",
    "Renewed",
    "Scheduled",
    "Cancelled",
    "Messages",
    "MessagesDeleted",
    "SessionRenewed",
    "SessionState",
    "SessionStateSet",
    "Sessions",
    "Namespace",
    "Time",
    "Advanced",
];
const REFUSALS: [&str; 29] = [
    "EntityNotFound",
    "EntityExists",
    "InvalidName",
    "InvalidSetting",
    "Unchangeable",
    "ForwardTargetNotFound",
    "TooManySubscriptions",
    "TooManySqlFilters",
    "TooManyCorrelationFilters",
    "NotInTier",
    "TooManyEntities",
    "TooManyReceivers",
    "TooMany",
    "EntityDisabled",
    "NotAllowed",
    "MessageTooLarge",
    "BatchTooLarge",
    "PropertiesTooLarge",
    "QueueFull",
    "NoSpace",
    "LockLost",
    "SessionLockLost",
    "SessionCannotBeLocked",
    "MessageNotFound",
    "Unreadable",
    "UnknownTransaction",
    "RolledBack",
    "TransactionFull",
    "TooManyTransactions",
];
const VARIANTS: [&str; 24] = [
    "sent in a transaction",
    "send by way of another in a transaction",
    "scheduled in a transaction",
    "completed in a transaction",
    "abandoned in a transaction",
    "released in a transaction",
    "deferred in a transaction",
    "dead-lettered in a transaction",
    "settled by a request in a transaction",
    "transaction committed",
    "transaction rolled back",
    "commit refused",
    "transaction took too long",
    "transaction lost with its coordinator",
    "transaction lost in a crash",
    "copy in a session",
    "copy without its session",
    "duplicate dropped at a topic",
    "scheduled message delivered",
    "stored changes read",
    "stored changes changed again",
    "stored changes forwarded",
    "stored changes of a copy",
    "stored changes in a transaction",
];

#[derive(Debug, Clone, Default)]
pub struct Coverage {
    counts: IdMap<(Kind, Name), u64>,
}

/// A name, known by where it stands in the program: it is counted at every record and effect, and reading it each time
/// would take long. The same name may stand in several places, so a reader of the counts adds them up.
#[derive(Debug, Clone, Copy)]
struct Name(&'static str);

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self.0, state);
    }
}

impl Coverage {
    pub fn record(&mut self, record: &Record) {
        let name = match record {
            Record::QueueCreated { .. } => "QueueCreated",
            Record::Managed(_) => "Managed",
            Record::EntityDeleted { .. } => "EntityDeleted",
            Record::PartStored { .. } => "PartStored",
            Record::Enqueued { .. } => "Enqueued",
            Record::Scheduled { .. } => "Scheduled",
            Record::Activated { .. } => "Activated",
            Record::Removed { .. } => "Removed",
            Record::Returned { .. } => "Returned",
            Record::Deferred { .. } => "Deferred",
            Record::DeadLettered { .. } => "DeadLettered",
            Record::LocksKept { .. } => "LocksKept",
            Record::InSession { .. } => "InSession",
            Record::SessionStateSet { .. } => "SessionStateSet",
            Record::OverlayStored { .. } => "OverlayStored",
            Record::Noted { .. } => "Noted",
            Record::Skipped { .. } => "Skipped",
            Record::Forwarded { .. } => "Forwarded",
            Record::Published(_) => "Published",
            Record::TransferDeadLettered { .. } => "TransferDeadLettered",
            Record::Relocated { .. } => "Relocated",
        };
        self.count(Kind::Record, name);
    }

    pub fn effect(&mut self, outgoing: &Outgoing) {
        let (name, refusal) = match outgoing {
            Outgoing::Accepted { .. } => ("Accepted", None),
            Outgoing::Notice(Notice::Rejected { refusal, .. }) => ("Rejected", Some(refusal)),
            Outgoing::Settled { .. } => ("Settled", None),
            Outgoing::Notice(Notice::NotSettled { refusal, .. }) => ("NotSettled", Some(refusal)),
            Outgoing::Notice(Notice::PartTaken { .. }) => ("PartTaken", None),
            Outgoing::Notice(Notice::Declared { .. }) => ("Declared", None),
            Outgoing::Notice(Notice::Staged { .. }) => ("Staged", None),
            Outgoing::Deliver(_) => ("Deliver", None),
            Outgoing::Notice(Notice::Drained { .. }) => ("Drained", None),
            Outgoing::Notice(Notice::Attached { .. }) => ("Attached", None),
            Outgoing::Notice(Notice::Detached { refusal, .. }) => ("Detached", Some(refusal)),
            Outgoing::Answered { answer, .. } => {
                if let Ok(answer) = answer {
                    self.answer(answer);
                }
                ("Answered", answer.as_ref().err())
            }
        };
        self.count(Kind::Effect, name);
        if let Some(refusal) = refusal {
            self.refusal(refusal);
        }
    }

    fn answer(&mut self, answer: &Answer) {
        let name = match answer {
            Answer::Queue(_) => "Queue",
            Answer::Queues(_) => "Queues",
            Answer::Topic(_) => "Topic",
            Answer::Topics(_) => "Topics",
            Answer::Subscription(_) => "Subscription",
            Answer::Subscriptions(_) => "Subscriptions",
            Answer::Rule(_) => "Rule",
            Answer::Rules(_) => "Rules",
            Answer::Access(_) | Answer::Namespaces(_) => UNEXPECTED,
            Answer::Namespace { .. } => "Namespace",
            Answer::Time(_) => "Time",
            Answer::Advanced(_) => "Advanced",
            Answer::Deleted => "Deleted",
            Answer::Settled => "Settled",
            Answer::Renewed(_) => "Renewed",
            Answer::Scheduled(_) => "Scheduled",
            Answer::Cancelled => "Cancelled",
            Answer::Messages(_) => "Messages",
            Answer::MessagesDeleted(_) => "MessagesDeleted",
            Answer::SessionRenewed(_) => "SessionRenewed",
            Answer::SessionState(_) => "SessionState",
            Answer::SessionStateSet => "SessionStateSet",
            Answer::Sessions(_) => "Sessions",
        };
        self.count(Kind::Answer, name);
    }

    fn refusal(&mut self, refusal: &Refusal) {
        let name = match refusal {
            Refusal::EntityNotFound(_) => "EntityNotFound",
            Refusal::EntityExists(_) => "EntityExists",
            Refusal::InvalidName { .. } => "InvalidName",
            Refusal::InvalidSetting { .. } => "InvalidSetting",
            Refusal::Unchangeable { .. } => "Unchangeable",
            Refusal::ForwardTargetNotFound(_) => "ForwardTargetNotFound",
            Refusal::TooManySubscriptions(_) => "TooManySubscriptions",
            Refusal::TooManySqlFilters(_) => "TooManySqlFilters",
            Refusal::TooManyCorrelationFilters(_) => "TooManyCorrelationFilters",
            Refusal::NotInTier { .. } => "NotInTier",
            Refusal::TooManyEntities(_) => "TooManyEntities",
            Refusal::TooManyReceivers { .. } => "TooManyReceivers",
            Refusal::TooMany { .. } => "TooMany",
            Refusal::EntityDisabled(_) => "EntityDisabled",
            Refusal::NotAllowed(_) => "NotAllowed",
            Refusal::MessageTooLarge { .. } => "MessageTooLarge",
            Refusal::BatchTooLarge { .. } => "BatchTooLarge",
            Refusal::PropertiesTooLarge { .. } => "PropertiesTooLarge",
            Refusal::QueueFull { .. } => "QueueFull",
            Refusal::NoSpace => "NoSpace",
            Refusal::LockLost(_) => "LockLost",
            Refusal::SessionLockLost => "SessionLockLost",
            Refusal::SessionCannotBeLocked(_) => "SessionCannotBeLocked",
            Refusal::MessageNotFound(_) => "MessageNotFound",
            Refusal::Unreadable => "Unreadable",
            Refusal::UnknownTransaction => "UnknownTransaction",
            Refusal::RolledBack(_) => "RolledBack",
            Refusal::TransactionFull(_) => "TransactionFull",
            Refusal::TooManyTransactions(_) => "TooManyTransactions",
            Refusal::NotSupported(_)
            | Refusal::TransactionsTooLarge { .. }
            | Refusal::PropertyTooLarge { .. } => UNEXPECTED,
        };
        self.count(Kind::Refusal, name);
    }

    pub fn fault(&mut self, name: &'static str) {
        self.count(Kind::Fault, name);
    }

    pub fn variant(&mut self, name: &'static str) {
        self.count(Kind::Variant, name);
    }

    fn count(&mut self, kind: Kind, name: &'static str) {
        *self.counts.entry((kind, Name(name))).or_default() += 1;
    }

    pub fn of(&self, kind: Kind, name: &str) -> u64 {
        let is_it = |((of, called), _): &(&(Kind, Name), &u64)| (*of, called.0) == (kind, name);
        self.counts.iter().filter(is_it).map(|(_, count)| *count).sum()
    }

    pub fn add(&mut self, other: &Coverage) {
        for (what, count) in &other.counts {
            *self.counts.entry(*what).or_default() += count;
        }
    }

    /// What was reached less often than that, or though it is left out.
    pub fn rare(&self, least: u64) -> Vec<(Kind, &'static str, u64)> {
        let unexpected = self.counts.iter().filter(|((_, name), _)| name.0 == UNEXPECTED);
        let unexpected = unexpected.map(|((kind, name), count)| (*kind, name.0, *count));
        self.rows().filter(|(_, _, count)| *count < least).chain(unexpected).collect()
    }

    /// Every variant with its count.
    pub fn rows(&self) -> impl Iterator<Item = (Kind, &'static str, u64)> + '_ {
        let all: [(Kind, &'static [&'static str]); 6] = [
            (Kind::Record, &RECORDS),
            (Kind::Effect, &EFFECTS),
            (Kind::Answer, &ANSWERS),
            (Kind::Refusal, &REFUSALS),
            (Kind::Fault, &FAULTS),
            (Kind::Variant, &VARIANTS),
        ];
        all.into_iter()
            .flat_map(move |(kind, names)| names.iter().map(move |name| (kind, *name, self.of(kind, name))))
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, name, count) in self.rows() {
            writeln!(f, "{:<8} {name:<40} {count:>9}", format!("{kind:?}"))?;
        }
        for (kind, name, why) in LEFT_OUT {
            writeln!(f, "{:<8} {name:<40} left out: {why}", format!("{kind:?}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reached_though_it_is_left_out_is_told() {
        let mut coverage = Coverage::default();
        coverage.answer(&Answer::Namespaces(Vec::new()));
        assert!(coverage.rare(LEAST).contains(&(Kind::Answer, UNEXPECTED, 1)));
    }

    #[test]
    fn what_was_never_reached_is_shown_with_a_zero() {
        let mut coverage = Coverage::default();
        coverage.fault("kill");
        let rows: Vec<_> = coverage.rows().collect();
        let names =
            [RECORDS.len(), EFFECTS.len(), ANSWERS.len(), REFUSALS.len(), FAULTS.len(), VARIANTS.len()];
        assert_eq!(rows.len(), names.into_iter().sum::<usize>());
        assert!(rows.contains(&(Kind::Fault, "kill", 1)) && rows.contains(&(Kind::Record, "Removed", 0)));
    }
}
