//! How a sent message becomes the stored one: byte for byte, except that every stored message has a message-id.
//!
//! The JavaScript client refuses to settle a message without an id and does not set one by default, so a missing
//! one is assigned here. Nothing else of what a sender wrote is touched (S-3).

use crate::codec::{Reader, begin_list, code, end_compound, write_descriptor, write_string};
use crate::sections::{Sections, section};

/// Appends `bytes`, the message that `sections` describes, to `out` as it will be stored.
///
/// `fresh_message_id` gives 32 ASCII hex digits and is called only when the sender set no message-id.
pub fn append_stored(
    out: &mut Vec<u8>,
    bytes: &[u8],
    sections: &Sections,
    fresh_message_id: impl FnOnce() -> [u8; 32],
) {
    if has_message_id(bytes, sections) {
        out.extend_from_slice(bytes);
    } else {
        append_with_id(out, bytes, sections, &fresh_message_id());
    }
}

fn has_message_id(bytes: &[u8], sections: &Sections) -> bool {
    let Some(properties) = sections.properties.value(bytes) else { return false };
    let Ok(list) = Reader::new(properties).list() else { return false };
    list.count > 0 && list.body.first() != Some(&code::NULL)
}

fn append_with_id(out: &mut Vec<u8>, bytes: &[u8], sections: &Sections, id: &[u8; 32]) {
    let id = std::str::from_utf8(id).expect("a fresh message-id is made of hex digits");
    // Without a properties section the new one goes where the bare message begins: before everything that must
    // follow it, behind everything that must precede it.
    let at =
        if sections.properties.is_present() { sections.properties.start } else { sections.bare } as usize;
    let after =
        if sections.properties.is_present() { sections.properties.end } else { sections.bare } as usize;
    let list = sections.properties.value(bytes).and_then(|value| Reader::new(value).list().ok());
    // The first field, if there is one, is null: one byte.
    let (count, others) = list.map_or((0, &[][..]), |list| (list.count, list.body.get(1..).unwrap_or(&[])));

    out.reserve(bytes.len() + NEW_PROPERTIES_BYTES);
    out.extend_from_slice(&bytes[..at]);
    write_descriptor(out, section::PROPERTIES.into());
    let open = begin_list(out);
    write_string(out, id);
    out.extend_from_slice(others);
    end_compound(out, open, count.max(1));
    out.extend_from_slice(&bytes[after..]);
}

/// The most that a message grows by an id: descriptor, 32-bit list, string of 32.
const NEW_PROPERTIES_BYTES: usize = 3 + 9 + 2 + 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::write_binary;
    use crate::value::Value;

    const ID: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

    fn described(code: u8, value: Value) -> Vec<u8> {
        let mut out = Vec::new();
        write_descriptor(&mut out, code.into());
        value.encode(&mut out);
        out
    }

    fn stored(bytes: &[u8]) -> Vec<u8> {
        let mut out = b"before".to_vec();
        append_stored(&mut out, bytes, &Sections::scan(bytes).unwrap(), || *ID);
        assert_eq!(&out[..6], b"before");
        out.split_off(6)
    }

    fn properties_of(bytes: &[u8]) -> Value {
        let sections = Sections::scan(bytes).unwrap();
        Value::decode(sections.properties.value(bytes).unwrap()).unwrap()
    }

    fn id() -> Value {
        std::str::from_utf8(ID).unwrap().into()
    }

    #[test]
    fn a_message_with_an_id_is_stored_byte_for_byte() {
        for given in [Value::from("a"), Value::Ulong(0), Value::Uuid([1; 16]), Value::Binary(vec![])] {
            let message =
                [described(0x73, Value::List(vec![given])), described(0x77, Value::Ulong(7))].concat();
            let mut out = Vec::new();
            let sections = Sections::scan(&message).unwrap();
            append_stored(&mut out, &message, &sections, || panic!("the message has an id"));
            assert_eq!(out, message);
        }
    }

    // a message-id is assigned when the sender gave none.
    #[test]
    fn a_missing_id_is_assigned_and_nothing_else_changes() {
        let header = described(0x70, Value::List(vec![]));
        let annotations = described(0x72, Value::Map(vec![("k".into(), Value::Int(1))]));
        let application = described(0x74, Value::Map(vec![("a".into(), Value::Null)]));
        let mut body = Vec::new();
        write_descriptor(&mut body, 0x75);
        write_binary(&mut body, b"payload");
        let front = [header, annotations].concat();
        let back = [application, body].concat();

        let given: [(Vec<u8>, Vec<Value>); 4] = [
            (vec![], vec![]),
            (vec![0, 0x53, 0x73, code::LIST_0], vec![]),
            (described(0x73, Value::List(vec![Value::Null])), vec![]),
            (
                described(0x73, Value::List(vec![Value::Null, Value::Null, "to".into()])),
                vec![Value::Null, "to".into()],
            ),
        ];
        for (properties, others) in given {
            let message = [&front[..], &properties, &back].concat();
            let out = stored(&message);
            assert_eq!(properties_of(&out), Value::List([vec![id()], others].concat()));
            assert!(out.starts_with(&front) && out.ends_with(&back));
            let sections = Sections::scan(&out).unwrap();
            assert_eq!(out.len(), front.len() + sections.properties.range().len() + back.len());
        }
    }

    #[test]
    fn even_an_empty_message_gets_an_id() {
        assert_eq!(properties_of(&stored(&[])), Value::List(vec![id()]));
    }
}
