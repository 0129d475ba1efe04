//! Every number that bounds what a peer's bytes may make us do while decoding, with its reason.

/// Deepest nesting of lists, maps, arrays and described values. The official clients stay below 10; a deeper
/// value is an attack on the stack of somebody further down the line.
pub const VALUE_DEPTH: u32 = 32;

/// Most values that may be materialised from one frame or one message section, nested ones included. One budget
/// for all compounds together, so that many small arrays cannot add up to what one large array may not be.
pub const VALUE_NODES: u32 = 65_536;

/// Most sections one encoded message may have. A batch envelope has one data section for each message.
pub const MESSAGE_SECTIONS: usize = 10_000;

/// Longest MessageId, SessionId, ReplyToSessionId and PartitionKey, in characters (S-6).
pub const ID_CHARACTERS: usize = 128;

/// Largest single property, name included (S-18). Also keeps an overlay's lengths within 16 bits.
pub const PROPERTY_BYTES: u32 = 32 * 1024;

/// Largest header, message annotations, properties and application properties of one message together (S-18).
pub const PROPERTIES_BYTES: u32 = 64 * 1024;

/// Largest encoded overlay: what settlements may add to a message is bounded like what its sender may write, so
/// that a message that is abandoned for ever does not grow for ever.
pub const OVERLAY_BYTES: usize = PROPERTIES_BYTES as usize;

/// Longest head of a section: a symbolic descriptor of 32 characters, and for a value a few descriptors of its own, in
/// front of its constructor, size and count.
pub const SECTION_HEAD_BYTES: usize = 512;

/// Room for a header, all broker annotations and slack, so that usual messages are encoded without growing twice.
pub const STAMP_BYTES: usize = 512;

/// What a changed property takes in memory besides its name and its value: its place in a vector that grows by doubling, and what the
/// allocator adds to two small texts. The smallest have eight bytes where they are stored.
pub const OVERLAY_ENTRY_COST: usize = 80;
