//! Every budget of the items engine, with its reason.

/// As much as the bus takes, for the same reasons.
pub use engine::limits::{APPEND_BYTES, SEAL_AFTER, SYNC_PENDING_MOST, UNDURABLE_BYTES};
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

/// The part of the budget, in hundredths, for entries that were lately asked for one by one: a read or an upsert that finds its item there takes
/// half the time of one that looks for it in files.
pub const ROW_PERCENT: u64 = 40;

/// The part of the budget for blocks of files; the system keeps files in memory too. What is left of the budget is for what nobody counts:
/// merging files, and memory that was freed by one thread and is wanted by another.
pub const BLOCK_SHARE: u64 = 16;

/// A checkpoint is begun when the journal has grown by this much, however few changes that are: so much is replayed at a start.
pub const CHECKPOINT_JOURNAL_BYTES: u64 = 64 * 1024 * 1024;

/// Files that hold the newest changes and may overlap. Beyond this many a read has too many places to look at, and no checkpoint
/// begins before some are merged.
pub const OVERLAPPING_FILES: usize = 24;

/// Overlapping files that are worth merging. A merge writes everything again that lies between the oldest and the newest key, so half as
/// many of them write half as much; a read that finds no row has these files to look at.
pub const MERGE_FILES: u8 = 8;

/// Bytes of a file of the store. So many times [`MERGE_FILES`] is what overlapping files are merged into, which each merge writes again.
pub const FILE_BYTES: u64 = 32 * 1024 * 1024;

/// Open files of the store.
pub const OPEN_FILES: usize = 256;

/// Items removed in one slice of the background removal: some hundred microseconds, for which a decision may have to wait.
pub const PURGE_SLICE: usize = 16;

/// The same while nobody asks: each slice is an append with a sync of its own, so larger ones end sooner. A command that comes in the middle of one
/// waits for a few milliseconds.
pub const PURGE_SLICE_ALONE: usize = 128;

/// While somebody asks, the removal rests so many times as long as a slice took: it takes a fifth of a core at most.
pub const PURGE_RESTS: u32 = 4;

/// Steps of one page of a query or feed (items and index entries looked at): about ten milliseconds.
pub const PAGE_STEPS: u64 = 10_000;

/// Queries and feeds that run at the same time; more wait. They share the cores with everything else.
pub const LONG_READS: usize = 4;

/// How long a query may take for one page, the wait for its turn included: as long as the official clients wait for an answer. Pages that stream
/// end by themselves long before.
pub const QUERY_TIME: Duration = Duration::from_secs(60);

/// What all queries that run hold together of rows, groups and values. One alone may hold two thirds of it (`items::limits::QUERY_HELD_BYTES`).
pub const QUERIES_BYTES: usize = 240 * 1024 * 1024;

/// After how long who found no room in that is told to come back.
pub const QUERY_RETRY_MS: u64 = 1_000;

/// Ranges whose first entry is known; more are forgotten.
pub const SKIPPED_RANGES: usize = 4_096;

/// Entries that are remembered. A point operation looks at two: the numbers of its container and its item.
pub const REMEMBERED_ENTRIES: usize = 4;

/// Parts of the rows that are read often: so many can be looked at without waiting for each other.
pub const ROW_SHARDS: usize = 16;

/// What a row that is read often takes beside its bytes, about.
pub const ROW_OVERHEAD_BYTES: u64 = 160;

/// What a recent change takes beside its bytes, about: two handles, a key's head and a version, in a tree whose nodes are two thirds full.
pub const ENTRY_OVERHEAD_BYTES: u64 = 172;

/// Larger values are read from the base each time: one of them would push a hundred others out.
pub const LARGEST_ROW: usize = 64 * 1_024;

/// Beginnings of keys that the rows tell apart; with more, every entry is looked for.
pub const ROW_BEGINNINGS: usize = 4_096;

/// Entries that deciding takes at a time: mostly it wants one, or all of a few.
pub const FIRST_CHUNK: usize = 8;

pub const LATER_CHUNK: usize = 512;

/// Entries that a scan of recent changes takes at a time: the lock is held for some microseconds.
pub const SCAN_CHUNK: usize = 32;

/// How far merging stands back behind everything else.
pub const MERGE_NICENESS: i32 = 10;
