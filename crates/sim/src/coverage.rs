//! What the runs have reached: every variant by name, those never reached with a zero.
//!
//! The names come from matches without a catch-all, so a variant that is added must be named here.

use crate::faults::FAULTS;
use broker::{Record, Refusal};
use engine::Outgoing;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Record,
    Effect,
    Refusal,
    Fault,
}

const RECORDS: [&str; 12] = [
    "QueueCreated",
    "EntityDeleted",
    "PartStored",
    "Enqueued",
    "Scheduled",
    "Activated",
    "Removed",
    "Returned",
    "Deferred",
    "DeadLettered",
    "LocksKept",
    "Relocated",
];
const EFFECTS: [&str; 10] = [
    "Accepted",
    "Rejected",
    "Settled",
    "NotSettled",
    "PartTaken",
    "Deliver",
    "Drained",
    "Attached",
    "Detached",
    "Answered",
];
const REFUSALS: [&str; 18] = [
    "NotInTier",
    "TooManyReceivers",
    "TooMany",
    "MessageNotFound",
    "EntityNotFound",
    "EntityExists",
    "InvalidName",
    "InvalidSetting",
    "TooManyEntities",
    "EntityDisabled",
    "NotAllowed",
    "MessageTooLarge",
    "BatchTooLarge",
    "PropertiesTooLarge",
    "QueueFull",
    "NoSpace",
    "LockLost",
    "NotSupported",
];

#[derive(Debug, Clone, Default)]
pub struct Coverage {
    counts: BTreeMap<(Kind, &'static str), u64>,
}

impl Coverage {
    pub fn record(&mut self, record: &Record) {
        let name = match record {
            Record::QueueCreated { .. } => "QueueCreated",
            Record::EntityDeleted { .. } => "EntityDeleted",
            Record::PartStored { .. } => "PartStored",
            Record::Enqueued { .. } => "Enqueued",
            Record::Removed { .. } => "Removed",
            Record::Returned { .. } => "Returned",
            Record::Scheduled { .. } => "Scheduled",
            Record::Activated { .. } => "Activated",
            Record::Deferred { .. } => "Deferred",
            Record::DeadLettered { .. } => "DeadLettered",
            Record::LocksKept { .. } => "LocksKept",
            Record::Noted { .. } => "Noted",
            Record::Skipped { .. } => "Skipped",
            Record::Forwarded { .. } => "Forwarded",
            Record::Relocated { .. } => "Relocated",
            Record::Managed(_) => "Managed",
        };
        self.count(Kind::Record, name);
    }

    pub fn effect(&mut self, outgoing: &Outgoing) {
        let (name, refusal) = match outgoing {
            Outgoing::Accepted { .. } => ("Accepted", None),
            Outgoing::Rejected { refusal, .. } => ("Rejected", Some(refusal)),
            Outgoing::Settled { .. } => ("Settled", None),
            Outgoing::NotSettled { refusal, .. } => ("NotSettled", Some(refusal)),
            Outgoing::PartTaken { .. } => ("PartTaken", None),
            Outgoing::Deliver(_) => ("Deliver", None),
            Outgoing::Drained { .. } => ("Drained", None),
            Outgoing::Attached { .. } => ("Attached", None),
            Outgoing::Detached { refusal, .. } => ("Detached", Some(refusal)),
            Outgoing::Answered { answer, .. } => ("Answered", answer.as_ref().err()),
        };
        self.count(Kind::Effect, name);
        if let Some(refusal) = refusal {
            self.refusal(refusal);
        }
    }

    fn refusal(&mut self, refusal: &Refusal) {
        let name = match refusal {
            Refusal::EntityNotFound(_) => "EntityNotFound",
            Refusal::EntityExists(_) => "EntityExists",
            Refusal::InvalidName { .. } => "InvalidName",
            Refusal::InvalidSetting { .. } => "InvalidSetting",
            Refusal::Unchangeable { .. } => "Unchangeable",
            Refusal::ForwardTargetNotFound(_) => "ForwardTargetNotFound",
            Refusal::TooManyEntities(_) => "TooManyEntities",
            Refusal::TooManySubscriptions(_) => "TooManySubscriptions",
            Refusal::TooManySqlFilters(_) => "TooManySqlFilters",
            Refusal::TooManyCorrelationFilters(_) => "TooManyCorrelationFilters",
            Refusal::EntityDisabled(_) => "EntityDisabled",
            Refusal::NotAllowed(_) => "NotAllowed",
            Refusal::MessageTooLarge { .. } => "MessageTooLarge",
            Refusal::BatchTooLarge { .. } => "BatchTooLarge",
            Refusal::PropertiesTooLarge { .. } => "PropertiesTooLarge",
            Refusal::QueueFull { .. } => "QueueFull",
            Refusal::NoSpace => "NoSpace",
            Refusal::LockLost(_) => "LockLost",
            Refusal::NotInTier { .. } => "NotInTier",
            Refusal::TooManyReceivers { .. } => "TooManyReceivers",
            Refusal::TooMany { .. } => "TooMany",
            Refusal::MessageNotFound(_) => "MessageNotFound",
            Refusal::NotSupported(_) => "NotSupported",
        };
        self.count(Kind::Refusal, name);
    }

    pub fn fault(&mut self, name: &'static str) {
        self.count(Kind::Fault, name);
    }

    fn count(&mut self, kind: Kind, name: &'static str) {
        *self.counts.entry((kind, name)).or_default() += 1;
    }

    pub fn of(&self, kind: Kind, name: &str) -> u64 {
        self.counts.iter().find(|((k, n), _)| (*k, *n) == (kind, name)).map_or(0, |(_, count)| *count)
    }

    pub fn add(&mut self, other: &Coverage) {
        for (what, count) in &other.counts {
            *self.counts.entry(*what).or_default() += count;
        }
    }

    /// Every variant with its count.
    pub fn rows(&self) -> impl Iterator<Item = (Kind, &'static str, u64)> + '_ {
        let all: [(Kind, &'static [&'static str]); 4] = [
            (Kind::Record, &RECORDS),
            (Kind::Effect, &EFFECTS),
            (Kind::Refusal, &REFUSALS),
            (Kind::Fault, &FAULTS),
        ];
        all.into_iter()
            .flat_map(move |(kind, names)| names.iter().map(move |name| (kind, *name, self.of(kind, name))))
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, name, count) in self.rows() {
            writeln!(f, "{:<8} {name:<20} {count:>9}", format!("{kind:?}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_reached_is_shown_with_a_zero() {
        let mut coverage = Coverage::default();
        coverage.fault("kill");
        let rows: Vec<_> = coverage.rows().collect();
        assert_eq!(rows.len(), RECORDS.len() + EFFECTS.len() + REFUSALS.len() + FAULTS.len());
        assert!(rows.contains(&(Kind::Fault, "kill", 1)) && rows.contains(&(Kind::Record, "Removed", 0)));
    }
}
