//! Where a body lies, as a handle that outlives trimming and can be read on any thread.

use crate::draft::BODY_PREFIX_BYTES;
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
        out.resize(start + entry.length as usize, 0);
        let body_at = u64::from(entry.offset) + BODY_PREFIX_BYTES as u64;
        let read = self.segment.read_exact(body_at, &mut out[start..]);
        // Judged by the table, which is salted with the segment's life, not by the prefix, which is not: a body that
        // a lost write left over from a former life has a good prefix.
        let checked = read.and_then(|()| match crc32c::crc32c(&out[start..]) == entry.crc {
            true => Ok(()),
            false => Err(self.damaged(body_at)),
        });
        if checked.is_err() {
            out.truncate(start);
        }
        checked
    }

    fn damaged(&self, offset: u64) -> Error {
        let what = format!("body {} does not match its checksum", self.body.0);
        Error::corrupt(&self.segment.path, offset, what)
    }
}
