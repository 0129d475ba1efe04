//! Every number that bounds what a peer's bytes may make us do while decoding, with its reason.

/// Deepest nesting of lists, maps, arrays and described values. The official clients stay below 10; a deeper
/// value is an attack on the stack of somebody further down the line.
pub const VALUE_DEPTH: u32 = 32;

/// Most values that may be materialised from one frame or one message section, nested ones included. One budget
/// for all compounds together, so that many small arrays cannot add up to what one large array may not be.
pub const VALUE_NODES: u32 = 65_536;

/// Most sections one encoded message may have. A batch envelope has one data section for each message.
pub const MESSAGE_SECTIONS: usize = 10_000;
