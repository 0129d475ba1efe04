//! A message that a client wrote in its own way, brought into the form in which it is stored.
//!
//! Sections come in any order: the Python client puts delivery annotations behind everything else (K-1). Session ids, partition keys
//! and the like come as binary or symbol where a caller gave bytes (K-3). What is stored has each section in its place and text as
//! strings, so that every later reader finds what it expects. Nothing else changes, the length neither: sections are moved,
//! and constructors of text are replaced by those of strings, which are as long.

use crate::codec::{Malformed, code};
use crate::entries::entries;
use crate::facts::annotation;
use crate::fields::{Properties, property};
use crate::sections::{Section, is_body, section, sections};
use std::borrow::Cow;

/// Fields that are strings. Content type and encoding are symbols, which every reader takes as they are.
const STRING_FIELDS: [usize; 5] =
    [property::TO, property::SUBJECT, property::REPLY_TO, property::GROUP_ID, property::REPLY_TO_GROUP_ID];
const SYMBOL_FIELDS: [usize; 2] = [property::CONTENT_TYPE, property::CONTENT_ENCODING];

/// The message, or the whole sections in front of a body, in the form in which it is stored.
pub fn normalised(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut bytes = in_order(bytes)?.into_owned();
    for at in constructors_of_text(&bytes)? {
        bytes[at] = match bytes[at] {
            code::BINARY_8 | code::SYMBOL_8 => code::STRING_8,
            _ => code::STRING_32,
        };
    }
    Ok(bytes)
}

/// How many bytes in front of the body of a message are whole sections.
pub fn front_bytes(bytes: &[u8]) -> usize {
    let fronts = sections(bytes).map_while(Result::ok).take_while(|section| section.code < section::DATA);
    fronts.last().map_or(0, |section| section.span.end as usize)
}

/// Where text begins that is not written as a string, though it is one.
fn constructors_of_text(bytes: &[u8]) -> Result<Vec<usize>, Malformed> {
    let mut found = Vec::new();
    let mut note = |encoded: &[u8], may_be_symbol: bool| {
        let is_other = match encoded.first() {
            Some(&(code::BINARY_8 | code::BINARY_32)) => is_text(encoded),
            Some(&(code::SYMBOL_8 | code::SYMBOL_32)) => !may_be_symbol,
            _ => false,
        };
        if is_other {
            found.push(encoded.as_ptr() as usize - bytes.as_ptr() as usize);
        }
    };
    for section in sections(bytes) {
        let section = section?;
        let value = section.span.value(bytes).unwrap_or_default();
        match section.code {
            section::PROPERTIES => {
                let fields = Properties::split(Some(value))?;
                STRING_FIELDS.iter().for_each(|index| note(fields.raw(*index), false));
                SYMBOL_FIELDS.iter().for_each(|index| note(fields.raw(*index), true));
            }
            section::MESSAGE_ANNOTATIONS => {
                for entry in entries(value)? {
                    let entry = entry?;
                    if matches!(entry.name, Some(annotation::PARTITION_KEY | annotation::VIA_PARTITION_KEY)) {
                        note(entry.value, false);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Whether binary holds text.
fn is_text(encoded: &[u8]) -> bool {
    crate::codec::Reader::new(encoded).binary().is_ok_and(|bytes| std::str::from_utf8(bytes).is_ok())
}

/// The message with its sections in the standard's order: as it came, if they are. A section that comes twice, unless it
/// is one of several data or sequence sections, and a body of two kinds are refused.
pub fn in_order(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Malformed> {
    let mut found: Vec<Section> = Vec::new();
    for section in sections(bytes) {
        found.push(section?);
    }
    let is_in_order = found.is_sorted_by_key(|section| section.code);
    // Stable: the sections of a body stay as they followed each other.
    found.sort_by_key(|section| section.code);
    for (before, after) in found.iter().zip(&found[1.min(found.len())..]) {
        let is_again = before.code == after.code && !repeats(after.code);
        let is_mixed = before.code != after.code && is_body(before.code) && is_body(after.code);
        if is_again || is_mixed {
            return Err(Malformed::SectionOutOfPlace(after.code.into()));
        }
    }
    if is_in_order {
        return Ok(Cow::Borrowed(bytes));
    }
    Ok(Cow::Owned(found.iter().flat_map(|section| section.span.bytes(bytes)).copied().collect()))
}

/// Whether a body may have several of these.
fn repeats(code: u8) -> bool {
    matches!(code, section::DATA | section::SEQUENCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{write_binary, write_descriptor};
    use crate::facts::Facts;
    use crate::sections::Sections;
    use crate::value::Value;

    /// A section that can be told from others of its code.
    fn one(code: u8, mark: u8) -> Vec<u8> {
        let mut out = Vec::new();
        write_descriptor(&mut out, code.into());
        match code {
            section::HEADER | section::PROPERTIES | section::SEQUENCE => out.push(code::LIST_0),
            section::DATA => write_binary(&mut out, &[mark]),
            section::VALUE => out.push(code::NULL),
            _ => out.extend_from_slice(&[code::MAP_8, 1, 0]),
        }
        out
    }

    fn message(codes: &[u8]) -> Vec<u8> {
        codes.iter().enumerate().flat_map(|(index, code)| one(*code, index as u8)).collect()
    }

    // K-1
    #[test]
    fn sections_in_any_order_are_put_into_the_standards() {
        let bytes = message(&[0x72, 0x74, 0x75, 0x75, 0x78, 0x73, 0x71, 0x70]);
        let ordered = in_order(&bytes).unwrap();
        let found = Sections::scan(&ordered).unwrap();
        let codes: Vec<u8> = sections(&ordered).map(|section| section.unwrap().code).collect();
        assert_eq!(codes, [0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x75, 0x78]);
        assert_eq!(found.body.bytes(&ordered), [one(0x75, 2), one(0x75, 3)].concat(), "data keeps its order");
        assert_eq!(ordered.len(), bytes.len());
    }

    #[test]
    fn what_is_in_order_is_not_touched() {
        let bytes = message(&[0x70, 0x71, 0x72, 0x73, 0x74, 0x76, 0x76, 0x78]);
        assert!(matches!(in_order(&bytes), Ok(Cow::Borrowed(same)) if same == bytes));
        assert!(matches!(in_order(&[]), Ok(Cow::Borrowed(&[]))));
    }

    // K-1
    #[test]
    fn a_section_that_comes_twice_a_mixed_body_and_an_unknown_one_are_refused() {
        for code in section::HEADER..=section::FOOTER {
            let is_refused = in_order(&message(&[code, 0x75, code])).is_err();
            assert_eq!(is_refused, code != section::DATA, "0x{code:02x}");
        }
        assert!(in_order(&message(&[0x76, 0x72, 0x76])).is_ok());
        assert_eq!(in_order(&message(&[0x77, 0x75])), Err(Malformed::SectionOutOfPlace(0x77)));
        assert_eq!(in_order(&message(&[0x75, 0x76])), Err(Malformed::SectionOutOfPlace(0x76)));
        let unknown = [message(&[0x75]), vec![code::DESCRIBED, 0x53, 0x79, code::NULL]].concat();
        assert_eq!(in_order(&unknown), Err(Malformed::SectionOutOfPlace(0x79)));
    }

    // K-3
    #[test]
    fn text_that_comes_as_binary_or_symbol_is_a_string_afterwards() {
        let written = |text: &str, kind: u8| match kind {
            0 => Value::Binary(text.as_bytes().to_vec()),
            1 => Value::Symbol(text.into()),
            _ => Value::from(text),
        };
        let message_of = |kind: u8| {
            let mut fields = vec![Value::Null; property::COUNT];
            fields[property::GROUP_ID] = written("session", kind);
            fields[property::REPLY_TO_GROUP_ID] = written(&"r".repeat(100), kind);
            fields[property::TO] = written("to", kind);
            fields[property::CONTENT_TYPE] = written("text/plain", kind);
            let annotations = Value::Map(vec![
                (Value::Symbol(annotation::PARTITION_KEY.into()), written("key", kind)),
                (Value::Symbol("other".into()), Value::Binary(b"stays".to_vec())),
            ]);
            let mut out = Vec::new();
            write_descriptor(&mut out, section::MESSAGE_ANNOTATIONS.into());
            annotations.encode(&mut out);
            write_descriptor(&mut out, section::PROPERTIES.into());
            Value::List(fields).encode(&mut out);
            out
        };
        let strings = message_of(2);
        for kind in [0, 1] {
            let bytes = message_of(kind);
            assert!(Facts::read(&bytes, &Sections::scan(&bytes).unwrap()).is_err());
            let stored = normalised(&bytes).unwrap();
            let facts = Facts::read(&stored, &Sections::scan(&stored).unwrap()).unwrap();
            assert_eq!((facts.session_id, facts.partition_key), (Some("session"), Some("key")));
            assert_eq!(stored.len(), bytes.len());
            // A content type may stay a symbol.
            assert_eq!(stored == strings, kind == 0);
        }
        let mut fields = vec![Value::Null; property::COUNT];
        fields[property::GROUP_ID] = Value::Binary(vec![0xff]);
        let mut bytes = Vec::new();
        write_descriptor(&mut bytes, section::PROPERTIES.into());
        Value::List(fields).encode(&mut bytes);
        assert_eq!(normalised(&bytes).unwrap(), bytes, "what is no text stays, and is refused");
    }

    // K-3
    #[test]
    fn each_text_that_is_looked_at_becomes_a_string_by_itself() {
        let property = |index: usize, value: Value| {
            let mut fields = vec![Value::Null; property::COUNT];
            fields[index] = value;
            (section::PROPERTIES, Value::List(fields))
        };
        let annotation = |name: &str, value: Value| {
            (section::MESSAGE_ANNOTATIONS, Value::Map(vec![(Value::Symbol(name.into()), value)]))
        };
        let encoded = |(code, value): (u8, Value)| {
            let mut out = Vec::new();
            write_descriptor(&mut out, code.into());
            value.encode(&mut out);
            out
        };
        for other in [Value::Binary(b"text".to_vec()), Value::Symbol("text".into())] {
            for index in STRING_FIELDS {
                let stored = normalised(&encoded(property(index, other.clone()))).unwrap();
                assert_eq!(stored, encoded(property(index, "text".into())), "field {index}");
            }
            for name in [annotation::PARTITION_KEY, annotation::VIA_PARTITION_KEY] {
                let stored = normalised(&encoded(annotation(name, other.clone()))).unwrap();
                assert_eq!(stored, encoded(annotation(name, "text".into())), "{name}");
            }
        }
        for index in SYMBOL_FIELDS {
            let stored = normalised(&encoded(property(index, Value::Binary(b"text".to_vec())))).unwrap();
            assert_eq!(stored, encoded(property(index, "text".into())), "field {index}");
        }
    }

    #[test]
    fn the_front_of_a_message_ends_where_its_body_begins() {
        let bytes = message(&[0x72, 0x71, 0x75, 0x78]);
        assert_eq!(front_bytes(&bytes), message(&[0x72, 0x71]).len());
        assert_eq!(front_bytes(&bytes[..bytes.len() - 6]), message(&[0x72, 0x71]).len());
        assert_eq!(front_bytes(&message(&[0x75])), 0);
    }
}
