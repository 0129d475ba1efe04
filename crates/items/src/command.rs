//! Everything one may ask.
//!
//! Resources are addressed by the segments of the request's path, percent-decoded: each is looked up as a name first and then as
//! a rid (P-28). Bodies are JSON text; the door turns binary JSON into text before it asks.

use crate::partition_key::{KeyPart, PartitionKey};
use bytes::Bytes;

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    // Databases. `body` is the request's body, `{"id":"..."}`.
    CreateDatabase {
        body: Bytes,
        throughput: Option<Throughput>,
    },
    ReadDatabase {
        database: String,
    },
    DeleteDatabase {
        database: String,
    },

    // Containers. Answered with the whole document, defaults filled in (5.2).
    CreateContainer {
        database: String,
        body: Bytes,
        throughput: Option<Throughput>,
    },
    ReadContainer {
        container: ContainerPath,
        if_none_match: Option<String>,
    },
    ReplaceContainer {
        container: ContainerPath,
        body: Bytes,
        if_match: Option<String>,
    },
    DeleteContainer {
        container: ContainerPath,
    },

    // Items.
    CreateItem(ItemWrite),
    UpsertItem(ItemWrite),
    /// `id` is the one of the path; the body's must be the same.
    ReplaceItem {
        id: String,
        write: ItemWrite,
    },
    ReadItem {
        item: ItemPath,
        if_none_match: Option<String>,
        session: Option<u64>,
    },
    DeleteItem {
        item: ItemPath,
        condition: Precondition,
    },
    /// `body` is the request's body: an object with `operations` and `condition`, or a bare array of operations (section 10).
    PatchItem {
        item: ItemPath,
        body: Bytes,
        condition: Precondition,
    },
    /// Transactional batch (P-57): all or nothing. `body` is the request's body.
    Batch {
        container: ContainerPath,
        partition_key: PartitionKey,
        body: Bytes,
    },
    /// Bulk (P-60): each operation names its key and stands for itself. Without `continue_on_error` it ends at the first
    /// failure.
    Bulk {
        container: ContainerPath,
        body: Bytes,
        continue_on_error: bool,
    },
    DeletePartition {
        container: ContainerPath,
        partition_key: PartitionKey,
    },
    ReadFeed {
        container: ContainerPath,
        scope: Scope,
        listing: Listing,
        session: Option<u64>,
    },
    ChangeFeed {
        container: ContainerPath,
        scope: Scope,
        mode: ChangeFeedMode,
        start: ChangeFeedStart,
        max_items: Option<i64>,
    },

    /// Stored procedures, triggers, functions: documents of a container (section 19).
    CreateScript {
        container: ContainerPath,
        kind: ScriptKind,
        body: Bytes,
    },
    ReadScript {
        container: ContainerPath,
        kind: ScriptKind,
        id: String,
    },
    ReplaceScript {
        container: ContainerPath,
        kind: ScriptKind,
        id: String,
        body: Bytes,
    },
    DeleteScript {
        container: ContainerPath,
        kind: ScriptKind,
        id: String,
    },

    /// Users: documents of a database.
    CreateUser {
        database: String,
        body: Bytes,
        is_upsert: bool,
    },
    ReadUser {
        database: String,
        user: String,
    },
    ReplaceUser {
        database: String,
        user: String,
        body: Bytes,
    },
    DeleteUser {
        database: String,
        user: String,
    },
    CreatePermission {
        database: String,
        user: String,
        body: Bytes,
        is_upsert: bool,
    },
    ReadPermission {
        database: String,
        user: String,
        permission: String,
    },
    ReplacePermission {
        database: String,
        user: String,
        permission: String,
        body: Bytes,
    },
    DeletePermission {
        database: String,
        user: String,
        permission: String,
    },

    /// Client encryption keys: documents of a database.
    CreateEncryptionKey {
        database: String,
        body: Bytes,
    },
    ReadEncryptionKey {
        database: String,
        key: String,
    },
    ReplaceEncryptionKey {
        database: String,
        key: String,
        body: Bytes,
    },
    DeleteEncryptionKey {
        database: String,
        key: String,
    },

    // Offers (section 15).
    ReadOffer {
        offer: String,
    },
    ReplaceOffer {
        offer: String,
        body: Bytes,
    },

    /// A list of everything in `of`, in the order in which it was made; items are listed with `ReadFeed`.
    List {
        of: QueryScope,
        listing: Listing,
    },
    /// A query over items or over definitions.
    Query(Query),
    /// What a query would use, for the index metrics header and `otobus` (P-63: the plan that clients ask for is the door's).
    Explain(Query),
    /// The state of the one partition key range (section 8): its document, with the container's etag of ranges.
    ReadRanges {
        container: ContainerPath,
    },
    /// Moves the time of the items ahead, for tests (docs/design/0008).
    Advance {
        by_ms: u64,
    },
}

impl Command {
    /// Whether it is decided and recorded; everything else is read.
    pub fn is_write(&self) -> bool {
        use Command::*;
        match self {
            CreateDatabase { .. }
            | DeleteDatabase { .. }
            | CreateContainer { .. }
            | ReplaceContainer { .. } => true,
            DeleteContainer { .. }
            | CreateItem(_)
            | UpsertItem(_)
            | ReplaceItem { .. }
            | DeleteItem { .. } => true,
            PatchItem { .. } | Batch { .. } | Bulk { .. } | DeletePartition { .. } | CreateScript { .. } => {
                true
            }
            ReplaceScript { .. } | DeleteScript { .. } | CreateUser { .. } | ReplaceUser { .. } => true,
            DeleteUser { .. } | CreatePermission { .. } | ReplacePermission { .. } => true,
            DeletePermission { .. } | CreateEncryptionKey { .. } | ReplaceEncryptionKey { .. } => true,
            DeleteEncryptionKey { .. } | ReplaceOffer { .. } | Advance { .. } => true,
            ReadDatabase { .. } | ReadContainer { .. } | ReadItem { .. } | ReadFeed { .. } => false,
            ChangeFeed { .. } | ReadScript { .. } | ReadUser { .. } | ReadPermission { .. } => false,
            ReadEncryptionKey { .. }
            | ReadOffer { .. }
            | List { .. }
            | Query(_)
            | Explain(_)
            | ReadRanges { .. } => false,
        }
    }
}

impl Command {
    /// The container whose items it reads or writes: the one whose throughput it uses (P-80).
    pub fn items_of(&self) -> Option<&ContainerPath> {
        use Command::*;
        match self {
            CreateItem(write) | UpsertItem(write) | ReplaceItem { write, .. } => Some(&write.container),
            ReadItem { item, .. } | DeleteItem { item, .. } | PatchItem { item, .. } => Some(&item.container),
            Batch { container, .. } | Bulk { container, .. } | DeletePartition { container, .. } => {
                Some(container)
            }
            ReadFeed { container, .. } | ChangeFeed { container, .. } => Some(container),
            Query(query) => match &query.of {
                QueryScope::Items { container } => Some(container),
                _ => None,
            },
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerPath {
    pub database: String,
    pub container: String,
    /// `x-ms-cosmos-intended-collection-rid`.
    pub intended_rid: Option<String>,
}

impl ContainerPath {
    pub fn new(database: &str, container: &str) -> ContainerPath {
        ContainerPath { database: database.to_owned(), container: container.to_owned(), intended_rid: None }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ItemPath {
    pub container: ContainerPath,
    pub partition_key: PartitionKey,
    pub id: String,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ItemWrite {
    pub container: ContainerPath,
    /// From the header; without it the key is the one in the body (P-33).
    pub partition_key: Option<PartitionKey>,
    pub body: Bytes,
    pub condition: Precondition,
}

/// `If-Match` and `If-None-Match`, as they came.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Precondition {
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
}

/// What a new database or container gets, from the request's headers (P-77).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Throughput {
    /// `x-ms-offer-throughput`.
    Fixed(u32),
    /// What `x-ms-cosmos-offer-autopilot-settings` says: `maxThroughput`, and `incrementPercent` of its policy, by which the
    /// most would grow with what is stored.
    Autoscale { most: u32, increment_percent: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScriptKind {
    Procedure,
    Trigger,
    Function,
}

/// Which part of a container a feed or query is about.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Scope {
    #[default]
    All,
    /// All of it, but for a query without leave to ask every partition: that names one by itself (12.1).
    WithoutLeave,
    /// One logical partition, or with fewer parts than the definition has paths all that begin so.
    Key(PartitionKey),
    /// `x-ms-start-epk` and `x-ms-end-epk` (P-41).
    Range(KeyRange),
}

/// Bounds in upper-case hex, the first inclusive, the last exclusive, compared as text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyRange {
    pub start: String,
    pub end: String,
}

/// `x-ms-max-item-count` and `x-ms-continuation`, as they came.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// -1 and `None`: the server decides.
    pub max_items: Option<i64>,
    pub continuation: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeFeedMode {
    LatestVersion,
    AllVersionsAndDeletes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeFeedStart {
    Beginning,
    Now,
    /// Seconds since 1970, of `If-Modified-Since`.
    Time(i64),
    /// The `etag` of the page before, with its quotes.
    After(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    pub of: QueryScope,
    pub scope: Scope,
    pub text: String,
    /// Name with `@` and value as JSON text.
    pub parameters: Vec<(String, Bytes)>,
    pub listing: Listing,
    pub session: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryScope {
    Databases,
    Containers { database: String },
    Items { container: ContainerPath },
    Scripts { container: ContainerPath, kind: ScriptKind },
    Users { database: String },
    Permissions { database: String, user: String },
    EncryptionKeys { database: String },
    Offers,
}

/// One operation of a batch, as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchOperation {
    pub kind: OperationKind,
    pub id: Option<String>,
    pub body: Option<Bytes>,
    pub condition: Precondition,
    /// Bulk only.
    pub partition_key: Option<PartitionKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    Create,
    Upsert,
    Read,
    Replace,
    Delete,
    Patch,
}

/// One operation of a patch, as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchOperation {
    pub verb: PatchVerb,
    /// The members and indexes of the JSON pointer, unescaped.
    pub path: Vec<String>,
    /// Where a `move` takes the value from.
    pub from: Vec<String>,
    /// JSON text; `null` when it was left out (P-91).
    pub value: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchVerb {
    Add,
    Set,
    Replace,
    Remove,
    Increment,
    Move,
}

impl From<&str> for KeyPart {
    fn from(text: &str) -> KeyPart {
        KeyPart::String(text.to_owned())
    }
}
