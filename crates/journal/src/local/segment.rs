//! One segment file: its header, its table of bodies, and what is at its two edges.
//!
//! A segment's file is as long as its header says from before its first frame on, so a shorter file is damage and
//! never an early end. Its incarnation is fresh with each life of the file. A segment that has a successor is
//! closed: the successor's header says where it ends, and reading anything else there is damage.

use super::handles::Handle;
use super::scan::Scan;
use super::tail_pages::Layout;
use crate::disk::{DiskFile, read_full, write_all};
use crate::draft::{BODY_PREFIX_BYTES, split_prefix};
use crate::error::{Error, Flaw};
use crate::journal::{BodyId, Epoch, Position};
use crate::limits::{FORMAT_VERSION, ORDINAL_LIMIT, SEGMENT_HEADER_BYTES};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

const MAGIC: [u8; 8] = *b"otobus-j";
const CRC_AT: usize = SEGMENT_HEADER_BYTES - 4;
/// The segment was written without syncing, so its tail may have holes after a power failure.
const FLAG_RELAXED: u32 = 1;

/// What is known between two frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edge {
    /// The last batch before.
    pub(crate) position: Position,
    pub(crate) epoch: Epoch,
    /// The next body.
    pub(crate) body: BodyId,
    /// Chain value of the last batch before.
    pub(crate) chain: u64,
}

impl Edge {
    pub(crate) const START: Edge = Edge { position: Position(0), epoch: Epoch(0), body: BodyId(1), chain: 0 };
}

/// A segment's first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) partition: u32,
    pub(crate) ordinal: u64,
    pub(crate) incarnation: u64,
    /// Length of the file.
    pub(crate) bytes: u32,
    pub(crate) is_relaxed: bool,
    pub(crate) first: Edge,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut block = [0; SEGMENT_HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &FORMAT_VERSION.to_le_bytes());
        put(12, &self.partition.to_le_bytes());
        put(16, &self.ordinal.to_le_bytes());
        put(24, &self.incarnation.to_le_bytes());
        put(32, &self.bytes.to_le_bytes());
        put(36, &if self.is_relaxed { FLAG_RELAXED } else { 0 }.to_le_bytes());
        put(40, &self.first.position.0.to_le_bytes());
        put(48, &self.first.epoch.0.to_le_bytes());
        put(56, &self.first.body.0.to_le_bytes());
        put(64, &self.first.chain.to_le_bytes());
        let crc = crc32c::crc32c(&block[..CRC_AT]);
        block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// Checks everything that the block alone can tell. Magic, version and checksum are where they are in every
    /// version, so that damage and newer data can be told apart.
    fn decode(block: &[u8; SEGMENT_HEADER_BYTES], path: &str) -> Result<Header, Error> {
        let word = |at: usize| u32::from_le_bytes(*block[at..].first_chunk().expect("within the block"));
        let long = |at: usize| u64::from_le_bytes(*block[at..].first_chunk().expect("within the block"));
        if block[..8] != MAGIC {
            return Err(Error::corrupt(path, 0, Flaw::SegmentBeginning, "it does not begin like a segment"));
        }
        if word(CRC_AT) != crc32c::crc32c(&block[..CRC_AT]) {
            return Err(Error::corrupt(
                path,
                0,
                Flaw::SegmentChecksum,
                "the checksum of the segment header does not match",
            ));
        }
        if word(8) > FORMAT_VERSION {
            return Err(Error::NewerFormat { file: path.to_owned(), found: word(8), known: FORMAT_VERSION });
        }
        if word(8) == 0 || word(36) & !FLAG_RELAXED != 0 {
            return Err(Error::corrupt(
                path,
                8,
                Flaw::SegmentVersion,
                "the segment header has a version or flags that never were",
            ));
        }
        let ordinals = [long(16), long(40), long(48), long(56)];
        let is_possible = long(16) > 0 && ordinals.iter().all(|ordinal| *ordinal <= ORDINAL_LIMIT);
        if !is_possible || word(32) < SEGMENT_HEADER_BYTES as u32 {
            return Err(Error::corrupt(
                path,
                16,
                Flaw::SegmentNumbers,
                "the segment header has numbers that never were",
            ));
        }
        Ok(Header {
            partition: word(12),
            ordinal: long(16),
            incarnation: long(24),
            bytes: word(32),
            is_relaxed: word(36) & FLAG_RELAXED != 0,
            first: Edge {
                position: Position(long(40)),
                epoch: Epoch(long(48)),
                body: BodyId(long(56)),
                chain: long(64),
            },
        })
    }
}

/// A body's place and checksum, as the table of its frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Where the prefix is.
    pub(crate) offset: u32,
    pub(crate) length: u32,
    pub(crate) crc: u32,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: String,
    handle: Handle,
    pub(crate) header: Header,
    /// Where the next segment begins, once there is one.
    pub(crate) end: OnceLock<Edge>,
    /// One entry for each body; read from the heads when first needed, so that opening reads only the tail.
    table: Mutex<Option<Vec<Entry>>>,
    /// The end of the batch in flight, until it is written: a thread that reads it before is not to wait.
    unwritten: Mutex<Option<Arc<Layout>>>,
}

impl Segment {
    /// A segment whose table is complete, because it is being written.
    pub(crate) fn fresh(path: String, handle: Handle, header: Header) -> Segment {
        Segment { table: Mutex::new(Some(Vec::new())), ..Segment::new(path, handle, header) }
    }

    /// Opens a file and checks its header and length.
    pub(crate) fn open(path: String, handle: Handle) -> Result<Segment, Error> {
        let mut block = [0; SEGMENT_HEADER_BYTES];
        let read = |error| Error::io("read", &path, error);
        let file = handle.file().map_err(|error| Error::io("open", &path, error))?;
        let got = read_full(&*file, 0, &mut block).map_err(read)?;
        if got < block.len() {
            return Err(Error::corrupt(
                &path,
                got as u64,
                Flaw::FileEnd,
                "the file ends inside the segment header",
            ));
        }
        let header = Header::decode(&block, &path)?;
        let length = file.length().map_err(read)?;
        if length < u64::from(header.bytes) {
            let what = format!("the file ends here, though it was made {} bytes long", header.bytes);
            return Err(Error::corrupt(&path, length, Flaw::FileEnd, what));
        }
        Ok(Segment::new(path, handle, header))
    }

    fn new(path: String, handle: Handle, header: Header) -> Segment {
        let (end, table, unwritten) = Default::default();
        Segment { path, handle, header, end, table, unwritten }
    }

    /// The file, which is opened if it was not read for long.
    pub(crate) fn file(&self) -> Result<Arc<dyn DiskFile>, Error> {
        self.handle.file().map_err(|error| Error::io("open", &self.path, error))
    }

    /// Keeps the file open: it is going to be written, or its name is going to be another's.
    pub(crate) fn hold(&self) -> Result<(), Error> {
        self.handle.hold().map_err(|error| Error::io("open", &self.path, error))
    }

    pub(crate) fn write_header(file: &dyn DiskFile, header: &Header) -> std::io::Result<()> {
        write_all(file, 0, &header.encode())
    }

    pub(super) fn set_unwritten(&self, unwritten: Option<Arc<Layout>>) {
        *self.unwritten.lock().unwrap_or_else(PoisonError::into_inner) = unwritten;
    }

    pub(crate) fn read_exact(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        // Asked before reading: what is written by now is found in the file.
        let unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.read_disk(offset, buffer)?;
        if let Some(unwritten) = unwritten {
            unwritten.lay_over(offset, buffer);
        }
        Ok(())
    }

    /// What the file has, without what is on its way there.
    pub(crate) fn read_disk(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let got = read_full(&*self.file()?, offset, buffer)
            .map_err(|error| Error::io("read", &self.path, error))?;
        if got < buffer.len() {
            return Err(Error::corrupt(
                &self.path,
                offset + got as u64,
                Flaw::FileEnd,
                "the file ends inside a frame",
            ));
        }
        Ok(())
    }

    /// The entry of a body of this segment.
    pub(crate) fn entry(&self, body: BodyId) -> Result<Entry, Error> {
        let mut found = Vec::with_capacity(1);
        self.entries(std::iter::once(body), &mut found)?;
        Ok(found[0])
    }

    /// Adds the entries of bodies of this segment.
    pub(crate) fn entries(
        &self,
        bodies: impl Iterator<Item = BodyId>,
        found: &mut Vec<Entry>,
    ) -> Result<(), Error> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = match &mut *table {
            Some(entries) => entries,
            empty => {
                let end = *self.end.get().expect("the table of the segment being written is complete");
                empty.insert(self.walk(end, &mut |_| Ok(()))?)
            }
        };
        found.extend(bodies.map(|body| {
            let index = usize::try_from(body.0 - self.header.first.body.0).ok();
            let entry = index.and_then(|index| entries.get(index)).copied();
            entry.expect("the journal hands out places only of bodies that it has")
        }));
        Ok(())
    }

    /// Reads all heads up to `end`, hands each frame to `visit`, and returns the table of bodies.
    pub(crate) fn walk(
        &self,
        end: Edge,
        visit: &mut dyn FnMut(&super::scan::Frame<'_>) -> Result<(), Error>,
    ) -> Result<Vec<Entry>, Error> {
        let mut scan = Scan::new(self);
        let mut entries = Vec::new();
        while scan.edge != end {
            let at = scan.offset;
            let Some(frame) = scan.next()? else {
                return Err(self.no_frame(at, scan.edge, Some(end)));
            };
            frame.list_bodies(&mut entries);
            visit(&frame)?;
        }
        Ok(entries)
    }

    /// What is wrong where no frame is, though the journal goes on: behind `edge`, where the next segment begins at `end`.
    pub(crate) fn no_frame(&self, at: u64, edge: Edge, end: Option<Edge>) -> Error {
        match end {
            Some(end) if end.position == edge.position => {
                let what = "the next segment continues another one";
                Error::corrupt(&self.path, at, Flaw::FrameChain, what)
            }
            Some(end) => {
                let what = format!("no frame, though the journal goes on to batch {}", end.position.0);
                Error::corrupt(&self.path, at, Flaw::FrameChecksum, what)
            }
            None => {
                let what = "no intact frame, though the journal goes on";
                Error::corrupt(&self.path, at, Flaw::FrameChecksum, what)
            }
        }
    }

    /// Says where the segment ends, now that it has a successor.
    pub(crate) fn close(&self, end: Edge) {
        self.end.set(end).expect("a segment is closed once");
        self.handle.loosen();
        if let Some(entries) = &mut *self.table.lock().unwrap_or_else(PoisonError::into_inner) {
            entries.shrink_to_fit();
        }
    }

    pub(crate) fn set_table(&self, mut entries: Vec<Entry>) {
        entries.shrink_to_fit();
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Some(entries);
    }

    /// Adds the bodies of a batch that was just written at `offset`.
    pub(crate) fn extend_table(&self, offset: u64, entries: &[[u8; 8]]) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let table = table.as_mut().expect("the table of the segment being written is complete");
        list_bodies(offset, entries, table);
    }
}

/// Appends the entries of bodies that are stored back to back from `offset` on.
pub(crate) fn list_bodies(mut offset: u64, table: &[[u8; 8]], entries: &mut Vec<Entry>) {
    for &entry in table {
        let (length, crc) = split_prefix(entry);
        let place = u32::try_from(offset).expect("a segment is below 4 GiB");
        entries.push(Entry { offset: place, length, crc });
        offset += BODY_PREFIX_BYTES as u64 + u64::from(length);
    }
}
