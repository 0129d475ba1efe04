//! The pages in which the journal ends. Frames follow each other closely and a disk takes whole pages, so the last page is
//! written again with each frame that begins in it: what was there before with the same bytes, and what comes behind the
//! frame with zeros. Were it written in part, the system would have to read the rest of it first.

use super::segment::Segment;
use crate::disk::{DiskFile, PAGE_BYTES, Pages, write_all, write_all_direct};
use crate::error::Error;
use crate::limits::WRITE_BYTES;
use bytes::Bytes;
use std::io;
use std::ops::Range;

#[derive(Debug)]
pub(super) struct TailPages {
    /// The bytes of the last page before the place where the next frame goes.
    begun: Vec<u8>,
    /// Where a frame is laid out.
    last: Layout,
}

/// What is about to be written, and where it goes.
#[derive(Debug)]
pub(crate) struct Layout {
    at: u64,
    pages: Pages,
    rest: Rest,
}

/// The rest of a large frame, which is not in the pages: it begins where they end, at a page, and is copied by the thread that writes it.
#[derive(Debug, Default)]
struct Rest {
    parts: Vec<Bytes>,
    bytes: u64,
    /// Zeros behind it, to the end of the page or of the file.
    padding: u64,
}

/// What happens to as much of a frame as the pages do not hold.
#[derive(Debug, Clone, Copy)]
pub(super) enum Overflow<'a> {
    /// It is written while the frame is laid out. With `is_cached` the system may keep it to itself for as long as it likes.
    Written { file: &'a dyn DiskFile, is_cached: bool },
    /// It is left to the thread that writes the rest.
    Left,
}

impl Layout {
    fn new() -> Layout {
        Layout { at: 0, pages: Pages::new(0), rest: Rest::default() }
    }

    fn write_pages(&self, file: &dyn DiskFile, is_cached: bool) -> io::Result<()> {
        match is_cached {
            true => write_all(file, self.at, self.pages.bytes()),
            false => write_all_direct(file, self.at, self.pages.bytes()),
        }
    }

    /// Writes everything past the system's cache.
    pub(super) fn write_direct(&self, file: &dyn DiskFile) -> io::Result<()> {
        self.write_pages(file, false)?;
        if self.rest.parts.is_empty() {
            return Ok(());
        }
        let mut at = self.rest_at();
        let mut pages = Pages::new(WRITE_BYTES.min(self.rest.bytes as usize));
        for mut part in self.rest.parts.iter().map(|part| &part[..]) {
            while !part.is_empty() {
                if pages.is_full() {
                    write_all_direct(file, at, pages.bytes())?;
                    at += pages.bytes().len() as u64;
                    pages.clear();
                }
                part = &part[pages.push(part)..];
            }
        }
        pages.pad(self.rest.padding);
        write_all_direct(file, at, pages.bytes())
    }

    /// Adds a part to the pages; what they do not hold is written with those that are full.
    fn push(&mut self, mut part: &[u8], overflow: Overflow<'_>) -> io::Result<()> {
        while !part.is_empty() {
            if self.pages.is_full() {
                let Overflow::Written { file, is_cached } = overflow else {
                    unreachable!("what is left fits the pages, or is kept");
                };
                self.write_pages(file, is_cached)?;
                self.at += self.pages.bytes().len() as u64;
                self.pages.clear();
            }
            part = &part[self.pages.push(part)..];
        }
        Ok(())
    }

    /// Adds a part to the pages until they hold so many bytes, and keeps the rest as it is.
    fn push_or_keep(&mut self, part: &Bytes, held: usize) {
        let count = part.len().min(held - self.pages.bytes().len().min(held));
        self.pages.push(&part[..count]);
        if count < part.len() {
            self.rest.bytes += (part.len() - count) as u64;
            self.rest.parts.push(part.slice(count..));
        }
    }

    fn rest_at(&self) -> u64 {
        self.at + self.pages.bytes().len() as u64
    }

    /// Puts what is laid out over what was read of the file at `offset`.
    pub(super) fn lay_over(&self, offset: u64, read: &mut [u8]) {
        lay_part_over(self.at, self.pages.bytes(), offset, read);
        let mut at = self.rest_at();
        for part in &self.rest.parts {
            lay_part_over(at, part, offset, read);
            at += part.len() as u64;
        }
    }

    /// The bytes between two places of the file, up to a page; behind the frame there are zeros.
    fn copy_to(&self, range: Range<u64>, out: &mut Vec<u8>) {
        out.clear();
        out.resize((range.end - range.start) as usize, 0);
        self.lay_over(range.start, out);
    }

    pub(super) fn into_pages(self) -> Pages {
        self.pages
    }
}

/// Puts a part of the file at `at` over what was read at `offset`.
fn lay_part_over(at: u64, part: &[u8], offset: u64, read: &mut [u8]) {
    let from = at.max(offset);
    let to = (at + part.len() as u64).min(offset + read.len() as u64);
    if from < to {
        let own = &part[(from - at) as usize..(to - at) as usize];
        read[(from - offset) as usize..(to - offset) as usize].copy_from_slice(own);
    }
}

impl TailPages {
    pub(super) fn new() -> TailPages {
        TailPages { begun: Vec::new(), last: Layout::new() }
    }

    /// The next frame goes to where a page begins.
    pub(super) fn clear(&mut self) {
        self.begun.clear();
    }

    /// The next frame goes there.
    pub(super) fn read(&mut self, segment: &Segment, offset: u64) -> Result<(), Error> {
        let begun = offset % PAGE_BYTES as u64;
        self.begun.resize(begun as usize, 0);
        segment.read_exact(offset - begun, &mut self.begun)
    }

    /// Lays out a frame of `bytes` for `offset` in a file of `file_bytes`.
    pub(super) fn lay_out(
        &mut self,
        (offset, bytes, file_bytes): (u64, u64, u64),
        head: &[u8],
        pieces: &[Bytes],
        overflow: Overflow<'_>,
    ) -> io::Result<()> {
        let TailPages { begun, last } = self;
        let whole = begun.len() + bytes as usize;
        // Of a large frame that is left only the beginning is copied here, where others wait.
        let held = match overflow {
            Overflow::Left if whole > WRITE_BYTES => (begun.len() + head.len()).next_multiple_of(PAGE_BYTES),
            _ => whole.min(WRITE_BYTES),
        };
        if last.pages.capacity() < held {
            last.pages = Pages::new(held.next_power_of_two());
        }
        last.pages.clear();
        last.rest = Rest::default();
        last.pages.push(begun);
        last.at = offset - begun.len() as u64;
        last.push(head, overflow)?;
        for piece in pieces {
            match overflow {
                Overflow::Left => last.push_or_keep(piece, held.next_multiple_of(PAGE_BYTES)),
                Overflow::Written { .. } => last.push(piece, overflow)?,
            }
        }
        let used = last.rest_at() + last.rest.bytes;
        match last.rest.bytes {
            0 => last.pages.pad(file_bytes - used),
            _ => last.rest.padding = file_bytes - used,
        }
        Ok(())
    }

    /// Writes what is laid out and was not left.
    pub(super) fn write(&self, file: &dyn DiskFile, is_cached: bool) -> io::Result<()> {
        assert!(self.last.rest.parts.is_empty(), "what is left is written by the thread that took it over");
        self.last.write_pages(file, is_cached)
    }

    /// What is laid out is the end of the journal, and the next frame goes to `offset`.
    pub(super) fn keep(&mut self, offset: u64) {
        let TailPages { begun, last } = self;
        last.copy_to(offset - offset % PAGE_BYTES as u64..offset, begun);
    }

    /// Leaves what is laid out to somebody else, who writes it.
    pub(super) fn hand_over(&mut self) -> Layout {
        std::mem::replace(&mut self.last, Layout::new())
    }

    /// What was laid out last was left to somebody else, with its pages.
    pub(super) fn lacks_pages(&self) -> bool {
        self.last.pages.capacity() == 0
    }

    /// The pages that were left to somebody else are free again.
    pub(super) fn take_back(&mut self, pages: Pages) {
        self.last.pages = pages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, Memory};

    #[test]
    fn what_is_laid_out_covers_what_was_read_where_it_will_lie() {
        let mut pages = Pages::new(PAGE_BYTES);
        pages.push(&[1; 10]);
        let layout = Layout { pages, at: 100, ..Layout::new() };
        for (offset, expected) in [
            (80, [0; 8]),
            (92, [0; 8]),
            (96, [0, 0, 0, 0, 1, 1, 1, 1]),
            (101, [1; 8]),
            (105, [1, 1, 1, 1, 1, 0, 0, 0]),
            (110, [0; 8]),
        ] {
            let mut read = [0; 8];
            layout.lay_over(offset, &mut read);
            assert_eq!(read, expected, "at {offset}");
        }
        let mut read = [0; 30];
        layout.lay_over(90, &mut read);
        assert_eq!(read, [[0; 10], [1; 10], [0; 10]].concat()[..]);
    }

    /// The parts of a frame: a head, and pieces of about a thousand bytes.
    fn parts(frame: &[u8], head: usize) -> (&[u8], Vec<Bytes>) {
        let (head, pieces) = frame.split_at(head.min(frame.len()));
        (head, pieces.chunks(1000).map(Bytes::copy_from_slice).collect())
    }

    #[test]
    fn frames_of_any_size_lie_one_behind_the_other_whoever_writes_them() {
        let sizes = [8, 4088, 4096, 1 << 20, (1 << 20) - 8, 3 * (1 << 20) + 16, 24, 712, 524_288, 524_296];
        for (n, is_left) in [false, true].into_iter().enumerate() {
            let disk = Memory::new();
            let file = disk.create("a").unwrap();
            let file_bytes = sizes.iter().sum::<usize>() as u64 + 9000;
            file.allocate(file_bytes).unwrap();
            let (mut tail, mut offset, mut expected) = (TailPages::new(), 0, Vec::new());
            for (m, size) in sizes.into_iter().enumerate() {
                // A frame takes its place to the next multiple of eight, and may have fewer bytes.
                let frame = vec![m as u8 + 1; size - m % 8];
                let (head, pieces) = parts(&frame, 80 * (m % 3));
                let place = (offset, size as u64, file_bytes);
                if is_left {
                    tail.lay_out(place, head, &pieces, Overflow::Left).unwrap();
                    offset += size as u64;
                    tail.keep(offset);
                    let layout = tail.hand_over();
                    let mut read = vec![9; size - m % 8];
                    layout.lay_over(offset - size as u64, &mut read);
                    assert!(read == frame, "it can be read before it is written");
                    layout.write_direct(&*file).unwrap();
                } else {
                    let is_cached = m % 2 == 0;
                    tail.lay_out(place, head, &pieces, Overflow::Written { file: &*file, is_cached })
                        .unwrap();
                    tail.write(&*file, is_cached).unwrap();
                    offset += size as u64;
                    tail.keep(offset);
                }
                expected.extend_from_slice(&frame);
                expected.resize(offset as usize, 0);
            }
            let content = disk.content("a").unwrap();
            assert_eq!(content.len() as u64, file_bytes, "round {n}: nothing is written behind the end");
            assert!(content[..expected.len()] == expected[..], "round {n}");
            assert!(content[expected.len()..].iter().all(|byte| *byte == 0), "round {n}");
        }
    }

    #[test]
    fn a_frame_that_ends_with_the_file_is_left_and_written_whole() {
        let disk = Memory::new();
        let file = disk.create("a").unwrap();
        let bytes = 2 * WRITE_BYTES as u64 + 1000;
        file.allocate(bytes).unwrap();
        let frame = vec![7; bytes as usize];
        let mut tail = TailPages::new();
        let (head, pieces) = parts(&frame, 100);
        tail.lay_out((0, bytes, bytes), head, &pieces, Overflow::Left).unwrap();
        tail.hand_over().write_direct(&*file).unwrap();
        assert!(disk.content("a").unwrap() == frame);
    }
}
