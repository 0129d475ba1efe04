//! Delivery states (AMQP 1.0 part 3, 3.4, and part 4, 4.5): what became of a delivery, as either side says it.
//!
//! The common ones (accepted, released) are read and written without allocation; those that carry maps own them.

use crate::fields::{Fields, descriptor, write_composite, write_optional};
use crate::performative::Error;
use message::codec::{write_binary, write_boolean, write_uint, write_ulong};
use message::{Malformed, Reader, Value};

const RECEIVED: u64 = 0x23;
const ACCEPTED: u64 = 0x24;
const REJECTED: u64 = 0x25;
const RELEASED: u64 = 0x26;
const MODIFIED: u64 = 0x27;
const DECLARED: u64 = 0x33;
const TRANSACTIONAL: u64 = 0x34;

const NAMES: [(&str, u64); 7] = [
    ("amqp:received:list", RECEIVED),
    ("amqp:accepted:list", ACCEPTED),
    ("amqp:rejected:list", REJECTED),
    ("amqp:released:list", RELEASED),
    ("amqp:modified:list", MODIFIED),
    ("amqp:declared:list", DECLARED),
    ("amqp:transactional-state:list", TRANSACTIONAL),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Received { section_number: u32, section_offset: u64 },
    Accepted,
    Rejected(Option<Box<Error>>),
    Released,
    Modified { delivery_failed: bool, undeliverable_here: bool, message_annotations: Value },
    Declared { txn_id: Vec<u8> },
    Transactional { txn_id: Vec<u8>, outcome: Option<Box<State>> },
}

impl State {
    pub fn rejected(error: Error) -> State {
        State::Rejected(Some(Box::new(error)))
    }

    /// Reads a state from the budget of its frame.
    pub(crate) fn read(reader: &mut Reader<'_>, nodes: &mut u32) -> Result<State, Malformed> {
        State::read_at(reader, nodes, true)
    }

    fn read_at(reader: &mut Reader<'_>, nodes: &mut u32, may_nest: bool) -> Result<State, Malformed> {
        let kind = descriptor(reader, &NAMES)?;
        let mut fields = Fields::open(reader, nodes)?;
        let state = match kind {
            RECEIVED => State::Received {
                section_number: fields.required(Reader::uint)?,
                section_offset: fields.required(Reader::ulong)?,
            },
            ACCEPTED => State::Accepted,
            REJECTED => State::Rejected(fields.composite(Error::read)?.map(Box::new)),
            RELEASED => State::Released,
            MODIFIED => State::Modified {
                delivery_failed: fields.flag()?,
                undeliverable_here: fields.flag()?,
                message_annotations: fields.value()?,
            },
            DECLARED => State::Declared { txn_id: fields.required(Reader::binary)?.into() },
            // The outcome inside is a plain one: a state cannot nest a second transaction.
            TRANSACTIONAL if may_nest => State::Transactional {
                txn_id: fields.required(Reader::binary)?.into(),
                outcome: fields
                    .composite(|reader, nodes| State::read_at(reader, nodes, false))?
                    .map(Box::new),
            },
            _ => return Err(Malformed::BadDescriptor),
        };
        fields.finish()?;
        Ok(state)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            State::Received { section_number, section_offset } => write_composite(out, RECEIVED, 2, |out| {
                write_uint(out, *section_number);
                write_ulong(out, *section_offset);
            }),
            State::Accepted => write_composite(out, ACCEPTED, 0, |_| {}),
            State::Rejected(error) => write_composite(out, REJECTED, 1, |out| {
                write_optional(out, error.as_deref(), |out, error| error.encode(out));
            }),
            State::Released => write_composite(out, RELEASED, 0, |_| {}),
            State::Modified { delivery_failed, undeliverable_here, message_annotations } => {
                write_composite(out, MODIFIED, 3, |out| {
                    write_boolean(out, *delivery_failed);
                    write_boolean(out, *undeliverable_here);
                    message_annotations.encode(out);
                });
            }
            State::Declared { txn_id } => {
                write_composite(out, DECLARED, 1, |out| write_binary(out, txn_id));
            }
            State::Transactional { txn_id, outcome } => write_composite(out, TRANSACTIONAL, 2, |out| {
                write_binary(out, txn_id);
                write_optional(out, outcome.as_deref(), |out, outcome| outcome.encode(out));
            }),
        }
    }

    /// Whether a client may repeat its disposition after this answer: Java does so for transient errors on the same
    /// delivery, which must therefore stay known.
    pub(crate) fn invites_repetition(&self) -> bool {
        match self {
            State::Rejected(Some(error)) => matches!(
                &*error.condition,
                "com.microsoft:server-busy" | "com.microsoft:timeout" | "amqp:internal-error"
            ),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(state: &State) -> Vec<u8> {
        let mut out = Vec::new();
        state.encode(&mut out);
        out
    }

    #[test]
    fn an_outcome_without_fields_is_not_the_empty_list_form() {
        //
        assert_eq!(encoded(&State::Accepted), [0x00, 0x53, 0x24, 0xc0, 0x01, 0x00]);
    }

    #[test]
    fn the_empty_list_form_is_read() {
        let bytes = [0x00, 0x53, 0x25, 0x45];
        assert_eq!(State::read(&mut Reader::new(&bytes), &mut 9), Ok(State::Rejected(None)));
    }

    #[test]
    fn symbolic_descriptors_are_read() {
        let mut bytes = vec![0x00, 0xa3, 18];
        bytes.extend_from_slice(b"amqp:released:list");
        bytes.push(0x45);
        assert_eq!(State::read(&mut Reader::new(&bytes), &mut 9), Ok(State::Released));
    }

    #[test]
    fn a_transaction_inside_a_transaction_is_refused() {
        // P6
        let inner = State::Transactional { txn_id: vec![1], outcome: None };
        let outer = State::Transactional { txn_id: vec![2], outcome: Some(Box::new(inner)) };
        let bytes = encoded(&outer);
        assert_eq!(State::read(&mut Reader::new(&bytes), &mut 99), Err(Malformed::BadDescriptor));
    }

    #[test]
    fn only_transient_rejections_invite_repetition() {
        let rejected = |condition: &'static str| State::rejected(Error::new(condition, "because"));
        for condition in ["com.microsoft:server-busy", "com.microsoft:timeout", "amqp:internal-error"] {
            assert!(rejected(condition).invites_repetition(), "{condition}");
        }
        for condition in ["com.microsoft:message-lock-lost", "amqp:not-found", "amqp:not-allowed"] {
            assert!(!rejected(condition).invites_repetition(), "{condition}");
        }
        assert!(!State::Rejected(None).invites_repetition());
        assert!(!State::Accepted.invites_repetition());
    }
}
