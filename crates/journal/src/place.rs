//! Where a body lies, as a handle that outlives trimming and can be read on any thread.

use crate::draft::{BODY_PREFIX_BYTES, split_prefix};
use crate::error::Error;
use crate::journal::BodyId;
use crate::local::Segment;
use std::sync::Arc;

/// The place of a body. Holding it keeps the segment from being recycled, so the bytes stay readable.
#[derive(Debug, Clone)]
pub struct Place {
    pub(crate) segment: Arc<Segment>,
    pub(crate) body: BodyId,
}

impl Place {
    pub fn body(&self) -> BodyId {
        self.body
    }

    /// Reads and checks the body.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads and checks the body; appends it to `out`, which is unchanged after an error.
    pub fn read_into(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let entry = self.segment.entry(self.body)?;
        let start = out.len();
        let prefix_end = start + BODY_PREFIX_BYTES;
        out.resize(prefix_end + entry.length as usize, 0);
        let checked = self.segment.read_exact(u64::from(entry.offset), &mut out[start..]).and_then(|()| {
            let prefix = out[start..].first_chunk().expect("the prefix was just read");
            // The table is salted with the segment's life, a body's own prefix is not: a body of a former life
            // that a lost write left behind has a good checksum and the wrong one.
            if split_prefix(*prefix) != (entry.length, entry.crc) {
                return Err(self.damaged(entry.offset, "its prefix differs from the table of its frame"));
            }
            if crc32c::crc32c(&out[prefix_end..]) != entry.crc {
                return Err(self.damaged(entry.offset, "its checksum does not match"));
            }
            Ok(())
        });
        match checked {
            Ok(()) => {
                out.drain(start..prefix_end);
                Ok(())
            }
            Err(error) => {
                out.truncate(start);
                Err(error)
            }
        }
    }

    fn damaged(&self, offset: u32, what: &str) -> Error {
        Error::corrupt(&self.segment.path, u64::from(offset), format!("body {}: {what}", self.body.0))
    }
}
