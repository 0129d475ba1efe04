//! One message in 32 bytes: where its body is, its times, how often it failed and what has become of it. Locks, changed
//! properties and whatever else few messages have are in side maps.

use crate::ids::BodyId;
use crate::time::LocalTime;

/// What has become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Not here: settled, or never was.
    Gone = 0,
    Active = 1,
    /// Set aside: received only by its number (S-120).
    Deferred = 2,
    /// Waits for its time (S-41).
    Scheduled = 3,
}

/// Why a message is in the dead-letter queue, where the broker itself decided so. The words of each reason are made
/// when the message is read, so that a million of them cost no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Not dead-lettered, or by a client, whose words are in the overlay (S-111).
    Client = 0,
    /// S-105.
    Expired = 1,
    /// S-106.
    MaxDeliveryCount = 2,
    /// S-109.
    MaxTransferHops = 3,
    /// The entity that it was to be forwarded to is full, disabled or gone (S-174).
    NotForwarded = 4,
    /// It reached a subscription that requires sessions without having one (S-108).
    SessionMissing = 5,
    /// It was sent by way of this entity to one that takes no messages (S-114).
    DestinationDisabled = 6,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    pub body: BodyId,
    pub enqueued: LocalTime,
    /// When it expires; of a scheduled message: when it is due, for its time to live counts from then (S-44).
    pub expires: LocalTime,
    pub length: u32,
    /// Failed deliveries in the low 25 bits, then three of [`Reason`], three of [`State`] and one that says whether it
    /// has waited for its time (K-8).
    bits: u32,
}

/// Numbers in which a snapshot writes a slot.
pub(crate) const SLOT_NUMBERS: usize = 5;

const COUNT_BITS: u32 = 25;
const COUNT_MOST: u32 = (1 << COUNT_BITS) - 1;
const REASON_BITS: u32 = 3;
const STATE_SHIFT: u32 = COUNT_BITS + REASON_BITS;
const STATE_BITS: u32 = 3;
const STATE_MASK: u32 = ((1 << STATE_BITS) - 1) << STATE_SHIFT;
const WAS_SCHEDULED: u32 = 1 << (STATE_SHIFT + STATE_BITS);

impl Slot {
    pub(super) const GONE: Slot =
        Slot { body: BodyId(0), enqueued: LocalTime(0), expires: LocalTime(0), length: 0, bits: 0 };

    pub fn active(body: BodyId, length: u32, enqueued: LocalTime, expires: LocalTime) -> Slot {
        Slot { body, enqueued, expires, length, bits: (State::Active as u32) << STATE_SHIFT }
    }

    pub fn scheduled(body: BodyId, length: u32, enqueued: LocalTime, due: LocalTime) -> Slot {
        Slot { body, enqueued, expires: due, length, bits: (State::Scheduled as u32) << STATE_SHIFT }
    }

    /// Everything that a snapshot keeps, as numbers; the body first.
    pub(crate) fn to_numbers(self) -> [u64; SLOT_NUMBERS] {
        let Slot { body, enqueued, expires, length, bits } = self;
        [body.0, enqueued.0 as u64, expires.0 as u64, length.into(), bits.into()]
    }

    /// A slot from what a snapshot has kept; `None` when that is not one that ever was.
    pub(crate) fn from_numbers(numbers: [u64; SLOT_NUMBERS]) -> Option<Slot> {
        let [body, enqueued, expires, length, bits] = numbers;
        let slot = Slot {
            body: BodyId(body),
            enqueued: LocalTime(enqueued as i64),
            expires: LocalTime(expires as i64),
            length: length.try_into().ok()?,
            bits: bits.try_into().ok()?,
        };
        (slot.state() != State::Gone).then_some(slot)
    }

    pub fn state(&self) -> State {
        match (self.bits & STATE_MASK) >> STATE_SHIFT {
            1 => State::Active,
            2 => State::Deferred,
            3 => State::Scheduled,
            _ => State::Gone,
        }
    }

    pub(super) fn set_state(&mut self, state: State) {
        self.bits = self.bits & !STATE_MASK | (state as u32) << STATE_SHIFT;
    }

    /// Whether it has waited for its time, here or where it came from.
    pub fn was_scheduled(&self) -> bool {
        self.bits & WAS_SCHEDULED != 0
    }

    /// The slot of a message that comes from where it waited for its time, or did not.
    pub(crate) fn after_schedule(mut self, was_scheduled: bool) -> Slot {
        self.bits |= if was_scheduled { WAS_SCHEDULED } else { 0 };
        self
    }

    pub fn reason(&self) -> Reason {
        match self.bits >> COUNT_BITS & ((1 << REASON_BITS) - 1) {
            1 => Reason::Expired,
            2 => Reason::MaxDeliveryCount,
            3 => Reason::MaxTransferHops,
            4 => Reason::NotForwarded,
            5 => Reason::SessionMissing,
            6 => Reason::DestinationDisabled,
            _ => Reason::Client,
        }
    }

    /// The slot of the message in the dead-letter queue. It can be received there at once, deferred or not before.
    pub fn dead(mut self, reason: Reason) -> Slot {
        let kept = self.bits & (COUNT_MOST | WAS_SCHEDULED);
        self.bits = kept | (reason as u32) << COUNT_BITS | (State::Active as u32) << STATE_SHIFT;
        self
    }

    /// Deliveries that failed.
    pub fn count(&self) -> u32 {
        self.bits & COUNT_MOST
    }

    /// One more failed delivery. The count stops at its most rather than run into its neighbours.
    pub fn raise_count(&mut self) {
        if self.count() < COUNT_MOST {
            self.bits += 1;
        }
    }

    /// Whether it is a message that ends by itself at `now` (S-51). Deferred ones do not (S-65).
    pub fn is_expired(&self, now: LocalTime) -> bool {
        self.state() == State::Active && self.expires <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Slot {
        Slot::active(BodyId(1), 10, LocalTime(1), LocalTime::NEVER)
    }

    #[test]
    fn a_slot_has_32_bytes() {
        assert_eq!(size_of::<Slot>(), 32);
    }

    #[test]
    fn the_count_never_runs_into_its_neighbours() {
        let mut slot = slot().dead(Reason::MaxDeliveryCount);
        slot.bits |= COUNT_MOST;
        slot.raise_count();
        assert_eq!(
            (slot.count(), slot.reason(), slot.state()),
            (COUNT_MOST, Reason::MaxDeliveryCount, State::Active)
        );
    }

    #[test]
    fn state_reason_and_count_are_told_apart() {
        let mut slot = slot();
        slot.raise_count();
        slot.set_state(State::Deferred);
        assert_eq!((slot.count(), slot.reason(), slot.state()), (1, Reason::Client, State::Deferred));
        let slot = slot.dead(Reason::Expired);
        assert_eq!((slot.count(), slot.reason(), slot.state()), (1, Reason::Expired, State::Active));
        assert!(!slot.was_scheduled());
    }

    // K-8
    #[test]
    fn what_waited_for_its_time_is_known_whatever_becomes_of_it() {
        let mut slot = slot().after_schedule(true);
        slot.raise_count();
        slot.set_state(State::Deferred);
        assert_eq!((slot.count(), slot.state(), slot.was_scheduled()), (1, State::Deferred, true));
        let slot = slot.dead(Reason::DestinationDisabled);
        assert_eq!((slot.reason(), slot.state()), (Reason::DestinationDisabled, State::Active));
        assert!(slot.was_scheduled());
        assert_eq!(Slot::from_numbers(slot.to_numbers()), Some(slot));
    }
}
