//! The scalars of an item's text with their paths, found by walking it.

use crate::definition::indexing::{EACH, Indexing};
use crate::item::body::is_system;
use crate::item::stored::Stored;
use crate::json::{self, Number, Value, walk};
use crate::{limits, order};
use std::borrow::Cow;

/// Stands for a path: names from the outermost, elements of arrays as `[]`.
///
/// Two paths with the same hash would share entries; a query checks what it finds, so that costs time, not truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathHash(pub u64);

impl PathHash {
    pub const ROOT: PathHash = PathHash(0xcbf2_9ce4_8422_2325);

    /// The hash of the path with one name more: FNV-1a over the names, each ended by a byte that no UTF-8 has, and stirred so
    /// that names which differ in their last letter are far apart.
    pub fn then(self, name: &[u8]) -> PathHash {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = step(name.iter().fold(self.0, |hash, &byte| step(hash, byte)), 0xFF);
        PathHash((hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9))
    }

    pub fn each(self) -> PathHash {
        // Not the name of a member: that cannot hold this byte.
        self.then(&[0xFE])
    }
}

/// Scalars in the order of their paths and values, each once.
#[derive(Debug, Default)]
pub struct Leaves {
    bytes: Vec<u8>,
    /// Path, and where its value stands in `bytes`.
    entries: Vec<(PathHash, u32, u32)>,
}

impl Leaves {
    pub fn of(text: Option<&[u8]>, indexing: &Indexing) -> Leaves {
        let mut leaves = Leaves::default();
        if let Some(text) = text.filter(|_| indexing.is_on) {
            let mut walk = Walk::new(&mut leaves, indexing);
            walk.object(text, PathHash::ROOT, true);
        }
        leaves.sorted()
    }

    /// Of two texts of an item, only from the members at the top that differ: what is below equal ones is equal.
    pub fn of_changed(old: &Stored, new: &Stored, indexing: &Indexing) -> (Leaves, Leaves) {
        let (old, new) = (own(old), own(new));
        if old.0[..old.1] == new.0[..new.1] {
            return (Leaves::default(), Leaves::default());
        }
        let Some((olds, news)) = changed_members(old, new) else {
            return (Leaves::of(Some(old.0), indexing), Leaves::of(Some(new.0), indexing));
        };
        let changed = |members: &[RawMember<'_>], others: &[RawMember<'_>]| {
            let mut leaves = Leaves::default();
            leaves.bytes.reserve(limits::INDEX_LEAF_BYTES * members.len());
            leaves.entries.reserve(members.len());
            let mut walk = Walk::new(&mut leaves, indexing);
            for (at, member) in members.iter().enumerate() {
                // Usually in the same place.
                if others.get(at) != Some(member) && !others.contains(member) {
                    walk.member(member.0, member.1, PathHash::ROOT);
                }
            }
            leaves.sorted()
        };
        (changed(&olds, &news), changed(&news, &olds))
    }

    fn sorted(mut self) -> Leaves {
        let bytes = std::mem::take(&mut self.bytes);
        let value = |&(_, from, to): &(PathHash, u32, u32)| &bytes[from as usize..to as usize];
        self.entries.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| value(a).cmp(value(b))));
        self.entries.dedup_by(|a, b| a.0 == b.0 && value(a) == value(b));
        self.bytes = bytes;
        self
    }

    fn at(&self, index: usize) -> Option<(PathHash, &[u8])> {
        let &(path, from, to) = self.entries.get(index)?;
        Some((path, &self.bytes[from as usize..to as usize]))
    }

    pub fn each(&self, mut tell: impl FnMut(PathHash, &[u8])) {
        for index in 0..self.entries.len() {
            if let Some((path, value)) = self.at(index) {
                tell(path, value);
            }
        }
    }

    /// Tells those that `other` lacks.
    pub fn without(&self, other: &Leaves, mut tell: impl FnMut(PathHash, &[u8])) {
        let mut theirs = 0;
        for index in 0..self.entries.len() {
            let Some(own) = self.at(index) else { return };
            while other.at(theirs).is_some_and(|entry| entry < own) {
                theirs += 1;
            }
            if other.at(theirs) != Some(own) {
                tell(own.0, own.1);
            }
        }
    }
}

struct Walk<'a, 'l> {
    leaves: &'l mut Leaves,
    /// `None`: everything is indexed, and names need not be remembered.
    indexing: Option<&'a Indexing>,
    names: Vec<Cow<'a, str>>,
}

/// A name between its quotes, and the text of its value.
type RawMember<'a> = (&'a [u8], &'a [u8]);

/// The text of an item, and how many bytes of it are the client's.
fn own(item: &Stored) -> (&[u8], usize) {
    (&item.text, item.own as usize)
}

/// The client's members at the top of two texts of an item, but for those that have the same place and the same text in both. `None` when
/// there are too many to compare each with each.
fn changed_members<'a>(
    (old, old_own): (&'a [u8], usize),
    (new, new_own): (&'a [u8], usize),
) -> Option<(Vec<RawMember<'a>>, Vec<RawMember<'a>>)> {
    let (mut olds, mut news) = (walk::Members::of(old).ok()?, walk::Members::of(new).ok()?);
    let (mut old_changed, mut new_changed) = (Vec::with_capacity(8), Vec::with_capacity(8));
    loop {
        // Behind the client's members there are only system properties.
        let (has_old, has_new) = (olds.at() < old_own, news.at() < new_own);
        if !has_old && !has_new {
            return Some((old_changed, new_changed));
        }
        let before = olds.at();
        if has_old {
            let member = olds.next_member().ok()??;
            if has_new && news.skip_same(&old[before..olds.at()]) {
                continue;
            }
            old_changed.push(member);
        }
        if has_new {
            new_changed.push(news.next_member().ok()??);
        }
        if old_changed.len().max(new_changed.len()) > limits::COMPARED_MEMBERS {
            return None;
        }
    }
}

impl<'a, 'l> Walk<'a, 'l> {
    fn new(leaves: &'l mut Leaves, indexing: &'a Indexing) -> Walk<'a, 'l> {
        Walk { leaves, indexing: (!indexing.is_everything()).then_some(indexing), names: Vec::new() }
    }

    fn object(&mut self, text: &'a [u8], path: PathHash, is_root: bool) {
        let Ok(mut members) = walk::Members::of(text) else { return };
        while let Ok(Some((raw, value))) = members.next_member() {
            if is_root && is_system(raw) {
                continue;
            }
            self.member(raw, value, path);
        }
    }

    fn member(&mut self, raw: &'a [u8], value: &'a [u8], path: PathHash) {
        let Ok(name) = walk::name_text(raw) else { return };
        let path = path.then(name.as_bytes());
        if self.indexing.is_some() {
            self.names.push(name);
        }
        self.value(value, path);
        self.names.pop();
    }

    fn value(&mut self, text: &'a [u8], path: PathHash) {
        match walk::kind(text) {
            Some(walk::Kind::Object) => self.object(text, path, false),
            Some(walk::Kind::Array) => {
                if self.indexing.is_some() {
                    self.names.push(Cow::Borrowed(EACH));
                }
                if let Ok(elements) = walk::Elements::of(text) {
                    elements.map_while(Result::ok).for_each(|element| self.value(element, path.each()));
                }
                self.names.pop();
            }
            Some(kind) => self.scalar(kind, text, path),
            None => {}
        }
    }

    fn scalar(&mut self, kind: walk::Kind, text: &[u8], path: PathHash) {
        if let Some(indexing) = self.indexing {
            let names: Vec<&str> = self.names.iter().map(|name| &**name).collect();
            if !indexing.includes(&names) {
                return;
            }
        }
        let out = &mut self.leaves.bytes;
        let from = out.len();
        match kind {
            walk::Kind::Null => json::sort_key(&Value::Null, out),
            walk::Kind::Bool(fact) => json::sort_key(&Value::Bool(fact), out),
            walk::Kind::Number => {
                json::sort_key_number(walk::number(text).unwrap_or(Number::Integer(0)), out)
            }
            walk::Kind::String => {
                let Some(text) = walk::string(text) else { return };
                json::sort_key_text(cut(&text), out);
            }
            walk::Kind::Array | walk::Kind::Object => return,
        }
        self.leaves.entries.push((path, from as u32, out.len() as u32));
    }
}

/// The beginning of a text that stands in the index.
fn cut(text: &str) -> &str {
    if text.len() <= limits::INDEX_TEXT_BYTES {
        return text;
    }
    let mut end = limits::INDEX_TEXT_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A constant as it stands in the index, and whether it stands there whole. `None`: values of this type are not in it.
pub fn value_key(value: &Value) -> Option<(Vec<u8>, bool)> {
    let mut key = Vec::new();
    let mut is_whole = true;
    match value {
        Value::Array(_) | Value::Object(_) => return None,
        Value::String(text) => {
            let kept = cut(text);
            // A text that ends just where longer ones are cut looks like them.
            is_whole = kept.len() == text.len() && text.len() + 4 <= limits::INDEX_TEXT_BYTES;
            json::sort_key_text(kept, &mut key);
        }
        value => json::sort_key(value, &mut key),
    }
    Some((key, is_whole))
}

/// The length of the value that an index key goes on with.
pub fn value_length(from: &[u8]) -> Option<usize> {
    let mark = |value: &Value| value_key(value).and_then(|(key, _)| key.first().copied());
    let first = *from.first()?;
    if Some(first) == mark(&Value::integer(0)) {
        (from.len() >= 9).then_some(9)
    } else if Some(first) == mark(&Value::text("")) {
        Some(1 + order::text_length(&from[1..])?)
    } else {
        Some(1)
    }
}
