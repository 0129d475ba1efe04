//! Unique keys: no two items of a logical partition have the same values at the paths of one (5.2).

use crate::definition::container::Settings;
use crate::effective_key::{self, Hashing};
use crate::json::{self, Value, walk};
use crate::keys::{self, Section};
use crate::{KeyPart, Refusal, limits};

/// The entries that an item holds: one for each unique key. A path that the item lacks counts as null.
pub fn entries(container: u32, settings: &Settings, place: &[u8], text: &[u8]) -> Vec<Vec<u8>> {
    if settings.unique_keys.is_empty() {
        return Vec::new();
    }
    let partition = partition_of(place, settings.key_paths.len());
    let mut entries = Vec::with_capacity(settings.unique_keys.len());
    for (index, paths) in settings.unique_keys.iter().enumerate() {
        let mut key = keys::section(container, Section::Unique);
        key.push(index as u8);
        key.extend_from_slice(partition);
        let start = key.len();
        for names in paths {
            let mut value = Some(text);
            for name in names {
                value = value
                    .filter(|text| text.first() == Some(&b'{'))
                    .and_then(|text| walk::member(text, name));
            }
            let value = value.and_then(|text| json::parse(text).ok()).unwrap_or(Value::Null);
            json::sort_key(&value, &mut key);
        }
        shorten(&mut key, start);
        entries.push(key);
    }
    entries
}

/// Long values stand for themselves by a hash of 128 bits.
fn shorten(key: &mut Vec<u8>, start: usize) {
    if key.len() - start <= limits::UNIQUE_VALUE_BYTES {
        return;
    }
    let text = effective_key::upper_hex(&key[start..]);
    key.truncate(start);
    // No value begins with FF.
    key.push(0xFF);
    key.extend_from_slice(&effective_key::bytes(&[KeyPart::String(text)], Hashing::V2));
}

/// What the places of the same logical partition begin with.
pub fn partition_of(place: &[u8], parts: usize) -> &[u8] {
    match keys::place_parts(place, parts) {
        Some((_, _, id)) => &place[..place.len() - id.len()],
        None => place,
    }
}

pub fn taken() -> Refusal {
    Refusal::Conflict("Unique index constraint violation.".to_owned())
}
