//! Numbers of messages in their order. Most sessions have few, some have a million: a short list for the former, a tree for
//! the latter.

use crate::ids::Sequence;
use crate::touched::touched;
use std::collections::BTreeSet;

/// The longest list. Moving half of it costs no more than a step through a tree.
const FEW: usize = 32;

#[derive(Debug, Clone)]
pub enum Sequences {
    /// In order.
    Few(Vec<Sequence>),
    Many(BTreeSet<Sequence>),
}

impl Default for Sequences {
    fn default() -> Sequences {
        Sequences::Few(Vec::new())
    }
}

impl Sequences {
    pub fn is_empty(&self) -> bool {
        match self {
            Sequences::Few(few) => few.is_empty(),
            Sequences::Many(many) => many.is_empty(),
        }
    }

    pub fn insert(&mut self, sequence: Sequence) {
        touched(1);
        match self {
            Sequences::Few(few) => {
                let place = few.binary_search(&sequence).expect_err("a message is in its session once");
                if few.len() < FEW {
                    few.insert(place, sequence);
                } else {
                    *self = Sequences::Many(few.iter().copied().chain([sequence]).collect());
                }
            }
            Sequences::Many(many) => {
                assert!(many.insert(sequence), "a message is in its session once");
            }
        }
    }

    /// Takes a number out, and says whether it was there.
    pub fn remove(&mut self, sequence: Sequence) -> bool {
        touched(1);
        match self {
            Sequences::Few(few) => {
                let place = few.binary_search(&sequence);
                place.is_ok_and(|place| few.remove(place) == sequence)
            }
            Sequences::Many(many) => {
                let was_there = many.remove(&sequence);
                if many.is_empty() {
                    *self = Sequences::default();
                }
                was_there
            }
        }
    }

    /// The first number at or after `from`.
    pub fn next_from(&self, from: Sequence) -> Option<Sequence> {
        touched(1);
        match self {
            Sequences::Few(few) => few.get(few.partition_point(|sequence| *sequence < from)).copied(),
            Sequences::Many(many) => many.range(from..).next().copied(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Sequence> + '_ {
        let mut next = Sequence(0);
        std::iter::from_fn(move || {
            let sequence = self.next_from(next)?;
            next = sequence.next();
            Some(sequence)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_give_the_same_numbers_in_the_same_order() {
        for count in [1, FEW as u64, FEW as u64 + 1, 1_000] {
            let mut sequences = Sequences::default();
            (1..=count).rev().for_each(|n| sequences.insert(Sequence(3 * n)));
            assert_eq!(matches!(sequences, Sequences::Few(_)), count <= FEW as u64);
            assert!(sequences.iter().eq((1..=count).map(|n| Sequence(3 * n))));
            assert_eq!(sequences.next_from(Sequence(4)), (count > 1).then_some(Sequence(6)));
            assert!(!sequences.remove(Sequence(1)));
            (1..=count).for_each(|n| assert!(sequences.remove(Sequence(3 * n))));
            assert!(sequences.is_empty() && matches!(sequences, Sequences::Few(_)));
        }
    }
}
