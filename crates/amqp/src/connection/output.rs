//! The bytes that wait to be written, and when the last of them were put there.

use crate::frame::{self, Kind};
use crate::limits::MIN_FRAME_BYTES;

#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    /// What the peer takes; the minimum until its open says more.
    pub(crate) max_frame_bytes: u32,
    /// The last time we were told, in milliseconds. A write counts from here, so it never looks later than it was.
    pub(crate) now: u64,
    pub(crate) last_written: u64,
    /// A frame that cannot be split did not fit the peer's maximum.
    pub(crate) is_overfull: bool,
}

impl Output {
    pub(crate) fn new(now: u64) -> Output {
        Output {
            bytes: Vec::new(),
            max_frame_bytes: MIN_FRAME_BYTES,
            now,
            last_written: now,
            is_overfull: false,
        }
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.last_written = self.now;
    }

    /// Writes a frame that must not be split. One that the peer could not take is left out and ends the connection.
    pub(crate) fn frame(&mut self, channel: u16, body: impl FnOnce(&mut Vec<u8>)) {
        let begun = self.bytes.len();
        let start = frame::begin(&mut self.bytes, Kind::Amqp, channel);
        body(&mut self.bytes);
        if frame::end(&mut self.bytes, start) > self.max_frame_bytes {
            self.bytes.truncate(begun);
            self.is_overfull = true;
        }
        self.last_written = self.now;
    }
}
