//! Every number of the journal, with its reason.

/// Version of the bytes on disk (docs/format/journal.md). Newer data is refused; older data opens or says why not.
pub const FORMAT_VERSION: u32 = 1;

/// Space in front of a segment's first frame: one page, so that frames never share a sector with the header.
pub const SEGMENT_HEADER_BYTES: usize = 4096;

/// Size of a segment: large enough that rolling (two syncs) is rare, small enough that one spare and one live
/// segment fit a drained data directory.
pub const SEGMENT_BYTES: u32 = 32 * 1024 * 1024;

/// Size of the very first segment: its zeros are written while somebody waits for the first start.
pub const FIRST_SEGMENT_BYTES: u32 = 4 * 1024 * 1024;

/// Largest segment that a setting may ask for: offsets inside a segment are 32 bits wide in memory.
pub const MAX_SEGMENT_BYTES: u32 = 1024 * 1024 * 1024;

/// Largest batch, head and bodies together. Twice what a distributed log takes in one record, and an eighth of
/// what would make a batch the whole segment; larger bodies travel in parts.
pub const BATCH_BYTES: usize = 16 * 1024 * 1024;

/// Frames begin at multiples of this, so that a search for the next frame looks at an eighth of the places.
pub const FRAME_ALIGNMENT: u64 = 8;

/// What one write takes, laid out in whole pages: most batches fit, and a larger one is several writes of a size at which a
/// disk is as fast as it gets.
pub const WRITE_BYTES: usize = 512 * 1024;

/// What one read of a scan asks for: a frame head of some hundred records, usually without its bodies.
pub const SCAN_READ_BYTES: usize = 16 * 1024;

/// What one read of a search or of a whole-file check asks for.
pub const BULK_READ_BYTES: usize = 256 * 1024;

/// Most that one read of neighbouring bodies takes. A read of 256 KiB costs about as much per kilobyte as any larger
/// one, and a fifth of what single reads of a kilobyte cost.
pub const RUN_BYTES: u32 = 256 * 1024;

/// Bytes between two bodies that one read of both may take in vain: the head of the next frame and a few bodies that
/// nobody asked for. Reading 16 KiB costs less than a second read.
pub const RUN_GAP_BYTES: u32 = 16 * 1024;

/// Zeros written, then synced, in one step while a spare segment is filled; a batch never queues behind more.
pub const FILL_STEP_BYTES: usize = 1024 * 1024;

/// How far the filling of the spare must be ahead of the use of the segment that is written, in percent of a segment, before
/// it rests between steps: then it is ready when three quarters are used, whatever the rate.
pub const FILL_LEAD_PERCENT: u64 = 25;

/// While segments come back, a new one is filled only when the one that is written is used so far, in percent.
pub const FILL_LATEST_PERCENT: u64 = 50;

/// Snapshots kept: the newest, and one to fall back on if the newest turns out damaged.
pub const SNAPSHOTS_KEPT: usize = 2;

/// Positions, epochs, body ids and segment ordinals stay below this, so that adding to them cannot overflow: at a
/// billion a second it is reached after a century.
pub const ORDINAL_LIMIT: u64 = 1 << 62;

/// Room that is kept allocated and unused, in segments. A full disk then has place for a segment of settlements and
/// copies, and for a snapshot; no more than two, so that a drained data directory stays small.
pub const RESERVE_SEGMENTS: u32 = 2;

/// What must be free beside the reserve before it is taken back, as a share of a segment: enough that it is not given up
/// again for a snapshot, and so little that a drained disk of five segments takes messages again.
pub const RESERVE_MARGIN_SHARE: u32 = 8;

/// Segments whose files are open at a time, beside the one that is written: several readers in different places find theirs
/// open, and a backlog of a hundred thousand segments takes no more of the process's handles than a small one.
pub const SEGMENT_HANDLES: usize = 64;

/// Segments that a journal keeps without batches: the filled one and the one that was given back.
pub const KEPT_SEGMENTS: u32 = 2;

/// What is read of the note that another process has left in its lock: it is shown to a person, and may be anything.
pub const LOCK_NOTE_BYTES: u64 = 200;
