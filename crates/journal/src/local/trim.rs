//! Giving segments back: oldest first, so that what is left never has a hole.

use super::{Local, names};
use crate::error::Error;
use crate::journal::Position;
use std::sync::Arc;

impl Local {
    pub(super) fn drop_segments(&mut self, before: Position) -> Result<(), Error> {
        // Should the newest snapshot turn out damaged, the older one needs everything behind it.
        let Some(fallback) = self.snapshots.fallback() else { return Ok(()) };
        let before = before.min(fallback.next());
        let may_drop =
            |journal: &Local| journal.segments.get(1).is_some_and(|next| next.header.first.position < before);
        if may_drop(self) {
            // What was alive there was copied forward; the copies must not be lost where the originals were given up.
            self.sync_if_relaxed()?;
        }
        while may_drop(self) {
            if !self.drop_oldest()? {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether it could.
    fn drop_oldest(&mut self) -> Result<bool, Error> {
        let oldest = &self.segments[0];
        let name = names::segment(oldest.header.ordinal);
        let failed = |action, error| Error::io(action, &oldest.path, error);
        // Somebody who still reads from it keeps the file, which has no name any more.
        let is_unread = Arc::strong_count(oldest) == 1;
        // Without a handle to spare it stays for now.
        if !is_unread && oldest.hold().is_err() {
            return Ok(false);
        }
        let left = oldest.header.ordinal + 1..=self.active().header.ordinal;
        self.extent.note_before_trim(left).map_err(|error| self.shared.stop(error))?;
        let is_recycled = is_unread
            && self.spare.recycle(&name, oldest.header.bytes).map_err(|error| failed("recycle", error))?;
        if !is_recycled {
            self.disk.remove(&name).map_err(|error| failed("remove", error))?;
        }
        // Before the next one goes, or a power failure could undo this removal alone and leave a hole.
        self.disk.sync_dir().map_err(|error| self.shared.stop(failed("sync the directory of", error)))?;
        self.segments.remove(0);
        Ok(true)
    }
}
