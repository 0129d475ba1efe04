//! Writing values as JSON text.

use super::{Number, Value};
use std::io::Write;

pub fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(*number, out),
        Value::String(text) => write_text(text, out),
        Value::Array(elements) => {
            out.push(b'[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(element, out);
            }
            out.push(b']');
        }
        Value::Object(object) => {
            out.push(b'{');
            for (index, (name, member)) in object.0.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_text(name, out);
                out.push(b':');
                write(member, out);
            }
            out.push(b'}');
        }
    }
}

/// The shortest digits that read back as the same number; whole numbers without a fraction, `1.0` as `1`.
pub fn write_number(number: Number, out: &mut Vec<u8>) {
    let written = match number {
        Number::Integer(integer) => write!(out, "{integer}"),
        Number::Double(double) if double == 0.0 || (1e-7..1e21).contains(&double.abs()) => {
            write!(out, "{double}")
        }
        Number::Double(double) if double.is_finite() => write!(out, "{double:e}"),
        // JSON has no word for it; arithmetic never makes one (Q-11).
        Number::Double(_) => write!(out, "null"),
    };
    written.expect("writing into memory cannot fail");
}

/// A string in quotes. Only what JSON demands is escaped; other text stays as it is.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte >= 0x20 && *byte != b'"' && *byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[from..at]);
        from = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            other => write!(out, "\\u{other:04x}").expect("writing into memory cannot fail"),
        }
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn numbers_are_written_short_and_read_back_the_same() {
        for (double, text) in [
            (1.0, "1"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e20, "100000000000000000000"),
            (1e21, "1e21"),
            (1e-7, "0.0000001"),
            (1.5e-9, "1.5e-9"),
            (f64::MAX, "1.7976931348623157e308"),
            (0.0, "0"),
        ] {
            let mut out = Vec::new();
            write_number(Number::Double(double), &mut out);
            assert_eq!(String::from_utf8(out.clone()).unwrap(), text);
            assert_eq!(parse(&out).unwrap().as_number().unwrap().as_f64(), double);
        }
        assert_eq!(Value::integer(i64::MAX).to_text(), b"9223372036854775807");
    }

    #[test]
    fn text_is_escaped_where_json_demands_it() {
        assert_eq!(
            String::from_utf8(Value::text("a\"b\\c\n\u{1}\u{e9}/").to_text()).unwrap(),
            "\"a\\\"b\\\\c\\n\\u0001\u{e9}/\""
        );
    }
}
