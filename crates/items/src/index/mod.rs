//! Index entries: one for each scalar in an item that the indexing policy includes.
//!
//! An entry is the path (as a hash), the value in an encoding that keeps its order, and the item's place; see `keys`. Long texts are cut, so an
//! entry says "may be", and a query checks every item that it finds by one.

mod leaves;
pub mod plan;
pub mod source;
#[cfg(test)]
mod tests;

use crate::definition::Container;
use crate::item::stored::Stored;
use crate::keys::{self, Section};
use crate::view::Changes;
use bytes::Bytes;
use leaves::{Leaves, PathHash};

/// What an index key has in front of its path: the section and the generation.
pub fn generation(container: u32, generation: u16) -> Vec<u8> {
    let mut key = keys::section(container, Section::Index);
    key.extend_from_slice(&generation.to_be_bytes());
    key
}

fn key(container: &Container, path: PathHash, value: &[u8], place: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(keys::SECTION_BYTES + 10 + value.len() + place.len());
    keys::push_section(&mut key, container.number, Section::Index);
    key.extend_from_slice(&container.index.generation.to_be_bytes());
    key.extend_from_slice(&path.0.to_be_bytes());
    key.extend_from_slice(value);
    key.extend_from_slice(place);
    key
}

/// Replaces the entries of an item's old text by those of its new one; what both have stays untouched.
pub fn exchange(
    container: &Container,
    place: &Bytes,
    old: Option<&Stored>,
    new: Option<&Stored>,
    changes: &mut Changes,
) {
    let indexing = &container.settings.indexing;
    if !indexing.is_on {
        return;
    }
    // While the index is being built nobody knows whether an old entry is there: the new ones are all written.
    let is_building = container.index.built_to.is_some();
    let (old, new) = match (old, new) {
        (Some(old), Some(new)) if !is_building => Leaves::of_changed(old, new, indexing),
        (old, new) => {
            let leaves = |item: Option<&Stored>| Leaves::of(item.map(|item| &item.text[..]), indexing);
            (leaves(old), leaves(new))
        }
    };
    old.without(&new, |path, value| changes.remove(key(container, path, value, place)));
    let put = |path: PathHash, value: &[u8]| changes.put(key(container, path, value, place), Bytes::new());
    if is_building { new.each(put) } else { new.without(&old, put) }
}

/// Adds every entry of an item, for building the index.
pub fn add(container: &Container, place: &[u8], text: &[u8], changes: &mut Changes) {
    let leaves = Leaves::of(Some(text), &container.settings.indexing);
    leaves.each(|path, value| changes.put(key(container, path, value, place), Bytes::new()));
}

/// Every entry that an item must have.
pub fn entries(container: &Container, place: &[u8], text: &[u8]) -> Vec<Vec<u8>> {
    let mut entries = Vec::new();
    let leaves = Leaves::of(Some(text), &container.settings.indexing);
    leaves.each(|path, value| entries.push(key(container, path, value, place)));
    entries
}
