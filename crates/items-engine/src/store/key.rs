//! A key of the table of recent changes, with its beginning beside it: most comparisons end there, without a look at the bytes, which
//! lie anywhere in memory.

use bytes::Bytes;
use std::borrow::Borrow;
use std::cmp::Ordering;

/// The first bytes as big numbers, filled up with zeros: an index entry's path and the beginning of its value are in them.
type Head = [u64; 3];

const HEAD_BYTES: usize = size_of::<Head>();

fn head(bytes: &[u8]) -> Head {
    let mut padded = [0; HEAD_BYTES];
    let length = bytes.len().min(HEAD_BYTES);
    padded[..length].copy_from_slice(&bytes[..length]);
    let mut head = Head::default();
    for (number, bytes) in head.iter_mut().zip(padded.as_chunks().0) {
        *number = u64::from_be_bytes(*bytes);
    }
    head
}

/// Ordered as its bytes are.
#[derive(Debug)]
pub(super) struct Key {
    head: Head,
    pub(super) bytes: Bytes,
}

impl From<Bytes> for Key {
    fn from(bytes: Bytes) -> Key {
        Key { head: head(&bytes), bytes }
    }
}

/// What keys are looked for by: the same without memory of its own.
#[derive(Debug)]
pub(super) struct Probe<'a> {
    head: Head,
    bytes: &'a [u8],
}

impl<'a> Probe<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Probe<'a> {
        Probe { head: head(bytes), bytes }
    }
}

/// What [`Key`] and [`Probe`] have in common, so that a map of one can be asked for the other.
pub(super) trait Ordered {
    fn parts(&self) -> (&Head, &[u8]);
}

impl Ordered for Key {
    fn parts(&self) -> (&Head, &[u8]) {
        (&self.head, &self.bytes)
    }
}

impl Ordered for Probe<'_> {
    fn parts(&self) -> (&Head, &[u8]) {
        (&self.head, self.bytes)
    }
}

/// Zeros at the end of a short key look like bytes of a longer one, so equal heads say nothing.
fn compare(left: (&Head, &[u8]), right: (&Head, &[u8])) -> Ordering {
    left.0.cmp(right.0).then_with(|| left.1.cmp(right.1))
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        compare(self.parts(), other.parts())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Key {}

impl<'a> Borrow<dyn Ordered + 'a> for Key {
    fn borrow(&self) -> &(dyn Ordered + 'a) {
        self
    }
}

impl Ord for dyn Ordered + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.parts(), other.parts())
    }
}

impl PartialOrd for dyn Ordered + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Ordered + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts().1 == other.parts().1
    }
}

impl Eq for dyn Ordered + '_ {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_are_ordered_as_their_bytes(
            // Few values and lengths around that of a head, so that keys are alike.
            left in prop::collection::vec(0u8..3, 0..HEAD_BYTES + 3),
            right in prop::collection::vec(0u8..3, 0..HEAD_BYTES + 3),
            same in prop::collection::vec(any::<u8>(), 0..HEAD_BYTES + 3),
        ) {
            let with = |end: &[u8]| Bytes::from([&same[..], end].concat());
            for (left, right) in [(with(&left), with(&right)), (left.into(), right.into())] {
                let expected = left.cmp(&right);
                prop_assert_eq!(Key::from(left.clone()).cmp(&Key::from(right.clone())), expected);
                let (left, right) = (Probe::new(&left), Probe::new(&right));
                let (left, right): (&dyn Ordered, &dyn Ordered) = (&left, &right);
                prop_assert_eq!(left.cmp(right), expected);
                prop_assert_eq!(left == right, expected.is_eq());
            }
        }
    }
}
