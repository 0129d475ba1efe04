//! Entities as XML: settings read from a request, descriptions written into an answer.
//!
//! Reading does not depend on the order of elements, ignores what it does not know and what only the server may say
//! (H-31, H-40); writing uses the order of the service and leaves out nothing that has a value (H-26).

pub mod access;
pub mod queue;
pub mod rule;
pub mod subscription;
pub mod topic;

use super::failure::Failure;
use super::xml::{COUNTS, Element, SERVICE_BUS, Writer};
use crate::iso;
use broker::{Span, Status};

/// The elements of a description that say something: ours, and neither absent nor empty (H-12, H-30). With the text of
/// each, without the white space around it.
fn properties(description: &Element) -> impl Iterator<Item = (&Element, &str)> {
    description
        .children
        .iter()
        .map(|property| (property, property.text.trim()))
        .filter(|(property, _)| *property.namespace == *SERVICE_BUS)
        .filter(|(property, value)| !(value.is_empty() && property.children.is_empty()))
}

fn invalid(name: &str, value: &str, kind: &str) -> Failure {
    let shown: String = value.chars().take(64).collect();
    Failure::Bad(format!("The value '{shown}' of the property '{name}' is not {kind}."))
}

fn duration(name: &str, value: &str) -> Result<Span, Failure> {
    iso::duration(value).ok_or_else(|| invalid(name, value, "a duration such as PT1M"))
}

fn number<N: std::str::FromStr>(name: &str, value: &str) -> Result<N, Failure> {
    value.parse().map_err(|_| invalid(name, value, "a number in its range"))
}

/// H-29: lower case is right, other cases occur.
fn truth(name: &str, value: &str) -> Result<bool, Failure> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(invalid(name, value, "true or false")),
    }
}

/// S-232: the other states are not for clients to set.
fn status(value: &str) -> Result<Status, Failure> {
    [Status::Active, Status::Disabled, Status::SendDisabled, Status::ReceiveDisabled]
        .into_iter()
        .find(|status| status_text(*status) == value)
        .ok_or_else(|| invalid("Status", value, "one of Active, Disabled, SendDisabled, ReceiveDisabled"))
}

fn status_text(status: Status) -> &'static str {
    match status {
        Status::Active => "Active",
        Status::Disabled => "Disabled",
        Status::SendDisabled => "SendDisabled",
        Status::ReceiveDisabled => "ReceiveDisabled",
    }
}

fn truth_text(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

fn optional(writer: &mut Writer, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        writer.leaf(name, value);
    }
}

/// The counts of an entity (S-233).
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    active: u64,
    dead_lettered: u64,
    scheduled: u64,
    transfer: u64,
    transfer_dead_lettered: u64,
}

impl From<broker::Counts> for Counts {
    fn from(counts: broker::Counts) -> Counts {
        let broker::Counts { active, scheduled, dead_letter, transfer_dead_letter, deferred: _ } = counts;
        let transfer_dead_lettered = transfer_dead_letter;
        Counts { active, scheduled, dead_lettered: dead_letter, transfer_dead_lettered, ..Counts::default() }
    }
}

impl Counts {
    fn sum(self) -> u64 {
        self.active + self.dead_lettered + self.scheduled + self.transfer + self.transfer_dead_lettered
    }

    /// H-24, H-42: exactly one attribute, the prefix of the children.
    fn write(self, writer: &mut Writer) {
        writer
            .start("CountDetails", &[("xmlns:d2p1", COUNTS)])
            .leaf("d2p1:ActiveMessageCount", &count(self.active))
            .leaf("d2p1:DeadLetterMessageCount", &count(self.dead_lettered))
            .leaf("d2p1:ScheduledMessageCount", &count(self.scheduled))
            .leaf("d2p1:TransferMessageCount", &count(self.transfer))
            .leaf("d2p1:TransferDeadLetterMessageCount", &count(self.transfer_dead_lettered))
            .end();
    }
}

/// H-24: some clients read counts into 32 bits, so more than that is written as the most they can hold.
fn count(messages: u64) -> String {
    messages.min(i32::MAX as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    // H-24
    #[test]
    fn a_count_beyond_32_bits_is_written_as_the_most_that_fits() {
        assert_eq!(count(1 << 40), "2147483647");
        assert_eq!(count(7), "7");
    }

    // S-232
    #[test]
    fn only_states_that_clients_may_set_are_read() {
        for known in [Status::Active, Status::Disabled, Status::SendDisabled, Status::ReceiveDisabled] {
            assert_eq!(status(status_text(known)).unwrap(), known);
        }
        for other in ["Creating", "Deleting", "Renaming", "Restoring", "Unknown", "active"] {
            assert!(status(other).is_err(), "{other}");
        }
    }
}
