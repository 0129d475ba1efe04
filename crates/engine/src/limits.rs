//! Every budget of the engine, with its reason.

/// Bytes that were handed over and are not durable yet, per partition. Beyond it sockets are not read: a stalled disk
/// ends in TCP back-pressure, not in memory.
pub const UNDURABLE_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of bodies in one append. Enough that the cost of a sync is spread thin; small enough that a sync of it
/// takes a few milliseconds.
pub const APPEND_BYTES: usize = 4 * 1024 * 1024;

/// Batch buffers kept after their commit, so that a message that is received soon is not read back from disk. A setting;
/// this is what it is by default.
pub const TAIL_CACHE_BYTES: usize = 32 * 1024 * 1024;

/// Largest body that the tail cache takes. Larger ones are sent piece by piece, and each costs one read in any case.
pub const CACHED_BODY_BYTES: u32 = 128 * 1024;

/// Bodies that were read for connections which have no room for them yet, over all connections: 64 runs. A connection
/// beyond it reads when it has room, and waits for the disk.
pub const READ_AHEAD_BYTES: usize = 16 * 1024 * 1024;

/// Without anything to do for this long, the journal is sealed: damage to what lies before can no longer pass for an
/// interrupted write.
pub const SEAL_AFTER_MS: u64 = 50;
