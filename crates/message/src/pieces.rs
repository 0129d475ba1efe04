//! A message that arrives in pieces and is never whole: its front is read from the first piece, the rest is checked as it
//! passes by.
//!
//! [`Sections::scan_front`] finds what comes before the body, which must be whole in the first piece; [`Rest`] accepts
//! from there on exactly what [`Sections::scan`] and [`crate::Facts::read`] accept of a whole message.

use crate::codec::{Malformed, Reader, code};
use crate::facts::{Facts, FactsError, Field};
use crate::limits::{MESSAGE_SECTIONS, PROPERTIES_BYTES, SECTION_HEAD_BYTES};
use crate::sections::{Sections, is_body, section, section_code};

/// What is known of a message behind its front, so far.
#[derive(Debug)]
pub struct Rest {
    /// Code of the section before.
    last: u8,
    sections: usize,
    /// Bytes of the current section that are still to come.
    left: u64,
    /// The beginning of a head that was cut by the end of a piece.
    head: Vec<u8>,
    /// The value of the footer: small, and looked into when whole.
    footer: Option<Vec<u8>>,
}

/// The beginning of a section: everything up to the bytes that need not be looked at.
struct Head {
    code: u8,
    bytes: usize,
    /// Where the value begins.
    value_at: usize,
    left: u64,
}

impl Rest {
    /// What follows the front that was found in the first piece.
    pub fn after(front: &Sections) -> Rest {
        Rest { last: front.last_code(), sections: 0, left: 0, head: Vec::new(), footer: None }
    }

    /// Takes the next bytes behind the front.
    pub fn take(&mut self, piece: &[u8]) -> Result<(), Malformed> {
        self.contents(piece, |_| {})
    }

    /// Takes the next bytes behind the front, and gives what the body is made of: the bytes of data, and values and
    /// sequences as they are encoded, without the descriptors of their sections.
    pub fn contents(&mut self, mut piece: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), Malformed> {
        while !piece.is_empty() {
            if self.left == 0 {
                let Some(used) = self.take_head(piece, &mut each)? else { return Ok(()) };
                piece = &piece[used..];
            }
            let (passed, after) =
                piece.split_at(piece.len().min(usize::try_from(self.left).unwrap_or(usize::MAX)));
            match &mut self.footer {
                Some(footer) => footer.extend_from_slice(passed),
                None => each(passed),
            }
            self.left -= passed.len() as u64;
            piece = after;
        }
        Ok(())
    }

    /// Says how many bytes of the piece belong to the head; `None` when the head is longer than the piece, which is
    /// then kept.
    fn take_head(&mut self, piece: &[u8], each: &mut impl FnMut(&[u8])) -> Result<Option<usize>, Malformed> {
        let before = self.head.len();
        self.head.extend_from_slice(&piece[..piece.len().min(SECTION_HEAD_BYTES - before)]);
        let found = match Head::read(&self.head) {
            Err(Malformed::Truncated) if self.head.len() < SECTION_HEAD_BYTES => return Ok(None),
            found => found?,
        };
        let repeats = found.code == self.last && matches!(self.last, section::DATA | section::SEQUENCE);
        let mixes = is_body(found.code) && is_body(self.last) && !repeats;
        if (found.code <= self.last && !repeats) || mixes || found.code < section::DATA {
            return Err(Malformed::SectionOutOfPlace(found.code.into()));
        }
        self.sections += 1;
        if self.sections > MESSAGE_SECTIONS {
            return Err(Malformed::TooManySections);
        }
        (self.last, self.left) = (found.code, found.left);
        if found.code == section::FOOTER {
            if found.left > PROPERTIES_BYTES.into() {
                return Err(Malformed::TooLarge(usize::try_from(found.left).unwrap_or(usize::MAX)));
            }
            self.footer = Some(self.head[found.value_at..found.bytes].to_vec());
        } else if found.code != section::DATA {
            each(&self.head[found.value_at..found.bytes]);
        }
        self.head.clear();
        Ok(Some(found.bytes - before))
    }

    /// The message has ended.
    pub fn end(self) -> Result<(), FactsError> {
        if self.left > 0 || !self.head.is_empty() {
            return Err(FactsError::Malformed { field: Field::Body, reason: Malformed::Truncated });
        }
        self.footer.map_or(Ok(()), |footer| Facts::check_footer(&footer))
    }
}

impl Head {
    fn read(bytes: &[u8]) -> Result<Head, Malformed> {
        let mut reader = Reader::new(bytes);
        let (code, _) = section_code(&mut reader)?;
        let value_at = reader.position();
        if code == section::VALUE {
            reader.skip_descriptors()?;
        }
        let constructor = reader.take_u8()?;
        let unexpected = |expected| Err(Malformed::Unexpected { expected, found: constructor });
        let left = match (code, constructor) {
            (section::DATA, code::BINARY_8 | code::BINARY_32) => reader.size(constructor)?,
            (section::DATA, _) => return unexpected("binary"),
            (section::SEQUENCE, code::LIST_0 | code::LIST_8 | code::LIST_32) => {
                let size = reader.size(constructor)?;
                reader.take_count(constructor, size)?
            }
            (section::SEQUENCE, _) => return unexpected("list"),
            (section::FOOTER, code::MAP_8 | code::MAP_32) => reader.size(constructor)?,
            (section::FOOTER, _) => return unexpected("map"),
            _ => reader.size(constructor)?,
        };
        Ok(Head { code, bytes: reader.position(), value_at, left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{write_binary, write_descriptor};
    use crate::value::Value;

    fn described(code: u64, value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        write_descriptor(&mut out, code);
        value.encode(&mut out);
        out
    }

    fn data(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write_descriptor(&mut out, section::DATA.into());
        write_binary(&mut out, bytes);
        out
    }

    fn symbolic_data(bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![code::DESCRIBED, code::SYMBOL_8, 16];
        out.extend_from_slice(b"amqp:data:binary");
        write_binary(&mut out, bytes);
        out
    }

    fn front() -> Vec<u8> {
        [
            described(0x70, &Value::List(vec![])),
            described(0x73, &Value::List(vec!["id".into()])),
            described(0x74, &Value::Map(vec![("a".into(), Value::Int(1))])),
        ]
        .concat()
    }

    /// The verdict on a message whose first piece has `first` bytes and whose others have `step`; `None` if the first
    /// piece does not hold the whole front.
    fn in_pieces(message: &[u8], first: usize, step: usize) -> Option<Result<(), FactsError>> {
        let body = |reason| FactsError::Malformed { field: Field::Body, reason };
        let (piece, others) = message.split_at(first);
        let front = match Sections::scan_front(piece) {
            Err(Malformed::Truncated) => return None,
            Err(other) => return Some(Err(body(other))),
            Ok(front) => front,
        };
        let mut rest = Rest::after(&front);
        let taken = rest.take(&piece[front.scanned as usize..]);
        let taken = taken.and_then(|()| others.chunks(step).try_for_each(|piece| rest.take(piece)));
        Some(taken.map_err(body).and_then(|()| rest.end()))
    }

    fn whole(message: &[u8]) -> bool {
        Sections::scan(message).is_ok_and(|sections| Facts::read(message, &sections).is_ok())
    }

    #[test]
    fn pieces_are_judged_as_the_whole_is_wherever_it_is_cut() {
        let footer = described(0x78, &Value::Map(vec![(Value::Symbol("f".into()), Value::Int(1))]));
        let bad_footer = described(0x78, &Value::Map(vec![(Value::Int(1), Value::Int(1))]));
        let list = Value::List(vec![Value::Int(70_000); 100]);
        let (sequence, value) = (described(0x76, &list), described(0x77, &list));
        let described_value = {
            let mut out = Vec::new();
            write_descriptor(&mut out, section::VALUE.into());
            write_descriptor(&mut out, 5);
            Value::from("text").encode(&mut out);
            out
        };
        let mut short_count = sequence.clone();
        short_count[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
        let rests: Vec<Vec<u8>> = vec![
            vec![],
            data(b"some bytes"),
            [data(b"one"), data(&[2; 300]), data(b"")].concat(),
            [symbolic_data(b"one"), footer.clone()].concat(),
            [sequence.clone(), sequence.clone()].concat(),
            [value.clone(), footer.clone()].concat(),
            described(0x76, &Value::List(vec![Value::Null; 3])),
            described_value,
            described(0x77, &Value::Null),
            footer.clone(),
            // Refused:
            [data(b"one"), bad_footer].concat(),
            [footer.clone(), data(b"late")].concat(),
            [data(b"one"), sequence].concat(),
            [value.clone(), value].concat(),
            [data(b"one"), described(0x70, &Value::List(vec![]))].concat(),
            described(0x75, &"text".into()),
            described(0x76, &Value::Map(vec![])),
            described(0x78, &Value::List(vec![])),
            described(0x79, &Value::Null),
            short_count,
            vec![code::DESCRIBED, 0x53, 0x77, 0x3f],
            data(&[1; 300])[..200].to_vec(),
            [&data(b"one")[..], &data(&[2; 300])[..6]].concat(),
            [&data(b"one")[..], &footer[..2]].concat(),
        ];
        let front = front();
        let (mut verdicts, mut judged) = ([0, 0], 0);
        for rest in rests {
            let message = [&front[..], &rest].concat();
            let expected = whole(&message);
            verdicts[usize::from(expected)] += 1;
            for first in front.len()..=message.len() {
                for step in [1, 7, 1_000] {
                    let Some(found) = in_pieces(&message, first, step) else { continue };
                    judged += 1;
                    assert_eq!(found.is_ok(), expected, "{first} {step} {found:?} {message:02x?}");
                }
            }
        }
        assert_eq!(verdicts, [14, 10]);
        assert!(judged > 10_000, "{judged}");
    }

    #[test]
    fn the_contents_of_a_body_are_the_same_wherever_it_is_cut() {
        let list = Value::List(vec![Value::Int(70_000); 3]);
        let encoded = |value: &Value| {
            let mut out = Vec::new();
            value.encode(&mut out);
            out
        };
        let footer = described(0x78, &Value::Map(vec![(Value::Symbol("f".into()), Value::Int(1))]));
        let cases = [
            ([data(b"one"), data(b""), data(&[2; 300])].concat(), [b"one", &[2; 300][..]].concat()),
            (described(0x77, &"text".into()), encoded(&"text".into())),
            (described(0x77, &Value::Null), encoded(&Value::Null)),
            ([described(0x76, &list), described(0x76, &list)].concat(), encoded(&list).repeat(2)),
        ];
        for (body, contents) in cases {
            let message = [&body[..], &footer].concat();
            for step in 1..message.len() {
                let (mut rest, mut given) = (Rest::after(&Sections::default()), Vec::new());
                for piece in message.chunks(step) {
                    rest.contents(piece, |bytes| given.extend_from_slice(bytes)).unwrap();
                }
                assert_eq!(given, contents, "{step}");
                rest.end().unwrap();
            }
        }
    }

    #[test]
    fn a_front_is_whole_when_the_body_has_begun() {
        let message = [front(), data(b"body")].concat();
        let body_at = front().len() + 3;
        for cut in 0..message.len() {
            let found = Sections::scan_front(&message[..cut]);
            assert_eq!(found.is_ok(), cut >= body_at, "cut at {cut}");
            assert!(found.is_err() || found.unwrap().scanned as usize == front().len());
        }
    }

    #[test]
    fn a_footer_is_taken_to_the_limit_of_all_properties_and_no_further() {
        let footer = |size: u32| {
            let mut out = Vec::new();
            write_descriptor(&mut out, section::FOOTER.into());
            out.push(code::MAP_32);
            out.extend_from_slice(&size.to_be_bytes());
            out
        };
        for (size, expected) in [
            (PROPERTIES_BYTES, Ok(())),
            (PROPERTIES_BYTES + 1, Err(Malformed::TooLarge(PROPERTIES_BYTES as usize + 1))),
        ] {
            assert_eq!(Rest::after(&Sections::default()).take(&footer(size)), expected);
        }
    }

    #[test]
    fn sections_and_heads_have_a_limit() {
        let mut rest = Rest::after(&Sections::default());
        for _ in 0..MESSAGE_SECTIONS {
            rest.take(&data(b"")).unwrap();
        }
        assert_eq!(rest.take(&data(b"")), Err(Malformed::TooManySections));
        let mut rest = Rest::after(&Sections::default());
        let long = [
            &[code::DESCRIBED, 0x53, section::VALUE, code::DESCRIBED, code::SYMBOL_32, 0, 0, 255, 255],
            &[b'x'; 600][..],
        ];
        assert_eq!(rest.take(&long.concat()), Err(Malformed::Truncated));
    }
}
