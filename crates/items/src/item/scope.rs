//! Which part of a container a feed or query is about, as ranges of places.

use super::{body, ttl};
use crate::definition::Container;
use crate::definition::container::Settings;
use crate::keys::{self, Section};
use crate::{PartitionKey, Refusal, effective_key, order};

/// Places with `from <= place < to`, as bytes of the items section; and the key that they begin with, when one was named.
#[derive(Debug, Clone, PartialEq)]
pub struct Scope {
    pub from: Vec<u8>,
    /// `None`: to the end.
    pub to: Option<Vec<u8>>,
    pub key: Option<PartitionKey>,
}

impl Scope {
    pub fn all() -> Scope {
        Scope { from: Vec::new(), to: None, key: None }
    }

    pub fn of(settings: &Settings, scope: &crate::Scope) -> Result<Scope, Refusal> {
        match scope {
            crate::Scope::All | crate::Scope::WithoutLeave => Ok(Scope::all()),
            crate::Scope::Key(key) => Ok(Scope::of_key(settings, &body::key_or_prefix(settings, key)?)),
            crate::Scope::Range(range) => {
                let bound = |text: &str| {
                    let bytes = effective_key::from_hex(text).ok_or_else(|| {
                        Refusal::bad("A bound of the effective partition key is not hexadecimal.")
                    })?;
                    Ok::<_, Refusal>(open(&bytes))
                };
                Ok(Scope { from: bound(&range.start)?, to: Some(bound(&range.end)?), key: None })
            }
        }
    }

    /// Everything of a key, which may be a prefix.
    pub fn of_key(settings: &Settings, key: &PartitionKey) -> Scope {
        if key.0.len() == settings.key_paths.len() {
            let from = keys::partition(&effective_key::bytes(&key.0, settings.hashing), key);
            let to = Some(order::end_of_prefix(&from));
            return Scope { from, to, key: Some(key.clone()) };
        }
        let (from, to) = effective_key::range(&key.0, settings.hashing);
        Scope { from: open(&from), to: Some(open(&to)), key: Some(key.clone()) }
    }

    /// Whether it is one logical partition.
    pub fn is_one_partition(&self, settings: &Settings) -> bool {
        self.key.as_ref().is_some_and(|key| key.0.len() == settings.key_paths.len())
    }

    pub fn has(&self, settings: &Settings, place: &[u8]) -> bool {
        let is_between = *place >= self.from[..] && self.to.as_ref().is_none_or(|to| *place < to[..]);
        is_between
            && match &self.key {
                // The range of a whole key has nothing else in it.
                Some(key) if key.0.len() < settings.key_paths.len() => {
                    let parts = keys::place_parts(place, settings.key_paths.len());
                    parts.is_some_and(|(_, own, _)| ttl::begins_with(&own, key))
                }
                _ => true,
            }
    }

    /// The items of the scope, as a range of keys.
    pub fn items(&self, container: &Container) -> (Vec<u8>, Vec<u8>) {
        let from = keys::item(container.number, &self.from);
        let to = match &self.to {
            Some(to) => keys::item(container.number, to),
            None => order::end_of_prefix(&keys::section(container.number, Section::Items)),
        };
        (from, to)
    }
}

/// The least place with an effective key that is not below this one.
fn open(effective: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(effective.len() + 2);
    order::push_open_text(&mut place, effective);
    place
}
