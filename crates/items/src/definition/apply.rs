//! What a record changes in the definitions, and in the store beside items.

use super::{Container, Database, Definitions, Document, Gone, IndexState, Offer, Stamp, offer, store};
use crate::item::stored::{Numbers, Stored};
use crate::keys::{self, Kind, Section};
use crate::record::{Event, Record};
use crate::view::{Changes, Direction, Unreadable, View};
use crate::{PartitionKey, Throughput, Time, index, order};
use bytes::Bytes;
use std::sync::Arc;

impl Definitions {
    pub fn apply(
        &mut self,
        record: &Record,
        view: &dyn View,
        changes: &mut Changes,
    ) -> Result<(), Unreadable> {
        let at = record.at;
        self.time = self.time.max(at);
        match &record.event {
            Event::TimeMoved => {}
            Event::DatabaseCreated { database, name, offer } => {
                self.create_database(*database, name, offer, at, changes);
            }
            Event::DatabaseDeleted { database } => self.delete_database(*database, at, changes),
            Event::ContainerCreated { database, container, definition, offer } => {
                self.create_container(*database, *container, definition, offer, at, changes);
            }
            Event::ContainerReplaced { container, definition } => {
                self.replace_container(*container, definition, at, view, changes)?;
            }
            Event::ContainerDeleted { container } => {
                self.stamp(at);
                self.drop_container(*container, changes);
            }
            Event::DocumentWritten { kind, parent, number, body } => {
                self.write_document(*kind, *parent, *number, body, at, changes);
            }
            Event::DocumentDeleted { kind, parent, number } => {
                self.stamp(at);
                self.drop_document(*kind, *parent, *number, changes);
            }
            Event::OfferReplaced { offer, throughput } => {
                self.replace_offer(*offer, *throughput, at, changes);
            }
            // Taken in by the account, without a copy of the definitions.
            Event::ItemsWritten { .. } => {}
            Event::PartitionDeleted { container, lsn, key } => {
                self.delete_partition(*container, *lsn, key, at, view, changes)?;
            }
            Event::PartitionPurged { container, lsn } => {
                self.change_container(*container, changes, |container| {
                    container.gone.partitions.retain(|(deleted, _)| deleted != lsn);
                });
            }
            Event::EventsForgotten { container, lsn } => forget_events(*container, *lsn, view, changes)?,
            Event::ContainerSwept { container, most } => {
                self.sweep_container(*container, *most, view, changes)?;
            }
            Event::IndexBuilt { container, to } => {
                self.build_index(*container, to.as_ref(), view, changes)?
            }
            Event::IndexSwept { container, most } => self.sweep_index(*container, *most, view, changes)?,
        }
        self.put_numbers(changes);
        Ok(())
    }

    /// The stamp of the change that is being applied.
    fn stamp(&mut self, at: Time) -> Stamp {
        self.changes += 1;
        Stamp { at, change: self.changes }
    }

    fn took(&mut self, number: u32) {
        self.next = self.next.max(number + 1);
    }

    fn add_offer(
        &mut self,
        owner: u32,
        offer: &Option<(u32, Throughput)>,
        stamp: Stamp,
        changes: &mut Changes,
    ) {
        if let Some((number, throughput)) = *offer {
            let made = Offer { number, owner, throughput, most: offer::units(throughput), stamp };
            made.put(changes);
            self.offers.insert(number, made);
            self.took(number);
        }
    }

    fn change_container(
        &mut self,
        container: u32,
        changes: &mut Changes,
        change: impl FnOnce(&mut Container),
    ) {
        if let Some(held) = self.containers.get_mut(&container) {
            let held = Arc::make_mut(held);
            change(held);
            held.put(changes);
        }
    }

    fn create_database(
        &mut self,
        database: u32,
        name: &str,
        offer: &Option<(u32, Throughput)>,
        at: Time,
        changes: &mut Changes,
    ) {
        let stamp = self.stamp(at);
        let made = Database { number: database, name: name.into(), stamp };
        made.put(changes);
        self.insert_database(made);
        self.took(database);
        self.add_offer(database, offer, stamp, changes);
    }

    fn create_container(
        &mut self,
        database: u32,
        container: u32,
        definition: &Bytes,
        offer: &Option<(u32, Throughput)>,
        at: Time,
        changes: &mut Changes,
    ) {
        let stamp = self.stamp(at);
        let owner = self.databases.get(&database).cloned();
        let made = owner.and_then(|owner| {
            let (index, gone) = (IndexState::default(), Gone::default());
            Container::new(&owner, container, stamp, definition.clone(), index, gone)
        });
        if let Some(made) = made {
            made.put(changes);
            self.insert_container(made);
        }
        self.took(container);
        self.add_offer(container, offer, stamp, changes);
    }

    fn write_document(
        &mut self,
        kind: Kind,
        parent: u32,
        number: u32,
        body: &Bytes,
        at: Time,
        changes: &mut Changes,
    ) {
        let stamp = self.stamp(at);
        let name = store::name_of(body).unwrap_or_default();
        let made = Document { kind, parent, number, name, stamp, body: body.clone() };
        made.put(changes);
        self.documents.insert((kind, parent, number), Arc::new(made));
        self.took(number);
    }

    fn replace_offer(&mut self, offer: u32, throughput: Throughput, at: Time, changes: &mut Changes) {
        let stamp = self.stamp(at);
        if let Some(container) = self.containers.get(&offer)
            && !self.offers.contains_key(&offer)
        {
            // From now on somebody did ask for it.
            self.offers.insert(offer, container.default_offer());
        }
        if let Some(held) = self.offers.get_mut(&offer) {
            held.throughput = throughput;
            held.most = held.most.max(offer::units(throughput));
            held.stamp = stamp;
            held.put(changes);
        }
    }

    /// Hides the items of a partition key; the purge removes them.
    fn delete_partition(
        &mut self,
        container: u32,
        lsn: u64,
        key: &PartitionKey,
        at: Time,
        view: &dyn View,
        changes: &mut Changes,
    ) -> Result<(), Unreadable> {
        let mut numbers = Numbers::read(view, container)?;
        numbers.lsn = lsn;
        numbers.written = numbers.written.max(at);
        numbers.put(container, changes);
        self.change_container(container, changes, |container| {
            container.gone.partitions.push((lsn, key.clone()));
        });
        Ok(())
    }

    fn sweep_container(
        &mut self,
        container: u32,
        most: u32,
        view: &dyn View,
        changes: &mut Changes,
    ) -> Result<(), Unreadable> {
        if sweep(&keys::container(container), most, view, changes)? {
            self.dropped.remove(&container);
            changes.remove(keys::definition(Kind::Dropped, 0, u64::from(container)));
        }
        Ok(())
    }

    fn sweep_index(
        &mut self,
        container: u32,
        most: u32,
        view: &dyn View,
        changes: &mut Changes,
    ) -> Result<(), Unreadable> {
        let Some(generation) = self.containers.get(&container).map(|held| held.index.swept) else {
            return Ok(());
        };
        if sweep(&index::generation(container, generation), most, view, changes)? {
            self.change_container(container, changes, |container| container.index.swept += 1);
        }
        Ok(())
    }

    fn replace_container(
        &mut self,
        container: u32,
        definition: &Bytes,
        at: Time,
        view: &dyn View,
        changes: &mut Changes,
    ) -> Result<(), Unreadable> {
        let stamp = self.stamp(at);
        let Some(before) = self.containers.get(&container) else {
            return Ok(());
        };
        let Some(settings) = super::container::stored(definition) else {
            return Ok(());
        };
        let has_items = Numbers::read(view, container)?.items > 0;
        let mut after = Container::clone(before);
        if settings.default_ttl != before.settings.default_ttl {
            // C-41: what has expired under the old setting stays gone under the new one.
            let (own_by, written_by) = before.settings.gone_at(at);
            after.gone.own_by = after.gone.own_by.max(own_by);
            after.gone.written_by = after.gone.written_by.max(written_by);
        }
        if settings.indexing != before.settings.indexing {
            after.index.generation += 1;
            after.index.built_to = (has_items && settings.indexing.is_on).then(Bytes::new);
        }
        after.stamp = stamp;
        after.definition = definition.clone();
        after.settings = Arc::new(settings);
        after.put(changes);
        self.containers.insert(container, Arc::new(after));
        Ok(())
    }

    fn delete_database(&mut self, database: u32, at: Time, changes: &mut Changes) {
        self.stamp(at);
        let Some(held) = self.databases.remove(&database) else {
            return;
        };
        self.database_names.remove(&*held.name);
        changes.remove(keys::definition(Kind::Database, 0, u64::from(database)));
        let containers: Vec<u32> = self.containers_of(database).map(|container| container.number).collect();
        containers.into_iter().for_each(|container| self.drop_container(container, changes));
        for kind in [Kind::User, Kind::EncryptionKey] {
            let all: Vec<u32> = self.documents_of(kind, database).map(|document| document.number).collect();
            all.into_iter().for_each(|number| self.drop_document(kind, database, number, changes));
        }
        self.drop_offer(database, changes);
    }

    fn drop_container(&mut self, container: u32, changes: &mut Changes) {
        let Some(held) = self.containers.remove(&container) else {
            return;
        };
        self.container_names.remove(&(held.database, held.name.to_string()));
        changes.remove(keys::definition(Kind::Container, u64::from(held.database), u64::from(container)));
        for kind in [Kind::Procedure, Kind::Trigger, Kind::Function] {
            let all: Vec<u32> = self.documents_of(kind, container).map(|document| document.number).collect();
            all.into_iter().for_each(|number| self.drop_document(kind, container, number, changes));
        }
        self.drop_offer(container, changes);
        // Its items may be many: the purge removes them in slices.
        self.dropped.insert(container);
        changes.put(keys::definition(Kind::Dropped, 0, u64::from(container)), vec![store::VERSION]);
    }

    fn drop_document(&mut self, kind: Kind, parent: u32, number: u32, changes: &mut Changes) {
        if kind == Kind::User {
            let permissions: Vec<u32> =
                self.documents_of(Kind::Permission, number).map(|permission| permission.number).collect();
            permissions.into_iter().for_each(|of| self.drop_document(Kind::Permission, number, of, changes));
        }
        self.documents.remove(&(kind, parent, number));
        changes.remove(keys::definition(kind, u64::from(parent), u64::from(number)));
    }

    fn drop_offer(&mut self, owner: u32, changes: &mut Changes) {
        if let Some(number) = self.offer_of(owner).map(|offer| offer.number) {
            self.offers.remove(&number);
            changes.remove(keys::definition(Kind::Offer, 0, u64::from(number)));
        }
    }

    /// Adds the entries of items behind `built_to`, up to and with `to`; of all that are left without.
    fn build_index(
        &mut self,
        container: u32,
        to: Option<&Bytes>,
        view: &dyn View,
        changes: &mut Changes,
    ) -> Result<(), Unreadable> {
        let Some(held) = self.containers.get(&container).cloned() else {
            return Ok(());
        };
        let Some(built_to) = &held.index.built_to else {
            return Ok(());
        };
        let mut from = keys::item(container, built_to);
        if !built_to.is_empty() {
            from.push(0);
        }
        let end = match to {
            Some(to) => [&keys::item(container, to)[..], &[0]].concat(),
            None => order::end_of_prefix(&keys::section(container, Section::Items)),
        };
        for entry in view.scan(&from, &end, Direction::Ascending) {
            let (key, value) = entry?;
            index::add(&held, &key[keys::SECTION_BYTES..], &Stored::decode(&value)?.text, changes);
        }
        self.change_container(container, changes, |container| container.index.built_to = to.cloned());
        Ok(())
    }
}

/// Removes the first keys that begin so; true when none are left.
fn sweep(prefix: &[u8], most: u32, view: &dyn View, changes: &mut Changes) -> Result<bool, Unreadable> {
    let end = order::end_of_prefix(prefix);
    let mut entries = view.scan(prefix, &end, Direction::Ascending);
    for _ in 0..most {
        match entries.next() {
            Some(entry) => changes.remove(entry?.0),
            None => return Ok(true),
        }
    }
    Ok(entries.next().transpose()?.is_none())
}

fn forget_events(container: u32, lsn: u64, view: &dyn View, changes: &mut Changes) -> Result<(), Unreadable> {
    let mut numbers = Numbers::read(view, container)?;
    let from = keys::section(container, Section::Events);
    let to = keys::event(container, keys::Version { lsn: lsn + 1, index: 0 });
    for entry in view.scan(&from, &to, Direction::Ascending) {
        changes.remove(entry?.0);
    }
    numbers.forgotten = numbers.forgotten.max(lsn);
    numbers.put(container, changes);
    Ok(())
}
