//! The messages of a batch envelope: a message whose body is data sections, each holding one complete encoded
//! message. The envelope's other sections are hints for routers and are dropped.

use crate::codec::{Malformed, Reader};
use crate::sections::{Iter, section, sections};

/// The message-format of a transfer that carries a batch.
pub const BATCH_FORMAT: u32 = 0x8001_3700;

/// The encoded messages in `envelope`, in order. A body of another kind is an error; the iterator ends after one.
///
/// Scan the envelope first if its section order matters; here sections are only told apart. The messages are not
/// looked into.
pub fn messages(envelope: &[u8]) -> Messages<'_> {
    Messages { envelope, sections: sections(envelope), has_failed: false }
}

/// See [`messages`].
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    envelope: &'a [u8],
    sections: Iter<'a>,
    has_failed: bool,
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<&'a [u8], Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.has_failed {
            let found = match self.sections.next()? {
                Ok(found) => found,
                Err(malformed) => return self.fail(malformed),
            };
            match found.code {
                section::DATA => {
                    let value = found.span.value(self.envelope).unwrap_or_default();
                    return Some(Reader::new(value).binary());
                }
                section::SEQUENCE | section::VALUE => {
                    return self.fail(Malformed::SectionOutOfPlace(found.code.into()));
                }
                _ => {}
            }
        }
        None
    }
}

impl<'a> Messages<'a> {
    fn fail(&mut self, malformed: Malformed) -> Option<Result<&'a [u8], Malformed>> {
        self.has_failed = true;
        Some(Err(malformed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{write_binary, write_descriptor};
    use crate::value::Value;

    fn envelope(messages: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        write_descriptor(&mut out, 0x73);
        Value::List(vec!["hint".into()]).encode(&mut out);
        for message in messages {
            write_descriptor(&mut out, 0x75);
            write_binary(&mut out, message);
        }
        out
    }

    #[test]
    fn a_batch_yields_its_messages_in_order() {
        let long = [7; 300];
        let bytes = envelope(&[b"one", b"", &long]);
        let found: Result<Vec<_>, _> = messages(&bytes).collect();
        assert_eq!(found, Ok(vec![&b"one"[..], b"", &long]));
    }

    #[test]
    fn a_batch_with_a_value_for_a_body_is_refused_once() {
        let mut bytes = envelope(&[]);
        write_descriptor(&mut bytes, 0x77);
        Value::Null.encode(&mut bytes);
        let found: Vec<_> = messages(&bytes).collect();
        assert_eq!(found, [Err(Malformed::SectionOutOfPlace(0x77))]);
    }

    #[test]
    fn a_batch_cut_short_yields_an_error_and_ends() {
        let mut bytes = envelope(&[b"one", b"two"]);
        bytes.pop();
        let found: Vec<_> = messages(&bytes).collect();
        assert_eq!(found, [Ok(&b"one"[..]), Err(Malformed::Truncated)]);
    }
}
