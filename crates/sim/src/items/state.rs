//! What is stored after some command, in a map: every rule on items in a few lines.

use super::ask::{Ask, Content, Heard, Key, Match, Settings};
use super::feeds::{Change, ChangeKind};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub content: Content,
    pub written: i64,
    /// Counts writes: the order in the change feed, and who it is.
    pub order: u64,
    pub tag: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    has_database: bool,
    pub settings: Settings,
    pub items: BTreeMap<Key, Item>,
    /// The last write.
    pub order: u64,
}

impl State {
    fn is_expired(&self, item: &Item, now: i64) -> bool {
        let seconds = match (self.settings.ttl, item.content.ttl) {
            (None, _) | (_, Some(-1)) | (Some(-1), None) => return false,
            (Some(_), Some(own)) => own,
            (Some(default), None) => default,
        };
        item.written + seconds * 1_000 <= now
    }

    pub fn alive(&self, key: &Key, now: i64) -> Option<&Item> {
        self.items.get(key).filter(|item| !self.is_expired(item, now))
    }

    /// The item that is stored and has expired.
    pub fn expired(&self, key: &Key, now: i64) -> Option<&Item> {
        self.items.get(key).filter(|item| self.is_expired(item, now))
    }

    /// What everybody sees at `now`.
    pub fn all_alive(&self, now: i64) -> impl Iterator<Item = (&Key, &Item)> {
        self.items.iter().filter(move |(_, item)| !self.is_expired(item, now))
    }

    pub fn shown(&self, now: i64) -> BTreeMap<Key, u64> {
        self.all_alive(now).map(|(key, item)| (*key, item.content.number)).collect()
    }

    pub fn apply(&mut self, ask: &Ask, now: i64, changes: &mut Vec<Change>) -> Heard {
        match ask {
            Ask::Database => {
                let status = if std::mem::replace(&mut self.has_database, true) { 409 } else { 201 };
                done(status, None)
            }
            Ask::Container(settings) => {
                self.settings = *settings;
                done(201, None)
            }
            Ask::Set(settings) => {
                self.set(*settings, now);
                done(200, None)
            }
            Ask::Create { key, content } => match self.alive(key, now) {
                Some(_) => Heard::Refused { status: 409 },
                None => self.put(*key, *content, now, changes),
            },
            Ask::Upsert { key, content } => self.put(*key, *content, now, changes),
            Ask::Replace { key, content, matching } => match self.matching(key, now, matching) {
                Ok(_) => self.put(*key, *content, now, changes),
                Err(status) => Heard::Refused { status },
            },
            Ask::Patch { key, number, ttl, least, matching } => match self.matching(key, now, matching) {
                Ok(before) if before.number < *least => Heard::Refused { status: 412 },
                Ok(before) => {
                    let content = Content { number: *number, ttl: ttl.or(before.ttl), ..before };
                    self.put(*key, content, now, changes)
                }
                Err(status) => Heard::Refused { status },
            },
            Ask::Delete { key, matching } => match self.matching(key, now, matching) {
                Ok(_) => {
                    self.remove(*key, changes);
                    done(204, None)
                }
                Err(status) => Heard::Refused { status },
            },
            Ask::DeletePartition { partition } => {
                let of_partition = self.all_alive(now).map(|(key, _)| *key);
                let mut keys: Vec<Key> = of_partition.filter(|key| key.partition == *partition).collect();
                keys.sort_by_key(|key| key.path().id);
                keys.into_iter().for_each(|key| self.remove(key, changes));
                done(200, None)
            }
            Ask::Batch { partition, writes, creates_last } => {
                self.batch(*partition, writes, *creates_last, now, changes)
            }
            Ask::Advance { .. } => done(200, None),
        }
    }

    /// What had expired by now stays away, whatever the new setting is (C-41).
    fn set(&mut self, settings: Settings, now: i64) {
        let alive: BTreeMap<Key, Item> =
            self.all_alive(now).map(|(key, item)| (*key, item.clone())).collect();
        self.items = alive;
        self.settings = settings;
    }

    /// The item that a write wants to find; the status of the refusal otherwise.
    fn matching(&self, key: &Key, now: i64, matching: &Match) -> Result<Content, u16> {
        let item = self.alive(key, now).ok_or(404_u16)?;
        match matching {
            Match::Any => Ok(item.content),
            Match::Known(tag) if item.tag.as_ref() == Some(tag) => Ok(item.content),
            Match::Known(_) | Match::Nonsense => Err(412),
        }
    }

    fn put(&mut self, key: Key, content: Content, now: i64, changes: &mut Vec<Change>) -> Heard {
        let is_taken = self.all_alive(now).any(|(other, item)| {
            *other != key && other.partition == key.partition && item.content.unique == content.unique
        });
        if is_taken {
            return Heard::Refused { status: 409 };
        }
        let is_new = self.alive(&key, now).is_none();
        self.order += 1;
        self.items.insert(key, Item { content, written: now, order: self.order, tag: None });
        let kind = if is_new { ChangeKind::Created } else { ChangeKind::Replaced };
        changes.push(Change { key, kind, number: content.number });
        done(if is_new { 201 } else { 200 }, Some(content.number))
    }

    fn remove(&mut self, key: Key, changes: &mut Vec<Change>) {
        if let Some(item) = self.items.remove(&key) {
            changes.push(Change { key, kind: ChangeKind::Deleted, number: item.content.number });
        }
    }

    fn batch(
        &mut self,
        partition: u64,
        writes: &[(u64, Content)],
        creates_last: bool,
        now: i64,
        changes: &mut Vec<Change>,
    ) -> Heard {
        let mut attempt = self.clone();
        let (mut heard, mut made) = (Vec::new(), Vec::new());
        for (nth, (id, content)) in writes.iter().enumerate() {
            let key = Key { partition, id: *id };
            let is_create = creates_last && nth + 1 == writes.len();
            let refused = Heard::Refused { status: 409 };
            let done = match is_create && attempt.alive(&key, now).is_some() {
                true => refused,
                false => attempt.put(key, *content, now, &mut made),
            };
            match done {
                Heard::Done { status, .. } => heard.push(status),
                _ => {
                    let mut heard = vec![424; writes.len()];
                    heard[nth] = 409;
                    return Heard::Batch(heard);
                }
            }
        }
        *self = attempt;
        changes.append(&mut made);
        Heard::Batch(heard)
    }
}

fn done(status: u16, number: Option<u64>) -> Heard {
    Heard::Done { status, number, tag: None }
}
