//! The order of values across types (Q-13), deep equality, and bytes that sort the same way.
//!
//! Ascending: (undefined), null, false, true, numbers, strings, arrays, objects. Numbers compare as doubles, strings by code
//! point, arrays element by element, objects by their members sorted by name.

use super::{Number, Value};
use std::cmp::Ordering;

/// First bytes of sort keys. Zero ends arrays and objects, so that a shorter one comes first.
mod mark {
    pub const END: u8 = 0x00;
    pub const NULL: u8 = 0x02;
    pub const FALSE: u8 = 0x03;
    pub const TRUE: u8 = 0x04;
    pub const NUMBER: u8 = 0x05;
    pub const STRING: u8 = 0x06;
    pub const ARRAY: u8 = 0x07;
    pub const OBJECT: u8 = 0x08;
}

/// A total order of all values.
pub fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Number(left), Value::Number(right)) => compare_numbers(*left, *right),
        (Value::String(left), Value::String(right)) => left.as_bytes().cmp(right.as_bytes()),
        (Value::Array(left), Value::Array(right)) => {
            let unequal =
                left.iter().zip(right).map(|(left, right)| compare(left, right)).find(|o| o.is_ne());
            unequal.unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (Value::Object(_), Value::Object(_)) => {
            let (mut left_key, mut right_key) = (Vec::new(), Vec::new());
            sort_key(left, &mut left_key);
            sort_key(right, &mut right_key);
            left_key.cmp(&right_key)
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

/// Deep equality; the order of members does not matter (Q-9, Q-16).
pub fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::String(left), Value::String(right)) => left == right,
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(_), Value::Object(_)) => compare(left, right).is_eq(),
        _ => false,
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => mark::NULL,
        Value::Bool(false) => mark::FALSE,
        Value::Bool(true) => mark::TRUE,
        Value::Number(_) => mark::NUMBER,
        Value::String(_) => mark::STRING,
        Value::Array(_) => mark::ARRAY,
        Value::Object(_) => mark::OBJECT,
    }
}

fn compare_numbers(left: Number, right: Number) -> Ordering {
    // No number is NaN: neither text nor arithmetic makes one.
    left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal)
}

/// Appends bytes that compare, as bytes, as the values do. No key is the beginning of another one, so that keys can follow each
/// other, and the first byte is above 1: a caller's mark for undefined can come before all.
pub fn sort_key(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null | Value::Bool(_) => out.push(rank(value)),
        Value::Number(number) => sort_key_number(*number, out),
        Value::String(text) => sort_key_text(text, out),
        Value::Array(elements) => {
            out.push(mark::ARRAY);
            for element in elements {
                sort_key(element, out);
            }
            out.push(mark::END);
        }
        Value::Object(object) => {
            out.push(mark::OBJECT);
            let mut members: Vec<&(String, Value)> = object.0.iter().collect();
            members.sort_by(|left, right| left.0.as_bytes().cmp(right.0.as_bytes()));
            for (name, member) in members {
                sort_key_text(name, out);
                sort_key(member, out);
            }
            out.push(mark::END);
        }
    }
}

/// The sort key of a number: its double, big-endian, flipped so that negative ones come first.
pub fn sort_key_number(number: Number, out: &mut Vec<u8>) {
    // Adding zero makes 0 of -0: they are equal.
    let bits = (number.as_f64() + 0.0).to_bits();
    let flipped = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    out.push(mark::NUMBER);
    out.extend_from_slice(&flipped.to_be_bytes());
}

/// The sort key of a string: its bytes, zero as `00 FF`, ended by `00 00`.
pub fn sort_key_text(text: &str, out: &mut Vec<u8>) {
    out.push(mark::STRING);
    let mut rest = text.as_bytes();
    while let Some(zero) = memchr::memchr(0, rest) {
        out.extend_from_slice(&rest[..zero]);
        out.extend_from_slice(&[0x00, 0xff]);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0x00, 0x00]);
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn values_order_across_types_and_their_keys_with_them() {
        // Q-13, each below the next.
        let ascending = [
            "null",
            "false",
            "true",
            "-1e300",
            "-1.5",
            "-1",
            "0",
            "1e-300",
            "1",
            "1.5",
            "9007199254740993",
            "1e300",
            "\"\"",
            "\"\\u0000\"",
            "\"\\u0000a\"",
            "\"\\u0001\"",
            "\"A\"",
            "\"a\"",
            "\"a\\u0000\"",
            "\"ab\"",
            "\"\u{e9}\"",
            "[]",
            "[null]",
            "[null,null]",
            "[0]",
            "[0,\"x\"]",
            "[1]",
            "[[]]",
            "{}",
            "{\"a\":1}",
            "{\"a\":1,\"b\":0}",
            "{\"a\":2}",
            "{\"b\":0}",
        ];
        let values: Vec<Value> = ascending.iter().map(|text| parse(text.as_bytes()).unwrap()).collect();
        for (left_place, left) in values.iter().enumerate() {
            for (right_place, right) in values.iter().enumerate() {
                let expected = left_place.cmp(&right_place);
                assert_eq!(compare(left, right), expected, "{left:?} {right:?}");
                assert_eq!(equal(left, right), expected.is_eq(), "{left:?} {right:?}");
                let (mut left_key, mut right_key) = (Vec::new(), Vec::new());
                sort_key(left, &mut left_key);
                sort_key(right, &mut right_key);
                assert_eq!(left_key.cmp(&right_key), expected, "{left:?} {right:?}");
                assert!(left_place == right_place || !right_key.starts_with(&left_key));
            }
        }
    }

    #[test]
    fn objects_are_equal_whatever_the_order_of_members() {
        let read = |text: &str| parse(text.as_bytes()).unwrap();
        assert!(equal(&read(r#"{"a":1,"b":[{"c":2,"d":-0}]}"#), &read(r#"{"b":[{"d":0,"c":2.0}],"a":1}"#)));
        assert!(!equal(&read(r#"{"a":1}"#), &read(r#"{"a":1,"b":1}"#)));
        assert!(!equal(&read("[1,2]"), &read("[2,1]")));
    }
}
