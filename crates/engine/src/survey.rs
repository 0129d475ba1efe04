//! What of the journal is still needed: how many bytes of each stretch are alive, counted while a snapshot is written.
//!
//! A body is alive if the snapshot names it. One that is not named stays dead for ever, so a count that is a little old
//! is wrong in one direction only: it may spare what could go, never the other way round. Nothing is counted while
//! messages come and go, nothing has to be stored, and whatever holds bodies in future is counted as soon as snapshots
//! contain it.

use broker::snapshot::Named;
use journal::{Position, Stretch};

#[derive(Debug)]
pub(crate) struct Survey {
    stretches: Vec<Stretch>,
    alive_bytes: Vec<u64>,
    /// Bytes of bodies that were named before: what messages share.
    shared_bytes: u64,
    /// One bit for each body since the first stretch: a body that many messages share counts once.
    seen: Vec<u64>,
    /// Where the body before was found; the next one is usually there too.
    recent: usize,
}

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Nothing before this batch holds anything alive.
    pub(crate) dead_before: Position,
    /// Copying what is alive in front of this stretch makes it possible to give up everything there.
    pub(crate) relocate_before: Option<Stretch>,
    pub(crate) alive_bytes: u64,
    /// How much more it would be if every message had a body of its own.
    pub(crate) shared_bytes: u64,
}

impl Survey {
    pub(crate) fn new(stretches: Vec<Stretch>) -> Survey {
        let alive_bytes = vec![0; stretches.len()];
        Survey { stretches, alive_bytes, shared_bytes: 0, seen: Vec::new(), recent: 0 }
    }

    pub(crate) fn count(&mut self, named: Named) {
        let Some(nth) =
            self.stretches.first().and_then(|first| named.stored.0.checked_sub(first.first_body.0))
        else {
            return;
        };
        let (word, bit) = ((nth / 64) as usize, 1 << (nth % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit == 0 {
            self.seen[word] |= bit;
            let stretch = self.stretch_of(named.stored.0);
            self.alive_bytes[stretch] += named.bytes;
        } else {
            self.shared_bytes += named.bytes;
        }
    }

    fn stretch_of(&mut self, body: u64) -> usize {
        let holds = |at: usize| {
            self.stretches[at].first_body.0 <= body
                && self.stretches.get(at + 1).is_none_or(|next| body < next.first_body.0)
        };
        if !holds(self.recent) {
            self.recent = self.stretches.partition_point(|stretch| stretch.first_body.0 <= body) - 1;
        }
        self.recent
    }

    /// Judges what the snapshot at `at` has shown. Space comes back from the front only, so what is sparse is judged
    /// together with everything before it.
    pub(crate) fn plan(&self, at: Position, sparse_percent: u64) -> Plan {
        let is_alive = |n: &usize| self.alive_bytes[*n] > 0 || self.holds_any(*n);
        let last = self.stretches.len() - 1;
        let first_alive = (0..last).find(is_alive).unwrap_or(last);
        let (mut alive, mut held, mut relocate_before) = (0, 0, None);
        for n in first_alive..last {
            let next = self.stretches[n + 1];
            if next.first > at.next() {
                break;
            }
            alive += self.alive_bytes[n];
            held += self.stretches[n].bytes;
            if alive * 100 < held * sparse_percent {
                relocate_before = Some(next);
            }
        }
        Plan {
            dead_before: self.stretches[first_alive].first,
            relocate_before,
            alive_bytes: self.alive_bytes.iter().sum(),
            shared_bytes: self.shared_bytes,
        }
    }

    /// Whether a stretch holds a body that is alive, be it empty.
    fn holds_any(&self, stretch: usize) -> bool {
        let base = self.stretches[0].first_body.0;
        let from = self.stretches[stretch].first_body.0 - base;
        let to = self.stretches[stretch + 1].first_body.0 - base;
        (from..to)
            .any(|nth| self.seen.get((nth / 64) as usize).is_some_and(|word| word >> (nth % 64) & 1 == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::BodyId;

    /// Ten bodies and ten batches in each of four stretches of 1,000 bytes.
    fn survey(alive: &[(u64, u64)]) -> Survey {
        let stretch = |n: u64| Stretch {
            first: Position(n * 10 + 1),
            first_body: journal::BodyId(n * 10 + 1),
            bytes: 1_000,
        };
        let mut survey = Survey::new((0..4).map(stretch).collect());
        for (body, bytes) in alive {
            survey.count(Named { body: BodyId(*body), stored: BodyId(*body), bytes: *bytes });
        }
        survey
    }

    #[test]
    fn the_dead_in_front_of_the_first_living_body_can_go() {
        for (alive, dead_before) in [(1, 1), (10, 1), (11, 11), (25, 21), (39, 31)] {
            assert_eq!(survey(&[(alive, 1_000)]).plan(Position(40), 25).dead_before, Position(dead_before));
        }
        assert_eq!(survey(&[]).plan(Position(40), 25).dead_before, Position(31), "the last one is in use");
    }

    #[test]
    fn an_empty_body_is_alive_too() {
        assert_eq!(survey(&[(12, 0)]).plan(Position(40), 25).dead_before, Position(11));
    }

    #[test]
    fn a_sparse_front_is_relocated_and_a_full_one_is_not() {
        let relocated = |alive: &[(u64, u64)], at: u64| {
            survey(alive).plan(Position(at), 25).relocate_before.map(|stretch| stretch.first.0)
        };
        assert_eq!(relocated(&[(1, 249)], 40), Some(31), "everything behind it is dead");
        assert_eq!(relocated(&[(1, 249), (11, 1_000), (21, 1_000)], 40), Some(11));
        assert_eq!(relocated(&[(1, 250), (11, 1_000), (21, 1_000)], 40), None);
        assert_eq!(relocated(&[(1, 900)], 40), None, "30 % of three stretches");
        assert_eq!(relocated(&[(1, 600), (11, 10)], 40), Some(31), "20 % of three stretches");
        assert_eq!(relocated(&[(11, 600)], 40), None, "what is dead in front needs no relocating");
        assert_eq!(relocated(&[(1, 249)], 15), Some(11), "only what the snapshot contains");
    }

    #[test]
    fn a_shared_body_counts_once() {
        let plan = survey(&[(1, 100), (1, 100), (2, 50)]).plan(Position(40), 25);
        assert_eq!((plan.alive_bytes, plan.shared_bytes), (150, 100));
    }
}
