//! Our values in the types of serde_amqp, and what that crate does otherwise than the standard says.

use otobus_message::value::Value;
use serde_amqp::Value as Theirs;
use serde_amqp::described::Described;
use serde_amqp::descriptor::Descriptor;
use serde_amqp::primitives::{Dec32, Dec64, Dec128, OrderedMap, Symbol, Timestamp, Uuid};

/// Our value in their type.
pub fn theirs(value: &Value) -> Theirs {
    match value {
        Value::Null => Theirs::Null,
        Value::Boolean(v) => Theirs::Bool(*v),
        Value::Ubyte(v) => Theirs::Ubyte(*v),
        Value::Ushort(v) => Theirs::Ushort(*v),
        Value::Uint(v) => Theirs::Uint(*v),
        Value::Ulong(v) => Theirs::Ulong(*v),
        Value::Byte(v) => Theirs::Byte(*v),
        Value::Short(v) => Theirs::Short(*v),
        Value::Int(v) => Theirs::Int(*v),
        Value::Long(v) => Theirs::Long(*v),
        Value::Float(bits) => Theirs::Float(f32::from_bits(*bits).into()),
        Value::Double(bits) => Theirs::Double(f64::from_bits(*bits).into()),
        Value::Decimal32(v) => Theirs::Decimal32(Dec32::from(*v)),
        Value::Decimal64(v) => Theirs::Decimal64(Dec64::from(*v)),
        Value::Decimal128(v) => Theirs::Decimal128(Dec128::from(*v)),
        Value::Char(v) => Theirs::Char(char::from_u32(*v).unwrap()),
        Value::Timestamp(v) => Theirs::Timestamp(Timestamp::from(*v)),
        Value::Uuid(v) => Theirs::Uuid(Uuid::from(*v)),
        Value::Binary(v) => Theirs::Binary(v.clone().into()),
        Value::String(v) => Theirs::String(v.clone()),
        Value::Symbol(v) => Theirs::Symbol(Symbol(v.clone())),
        Value::List(elements) => Theirs::List(elements.iter().map(theirs).collect()),
        Value::Map(entries) => {
            let mut map = OrderedMap::new();
            for (key, value) in entries {
                map.insert(theirs(key), theirs(value));
            }
            Theirs::Map(map)
        }
        Value::Array(array) => Theirs::Array(array.elements.iter().map(theirs).collect::<Vec<_>>().into()),
        Value::Described(described) => {
            let descriptor = match &described.0 {
                Value::Ulong(code) => Descriptor::Code(*code),
                Value::Symbol(name) => Descriptor::Name(Symbol(name.clone())),
                other => panic!("{other:?} is no descriptor"),
            };
            Theirs::Described(Box::new(Described { descriptor, value: theirs(&described.1) }))
        }
    }
}

pub fn ours(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}

/// The value without what serde_amqp 0.18 writes wrongly: strings in arrays get their length in characters, not bytes,
/// and a map's value takes the type of a key that is a timestamp. Nor has it what they take for one key: both zeros,
/// and all that is not a number.
pub fn tame(value: Value) -> Value {
    match value {
        Value::List(elements) => Value::List(elements.into_iter().map(tame).collect()),
        Value::Map(entries) => {
            let has_equals = |number: f64| number == 0.0 || number.is_nan();
            let is_wild = |key: &Value| match *key {
                Value::Timestamp(_) => true,
                Value::Float(bits) => has_equals(f32::from_bits(bits).into()),
                Value::Double(bits) => has_equals(f64::from_bits(bits)),
                _ => false,
            };
            let key = |(index, key): (usize, Value)| match is_wild(&key) {
                true => Value::String(format!("in place of key {index}")),
                false => key,
            };
            let entries = (0..).zip(entries).map(|(index, (k, v))| (key((index, k)), tame(v)));
            Value::Map(entries.collect())
        }
        Value::Described(described) => Value::Described(Box::new((described.0, tame(described.1)))),
        Value::Array(mut array) => {
            for element in &mut array.elements {
                match element {
                    Value::String(text) => text.retain(|character| character.is_ascii()),
                    inner => *inner = tame(std::mem::take(inner)),
                }
            }
            Value::Array(array)
        }
        other => other,
    }
}

/// Whether the value holds an array that serde_amqp 0.18 neither writes nor reads as the standard says (one without
/// elements, or one of nulls, lists, maps or arrays), or a char that is no character.
pub fn is_beyond_them(value: &Value) -> bool {
    match value {
        Value::List(elements) => elements.iter().any(is_beyond_them),
        Value::Map(entries) => {
            entries.iter().any(|(key, value)| is_beyond_them(key) || is_beyond_them(value))
        }
        Value::Char(character) => char::from_u32(*character).is_none(),
        Value::Described(described) => is_beyond_them(&described.1),
        Value::Array(array) => match array.elements.first() {
            None | Some(Value::Null | Value::List(_) | Value::Map(_) | Value::Array(_)) => true,
            Some(_) => array.elements.iter().any(is_beyond_them),
        },
        _ => false,
    }
}
