//! Names for things that are numbers, so that a count, a place and a number cannot be swapped.
//!
//! Entity ids, body ids and positions are never reused within a partition: a record that names one means the same
//! thing for as long as the data lives.

use message::facts::MessageId;
use sha2::{Digest, Sha256};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A namespace of the server; `0` is the one called `default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NamespaceId(pub u32);

/// A queue, topic or subscription. Deleting and re-creating a name gives a new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityId(pub u32);

/// The place of a message in the order of its entity (S-31). The first is 1, and it never starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sequence(pub u64);

/// The sequence number of a message as clients see it: its [`Sequence`], or, in a partitioned entity, the partition's id
/// in the top 16 bits and the low 48 bits of its sequence (S-32).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Number(pub u64);

impl Number {
    /// In a partitioned entity a number counts in so many bits (S-32, S-33).
    pub(crate) const PARTITION_SHIFT: u32 = 48;

    /// The bits that tell messages of one entity apart; those above are the partition's.
    pub const COUNTER: u64 = (1 << Number::PARTITION_SHIFT) - 1;
}

/// The parts of an entity from which messages are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum SubQueue {
    #[default]
    Main = 0,
    /// `<entity>/$DeadLetterQueue` (S-100).
    DeadLetter = 1,
    /// `<entity>/$Transfer/$DeadLetterQueue` (S-114).
    TransferDeadLetter = 2,
}

/// Where messages are received from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Source {
    pub entity: EntityId,
    pub sub: SubQueue,
}

/// The partition-wide number of a stored body. The first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BodyId(pub u64);

/// The ordinal of a batch of records in the journal. `0` is before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

/// A client connection, or something else that may ask and be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ConnectionId(pub u32);

/// A link of a connection; unique while the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LinkId {
    pub connection: ConnectionId,
    pub link: u32,
}

/// A question whose answer goes back to its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RequestId {
    pub connection: ConnectionId,
    pub request: u32,
}

/// A transaction, for as long as the server runs. Worth something only to the connection that declared it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TransactionId(pub u64);

/// What proves that its holder has a message locked. It belongs to no link: it counts on every one (S-83, S-94).
///
/// The low half is the message's sequence number, so that a lock is found without a second index; the high half is
/// fresh for each delivery, so that a token of an earlier delivery is worth nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockToken(pub u128);

impl LockToken {
    pub fn new(nonce: u64, sequence: Sequence) -> LockToken {
        LockToken(u128::from(nonce) << 64 | u128::from(sequence.0))
    }

    pub fn sequence(self) -> Sequence {
        Sequence(self.0 as u64)
    }
}

impl Source {
    pub fn main(entity: EntityId) -> Source {
        Source { entity, sub: SubQueue::Main }
    }

    pub fn dead_letter(entity: EntityId) -> Source {
        Source { entity, sub: SubQueue::DeadLetter }
    }

    pub fn transfer_dead_letter(entity: EntityId) -> Source {
        Source { entity, sub: SubQueue::TransferDeadLetter }
    }
}

impl Sequence {
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

impl std::hash::Hash for LinkId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.connection.0) << 32 | u64::from(self.link));
    }
}

/// What a message is known by for duplicate detection: a digest of its message-id, which no peer can choose (S-160).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct MessageKey(pub [u64; 2]);

impl MessageKey {
    /// The key of a message without an id, which is never a duplicate (S-164).
    pub const NONE: MessageKey = MessageKey([0, 0]);

    /// A digest of a message-id, in which ids of different types differ. Its whole strength is needed: a client that finds
    /// another id of the same digest has a message dropped that is none of his business. It is on disk, so it stays.
    pub fn of(id: Option<MessageId<'_>>) -> MessageKey {
        MessageKey(match id {
            None => return MessageKey::NONE,
            Some(MessageId::String(text)) => digest(b's', text.as_bytes()),
            Some(MessageId::Uuid(uuid)) => digest(b'u', &uuid),
            Some(MessageId::Ulong(number)) => digest(b'n', &number.to_be_bytes()),
            Some(MessageId::Binary(bytes)) => digest(b'b', bytes),
        })
    }

    /// A digest of what chooses the partition of a message; zero if nothing does.
    pub fn partition(key: Option<&str>) -> u64 {
        key.map_or(0, |key| digest(b'p', key.as_bytes())[0])
    }

    /// The same id under a partition key is another message (S-162). `partition` is a digest too, zero without a key.
    pub fn within(self, partition: u64) -> MessageKey {
        let [high, low] = self.0;
        MessageKey([high ^ partition, low ^ partition.rotate_left(32)])
    }
}

fn digest(kind: u8, bytes: &[u8]) -> [u64; 2] {
    let digest = Sha256::new().chain_update([kind]).chain_update(bytes).finalize();
    let half = |at: usize| digest[at..at + 8].iter().fold(0, |half, byte| half << 8 | u64::from(*byte));
    [half(0), half(8)]
}

impl Hash for MessageKey {
    /// A digest is mixed already.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0[0]);
        state.write_u64(self.0[1]);
    }
}

/// A hasher for ids that we hand out ourselves. They need mixing, not protection: no peer chooses them.
#[derive(Debug, Default, Clone, Copy)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// A map keyed by ids of our own making.
pub type IdMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<IdHasher>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_sequence() {
        assert_eq!(LockToken::new(u64::MAX, Sequence(42)).sequence(), Sequence(42));
    }
}
