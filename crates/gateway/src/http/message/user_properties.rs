//! User properties: one header each in HTTP, one entry of a map in AMQP (H-95).
//!
//! Coming in, a header that HTTP itself has a use for is never a property: some of them are secrets. Going out, a property
//! whose name cannot be a header's, or is one that HTTP has a use for, is left out, and so is a value that is not single.

use super::super::failure::Failure;
use super::super::heads::{Spelled, Spelling};
use super::dates::{http_date, time_span_text};
use super::scalar::{Scalar, quoted};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use broker::LocalTime;
use broker::limits::PROPERTIES_BYTES;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use message::codec::{begin_map, end_compound, write_descriptor, write_string};
use message::sections::section;
use message::{Value, View, ticks};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;

/// What a sender gave, as it will be stored.
#[derive(Debug, Default)]
pub(super) struct UserProperties {
    entries: Vec<u8>,
    names: BTreeSet<String>,
}

impl UserProperties {
    /// Every header that HTTP has no use for, in the spelling in which it came.
    pub(super) fn of_headers(headers: &HeaderMap, spelling: &Spelling) -> Result<UserProperties, Failure> {
        let mut properties = UserProperties::default();
        for name in headers.keys().filter(|name| !is_of_http(name.as_str())) {
            let mut values = headers.get_all(name).iter().map(text);
            let first = values.next().unwrap_or_default();
            // The same header twice is one with both values (RFC 9110, 5.3).
            let value = match values.next() {
                None => Scalar::of_header(&first),
                Some(second) => {
                    let others: Vec<String> = values.collect();
                    Scalar::Text([&[first, second], &others[..]].concat().join(", "))
                }
            };
            properties.add(spelling.of(name.as_str()), &value).map_err(Failure::Bad)?;
        }
        Ok(properties)
    }

    fn add(&mut self, name: &str, value: &Scalar) -> Result<(), String> {
        if !self.names.insert(name.to_owned()) {
            return Err(format!("The property '{name}' is set twice."));
        }
        write_string(&mut self.entries, name);
        let value = match value {
            Scalar::Null => Value::Null,
            Scalar::Boolean(value) => Value::Boolean(*value),
            Scalar::Integer(value) => Value::Long(*value),
            Scalar::Float(value) => Value::Double(value.to_bits()),
            Scalar::Text(text) => Value::String(text.clone()),
        };
        value.encode(&mut self.entries);
        if self.entries.len() > PROPERTIES_BYTES {
            return Err(format!("The properties have more than {PROPERTIES_BYTES} bytes."));
        }
        Ok(())
    }

    /// Appends the section; nothing, if there are no properties.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        if self.names.is_empty() {
            return;
        }
        write_descriptor(out, section::APPLICATION_PROPERTIES.into());
        let open = begin_map(out);
        out.extend_from_slice(&self.entries);
        end_compound(out, open, 2 * self.names.len() as u32);
    }
}

/// From an object of single values, as a batch has them (H-96).
impl<'de> Deserialize<'de> for UserProperties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UserProperties, D::Error> {
        deserializer.deserialize_map(Entries)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = UserProperties;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of properties")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<UserProperties, M::Error> {
        let mut properties = UserProperties::default();
        while let Some((name, value)) = map.next_entry::<String, Scalar>()? {
            properties.add(&name, &value).map_err(M::Error::custom)?;
        }
        Ok(properties)
    }
}

/// A header's value. Bytes that are not UTF-8 are what they were when headers were Latin 1.
fn text(value: &HeaderValue) -> String {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => text.to_owned(),
        Err(_) => value.as_bytes().iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// Adds the properties of a stored message to the headers of an answer, and their names as they are spelled to `names`.
pub(super) fn show(
    view: &View<'_>,
    headers: &mut HeaderMap,
    names: &mut Spelled,
) -> Result<(), message::Malformed> {
    for property in view.applications()? {
        let (spelled, value) = property?;
        let name = HeaderName::from_bytes(spelled.as_bytes()).ok().filter(|name| !is_of_http(name.as_str()));
        let value = shown(&value.value()?).and_then(|text| HeaderValue::from_str(&text).ok());
        if let Some((name, value)) = name.zip(value) {
            headers.append(name, value);
            names.0.push(spelled.to_owned());
        }
    }
    Ok(())
}

/// Texts and what has no other form in quotes, numbers and truths bare.
fn shown(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => "null".to_owned(),
        Value::Boolean(value) => value.to_string(),
        Value::Ubyte(value) => value.to_string(),
        Value::Ushort(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Ulong(value) => value.to_string(),
        Value::Byte(value) => value.to_string(),
        Value::Short(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Long(value) => value.to_string(),
        Value::Float(bits) => float(f32::from_bits(*bits), f32::is_finite(f32::from_bits(*bits))),
        Value::Double(bits) => float(f64::from_bits(*bits), f64::is_finite(f64::from_bits(*bits))),
        Value::Char(code) => quoted(char::from_u32(*code)?.encode_utf8(&mut [0; 4])),
        Value::Timestamp(milliseconds) => quoted(&http_date(LocalTime(*milliseconds))),
        Value::Uuid(bytes) => quoted(&uuid::Uuid::from_bytes(*bytes).to_string()),
        Value::String(text) | Value::Symbol(text) => quoted(text),
        Value::Binary(bytes) => quoted(&STANDARD.encode(bytes)),
        Value::Described(described) => described_text(&described.0, &described.1)?,
        Value::Decimal32(_)
        | Value::Decimal64(_)
        | Value::Decimal128(_)
        | Value::List(_)
        | Value::Map(_)
        | Value::Array(_) => return None,
    })
}

/// With a point or an exponent, so that it reads as a number of the same kind.
fn float(value: impl fmt::Debug, is_finite: bool) -> String {
    if is_finite { format!("{value:?}") } else { quoted(&format!("{value:?}")) }
}

/// What .NET clients write for types that AMQP does not have (A-4.3).
fn described_text(descriptor: &Value, value: &Value) -> Option<String> {
    match (descriptor, value) {
        (Value::Symbol(name), Value::String(text)) if name == "com.microsoft:uri" => Some(quoted(text)),
        (Value::Symbol(name), Value::Long(ticks)) if name == "com.microsoft:timespan" => {
            Some(quoted(&time_span_text(*ticks)))
        }
        (Value::Symbol(name), Value::Long(ticks)) if name == "com.microsoft:datetime-offset" => {
            Some(quoted(&http_date(LocalTime(ticks::to_ms(*ticks)))))
        }
        _ => None,
    }
}

/// Headers that are about the request and not about the message. `priority` is not among them: the documentation of the
/// service has it as an example of a property.
fn is_of_http(name: &str) -> bool {
    const FAMILIES: [&str; 6] = ["access-control-", "content-", "if-", "proxy-", "sec-", "servicebus"];
    const NAMES: [&str; 44] = [
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "accept-ranges",
        "age",
        "allow",
        "alt-svc",
        "authorization",
        "brokerproperties",
        "cache-control",
        "connection",
        "cookie",
        "date",
        "dnt",
        "etag",
        "expect",
        "expires",
        "forwarded",
        "from",
        "host",
        "keep-alive",
        "last-modified",
        "link",
        "location",
        "max-forwards",
        "origin",
        "pragma",
        "range",
        "referer",
        "retry-after",
        "server",
        "set-cookie",
        "strict-transport-security",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "vary",
        "via",
        "warning",
        "www-authenticate",
        // H-97
        "x-ms-retrypolicy",
    ];
    FAMILIES.iter().any(|family| name.starts_with(family)) || NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use message::sections::Sections;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn stored(properties: &UserProperties) -> Vec<(String, Value)> {
        let mut bytes = Vec::new();
        properties.write(&mut bytes);
        let sections = Sections::scan(&bytes).unwrap();
        let view = View { stored: &bytes, sections: &sections, overlay: None };
        let all = view.applications().unwrap().map(Result::unwrap);
        all.map(|(name, value)| (name.to_owned(), value.value().unwrap())).collect()
    }

    // H-95, H-97
    #[test]
    fn every_header_that_http_does_not_need_is_a_property() {
        let given = headers(&[
            ("Authorization", "secret"),
            ("ServiceBusSupplementaryAuthorization", "secret"),
            ("BrokerProperties", "{}"),
            ("Content-Type", "text/plain"),
            ("x-ms-retrypolicy", "NoRetry"),
            ("User-Agent", "me"),
            ("Priority", "\"High\""),
            ("Count", "12"),
            ("Is-New", "true"),
            ("Twice", "1"),
            ("Twice", "2"),
            ("Umlaut", "\"ü\""),
        ]);
        let properties =
            UserProperties::of_headers(&given, &Spelling::of_head(b"priority: \"High\"\r\nIS-new:true\r\n"))
                .unwrap();
        assert_eq!(
            stored(&properties),
            [
                ("priority".into(), "High".into()),
                ("count".into(), Value::Long(12)),
                ("IS-new".into(), Value::Boolean(true)),
                ("twice".into(), "1, 2".into()),
                ("umlaut".into(), "ü".into()),
            ]
        );
    }

    // H-95, S-4
    #[test]
    fn every_type_of_amqp_has_its_form_in_a_header() {
        let described = |name: &str, value| Value::Described(Box::new((Value::Symbol(name.into()), value)));
        for (value, header) in [
            (Value::from("High"), "\"High\""),
            (Value::Symbol("s".into()), "\"s\""),
            (Value::Boolean(true), "true"),
            (Value::Int(-5), "-5"),
            (Value::Ulong(u64::MAX), "18446744073709551615"),
            (Value::Double(1.0_f64.to_bits()), "1.0"),
            (Value::Float(0.1_f32.to_bits()), "0.1"),
            (Value::Double(f64::NAN.to_bits()), "\"NaN\""),
            (Value::Timestamp(1_404_264_747_000), "\"Wed, 02 Jul 2014 01:32:27 GMT\""),
            (Value::Uuid([1; 16]), "\"01010101-0101-0101-0101-010101010101\""),
            (Value::Char(0x1f68c), "\"\\ud83d\\ude8c\""),
            (Value::Binary(b"abc".to_vec()), "\"YWJj\""),
            (Value::Null, "null"),
            (described("com.microsoft:timespan", Value::Long(36_000_000_000)), "\"01:00:00\""),
            (described("com.microsoft:uri", "http://a/".into()), "\"http://a/\""),
            (
                described("com.microsoft:datetime-offset", Value::Long(635_398_615_470_000_000)),
                "\"Wed, 02 Jul 2014 01:32:27 GMT\"",
            ),
        ] {
            assert_eq!(shown(&value).as_deref(), Some(header), "{value:?}");
        }
        assert_eq!(shown(&Value::List(vec![])), None);
        assert_eq!(shown(&described("unknown", Value::Null)), None);
    }

    #[test]
    fn a_property_that_cannot_be_a_header_is_left_out() {
        let mut properties = UserProperties::default();
        for name in ["good", "two words", "Content-Length", "Authorization", "", "ü", "a:b"] {
            properties.add(name, &Scalar::Integer(1)).unwrap();
        }
        let mut bytes = Vec::new();
        properties.write(&mut bytes);
        let sections = Sections::scan(&bytes).unwrap();
        let mut headers = HeaderMap::new();
        let mut names = Spelled::default();
        show(&View { stored: &bytes, sections: &sections, overlay: None }, &mut headers, &mut names).unwrap();
        assert_eq!(names.0, ["good"]);
        assert_eq!(headers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["good"]);
    }

    // S-18
    #[test]
    fn properties_are_refused_before_they_take_more_room_than_they_may() {
        let json = format!("{{\"a\":\"{}\",\"b\":\"{}\"}}", "x".repeat(40_000), "x".repeat(40_000));
        let error = serde_json::from_str::<UserProperties>(&json).unwrap_err();
        assert!(error.to_string().contains("more than 65536 bytes"), "{error}");
        assert!(serde_json::from_str::<UserProperties>(r#"{"a":1,"a":2}"#).is_err());
        assert!(serde_json::from_str::<UserProperties>(r#"{"a":{"b":1}}"#).is_err());
    }
}
