//! Definitions as they are stored (docs/format/items.md), and how they are found again.

use super::{Container, Database, Definitions, Document, Gone, IndexState, Offer, Stamp, container};
use crate::keys::{self, Kind};
use crate::record::{put_throughput, take_throughput};
use crate::view::{Changes, Direction, Unreadable, View};
use crate::{PartitionKey, Time, json, rid, wire};
use bytes::Bytes;
use std::sync::Arc;

/// The first byte of every stored definition.
pub const VERSION: u8 = 1;

impl Stamp {
    fn put(self, out: &mut Vec<u8>) {
        wire::put_signed(out, self.at.0);
        wire::put(out, self.change);
    }

    fn take(from: &mut wire::Reader) -> Option<Stamp> {
        Some(Stamp { at: Time(from.signed()?), change: from.number()? })
    }
}

impl Definitions {
    pub fn load(view: &dyn View) -> Result<Definitions, Unreadable> {
        let mut definitions = Definitions::default();
        let malformed = |key: &[u8]| Unreadable(format!("the definition {key:02x?} is malformed"));
        if let Some(value) = view.get(keys::ACCOUNT)? {
            definitions.take_numbers(value).ok_or_else(|| malformed(keys::ACCOUNT))?;
        }
        let (from, to) = keys::definitions();
        for entry in view.scan(&from, &to, Direction::Ascending) {
            let (key, value) = entry?;
            definitions.take_definition(&key, value).ok_or_else(|| malformed(&key))?;
        }
        Ok(definitions)
    }

    /// The numbers of the account are stored with every change of a definition.
    pub fn put_numbers(&self, changes: &mut Changes) {
        let mut value = vec![VERSION];
        wire::put(&mut value, u64::from(self.next));
        wire::put(&mut value, self.changes);
        wire::put_signed(&mut value, self.time.0);
        changes.put(keys::ACCOUNT, value);
    }

    fn take_numbers(&mut self, value: Bytes) -> Option<()> {
        let mut from = wire::Reader::new(value);
        if from.byte()? != VERSION {
            return None;
        }
        self.next = from.small()?;
        self.changes = from.number()?;
        self.time = Time(from.signed()?);
        Some(())
    }

    fn take_definition(&mut self, key: &[u8], value: Bytes) -> Option<()> {
        let (kind, parent, number) = keys::definition_parts(key)?;
        let (parent, number) = (u32::try_from(parent).ok()?, u32::try_from(number).ok()?);
        let mut from = wire::Reader::new(value);
        if from.byte()? != VERSION {
            return None;
        }
        match kind {
            Kind::Database => {
                let stamp = Stamp::take(&mut from)?;
                self.insert_database(Database { number, stamp, name: from.text()?.into() });
            }
            Kind::Container => {
                let database_name = Arc::clone(&self.databases.get(&parent)?.name);
                self.insert_container(Container::take(parent, database_name, number, &mut from)?);
            }
            Kind::Offer => {
                let offer = Offer {
                    number,
                    stamp: Stamp::take(&mut from)?,
                    owner: from.small()?,
                    most: from.small()?,
                    throughput: take_throughput(&mut from)?,
                };
                self.offers.insert(number, offer);
            }
            Kind::Dropped => {
                self.dropped.insert(number);
            }
            kind => {
                let stamp = Stamp::take(&mut from)?;
                let body = from.rest();
                let document = Document { kind, parent, number, name: name_of(&body)?, stamp, body };
                self.documents.insert((kind, parent, number), Arc::new(document));
            }
        }
        Some(())
    }

    pub fn insert_database(&mut self, database: Database) {
        self.database_names.insert(database.name.to_string(), database.number);
        self.databases.insert(database.number, Arc::new(database));
    }

    pub fn insert_container(&mut self, container: Container) {
        self.container_names.insert((container.database, container.name.to_string()), container.number);
        self.containers.insert(container.number, Arc::new(container));
    }
}

/// The `id` in a document's body.
pub fn name_of(body: &[u8]) -> Option<String> {
    json::walk::string(json::walk::member(body, "id")?).map(|name| name.into_owned())
}

impl Database {
    pub fn put(&self, changes: &mut Changes) {
        let mut value = vec![VERSION];
        self.stamp.put(&mut value);
        wire::put_bytes(&mut value, self.name.as_bytes());
        changes.put(keys::definition(Kind::Database, 0, u64::from(self.number)), value);
    }
}

impl Container {
    /// A container as its definition says; `None` when that is malformed.
    pub fn new(
        database: &Database,
        number: u32,
        stamp: Stamp,
        definition: Bytes,
        index: IndexState,
        gone: Gone,
    ) -> Option<Container> {
        let settings = container::stored(&definition)?;
        let rid = rid::container(database.number, number);
        Some(Container {
            number,
            database: database.number,
            database_name: Arc::clone(&database.name),
            name: settings.name.as_str().into(),
            link: format!("dbs/{}/colls/{rid}/", rid::database(database.number)).into(),
            rid: rid.into(),
            stamp,
            definition,
            settings: Arc::new(settings),
            gone,
            index,
        })
    }

    pub fn put(&self, changes: &mut Changes) {
        let mut value = vec![VERSION];
        self.stamp.put(&mut value);
        for time in [self.gone.own_by, self.gone.written_by] {
            value.push(u8::from(time.is_some()));
            wire::put_signed(&mut value, time.unwrap_or_default().0);
        }
        wire::put(&mut value, self.gone.partitions.len() as u64);
        for (lsn, key) in &self.gone.partitions {
            wire::put(&mut value, *lsn);
            wire::put(&mut value, key.0.len() as u64);
            let mut parts = Vec::new();
            key.0.iter().for_each(|part| keys::push_part(&mut parts, part));
            wire::put_bytes(&mut value, &parts);
        }
        wire::put(&mut value, u64::from(self.index.generation));
        wire::put(&mut value, u64::from(self.index.swept));
        value.push(u8::from(self.index.built_to.is_some()));
        wire::put_bytes(&mut value, self.index.built_to.as_deref().unwrap_or_default());
        value.extend_from_slice(&self.definition);
        changes
            .put(keys::definition(Kind::Container, u64::from(self.database), u64::from(self.number)), value);
    }

    fn take(
        database: u32,
        database_name: Arc<str>,
        number: u32,
        from: &mut wire::Reader,
    ) -> Option<Container> {
        let stamp = Stamp::take(from)?;
        let mut times = [None, None];
        for time in &mut times {
            let is_some = from.byte()? == 1;
            let at = Time(from.signed()?);
            *time = is_some.then_some(at);
        }
        let mut partitions = Vec::new();
        for _ in 0..from.number()? {
            let lsn = from.number()?;
            let count = from.number()?;
            let parts = from.bytes()?;
            let mut rest = &parts[..];
            let key = (0..count).map(|_| keys::take_part(&mut rest)).collect::<Option<Vec<_>>>()?;
            partitions.push((lsn, PartitionKey(key)));
        }
        let gone = Gone { own_by: times[0], written_by: times[1], partitions };
        let (generation, swept) = (from.small()?.try_into().ok()?, from.small()?.try_into().ok()?);
        let is_building = from.byte()? == 1;
        let built_to = from.bytes()?;
        let index = IndexState { generation, swept, built_to: is_building.then_some(built_to) };
        let definition = std::mem::replace(from, wire::Reader::new(Bytes::new())).rest();
        let database = Database { number: database, name: database_name, stamp: Stamp::default() };
        Container::new(&database, number, stamp, definition, index, gone)
    }
}

impl Document {
    pub fn put(&self, changes: &mut Changes) {
        let mut value = vec![VERSION];
        self.stamp.put(&mut value);
        value.extend_from_slice(&self.body);
        changes.put(keys::definition(self.kind, u64::from(self.parent), u64::from(self.number)), value);
    }
}

impl Offer {
    pub fn put(&self, changes: &mut Changes) {
        let mut value = vec![VERSION];
        self.stamp.put(&mut value);
        wire::put(&mut value, u64::from(self.owner));
        wire::put(&mut value, u64::from(self.most));
        put_throughput(&mut value, &self.throughput);
        changes.put(keys::definition(Kind::Offer, 0, u64::from(self.number)), value);
    }
}
