//! The header and properties sections as their fields, each still encoded (AMQP 1.0 part 3, 3.2.1 and 3.2.4).
//!
//! Senders leave trailing fields out; here every field is present, and an absent one is a null.

use crate::codec::{Malformed, Reader, begin_list, code, end_compound, write_descriptor};
use crate::sections::section;

/// Indexes into the properties section.
pub(crate) mod property {
    pub(crate) const MESSAGE_ID: usize = 0;
    pub(crate) const USER_ID: usize = 1;
    pub(crate) const TO: usize = 2;
    pub(crate) const SUBJECT: usize = 3;
    pub(crate) const REPLY_TO: usize = 4;
    pub(crate) const CORRELATION_ID: usize = 5;
    pub(crate) const CONTENT_TYPE: usize = 6;
    pub(crate) const CONTENT_ENCODING: usize = 7;
    pub(crate) const ABSOLUTE_EXPIRY_TIME: usize = 8;
    pub(crate) const CREATION_TIME: usize = 9;
    pub(crate) const GROUP_ID: usize = 10;
    pub(crate) const GROUP_SEQUENCE: usize = 11;
    pub(crate) const REPLY_TO_GROUP_ID: usize = 12;
    pub(crate) const COUNT: usize = 13;
}

/// Indexes into the header section.
pub(crate) mod header {
    pub(crate) const DURABLE: usize = 0;
    pub(crate) const PRIORITY: usize = 1;
    pub(crate) const TTL: usize = 2;
    pub(crate) const FIRST_ACQUIRER: usize = 3;
    pub(crate) const DELIVERY_COUNT: usize = 4;
    pub(crate) const COUNT: usize = 5;
}

const ABSENT: &[u8] = &[code::NULL];

/// `N` encoded fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a, const N: usize> {
    raw: [&'a [u8]; N],
    /// How many the sender wrote.
    count: usize,
}

pub(crate) type Header<'a> = Fields<'a, { header::COUNT }>;
pub(crate) type Properties<'a> = Fields<'a, { property::COUNT }>;

impl<'a, const N: usize> Fields<'a, N> {
    /// Splits an encoded list (its constructor included), or an absent one.
    pub(crate) fn split(list: Option<&'a [u8]>) -> Result<Self, Malformed> {
        let mut fields = Fields { raw: [ABSENT; N], count: 0 };
        let Some(list) = list else { return Ok(fields) };
        let mut reader = Reader::new(list);
        let list = reader.list()?;
        reader.finish()?;
        if list.count as usize > N {
            return Err(Malformed::TooManyFields { count: list.count, limit: N as u32 });
        }
        fields.count = list.count as usize;
        let mut inner = Reader::new(list.body);
        for field in &mut fields.raw[..list.count as usize] {
            *field = inner.encoded()?;
        }
        inner.finish()?;
        Ok(fields)
    }

    pub(crate) fn raw(&self, index: usize) -> &'a [u8] {
        self.raw[index]
    }

    pub(crate) fn is_null(&self, index: usize) -> bool {
        self.raw[index] == ABSENT
    }

    /// The field as `read` understands it; `None` if it is null.
    pub(crate) fn get<T>(
        &self,
        index: usize,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        Reader::new(self.raw[index]).optional(read)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.raw[..self.count].iter().copied()
    }
}

impl<'a> Properties<'a> {
    /// Writes the section with some fields replaced. It has as many fields as before, or as the replacements need.
    pub(crate) fn write_with(&self, out: &mut Vec<u8>, replaced: &[(usize, &[u8])]) {
        let needed = replaced.iter().map(|(index, _)| index + 1).max().unwrap_or(0);
        let count = self.count.max(needed);
        write_descriptor(out, section::PROPERTIES.into());
        let open = begin_list(out);
        for index in 0..count {
            let new = replaced.iter().find(|(at, _)| *at == index).map(|(_, value)| *value);
            out.extend_from_slice(new.unwrap_or(self.raw[index]));
        }
        end_compound(out, open, count as u32);
    }

    /// Creation and absolute expiry time, if the sender set both.
    pub(crate) fn lifetime(&self) -> Result<Option<(i64, i64)>, Malformed> {
        let created = self.get(property::CREATION_TIME, Reader::timestamp)?;
        let expires = self.get(property::ABSOLUTE_EXPIRY_TIME, Reader::timestamp)?;
        Ok(created.zip(expires))
    }
}

/// The time to live that a sender asked for, in milliseconds.
///
/// The header's 32 bits end at 49.7 days. Clients write the largest value for anything longer, and the truth as the
/// difference of two properties (S-67). Those times are the sender's clock: only their difference means anything.
pub(crate) fn time_to_live(ttl: Option<u32>, lifetime: Option<(i64, i64)>) -> Option<u64> {
    match (ttl, lifetime) {
        (Some(u32::MAX), Some((created, expires))) if expires >= created => Some(expires.abs_diff(created)),
        (ttl, _) => ttl.map(u64::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    fn list(fields: Vec<Value>) -> Vec<u8> {
        let mut out = Vec::new();
        Value::List(fields).encode(&mut out);
        out
    }

    #[test]
    fn fields_are_accepted_to_their_number_and_no_further() {
        let split = |count| Header::split(Some(&list(vec![Value::Null; count]))).map(drop);
        assert_eq!(split(5), Ok(()));
        assert_eq!(split(6), Err(Malformed::TooManyFields { count: 6, limit: 5 }));
    }

    #[test]
    fn fields_left_out_are_null() {
        let bytes = list(vec!["id".into()]);
        let fields = Properties::split(Some(&bytes)).unwrap();
        assert!(!fields.is_null(0) && fields.is_null(1) && fields.is_null(12));
        assert_eq!(fields.iter().count(), 1);
    }

    #[test]
    fn a_replaced_field_leaves_the_others_as_they_were() {
        let bytes = list(vec!["id".into(), Value::Null, "to".into()]);
        let mut out = Vec::new();
        Properties::split(Some(&bytes)).unwrap().write_with(&mut out, &[(4, &[code::ULONG_0])]);
        let expected = Value::List(vec!["id".into(), Value::Null, "to".into(), Value::Null, Value::Ulong(0)]);
        assert_eq!(Value::decode(&out[3..]), Ok(expected));
    }

    // S-67
    #[test]
    fn the_largest_ttl_gives_way_to_the_lifetime_and_no_other_does() {
        let day = 86_400_000;
        assert_eq!(time_to_live(Some(u32::MAX), Some((5, 5 + 100 * day))), Some(100 * day as u64));
        assert_eq!(time_to_live(Some(u32::MAX - 1), Some((5, 5 + day))), Some(u64::from(u32::MAX) - 1));
        assert_eq!(time_to_live(Some(u32::MAX), None), Some(u32::MAX.into()));
        assert_eq!(time_to_live(Some(u32::MAX), Some((6, 5))), Some(u32::MAX.into()));
        assert_eq!(time_to_live(Some(u32::MAX), Some((i64::MIN, i64::MAX))), Some(u64::MAX));
        assert_eq!(time_to_live(None, Some((0, day))), None);
    }
}
