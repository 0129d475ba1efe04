//! What must hold for any value, any message and any bytes.

#![allow(clippy::unwrap_used)]

mod support;

#[path = "../../../fuzz/bodies/message.rs"]
mod any_message;
#[path = "../../../fuzz/bodies/value.rs"]
mod any_value;

use otobus_message::{Facts, Overlay, Sections, Stamp, Value, append_stored, delivery};
use proptest::collection::vec;
use proptest::prelude::*;
use support::{Form, encode, message, scalar, text, value};

fn changes() -> impl Strategy<Value = Vec<(String, Option<Value>)>> {
    vec((text(), proptest::option::of(scalar())), 0..8)
}

fn overlay_of(changes: &[(String, Option<Value>)]) -> Overlay {
    let mut overlay = Overlay::default();
    for (name, value) in changes {
        match value {
            Some(value) => overlay.set(name, value).unwrap(),
            None => overlay.remove(name).unwrap(),
        }
    }
    overlay
}

proptest! {
    #[test]
    fn a_value_reads_back_as_it_was_written(value in value()) {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        prop_assert_eq!(Value::decode(&bytes), Ok(value));
        any_value::run(&bytes);
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..200)) {
        any_value::run(&bytes);
        any_message::run(&bytes);
    }

    #[test]
    fn a_damaged_message_is_read_without_panic(
        parts in message(false),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode(&parts);
        if !bytes.is_empty() {
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        any_message::run(&bytes);
    }

    // S-3: what a sender wrote survives.
    #[test]
    fn a_bare_message_comes_out_as_it_went_in(parts in message(true)) {
        let sent = encode(&parts);
        let sections = Sections::scan(&sent).unwrap();
        let has_id = Facts::read(&sent, &sections).unwrap().message_id.is_some();
        let mut stored = Vec::new();
        append_stored(&mut stored, &sent, &sections, || *b"0123456789abcdef0123456789abcdef");
        prop_assert!(!has_id || stored == sent);
        let stored_sections = Sections::scan(&stored).unwrap();
        let mut out = Vec::new();
        delivery::encode(&mut out, &stored, &stored_sections, &Stamp::default(), None).unwrap();
        let delivered = Sections::scan(&out).unwrap();
        prop_assert_eq!(&out[delivered.bare as usize..], &stored[stored_sections.bare as usize..]);
        prop_assert_eq!(delivered.body.bytes(&out), sections.body.bytes(&sent));
        prop_assert_eq!(
            delivered.application_properties.bytes(&out),
            sections.application_properties.bytes(&sent)
        );
    }

    #[test]
    fn a_message_in_any_form_of_descriptors_is_delivered_as_the_plain_one(parts in message(false)) {
        let delivered = |parts: &[support::Part]| {
            let sent = encode(parts);
            let mut out = Vec::new();
            delivery::encode(&mut out, &sent, &Sections::scan(&sent).unwrap(), &Stamp::default(), None).unwrap();
            out
        };
        let mut plain = parts.clone();
        plain.iter_mut().for_each(|part| part.form = Form::Small);
        prop_assert_eq!(delivered(&parts), delivered(&plain));
        any_message::run(&encode(&parts));
    }

    #[test]
    fn an_overlay_reads_back_as_it_was_written(changes in changes()) {
        let overlay = overlay_of(&changes);
        let mut bytes = Vec::new();
        overlay.encode(&mut bytes);
        prop_assert_eq!(Overlay::decode(&bytes), Ok(overlay));
        any_message::run(&bytes);
    }

    #[test]
    fn merging_overlays_is_making_all_changes_in_turn(first in changes(), second in changes()) {
        let mut merged = overlay_of(&first);
        merged.merge(&overlay_of(&second)).unwrap();
        prop_assert_eq!(merged, overlay_of(&[first, second].concat()));
    }
}
