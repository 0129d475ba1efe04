//! The fields of a composite value (AMQP 1.0 part 1, 1.4): a described list whose trailing fields may be left out.
//!
//! Reading takes any list form and any length. Writing always gives every field, nulls included, in a list that is
//! never the empty form: older Python clients index fields by position and know no `list0`.

use message::codec::{self, code};
use message::{Descriptor, Malformed, Reader, Value};

/// A cursor over fields. Reading past the last one gives `None`, as reading a null does.
pub(crate) struct Fields<'a, 'n> {
    reader: Reader<'a>,
    left: u32,
    nodes: &'n mut u32,
}

impl<'a, 'n> Fields<'a, 'n> {
    /// Opens the list that `reader` stands at.
    pub(crate) fn open(reader: &mut Reader<'a>, nodes: &'n mut u32) -> Result<Self, Malformed> {
        let list = reader.list()?;
        Ok(Fields { reader: Reader::new(list.body), left: list.count, nodes })
    }

    pub(crate) fn next<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.reader.optional(read)
    }

    pub(crate) fn required<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        self.next(read)?.ok_or(Malformed::MissingField)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        Ok(self.next(Reader::boolean)?.unwrap_or(false))
    }

    pub(crate) fn text(&mut self) -> Result<Option<String>, Malformed> {
        self.next(|reader| reader.text().map(str::to_owned))
    }

    /// A field of any type, owned, from the frame's budget of nodes.
    pub(crate) fn value(&mut self) -> Result<Value, Malformed> {
        if self.left == 0 {
            return Ok(Value::Null);
        }
        self.left -= 1;
        self.reader.value_within(self.nodes)
    }

    /// A field of any type as its encoding; `None` for null.
    pub(crate) fn encoded(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        self.next(|reader| {
            let before = reader.rest();
            reader.skip()?;
            Ok(&before[..before.len() - reader.rest().len()])
        })
    }

    /// A field that is itself composite: `read` sees its descriptor and the shared budget.
    pub(crate) fn composite<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>, &mut u32) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        if self.reader.null() {
            return Ok(None);
        }
        *self.nodes = self.nodes.checked_sub(1).ok_or(Malformed::TooManyNodes)?;
        read(&mut self.reader, self.nodes).map(Some)
    }

    /// Fields that a later version may add are passed over; the count must still be true.
    pub(crate) fn finish(mut self) -> Result<(), Malformed> {
        while self.left > 0 {
            self.left -= 1;
            self.reader.skip()?;
        }
        self.reader.finish()
    }
}

/// The numeric descriptor of what comes next. `names` maps the symbolic form, which no official client uses.
pub(crate) fn descriptor(reader: &mut Reader<'_>, names: &[(&str, u64)]) -> Result<u64, Malformed> {
    match reader.descriptor()? {
        Descriptor::Code(code) => Ok(code),
        Descriptor::Symbol(symbol) => {
            let known = names.iter().find(|(name, _)| *name == symbol);
            known.map(|(_, code)| *code).ok_or(Malformed::BadDescriptor)
        }
    }
}

/// Writes a described list of `count` fields.
pub(crate) fn write_composite(
    out: &mut Vec<u8>,
    descriptor: u64,
    count: u8,
    fields: impl FnOnce(&mut Vec<u8>),
) {
    codec::write_descriptor(out, descriptor);
    codec::write_small_list(out, count, fields);
}

pub(crate) fn write_optional<T>(out: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        Some(value) => write(out, value),
        None => codec::write_null(out),
    }
}

pub(crate) fn write_encoded(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(encoded) => out.extend_from_slice(encoded),
        None => out.push(code::NULL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_left_out_read_as_null_and_extra_ones_are_passed_over() {
        let mut bytes = Vec::new();
        codec::write_small_list(&mut bytes, 1, |out| codec::write_uint(out, 7));
        let mut nodes = 10;
        let mut fields = Fields::open(&mut Reader::new(&bytes), &mut nodes).unwrap();
        assert_eq!(fields.next(Reader::uint), Ok(Some(7)));
        assert_eq!(fields.next(Reader::uint), Ok(None));
        assert_eq!(fields.value(), Ok(Value::Null));
        assert_eq!(fields.required(Reader::uint), Err(Malformed::MissingField));

        let fields = Fields::open(&mut Reader::new(&bytes), &mut nodes).unwrap();
        assert_eq!(fields.finish(), Ok(()));
    }

    #[test]
    fn an_encoded_field_ends_where_the_next_one_begins() {
        let mut bytes = Vec::new();
        codec::write_small_list(&mut bytes, 3, |out| {
            codec::write_string(out, "one");
            codec::write_null(out);
            codec::write_uint(out, 7);
        });
        let mut nodes = 10;
        let mut fields = Fields::open(&mut Reader::new(&bytes), &mut nodes).unwrap();
        assert_eq!(fields.encoded(), Ok(Some(&[code::STRING_8, 3, b'o', b'n', b'e'][..])));
        assert_eq!(fields.encoded(), Ok(None));
        assert_eq!(fields.encoded(), Ok(Some(&[code::UINT_SMALL, 7][..])));
        assert_eq!(fields.encoded(), Ok(None), "it was left out");
    }

    #[test]
    fn values_of_one_frame_share_one_budget() {
        // P6
        let mut bytes = Vec::new();
        let list = Value::List(vec![Value::Null; 3]);
        codec::write_small_list(&mut bytes, 2, |out| {
            list.encode(out);
            list.encode(out);
        });
        let read = |mut nodes: u32| {
            let mut fields = Fields::open(&mut Reader::new(&bytes), &mut nodes)?;
            fields.value()?;
            fields.value()
        };
        assert_eq!(read(8), Ok(list.clone()));
        assert_eq!(read(7), Err(Malformed::TooManyNodes));
    }

    #[test]
    fn a_list_whose_count_is_short_of_its_bytes_is_refused() {
        let bytes = [code::LIST_8, 3, 1, code::NULL, code::NULL];
        let mut nodes = 10;
        let fields = Fields::open(&mut Reader::new(&bytes), &mut nodes).unwrap();
        assert_eq!(fields.finish(), Err(Malformed::TrailingBytes));
    }
}
