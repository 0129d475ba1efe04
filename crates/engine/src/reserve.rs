//! The room that a journal holds for the day when the disk is full: whether it is gone, and when to ask for it back.

use journal::{Error, Journal};

/// Without its reserve a journal takes no more than what makes room, until it has it back. `T` is the time that its owner goes by.
#[derive(Debug)]
pub struct Reserve<T> {
    /// It is gone, and is asked for again then.
    retry: Option<T>,
}

impl<T> Default for Reserve<T> {
    fn default() -> Reserve<T> {
        Reserve { retry: None }
    }
}

impl<T: Copy + PartialOrd> Reserve<T> {
    pub fn due(&self) -> Option<T> {
        self.retry
    }

    fn is_gone(&self) -> bool {
        self.retry.is_some()
    }

    /// Asks for it back if it is gone, once in a while; the next time is `next`. What was decided goes first, so not while an append
    /// finds no room. Says whether the journal is short now; nothing, if there was nothing to be done.
    pub fn tend(
        &mut self,
        journal: &mut dyn Journal,
        is_full: bool,
        now: T,
        next: T,
    ) -> Result<Option<bool>, Error> {
        if journal.has_reserve() && !self.is_gone() && !is_full {
            return Ok(None);
        }
        let is_asked = self.is_to_be_asked(now, next) && !is_full;
        if is_asked && journal.refill_reserve()? {
            self.is_back();
        }
        Ok(Some(self.is_gone()))
    }

    /// It is gone. Says whether it is time to ask for it; the next time is `next`.
    fn is_to_be_asked(&mut self, now: T, next: T) -> bool {
        let is_time = self.retry.is_some_and(|retry| now >= retry);
        if is_time || self.retry.is_none() {
            self.retry = Some(next);
        }
        is_time
    }

    fn is_back(&mut self) {
        self.retry = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_that_is_gone_is_asked_for_once_in_a_while() {
        let mut reserve = Reserve::default();
        assert!(!reserve.is_to_be_asked(0, 10), "it was just found to be gone");
        assert!(reserve.is_gone() && !reserve.is_to_be_asked(9, 19));
        assert!(reserve.is_to_be_asked(10, 20));
        assert!(!reserve.is_to_be_asked(10, 20), "it was just asked for");
        assert_eq!(reserve.due(), Some(20));
        reserve.is_back();
        assert_eq!((reserve.is_gone(), reserve.due()), (false, None));
    }
}
