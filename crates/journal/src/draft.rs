//! What one append carries, and the form in which bodies travel to it.
//!
//! Connections lay a body out as `[u32 length][u32 crc32c][bytes]` while its bytes are in the cache anyway; the
//! journal then only takes slices of their buffers and copies no body.

use bytes::Bytes;

/// Bytes in front of each stored body: its length and its CRC32C, both little-endian.
pub const BODY_PREFIX_BYTES: usize = 8;

/// The prefix under which `body` is stored.
pub fn body_prefix(body: &[u8]) -> [u8; BODY_PREFIX_BYTES] {
    let length = u32::try_from(body.len()).expect("a body part is far below 4 GiB");
    join_prefix(length, crc32c::crc32c(body))
}

pub(crate) fn join_prefix(length: u32, crc: u32) -> [u8; BODY_PREFIX_BYTES] {
    let mut prefix = [0; BODY_PREFIX_BYTES];
    prefix[..4].copy_from_slice(&length.to_le_bytes());
    prefix[4..].copy_from_slice(&crc.to_le_bytes());
    prefix
}

pub(crate) fn split_prefix(prefix: [u8; BODY_PREFIX_BYTES]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = prefix;
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

/// One batch on its way to the journal. Reused between appends, so a batch costs no allocation once warm.
#[derive(Debug, Default, Clone)]
pub struct Draft {
    /// Owner time in milliseconds UTC.
    pub time: i64,
    /// How many records `records` holds; opaque, handed back by [`crate::Journal::read`].
    pub record_count: u32,
    /// Encoded records, back to back; opaque to the journal.
    pub records: Vec<u8>,
    /// Length of each body without its prefix, in order. The first gets the id [`crate::Journal::next_body`].
    pub body_lengths: Vec<u32>,
    /// The stored bodies back to back, cut anywhere: each is its prefix ([`body_prefix`]) and its bytes.
    pub pieces: Vec<Bytes>,
}

impl Draft {
    /// Forgets the content and keeps the buffers.
    pub fn clear(&mut self) {
        self.time = 0;
        self.record_count = 0;
        self.records.clear();
        self.body_lengths.clear();
        self.pieces.clear();
    }

    /// Adds a body that is not yet in its stored form. For tests and rare records; connections lay out their own.
    pub fn push_body(&mut self, body: &[u8]) {
        let mut stored = Vec::with_capacity(BODY_PREFIX_BYTES + body.len());
        stored.extend_from_slice(&body_prefix(body));
        stored.extend_from_slice(body);
        self.body_lengths.push((stored.len() - BODY_PREFIX_BYTES) as u32);
        self.pieces.push(Bytes::from(stored));
    }

    /// Bytes of all bodies with their prefixes.
    pub fn body_bytes(&self) -> usize {
        self.body_lengths.iter().map(|&length| BODY_PREFIX_BYTES + length as usize).sum()
    }

    /// Visits the CRC of each body, read from its prefix in the pieces.
    ///
    /// Panics when the pieces do not hold exactly the bodies that `body_lengths` announces: writing such a batch
    /// would make a journal that cannot be read.
    pub(crate) fn each_body(&self, mut visit: impl FnMut(u32, u32)) {
        let mut pieces = Walk { pieces: &self.pieces, piece: 0, offset: 0 };
        for &length in &self.body_lengths {
            let (announced, crc) = split_prefix(pieces.take_prefix());
            assert_eq!(announced, length, "a body's prefix differs from the draft's table");
            pieces.skip(length as usize);
            visit(length, crc);
        }
        assert!(pieces.is_done(), "the draft's pieces hold more than its bodies");
    }
}

/// Walks over the pieces as if they were one run of bytes.
struct Walk<'a> {
    pieces: &'a [Bytes],
    piece: usize,
    offset: usize,
}

impl Walk<'_> {
    fn take_prefix(&mut self) -> [u8; BODY_PREFIX_BYTES] {
        let mut prefix = [0; BODY_PREFIX_BYTES];
        let mut filled = 0;
        while filled < prefix.len() {
            let rest = self.rest();
            let count = rest.len().min(prefix.len() - filled);
            prefix[filled..filled + count].copy_from_slice(&rest[..count]);
            filled += count;
            self.offset += count;
        }
        prefix
    }

    fn skip(&mut self, mut count: usize) {
        while count > 0 {
            let step = self.rest().len().min(count);
            self.offset += step;
            count -= step;
        }
    }

    /// What is left of the current piece; never empty.
    fn rest(&mut self) -> &[u8] {
        while self.pieces.get(self.piece).is_some_and(|piece| piece.len() == self.offset) {
            self.piece += 1;
            self.offset = 0;
        }
        let piece = self.pieces.get(self.piece).expect("the draft's pieces end inside a body");
        &piece[self.offset..]
    }

    fn is_done(&self) -> bool {
        let left: usize = self.pieces[self.piece.min(self.pieces.len())..].iter().map(Bytes::len).sum();
        left == self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crcs(draft: &Draft) -> Vec<(u32, u32)> {
        let mut seen = Vec::new();
        draft.each_body(|length, crc| seen.push((length, crc)));
        seen
    }

    #[test]
    fn bodies_are_found_wherever_the_pieces_are_cut() {
        let mut whole = Draft::default();
        whole.push_body(b"first");
        whole.push_body(b"");
        whole.push_body(b"third body");
        let expected = crcs(&whole);
        let joined: Vec<u8> = whole.pieces.iter().flatten().copied().collect();
        for cut in 0..=joined.len() {
            let pieces = vec![Bytes::copy_from_slice(&joined[..cut]), Bytes::copy_from_slice(&joined[cut..])];
            assert_eq!(crcs(&Draft { pieces, ..whole.clone() }), expected, "cut at {cut}");
        }
        assert_eq!(expected[2], (10, crc32c::crc32c(b"third body")));
        assert_eq!(whole.body_bytes(), joined.len());
    }

    #[test]
    #[should_panic(expected = "hold more than its bodies")]
    fn a_piece_that_no_body_announces_is_a_bug() {
        let mut draft = Draft::default();
        draft.push_body(b"first");
        draft.pieces.push(Bytes::from_static(b"x"));
        crcs(&draft);
    }

    #[test]
    #[should_panic(expected = "end inside a body")]
    fn a_body_without_all_of_its_bytes_is_a_bug() {
        let mut draft = Draft::default();
        draft.push_body(b"first");
        draft.pieces[0].truncate(10);
        crcs(&draft);
    }
}
