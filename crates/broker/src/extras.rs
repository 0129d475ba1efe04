//! What few messages have, kept out of their slots, and how much it is: in memory, and on the disk where changed properties have a
//! body of their own.

use crate::effect::Extra;
use crate::ids::{IdMap, Sequence};
use crate::limits::EXTRA_COST;
use std::ops::Deref;
use std::sync::Arc;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extras {
    by_sequence: IdMap<Sequence, Arc<Extra>>,
    /// Bytes of changed properties that have a body of their own.
    stored_bytes: u64,
    /// Bytes of everything else.
    held_bytes: usize,
}

impl Deref for Extras {
    type Target = IdMap<Sequence, Arc<Extra>>;

    fn deref(&self) -> &Self::Target {
        &self.by_sequence
    }
}

impl Extras {
    /// Bytes of changed properties that have a body of their own.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
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
        self.stored_bytes += stored_bytes(extra);
        self.held_bytes += held_bytes(extra);
    }

    fn discount(&mut self, extra: &Extra) {
        self.stored_bytes -= stored_bytes(extra);
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
            self.by_sequence.get(&sequence).map_or((0, 0), |extra| (stored_bytes(extra), held_bytes(extra)));
        (self.stored_bytes, self.held_bytes) = (self.stored_bytes - before.0, self.held_bytes - before.1);
        let extra = Arc::make_mut(self.by_sequence.entry(sequence).or_default());
        edit(extra);
        self.stored_bytes += stored_bytes(extra);
        self.held_bytes += held_bytes(extra);
    }
}

fn held_bytes(extra: &Extra) -> usize {
    let overlay = extra.overlay.as_ref().map_or(0, |overlay| overlay.held_bytes());
    EXTRA_COST + overlay + extra.parts.len() * size_of::<crate::ids::BodyId>()
}

pub(crate) fn stored_bytes(extra: &Extra) -> u64 {
    extra.stored_overlay.map_or(0, |stored| stored.length.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::StoredOverlay;
    use crate::ids::BodyId;
    use message::Value;
    use message::overlay::Overlay;

    fn held(bytes: usize) -> Extra {
        let mut overlay = Overlay::default();
        overlay.set("p", &Value::String("x".repeat(bytes))).unwrap();
        Extra { overlay: Some(overlay), ..Extra::default() }
    }

    fn stored(length: u32) -> Extra {
        Extra { stored_overlay: Some(StoredOverlay { body: BodyId(7), length }), ..Extra::default() }
    }

    #[test]
    fn what_is_held_and_what_is_stored_are_counted_apart() {
        let mut extras = Extras::default();
        extras.insert(Sequence(1), Arc::new(held(1_000)));
        assert!((EXTRA_COST + 1_000..EXTRA_COST + 1_100).contains(&extras.held_bytes()));
        assert_eq!(extras.stored_bytes(), 0);
        extras.edit(Sequence(1), |edited| *edited = stored(10_000));
        extras.insert(Sequence(2), Arc::new(stored(500)));
        assert_eq!((extras.held_bytes(), extras.stored_bytes()), (2 * EXTRA_COST, 10_500));
        extras.insert(Sequence(2), Arc::new(stored(400)));
        extras.remove(&Sequence(1));
        assert_eq!((extras.held_bytes(), extras.stored_bytes()), (EXTRA_COST, 400));
    }
}
