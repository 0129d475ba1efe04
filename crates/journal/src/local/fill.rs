//! Making segment files, and keeping one spare filled ahead.
//!
//! While messages leave as fast as they come, segments are given back as fast as they are used, if not as evenly. So up to
//! two are kept, and a new one is filled late: then hardly any is filled, and each byte is written once.
//!
//! The thread that fills never holds up the writer: a spare that is not ready is not waited for. What a spare
//! contains does not matter, for each life of a file has its own incarnation. A disk that has no room for it is full and
//! nothing more; one that cannot write it is broken, and the journal stops before it relies on that disk again.

use super::reserve::{is_full, lacks_handles};
use super::segment::{Header, Segment};
use super::shared::Shared;
use super::{Filling, Options, names};
use crate::disk::{Disk, DiskFile, Pages, write_all_direct};
use crate::error::Error;
use crate::limits::{
    FILL_LATEST_PERCENT, FILL_LEAD_PERCENT, FILL_STEP_BYTES, KEPT_SEGMENTS, SEGMENT_HEADER_BYTES,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Spare {
    disk: Arc<dyn Disk>,
    shared: Arc<Shared>,
    filling: Filling,
    bytes: u32,
    state: State,
    has_recycled: bool,
    /// Segments made since one was given back. While they come back, the next may well be there before a new one is filled.
    made_since_recycled: u32,
    must_end: Arc<AtomicBool>,
    /// How much of the segment that is written is used, in percent: the spare must be ready before it is full.
    used_percent: Arc<AtomicU64>,
    /// A segment whose cached pages the system may use for the next one.
    stale: Option<Arc<dyn DiskFile>>,
}

#[derive(Debug)]
enum State {
    None,
    /// The thread returns whether the spare is ready.
    Filling(JoinHandle<bool>),
    Ready,
    /// Filling failed; tried again after the next roll.
    Failed,
}

impl Spare {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        shared: Arc<Shared>,
        options: &Options,
        listed: &[String],
    ) -> Spare {
        let bytes = options.segment_bytes;
        let is_ready = |name: &str| {
            let is_there = listed.iter().any(|listed| listed == name);
            is_there && disk.open(name).and_then(|file| file.length()).ok() == Some(u64::from(bytes))
        };
        let state = if is_ready(names::SPARE) { State::Ready } else { State::None };
        let has_recycled = is_ready(names::SPARE_RECYCLED);
        let (must_end, used_percent) = Default::default();
        let filling = options.filling;
        Spare {
            disk,
            shared,
            filling,
            bytes,
            state,
            has_recycled,
            made_since_recycled: KEPT_SEGMENTS + 1,
            must_end,
            used_percent,
            stale: None,
        }
    }

    pub(super) fn held_bytes(&self) -> u64 {
        let held = u64::from(self.is_ready()) + u64::from(self.has_recycled);
        held * u64::from(self.bytes)
    }

    fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    #[cfg(test)]
    pub(super) fn is_filling(&self) -> bool {
        !matches!(self.state, State::None)
    }

    /// Starts filling if there is no spare, or notices that one got ready. Called after each append, so cheap. `used` of
    /// `bytes` are taken in the segment that is written.
    pub(super) fn prepare(&mut self, used: u64, bytes: u32) {
        let percent = used * 100 / u64::from(bytes);
        self.used_percent.store(percent, Ordering::Relaxed);
        let is_late = self.made_since_recycled > KEPT_SEGMENTS || percent >= FILL_LATEST_PERCENT;
        let is_needed = self.filling == Filling::Background && !self.has_recycled && is_late;
        match &self.state {
            State::None if is_needed => self.start(),
            _ => self.notice(),
        }
    }

    /// Segments before the tail are rarely read again, and then in long runs. Were what is read of them, or was
    /// written where nothing is written past the page cache, to stay there, each new segment would take fresh memory from
    /// the machine: on a virtual one the first touch of a page costs more than everything else that is done for the messages
    /// on it.
    pub(super) fn let_go(&mut self, file: Arc<dyn DiskFile>) {
        self.stale = Some(file);
    }

    fn start(&mut self) {
        let (disk, bytes, must_end) = (self.disk.clone(), self.bytes, self.must_end.clone());
        let (used_percent, shared) = (self.used_percent.clone(), self.shared.clone());
        let stale = self.stale.take();
        let work = move || {
            if let Some(stale) = stale {
                stale.forget_cached();
            }
            fill_spare(&*disk, bytes, &must_end, &used_percent).unwrap_or_else(|error| {
                if !is_full(&error) && !lacks_handles(&error) {
                    shared.stop(Error::io("fill", &disk.path(names::SPARE_UNFINISHED), error));
                }
                // On a full disk others need what it has taken.
                let _ = disk.remove(names::SPARE_UNFINISHED);
                false
            })
        };
        let thread = std::thread::Builder::new().name("otobus-fill".to_owned()).spawn(work);
        self.state = thread.map_or(State::Failed, State::Filling);
    }

    fn finish(&mut self) {
        if let State::Filling(thread) = std::mem::replace(&mut self.state, State::Failed)
            && thread.join().unwrap_or(false)
        {
            self.state = State::Ready;
        }
    }

    /// Notices that a spare got ready.
    fn notice(&mut self) {
        if matches!(&self.state, State::Filling(thread) if thread.is_finished()) {
            self.finish();
        }
    }

    /// A file with this header, durable, under a name that the caller replaces.
    pub(super) fn make(&mut self, header: &Header) -> io::Result<(Arc<dyn DiskFile>, &'static str)> {
        self.notice();
        self.made_since_recycled = self.made_since_recycled.saturating_add(1);
        if let Some(name) = self.ready().filter(|_| header.bytes == self.bytes) {
            let file = self.disk.open(name)?;
            write_header(&*file, header)?;
            self.used_up(name);
            return Ok((file, name));
        }
        if matches!(self.state, State::Failed) {
            self.state = State::None;
        }
        let is_filled = match self.filling {
            Filling::Background => header.ordinal == 1,
            Filling::Inline => true,
            Filling::Never => false,
        };
        let made = self.make_new(header, is_filled);
        if made.is_err() {
            // It may hold the room that others need. That it cannot be removed changes nothing.
            let _ = self.disk.remove(names::SEGMENT_UNFINISHED);
        }
        Ok((made?, names::SEGMENT_UNFINISHED))
    }

    /// The name of the file that is used next.
    fn ready(&self) -> Option<&'static str> {
        match (self.has_recycled, &self.state) {
            (true, _) => Some(names::SPARE_RECYCLED),
            (false, State::Ready) => Some(names::SPARE),
            _ => None,
        }
    }

    fn used_up(&mut self, name: &str) {
        match name {
            names::SPARE_RECYCLED => self.has_recycled = false,
            _ => self.state = State::None,
        }
    }

    fn make_new(&self, header: &Header, is_filled: bool) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.create(names::SEGMENT_UNFINISHED)?;
        file.allocate(u64::from(header.bytes))?;
        if is_filled {
            fill(header.bytes, |offset, zeros| {
                write_all_direct(&*file, offset, zeros)?;
                Ok(Some(zeros.len() as u64))
            })?;
        }
        write_header(&*file, header)?;
        Ok(file)
    }

    /// Gives back the room of spares that are ready, where it is needed more. Returns whether there was one.
    pub(super) fn give_up(&mut self) -> bool {
        self.notice();
        let mut is_given = false;
        while let Some(name) = self.ready().filter(|name| self.disk.remove(name).is_ok()) {
            self.used_up(name);
            is_given = true;
        }
        is_given
    }

    /// Takes a file that is no longer needed as a spare. Returns whether it did.
    pub(super) fn recycle(&mut self, name: &str, bytes: u32) -> io::Result<bool> {
        self.notice();
        let has_none = matches!(self.state, State::None | State::Failed);
        if bytes != self.bytes || self.has_recycled && !has_none {
            return Ok(false);
        }
        self.made_since_recycled = 0;
        if self.has_recycled {
            self.disk.rename(name, names::SPARE)?;
            self.state = State::Ready;
        } else {
            self.disk.rename(name, names::SPARE_RECYCLED)?;
            self.has_recycled = true;
        }
        Ok(true)
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.must_end.store(true, Ordering::Release);
        self.finish();
    }
}

fn write_header(file: &dyn DiskFile, header: &Header) -> io::Result<()> {
    Segment::write_header(file, header)?;
    file.sync_data()
}

/// Makes the spare; returns false when told to end before it was ready.
fn fill_spare(
    disk: &dyn Disk,
    bytes: u32,
    must_end: &AtomicBool,
    used_percent: &AtomicU64,
) -> io::Result<bool> {
    let file = disk.create(names::SPARE_UNFINISHED)?;
    file.allocate(u64::from(bytes))?;
    let mut step_began = Instant::now();
    let is_whole = fill(bytes, |offset, zeros| {
        let count = file.write_through(offset, zeros)? as u64;
        // Half of the disk's time at most, so that batches find it free; but a segment that is not filled costs each of
        // them more than that, so there is no rest while the one that is written fills up faster.
        let filled_percent = (offset + count) * 100 / u64::from(bytes);
        if filled_percent > used_percent.load(Ordering::Relaxed) + FILL_LEAD_PERCENT {
            std::thread::sleep(step_began.elapsed());
        }
        step_began = Instant::now();
        Ok((!must_end.load(Ordering::Acquire)).then_some(count))
    })?;
    if is_whole {
        disk.rename(names::SPARE_UNFINISHED, names::SPARE)?;
    }
    Ok(is_whole)
}

/// Has zeros written behind the header, in steps; ends early, with false, when `write` says `None` and not how much it took.
fn fill(bytes: u32, mut write: impl FnMut(u64, &[u8]) -> io::Result<Option<u64>>) -> io::Result<bool> {
    let zeros = Pages::zeros(FILL_STEP_BYTES);
    let zeros = zeros.bytes();
    let mut offset = SEGMENT_HEADER_BYTES as u64;
    while offset < u64::from(bytes) {
        let step = (u64::from(bytes) - offset).min(zeros.len() as u64);
        match write(offset, &zeros[..step as usize])? {
            Some(0) => return Err(io::ErrorKind::WriteZero.into()),
            Some(count) => offset += count,
            None => return Ok(false),
        }
    }
    Ok(true)
}
