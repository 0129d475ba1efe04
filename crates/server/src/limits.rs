//! Every number that bounds what the binary does, waits for or takes, with its reason.

use std::time::Duration;

/// Damaged places that are told one by one; a disk that is worse is not worth reading about.
pub const SHOWN_DAMAGES: usize = 1_000;

/// How many folders deep the data directory's files are.
pub const DATA_DEPTH: u32 = 4;

/// Issuers change their keys about once a day, and tell before they use them.
pub const ISSUER_KEYS_EVERY: Duration = Duration::from_secs(600);

/// A token with an unknown key makes us look sooner, but not sooner than this: anybody can make one up.
pub const ISSUER_KEYS_LEAST: Duration = Duration::from_secs(30);

/// For an issuer to tell its keys.
pub const ISSUER_KEYS_TIMEOUT: Duration = Duration::from_secs(10);

/// A key set has some kilobytes.
pub const ISSUER_KEYS_BYTES: usize = 256 * 1_024;

/// How long a stopping server waits for connections to end. What was accepted is durable already; the rest is politeness.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// Least memory for connections, one of which may hold more, and for what lives long.
pub const MEMORY_MEGABYTES_LEAST: usize = 16;

/// Largest tail cache that may be asked for: a typing error must not become all of the machine's memory.
pub const TAIL_CACHE_MEGABYTES_MOST: usize = 65_536;

/// The same for the items' cache.
pub const ITEMS_CACHE_MEGABYTES_MOST: u64 = 1_048_576;

/// The least with which the items work.
pub const ITEMS_CACHE_MEGABYTES_LEAST: u64 = items_engine::limits::CACHE_BYTES_LEAST / 1_024 / 1_024;
