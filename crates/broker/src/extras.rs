//! What few messages have, kept out of their slots, and how much of it is large: changed properties are held in memory for as long
//! as their messages live, so those beyond a small size have a limit, of an entity and of all together.

use crate::effect::Extra;
use crate::ids::{IdMap, Sequence};
use crate::limits::{EXTRA_COST, SMALL_CHANGE_BYTES};
use std::ops::Deref;
use std::sync::Arc;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extras {
    by_sequence: IdMap<Sequence, Arc<Extra>>,
    /// Of changed properties that are not small.
    large_bytes: usize,
    /// Of everything.
    held_bytes: usize,
}

impl Deref for Extras {
    type Target = IdMap<Sequence, Arc<Extra>>;

    fn deref(&self) -> &Self::Target {
        &self.by_sequence
    }
}

impl Extras {
    /// Bytes of changed properties that are not small.
    pub fn large_bytes(&self) -> usize {
        self.large_bytes
    }

    /// What all of it takes in memory, about.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(crate) fn insert(&mut self, sequence: Sequence, extra: Arc<Extra>) {
        self.count(&extra);
        if let Some(before) = self.by_sequence.insert(sequence, extra) {
            self.discount(&before);
        }
    }

    fn count(&mut self, extra: &Extra) {
        self.large_bytes += large_bytes(extra);
        self.held_bytes += held_bytes(extra);
    }

    fn discount(&mut self, extra: &Extra) {
        self.large_bytes -= large_bytes(extra);
        self.held_bytes -= held_bytes(extra);
    }

    pub(crate) fn remove(&mut self, sequence: &Sequence) -> Option<Arc<Extra>> {
        let removed = self.by_sequence.remove(sequence);
        if let Some(removed) = &removed {
            self.discount(removed);
        }
        removed
    }

    /// Changes what a message has, which may have been nothing.
    pub(crate) fn edit(&mut self, sequence: Sequence, edit: impl FnOnce(&mut Extra)) {
        let before =
            self.by_sequence.get(&sequence).map_or((0, 0), |extra| (large_bytes(extra), held_bytes(extra)));
        (self.large_bytes, self.held_bytes) = (self.large_bytes - before.0, self.held_bytes - before.1);
        let extra = Arc::make_mut(self.by_sequence.entry(sequence).or_default());
        edit(extra);
        self.large_bytes += large_bytes(extra);
        self.held_bytes += held_bytes(extra);
    }
}

/// What changed properties of this size count for.
pub(crate) fn counted_bytes(bytes: usize) -> usize {
    if bytes > SMALL_CHANGE_BYTES { bytes } else { 0 }
}

fn held_bytes(extra: &Extra) -> usize {
    let overlay = extra.overlay.as_ref().map_or(0, |overlay| overlay.encoded_bytes());
    EXTRA_COST + overlay + extra.parts.len() * size_of::<crate::ids::BodyId>()
}

fn large_bytes(extra: &Extra) -> usize {
    extra.overlay.as_ref().map_or(0, |overlay| counted_bytes(overlay.encoded_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use message::Value;
    use message::overlay::Overlay;

    fn extra(bytes: usize) -> Extra {
        let mut overlay = Overlay::default();
        overlay.set("p", &Value::String("x".repeat(bytes))).unwrap();
        Extra { overlay: Some(overlay), ..Extra::default() }
    }

    #[test]
    fn what_is_large_is_counted_and_what_is_small_is_not() {
        let mut extras = Extras::default();
        extras.insert(Sequence(1), Arc::new(extra(100)));
        assert_eq!(extras.large_bytes(), 0);
        extras.insert(Sequence(2), Arc::new(extra(10_000)));
        let one = extras.large_bytes();
        assert!((10_000..10_100).contains(&one));
        extras.edit(Sequence(1), |edited| *edited = extra(10_000));
        assert_eq!(extras.large_bytes(), 2 * one);
        extras.insert(Sequence(2), Arc::new(extra(5)));
        extras.remove(&Sequence(1));
        assert_eq!((extras.large_bytes(), extras.len()), (0, 1));
    }
}
