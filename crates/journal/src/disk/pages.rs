//! Bytes in memory as a disk takes them without a copy of its own: whole pages that begin where a page begins.

/// What the disk below a file system takes as a unit, at most. Memory has pages of this size too, nearly everywhere.
pub const PAGE_BYTES: usize = 4096;

/// A buffer of whole pages that is filled from its beginning.
pub struct Pages {
    /// A page more than is used, for it begins anywhere.
    room: Box<[u8]>,
    start: usize,
    capacity: usize,
    used: usize,
}

impl Pages {
    /// Room for so many bytes, rounded up to whole pages. All of them are zeros.
    pub fn new(bytes: usize) -> Pages {
        let capacity = bytes.next_multiple_of(PAGE_BYTES);
        let room = vec![0; capacity + PAGE_BYTES].into_boxed_slice();
        // Where the pages begin is a matter of speed: they are as good as any bytes if this finds no page.
        let start = room.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Pages { room, start, capacity, used: 0 }
    }

    /// So many zeros.
    pub fn zeros(bytes: usize) -> Pages {
        let mut pages = Pages::new(bytes);
        pages.used = pages.capacity;
        pages
    }

    /// Takes as much as there is room for, and says how much that was.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.capacity - self.used);
        let from = self.start + self.used;
        self.room[from..from + count].copy_from_slice(&bytes[..count]);
        self.used += count;
        count
    }

    /// Fills the last page up with zeros, or as much of it as `most` bytes do.
    pub fn pad(&mut self, most: u64) {
        let gap = (self.used.next_multiple_of(PAGE_BYTES) - self.used) as u64;
        let from = self.start + self.used;
        self.used += gap.min(most) as usize;
        self.room[from..self.start + self.used].fill(0);
    }

    pub fn is_full(&self) -> bool {
        self.used == self.capacity
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn clear(&mut self) {
        self.used = 0;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.room[self.start..self.start + self.used]
    }
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pages({} of {} bytes)", self.used, self.capacity)
    }
}

/// Whether these bytes, written there, are whole pages on both sides.
pub(crate) fn are_pages(offset: u64, bytes: &[u8]) -> bool {
    let is_whole = bytes.len().is_multiple_of(PAGE_BYTES) && offset.is_multiple_of(PAGE_BYTES as u64);
    is_whole && bytes.as_ptr().align_offset(PAGE_BYTES) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_whole_and_begin_where_pages_do() {
        let mut pages = Pages::new(5000);
        assert_eq!(pages.push(&[1; 4097]), 4097);
        assert!(!are_pages(0, pages.bytes()), "the last page is not whole");
        pages.pad(u64::MAX);
        assert!(pages.is_full() && are_pages(4096, pages.bytes()));
        assert!(!are_pages(512, pages.bytes()));
        assert!(!are_pages(0, &pages.bytes()[512..4608]));
        assert_eq!(pages.bytes()[4096..], [&[1][..], &[0; 4095]].concat());
    }

    #[test]
    fn what_was_there_before_is_not_what_a_page_is_filled_up_with() {
        let mut pages = Pages::new(PAGE_BYTES);
        assert_eq!(pages.push(&[7; 5000]), PAGE_BYTES);
        pages.clear();
        assert_eq!(pages.push(&[1; 10]), 10);
        pages.pad(20);
        assert_eq!(
            pages.bytes(),
            [[1; 10], [0; 10], [0; 10]].concat(),
            "to the end of the file and no further"
        );
        pages.pad(u64::MAX);
        assert!(pages.bytes()[10..].iter().all(|byte| *byte == 0));
    }
}
