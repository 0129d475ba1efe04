//! Single values as they stand in JSON and in headers (H-92, H-95). Anything inside anything else is refused while it is
//! read, so that a text cannot grow in memory.

use message::planted::is_planted;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde_json::Number;
use std::fmt;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar {
    Null,
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

impl Scalar {
    /// A value of a header: text in quotes, a number, true or false, and everything else is text.
    pub(super) fn of_header(text: &str) -> Scalar {
        if let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            // What is escaped as in JSON is what we write ourselves; otherwise everything stands for itself.
            return Scalar::Text(serde_json::from_str(text).unwrap_or_else(|_| inner.to_owned()));
        }
        match text {
            "true" => Scalar::Boolean(true),
            "false" => Scalar::Boolean(false),
            _ if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
                serde_json::from_str(text).map_or_else(|_| Scalar::Text(text.to_owned()), Scalar::of_number)
            }
            _ => Scalar::Text(text.to_owned()),
        }
    }

    fn of_number(number: Number) -> Scalar {
        let float = || Scalar::Float(number.as_f64().unwrap_or(f64::NAN));
        number.as_i64().map_or_else(float, Scalar::Integer)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        deserializer.deserialize_any(Single)
    }
}

struct Single;

impl Visitor<'_> for Single {
    type Value = Scalar;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text, a number, true, false or null")
    }

    fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar::Boolean(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar::Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Scalar, E> {
        Ok(i64::try_from(value).map_or(Scalar::Float(value as f64), Scalar::Integer))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(value.to_owned()))
    }
}

/// A text in double quotes, escaped as in JSON until it can stand in a header.
pub(super) fn quoted(text: &str) -> String {
    in_ascii(&serde_json::Value::from(text).to_string())
}

/// JSON in which everything beyond ASCII is escaped. Outside of texts JSON has nothing else.
pub(super) fn in_ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for letter in json.chars() {
        // Delete is no control character to JSON, but it is to HTTP.
        if letter.is_ascii() && (letter != '\u{7f}' || is_planted("broker_properties")) {
            out.push(letter);
        } else {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // H-95
    #[test]
    fn a_header_is_a_text_a_number_or_a_truth() {
        let text = |text: &str| Scalar::Text(text.into());
        for (header, value) in [
            ("\"High\"", text("High")),
            ("High", text("High")),
            ("12345,ABC", text("12345,ABC")),
            ("\"12\"", text("12")),
            ("\"a \\\"b\\\" \\u00fc\"", text("a \"b\" ü")),
            ("\"C:\\dir\"", text("C:\\dir")),
            ("\"", text("\"")),
            ("\"\"", text("")),
            ("", text("")),
            ("12", Scalar::Integer(12)),
            ("-9223372036854775808", Scalar::Integer(i64::MIN)),
            ("9223372036854775808", Scalar::Float(9_223_372_036_854_775_808.0)),
            ("1.5", Scalar::Float(1.5)),
            ("-2e3", Scalar::Float(-2_000.0)),
            ("007", text("007")),
            ("1.", text("1.")),
            ("-", text("-")),
            ("12 x", text("12 x")),
            ("2024-05-01", text("2024-05-01")),
            ("true", Scalar::Boolean(true)),
            ("false", Scalar::Boolean(false)),
            ("True", text("True")),
            ("null", text("null")),
        ] {
            assert_eq!(Scalar::of_header(header), value, "{header}");
        }
    }

    #[test]
    fn what_is_quoted_can_stand_in_a_header_and_reads_the_same() {
        for given in ["", "plain", "a\r\nb: c\0", "\"\\", "ü ß 漢 🚌", "\u{7f}\u{80}"] {
            let header = quoted(given);
            assert!(hyper::header::HeaderValue::from_str(&header).unwrap().to_str().is_ok(), "{header}");
            assert_eq!(Scalar::of_header(&header), Scalar::Text(given.into()));
        }
    }

    #[test]
    fn what_is_not_single_is_refused() {
        for nested in ["[]", "{}", "[1]", "{\"a\":1}"] {
            assert!(serde_json::from_str::<Scalar>(nested).is_err());
        }
        assert_eq!(
            serde_json::from_str::<Scalar>("18446744073709551615").unwrap(),
            Scalar::Float(1.8446744073709552e19)
        );
    }
}
