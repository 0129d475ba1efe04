//! The types that a field of a record may have: how each is written and, beside it, how it is read.

use super::{KeptLock, Unreadable};
use crate::ids::{BodyId, EntityId, LockToken, MessageKey, NamespaceId, Sequence, Source, SubQueue};
use crate::queue::index::Reason;
use crate::record::layout::{codes, structure};
use crate::settings::{QueueSettings, Status};
use crate::time::{LocalTime, Span};
use message::overlay::Overlay;
use std::sync::Arc;

/// What may be a field of a record.
pub(crate) trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);

    fn get(fields: &mut Fields<'_>) -> Result<Self, Unreadable>;

    /// Bytes beyond those that every record is taken to have, where a value can be of any length.
    fn more_bytes(&self) -> usize {
        0
    }
}

/// The fields of a record that are still to be read.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) kind: u8,
    pub(crate) rest: &'a [u8],
}

impl Fields<'_> {
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let (fixed, rest) = self.rest.split_first_chunk::<N>().ok_or(Unreadable::Truncated)?;
        self.rest = rest;
        Ok(*fixed)
    }

    /// A number of [`put_number`].
    pub(crate) fn number(&mut self) -> Result<u64, Unreadable> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = u8::get(self)?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Unreadable::BadField("a number is too long"))
    }

    /// A number of [`put_difference`].
    pub(crate) fn difference(&mut self) -> Result<i64, Unreadable> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// An overlay of so many bytes; none is none.
    pub(crate) fn sized_overlay(&mut self, length: usize) -> Result<Option<Box<Overlay>>, Unreadable> {
        let (overlay, rest) = self.rest.split_at_checked(length).ok_or(Unreadable::Truncated)?;
        self.rest = rest;
        Field::get(&mut Fields { kind: self.kind, rest: overlay })
    }

    pub(crate) fn finish(&self) -> Result<(), Unreadable> {
        if self.rest.is_empty() { Ok(()) } else { Err(Unreadable::UnknownFields(self.kind)) }
    }
}

/// Seven bits in each byte, the low ones first.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Small whether above or below zero.
pub(crate) fn put_difference(out: &mut Vec<u8>, difference: i64) {
    put_number(out, (difference << 1 ^ difference >> 63) as u64);
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Field for $number {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn get(fields: &mut Fields<'_>) -> Result<$number, Unreadable> {
                fields.fixed().map(<$number>::from_le_bytes)
            }
        }
    )*};
}

/// Types that are a number or two with a name.
macro_rules! named {
    ($($name:ident),*) => {$(
        impl Field for $name {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            #[inline]
            fn get(fields: &mut Fields<'_>) -> Result<$name, Unreadable> {
                Field::get(fields).map($name)
            }
        }
    )*};
}

numbers!(u8, u32, u64, i64, u128);
named!(EntityId, NamespaceId, Sequence, BodyId, LockToken, MessageKey, LocalTime, Span);

impl Field for [u64; 2] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|half| half.put(out));
    }

    fn get(fields: &mut Fields<'_>) -> Result<[u64; 2], Unreadable> {
        Ok([u64::get(fields)?, u64::get(fields)?])
    }
}

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(fields: &mut Fields<'_>) -> Result<bool, Unreadable> {
        match u8::get(fields)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Unreadable::BadField("a truth is neither yes nor no")),
        }
    }
}

/// Whether there is a value, and the value.
impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn get(fields: &mut Fields<'_>) -> Result<Option<T>, Unreadable> {
        if bool::get(fields)? { T::get(fields).map(Some) } else { Ok(None) }
    }

    fn more_bytes(&self) -> usize {
        self.as_ref().map_or(0, T::more_bytes)
    }
}

/// A number that is never zero, or zero.
pub(crate) mod or_zero {
    use super::{Field, Fields, Unreadable};

    pub(crate) fn put(value: &Option<u64>, out: &mut Vec<u8>) {
        value.unwrap_or(0).put(out);
    }

    pub(crate) fn get(fields: &mut Fields<'_>) -> Result<Option<u64>, Unreadable> {
        u64::get(fields).map(|value| Some(value).filter(|value| *value != 0))
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(fields: &mut Fields<'_>) -> Result<(A, B), Unreadable> {
        Ok((A::get(fields)?, B::get(fields)?))
    }

    fn more_bytes(&self) -> usize {
        self.0.more_bytes() + self.1.more_bytes()
    }
}

impl<T: Field> Field for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }

    fn get(fields: &mut Fields<'_>) -> Result<Box<T>, Unreadable> {
        T::get(fields).map(Box::new)
    }

    fn more_bytes(&self) -> usize {
        (**self).more_bytes()
    }
}

/// A count, and as many values.
impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn get(fields: &mut Fields<'_>) -> Result<Vec<T>, Unreadable> {
        (0..u32::get(fields)?).map(|_| T::get(fields)).collect()
    }

    fn more_bytes(&self) -> usize {
        self.iter().map(|value| size_of::<T>() + value.more_bytes()).sum()
    }
}

impl Field for Box<str> {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, self);
    }

    fn get(fields: &mut Fields<'_>) -> Result<Box<str>, Unreadable> {
        let length = u32::get(fields)? as usize;
        let (text, rest) = fields.rest.split_at_checked(length).ok_or(Unreadable::Truncated)?;
        fields.rest = rest;
        std::str::from_utf8(text).map(Box::from).map_err(|_| Unreadable::BadField("text is not UTF-8"))
    }

    fn more_bytes(&self) -> usize {
        self.len()
    }
}

impl Field for Arc<str> {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, self);
    }

    fn get(fields: &mut Fields<'_>) -> Result<Arc<str>, Unreadable> {
        <Box<str>>::get(fields).map(Arc::from)
    }

    fn more_bytes(&self) -> usize {
        self.len()
    }
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    (text.len() as u32).put(out);
    out.extend_from_slice(text.as_bytes());
}

/// The parts of a message, to the end of the record.
impl Field for Option<Box<[BodyId]>> {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().flatten().for_each(|part| part.put(out));
    }

    fn get(fields: &mut Fields<'_>) -> Result<Option<Box<[BodyId]>>, Unreadable> {
        if fields.rest.is_empty() {
            return Ok(None);
        }
        to_the_end(fields).map(Some)
    }

    fn more_bytes(&self) -> usize {
        self.as_ref().map_or(0, |parts| size_of_val(&**parts))
    }
}

/// What of a message has changed, to the end of the record; nothing is nothing.
impl Field for Option<Box<Overlay>> {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|overlay| overlay.encode(out));
    }

    fn get(fields: &mut Fields<'_>) -> Result<Option<Box<Overlay>>, Unreadable> {
        if fields.rest.is_empty() {
            return Ok(None);
        }
        let overlay = Overlay::decode(fields.rest).map_err(|_| Unreadable::BadField("overlay"))?;
        fields.rest = &[];
        Ok(Some(Box::new(overlay)))
    }

    fn more_bytes(&self) -> usize {
        self.as_ref().map_or(0, |overlay| overlay.encoded_bytes())
    }
}

/// Locks, to the end of the record.
impl Field for Box<[KeptLock]> {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|lock| lock.put(out));
    }

    fn get(fields: &mut Fields<'_>) -> Result<Box<[KeptLock]>, Unreadable> {
        to_the_end(fields)
    }

    fn more_bytes(&self) -> usize {
        size_of_val(&**self)
    }
}

fn to_the_end<T: Field>(fields: &mut Fields<'_>) -> Result<Box<[T]>, Unreadable> {
    let mut values = Vec::new();
    while !fields.rest.is_empty() {
        values.push(T::get(fields)?);
    }
    Ok(values.into())
}

codes! { Reason, "reason":
    0 Client, 1 Expired, 2 MaxDeliveryCount, 3 MaxTransferHops, 4 NotForwarded, 5 SessionMissing, 6 DestinationDisabled
}
codes! { SubQueue, "sub-queue": 0 Main, 1 DeadLetter, 2 TransferDeadLetter }
codes! { Status, "status": 0 Active, 1 Disabled, 2 SendDisabled, 3 ReceiveDisabled }

structure! { Source { entity, sub } }
structure! { KeptLock { source, token, until } }
structure! { QueueSettings {
    lock_duration, max_size_megabytes, duplicate_window, default_time_to_live, auto_delete_on_idle,
    max_message_kilobytes as or_zero, max_delivery_count, status;
    flags requires_duplicate_detection, requires_session, dead_letter_on_expiration, batched_operations, partitioning,
        express;
    forward_to, forward_dead_letters_to, user_metadata
} }
