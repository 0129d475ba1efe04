//! What was read from a socket and not yet understood. Grows while reads fill it, and no further than what a peer may
//! send in one frame: little before it has proved who it is, more afterwards.

use crate::limits::FIRST_INPUT_BYTES;

#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The last read left no room: the peer has more to say than fits.
    is_full: bool,
    /// Something was read since somebody last asked for room back.
    is_busy: bool,
}

impl Buffer {
    pub(super) fn new(first: &[u8]) -> Buffer {
        let mut bytes = vec![0; FIRST_INPUT_BYTES.max(first.len())];
        bytes[..first.len()].copy_from_slice(first);
        Buffer { bytes, start: 0, end: first.len(), is_full: first.len() >= FIRST_INPUT_BYTES, is_busy: true }
    }

    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Keeps no room for a peer that has said nothing for a while.
    pub(super) fn give_back(&mut self) {
        if !std::mem::take(&mut self.is_busy)
            && self.start == self.end
            && self.bytes.len() > FIRST_INPUT_BYTES
        {
            *self = Buffer { is_busy: false, ..Buffer::new(&[]) };
        }
    }

    /// Room for the next read, up to `most` in all; empty when the peer has sent all that it may without making sense.
    pub(super) fn room(&mut self, most: usize) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.is_full && self.bytes.len() < most {
            let mut larger = vec![0; (self.bytes.len() * 4).min(most)];
            larger[..self.end].copy_from_slice(&self.bytes[..self.end]);
            self.bytes = larger;
        }
        self.is_full = false;
        &mut self.bytes[self.end..]
    }

    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
        self.is_busy = true;
        self.is_full = self.end == self.bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{INPUT_BYTES, STRANGER_INPUT_BYTES};

    #[test]
    fn what_is_left_over_stays_in_front_of_what_comes() {
        let mut buffer = Buffer::new(b"abc");
        buffer.consume(2);
        buffer.room(INPUT_BYTES)[..2].copy_from_slice(b"de");
        buffer.filled(2);
        assert_eq!(buffer.unread(), b"cde");
    }

    /// Small frames leave little over from each read; the buffer must grow by what reads fill, or every read of a busy
    /// peer takes four kilobytes.
    #[test]
    fn reads_that_fill_the_buffer_make_it_grow_however_little_is_left_over() {
        let mut buffer = Buffer::new(b"");
        let reads = 8;
        let mut last = 0;
        for _ in 0..reads {
            last = buffer.room(INPUT_BYTES).len();
            buffer.filled(last);
            let leftover = 10;
            buffer.consume(buffer.unread().len() - leftover);
        }
        assert_eq!(last, INPUT_BYTES - 10);
    }

    #[test]
    fn a_peer_that_says_little_keeps_a_small_buffer() {
        let mut buffer = Buffer::new(b"");
        for _ in 0..100 {
            buffer.room(INPUT_BYTES);
            buffer.filled(1_000);
            buffer.consume(1_000);
        }
        assert_eq!(buffer.bytes.len(), FIRST_INPUT_BYTES);
    }

    #[test]
    fn a_peer_that_has_grown_silent_keeps_no_room() {
        let mut buffer = Buffer::new(b"");
        for _ in 0..4 {
            let count = buffer.room(INPUT_BYTES).len();
            buffer.filled(count);
            buffer.consume(count);
        }
        buffer.give_back();
        assert_eq!(buffer.held_bytes(), INPUT_BYTES, "it has said something just now");
        buffer.give_back();
        assert_eq!(buffer.held_bytes(), FIRST_INPUT_BYTES);
    }

    #[test]
    fn a_stranger_gets_no_more_room_than_one_frame() {
        let mut buffer = Buffer::new(b"");
        let mut total = 0;
        while !buffer.room(STRANGER_INPUT_BYTES).is_empty() {
            let count = buffer.room(STRANGER_INPUT_BYTES).len();
            total += count;
            buffer.filled(count);
        }
        assert_eq!(total, STRANGER_INPUT_BYTES);
    }
}
