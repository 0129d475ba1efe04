//! Whether it is worth while to prepare the next append while the disk is busy with the one before. If more is decided
//! afterwards it was in vain, so it is done when nothing more is likely to come.

use crate::limits::MOST_DOUBTS;

#[derive(Debug, Default)]
pub(crate) struct Foresight {
    /// How many connections the last append is for, and how many the one before it was for. These were let go when the last one
    /// went to the disk; when as many have come again, nobody else is likely to.
    last: usize,
    let_go: usize,
    /// The records of the draft that was prepared.
    prepared: Option<u32>,
    /// How many times in a row it was in vain, and for how many appends it is not tried for that.
    doubts: u32,
    rest: u32,
}

impl Foresight {
    /// Whether to prepare a draft that so many connections wait for.
    pub(crate) fn is_likely_last(&self, waiting: usize) -> bool {
        self.rest == 0 && self.prepared.is_none() && waiting >= self.let_go
    }

    /// A draft of so many records was prepared.
    pub(crate) fn prepared(&mut self, records: u32) {
        self.prepared = Some(records);
    }

    /// A draft of so many records is on its way to the disk, and so many connections wait for it.
    pub(crate) fn written(&mut self, records: u32, waiting: usize) {
        match self.prepared.take() {
            Some(prepared) if prepared == records => self.doubts = 0,
            Some(_) => {
                self.doubts = (self.doubts + 1).min(MOST_DOUBTS);
                // One may be an accident.
                self.rest = (1 << self.doubts) - 2;
            }
            None => self.rest = self.rest.saturating_sub(1),
        }
        self.let_go = std::mem::replace(&mut self.last, waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_is_likely_to_come_when_all_that_were_let_go_have_come_again() {
        let mut foresight = Foresight::default();
        foresight.written(10, 3);
        foresight.written(10, 2);
        assert!(!foresight.is_likely_last(2), "three were let go");
        assert!(foresight.is_likely_last(3));
        foresight.prepared(10);
        assert!(!foresight.is_likely_last(4), "once for each append");
        foresight.written(10, 3);
        assert!(foresight.is_likely_last(2));
    }

    #[test]
    fn what_was_often_in_vain_is_seldom_tried() {
        let mut foresight = Foresight::default();
        let (mut tried, mut gaps) = (0, Vec::new());
        for append in 0..500 {
            if foresight.is_likely_last(1) {
                foresight.prepared(10);
                gaps.push(append - tried);
                tried = append;
            }
            foresight.written(11, 1);
        }
        assert_eq!(gaps[..6], [0, 1, 3, 7, 15, 31]);
        assert!(gaps[6..].iter().all(|gap| *gap == 63) && gaps.len() > 10, "{gaps:?}");
        while !foresight.is_likely_last(1) {
            foresight.written(10, 1);
        }
        foresight.prepared(10);
        foresight.written(10, 1);
        foresight.prepared(10);
        foresight.written(11, 1);
        assert!(foresight.is_likely_last(1), "one failure may be an accident");
    }
}
