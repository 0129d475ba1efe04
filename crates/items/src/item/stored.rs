//! An item as it is stored, and the numbers of its container.
//!
//! The text is the one that clients read, system properties included, so that reading copies nothing. It begins with what the client wrote:
//! `own` bytes of it and a closing brace are the client's own text.

use crate::definition::{Container, show};
use crate::keys::{self, Class, Version};
use crate::view::{Changes, Unreadable, View};
use crate::{Document, Time, rid, wire};
use bytes::Bytes;

/// The time to live in an item, as far as it is one (C-23).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    Absent,
    /// -1.
    Never,
    Seconds(i32),
}

impl Ttl {
    /// As a number: 0 is absent.
    pub fn number(self) -> i32 {
        match self {
            Ttl::Absent => 0,
            Ttl::Never => -1,
            Ttl::Seconds(seconds) => seconds,
        }
    }

    pub fn of(number: i32) -> Ttl {
        match number {
            1.. => Ttl::Seconds(number),
            -1 => Ttl::Never,
            _ => Ttl::Absent,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// For its rid; never given twice in a container.
    pub number: u64,
    /// The write that made it what it is.
    pub version: Version,
    pub written: Time,
    pub ttl: Ttl,
    /// Bytes of `text` that are the client's, without the closing brace.
    pub own: u32,
    pub text: Bytes,
    /// All of it as it is stored; `text` is its end.
    value: Bytes,
}

const FORMAT: u8 = 1;
/// Format, time to live, number, version, write time, own bytes.
const HEADER_BYTES: usize = 1 + 4 + 8 + 10 + 8 + 4;

impl Stored {
    /// The item that this write makes. `body` is the client's text without system properties, and a JSON object.
    pub fn new(
        container: &Container,
        number: u64,
        version: Version,
        written: Time,
        ttl: Ttl,
        body: &[u8],
    ) -> Stored {
        let own = body.len().saturating_sub(1);
        let rid = rid::child(container.database, container.number, rid::Child::Item, number);
        let etag = show::etag(version, written);
        let system = [
            if own > 1 { ",\"_rid\":\"" } else { "\"_rid\":\"" },
            &rid,
            "\",\"_self\":\"",
            &container.link,
            "docs/",
            &rid,
            "/\",\"_etag\":\"\\\"",
            &etag[1..etag.len() - 1],
            "\\\"\",\"_attachments\":\"attachments/\",\"_ts\":",
            &written.seconds().to_string(),
            "}",
        ];
        // Exactly as long as it gets: what becomes `Bytes` with room left over takes a second allocation.
        let behind: usize = system.iter().map(|piece| piece.len()).sum();
        let mut value = Vec::with_capacity(HEADER_BYTES + own + behind);
        value.push(FORMAT);
        value.extend_from_slice(&ttl.number().to_be_bytes());
        value.extend_from_slice(&number.to_be_bytes());
        value.extend_from_slice(&version.lsn.to_be_bytes());
        value.extend_from_slice(&version.index.to_be_bytes());
        value.extend_from_slice(&written.0.to_be_bytes());
        value.extend_from_slice(&(own as u32).to_be_bytes());
        value.extend_from_slice(&body[..own]);
        system.iter().for_each(|piece| value.extend_from_slice(piece.as_bytes()));
        let value = Bytes::from(value);
        let text = value.slice(HEADER_BYTES..);
        Stored { number, version, written, ttl, own: own as u32, text, value }
    }

    /// As it is stored.
    pub fn encoded(&self) -> &Bytes {
        &self.value
    }

    pub fn decode(value: &Bytes) -> Result<Stored, Unreadable> {
        let malformed = || Unreadable("an item is malformed".to_owned());
        let header: &[u8; HEADER_BYTES] = value.first_chunk().ok_or_else(malformed)?;
        let own = u32::from_be_bytes(array(&header[31..35]));
        let text = value.slice(HEADER_BYTES..);
        if header[0] != FORMAT || own as usize >= text.len() {
            return Err(malformed());
        }
        let ttl = Ttl::of(i32::from_be_bytes(array(&header[1..5])));
        let version = Version {
            lsn: u64::from_be_bytes(array(&header[13..21])),
            index: u16::from_be_bytes(array(&header[21..23])),
        };
        let number = u64::from_be_bytes(array(&header[5..13]));
        let written = Time(i64::from_be_bytes(array(&header[23..31])));
        Ok(Stored { number, version, written, ttl, own, text, value: value.clone() })
    }

    pub fn read(view: &dyn View, container: u32, place: &[u8]) -> Result<Option<Stored>, Unreadable> {
        view.get(&keys::item(container, place))?.map(|value| Stored::decode(&value)).transpose()
    }

    pub fn etag(&self) -> String {
        show::etag(self.version, self.written)
    }

    pub fn document(&self) -> Document {
        Document { body: self.text.clone(), etag: self.etag() }
    }

    /// The client's own text: without system properties.
    pub fn own_text(&self) -> Vec<u8> {
        let mut text = self.text[..self.own as usize].to_vec();
        text.push(b'}');
        text
    }

    /// Items with a time to live of their own, `-1` too, do not follow the container's default.
    pub fn class(&self) -> Class {
        if self.ttl == Ttl::Absent { Class::Default } else { Class::Own }
    }

    /// When its own time to live ends it.
    pub fn own_expiry(&self) -> Option<Time> {
        match self.ttl {
            Ttl::Seconds(seconds) => Some(self.written.after_ms(i64::from(seconds) * 1_000)),
            Ttl::Absent | Ttl::Never => None,
        }
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

/// What is counted of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Numbers {
    /// The number of the last transaction; it never goes back (P-84).
    pub lsn: u64,
    /// Items ever made.
    pub made: u64,
    /// Items stored, those included that are gone but not removed.
    pub items: u64,
    /// Their texts.
    pub bytes: u64,
    /// The time of the last transaction.
    pub written: Time,
    /// Events of the feed of all versions and deletes up to this transaction are forgotten.
    pub forgotten: u64,
}

impl Numbers {
    pub fn read(view: &dyn View, container: u32) -> Result<Numbers, Unreadable> {
        let Some(value) = view.get(&keys::numbers(container))? else {
            return Ok(Numbers::default());
        };
        let take = || {
            let mut from = wire::Reader::new(value);
            if from.byte()? != FORMAT {
                return None;
            }
            Some(Numbers {
                lsn: from.number()?,
                made: from.number()?,
                items: from.number()?,
                bytes: from.number()?,
                written: Time(from.signed()?),
                forgotten: from.number()?,
            })
        };
        take().ok_or_else(|| Unreadable("the numbers of a container are malformed".to_owned()))
    }

    pub fn put(&self, container: u32, changes: &mut Changes) {
        let mut value = Vec::with_capacity(40);
        value.push(FORMAT);
        for number in [self.lsn, self.made, self.items, self.bytes] {
            wire::put(&mut value, number);
        }
        wire::put_signed(&mut value, self.written.0);
        wire::put(&mut value, self.forgotten);
        changes.put(keys::numbers(container), value);
    }
}
