//! The room that a journal holds for the day when the disk is full: whether it is gone, and when to ask for it back.

use crate::limits::FULL_RETRY_MS;
use broker::Time;

/// Without its reserve a journal takes no more messages, until it has it back.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    /// It is gone, and is asked for again then.
    retry: Option<Time>,
}

impl Reserve {
    pub(crate) fn due(&self) -> Option<Time> {
        self.retry
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.retry.is_some()
    }

    /// It is gone. Says whether it is time to ask for it, which is so once in a while.
    pub(crate) fn is_to_be_asked(&mut self, now: Time) -> bool {
        let is_time = self.retry.is_some_and(|retry| now >= retry);
        if is_time || self.retry.is_none() {
            self.retry = Some(Time(now.0 + FULL_RETRY_MS));
        }
        is_time
    }

    pub(crate) fn is_back(&mut self) {
        self.retry = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_that_is_gone_is_asked_for_once_in_a_while() {
        let mut reserve = Reserve::default();
        assert!(!reserve.is_to_be_asked(Time(0)), "it was just found to be gone");
        assert!(reserve.is_gone() && !reserve.is_to_be_asked(Time(FULL_RETRY_MS - 1)));
        assert!(reserve.is_to_be_asked(Time(FULL_RETRY_MS)));
        assert!(!reserve.is_to_be_asked(Time(FULL_RETRY_MS)), "it was just asked for");
        assert_eq!(reserve.due(), Some(Time(2 * FULL_RETRY_MS)));
        reserve.is_back();
        assert_eq!((reserve.is_gone(), reserve.due()), (false, None));
    }
}
