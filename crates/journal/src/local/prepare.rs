//! Laying the next frame out while the one before is with the disk, so that it can go there at once.

use super::Local;
use super::tail_pages::Overflow;
use crate::draft::Draft;
use crate::frame::{self, FIXED_BYTES, Fixed, Kind};
use crate::journal::Position;

/// A frame that lies in the pages of the tail, with its head beside it.
#[derive(Debug)]
pub(super) struct Prepared {
    fixed: Fixed,
    chain: u64,
}

impl Local {
    /// Lays out what can be left to the thread that waits for it. Nothing is written, and no file is made.
    pub(super) fn prepare_batch(&mut self, draft: &Draft, at: Position) -> bool {
        self.prepared = None;
        let bytes = frame::frame_bytes(draft);
        if at != self.edge.position.next() || !self.has_place(bytes as u64) {
            return false;
        }
        let Ok(file) = self.active().file() else { return false };
        if !self.can_leave(&*file) {
            return false;
        }
        let fixed = self.fixed(Kind::Batch, at, self.edge.epoch, draft);
        let chain = frame::encode(&mut self.head, &fixed, draft);
        if self.lay_out(bytes as u64, &draft.pieces, Overflow::Left).is_err() {
            return false;
        }
        self.prepared = Some(Prepared { fixed, chain });
        true
    }

    /// The chain value of this very frame, if it is laid out. A draft only grows, so one that is as long is the same.
    pub(super) fn take_prepared(&mut self, fixed: &Fixed, draft: &Draft) -> Option<u64> {
        let prepared = self.prepared.take().filter(|prepared| prepared.fixed == *fixed)?;
        assert!(self.head[FIXED_BYTES..].starts_with(&draft.records), "what was prepared has only grown");
        debug_assert_eq!(frame::encode(&mut Vec::new(), fixed, draft), prepared.chain);
        Some(prepared.chain)
    }
}
