//! Definitions: databases, containers, scripts, users, permissions, offers; all in memory.
//!
//! Every number comes from one counter and is never given twice, so rids rise and are never reused (P-27).

mod apply;
pub mod container;
pub mod indexing;
pub mod offer;
mod search;
pub mod show;
mod store;

use crate::keys::{Kind, Version};
use crate::{ContainerPath, PartitionKey, Refusal, Throughput, Time, limits, rid};
use bytes::Bytes;
use container::Settings;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Everything that is defined.
#[derive(Debug, Clone)]
pub struct Definitions {
    /// The next number to give.
    pub next: u32,
    /// How often anything was defined: what etags of definitions are made of.
    pub changes: u64,
    /// The latest time on record.
    pub time: Time,
    pub databases: BTreeMap<u32, Arc<Database>>,
    pub database_names: HashMap<String, u32>,
    pub containers: BTreeMap<u32, Arc<Container>>,
    pub container_names: HashMap<(u32, String), u32>,
    pub documents: BTreeMap<(Kind, u32, u32), Arc<Document>>,
    pub offers: BTreeMap<u32, Offer>,
    /// Deleted containers whose keys are still being removed.
    pub dropped: BTreeSet<u32>,
}

impl Default for Definitions {
    fn default() -> Definitions {
        Definitions {
            next: 1,
            changes: 0,
            time: Time::default(),
            databases: BTreeMap::new(),
            database_names: HashMap::new(),
            containers: BTreeMap::new(),
            container_names: HashMap::new(),
            documents: BTreeMap::new(),
            offers: BTreeMap::new(),
            dropped: BTreeSet::new(),
        }
    }
}

/// When something was last defined, and by which change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    pub at: Time,
    pub change: u64,
}

impl Stamp {
    pub fn etag(self) -> String {
        show::etag(Version { lsn: self.change, index: 0 }, self.at)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    pub number: u32,
    pub name: Arc<str>,
    pub stamp: Stamp,
}

#[derive(Debug, Clone)]
pub struct Container {
    pub number: u32,
    pub database: u32,
    pub database_name: Arc<str>,
    pub name: Arc<str>,
    /// As text.
    pub rid: Arc<str>,
    /// Its `_self`.
    pub link: Arc<str>,
    pub stamp: Stamp,
    /// JSON, whole, without system properties.
    pub definition: Bytes,
    /// What the definition says.
    pub settings: Arc<Settings>,
    pub gone: Gone,
    pub index: IndexState,
}

/// What no longer counts although it is still stored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Gone {
    /// Items with a time to live of their own that had expired by then stay gone, whatever the container says now (C-41).
    pub own_by: Option<Time>,
    /// Items without one that were written by then stay gone (C-41).
    pub written_by: Option<Time>,
    /// Everything of these partitions up to these transactions was deleted.
    pub partitions: Vec<(u64, PartitionKey)>,
}

/// Which entries of the index are there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexState {
    /// Rises when the indexing policy changes; entries of others are left-overs.
    pub generation: u16,
    /// The first generation that still has left-overs.
    pub swept: u16,
    /// While the index is being built: items up to this place are in it. `None`: all are.
    pub built_to: Option<Bytes>,
}

/// A script, a user, a permission, an encryption key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub kind: Kind,
    pub parent: u32,
    pub number: u32,
    pub name: String,
    pub stamp: Stamp,
    /// JSON without system properties.
    pub body: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    pub number: u32,
    /// The database or container that it is for.
    pub owner: u32,
    pub throughput: Throughput,
    /// The most it ever was.
    pub most: u32,
    pub stamp: Stamp,
}

impl Container {
    /// The offer of a container for which nobody asked for one. Offers and containers are numbered by one counter, so its number
    /// is free.
    fn default_offer(&self) -> Offer {
        let least = limits::THROUGHPUT_LEAST;
        let throughput = Throughput::Fixed(least);
        Offer { number: self.number, owner: self.number, throughput, most: least, stamp: self.stamp }
    }
}

impl Definitions {
    /// A database by name, then by rid (P-28).
    pub fn database(&self, segment: &str) -> Option<&Arc<Database>> {
        if let Some(number) = self.database_names.get(segment) {
            return self.databases.get(number);
        }
        let bytes: [u8; 4] = rid::bytes(segment)?.try_into().ok()?;
        self.databases.get(&u32::from_be_bytes(bytes))
    }

    /// A database in which something is addressed.
    pub fn owner_database(&self, segment: &str) -> Result<&Arc<Database>, Refusal> {
        self.database(segment).ok_or(Refusal::OwnerNotFound)
    }

    /// The container itself; the database above it must be there too.
    pub fn container(&self, path: &ContainerPath) -> Result<&Arc<Container>, Refusal> {
        let database = self.owner_database(&path.database)?.number;
        let found = self.container_in(database, &path.container).ok_or(Refusal::NotFound)?;
        self.as_intended(path, found)
    }

    /// A container in which something is addressed.
    pub fn owner_container(&self, path: &ContainerPath) -> Result<&Arc<Container>, Refusal> {
        let database = self.owner_database(&path.database)?.number;
        let found = self.container_in(database, &path.container).ok_or(Refusal::OwnerNotFound)?;
        self.as_intended(path, found)
    }

    fn container_in(&self, database: u32, segment: &str) -> Option<&Arc<Container>> {
        if let Some(number) = self.container_names.get(&(database, segment.to_owned())) {
            return self.containers.get(number);
        }
        let bytes: [u8; 8] = rid::bytes(segment)?.try_into().ok()?;
        let number = u32::from_be_bytes(bytes[4..].try_into().ok()?) & !(1 << 31);
        self.containers.get(&number).filter(|container| *container.rid == *segment)
    }

    /// A client that knew the container by this name before it was made anew must hear of it (5.2).
    fn as_intended<'a>(
        &self,
        path: &ContainerPath,
        found: &'a Arc<Container>,
    ) -> Result<&'a Arc<Container>, Refusal> {
        match &path.intended_rid {
            Some(intended) if **intended != *found.rid => Err(Refusal::ContainerRecreated {
                intended: intended.clone(),
                current: found.rid.to_string(),
            }),
            _ => Ok(found),
        }
    }

    /// A script, user or the like by name, then by rid.
    pub fn document(&self, kind: Kind, parent: u32, segment: &str) -> Option<&Arc<Document>> {
        let mut all = self.documents_of(kind, parent);
        all.clone().find(|document| document.name == segment).or_else(|| {
            rid::bytes(segment)?;
            all.find(|document| show::document_rid(self, document) == segment)
        })
    }

    /// Whether a definition of so many bytes may be made, or be longer by so many, beside all others.
    pub fn has_room(&self, bytes: usize) -> bool {
        // Definitions are made seldom: counting them then is simpler than keeping a sum right through replay.
        let documents = self.documents.values().map(|document| document.name.len() + document.body.len());
        // What a definition says is kept beside its text.
        let containers = self.containers.values().map(|container| 2 * container.definition.len());
        let held: usize = documents.chain(containers).map(|bytes| bytes + limits::DEFINITION_COST).sum();
        held.saturating_add(bytes) <= limits::DEFINITIONS_BYTES
    }

    pub fn documents_of(&self, kind: Kind, parent: u32) -> impl Iterator<Item = &Arc<Document>> + Clone {
        self.documents.range((kind, parent, 0)..=(kind, parent, u32::MAX)).map(|(_, document)| document)
    }

    pub fn containers_of(&self, database: u32) -> impl Iterator<Item = &Arc<Container>> {
        self.containers.values().filter(move |container| container.database == database)
    }

    pub fn offer_of(&self, owner: u32) -> Option<&Offer> {
        self.offers.values().find(|offer| offer.owner == owner)
    }

    /// All offers as they are told. A container for which nobody asked for throughput, alone or with its database, has the least
    /// there is, as in the service (P-75). That offer is told and can be replaced, but nothing is measured by it: who never
    /// asked for a limit does not meet one.
    pub fn offers_told(&self) -> Vec<Offer> {
        let owners: HashSet<u32> = self.offers.values().map(|offer| offer.owner).collect();
        let is_without = |container: &Container| {
            !owners.contains(&container.number) && !owners.contains(&container.database)
        };
        let without = self.containers.values().filter(|container| is_without(container));
        let mut offers: Vec<Offer> =
            self.offers.values().copied().chain(without.map(|container| container.default_offer())).collect();
        offers.sort_by_key(|offer| offer.number);
        offers
    }

    /// The offer that a container's requests draw on: its own, or the one it shares with its database (P-80).
    pub fn offer_for(&self, container: &Container) -> Option<&Offer> {
        self.offer_of(container.number).or_else(|| self.offer_of(container.database))
    }

    /// The stamp that the next change gets.
    pub fn next_stamp(&self, at: Time) -> Stamp {
        Stamp { at, change: self.changes + 1 }
    }
}

/// A name of a database, container, script or user (P-30).
pub fn check_name(name: &str, limit: usize) -> Result<(), Refusal> {
    check_id(name, limit, limit)?;
    if let Some(bad) = name.chars().find(|c| matches!(c, '?' | '\t' | '\r' | '\n')) {
        return Err(Refusal::bad(format!("The input name '{name}' is invalid: it contains {bad:?}.")));
    }
    if name.ends_with(' ') {
        return Err(Refusal::bad(format!("The input name '{name}' is invalid: it ends with a space.")));
    }
    Ok(())
}

/// An id of an item: more is taken than in a name, as the service does (P-30). Some clients refuse the rest by themselves.
/// `told` is the number of the refusal: the service's is the limit of a name, and one more than the limit of an id.
pub fn check_id(name: &str, limit: usize, told: usize) -> Result<(), Refusal> {
    if name.is_empty() {
        return Err(Refusal::bad("The input name is invalid. Ensure to provide a unique non-empty string."));
    }
    if name.len() > limit {
        return Err(Refusal::bad(format!(
            "The input name is invalid: it has {} bytes. Ensure to provide a unique non-empty string less than '{told}' characters.",
            name.len()
        )));
    }
    if let Some(bad) = name.chars().find(|c| matches!(c, '/' | '\\' | '#')) {
        return Err(Refusal::bad(format!("The input name '{name}' is invalid: it contains {bad:?}.")));
    }
    Ok(())
}
