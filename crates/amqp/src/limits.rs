//! Every number that bounds what a peer may make this crate hold or do, with its reason. The same code enforces them
//! before and after login; `BEFORE_CLAIM` values are the tighter ones in force until a claim was accepted, because
//! anyone may finish SASL anonymously.

/// Smallest maximum frame size a peer may ask for (AMQP 1.0 part 2, 2.7.1), and the largest SASL frame (part 5,
/// 5.3.1): a stranger may make us hold 512 bytes, not 512 kilobytes.
pub const MIN_FRAME_BYTES: u32 = 512;

/// Largest frame that is read before a claim was accepted: the largest request for one, and what is around it. What we announce
/// counts from then on.
pub const FRAME_BYTES_BEFORE_CLAIM: u32 = 22 * 1024;

/// Largest frame that is read once a claim was accepted, as it is announced: what the service announces.
pub const FRAME_BYTES: u32 = 64 * 1024;

/// A peer that has sent nothing for this long is asked to send empty frames, and is given up after twice that. In milliseconds, as it is
/// announced; what the service announces.
pub const IDLE_TIME_OUT_MS: u32 = 240_000;

/// Longest delivery tag (AMQP 1.0 part 2, 2.8.7). Ours are lock tokens of 16 bytes.
pub const TAG_BYTES: usize = 32;

/// Largest frame we write, whatever the peer allows: JavaScript clients allow four gigabytes, and a frame is the
/// unit in which links of one connection take turns.
pub const OUTGOING_FRAME_BYTES: u32 = 256 * 1024;

/// Largest frame that is not a transfer, a disposition or a flow. The official clients' attaches stay below 2 KiB; an
/// undecided attach is kept until its answer, so this bounds what waiting attaches hold.
pub const COLD_FRAME_BYTES: usize = 16 * 1024;
pub const COLD_FRAME_BYTES_BEFORE_CLAIM: usize = 4 * 1024;

/// Most values built from one frame. One node takes about 40 bytes in memory and one byte on the wire, so a frame of
/// nulls must not become megabytes.
pub const FRAME_NODES: u32 = 16_384;
pub const FRAME_NODES_BEFORE_CLAIM: u32 = 256;

/// Sessions of one connection, told to the client as channel-max. .NET, Java, JavaScript and Go open one for each link,
/// so this is the number of links that one client object may have open. A few hundred bytes each.
pub const SESSIONS: u16 = 4096;
/// One for the claim, and a few that a client with several links may begin while the claim is on its way.
pub const SESSIONS_BEFORE_CLAIM: u16 = 4;

/// Links of one connection, over all sessions. Also the number of slots a [`crate::LinkKey`] can name.
pub const LINKS: usize = 4096;
/// The `$cbs` pair, the pair of a second try, and what a client attaches while it waits.
pub const LINKS_BEFORE_CLAIM: usize = 8;

/// Links of one session: the highest handle plus one.
pub const LINKS_PER_SESSION: u32 = 256;

/// Frames a peer may send on a session before it must wait for a flow; refreshed at half. JavaScript sends a message
/// only when all its frames fit, and no client asks for less than 2048. Not a memory bound: frames are handed on one
/// at a time and the socket is not read while the broker is behind.
pub const INCOMING_WINDOW: u32 = 16_384;

/// What we say of our own outgoing window, which nobody uses.
pub const OUTGOING_WINDOW: u32 = i32::MAX as u32;

/// Deliveries sent and not yet settled on one session, 24 bytes each. A consumer that never settles stops
/// receiving here.
pub const UNSETTLED_PER_SESSION: usize = 65_536;

/// Bytes of unfinished deliveries (frames with `more` set) that the door holds over all links of a connection. A large
/// message is passed on in parts of half a megabyte, so that a dozen of them may arrive at once.
pub const UNFINISHED_BYTES: u64 = 8 * 1024 * 1024;
/// A put-token of 20 KiB, and the beginning of another: with what may be read and not understood, below the 128 KiB that a
/// stranger may cost.
pub const UNFINISHED_BYTES_BEFORE_CLAIM: u64 = 22 * 1024;

/// Frames that wait for their sessions' windows, in bytes, over all sessions of a connection. Beyond it no delivery begins that
/// may have to wait: a client that asks for messages and keeps its windows closed is given one.
pub const HELD_FRAMES_BYTES: usize = 2 * 1024 * 1024;

/// What a session, a link and an unsettled delivery are counted as, in bytes. A link has its name and addresses besides.
pub const SESSION_COST: usize = 384;
pub const LINK_COST: usize = 1024;
pub const UNSETTLED_COST: usize = 24;

/// Deliveries sent and not yet settled on all sessions of a connection.
pub const UNSETTLED_PER_CONNECTION: usize = 4 * UNSETTLED_PER_SESSION;

/// Largest delivery on a link whose attach is undecided or was accepted without a maximum.
pub const DEFAULT_MESSAGE_BYTES: u64 = 256 * 1024;

/// How far past the maximum a delivery may run while we discard it, so that it can be rejected on its own; a sender
/// that goes on loses the link.
pub const DISCARDED_BYTES: u64 = 64 * 1024 * 1024;

/// Shortest idle time-out of a peer that we honour. A peer that asks for one millisecond would make us write a thousand
/// frames a second for nothing.
pub const MIN_IDLE_TIME_OUT_MS: u32 = 1000;

/// A peer is given up when it was silent for this many of the periods we advertise: one as agreed, one of grace,
/// because Python sends its empty frames only when its application calls it.
pub const SILENT_PERIODS: u64 = 2;

/// How long we wait for a client's close after our own.
pub const CLOSING_MS: u64 = 10_000;

/// Output that may wait for the peer before its frames are no longer taken: a peer that does not read is not listened
/// to, or its echoes and answers would pile up here. Twice what the door keeps encoded for one.
pub const UNREAD_OUTPUT_BYTES: usize = 1024 * 1024;
/// An honest stranger is told some hundred bytes at a time and reads each.
pub const UNREAD_OUTPUT_BYTES_BEFORE_CLAIM: usize = 12 * 1024;

/// Replies after which a link of a management or CBS node needs no credit for more: Python grants this many once and
/// never again, and would wait for its answers for ever.
pub const FREE_REPLIES: u32 = 10_000;

/// Below so many unsettled deliveries nothing is swept but the ends.
pub const SWEEP_UNSETTLED_FROM: usize = 64;

/// What a byte of an attach counts for that is not answered: it is held as it was understood; afterwards the door knows its names.
pub const UNDECIDED_WEIGHT: usize = 4;
