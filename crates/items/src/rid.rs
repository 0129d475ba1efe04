//! Resource ids: where a resource is, in bytes, as text (P-27, P-28).
//!
//! ```text
//! database                  4 bytes
//! container                 8 bytes: its database, then 4 of its own with the highest bit set
//! user                      8 bytes: its database, then 4 of its own with the highest bit clear
//! permission               16 bytes: its user, then 8 of its own
//! item, script, range      16 bytes: its container, then a number of 60 bits, little-endian, below 4 bits that tell what it is
//! ```
//!
//! The text is base64 with `-` in place of `/`. What has been a rid is never given to something else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The bit that tells containers from users.
const CONTAINER: u32 = 1 << 31;

/// What kind of thing of a container a rid names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Child {
    Item,
    Range,
    Function,
    Trigger,
    Procedure,
    Conflict,
}

impl Child {
    fn nibble(self) -> u64 {
        match self {
            Child::Item => 0,
            Child::Conflict => 4,
            Child::Range => 5,
            Child::Function => 6,
            Child::Trigger => 7,
            Child::Procedure => 8,
        }
    }
}

pub fn database(number: u32) -> String {
    text(&number.to_be_bytes())
}

/// `number` has 31 bits.
pub fn container(database: u32, number: u32) -> String {
    text(&join(database, number | CONTAINER))
}

/// `number` has 31 bits.
pub fn user(database: u32, number: u32) -> String {
    text(&join(database, number & !CONTAINER))
}

pub fn permission(database: u32, user: u32, number: u64) -> String {
    text(&[join(database, user & !CONTAINER), number.to_le_bytes()].concat())
}

/// `number` has 60 bits.
pub fn child(database: u32, container: u32, kind: Child, number: u64) -> String {
    let own = (number & (u64::MAX >> 4) | kind.nibble() << 60).to_le_bytes();
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&join(database, container | CONTAINER));
    bytes[8..].copy_from_slice(&own);
    text(&bytes)
}

/// The number of an item, from its rid; `None`: it is none of an item of that container.
pub fn item_number(database: u32, container: u32, text: &str) -> Option<u64> {
    // Almost everything that is asked for here is an id.
    if text.len() != ITEM_CHARACTERS || !text.ends_with("==") {
        return None;
    }
    let bytes = bytes(text)?;
    let number = u64::from_le_bytes(bytes.get(8..)?.try_into().ok()?);
    (child(database, container, Child::Item, number) == text).then_some(number)
}

/// How long the text of a rid of sixteen bytes is.
const ITEM_CHARACTERS: usize = 24;

/// The bytes of a rid; `None`: it is none.
pub fn bytes(text: &str) -> Option<Vec<u8>> {
    // Longer ones exist for what is not kept here; none is long.
    if text.len() > 32 {
        return None;
    }
    let bytes = STANDARD.decode(text.replace('-', "/")).ok()?;
    matches!(bytes.len(), 4 | 8 | 16).then_some(bytes)
}

fn join(database: u32, own: u32) -> [u8; 8] {
    (u64::from(database) << 32 | u64::from(own)).to_be_bytes()
}

fn text(bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    if text.contains('/') { text.replace('/', "-") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P-27
    #[test]
    fn an_item_of_the_service_is_read_and_made_again() {
        let bytes = bytes("Jic9ANWdO-EFAAAAAAAAAA==").unwrap();
        assert_eq!(bytes.len(), 16);
        assert_eq!(child(0x2627_3D00, 0xD59D_3BF1, Child::Item, 5), "Jic9ANWdO-EFAAAAAAAAAA==");
    }

    // P-28
    #[test]
    fn a_database_has_eight_characters() {
        for number in [0, 1, 63, 0xFFFF_FFFF] {
            let rid = database(number);
            assert_eq!((rid.len(), &rid[6..]), (8, "=="));
            assert_eq!(bytes(&rid).unwrap(), number.to_be_bytes());
        }
    }

    #[test]
    fn containers_users_and_children_are_told_apart() {
        let bits = |rid: String| bytes(&rid).unwrap();
        assert_eq!(bits(container(7, 9)), [0, 0, 0, 7, 0x80, 0, 0, 9]);
        assert_eq!(bits(user(7, 9)), [0, 0, 0, 7, 0, 0, 0, 9]);
        assert_eq!(bits(permission(7, 9, 1))[..9], [0, 0, 0, 7, 0, 0, 0, 9, 1]);
        assert_eq!(bits(child(7, 9, Child::Range, 1))[8..], [1, 0, 0, 0, 0, 0, 0, 0x50]);
        assert_eq!(bits(child(7, 9, Child::Procedure, 1))[15], 0x80);
        assert_eq!(bits(child(7, 9, Child::Item, u64::MAX))[15], 0x0F);
    }

    #[test]
    fn an_item_is_known_by_its_own_rid_alone() {
        let own = child(7, 9, Child::Item, 300);
        assert_eq!(item_number(7, 9, &own), Some(300));
        assert_eq!(item_number(7, 8, &own), None);
        assert_eq!(item_number(7, 9, &child(7, 9, Child::Procedure, 300)), None);
        assert_eq!(item_number(7, 9, &container(7, 9)), None);
        for id in ["", "300", "AAAAAAAAAAAAAAAAAAAAAA==", "not a rid, but 24 long.=="] {
            assert_eq!(item_number(7, 9, id), None, "{id}");
        }
    }

    #[test]
    fn what_is_no_rid_is_none() {
        for text in ["", "a", "AAAA", "AAAA/A==", "not base64!", &"A".repeat(10_000)] {
            let read = bytes(text);
            assert!(read.is_none() || text == "AAAA/A==", "{text}");
        }
    }
}
