//! What happened, as it is written to the journal (docs/format/items.md).
//!
//! Records say what happened, not which bytes change in the store: applying them makes those, so old data opens with newer
//! code. A record carries the time at which it was decided, and numbers that are never reused, never names.

use crate::keys::Kind;
use crate::{PartitionKey, Throughput, Time, keys, wire};
use bytes::Bytes;

/// The version of the encoding: the first byte of every record.
pub const VERSION: u8 = 1;

#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub at: Time,
    pub event: Event,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The time is at least `Record::at`: moved by a test, or noted so that no restart takes it back (C-42).
    TimeMoved,
    DatabaseCreated {
        database: u32,
        name: String,
        offer: Option<(u32, Throughput)>,
    },
    /// With its containers, users and offers.
    DatabaseDeleted {
        database: u32,
    },
    /// `definition` is JSON, whole, without system properties.
    ContainerCreated {
        database: u32,
        container: u32,
        definition: Bytes,
        offer: Option<(u32, Throughput)>,
    },
    ContainerReplaced {
        container: u32,
        definition: Bytes,
    },
    ContainerDeleted {
        container: u32,
    },
    /// A script, user, permission or encryption key was made or replaced. `body` is JSON without system properties.
    DocumentWritten {
        kind: Kind,
        parent: u32,
        number: u32,
        body: Bytes,
    },
    /// With what belongs to it.
    DocumentDeleted {
        kind: Kind,
        parent: u32,
        number: u32,
    },
    OfferReplaced {
        offer: u32,
        throughput: Throughput,
    },
    /// One transaction of a container: all of it or nothing.
    ItemsWritten {
        container: u32,
        lsn: u64,
        writes: Vec<Write>,
    },
    /// Everything with this key, or beginning with it, that was written up to `lsn` is gone; the purge removes it.
    PartitionDeleted {
        container: u32,
        lsn: u64,
        key: PartitionKey,
    },
    /// Nothing is left of what `PartitionDeleted` with this `lsn` hid.
    PartitionPurged {
        container: u32,
        lsn: u64,
    },
    /// Events of the feed of all versions and deletes up to `lsn` are past their retention.
    EventsForgotten {
        container: u32,
        lsn: u64,
    },
    /// The first `most` keys of a deleted container, as they are in the store, are removed.
    ContainerSwept {
        container: u32,
        most: u32,
    },
    /// The index has the entries of all items up to this place; of all there are without one.
    IndexBuilt {
        container: u32,
        to: Option<Bytes>,
    },
    /// The first `most` entries of an index that a change of the policy left behind are removed.
    IndexSwept {
        container: u32,
        most: u32,
    },
}

/// What a transaction did to one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// `number` is the item's, for its rid; `ttl` its own time to live, 0 without; `body` its JSON without system properties.
    Put {
        place: Bytes,
        number: u64,
        ttl: i32,
        body: Bytes,
    },
    Remove {
        place: Bytes,
        why: Why,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Why {
    /// Somebody asked for it.
    Deleted = 0,
    /// Its time to live had passed (C-34).
    Expired = 1,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("record of version {0}; this program reads version {VERSION}")]
    Version(u8),
    #[error("record of unknown kind {0}")]
    Kind(u8),
    #[error("record is cut short or malformed")]
    Malformed,
}

impl Record {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        wire::put_signed(out, self.at.0);
        self.event.encode(out);
    }

    pub fn decode(bytes: &Bytes) -> Result<Record, Error> {
        let mut from = wire::Reader::new(bytes.clone());
        match from.byte().ok_or(Error::Malformed)? {
            VERSION => {}
            other => return Err(Error::Version(other)),
        }
        let at = Time(from.signed().ok_or(Error::Malformed)?);
        let kind = from.byte().ok_or(Error::Malformed)?;
        if kind > 15 {
            return Err(Error::Kind(kind));
        }
        let event = Event::decode(kind, &mut from).ok_or(Error::Malformed)?;
        if !from.is_empty() {
            return Err(Error::Malformed);
        }
        Ok(Record { at, event })
    }
}

impl Event {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Event::TimeMoved => out.push(0),
            Event::DatabaseCreated { database, name, offer } => {
                out.push(1);
                wire::put(out, u64::from(*database));
                wire::put_bytes(out, name.as_bytes());
                put_offer(out, offer);
            }
            Event::DatabaseDeleted { database } => {
                out.push(2);
                wire::put(out, u64::from(*database));
            }
            Event::ContainerCreated { database, container, definition, offer } => {
                out.push(3);
                wire::put(out, u64::from(*database));
                wire::put(out, u64::from(*container));
                wire::put_bytes(out, definition);
                put_offer(out, offer);
            }
            Event::ContainerReplaced { container, definition } => {
                out.push(4);
                wire::put(out, u64::from(*container));
                wire::put_bytes(out, definition);
            }
            Event::ContainerDeleted { container } => {
                out.push(5);
                wire::put(out, u64::from(*container));
            }
            Event::DocumentWritten { kind, parent, number, body } => {
                out.push(6);
                out.push(*kind as u8);
                wire::put(out, u64::from(*parent));
                wire::put(out, u64::from(*number));
                wire::put_bytes(out, body);
            }
            Event::DocumentDeleted { kind, parent, number } => {
                out.push(7);
                out.push(*kind as u8);
                wire::put(out, u64::from(*parent));
                wire::put(out, u64::from(*number));
            }
            Event::OfferReplaced { offer, throughput } => {
                out.push(8);
                wire::put(out, u64::from(*offer));
                put_throughput(out, throughput);
            }
            Event::ItemsWritten { container, lsn, writes } => {
                out.push(9);
                wire::put(out, u64::from(*container));
                wire::put(out, *lsn);
                wire::put(out, writes.len() as u64);
                writes.iter().for_each(|write| write.encode(out));
            }
            Event::PartitionDeleted { container, lsn, key } => {
                out.push(10);
                wire::put(out, u64::from(*container));
                wire::put(out, *lsn);
                let mut parts = Vec::new();
                key.0.iter().for_each(|part| keys::push_part(&mut parts, part));
                wire::put(out, key.0.len() as u64);
                wire::put_bytes(out, &parts);
            }
            Event::PartitionPurged { container, lsn } => {
                out.push(11);
                wire::put(out, u64::from(*container));
                wire::put(out, *lsn);
            }
            Event::EventsForgotten { container, lsn } => {
                out.push(12);
                wire::put(out, u64::from(*container));
                wire::put(out, *lsn);
            }
            Event::ContainerSwept { container, most } => {
                out.push(13);
                wire::put(out, u64::from(*container));
                wire::put(out, u64::from(*most));
            }
            Event::IndexBuilt { container, to } => {
                out.push(14);
                wire::put(out, u64::from(*container));
                out.push(u8::from(to.is_some()));
                wire::put_bytes(out, to.as_deref().unwrap_or_default());
            }
            Event::IndexSwept { container, most } => {
                out.push(15);
                wire::put(out, u64::from(*container));
                wire::put(out, u64::from(*most));
            }
        }
    }

    fn decode(kind: u8, from: &mut wire::Reader) -> Option<Event> {
        Some(match kind {
            0 => Event::TimeMoved,
            1 => Event::DatabaseCreated {
                database: from.small()?,
                name: from.text()?,
                offer: take_offer(from)?,
            },
            2 => Event::DatabaseDeleted { database: from.small()? },
            3 => Event::ContainerCreated {
                database: from.small()?,
                container: from.small()?,
                definition: from.bytes()?,
                offer: take_offer(from)?,
            },
            4 => Event::ContainerReplaced { container: from.small()?, definition: from.bytes()? },
            5 => Event::ContainerDeleted { container: from.small()? },
            6 => Event::DocumentWritten {
                kind: Kind::of(from.byte()?)?,
                parent: from.small()?,
                number: from.small()?,
                body: from.bytes()?,
            },
            7 => Event::DocumentDeleted {
                kind: Kind::of(from.byte()?)?,
                parent: from.small()?,
                number: from.small()?,
            },
            8 => Event::OfferReplaced { offer: from.small()?, throughput: take_throughput(from)? },
            9 => Event::ItemsWritten {
                container: from.small()?,
                lsn: from.number()?,
                writes: {
                    let count = from.number()?;
                    // A write has at least two bytes: a count that the rest cannot hold is false.
                    if count > from.remaining() as u64 / 2 {
                        return None;
                    }
                    (0..count).map(|_| Write::decode(from)).collect::<Option<Vec<_>>>()?
                },
            },
            10 => Event::PartitionDeleted {
                container: from.small()?,
                lsn: from.number()?,
                key: {
                    let count = from.number()?;
                    let parts = from.bytes()?;
                    let mut rest = &parts[..];
                    let mut key = Vec::new();
                    for _ in 0..count {
                        key.push(keys::take_part(&mut rest)?);
                    }
                    rest.is_empty().then_some(PartitionKey(key))?
                },
            },
            11 => Event::PartitionPurged { container: from.small()?, lsn: from.number()? },
            12 => Event::EventsForgotten { container: from.small()?, lsn: from.number()? },
            13 => Event::ContainerSwept { container: from.small()?, most: from.small()? },
            14 => Event::IndexBuilt {
                container: from.small()?,
                to: {
                    let is_some = from.byte()? == 1;
                    let to = from.bytes()?;
                    is_some.then_some(to)
                },
            },
            15 => Event::IndexSwept { container: from.small()?, most: from.small()? },
            _ => return None,
        })
    }
}

impl Write {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Write::Put { place, number, ttl, body } => {
                out.push(0);
                wire::put_bytes(out, place);
                wire::put(out, *number);
                wire::put_signed(out, i64::from(*ttl));
                wire::put_bytes(out, body);
            }
            Write::Remove { place, why } => {
                out.push(1 + *why as u8);
                wire::put_bytes(out, place);
            }
        }
    }

    fn decode(from: &mut wire::Reader) -> Option<Write> {
        Some(match from.byte()? {
            0 => Write::Put {
                place: from.bytes()?,
                number: from.number()?,
                ttl: from.signed()?.try_into().ok()?,
                body: from.bytes()?,
            },
            1 => Write::Remove { place: from.bytes()?, why: Why::Deleted },
            2 => Write::Remove { place: from.bytes()?, why: Why::Expired },
            _ => return None,
        })
    }
}

fn put_offer(out: &mut Vec<u8>, offer: &Option<(u32, Throughput)>) {
    match offer {
        None => out.push(0),
        Some((number, throughput)) => {
            out.push(1);
            wire::put(out, u64::from(*number));
            put_throughput(out, throughput);
        }
    }
}

fn take_offer(from: &mut wire::Reader) -> Option<Option<(u32, Throughput)>> {
    Some(match from.byte()? {
        0 => None,
        1 => Some((from.small()?, take_throughput(from)?)),
        _ => return None,
    })
}

pub(crate) fn put_throughput(out: &mut Vec<u8>, throughput: &Throughput) {
    let (kind, units) = match throughput {
        Throughput::Fixed(units) => (0, *units),
        Throughput::Autoscale { most, increment_percent: 0 } => (1, *most),
        Throughput::Autoscale { most, .. } => (2, *most),
    };
    out.push(kind);
    wire::put(out, u64::from(units));
    if let Throughput::Autoscale { increment_percent: percent @ 1.., .. } = throughput {
        wire::put(out, u64::from(*percent));
    }
}

pub(crate) fn take_throughput(from: &mut wire::Reader) -> Option<Throughput> {
    Some(match from.byte()? {
        0 => Throughput::Fixed(from.small()?),
        1 => Throughput::Autoscale { most: from.small()?, increment_percent: 0 },
        2 => Throughput::Autoscale { most: from.small()?, increment_percent: from.small()? },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyPart;

    fn one_of_each() -> Vec<Event> {
        let place = || Bytes::from_static(b"place");
        vec![
            Event::TimeMoved,
            Event::DatabaseCreated {
                database: 1,
                name: "d".into(),
                offer: Some((2, Throughput::Fixed(400))),
            },
            Event::DatabaseDeleted { database: 1 },
            Event::ContainerCreated {
                database: 1,
                container: 3,
                definition: "{}".into(),
                offer: Some((4, Throughput::Autoscale { most: 4000, increment_percent: 0 })),
            },
            Event::ContainerReplaced { container: 3, definition: "{}".into() },
            Event::ContainerDeleted { container: 3 },
            Event::DocumentWritten { kind: Kind::User, parent: 1, number: 5, body: "{}".into() },
            Event::DocumentDeleted { kind: Kind::User, parent: 1, number: 5 },
            Event::OfferReplaced { offer: 2, throughput: Throughput::Fixed(500) },
            Event::OfferReplaced {
                offer: 2,
                throughput: Throughput::Autoscale { most: 5000, increment_percent: 300 },
            },
            Event::ItemsWritten {
                container: 3,
                lsn: 9,
                writes: vec![
                    Write::Put { place: place(), number: 1, ttl: -1, body: "{}".into() },
                    Write::Remove { place: place(), why: Why::Deleted },
                    Write::Remove { place: place(), why: Why::Expired },
                ],
            },
            Event::PartitionDeleted {
                container: 3,
                lsn: 9,
                key: PartitionKey(vec![KeyPart::Null, KeyPart::String("x".into())]),
            },
            Event::PartitionPurged { container: 3, lsn: 9 },
            Event::EventsForgotten { container: 3, lsn: 8 },
            Event::ContainerSwept { container: 3, most: 1000 },
            Event::IndexBuilt { container: 3, to: Some(place()) },
            Event::IndexBuilt { container: 3, to: None },
            Event::IndexSwept { container: 3, most: 1000 },
        ]
    }

    #[test]
    fn every_record_comes_back_as_it_was_and_none_that_is_cut_does() {
        for (at, event) in one_of_each().into_iter().enumerate() {
            let record = Record { at: Time(at as i64 - 3), event };
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(Record::decode(&Bytes::from(bytes.clone())), Ok(record));
            for end in 0..bytes.len() {
                assert!(Record::decode(&Bytes::copy_from_slice(&bytes[..end])).is_err());
            }
            bytes.push(0);
            assert_eq!(Record::decode(&Bytes::from(bytes)), Err(Error::Malformed));
        }
    }

    #[test]
    fn a_record_of_a_later_version_or_kind_says_so() {
        assert_eq!(Record::decode(&Bytes::from_static(&[2, 0, 0])), Err(Error::Version(2)));
        assert_eq!(Record::decode(&Bytes::from_static(&[1, 0, 99])), Err(Error::Kind(99)));
    }
}
