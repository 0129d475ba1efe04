//! One frame: a head (fixed fields, records, table of bodies) under one checksum, and the bodies behind it.
//!
//! The head starts with its segment's incarnation, which is random: neither a frame of the segment's former life
//! nor a body that somebody crafted can pass for a frame. The checksum is salted with incarnation and offset, the
//! chain is not: a copy of the journal in other files has the same chain. Layout: docs/format/journal.md.

use crate::draft::{BODY_PREFIX_BYTES, Draft, join_prefix, split_prefix};
use crate::hash;
use crate::journal::{BodyId, Epoch, Position};
use crate::limits::FRAME_ALIGNMENT;

/// Bytes of the fixed fields.
pub(crate) const FIXED_BYTES: usize = 80;
/// Incarnation and checksum come first and cover neither themselves nor each other.
const COVERED_FROM: usize = 12;
/// Bytes of one entry of the table of bodies: the same as a body's prefix.
const ENTRY_BYTES: usize = BODY_PREFIX_BYTES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Records and bodies; the only kind that takes a position and a link of the chain.
    Batch = 1,
    /// Says that everything before it is complete.
    Seal = 2,
    /// Opens an epoch; its records are the owner's number.
    Fence = 3,
}

/// The fixed fields of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fixed {
    pub(crate) kind: Kind,
    /// The position of this batch; for the other kinds that of the batch before.
    pub(crate) position: Position,
    pub(crate) epoch: Epoch,
    pub(crate) time: i64,
    /// Chain value of the batch before.
    pub(crate) chain_before: u64,
    /// Id of the first body here, or of the next one anywhere.
    pub(crate) first_body: BodyId,
    pub(crate) record_count: u32,
    pub(crate) records_bytes: u32,
    pub(crate) body_count: u32,
    /// Bytes of all bodies with their prefixes.
    pub(crate) bodies_bytes: u64,
}

impl Fixed {
    /// Reads the fields without trusting them: what they claim must still fit and the checksum must agree.
    pub(crate) fn decode(bytes: &[u8; FIXED_BYTES], incarnation: u64) -> Option<Fixed> {
        if long(bytes, 0) != incarnation {
            return None;
        }
        let kind = match word(bytes, 12) {
            1 => Kind::Batch,
            2 => Kind::Seal,
            3 => Kind::Fence,
            _ => return None,
        };
        Some(Fixed {
            kind,
            position: Position(long(bytes, 16)),
            epoch: Epoch(long(bytes, 24)),
            time: long(bytes, 32) as i64,
            chain_before: long(bytes, 40),
            first_body: BodyId(long(bytes, 48)),
            record_count: word(bytes, 56),
            records_bytes: word(bytes, 60),
            body_count: word(bytes, 64),
            bodies_bytes: long(bytes, 72),
        })
    }

    pub(crate) fn head_bytes(&self) -> u64 {
        FIXED_BYTES as u64 + u64::from(self.records_bytes) + u64::from(self.body_count) * ENTRY_BYTES as u64
    }

    /// The whole frame up to where the next one begins; `None` when the claim is beyond all sense.
    pub(crate) fn frame_bytes(&self) -> Option<u64> {
        self.head_bytes().checked_add(self.bodies_bytes)?.checked_next_multiple_of(FRAME_ALIGNMENT)
    }
}

/// Bytes that a draft takes, alignment included.
pub(crate) fn frame_bytes(draft: &Draft) -> usize {
    let table = draft.body_lengths.len() * ENTRY_BYTES;
    let bytes = FIXED_BYTES + draft.records.len() + table + draft.body_bytes();
    bytes.next_multiple_of(FRAME_ALIGNMENT as usize)
}

/// Writes a head into `head`, without incarnation and checksum, which depend on where it will be. Returns the frame's
/// chain value.
pub(crate) fn encode(head: &mut Vec<u8>, fixed: &Fixed, draft: &Draft) -> u64 {
    head.clear();
    head.resize(FIXED_BYTES, 0);
    head.extend_from_slice(&draft.records);
    draft.each_body(|length, crc| head.extend_from_slice(&join_prefix(length, crc)));
    put_word(head, 12, fixed.kind as u32);
    put_long(head, 16, fixed.position.0);
    put_long(head, 24, fixed.epoch.0);
    put_long(head, 32, fixed.time as u64);
    put_long(head, 40, fixed.chain_before);
    put_long(head, 48, fixed.first_body.0);
    put_word(head, 56, fixed.record_count);
    put_word(head, 60, fixed.records_bytes);
    put_word(head, 64, fixed.body_count);
    put_long(head, 72, fixed.bodies_bytes);
    hash::chain(&head[COVERED_FROM..])
}

/// Fixes a head to its place.
pub(crate) fn stamp(head: &mut [u8], incarnation: u64, offset: u64) {
    put_long(head, 0, incarnation);
    let crc = checksum(head, incarnation, offset);
    put_word(head, 8, crc);
}

/// Whether a whole head (fixed fields, records, table) is what was written at this place.
pub(crate) fn is_intact(head: &[u8], incarnation: u64, offset: u64) -> bool {
    long(head, 0) == incarnation && word(head, 8) == checksum(head, incarnation, offset)
}

pub(crate) fn chain_of(head: &[u8]) -> u64 {
    hash::chain(&head[COVERED_FROM..])
}

fn checksum(head: &[u8], incarnation: u64, offset: u64) -> u32 {
    let mut salt = [0; 16];
    salt[..8].copy_from_slice(&incarnation.to_le_bytes());
    salt[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&salt), &head[COVERED_FROM..])
}

/// The records and the table of an intact head; `None` when the table contradicts the fixed fields.
pub(crate) fn split<'a>(fixed: &Fixed, head: &'a [u8]) -> Option<(&'a [u8], &'a [[u8; ENTRY_BYTES]])> {
    let (records, table) = head[FIXED_BYTES..].split_at(fixed.records_bytes as usize);
    let (entries, _) = table.as_chunks::<ENTRY_BYTES>();
    let stored =
        entries.iter().map(|&entry| u64::from(split_prefix(entry).0) + ENTRY_BYTES as u64).sum::<u64>();
    (stored == fixed.bodies_bytes).then_some((records, entries))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the fixed fields are whole"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the fixed fields are whole"))
}

fn put_word(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_long(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Fixed, Vec<u8>, u64) {
        let mut draft = Draft { time: -5, record_count: 2, records: b"records".to_vec(), ..Draft::default() };
        draft.push_body(b"one");
        draft.push_body(b"two bodies");
        let fixed = Fixed {
            kind: Kind::Batch,
            position: Position(9),
            epoch: Epoch(3),
            time: -5,
            chain_before: 77,
            first_body: BodyId(40),
            record_count: 2,
            records_bytes: 7,
            body_count: 2,
            bodies_bytes: draft.body_bytes() as u64,
        };
        let mut head = Vec::new();
        let chain = encode(&mut head, &fixed, &draft);
        assert_eq!(fixed.frame_bytes(), Some(frame_bytes(&draft) as u64));
        (fixed, head, chain)
    }

    #[test]
    fn a_head_reads_back_as_it_was_written() {
        let (fixed, mut head, chain) = sample();
        stamp(&mut head, 11, 4096);
        assert_eq!(Fixed::decode(head.first_chunk().unwrap(), 11), Some(fixed));
        assert!(is_intact(&head, 11, 4096));
        assert_eq!(chain_of(&head), chain);
        let (records, table) = split(&fixed, &head).unwrap();
        assert_eq!(records, b"records");
        assert_eq!(table.iter().map(|entry| split_prefix(*entry).0).collect::<Vec<_>>(), [3, 10]);
    }

    #[test]
    fn a_head_is_intact_only_in_its_own_segment_and_at_its_own_offset() {
        let (_, mut head, chain) = sample();
        stamp(&mut head, 11, 4096);
        assert!(!is_intact(&head, 12, 4096));
        assert!(!is_intact(&head, 11, 4104));
        stamp(&mut head, 12, 8192);
        assert_eq!(chain_of(&head), chain, "the chain does not depend on the place");
    }

    #[test]
    fn every_flipped_bit_of_a_head_is_noticed() {
        let (_, mut head, _) = sample();
        stamp(&mut head, 11, 4096);
        for bit in 0..head.len() * 8 {
            head[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_intact(&head, 11, 4096), "bit {bit}");
            head[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
