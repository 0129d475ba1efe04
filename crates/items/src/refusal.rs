//! Every way to say no.

/// Why a command was not done; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What was asked is malformed or breaks a rule; the text says which.
    #[error("{0}")]
    BadRequest(String),
    /// The partition key of the header differs from the one in the item (P-33).
    #[error("PartitionKey extracted from document doesn't match the one specified in the header.")]
    PartitionKeyMismatch,
    /// The partition key has not as many parts as the container's definition has paths.
    #[error(
        "Partition key provided either doesn't correspond to definition in the collection or doesn't match partition key field values specified in the document. It has {parts} parts of {paths}."
    )]
    PartitionKeyParts { parts: usize, paths: usize },
    /// The client means a container that was deleted; the name has another one now (5.2).
    #[error("The container was re-created: its rid is `{current}`, the request intends `{intended}`.")]
    ContainerRecreated { intended: String, current: String },
    /// The query's text is wrong. `errors` is JSON: `{"errors":[...]}` with places.
    #[error("{errors}")]
    Query { errors: String },
    /// The item, container, database, or whatever was addressed does not exist, or has expired (C-30).
    #[error("Resource Not Found.")]
    NotFound,
    /// The database or container in which something was addressed does not exist.
    #[error("Owner resource does not exist.")]
    OwnerNotFound,
    /// The client has seen a later state than this server holds (P-84).
    #[error("The read session is not available for the input session token.")]
    SessionNotAvailable,
    /// The id, or a unique key, is taken.
    #[error("{0}")]
    Conflict(String),
    /// The entity tag or the condition of a patch does not hold.
    #[error("{0}")]
    PreconditionFailed(&'static str),
    /// The words are those that clients look for, with nothing behind them.
    #[error("Request size is too large")]
    TooLarge { bytes: usize, limit: usize },
    /// Definitions are kept in memory, and there is no room for one more.
    #[error(
        "The definitions of containers, scripts, users and permissions take the {most} bytes that all of the account may: delete some, or shorten them."
    )]
    DefinitionsFull { most: usize },
    /// Another operation of the same batch failed (P-58).
    #[error("Another operation of the batch failed.")]
    FailedDependency,
    /// The provisioned throughput is used up (P-80).
    #[error("Request rate is large. Retry after {retry_after_ms} ms.")]
    TooManyRequests { retry_after_ms: u64 },
    /// A partition key range that is not there (P-46).
    #[error("The requested partition key range is gone.")]
    RangeGone,
    /// The server does not do this.
    #[error("{0} is not available in this version.")]
    NotAvailable(&'static str),
    /// The journal is short; reading and deleting still work.
    #[error("There is no room on the disk; free some and write again.")]
    NoSpace,
    /// The server is stopping or its disk has failed; nobody knows whether it was done.
    #[error("The server is stopping.")]
    Stopped,
}

impl Refusal {
    /// HTTP status and sub-status (section 18).
    pub fn status(&self) -> (u16, u32) {
        match self {
            Refusal::BadRequest(_) | Refusal::Query { .. } | Refusal::NotAvailable(_) => (400, 0),
            Refusal::PartitionKeyMismatch | Refusal::PartitionKeyParts { .. } => (400, 1001),
            Refusal::ContainerRecreated { .. } => (400, 1024),
            Refusal::NotFound => (404, 0),
            Refusal::SessionNotAvailable => (404, 1002),
            Refusal::OwnerNotFound => (404, 1003),
            Refusal::Conflict(_) => (409, 0),
            Refusal::RangeGone => (410, 1002),
            Refusal::PreconditionFailed(_) => (412, 0),
            Refusal::TooLarge { .. } => (413, 0),
            Refusal::DefinitionsFull { .. } => (403, 0),
            Refusal::FailedDependency => (424, 0),
            Refusal::TooManyRequests { .. } => (429, 3200),
            Refusal::NoSpace => (507, 0),
            Refusal::Stopped => (503, 0),
        }
    }

    pub fn bad(text: impl Into<String>) -> Refusal {
        Refusal::BadRequest(text.into())
    }
}
