//! Every budget of the engine, with its reason.

use std::time::Duration;

/// Bytes that were handed over and are not durable yet, per partition. Beyond it sockets are not read: a stalled disk
/// ends in TCP back-pressure, not in memory.
pub const UNDURABLE_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of bodies in one append. Enough that the cost of a sync is spread thin; small enough that a sync of it
/// takes a few milliseconds.
pub const APPEND_BYTES: usize = 4 * 1024 * 1024;

/// Weight (bytes of records, and steps of publishing) that is decided before anybody looks whether the append is full, and after
/// which another connection has its turn: an append may exceed [`APPEND_BYTES`] by this and by one delivery or request, and must
/// stay below what the journal takes.
pub const TURN_BYTES: usize = 1024 * 1024;

/// Steps that are spent in one turn before the owner looks after the disk again: some milliseconds.
pub const TURN_STEPS: usize = 1024 * 1024;

/// Commands of one connection that wait to be decided, beyond which its socket is not read: what comes behind them, of whomever,
/// waits for them, a millisecond.
pub const UNDECIDED_COMMANDS: usize = 1_024;

/// What a command that is not decided counts for besides itself: it becomes an effect or two.
pub const COMMAND_EFFECT_BYTES: usize = 256;

/// Batch buffers kept after their commit, so that a message that is received soon is not read back from disk. A setting;
/// this is what it is by default.
pub const TAIL_CACHE_BYTES: usize = 32 * 1024 * 1024;

/// Largest body that the tail cache takes. Larger ones are sent piece by piece, and each costs one read in any case.
pub const CACHED_BODY_BYTES: u32 = 128 * 1024;

/// Bodies that were read for connections which have no room for them yet, over all connections: 64 runs. A connection
/// beyond it reads when it has room, and waits for the disk.
pub const READ_AHEAD_BYTES: usize = 16 * 1024 * 1024;

/// Without anything to do for this long, the journal is sealed: damage to what comes before can no longer pass for an
/// interrupted write.
pub const SEAL_AFTER: Duration = Duration::from_millis(50);

/// A snapshot is written each time the journal has grown by this, so that a start reads no more than about as much
/// behind it. A segment: two of them, the one that is written and a spare are what a drained partition keeps.
pub const SNAPSHOT_EVERY_BYTES: u64 = 32 * 1024 * 1024;

/// A large backlog makes a large snapshot: the journal grows by so many times its size before the next one, so that
/// snapshots stay a fraction of what is written and of what it costs to write. A start reads the heads of that much, which
/// takes about as long as reading the snapshot.
pub const SNAPSHOT_GROWTH: u64 = 8;

/// While the journal is short snapshots come so many times as often: the reserve holds two segments of settlements at most, and what they
/// settle is given back only behind two snapshots.
pub const SHORT_SNAPSHOTS: u64 = 8;

/// Space that is worth a snapshot in a quiet moment: a segment.
pub const RECLAIM_BYTES: u64 = 32 * 1024 * 1024;

/// And what must have died since the last snapshot, as a share of that: quiet moments of a busy day write none.
pub const DIED_SHARE: u64 = 8;

/// At a clean stop a last snapshot is written if it is likely to be smaller than this, which takes some ten
/// milliseconds, and if the next start would otherwise read a sixteenth of it.
pub const STOP_SNAPSHOT_BYTES: u64 = 16 * 1024 * 1024;

/// What is alive in the front of the journal is copied to its end when it is less than this share, in percent. The
/// journal then takes at most about four times the bytes that are alive.
pub const SPARSE_PERCENT: u64 = 25;

/// Bytes, and bodies, that are copied at a time, and the rest between two steps of upkeep: at most 25 MiB a second, and
/// no batch waits for more than one step.
pub const RELOCATE_SLICE_BYTES: usize = 256 * 1024;
pub const RELOCATE_SLICE_BODIES: usize = 256;
pub const UPKEEP_PAUSE_MS: i64 = 10;

/// How long copying rests when a body could not be read and may be readable later.
pub const UPKEEP_RETRY_MS: i64 = 10_000;

/// A difference of owner time to the wall clock above this is worth telling somebody.
pub const LARGE_GAP_MS: i64 = 60_000;

/// A sync that takes longer than this is no sync to wait for: health says so.
pub const SYNC_PENDING_MOST: Duration = Duration::from_secs(5);

/// How often a full disk is asked whether it has room again: [`crate::commit::FULL_RETRY`] in the owner's time.
pub const FULL_RETRY_MS: i64 = crate::commit::FULL_RETRY.as_millis() as i64;

/// Everything stored is read again once in this time, to find what the disk has forgotten.
pub const SCRUB_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// The rest between two segments, and the bytes read in a second meanwhile: a fraction of what any disk does.
pub const SCRUB_PAUSE: Duration = Duration::from_secs(10);
pub const SCRUB_BYTES_PER_SECOND: u64 = 8 * 1024 * 1024;
