//! Every budget of the items engine, with its reason.

use std::time::Duration;

/// What the items may hold in memory, beside requests: a setting; this is what it is by default.
pub const CACHE_BYTES: u64 = 256 * 1024 * 1024;

/// The least that works: smaller budgets would write files of a few kilobytes.
pub const CACHE_BYTES_LEAST: u64 = 16 * 1024 * 1024;

/// The part of the budget that one table of recent changes takes before it is written to a file.
pub const TABLE_SHARE: u64 = 16;

/// Recent changes beyond this many times a table's share, those included that a checkpoint is writing: nothing more is decided until
/// it has made room.
pub const TABLE_OVERRUN: u64 = 3;

/// The part of the budget for entries that were lately asked for one by one.
pub const ROW_SHARE: u64 = 6;

/// The part of the budget for blocks of files; the system keeps files in memory too. What is left of the budget is for what nobody counts:
/// merging files, and memory that was freed by one thread and is wanted by another.
pub const BLOCK_SHARE: u64 = 10;

/// A checkpoint is begun when the journal has grown by this much, however few changes that are: so much is replayed at a start.
pub const CHECKPOINT_JOURNAL_BYTES: u64 = 64 * 1024 * 1024;

/// Files that hold the newest changes and may overlap. Beyond this many a read has too many places to look at, and no checkpoint
/// begins before some are merged.
pub const OVERLAPPING_FILES: usize = 24;

/// Overlapping files that are worth merging.
pub const MERGE_FILES: u8 = 4;

/// Bytes of a file of the store.
pub const FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Open files of the store.
pub const OPEN_FILES: usize = 256;

/// Bytes of records in one append. As much as the bus takes: a sync of it takes a few milliseconds.
pub const APPEND_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of requests that were handed over and are not durable yet. Beyond it a door waits before it hands over more.
pub const UNDURABLE_BYTES: usize = 64 * 1024 * 1024;

/// Items removed in one slice of the background removal: some hundred microseconds, for which a decision may have to wait.
pub const PURGE_SLICE: usize = 16;

/// The same while nobody asks: each slice is an append with a sync of its own, so larger ones end sooner. A command that comes in the middle of one
/// waits for a few milliseconds.
pub const PURGE_SLICE_ALONE: usize = 128;

/// While somebody asks, the removal rests so many times as long as a slice took: it takes a fifth of a core at most.
pub const PURGE_RESTS: u32 = 4;

/// Without anything to do for this long, the journal is sealed: damage to what comes before can no longer pass for an
/// interrupted write.
pub const SEAL_AFTER: Duration = Duration::from_millis(50);

/// A sync that takes longer than this is no sync to wait for: health says so.
pub const SYNC_PENDING_MOST: Duration = Duration::from_secs(5);

/// Steps of one page of a query or feed (items and index entries looked at): about ten milliseconds.
pub const PAGE_STEPS: u64 = 10_000;

/// Queries and feeds that run at the same time; more wait. They share the cores with everything else.
pub const LONG_READS: usize = 4;
