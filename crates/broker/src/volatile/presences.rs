//! Who is there at each entity, by its id. Ids are never used again, so an entity that was deleted leaves its place, and nothing
//! but that.

use super::Presence;
use std::ops::{Index, IndexMut};
use std::sync::LazyLock;

#[derive(Debug, Default)]
pub(super) struct Presences(Vec<Option<Box<Presence>>>);

/// Nobody is at what is not there.
static NOBODY: LazyLock<Presence> = LazyLock::new(Presence::default);

impl Presences {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, presence: Option<Presence>) {
        self.0.push(presence.map(Box::new));
    }

    /// Empties a place.
    pub(super) fn take(&mut self, at: usize) -> Presence {
        self.0[at].take().map(|presence| *presence).unwrap_or_default()
    }

    /// Those that are there, each with its place.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Presence)> {
        self.0.iter().enumerate().filter_map(|(at, presence)| Some((at, presence.as_deref()?)))
    }
}

impl Index<usize> for Presences {
    type Output = Presence;

    fn index(&self, at: usize) -> &Presence {
        self.0[at].as_deref().unwrap_or(&NOBODY)
    }
}

impl IndexMut<usize> for Presences {
    fn index_mut(&mut self, at: usize) -> &mut Presence {
        self.0[at].get_or_insert_default()
    }
}
