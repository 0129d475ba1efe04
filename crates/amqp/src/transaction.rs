//! What a client writes to a coordinator (AMQP 1.0 part 4, 4.5): one `declare` or `discharge` in an amqp-value body.

use crate::fields::{Fields, descriptor, write_composite};
use message::codec::{write_binary, write_boolean, write_descriptor, write_null};
use message::{Malformed, Reader};

const AMQP_VALUE: u64 = 0x77;
const DECLARE: u64 = 0x31;
const DISCHARGE: u64 = 0x32;
const NAMES: [(&str, u64); 2] = [("amqp:declare:list", DECLARE), ("amqp:discharge:list", DISCHARGE)];
const SECTION_NAMES: [(&str, u64); 1] = [("amqp:amqp-value:*", AMQP_VALUE)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Begin a transaction. Global ids, for transactions over several brokers, are ignored.
    Declare,
    Discharge {
        txn_id: &'a [u8],
        fail: bool,
    },
}

impl<'a> Request<'a> {
    /// Finds the request in a whole message; sections in front of the body say nothing of interest.
    pub fn decode(message: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let mut reader = Reader::new(message);
        while descriptor(&mut reader.clone(), &SECTION_NAMES) != Ok(AMQP_VALUE) {
            reader.skip()?;
        }
        reader.descriptor()?;
        let kind = descriptor(&mut reader, &NAMES)?;
        let mut nodes = 0;
        let mut fields = Fields::open(&mut reader, &mut nodes)?;
        match kind {
            DECLARE => Ok(Request::Declare),
            DISCHARGE => {
                Ok(Request::Discharge { txn_id: fields.required(Reader::binary)?, fail: fields.flag()? })
            }
            _ => Err(Malformed::BadDescriptor),
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        write_descriptor(out, AMQP_VALUE);
        match self {
            Request::Declare => write_composite(out, DECLARE, 1, write_null),
            Request::Discharge { txn_id, fail } => write_composite(out, DISCHARGE, 2, |out| {
                write_binary(out, txn_id);
                write_boolean(out, *fail);
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_back_behind_other_sections() {
        for request in [Request::Declare, Request::Discharge { txn_id: b"t1", fail: true }] {
            let mut message = vec![0x00, 0x53, 0x73, 0x45];
            request.encode(&mut message);
            assert_eq!(Request::decode(&message), Ok(request));
        }
    }

    #[test]
    fn a_message_without_a_request_is_refused() {
        assert_eq!(Request::decode(&[0x00, 0x53, 0x77, 0x40]).ok(), None);
        assert_eq!(Request::decode(&[0x00, 0x53, 0x73, 0x45]), Err(Malformed::Truncated));
        assert_eq!(Request::decode(&[0x40]), Err(Malformed::Truncated));
    }
}
