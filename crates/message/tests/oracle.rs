//! A second opinion: values and messages written by one implementation of AMQP and read by another, both ways.

#![allow(clippy::unwrap_used)]

mod support;

use fe2o3_amqp_types::messaging::annotations::OwnedKey;
use fe2o3_amqp_types::messaging::message::__private::{Deserializable, Serializable};
use fe2o3_amqp_types::messaging::{
    AmqpSequence, AmqpValue, ApplicationProperties, Body, Data, Footer, Header, Message, MessageAnnotations,
    MessageId, Priority, Properties,
};
use otobus_message::codec::code;
use otobus_message::value::{Array, Value};
use otobus_message::{
    BodyKind, Facts, MessageId as OurId, Sections, Stamp, SystemProperty, View, append_stored, delivery,
};
use proptest::prelude::*;
use serde_amqp::primitives::{Symbol, Timestamp};
use serde_amqp::{Value as Theirs, from_slice, to_vec};
use support::theirs::{ours, tame, theirs};
use support::{Form, array, encode, scalar, value};

proptest! {
    #[test]
    fn they_read_what_we_write(value in value()) {
        let read: Theirs = from_slice(&ours(&value)).unwrap();
        prop_assert_eq!(read, theirs(&value));
    }

    #[test]
    fn we_read_what_they_write(value in value().prop_map(tame)) {
        prop_assert_eq!(Value::decode(&to_vec(&theirs(&value)).unwrap()), Ok(value));
    }

    #[test]
    fn we_agree_on_arrays(array in array().prop_map(tame)) {
        let read: Theirs = from_slice(&ours(&array)).unwrap();
        prop_assert_eq!(read, theirs(&array));
        prop_assert_eq!(Value::decode(&to_vec(&theirs(&array)).unwrap()), Ok(array));
    }

    #[test]
    fn we_write_a_scalar_as_they_do(value in scalar().prop_filter("written wide", |value| !is_written_wide(value))) {
        prop_assert_eq!(ours(&value), to_vec(&theirs(&value)).unwrap());
    }
}

/// Whether this is a value of 255 bytes, which fits the short form, but for which serde_amqp 0.18 takes the long one.
fn is_written_wide(value: &Value) -> bool {
    let bytes = match value {
        Value::Binary(bytes) => bytes.len(),
        Value::String(text) | Value::Symbol(text) => text.len(),
        _ => return false,
    };
    bytes == 255
}

// AMQP 1.0 part 1, 1.6
#[test]
fn the_short_form_is_taken_up_to_255_bytes_and_they_read_it() {
    for length in [254, 255, 256] {
        let text = || "x".repeat(length);
        for value in [Value::Binary(text().into_bytes()), Value::String(text()), Value::Symbol(text())] {
            let prefix = if length <= 255 { 2 } else { 5 };
            assert_eq!(ours(&value).len(), prefix + length);
            assert_eq!(from_slice::<Theirs>(&ours(&value)).unwrap(), theirs(&value));
        }
    }
}

// AMQP 1.0 part 1, 1.6
#[test]
fn every_width_of_every_type_reads_as_the_same_value_on_both_sides() {
    let string = || Value::String("ab".into());
    let symbol = || Value::Symbol("ab".into());
    let binary = || Value::Binary(b"ab".to_vec());
    let list = || Value::List(vec![Value::Null]);
    let map = || Value::Map(vec![(Value::Uint(0), Value::Null)]);
    let array = || Value::Array(Array::of(&Value::Ubyte(0), vec![Value::Ubyte(9)]));
    let forms: Vec<(Value, Vec<&[u8]>)> = vec![
        (Value::Boolean(true), vec![&[code::TRUE], &[code::BOOLEAN, 1]]),
        (Value::Boolean(false), vec![&[code::FALSE], &[code::BOOLEAN, 0]]),
        (Value::Uint(0), vec![&[code::UINT_0], &[code::UINT_SMALL, 0], &[code::UINT, 0, 0, 0, 0]]),
        (
            Value::Ulong(0),
            vec![&[code::ULONG_0], &[code::ULONG_SMALL, 0], &[code::ULONG, 0, 0, 0, 0, 0, 0, 0, 0]],
        ),
        (Value::Int(-1), vec![&[code::INT_SMALL, 255], &[code::INT, 255, 255, 255, 255]]),
        (
            Value::Long(-1),
            vec![&[code::LONG_SMALL, 255], &[code::LONG, 255, 255, 255, 255, 255, 255, 255, 255]],
        ),
        (string(), vec![&[code::STRING_8, 2, b'a', b'b'], &[code::STRING_32, 0, 0, 0, 2, b'a', b'b']]),
        (symbol(), vec![&[code::SYMBOL_8, 2, b'a', b'b'], &[code::SYMBOL_32, 0, 0, 0, 2, b'a', b'b']]),
        (binary(), vec![&[code::BINARY_8, 2, b'a', b'b'], &[code::BINARY_32, 0, 0, 0, 2, b'a', b'b']]),
        (
            Value::List(vec![]),
            vec![&[code::LIST_0], &[code::LIST_8, 1, 0], &[code::LIST_32, 0, 0, 0, 4, 0, 0, 0, 0]],
        ),
        (
            list(),
            vec![&[code::LIST_8, 2, 1, code::NULL], &[code::LIST_32, 0, 0, 0, 5, 0, 0, 0, 1, code::NULL]],
        ),
        (
            map(),
            vec![
                &[code::MAP_8, 3, 2, code::UINT_0, code::NULL],
                &[code::MAP_32, 0, 0, 0, 6, 0, 0, 0, 2, code::UINT_0, code::NULL],
            ],
        ),
        (
            array(),
            vec![
                &[code::ARRAY_8, 3, 1, code::UBYTE, 9],
                &[code::ARRAY_32, 0, 0, 0, 6, 0, 0, 0, 1, code::UBYTE, 9],
            ],
        ),
    ];
    for (value, encodings) in forms {
        for bytes in encodings {
            assert_eq!(Value::decode(bytes).as_ref(), Ok(&value), "{bytes:02x?}");
            assert_eq!(from_slice::<Theirs>(bytes).unwrap(), theirs(&value), "{bytes:02x?}");
        }
    }
}

fn their_message(body: Body<Theirs>) -> Message<Body<Theirs>> {
    Message {
        header: Some(Header {
            durable: true,
            priority: Priority(7),
            ttl: Some(60_000),
            first_acquirer: true,
            delivery_count: 9,
        }),
        delivery_annotations: None,
        message_annotations: Some(
            MessageAnnotations::builder()
                .insert("x-opt-partition-key", Theirs::String("p".into()))
                .insert("x-opt-scheduled-enqueue-time", Theirs::Timestamp(Timestamp::from(99)))
                .insert("own", Theirs::Int(1))
                .build(),
        ),
        properties: Some(Properties {
            message_id: Some(MessageId::Ulong(7)),
            subject: Some("label".into()),
            content_type: Some(Symbol("text/plain".into())),
            group_id: Some("session".into()),
            ..Properties::default()
        }),
        application_properties: Some(
            ApplicationProperties::builder().insert("k", "v").insert("n", 5_i64).build(),
        ),
        body,
        footer: Some(Footer::builder().insert("f", Theirs::Bool(true)).build()),
    }
}

fn bodies() -> Vec<(Body<Theirs>, BodyKind, u32)> {
    let data = |text: &str| Data(text.as_bytes().to_vec().into());
    let sequence = || AmqpSequence(vec![Theirs::Int(1), Theirs::Null]);
    vec![
        (Body::Data(vec![data("one"), data("two")].into()), BodyKind::Data, 2),
        (Body::Sequence(vec![sequence(), sequence()].into()), BodyKind::Sequence, 2),
        (Body::Value(AmqpValue(Theirs::String("text".into()))), BodyKind::Value, 1),
    ]
}

fn read_message(bytes: &[u8]) -> Message<Body<Theirs>> {
    from_slice::<Deserializable<Message<Body<Theirs>>>>(bytes).unwrap().0
}

#[test]
fn a_message_they_write_is_understood_stored_and_delivered_to_them_again() {
    for (body, kind, count) in bodies() {
        let sent = their_message(body);
        let bytes = to_vec(&Serializable(&sent)).unwrap();
        let sections = Sections::scan(&bytes).unwrap();
        assert_eq!((sections.body_kind, sections.body_sections), (kind, count));
        let facts = Facts::read(&bytes, &sections).unwrap();
        assert_eq!(facts.message_id, Some(OurId::Ulong(7)));
        assert_eq!((facts.session_id, facts.partition_key), (Some("session"), Some("p")));
        assert_eq!((facts.ttl, facts.scheduled_enqueue_time), (Some(60_000), Some(99)));

        let mut stored = Vec::new();
        append_stored(&mut stored, &bytes, &sections, || panic!("the message has an id"));
        let view = View { stored: &stored, sections: &sections, overlay: None };
        let label = view.system(SystemProperty::Label).unwrap().unwrap();
        assert_eq!(label.as_str(), Some("label"));
        assert_eq!(view.application("n").unwrap().unwrap().value(), Ok(Value::Long(5)));

        let stamp =
            Stamp { delivery_count: 2, ttl: Some(5_000), sequence: 300, enqueued: 1, ..Stamp::default() };
        let mut out = Vec::new();
        delivery::encode(&mut out, &stored, &sections, &stamp, None).unwrap();
        let received = read_message(&out);
        let header = received.header.unwrap();
        assert_eq!((header.durable, header.priority, header.first_acquirer), (true, Priority(7), true));
        assert_eq!((header.ttl, header.delivery_count), (Some(5_000), 2));
        let annotations = received.message_annotations.unwrap();
        let annotation = |name: &str| annotations.0.get(&OwnedKey::from(name)).cloned();
        assert_eq!(annotation("own"), Some(Theirs::Int(1)));
        assert_eq!(annotation("x-opt-sequence-number"), Some(Theirs::Long(300)));
        assert_eq!(annotation("x-opt-enqueued-time"), Some(Theirs::Timestamp(Timestamp::from(1))));
        assert_eq!(received.properties, sent.properties);
        assert_eq!(received.application_properties, sent.application_properties);
        assert_eq!(received.body, sent.body);
        assert_eq!(received.footer, sent.footer);
    }
}

#[test]
fn an_assigned_id_reaches_them() {
    let mut sent = their_message(Body::Value(AmqpValue(Theirs::Null)));
    for properties in [None, Some(Properties { subject: Some("label".into()), ..Properties::default() })] {
        sent.properties = properties.clone();
        let bytes = to_vec(&Serializable(&sent)).unwrap();
        let mut stored = Vec::new();
        append_stored(&mut stored, &bytes, &Sections::scan(&bytes).unwrap(), || [b'e'; 32]);
        let expected = Properties {
            message_id: Some(MessageId::String("e".repeat(32))),
            ..properties.unwrap_or_default()
        };
        assert_eq!(read_message(&stored).properties, Some(expected));
    }
}

// Both forms of descriptor mean the same (AMQP 1.0 part 1, 1.5).
#[test]
fn descriptors_in_any_form_read_the_same_on_both_sides() {
    for (body, ..) in bodies() {
        let sent = their_message(body);
        let plain = to_vec(&Serializable(&sent)).unwrap();
        for form in [Form::Small, Form::Wide, Form::Symbolic] {
            let parts = otobus_message::sections::sections(&plain).map(|section| {
                let section = section.unwrap();
                let value = Value::decode(section.span.value(&plain).unwrap()).unwrap();
                support::Part { code: section.code, value, form }
            });
            let bytes = encode(&parts.collect::<Vec<_>>());
            assert_eq!(read_message(&bytes), sent, "{form:?}");
            let sections = Sections::scan(&bytes).unwrap();
            assert_eq!(sections.is_plain, form == Form::Small);
            assert_eq!(Facts::read(&bytes, &sections).unwrap().session_id, Some("session"));
        }
    }
}
