//! Where everything stands in the ordered store (docs/format/items.md).
//!
//! ```text
//! 00 ..                                        the engine's own
//! 01                                           numbers of the account
//! 02 kind parent(8) number(8)                  definitions: databases, containers, offers, scripts, users, ...
//! 10 container(4) 00                           numbers of a container: transactions, items, bytes
//! 10 container(4) 01 place                     items
//! 10 container(4) 02 class lsn(8) index(2)     order of changes: the write time and the item's place
//! 10 container(4) 03 lsn(8) index(2)           events of the feed of all versions and deletes
//! 10 container(4) 04 expiry(8) place           items with a time to live of their own, in the order in which they expire
//! 10 container(4) 05 key(1) partition values   unique keys: the item's place
//! 10 container(4) 06 generation(2) path(8) value place   index entries
//! 10 container(4) 07 number(8)                 items by the number in their rid: the item's place
//! ```
//!
//! `place` is the effective partition key, the partition key and the id: a logical partition, a range of effective keys and
//! a container are each one range of keys. Numbers are big-endian. No key is longer than [`limits::KEY_BYTES`].
//!
//! [`limits::KEY_BYTES`]: crate::limits::KEY_BYTES

use crate::order::{from_ordered_bits, from_ordered_i64, ordered_bits, ordered_i64, push_text, take_text};
use crate::{KeyPart, PartitionKey, Time};
use bytes::Bytes;

pub const ACCOUNT: &[u8] = &[0x01];
const DEFINITION: u8 = 0x02;
const CONTAINER: u8 = 0x10;

/// What a definition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    Database = 1,
    Container = 2,
    Offer = 3,
    Procedure = 4,
    Trigger = 5,
    Function = 6,
    User = 7,
    Permission = 8,
    EncryptionKey = 9,
    /// A deleted container whose keys are still being removed.
    Dropped = 10,
}

impl Kind {
    pub fn of(byte: u8) -> Option<Kind> {
        use Kind::*;
        let all = [
            Database,
            Container,
            Offer,
            Procedure,
            Trigger,
            Function,
            User,
            Permission,
            EncryptionKey,
            Dropped,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A part of a container's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Section {
    Numbers = 0,
    Items = 1,
    Changes = 2,
    Events = 3,
    Expiry = 4,
    Unique = 5,
    Index = 6,
    Rids = 7,
}

pub fn definition(kind: Kind, parent: u64, number: u64) -> Bytes {
    let mut key = Vec::with_capacity(18);
    key.extend_from_slice(&[DEFINITION, kind as u8]);
    key.extend_from_slice(&parent.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key.into()
}

/// All definitions, as a range of keys.
pub fn definitions() -> (Vec<u8>, Vec<u8>) {
    (vec![DEFINITION], vec![DEFINITION + 1])
}

pub fn definition_parts(key: &[u8]) -> Option<(Kind, u64, u64)> {
    if key.len() != 18 || key[0] != DEFINITION {
        return None;
    }
    let parent = u64::from_be_bytes(key[2..10].try_into().ok()?);
    let number = u64::from_be_bytes(key[10..].try_into().ok()?);
    Some((Kind::of(key[1])?, parent, number))
}

pub fn container(container: u32) -> Vec<u8> {
    let mut key = Vec::with_capacity(SECTION_BYTES);
    key.push(CONTAINER);
    key.extend_from_slice(&container.to_be_bytes());
    key
}

pub fn section(container: u32, section: Section) -> Vec<u8> {
    section_and(container, section, 0)
}

/// A section with room for so many bytes and no more: what becomes `Bytes` with room left over takes a second allocation.
fn section_and(container: u32, section: Section, more: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(SECTION_BYTES + more);
    push_section(&mut key, container, section);
    key
}

pub fn push_section(key: &mut Vec<u8>, container: u32, section: Section) {
    key.push(CONTAINER);
    key.extend_from_slice(&container.to_be_bytes());
    key.push(section as u8);
}

/// Bytes in front of what a section's keys differ in.
pub const SECTION_BYTES: usize = 6;

pub fn numbers(container: u32) -> Bytes {
    section(container, Section::Numbers).into()
}

pub fn item(container: u32, place: &[u8]) -> Vec<u8> {
    let mut key = section_and(container, Section::Items, place.len());
    key.extend_from_slice(place);
    key
}

/// Whether an item has a time to live of its own: those without stand in the order of their write time by themselves, which is
/// the order in which the container's default expires them (C-27).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    Default = 0,
    Own = 1,
}

/// Which write of which transaction of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Version {
    pub lsn: u64,
    pub index: u16,
}

pub fn change(container: u32, class: Class, version: Version) -> Vec<u8> {
    let mut key = section_and(container, Section::Changes, 11);
    key.push(class as u8);
    key.extend_from_slice(&version.lsn.to_be_bytes());
    key.extend_from_slice(&version.index.to_be_bytes());
    key
}

pub fn change_version(key: &[u8]) -> Option<Version> {
    version(key.get(SECTION_BYTES + 1..)?)
}

pub fn event(container: u32, version: Version) -> Vec<u8> {
    let mut key = section_and(container, Section::Events, 10);
    key.extend_from_slice(&version.lsn.to_be_bytes());
    key.extend_from_slice(&version.index.to_be_bytes());
    key
}

pub fn event_version(key: &[u8]) -> Option<Version> {
    version(key.get(SECTION_BYTES..)?)
}

fn version(bytes: &[u8]) -> Option<Version> {
    if bytes.len() != 10 {
        return None;
    }
    Some(Version {
        lsn: u64::from_be_bytes(bytes[..8].try_into().ok()?),
        index: u16::from_be_bytes(bytes[8..].try_into().ok()?),
    })
}

/// Where the place of the item with this number is told.
pub fn by_rid(container: u32, number: u64) -> Vec<u8> {
    let mut key = section_and(container, Section::Rids, 8);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

pub fn expiry(container: u32, at: Time, place: &[u8]) -> Vec<u8> {
    let mut key = section_and(container, Section::Expiry, 8 + place.len());
    key.extend_from_slice(&ordered_i64(at.0).to_be_bytes());
    key.extend_from_slice(place);
    key
}

/// When the item of an expiry entry expires, and its place.
pub fn expiry_parts(key: &[u8]) -> Option<(Time, &[u8])> {
    let behind = key.get(SECTION_BYTES..)?;
    let at = u64::from_be_bytes(behind.get(..8)?.try_into().ok()?);
    Some((Time(from_ordered_i64(at)), &behind[8..]))
}

/// The place of an item. `effective` are the bytes of the effective partition key.
pub fn place(effective: &[u8], key: &PartitionKey, id: &str) -> Vec<u8> {
    let mut place = partition(effective, key);
    place.extend_from_slice(id.as_bytes());
    place
}

/// What the places of a logical partition begin with; with fewer parts than the definition has, those of all that begin so.
pub fn partition(effective: &[u8], key: &PartitionKey) -> Vec<u8> {
    let mut place = Vec::with_capacity(effective.len() + 64);
    push_text(&mut place, effective);
    for part in &key.0 {
        push_part(&mut place, part);
    }
    place
}

pub fn push_part(out: &mut Vec<u8>, part: &KeyPart) {
    match part {
        KeyPart::Undefined => out.push(0),
        KeyPart::Null => out.push(1),
        KeyPart::Bool(false) => out.push(2),
        KeyPart::Bool(true) => out.push(3),
        KeyPart::Number(number) => {
            out.push(5);
            out.extend_from_slice(&ordered_bits(*number).to_be_bytes());
        }
        KeyPart::String(text) => {
            out.push(8);
            push_text(out, text.as_bytes());
        }
    }
}

pub fn take_part(from: &mut &[u8]) -> Option<KeyPart> {
    let (&tag, behind) = from.split_first()?;
    *from = behind;
    Some(match tag {
        0 => KeyPart::Undefined,
        1 => KeyPart::Null,
        2 => KeyPart::Bool(false),
        3 => KeyPart::Bool(true),
        5 => {
            let (bits, behind) = from.split_at_checked(8)?;
            *from = behind;
            KeyPart::Number(from_ordered_bits(u64::from_be_bytes(bits.try_into().ok()?)))
        }
        8 => KeyPart::String(String::from_utf8(take_text(from)?).ok()?),
        _ => return None,
    })
}

/// Effective key, partition key of `parts` levels and id of a place.
pub fn place_parts(place: &[u8], parts: usize) -> Option<(Vec<u8>, PartitionKey, &str)> {
    let mut rest = place;
    let effective = take_text(&mut rest)?;
    let mut key = Vec::with_capacity(parts);
    for _ in 0..parts {
        key.push(take_part(&mut rest)?);
    }
    Some((effective, PartitionKey(key), std::str::from_utf8(rest).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_can_be_taken_apart() {
        let key = PartitionKey(vec![
            KeyPart::String("a\0b".into()),
            KeyPart::Number(-1.5),
            KeyPart::Undefined,
            KeyPart::Null,
            KeyPart::Bool(true),
        ]);
        let place = place(&[1, 0, 2], &key, "an id");
        assert_eq!(place_parts(&place, 5), Some((vec![1, 0, 2], key, "an id")));
        assert_eq!(place_parts(&place[..4], 5), None);
    }

    #[test]
    fn keys_of_definitions_changes_and_expiry_can_be_taken_apart() {
        let version = Version { lsn: 7, index: 3 };
        assert_eq!(definition_parts(&definition(Kind::User, 5, 9)), Some((Kind::User, 5, 9)));
        assert_eq!(change_version(&change(1, Class::Own, version)), Some(version));
        assert_eq!(event_version(&event(1, version)), Some(version));
        assert_eq!(expiry_parts(&expiry(1, Time(-5), b"place")), Some((Time(-5), &b"place"[..])));
        assert!(expiry(1, Time(-5), b"") < expiry(1, Time(5), b""));
    }
}
