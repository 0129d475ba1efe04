//! Arbitrary values and messages for the tests of this folder.

#![allow(dead_code)]

pub mod random;
pub mod theirs;

use otobus_message::codec::{code, write_descriptor, write_symbol};
use otobus_message::sections::section;
use otobus_message::value::{Array, Value};
use proptest::collection::vec;
use proptest::prelude::*;

/// Any value that is not a compound. Floats are numbers and characters are valid, so that an oracle that keeps them
/// as such can hold them.
pub fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::Boolean),
        any::<u8>().prop_map(Value::Ubyte),
        any::<u16>().prop_map(Value::Ushort),
        prop_oneof![any::<u32>(), 0..300_u32].prop_map(Value::Uint),
        prop_oneof![any::<u64>(), 0..300_u64].prop_map(Value::Ulong),
        any::<i8>().prop_map(Value::Byte),
        any::<i16>().prop_map(Value::Short),
        prop_oneof![any::<i32>(), -200..200_i32].prop_map(Value::Int),
        prop_oneof![any::<i64>(), -200..200_i64].prop_map(Value::Long),
        any::<f32>().prop_map(|number| Value::Float(number.to_bits())),
        any::<f64>().prop_map(|number| Value::Double(number.to_bits())),
        any::<[u8; 4]>().prop_map(Value::Decimal32),
        any::<[u8; 8]>().prop_map(Value::Decimal64),
        any::<[u8; 16]>().prop_map(Value::Decimal128),
        any::<char>().prop_map(|character| Value::Char(character.into())),
        any::<i64>().prop_map(Value::Timestamp),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        vec(any::<u8>(), 0..300).prop_map(Value::Binary),
        text().prop_map(Value::String),
        "[ -~]{0,20}".prop_map(Value::Symbol),
    ]
}

/// Short texts and some whose length does not fit a byte.
pub fn text() -> impl Strategy<Value = String> {
    prop_oneof![9 => "\\PC{0,12}", 1 => "[a-zü]{250,260}"]
}

/// Arrays, each of one type.
pub fn array() -> impl Strategy<Value = Value> {
    fn of<T: std::fmt::Debug + 'static>(
        element: impl Strategy<Value = T> + 'static,
        make: fn(T) -> Value,
    ) -> BoxedStrategy<Value> {
        let elements = vec(element.prop_map(make), 1..6);
        elements.prop_map(|elements| Value::Array(Array::of(&elements[0].clone(), elements))).boxed()
    }
    prop_oneof![
        of(any::<bool>(), Value::Boolean),
        of(any::<u8>(), Value::Ubyte),
        of(any::<i32>(), Value::Int),
        of(any::<i64>(), Value::Long),
        of(any::<i64>(), Value::Timestamp),
        of(any::<[u8; 16]>(), Value::Uuid),
        of(vec(any::<u8>(), 0..9), Value::Binary),
        of(text(), Value::String),
        of("[a-z:]{0,9}", Value::Symbol),
    ]
}

/// Any value, nested a little.
pub fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![8 => scalar(), 1 => array(), 1 => Just(Value::Null)];
    leaf.prop_recursive(3, 40, 6, |inner| {
        let descriptor =
            prop_oneof![any::<u64>().prop_map(Value::Ulong), "[a-z:]{1,9}".prop_map(Value::Symbol)];
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::List),
            vec((scalar(), inner.clone()), 0..6).prop_map(|entries| Value::Map(unique(entries))),
            (descriptor, inner).prop_map(|described| Value::Described(Box::new(described))),
        ]
    })
}

/// AMQP 1.0 part 1, 1.6.23: a map has each key once.
pub fn unique<K: PartialEq, V>(entries: Vec<(K, V)>) -> Vec<(K, V)> {
    let mut kept: Vec<(K, V)> = Vec::new();
    for (key, value) in entries {
        if kept.iter().all(|(other, _)| *other != key) {
            kept.push((key, value));
        }
    }
    kept
}

/// A section and how its descriptor is written.
#[derive(Debug, Clone)]
pub struct Part {
    pub code: u8,
    pub value: Value,
    pub form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    Small,
    Wide,
    Symbolic,
}

pub fn encode(parts: &[Part]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        match part.form {
            Form::Small => write_descriptor(&mut out, part.code.into()),
            Form::Wide => {
                out.extend_from_slice(&[code::DESCRIBED, code::ULONG, 0, 0, 0, 0, 0, 0, 0, part.code]);
            }
            Form::Symbolic => {
                out.push(code::DESCRIBED);
                write_symbol(&mut out, symbolic(part.code));
            }
        }
        part.value.encode(&mut out);
    }
    out
}

pub fn symbolic(code: u8) -> &'static str {
    match code {
        section::HEADER => "amqp:header:list",
        section::DELIVERY_ANNOTATIONS => "amqp:delivery-annotations:map",
        section::MESSAGE_ANNOTATIONS => "amqp:message-annotations:map",
        section::PROPERTIES => "amqp:properties:list",
        section::APPLICATION_PROPERTIES => "amqp:application-properties:map",
        section::DATA => "amqp:data:binary",
        section::SEQUENCE => "amqp:amqp-sequence:list",
        section::VALUE => "amqp:amqp-value:*",
        _ => "amqp:footer:map",
    }
}

fn form(is_plain: bool) -> BoxedStrategy<Form> {
    if is_plain {
        Just(Form::Small).boxed()
    } else {
        prop_oneof![Just(Form::Small), Just(Form::Wide), Just(Form::Symbolic)].boxed()
    }
}

fn optional(value: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Value> {
    prop_oneof![Just(Value::Null), value].boxed()
}

fn annotations() -> impl Strategy<Value = Value> {
    let own = vec(("[a-z]{1,8}".prop_map(Value::Symbol), value()), 0..4);
    let key = proptest::option::of("[a-z]{0,9}");
    (own, key, any::<bool>()).prop_map(|(mut entries, key, is_forged)| {
        entries = unique(entries);
        if let Some(key) = key {
            entries.push((Value::Symbol("x-opt-partition-key".into()), Value::String(key)));
        }
        if is_forged {
            entries.push((Value::Symbol("x-opt-sequence-number".into()), Value::Long(-1)));
        }
        Value::Map(entries)
    })
}

fn id() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[a-z]{0,20}".prop_map(Value::String),
        any::<u64>().prop_map(Value::Ulong),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        vec(any::<u8>(), 0..20).prop_map(Value::Binary),
    ]
}

fn properties() -> impl Strategy<Value = Value> {
    let text = || optional("[a-zü]{0,20}".prop_map(Value::String));
    let symbol = || optional("[a-z/]{0,20}".prop_map(Value::Symbol));
    let time = || optional(any::<i64>().prop_map(Value::Timestamp));
    let front =
        (optional(id()), optional(vec(any::<u8>(), 0..9).prop_map(Value::Binary)), text(), text(), text());
    let middle = (optional(id()), symbol(), symbol(), time(), time());
    let back = (text(), optional(any::<u32>().prop_map(Value::Uint)), text());
    (front, middle, back, 0..=13_usize).prop_map(|(f, m, b, count)| {
        let mut fields = vec![f.0, f.1, f.2, f.3, f.4, m.0, m.1, m.2, m.3, m.4, b.0, b.1, b.2];
        fields.truncate(count);
        Value::List(fields)
    })
}

fn header() -> impl Strategy<Value = Value> {
    let boolean = || optional(any::<bool>().prop_map(Value::Boolean));
    let uint = || optional(any::<u32>().prop_map(Value::Uint));
    let fields = (boolean(), optional(any::<u8>().prop_map(Value::Ubyte)), uint(), boolean(), uint());
    (fields, 0..=5_usize).prop_map(|(fields, count)| {
        let mut fields = vec![fields.0, fields.1, fields.2, fields.3, fields.4];
        fields.truncate(count);
        Value::List(fields)
    })
}

fn application_properties() -> impl Strategy<Value = Value> {
    vec(("[a-z]{1,8}".prop_map(Value::String), scalar()), 0..5)
        .prop_map(|entries| Value::Map(unique(entries)))
}

fn body() -> impl Strategy<Value = Vec<(u8, Value)>> {
    prop_oneof![
        Just(vec![]),
        vec(vec(any::<u8>(), 0..300), 1..4)
            .prop_map(|parts| parts.into_iter().map(|part| (section::DATA, Value::Binary(part))).collect()),
        vec(vec(value(), 0..3), 1..3)
            .prop_map(|parts| parts.into_iter().map(|part| (section::SEQUENCE, Value::List(part))).collect()),
        value().prop_map(|value| vec![(section::VALUE, value)]),
    ]
}

/// A message that any broker must accept. If `is_plain`, all its descriptors are smallulongs.
pub fn message(is_plain: bool) -> impl Strategy<Value = Vec<Part>> {
    fn maybe(code: u8, value: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Vec<(u8, Value)>> {
        proptest::option::of(value)
            .prop_map(move |value| value.into_iter().map(|v| (code, v)).collect())
            .boxed()
    }
    let sections = (
        maybe(section::HEADER, header()),
        maybe(section::DELIVERY_ANNOTATIONS, annotations()),
        maybe(section::MESSAGE_ANNOTATIONS, annotations()),
        maybe(section::PROPERTIES, properties()),
        maybe(section::APPLICATION_PROPERTIES, application_properties()),
        body(),
        maybe(section::FOOTER, annotations()),
    );
    (sections, vec(form(is_plain), 12)).prop_map(|(s, forms)| {
        let sections = [s.0, s.1, s.2, s.3, s.4, s.5, s.6].concat();
        let parts = sections.into_iter().zip(forms);
        parts.map(|((code, value), form)| Part { code, value, form }).collect()
    })
}
