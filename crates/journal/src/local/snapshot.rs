//! Snapshots as files: written under another name, synced, renamed, and the directory synced.
//!
//! A file of a snapshot's name is therefore whole; if it does not read back, that is damage, and the older one of
//! the two that are kept takes its place by the owner's decision, never by ours.

use super::names;
use super::reserve::{Reserve, is_full, lacks_handles};
use super::segment::Segment;
use super::shared::Shared;
use crate::disk::{Disk, DiskFile, read_full, write_all};
use crate::error::{Error, Flaw};
use crate::journal::{Position, ReadSnapshot, SnapshotInfo, Snapshots, WriteSnapshot};
use crate::limits::{BULK_READ_BYTES, FORMAT_VERSION, SNAPSHOTS_KEPT};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MAGIC: [u8; 8] = *b"otobus-s";
const HEADER_BYTES: usize = 32;
const TRAILER_BYTES: usize = 16;

#[derive(Debug)]
pub(super) struct SnapshotFiles {
    disk: Arc<dyn Disk>,
    partition: u32,
    shared: Arc<Shared>,
    reserve: Arc<Reserve>,
    positions: Mutex<BTreeSet<Position>>,
    /// One is written at a time: they share the unfinished name.
    writing: Mutex<()>,
    /// The segment that is written, where what is committed is not synced at once.
    unsynced: Mutex<Option<Arc<Segment>>>,
}

impl SnapshotFiles {
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        partition: u32,
        shared: Arc<Shared>,
        reserve: Arc<Reserve>,
        listed: &[String],
    ) -> SnapshotFiles {
        let positions = listed.iter().filter_map(|name| names::parse_snapshot(name)).collect();
        let (positions, writing, unsynced) = (Mutex::new(positions), Mutex::new(()), Mutex::new(None));
        SnapshotFiles { disk, partition, shared, reserve, positions, writing, unsynced }
    }

    pub(super) fn set_unsynced(&self, segment: Arc<Segment>) {
        *self.unsynced.lock().unwrap_or_else(PoisonError::into_inner) = Some(segment);
    }

    /// A snapshot must not outlive the batches that it contains: a journal that ends before it is refused. Segments before
    /// the last one were synced when that was added.
    fn sync_batches(&self) -> Result<(), Error> {
        let unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(segment) = unsynced else { return Ok(()) };
        let synced = segment.file()?.sync_data();
        synced.map_err(|error| self.shared.stop(Error::io("sync", &segment.path, error)))
    }

    fn positions(&self) -> MutexGuard<'_, BTreeSet<Position>> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn newest(&self) -> Option<Position> {
        self.positions().last().copied()
    }

    /// The one that is used when the newest is damaged.
    pub(super) fn fallback(&self) -> Option<Position> {
        self.positions().iter().nth_back(SNAPSHOTS_KEPT - 1).copied()
    }

    fn write_file(&self, at: Position, write: WriteSnapshot<'_>) -> io::Result<()> {
        let file = self.disk.create(names::SNAPSHOT_UNFINISHED)?;
        write_all(&*file, 0, &self.header(at))?;
        let mut writer = Writer { file: &*file, offset: HEADER_BYTES as u64, buffer: Vec::new(), crc: 0 };
        write(&mut writer)?;
        writer.flush()?;
        let trailer = trailer(writer.offset - HEADER_BYTES as u64, writer.crc);
        write_all(&*file, writer.offset, &trailer)?;
        file.sync_data()?;
        self.disk.rename(names::SNAPSHOT_UNFINISHED, &names::snapshot(at))?;
        self.disk.sync_dir()
    }

    fn write_or_clean_up(&self, at: Position, write: WriteSnapshot<'_>) -> io::Result<()> {
        let written = self.write_file(at, write);
        if written.is_err() {
            // Gives the room back if it can; an unfinished file is removed at the next open anyway.
            let _ = self.disk.remove(names::SNAPSHOT_UNFINISHED);
        }
        written
    }

    fn header(&self, at: Position) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&self.partition.to_le_bytes());
        header[16..24].copy_from_slice(&at.0.to_le_bytes());
        let crc = crc32c::crc32c(&header[..28]);
        header[28..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Checks the file from end to end; returns it and the length of its content.
    fn verify(&self, at: Position) -> Result<(Arc<dyn DiskFile>, u64), Error> {
        let path = self.disk.path(&names::snapshot(at));
        let failed = |error| Error::io("read", &path, error);
        let file = self.disk.open(&names::snapshot(at)).map_err(failed)?;
        let mut header = [0; HEADER_BYTES];
        read_full(&*file, 0, &mut header).map_err(failed)?;
        let crc = u32::from_le_bytes(*header[28..].first_chunk().expect("within the header"));
        if header[..8] != MAGIC || crc != crc32c::crc32c(&header[..28]) {
            return Err(Error::corrupt(&path, 0, Flaw::SnapshotHeader, "the snapshot's header is damaged"));
        }
        let found = u32::from_le_bytes(*header[8..].first_chunk().expect("within the header"));
        if found > FORMAT_VERSION {
            return Err(Error::NewerFormat { file: path, found, known: FORMAT_VERSION });
        }
        if header != self.header(at) {
            return Err(Error::corrupt(
                &path,
                12,
                Flaw::SnapshotPlace,
                "it is the snapshot of another partition or position",
            ));
        }
        let content = file.length().map_err(failed)?.saturating_sub((HEADER_BYTES + TRAILER_BYTES) as u64);
        let mut reader = Reader { file: &*file, offset: HEADER_BYTES as u64, left: content };
        let (mut crc, mut block) = (0, vec![0; BULK_READ_BYTES]);
        loop {
            match reader.read(&mut block).map_err(failed)? {
                0 => break,
                count => crc = crc32c::crc32c_append(crc, &block[..count]),
            }
        }
        let mut end = [0; TRAILER_BYTES];
        read_full(&*file, HEADER_BYTES as u64 + content, &mut end).map_err(failed)?;
        if end != trailer(content, crc) {
            let what = "the snapshot's content does not match its checksum";
            return Err(Error::corrupt(&path, HEADER_BYTES as u64, Flaw::SnapshotChecksum, what));
        }
        Ok((file, content))
    }

    fn must_exist(&self, at: Position) -> Result<(), Error> {
        if self.positions().contains(&at) { Ok(()) } else { Err(Error::NoSnapshot(at)) }
    }
}

fn trailer(content: u64, crc: u32) -> [u8; TRAILER_BYTES] {
    let mut trailer = [0; TRAILER_BYTES];
    trailer[..8].copy_from_slice(&content.to_le_bytes());
    trailer[8..12].copy_from_slice(&crc.to_le_bytes());
    let own = crc32c::crc32c(&trailer[..12]);
    trailer[12..].copy_from_slice(&own.to_le_bytes());
    trailer
}

impl Snapshots for SnapshotFiles {
    fn put(&self, at: Position, write: WriteSnapshot<'_>) -> Result<(), Error> {
        assert!(at <= self.shared.committed(), "a snapshot contains only what is committed");
        self.shared.check()?;
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.sync_batches()?;
        let mut written = self.write_or_clean_up(at, write);
        if written.as_ref().is_err_and(is_full) && self.reserve.release() {
            written = self.write_or_clean_up(at, write);
        }
        if let Err(cause) = written {
            let file = self.disk.path(&names::snapshot(at));
            return Err(match is_full(&cause) || lacks_handles(&cause) {
                true => Error::Full { file, cause },
                // Nobody is told anything more on the word of a disk that cannot be written.
                false => self.shared.stop(Error::Io { action: "write", file, cause }),
            });
        }
        self.positions().insert(at);
        loop {
            let oldest = match &*self.positions() {
                kept if kept.len() > SNAPSHOTS_KEPT => kept.first().copied(),
                _ => None,
            };
            match oldest {
                Some(oldest) => self.remove(oldest)?,
                None => return Ok(()),
            }
        }
    }

    fn latest(&self) -> Result<Vec<SnapshotInfo>, Error> {
        let positions: Vec<Position> = self.positions().iter().rev().copied().collect();
        let describe = |position: Position| {
            let name = names::snapshot(position);
            let length = self.disk.open(&name).and_then(|file| file.length());
            let length = length.map_err(|error| Error::io("open", &self.disk.path(&name), error))?;
            Ok(SnapshotInfo { position, bytes: length.saturating_sub((HEADER_BYTES + TRAILER_BYTES) as u64) })
        };
        positions.into_iter().map(describe).collect()
    }

    fn read(&self, at: Position, read: ReadSnapshot<'_>) -> Result<(), Error> {
        self.must_exist(at)?;
        let (file, content) = self.verify(at)?;
        let mut reader = Reader { file: &*file, offset: HEADER_BYTES as u64, left: content };
        read(&mut reader).map_err(|error| Error::Reader(Box::new(error)))
    }

    fn remove(&self, at: Position) -> Result<(), Error> {
        self.must_exist(at)?;
        let name = names::snapshot(at);
        self.disk.remove(&name).map_err(|error| Error::io("remove", &self.disk.path(&name), error))?;
        self.positions().remove(&at);
        Ok(())
    }

    fn set_aside(&self, at: Position) -> Result<(), Error> {
        self.must_exist(at)?;
        let name = names::snapshot(at);
        self.disk
            .rename(&name, &names::damaged_snapshot(at))
            .and_then(|()| self.disk.sync_dir())
            .map_err(|error| Error::io("set aside", &self.disk.path(&name), error))?;
        self.positions().remove(&at);
        Ok(())
    }
}

/// Gathers small writes and checksums what goes out.
struct Writer<'a> {
    file: &'a dyn DiskFile,
    offset: u64,
    buffer: Vec<u8>,
    crc: u32,
}

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BULK_READ_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        write_all(self.file, self.offset, &self.buffer)?;
        self.offset += self.buffer.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, &self.buffer);
        self.buffer.clear();
        Ok(())
    }
}

struct Reader<'a> {
    file: &'a dyn DiskFile,
    offset: u64,
    left: u64,
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = read_full(self.file, self.offset, &mut buffer[..wanted])?;
        self.offset += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}
