//! The body of an item as a client sends it: what it must hold, its id, its partition key, its own text.

use super::stored::Ttl;
use super::ttl;
use crate::definition::check_id;
use crate::definition::container::Settings;
use crate::effective_key::{self, Hashing};
use crate::json::{self, walk};
use crate::{KeyPart, PartitionKey, Refusal, keys, limits};
use bytes::Bytes;
use std::borrow::Cow;
use std::ops::Range;

/// An item that may be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Body {
    pub id: String,
    pub key: PartitionKey,
    pub place: Bytes,
    pub ttl: Ttl,
    /// JSON without system properties (P-29).
    pub text: Bytes,
}

/// System properties: the server writes them.
pub const SYSTEM: [&str; 5] = ["_rid", "_self", "_etag", "_ts", "_attachments"];

impl Body {
    /// Checks a body against the container and the partition key of the request's header (P-33).
    pub fn read(settings: &Settings, header: Option<&PartitionKey>, text: &Bytes) -> Result<Body, Refusal> {
        if text.len() > limits::ITEM_BYTES {
            return Err(Refusal::TooLarge { bytes: text.len(), limit: limits::ITEM_BYTES });
        }
        let (text, seen) = checked(text, settings)?;
        let of = |range: &Option<Range<usize>>| range.clone().map(|range| &text[range]);
        // The member of a plain partition key was met on the way.
        let key = match (&settings.key_paths[..], &seen) {
            ([names], Some(seen)) if names.len() == 1 => PartitionKey(vec![part_of(of(&seen.key))?]),
            _ => key_of(settings, &text)?,
        };
        check_key(&key)?;
        if let Some(header) = header {
            let header = whole_key(settings, header)?;
            if header != key {
                return Err(Refusal::PartitionKeyMismatch);
            }
        }
        let (id, ttl) = match &seen {
            Some(seen) => (of(&seen.id), of(&seen.ttl)),
            None => (walk::member(&text, "id"), walk::member(&text, "ttl")),
        };
        let id = id_of(id)?;
        let ttl = ttl::read(ttl, settings.default_ttl.is_some())?;
        let place = place(settings, &key, &id).into();
        Ok(Body { id, key, place, ttl, text })
    }
}

/// Where members stand in the text.
#[derive(Default)]
struct Seen {
    id: Option<Range<usize>>,
    ttl: Option<Range<usize>>,
    /// The first name of the first partition key path.
    key: Option<Range<usize>>,
}

/// The text as it is kept: sound JSON, an object, each name once, no system properties. With it, where the members are that everybody
/// looks for, unless the text had to be made anew.
fn checked(text: &Bytes, settings: &Settings) -> Result<(Bytes, Option<Seen>), Refusal> {
    let bad = |error: json::Error| Refusal::bad(format!("The item's body is invalid: {error}."));
    let (sound, members) = json::members_without_duplicates(text).map_err(bad)?;
    let (sound, members): (Bytes, _) = match sound {
        Cow::Borrowed(_) => (text.clone(), members),
        Cow::Owned(rewritten) => (rewritten.into(), None),
    };
    let start = sound.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
    let end = sound.iter().rposition(|byte| !byte.is_ascii_whitespace()).map_or(0, |last| last + 1);
    let sound = sound.slice(start..end);
    if sound.first() != Some(&b'{') {
        return Err(Refusal::bad("The item's body is not a JSON object."));
    }
    let members = match members {
        Some(members) => members,
        None => {
            let bytes = |name| match name {
                Cow::Borrowed(name) => Cow::Borrowed(str::as_bytes(name)),
                Cow::Owned(name) => Cow::Owned(String::into_bytes(name)),
            };
            walk::members(&sound)
                .map_err(bad)?
                .into_iter()
                .map(|(name, value)| (bytes(name), value))
                .collect()
        }
    };
    let key_name = settings.key_paths.first().and_then(|names| names.first()).map_or("", String::as_str);
    let is_empty = members.is_empty();
    let mut seen = Seen::default();
    let mut has_system = false;
    for (name, value) in members {
        let start = value.as_ptr() as usize - sound.as_ptr() as usize;
        let range = || Some(start..start + value.len());
        match &*name {
            b"id" => seen.id = range(),
            b"ttl" => seen.ttl = range(),
            [b'_', ..] => has_system |= SYSTEM.iter().any(|system| *name == *system.as_bytes()),
            _ => {}
        }
        if *name == *key_name.as_bytes() {
            seen.key = range();
        }
    }
    if is_empty {
        return Ok((Bytes::from_static(b"{}"), None));
    }
    if has_system {
        return Ok((without_system(&sound).map_err(bad)?, None));
    }
    // Nothing stands between the last member and the brace, so that system properties can follow.
    let before = sound[..sound.len() - 1].trim_ascii_end().len();
    if before + 1 == sound.len() {
        return Ok((sound, Some(seen)));
    }
    Ok(([&sound[..before], b"}"].concat().into(), Some(seen)))
}

/// Whether a name between its quotes is one of a system property.
pub fn is_system(name: &[u8]) -> bool {
    matches!(name.first(), Some(b'_' | b'\\')) && SYSTEM.iter().any(|system| walk::is_name(name, system))
}

fn without_system(text: &[u8]) -> Result<Bytes, json::Error> {
    let mut own = Vec::with_capacity(text.len());
    own.push(b'{');
    let mut members = walk::Members::of(text)?;
    while let Some((name, value)) = members.next_member()? {
        if is_system(name) {
            continue;
        }
        if own.len() > 1 {
            own.push(b',');
        }
        own.push(b'"');
        own.extend_from_slice(name);
        own.extend_from_slice(b"\":");
        own.extend_from_slice(value);
    }
    own.push(b'}');
    Ok(own.into())
}

/// P-30
fn id_of(text: Option<&[u8]>) -> Result<String, Refusal> {
    let Some(id) = text.and_then(walk::string) else {
        return Err(Refusal::bad(
            "The input content is invalid because the required property 'id' is missing or no text.",
        ));
    };
    check_id(&id, limits::ITEM_ID_BYTES, limits::ITEM_ID_BYTES + 1)?;
    Ok(id.into_owned())
}

/// The partition key that the text holds.
pub fn key_of(settings: &Settings, text: &[u8]) -> Result<PartitionKey, Refusal> {
    let parts = settings.key_paths.iter().map(|names| {
        let mut value = Some(text);
        for name in names {
            value =
                value.filter(|text| text.first() == Some(&b'{')).and_then(|text| walk::member(text, name));
        }
        part_of(value)
    });
    let key = PartitionKey(parts.collect::<Result<_, _>>()?);
    check_key(&key)?;
    Ok(key)
}

fn part_of(value: Option<&[u8]>) -> Result<KeyPart, Refusal> {
    let Some(text) = value else {
        return Ok(KeyPart::Undefined);
    };
    let bad = || Refusal::bad("A partition key value is a text, a number, true, false or null.");
    Ok(match walk::kind(text) {
        Some(walk::Kind::Null) => KeyPart::Null,
        Some(walk::Kind::Bool(fact)) => KeyPart::Bool(fact),
        Some(walk::Kind::Number) => KeyPart::Number(walk::number(text).ok_or_else(bad)?.as_f64()),
        Some(walk::Kind::String) => KeyPart::String(walk::string(text).ok_or_else(bad)?.into_owned()),
        // Clients tell no key for what is no scalar, as if nothing were there.
        Some(walk::Kind::Array | walk::Kind::Object) => KeyPart::Undefined,
        None => return Err(bad()),
    })
}

/// A key from a header that must be whole: one part for each path; `[]` counts as all undefined.
pub fn whole_key(settings: &Settings, key: &PartitionKey) -> Result<PartitionKey, Refusal> {
    let paths = settings.key_paths.len();
    if key.0.is_empty() {
        return Ok(PartitionKey(vec![KeyPart::Undefined; paths]));
    }
    if key.0.len() != paths {
        return Err(Refusal::PartitionKeyParts { parts: key.0.len(), paths });
    }
    check_key(key)?;
    Ok(key.clone())
}

/// A key that may have fewer parts than there are paths, of a feed, a query or a delete by partition key.
pub fn key_or_prefix(settings: &Settings, key: &PartitionKey) -> Result<PartitionKey, Refusal> {
    if settings.hashing == Hashing::Multi && key.0.is_empty() {
        return Err(Refusal::bad("A prefix of a hierarchical partition key has at least one part."));
    }
    let is_prefix = settings.hashing == Hashing::Multi && key.0.len() < settings.key_paths.len();
    if !is_prefix {
        return whole_key(settings, key);
    }
    check_key(key)?;
    Ok(key.clone())
}

/// P-43
fn check_key(key: &PartitionKey) -> Result<(), Refusal> {
    let limit = limits::KEY_VALUE_BYTES;
    for part in &key.0 {
        if let KeyPart::String(text) = part
            && text.len() > limit
        {
            return Err(Refusal::bad(format!("A partition key value has {} bytes of {limit}.", text.len())));
        }
    }
    Ok(())
}

/// Where an item with this key and id stands.
pub fn place(settings: &Settings, key: &PartitionKey, id: &str) -> Vec<u8> {
    keys::place(&effective_key::bytes(&key.0, settings.hashing), key, id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::container;

    fn settings(definition: &str) -> Settings {
        container::read(definition.as_bytes(), None).unwrap().1
    }

    fn plain() -> Settings {
        settings(r#"{"id":"c","partitionKey":{"paths":["/pk"],"version":2}}"#)
    }

    fn read(text: &str) -> Result<Body, Refusal> {
        Body::read(&plain(), None, &Bytes::copy_from_slice(text.as_bytes()))
    }

    // P-29, P-35
    #[test]
    fn system_properties_are_left_out_and_the_rest_keeps_its_text() {
        for (sent, kept) in [
            (r#"{"id":"a","n":1.50}"#, r#"{"id":"a","n":1.50}"#),
            (" {\"id\" : \"a\" , \"n\":1e2 } ", "{\"id\" : \"a\" , \"n\":1e2}"),
            (
                r#"{"_rid":"x","id":"a","_ts":1,"n":{"_ts":2},"_etag":"e","_self":"s","_attachments":"z"}"#,
                r#"{"id":"a","n":{"_ts":2}}"#,
            ),
            (r#"{"id":"a","\u005fts":1}"#, r#"{"id":"a"}"#),
            (r#"{"id":"a","n":1,"n":2}"#, r#"{"id":"a","n":2}"#),
        ] {
            assert_eq!(read(sent).unwrap().text, kept, "{sent}");
        }
    }

    // P-30
    #[test]
    fn an_id_is_a_text_of_1_to_1023_bytes() {
        let with_id = |id: &str| read(&format!(r#"{{"id":"{id}"}}"#));
        assert!(with_id(&"x".repeat(1023)).is_ok());
        for good in ["a?b", "a ", "a\\tb", "a\\r\\n"] {
            assert!(with_id(good).is_ok(), "{good}");
        }
        let told = with_id(&"x".repeat(1024)).unwrap_err().to_string();
        assert!(told.ends_with("less than '1024' characters."), "{told}");
        for bad in [&"x".repeat(1024), "", "a/b", "a#b", "a\\\\b"] {
            assert!(matches!(with_id(bad), Err(Refusal::BadRequest(_))), "{bad}");
        }
        for bad in ["{}", r#"{"id":1}"#, r#"{"id":null}"#, "[]", "1", "", "{"] {
            assert!(matches!(read(bad), Err(Refusal::BadRequest(_))), "{bad}");
        }
    }

    // P-36
    #[test]
    fn an_item_has_two_mebibytes_and_128_levels() {
        let sized = |bytes: usize| read(&format!(r#"{{"id":"a","x":"{}"}}"#, "x".repeat(bytes - 17)));
        assert!(sized(limits::ITEM_BYTES).is_ok());
        assert!(matches!(sized(limits::ITEM_BYTES + 1), Err(Refusal::TooLarge { .. })));
        let nested =
            |depth: usize| read(&format!(r#"{{"id":"a","x":{}{}}}"#, "[".repeat(depth), "]".repeat(depth)));
        assert!(nested(limits::NESTING - 1).is_ok());
        assert!(nested(limits::NESTING).is_err());
    }

    // P-33, P-38, P-39
    #[test]
    fn the_key_of_the_body_must_be_the_one_of_the_header() {
        for (value, part) in [
            (r#","pk":"x""#, KeyPart::String("x".into())),
            (r#","pk":1.5"#, KeyPart::Number(1.5)),
            (r#","pk":true"#, KeyPart::Bool(true)),
            (r#","pk":null"#, KeyPart::Null),
            ("", KeyPart::Undefined),
        ] {
            let text = Bytes::from(format!(r#"{{"id":"a"{value}}}"#));
            let body = Body::read(&plain(), Some(&PartitionKey(vec![part.clone()])), &text).unwrap();
            assert_eq!(body.key, PartitionKey(vec![part]));
            assert_eq!(
                Body::read(&plain(), Some(&PartitionKey::of_string("other")), &text),
                Err(Refusal::PartitionKeyMismatch)
            );
        }
        let missing = Bytes::from_static(br#"{"id":"a"}"#);
        assert!(Body::read(&plain(), Some(&PartitionKey(vec![])), &missing).is_ok());
        let refused =
            Body::read(&plain(), Some(&PartitionKey(vec![KeyPart::Null; 2])), &missing).unwrap_err();
        assert_eq!(
            (refused.status(), refused),
            ((400, 1001), Refusal::PartitionKeyParts { parts: 2, paths: 1 })
        );
        for no_scalar in ["{}", r#"{"a":1}"#, "[1]"] {
            let text = format!(r#"{{"id":"a","pk":{no_scalar}}}"#);
            assert_eq!(read(&text).unwrap().key, PartitionKey(vec![KeyPart::Undefined]), "{no_scalar}");
        }
    }

    // P-40, P-43
    #[test]
    fn hierarchical_keys_have_a_part_for_each_path_and_long_ones_are_refused() {
        let three = settings(
            r#"{"id":"c","partitionKey":{"paths":["/a","/b/c","/\"d-e\""],"kind":"MultiHash","version":2}}"#,
        );
        let text = Bytes::from_static(br#"{"id":"i","a":"x","b":{"c":1},"d-e":null}"#);
        let body = Body::read(&three, None, &text).unwrap();
        assert_eq!(body.key.0, [KeyPart::String("x".into()), KeyPart::Number(1.0), KeyPart::Null]);
        let v1 = settings(r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#);
        let limit = 2048;
        for settings in [plain(), v1] {
            let with_key = |bytes: usize| {
                let text = format!(r#"{{"id":"a","pk":"{}"}}"#, "k".repeat(bytes));
                Body::read(&settings, None, &text.into())
            };
            assert!(with_key(limit).is_ok());
            assert!(with_key(limit + 1).is_err());
        }
    }
}
