//! The pages in which the journal ends. Frames follow each other closely and a disk takes whole pages, so the last page is
//! written again with each frame that begins in it: what was there before with the same bytes, and what comes behind the
//! frame with zeros. Were it written in part, the system would have to read the rest of it first.

use super::segment::Segment;
use crate::disk::{DiskFile, PAGE_BYTES, Pages, write_all, write_all_direct};
use crate::error::Error;
use crate::limits::WRITE_BYTES;
use std::io::{self, IoSlice};

#[derive(Debug)]
pub(super) struct TailPages {
    /// What lies in the last page before the place where the next frame goes.
    begun: Vec<u8>,
    /// Where a frame is laid out.
    last: Layout,
}

/// Pages that are about to be written, and where they go.
#[derive(Debug)]
pub(crate) struct Layout {
    at: u64,
    pages: Pages,
}

impl Layout {
    /// With `is_cached` the system may keep them to itself for as long as it likes.
    fn write(&self, file: &dyn DiskFile, is_cached: bool) -> io::Result<()> {
        match is_cached {
            true => write_all(file, self.at, &mut [IoSlice::new(self.pages.bytes())]),
            false => self.write_direct(file),
        }
    }

    pub(super) fn write_direct(&self, file: &dyn DiskFile) -> io::Result<()> {
        write_all_direct(file, self.at, self.pages.bytes())
    }

    /// Puts what is laid out over what was read of the file at `offset`.
    pub(super) fn lay_over(&self, offset: u64, read: &mut [u8]) {
        let bytes = self.pages.bytes();
        let from = self.at.max(offset);
        let to = (self.at + bytes.len() as u64).min(offset + read.len() as u64);
        if from < to {
            let own = &bytes[(from - self.at) as usize..(to - self.at) as usize];
            read[(from - offset) as usize..(to - offset) as usize].copy_from_slice(own);
        }
    }

    pub(super) fn into_pages(self) -> Pages {
        self.pages
    }
}

impl TailPages {
    pub(super) fn new() -> TailPages {
        TailPages { begun: Vec::new(), last: Layout { at: 0, pages: Pages::new(0) } }
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

    /// Lays out a frame of `bytes` for `offset` in a file of `file_bytes`. Of a large one everything but the last pages is
    /// written.
    pub(super) fn lay_out<'a>(
        &mut self,
        (offset, bytes, file_bytes): (u64, u64, u64),
        parts: impl Iterator<Item = &'a [u8]>,
        file: &dyn DiskFile,
        is_cached: bool,
    ) -> io::Result<()> {
        let TailPages { begun, last } = self;
        let wanted = (begun.len() + bytes as usize).min(WRITE_BYTES);
        if last.pages.capacity() < wanted {
            last.pages = Pages::new(wanted.next_power_of_two());
        }
        last.pages.clear();
        last.pages.push(begun);
        last.at = offset - begun.len() as u64;
        for mut part in parts {
            while !part.is_empty() {
                if last.pages.is_full() {
                    last.write(file, is_cached)?;
                    last.at += last.pages.bytes().len() as u64;
                    last.pages.clear();
                }
                part = &part[last.pages.push(part)..];
            }
        }
        last.pages.pad(file_bytes - last.at - last.pages.bytes().len() as u64);
        Ok(())
    }

    /// Writes what is laid out.
    pub(super) fn write(&self, file: &dyn DiskFile, is_cached: bool) -> io::Result<()> {
        self.last.write(file, is_cached)
    }

    /// What is laid out is the end of the journal, and the next frame goes to `offset`.
    pub(super) fn keep(&mut self, offset: u64) {
        let begun = (offset % PAGE_BYTES as u64) as usize;
        let end = (offset - self.last.at) as usize;
        self.begun.clear();
        self.begun.extend_from_slice(&self.last.pages.bytes()[end - begun..end]);
    }

    /// Leaves what is laid out to somebody else, who writes it.
    pub(super) fn hand_over(&mut self) -> Layout {
        std::mem::replace(&mut self.last, Layout { at: 0, pages: Pages::new(0) })
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
        let layout = Layout { at: 100, pages };
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

    #[test]
    fn frames_of_any_size_lie_one_behind_the_other() {
        let disk = Memory::new();
        let file = disk.create("a").unwrap();
        let file_bytes = (5 << 20) + 9000;
        file.allocate(file_bytes).unwrap();
        let (mut tail, mut offset, mut expected) = (TailPages::new(), 0, Vec::new());
        let sizes = [8, 4088, 4096, 1 << 20, (1 << 20) - 8, 3 * (1 << 20) + 16, 24, 712];
        for (n, size) in sizes.into_iter().enumerate() {
            let frame = vec![n as u8 + 1; size];
            let parts = frame.chunks(1000);
            tail.lay_out((offset, size as u64, file_bytes), parts, &*file, n % 2 == 0).unwrap();
            tail.write(&*file, n % 2 == 0).unwrap();
            offset += size as u64;
            tail.keep(offset);
            expected.extend_from_slice(&frame);
        }
        let content = disk.content("a").unwrap();
        assert_eq!(content.len() as u64, file_bytes, "nothing is written behind the end");
        assert!(content[..expected.len()] == expected[..]);
        assert!(content[expected.len()..].iter().all(|byte| *byte == 0));
    }
}
