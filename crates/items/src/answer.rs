//! What a command is answered with.

use bytes::Bytes;

/// An answer, and what every answer tells beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub answer: Answer,
    /// Hundredths of a request unit (P-78).
    pub charge: u64,
    /// The container that the command was about; `None` for databases, users, offers.
    pub place: Option<ContainerFacts>,
}

/// Names the container of an answer, for the headers of sections 16 and 17.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerFacts {
    pub database: std::sync::Arc<str>,
    pub container: std::sync::Arc<str>,
    /// As text, `x-ms-content-path` (P-83).
    pub container_rid: std::sync::Arc<str>,
    /// The newest transaction that the answer has seen: `0:-1#<lsn>` (P-82).
    pub lsn: u64,
    /// The transaction that last wrote the item of the answer: `x-ms-item-lsn`.
    pub item_lsn: Option<u64>,
    /// Items and bytes of the container, for `x-ms-resource-usage`.
    pub item_count: u64,
    pub item_bytes: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// 201.
    Created(Document),
    /// 200: read, replaced, patched, or upserted over an existing one.
    Found(Document),
    /// 304: it still has the entity tag that the client named.
    NotModified { etag: String },
    /// 204.
    Deleted,
    /// 200 with an empty body: deleting by partition key.
    Done,
    /// 200: a feed or the result of a query.
    Page(Page),
    /// A page of the change feed: 200, or 304 when it is empty. `etag` is its continuation (P-70).
    Changes { page: Page, etag: String },
    /// 200 or 207, one entry for each operation in order (P-58).
    Operations(Vec<OperationResult>),
    /// What a query uses, as the JSON of the index metrics.
    Explanation(Bytes),
    /// The time of the items is now this, in milliseconds since 1970.
    Advanced { now_ms: i64 },
}

/// A resource as it is shown: JSON text with its system properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub body: Bytes,
    /// With its quotes (P-25).
    pub etag: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The rid of what the feed belongs to; empty for databases and offers (P-24).
    pub parent_rid: String,
    /// JSON values: documents, or whatever a query selects.
    pub values: Vec<Bytes>,
    /// Only when more may follow (P-51).
    pub continuation: Option<String>,
    /// What a query did, for the metrics header.
    pub metrics: Option<Metrics>,
}

/// What a query did (12.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metrics {
    pub retrieved_items: u64,
    pub retrieved_bytes: u64,
    pub returned_items: u64,
    pub returned_bytes: u64,
    /// Whether an index chose the items that were read.
    pub used_index: bool,
}

/// What became of one operation of a batch or bulk request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationResult {
    pub status: u16,
    pub sub_status: u32,
    /// Hundredths of a request unit.
    pub charge: u64,
    /// The item after the operation; none after a delete or a refusal.
    pub document: Option<Document>,
    pub retry_after_ms: Option<u64>,
    /// What went wrong.
    pub message: Option<String>,
}
