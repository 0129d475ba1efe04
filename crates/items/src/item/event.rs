//! Events of the feed of all versions and deletes, for containers that keep them (P-73).

use super::stored::Stored;
use crate::definition::{Container, show};
use crate::keys::Version;
use crate::record::Why;
use crate::view::Unreadable;
use crate::{Time, json, keys, wire};
use bytes::Bytes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub kind: Kind,
    pub at: Time,
    /// The transaction that made what was there before; 0: nothing was.
    pub previous_lsn: u64,
    pub place: Bytes,
    /// The item after the change; empty after a delete.
    pub current: Bytes,
    /// The item before it; empty when there was none.
    pub previous: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Created = 0,
    Replaced = 1,
    Deleted = 2,
    Expired = 3,
}

const FORMAT: u8 = 1;

impl Event {
    pub fn of(old: Option<&Stored>, new: Option<&Stored>, why: Why, at: Time, place: &Bytes) -> Event {
        let kind = match (old, new, why) {
            (Some(old), Some(new), _) if old.number == new.number => Kind::Replaced,
            (_, Some(_), _) => Kind::Created,
            (_, None, Why::Deleted) => Kind::Deleted,
            (_, None, Why::Expired) => Kind::Expired,
        };
        let old = old.filter(|_| kind != Kind::Created);
        Event {
            kind,
            at,
            previous_lsn: old.map_or(0, |old| old.version.lsn),
            place: place.clone(),
            current: new.map(|new| new.text.clone()).unwrap_or_default(),
            previous: old.map(|old| old.text.clone()).unwrap_or_default(),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT, self.kind as u8];
        wire::put_signed(&mut out, self.at.0);
        wire::put(&mut out, self.previous_lsn);
        wire::put_bytes(&mut out, &self.place);
        wire::put_bytes(&mut out, &self.current);
        wire::put_bytes(&mut out, &self.previous);
        out
    }

    pub fn decode(bytes: Bytes) -> Result<Event, Unreadable> {
        let take = || {
            let mut from = wire::Reader::new(bytes);
            if from.byte()? != FORMAT {
                return None;
            }
            let kind = match from.byte()? {
                0 => Kind::Created,
                1 => Kind::Replaced,
                2 => Kind::Deleted,
                3 => Kind::Expired,
                _ => return None,
            };
            Some(Event {
                kind,
                at: Time(from.signed()?),
                previous_lsn: from.number()?,
                place: from.bytes()?,
                current: from.bytes()?,
                previous: from.bytes()?,
            })
        };
        take().ok_or_else(|| Unreadable("an event of a container is malformed".to_owned()))
    }

    /// As the feed shows it.
    pub fn show(&self, container: &Container, version: Version) -> Bytes {
        let operation = match self.kind {
            Kind::Created => "create",
            Kind::Replaced => "replace",
            Kind::Deleted | Kind::Expired => "delete",
        };
        let mut text = b"{\"current\":".to_vec();
        let or_empty = |text: &Bytes| if text.is_empty() { Bytes::from_static(b"{}") } else { text.clone() };
        text.extend_from_slice(&or_empty(&self.current));
        if !self.previous.is_empty() {
            text.extend_from_slice(b",\"previous\":");
            text.extend_from_slice(&self.previous);
        }
        let metadata = format!(
            ",\"metadata\":{{\"operationType\":\"{operation}\",\"lsn\":{},\"crts\":{},\"previousImageLSN\":{},\"timeToLiveExpired\":{}",
            version.lsn,
            self.at.seconds(),
            self.previous_lsn,
            self.kind == Kind::Expired
        );
        text.extend_from_slice(metadata.as_bytes());
        let paths = &container.settings.key_paths;
        if let Some((_, key, id)) = keys::place_parts(&self.place, paths.len())
            && self.current.is_empty()
        {
            text.extend_from_slice(b",\"id\":");
            json::write_text(id, &mut text);
            text.extend_from_slice(b",\"partitionKey\":");
            let members = paths.iter().zip(&key.0).filter_map(|(names, part)| {
                Some((names.last()?.clone(), crate::partition_key::value_of(part)?))
            });
            json::write(&json::Value::Object(json::Object(members.collect())), &mut text);
        }
        text.extend_from_slice(b"}}");
        show::with_members(&text, "")
    }
}
