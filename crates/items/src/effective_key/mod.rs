//! The effective partition key: where a partition key value is on the ring of all values (P-41, P-42).
//!
//! Clients compute it too, and name ranges of it. So it must agree with theirs to the bit: it is never changed, only versions are
//! added. As bytes, keys compare as their upper-case hexadecimal text does.

mod murmur;

use crate::partition_key::KeyPart;

/// How a container's definition turns values into effective keys: `kind` and `version` of its partition key (P-40).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hashing {
    /// `Hash`, version 1: a hash of 32 bits, then the values themselves.
    V1,
    /// `Hash`, version 2: one hash of 128 bits.
    V2,
    /// `MultiHash`: one hash of 128 bits for each level, so that a prefix of levels is a range.
    Multi,
}

/// Smallest of all, inclusive, and largest of all, exclusive, as text.
pub const FIRST: &str = "";
pub const END: &str = "FF";

const UNDEFINED: u8 = 0x00;
const NULL: u8 = 0x01;
const FALSE: u8 = 0x02;
const TRUE: u8 = 0x03;
const NUMBER: u8 = 0x05;
const STRING: u8 = 0x08;

/// UTF-16 units of a text that version 1 looks at, and bytes of it that stand in the key.
const V1_TEXT_UNITS: usize = 100;
const V1_TEXT_BYTES: usize = 100;

/// The effective key of these values. No values: the smallest.
pub fn bytes(parts: &[KeyPart], hashing: Hashing) -> Vec<u8> {
    if parts.is_empty() {
        return Vec::new();
    }
    match hashing {
        Hashing::V1 => v1(parts),
        Hashing::V2 => v2(parts).to_vec(),
        Hashing::Multi => parts.iter().flat_map(|part| v2(std::slice::from_ref(part))).collect(),
    }
}

/// The same as clients write it.
pub fn hex(parts: &[KeyPart], hashing: Hashing) -> String {
    upper_hex(&bytes(parts, hashing))
}

/// The range of all keys that begin with these values: one key, or with `MultiHash` and fewer values than levels a prefix. The
/// first is inclusive, the second exclusive.
pub fn range(parts: &[KeyPart], hashing: Hashing) -> (Vec<u8>, Vec<u8>) {
    let first = bytes(parts, hashing);
    let mut end = first.clone();
    // Every level of a `MultiHash` begins with two clear bits, so FF is behind them all. Other keys are followed by nothing that
    // is theirs, but 00 is the least that can follow.
    end.push(if hashing == Hashing::Multi { 0xFF } else { 0x00 });
    (first, end)
}

pub fn upper_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}

/// Reads a bound as a client gives it, in either case. `None`: not hexadecimal. A lone last digit counts as if a zero followed,
/// which keeps its place in the order.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    text.as_bytes()
        .chunks(2)
        .map(|pair| {
            let (high, low) = (digit(&pair[0])?, pair.get(1).map_or(Some(0), digit)?);
            u8::try_from(high << 4 | low).ok()
        })
        .collect()
}

fn v2(parts: &[KeyPart]) -> [u8; 16] {
    let mut hashed = Vec::new();
    parts.iter().for_each(|part| write_for_hash(part, None, 0xFF, &mut hashed));
    let mut key = murmur::x64_128(&hashed).to_be_bytes();
    // So that every key is below `END`.
    key[0] &= 0x3F;
    key
}

fn v1(parts: &[KeyPart]) -> Vec<u8> {
    let mut hashed = Vec::new();
    parts.iter().for_each(|part| write_for_hash(part, Some(V1_TEXT_UNITS), 0x00, &mut hashed));
    let mut key = Vec::new();
    write_number(f64::from(murmur::x86_32(&hashed)), &mut key);
    for part in parts {
        match part {
            KeyPart::Undefined => key.push(UNDEFINED),
            KeyPart::Null => key.push(NULL),
            KeyPart::Bool(value) => key.push(if *value { TRUE } else { FALSE }),
            KeyPart::Number(value) => write_number(*value, &mut key),
            KeyPart::String(text) => write_text(units(text, V1_TEXT_UNITS), &mut key),
        }
    }
    key
}

fn write_for_hash(part: &KeyPart, most_units: Option<usize>, text_end: u8, out: &mut Vec<u8>) {
    match part {
        KeyPart::Undefined => out.push(UNDEFINED),
        KeyPart::Null => out.push(NULL),
        KeyPart::Bool(value) => out.push(if *value { TRUE } else { FALSE }),
        KeyPart::Number(value) => {
            out.push(NUMBER);
            out.extend(value.to_le_bytes());
        }
        KeyPart::String(text) => {
            out.push(STRING);
            out.extend(most_units.map_or(text.as_str(), |most| units(text, most)).as_bytes());
            out.push(text_end);
        }
    }
}

/// The characters within the first `most` UTF-16 units. (Half a pair of surrogates is no character, and is left out.)
fn units(text: &str, most: usize) -> &str {
    let mut count = 0;
    let end = text.char_indices().find(|(_, character)| {
        count += character.len_utf16();
        count > most
    });
    end.map_or(text, |(at, _)| &text[..at])
}

/// An order-preserving form: 8 bits, then groups of 7 bits, each with a bit that says whether another follows.
fn write_number(value: f64, out: &mut Vec<u8>) {
    const SIGN: u64 = 1 << 63;
    let bits = value.to_bits();
    let mut rest = if bits & SIGN == 0 { bits ^ SIGN } else { bits.wrapping_neg() };
    out.extend([NUMBER, (rest >> 56) as u8]);
    rest <<= 8;
    let mut group = 0;
    let mut is_first = true;
    while rest != 0 {
        if !is_first {
            out.push(group);
        }
        is_first = false;
        group = (rest >> 56) as u8 | 1;
        rest <<= 7;
    }
    out.push(group & 0xFE);
}

/// Each byte one higher, so that the 00 at the end is below all of them. A long text is cut, and then has no end.
fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(STRING);
    // No byte of UTF-8 is FF.
    out.extend(text.bytes().take(V1_TEXT_BYTES + 1).map(|byte| byte.wrapping_add(1)));
    if text.len() <= V1_TEXT_BYTES {
        out.push(0x00);
    }
}

#[cfg(test)]
mod tests;
