//! Deciding what happens to items, one operation or a batch of them.
//!
//! An operation either refuses and leaves nothing, or adds its writes. In a batch later operations see earlier ones. Every rule on
//! conditions, ids, uniqueness and expiry is here; batch, bulk, patch and the point operations all come this way.

use super::body::{self, Body};
use super::stored::{Numbers, Stored};
use super::{apply, ttl, unique};
use crate::definition::Container;
use crate::keys::{self, Version};
use crate::record::{Event, Record, Why, Write};
use crate::view::{ChangedView, Changes, View};
use crate::{
    Answer, ContainerFacts, ItemPath, OperationResult, PartitionKey, Precondition, Refusal, Time, charge, rid,
};
use bytes::Bytes;

#[derive(Debug)]
pub struct Transaction<'a> {
    container: &'a Container,
    seen: ChangedView<'a>,
    /// As they are after what was decided so far.
    numbers: Numbers,
    now: Time,
    writes: Vec<Write>,
    records: Vec<Record>,
    /// What is written later has to see what was written before.
    is_batch: bool,
    /// Memory for what the operations of a batch change.
    changes: Changes,
    /// What is left for the conditions of patches: those of a batch share it.
    pub condition_steps: u64,
}

/// What an operation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    pub kind: DoneKind,
    /// The item after it; before it, when it was deleted.
    pub item: Stored,
    pub charge: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoneKind {
    Created,
    Replaced,
    Deleted,
    Read,
    /// It still has the entity tag that the client named.
    NotModified,
}

/// An item as it is stored, and whether it still counts.
struct Found {
    item: Stored,
    is_gone: bool,
    is_expired: bool,
}

impl<'a> Transaction<'a> {
    pub fn new(
        container: &'a Container,
        view: &'a dyn View,
        now: Time,
        is_batch: bool,
    ) -> Result<Transaction<'a>, Refusal> {
        let numbers = Numbers::read(view, container.number)?;
        // C-42: time does not run backwards, whatever the caller's clock says.
        let now = now.max(numbers.written);
        let seen = ChangedView::new(view);
        let (writes, records, changes) = Default::default();
        let condition_steps = crate::limits::CONDITION_STEPS;
        Ok(Transaction { container, seen, numbers, now, writes, records, is_batch, changes, condition_steps })
    }

    pub fn container(&self) -> &'a Container {
        self.container
    }

    pub fn now(&self) -> Time {
        self.now
    }

    fn found(&self, place: &[u8]) -> Result<Option<Found>, Refusal> {
        let Some(item) = Stored::read(&self.seen, self.container.number, place)? else {
            return Ok(None);
        };
        let is_expired = ttl::is_expired(self.container, &item, self.now);
        let is_gone = ttl::is_gone(self.container, &item, place, self.now);
        Ok(Some(Found { item, is_gone, is_expired }))
    }

    /// Where the item is that a path names: by its id, else by its rid (P-28).
    pub fn place_of(&self, item: &ItemPath) -> Result<Bytes, Refusal> {
        let key = body::whole_key(&self.container.settings, &item.partition_key)?;
        self.place_named(&key, &item.id)
    }

    fn place_named(&self, key: &PartitionKey, id: &str) -> Result<Bytes, Refusal> {
        let named: Bytes = body::place(&self.container.settings, key, id).into();
        let Some(place) = self.place_by_rid(id)? else { return Ok(named) };
        let partition = &named[..named.len() - id.len()];
        let is_named = self.found(&named)?.is_some_and(|found| !found.is_gone);
        Ok(if is_named || !place.starts_with(partition) { named } else { place })
    }

    /// Where the item is that has this rid, if it is one.
    fn place_by_rid(&self, rid: &str) -> Result<Option<Bytes>, Refusal> {
        match rid::item_number(self.container.database, self.container.number, rid) {
            Some(number) => Ok(self.seen.get(&keys::by_rid(self.container.number, number))?),
            None => Ok(None),
        }
    }

    /// The item at a place, if it counts.
    pub fn live(&self, place: &[u8]) -> Result<Stored, Refusal> {
        match self.found(place)? {
            Some(Found { item, is_gone: false, .. }) => Ok(item),
            // C-30, C-31: an expired item is not found, as if it had never been.
            _ => Err(Refusal::NotFound),
        }
    }

    pub fn create(&mut self, body: Body, condition: &Precondition) -> Result<Done, Refusal> {
        let found = self.found(&body.place)?;
        if let Some(Found { is_gone: false, .. }) = found {
            if condition.if_none_match.as_deref() == Some("*") {
                return Err(changed());
            }
            return Err(exists());
        }
        self.put(body, found)
    }

    pub fn upsert(&mut self, body: Body, condition: &Precondition) -> Result<Done, Refusal> {
        let found = self.found(&body.place)?;
        if let Some(Found { item, is_gone: false, .. }) = &found {
            check(condition, item)?;
        }
        self.put(body, found)
    }

    /// Replaces the item of this id, or rid. With another id in its body it is renamed, as in the service, which calls the partition
    /// key alone immutable.
    pub fn replace(&mut self, id: &str, body: Body, condition: &Precondition) -> Result<Done, Refusal> {
        let from = if body.id == id { body.place.clone() } else { self.place_named(&body.key, id)? };
        if from != body.place {
            return self.rename(from, body, condition);
        }
        let found = self.found(&body.place)?;
        match &found {
            Some(Found { item, is_gone: false, .. }) => check(condition, item)?,
            _ => return Err(Refusal::NotFound),
        }
        self.put(body, found)
    }

    /// Replaces the item at `from` by one of the same partition with another id. It keeps its rid.
    fn rename(&mut self, from: Bytes, body: Body, condition: &Precondition) -> Result<Done, Refusal> {
        let item = self.live(&from)?;
        check(condition, &item)?;
        let found = self.found(&body.place)?;
        if let Some(Found { is_gone: false, .. }) = found {
            return Err(exists());
        }
        self.check_unique(&body, &from)?;
        // Two writes that happen together are a batch, also when nothing else was asked for.
        self.is_batch = true;
        self.write(Write::Remove { place: from, why: Why::Deleted })?;
        self.put_as(body, found, Some(item.number))
    }

    /// Replaces an item that was read in this transaction by what patching made of it.
    pub fn patched(&mut self, body: Body) -> Result<Done, Refusal> {
        let found = self.found(&body.place)?;
        self.put(body, found)
    }

    pub fn delete(&mut self, place: Bytes, condition: &Precondition) -> Result<Done, Refusal> {
        let item = self.live(&place)?;
        check(condition, &item)?;
        self.write(Write::Remove { place, why: Why::Deleted })?;
        self.numbers.items = self.numbers.items.saturating_sub(u64::from(!self.is_batch));
        let charge = charge::change(item.text.len());
        Ok(Done { kind: DoneKind::Deleted, item, charge })
    }

    pub fn read(&self, place: &[u8], if_none_match: Option<&str>) -> Result<Done, Refusal> {
        let item = self.live(place)?;
        let is_same = if_none_match.is_some_and(|etag| names(etag, &item));
        let kind = if is_same { DoneKind::NotModified } else { DoneKind::Read };
        let charge = charge::read(item.text.len());
        Ok(Done { kind, item, charge })
    }

    /// Whether the conditions of a request hold for an item that was read.
    pub fn check(&self, condition: &Precondition, item: &Stored) -> Result<(), Refusal> {
        check(condition, item)
    }

    fn put(&mut self, body: Body, found: Option<Found>) -> Result<Done, Refusal> {
        self.check_unique(&body, &body.place)?;
        let kept = found.as_ref().filter(|found| !found.is_gone).map(|found| found.item.number);
        self.put_as(body, found, kept)
    }

    /// Writes an item whose conditions hold. `kept` is the number of the item that it replaces; without one it is new.
    fn put_as(&mut self, body: Body, found: Option<Found>, kept: Option<u64>) -> Result<Done, Refusal> {
        let number = kept.unwrap_or(self.numbers.made + 1);
        if let Some(found) = found.as_ref().filter(|found| found.is_gone)
            && self.container.settings.retention_ms.is_some()
        {
            // C-34: the feed of all versions tells the end of the old item before the beginning of the new one.
            let why = if found.is_expired { Why::Expired } else { Why::Deleted };
            self.write(Write::Remove { place: body.place.clone(), why })?;
        }
        let is_new = kept.is_none();
        let version = self.write(Write::Put {
            place: body.place,
            number,
            ttl: body.ttl.number(),
            body: body.text.clone(),
        })?;
        let item = Stored::new(self.container, number, version, self.now, body.ttl, &body.text);
        self.numbers.made = self.numbers.made.max(number);
        if !self.is_batch {
            let old = found.as_ref().map(|found| found.item.text.len());
            self.numbers.items += u64::from(old.is_none());
            self.numbers.bytes = self.numbers.bytes + item.text.len() as u64 - old.unwrap_or(0) as u64;
        }
        let bytes = item.text.len();
        let (kind, charge) = if is_new {
            (DoneKind::Created, charge::create(bytes))
        } else {
            (DoneKind::Replaced, charge::change(bytes))
        };
        Ok(Done { kind, item, charge })
    }

    /// `own` is where the item stands that is replaced.
    fn check_unique(&self, body: &Body, own: &[u8]) -> Result<(), Refusal> {
        let container = self.container.number;
        for key in unique::entries(container, &self.container.settings, &body.place, &body.text) {
            let Some(holder) = self.seen.get(&key)? else { continue };
            if holder == own {
                continue;
            }
            // C-32: one that has expired holds nothing.
            if self.found(&holder)?.is_some_and(|found| !found.is_gone) {
                return Err(unique::taken());
            }
        }
        Ok(())
    }

    fn write(&mut self, write: Write) -> Result<Version, Refusal> {
        let version = Version { lsn: self.numbers.lsn + 1, index: self.writes.len() as u16 };
        if self.is_batch {
            let mut changes = std::mem::take(&mut self.changes);
            apply::one(
                self.container,
                version,
                self.now,
                &write,
                &mut self.numbers,
                &self.seen,
                &mut changes,
            )?;
            self.seen.take(&changes);
            changes.entries.clear();
            self.changes = changes;
        }
        self.writes.push(write);
        Ok(version)
    }

    /// Ends a transaction: what was written so far happens together, under one number (P-59). The next operation begins another.
    pub fn end(&mut self) {
        if self.writes.is_empty() {
            return;
        }
        self.numbers.lsn += 1;
        self.numbers.written = self.now;
        self.records.push(Record {
            at: self.now,
            event: Event::ItemsWritten {
                container: self.container.number,
                lsn: self.numbers.lsn,
                writes: std::mem::take(&mut self.writes),
            },
        });
    }

    pub fn into_records(mut self) -> Vec<Record> {
        self.end();
        self.records
    }

    pub fn place(&self, item_lsn: Option<u64>) -> ContainerFacts {
        place(self.container, &self.numbers, item_lsn)
    }
}

/// What every answer about a container tells.
pub fn place(container: &Container, numbers: &Numbers, item_lsn: Option<u64>) -> ContainerFacts {
    ContainerFacts {
        database: std::sync::Arc::clone(&container.database_name),
        container: std::sync::Arc::clone(&container.name),
        container_rid: std::sync::Arc::clone(&container.rid),
        lsn: numbers.lsn,
        item_lsn,
        item_count: numbers.items,
        item_bytes: numbers.bytes,
    }
}

fn exists() -> Refusal {
    Refusal::Conflict("Entity with the specified id already exists in the system.".to_owned())
}

fn changed() -> Refusal {
    Refusal::PreconditionFailed("One of the specified pre-condition is not met.")
}

/// P-48, P-49
fn check(condition: &Precondition, item: &Stored) -> Result<(), Refusal> {
    if condition.if_match.as_deref().is_some_and(|etag| !names(etag, item)) {
        return Err(changed());
    }
    if condition.if_none_match.as_deref().is_some_and(|etag| names(etag, item)) {
        return Err(changed());
    }
    Ok(())
}

/// Whether an entity tag is the item's; `*` is any. A missing pair of quotes is forgiven (P-50).
fn names(etag: &str, item: &Stored) -> bool {
    etag == "*" || same_etag(etag, &item.etag())
}

pub fn same_etag(left: &str, right: &str) -> bool {
    fn bare(etag: &str) -> &str {
        etag.strip_prefix('"').and_then(|etag| etag.strip_suffix('"')).unwrap_or(etag)
    }
    bare(left) == bare(right)
}

impl Done {
    pub fn answer(&self) -> Answer {
        match self.kind {
            DoneKind::Created => Answer::Created(self.item.document()),
            DoneKind::Replaced | DoneKind::Read => Answer::Found(self.item.document()),
            DoneKind::Deleted => Answer::Deleted,
            DoneKind::NotModified => Answer::NotModified { etag: self.item.etag() },
        }
    }

    /// In a batch (P-58).
    pub fn result(&self) -> OperationResult {
        let (status, document) = match self.kind {
            DoneKind::Created => (201, Some(self.item.document())),
            DoneKind::Replaced | DoneKind::Read => (200, Some(self.item.document())),
            DoneKind::Deleted => (204, None),
            DoneKind::NotModified => (304, None),
        };
        OperationResult {
            status,
            sub_status: 0,
            charge: self.charge,
            document,
            retry_after_ms: None,
            message: None,
        }
    }
}

pub fn failed(refusal: &Refusal) -> OperationResult {
    let (status, sub_status) = refusal.status();
    let retry_after_ms = match refusal {
        Refusal::TooManyRequests { retry_after_ms } => Some(*retry_after_ms),
        _ => None,
    };
    let message = Some(refusal.to_string());
    OperationResult { status, sub_status, charge: charge::PLAIN, document: None, retry_after_ms, message }
}
