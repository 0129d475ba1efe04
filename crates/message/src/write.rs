//! AMQP 1.0 part 1: primitive encodings, appended to a `Vec<u8>`.
//!
//! Each value takes its shortest form. Compounds are begun, filled and ended, so that nothing is built on the side.

use crate::codec::code;
use crate::planted::is_planted;

pub fn write_null(out: &mut Vec<u8>) {
    out.push(code::NULL);
}

pub fn write_boolean(out: &mut Vec<u8>, value: bool) {
    out.push(if value { code::TRUE } else { code::FALSE });
}

pub fn write_ubyte(out: &mut Vec<u8>, value: u8) {
    out.extend_from_slice(&[code::UBYTE, value]);
}

pub fn write_ushort(out: &mut Vec<u8>, value: u16) {
    out.push(code::USHORT);
    out.extend_from_slice(&value.to_be_bytes());
}

pub fn write_uint(out: &mut Vec<u8>, value: u32) {
    match value {
        0 => out.push(code::UINT_0),
        1..=255 => out.extend_from_slice(&[code::UINT_SMALL, value as u8]),
        _ => {
            out.push(code::UINT);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

pub fn write_ulong(out: &mut Vec<u8>, value: u64) {
    match value {
        0 => out.push(code::ULONG_0),
        1..=255 => out.extend_from_slice(&[code::ULONG_SMALL, value as u8]),
        _ => {
            out.push(code::ULONG);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

pub fn write_int(out: &mut Vec<u8>, value: i32) {
    match i8::try_from(value) {
        Ok(small) => out.extend_from_slice(&[code::INT_SMALL, small as u8]),
        Err(_) => {
            out.push(code::INT);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

pub fn write_long(out: &mut Vec<u8>, value: i64) {
    match i8::try_from(value) {
        Ok(small) => out.extend_from_slice(&[code::LONG_SMALL, small as u8]),
        Err(_) if is_planted("value") && (128..256).contains(&value) => {
            out.extend_from_slice(&[code::LONG_SMALL, value as u8]);
        }
        Err(_) => {
            out.push(code::LONG);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

pub fn write_timestamp(out: &mut Vec<u8>, milliseconds: i64) {
    out.push(code::TIMESTAMP);
    out.extend_from_slice(&milliseconds.to_be_bytes());
}

pub fn write_uuid(out: &mut Vec<u8>, rfc_order: &[u8; 16]) {
    out.push(code::UUID);
    out.extend_from_slice(rfc_order);
}

pub fn write_binary(out: &mut Vec<u8>, value: &[u8]) {
    write_sized(out, code::BINARY_8, code::BINARY_32, value);
}

pub fn write_string(out: &mut Vec<u8>, value: &str) {
    write_sized(out, code::STRING_8, code::STRING_32, value.as_bytes());
}

pub fn write_symbol(out: &mut Vec<u8>, value: &str) {
    debug_assert!(value.is_ascii(), "symbol {value:?} is not ASCII");
    write_sized(out, code::SYMBOL_8, code::SYMBOL_32, value.as_bytes());
}

fn write_sized(out: &mut Vec<u8>, narrow: u8, wide: u8, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(length) => out.extend_from_slice(&[narrow, length]),
        Err(_) => {
            out.push(wide);
            out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        }
    }
    out.extend_from_slice(bytes);
}

/// Writes the descriptor of a described value. Codes that fit a byte are always written as smallulong: the Python
/// client reads only that form.
pub fn write_descriptor(out: &mut Vec<u8>, descriptor: u64) {
    out.push(code::DESCRIBED);
    match u8::try_from(descriptor) {
        Ok(small) => out.extend_from_slice(&[code::ULONG_SMALL, small]),
        Err(_) => write_ulong(out, descriptor),
    }
}

/// Where a compound's size and count will be written once its elements are known.
#[derive(Debug)]
#[must_use = "a compound that is begun must be ended"]
pub struct Open(usize);

/// Begins a list with 32-bit size and count; the elements follow, then [`end_compound`].
pub fn begin_list(out: &mut Vec<u8>) -> Open {
    begin_compound(out, code::LIST_32)
}

/// Begins a map; its elements are keys and values in turn, and both count.
pub fn begin_map(out: &mut Vec<u8>) -> Open {
    begin_compound(out, code::MAP_32)
}

/// Begins an array of `element` (a constructor without its own body); the elements' bodies follow.
pub fn begin_array(out: &mut Vec<u8>, element: u8) -> Open {
    let open = begin_compound(out, code::ARRAY_32);
    out.push(element);
    open
}

fn begin_compound(out: &mut Vec<u8>, constructor: u8) -> Open {
    out.push(constructor);
    out.extend_from_slice(&[0; 8]);
    Open(out.len())
}

pub fn end_compound(out: &mut [u8], open: Open, count: u32) {
    let size = (out.len() - open.0 + 4) as u32;
    out[open.0 - 8..open.0 - 4].copy_from_slice(&size.to_be_bytes());
    out[open.0 - 4..open.0].copy_from_slice(&count.to_be_bytes());
}

/// Writes a list of at most 255 encoded bytes in its short form; longer ones in the long form.
pub fn write_small_list(out: &mut Vec<u8>, count: u8, elements: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[code::LIST_8, 0, count]);
    elements(out);
    let body = out.len() - start - 3;
    match u8::try_from(body + 1) {
        Ok(size) => out[start + 1] = size,
        Err(_) => {
            let size = (body + 4) as u32;
            out.splice(
                start..start + 3,
                [code::LIST_32].into_iter().chain(size.to_be_bytes()).chain(u32::from(count).to_be_bytes()),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Reader;

    // AMQP 1.0 part 1, 1.6: the forms of each width, of which the shortest is written.
    #[test]
    fn a_number_takes_its_shortest_form_up_to_its_last_value() {
        let length = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            out.len()
        };
        for (value, bytes) in [(0, 1), (1, 2), (255, 2), (256, 5), (u32::MAX, 5)] {
            assert_eq!(length(&|out| write_uint(out, value)), bytes, "{value}");
        }
        for (value, bytes) in [(0, 1), (1, 2), (255, 2), (256, 9), (u64::MAX, 9)] {
            assert_eq!(length(&|out| write_ulong(out, value)), bytes, "{value}");
        }
        for (value, is_small) in
            [(0, true), (127, true), (128, false), (255, false), (-128, true), (-129, false)]
        {
            assert_eq!(length(&|out| write_int(out, value)), if is_small { 2 } else { 5 }, "{value}");
            assert_eq!(length(&|out| write_long(out, value.into())), if is_small { 2 } else { 9 }, "{value}");
        }
        for (bytes, head) in [(0, 2), (255, 2), (256, 5)] {
            let text = "x".repeat(bytes);
            assert_eq!(length(&|out| write_binary(out, text.as_bytes())), head + bytes, "{bytes}");
            assert_eq!(length(&|out| write_string(out, &text)), head + bytes, "{bytes}");
            assert_eq!(length(&|out| write_symbol(out, &text)), head + bytes, "{bytes}");
        }
    }

    // the Python client reads a descriptor only as a smallulong.
    #[test]
    fn a_descriptor_is_a_smallulong_whenever_it_fits() {
        let written = |descriptor| {
            let mut out = Vec::new();
            write_descriptor(&mut out, descriptor);
            out
        };
        for small in [0, 1, 0x70, 255] {
            assert_eq!(written(small.into()), [code::DESCRIBED, code::ULONG_SMALL, small]);
        }
        assert_eq!(written(256), [code::DESCRIBED, code::ULONG, 0, 0, 0, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn a_small_list_grows_into_a_large_one() {
        for length in [0_usize, 100, 251, 252, 253, 254, 300] {
            let mut out = Vec::new();
            write_small_list(&mut out, 1, |out| write_binary(out, &vec![7; length]));
            let mut reader = Reader::new(&out);
            let list = reader.list().unwrap();
            reader.finish().unwrap();
            assert_eq!(list.count, 1);
            assert_eq!(Reader::new(list.body).binary().unwrap().len(), length);
        }
    }
}
