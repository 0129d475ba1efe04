//! AMQP 1.0 part 1: primitive encodings, read from a slice. Their writers live in `write.rs` and are found here too.
//!
//! The reader never allocates and never copies: strings and binaries are slices of the input. A declared size must
//! lie within the input, a declared count must fit the bytes that follow it, and skipping a nested value is a loop
//! with a depth limit, not a recursion, so that hostile input costs no more than its own length.

use crate::limits::{VALUE_DEPTH, VALUE_NODES};

pub use crate::write::*;

/// Why bytes are not a valid AMQP encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the encoding ends before the value does")]
    Truncated,
    #[error("constructor 0x{0:02x} is not one of AMQP 1.0")]
    UnknownConstructor(u8),
    #[error("expected {expected}, found constructor 0x{found:02x}")]
    Unexpected { expected: &'static str, found: u8 },
    #[error("text is not valid UTF-8")]
    NotUtf8,
    #[error("a symbol is not ASCII")]
    NotAscii,
    #[error("a count of {0} elements does not fit the bytes that hold them")]
    CountExceedsBytes(u32),
    #[error("values are nested deeper than {VALUE_DEPTH}")]
    TooDeep,
    #[error("more than {VALUE_NODES} values in one encoding")]
    TooManyNodes,
    #[error("a descriptor must be a ulong or a symbol")]
    BadDescriptor,
    #[error("a map has an odd number of elements")]
    OddMap,
    #[error("bytes are left over after the value")]
    TrailingBytes,
    #[error("section 0x{0:02x} is out of place")]
    SectionOutOfPlace(u64),
    #[error("too many sections in one message")]
    TooManySections,
    #[error("a required field is missing")]
    MissingField,
    #[error("a composite of at most {limit} fields has {count}")]
    TooManyFields { count: u32, limit: u32 },
    #[error("an encoding of {0} bytes is longer than 32-bit positions reach")]
    TooLarge(usize),
}

/// Format codes (AMQP 1.0 part 1, 1.6).
pub mod code {
    pub const DESCRIBED: u8 = 0x00;
    pub const NULL: u8 = 0x40;
    pub const TRUE: u8 = 0x41;
    pub const FALSE: u8 = 0x42;
    pub const UINT_0: u8 = 0x43;
    pub const ULONG_0: u8 = 0x44;
    pub const LIST_0: u8 = 0x45;
    pub const UBYTE: u8 = 0x50;
    pub const BYTE: u8 = 0x51;
    pub const UINT_SMALL: u8 = 0x52;
    pub const ULONG_SMALL: u8 = 0x53;
    pub const INT_SMALL: u8 = 0x54;
    pub const LONG_SMALL: u8 = 0x55;
    pub const BOOLEAN: u8 = 0x56;
    pub const USHORT: u8 = 0x60;
    pub const SHORT: u8 = 0x61;
    pub const UINT: u8 = 0x70;
    pub const INT: u8 = 0x71;
    pub const FLOAT: u8 = 0x72;
    pub const CHAR: u8 = 0x73;
    pub const DECIMAL32: u8 = 0x74;
    pub const ULONG: u8 = 0x80;
    pub const LONG: u8 = 0x81;
    pub const DOUBLE: u8 = 0x82;
    pub const TIMESTAMP: u8 = 0x83;
    pub const DECIMAL64: u8 = 0x84;
    pub const DECIMAL128: u8 = 0x94;
    pub const UUID: u8 = 0x98;
    pub const BINARY_8: u8 = 0xa0;
    pub const STRING_8: u8 = 0xa1;
    pub const SYMBOL_8: u8 = 0xa3;
    pub const BINARY_32: u8 = 0xb0;
    pub const STRING_32: u8 = 0xb1;
    pub const SYMBOL_32: u8 = 0xb3;
    pub const LIST_8: u8 = 0xc0;
    pub const MAP_8: u8 = 0xc1;
    pub const LIST_32: u8 = 0xd0;
    pub const MAP_32: u8 = 0xd1;
    pub const ARRAY_8: u8 = 0xe0;
    pub const ARRAY_32: u8 = 0xf0;
}

/// What a described value says it is. Only the two forms the specification uses; anything else is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descriptor<'a> {
    Code(u64),
    Symbol(&'a str),
}

/// A list, map or array whose size has been checked: `count` elements in exactly `body`.
#[derive(Debug, Clone, Copy)]
pub struct Compound<'a> {
    pub count: u32,
    pub body: &'a [u8],
}

/// A cursor over encoded values.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    pub fn position(&self) -> usize {
        self.at
    }

    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next constructor byte, without taking it.
    pub fn peek(&self) -> Result<u8, Malformed> {
        self.bytes.get(self.at).copied().ok_or(Malformed::Truncated)
    }

    /// Fails unless everything was read.
    pub fn finish(&self) -> Result<(), Malformed> {
        if self.is_empty() { Ok(()) } else { Err(Malformed::TrailingBytes) }
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..length).ok_or(Malformed::Truncated)?;
        self.at += length;
        Ok(taken)
    }

    pub fn take_u8(&mut self) -> Result<u8, Malformed> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let rest = &self.bytes[self.at..];
        let fixed = rest.first_chunk::<N>().ok_or(Malformed::Truncated)?;
        self.at += N;
        Ok(*fixed)
    }

    fn sized_8(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.take_u8()? as usize;
        self.take(length)
    }

    fn sized_32(&mut self) -> Result<&'a [u8], Malformed> {
        let length = u32::from_be_bytes(self.fixed()?) as usize;
        self.take(length)
    }

    fn unexpected<T>(&self, expected: &'static str, found: u8) -> Result<T, Malformed> {
        Err(Malformed::Unexpected { expected, found })
    }

    /// Takes a null if one is next. Fields of composite types are optional this way.
    pub fn null(&mut self) -> bool {
        let is_null = self.bytes.get(self.at) == Some(&code::NULL);
        self.at += usize::from(is_null);
        is_null
    }

    /// `None` when the next value is null, else what `read` makes of it.
    pub fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.null() { Ok(None) } else { read(self).map(Some) }
    }

    pub fn boolean(&mut self) -> Result<bool, Malformed> {
        match self.take_u8()? {
            code::TRUE => Ok(true),
            code::FALSE => Ok(false),
            code::BOOLEAN => match self.take_u8()? {
                0 => Ok(false),
                1 => Ok(true),
                other => self.unexpected("a boolean octet of 0 or 1", other),
            },
            other => self.unexpected("boolean", other),
        }
    }

    pub fn ubyte(&mut self) -> Result<u8, Malformed> {
        match self.take_u8()? {
            code::UBYTE => self.take_u8(),
            other => self.unexpected("ubyte", other),
        }
    }

    pub fn ushort(&mut self) -> Result<u16, Malformed> {
        match self.take_u8()? {
            code::USHORT => Ok(u16::from_be_bytes(self.fixed()?)),
            other => self.unexpected("ushort", other),
        }
    }

    pub fn uint(&mut self) -> Result<u32, Malformed> {
        match self.take_u8()? {
            code::UINT_0 => Ok(0),
            code::UINT_SMALL => Ok(self.take_u8()?.into()),
            code::UINT => Ok(u32::from_be_bytes(self.fixed()?)),
            other => self.unexpected("uint", other),
        }
    }

    pub fn ulong(&mut self) -> Result<u64, Malformed> {
        match self.take_u8()? {
            code::ULONG_0 => Ok(0),
            code::ULONG_SMALL => Ok(self.take_u8()?.into()),
            code::ULONG => Ok(u64::from_be_bytes(self.fixed()?)),
            other => self.unexpected("ulong", other),
        }
    }

    /// Milliseconds since the Unix epoch.
    pub fn timestamp(&mut self) -> Result<i64, Malformed> {
        match self.take_u8()? {
            code::TIMESTAMP => Ok(i64::from_be_bytes(self.fixed()?)),
            other => self.unexpected("timestamp", other),
        }
    }

    /// A uuid in RFC 4122 byte order.
    pub fn uuid(&mut self) -> Result<[u8; 16], Malformed> {
        match self.take_u8()? {
            code::UUID => self.fixed(),
            other => self.unexpected("uuid", other),
        }
    }

    pub fn binary(&mut self) -> Result<&'a [u8], Malformed> {
        match self.take_u8()? {
            code::BINARY_8 => self.sized_8(),
            code::BINARY_32 => self.sized_32(),
            other => self.unexpected("binary", other),
        }
    }

    pub fn string(&mut self) -> Result<&'a str, Malformed> {
        let bytes = match self.take_u8()? {
            code::STRING_8 => self.sized_8()?,
            code::STRING_32 => self.sized_32()?,
            other => return self.unexpected("string", other),
        };
        std::str::from_utf8(bytes).map_err(|_| Malformed::NotUtf8)
    }

    pub fn symbol(&mut self) -> Result<&'a str, Malformed> {
        let bytes = match self.take_u8()? {
            code::SYMBOL_8 => self.sized_8()?,
            code::SYMBOL_32 => self.sized_32()?,
            other => return self.unexpected("symbol", other),
        };
        ascii(bytes)
    }

    /// A string or a symbol: what clients write for map keys, whichever the specification asks for.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        match self.peek()? {
            code::SYMBOL_8 | code::SYMBOL_32 => self.symbol(),
            _ => self.string(),
        }
    }

    /// The descriptor of a described value; the value itself comes next.
    pub fn descriptor(&mut self) -> Result<Descriptor<'a>, Malformed> {
        match self.take_u8()? {
            code::DESCRIBED => {}
            other => return self.unexpected("a described value", other),
        }
        match self.peek()? {
            code::ULONG_0 | code::ULONG_SMALL | code::ULONG => self.ulong().map(Descriptor::Code),
            code::SYMBOL_8 | code::SYMBOL_32 => self.symbol().map(Descriptor::Symbol),
            _ => Err(Malformed::BadDescriptor),
        }
    }

    pub fn list(&mut self) -> Result<Compound<'a>, Malformed> {
        let constructor = self.take_u8()?;
        self.list_body(constructor)
    }

    /// The count is of keys and values together, as on the wire.
    pub fn map(&mut self) -> Result<Compound<'a>, Malformed> {
        let constructor = self.take_u8()?;
        self.map_body(constructor)
    }

    /// An array's body starts with the one constructor that all its elements share.
    pub fn array(&mut self) -> Result<Compound<'a>, Malformed> {
        let constructor = self.take_u8()?;
        self.array_body(constructor)
    }

    /// A list whose constructor was taken, or stands in front of an array of lists.
    pub(crate) fn list_body(&mut self, constructor: u8) -> Result<Compound<'a>, Malformed> {
        match constructor {
            code::LIST_0 => Ok(Compound { count: 0, body: &[] }),
            code::LIST_8 => self.compound_8(),
            code::LIST_32 => self.compound_32(),
            other => self.unexpected("list", other),
        }
    }

    pub(crate) fn map_body(&mut self, constructor: u8) -> Result<Compound<'a>, Malformed> {
        let map = match constructor {
            code::MAP_8 => self.compound_8()?,
            code::MAP_32 => self.compound_32()?,
            other => return self.unexpected("map", other),
        };
        if map.count % 2 == 0 { Ok(map) } else { Err(Malformed::OddMap) }
    }

    /// Elements of an array may be of width zero (null, true, empty list), so their count costs the sender nothing;
    /// we still ask for a byte each, as no client has a use for more.
    pub(crate) fn array_body(&mut self, constructor: u8) -> Result<Compound<'a>, Malformed> {
        let array = match constructor {
            code::ARRAY_8 => self.compound_8()?,
            code::ARRAY_32 => self.compound_32()?,
            other => return self.unexpected("array", other),
        };
        if array.body.is_empty() { Err(Malformed::Truncated) } else { Ok(array) }
    }

    fn compound_8(&mut self) -> Result<Compound<'a>, Malformed> {
        let mut inner = Reader::new(self.sized_8()?);
        let count = inner.take_u8()?.into();
        compound(count, inner.rest())
    }

    fn compound_32(&mut self) -> Result<Compound<'a>, Malformed> {
        let mut inner = Reader::new(self.sized_32()?);
        let count = u32::from_be_bytes(inner.fixed()?);
        compound(count, inner.rest())
    }

    /// Passes over one value of any type. Compounds are passed over by their size, so this is a constant amount of
    /// work; only descriptors nest, and those are counted.
    pub fn skip(&mut self) -> Result<(), Malformed> {
        self.skip_descriptors()?;
        let constructor = self.take_u8()?;
        self.skip_body(constructor)
    }

    pub(crate) fn skip_descriptors(&mut self) -> Result<(), Malformed> {
        let mut depth = 0;
        while self.peek()? == code::DESCRIBED {
            self.descriptor()?;
            depth += 1;
            if depth > VALUE_DEPTH {
                return Err(Malformed::TooDeep);
            }
        }
        Ok(())
    }

    /// Passes over the body of a value whose (undescribed) constructor was taken. The upper four bits of a
    /// constructor say how wide its body is (AMQP 1.0 part 1, 1.2), but only the codes of 1.6 exist: what we pass
    /// over here is handed to other clients as it is, and they do not know invented ones.
    pub(crate) fn skip_body(&mut self, constructor: u8) -> Result<(), Malformed> {
        let size = self.size(constructor)?;
        self.take(usize::try_from(size).unwrap_or(usize::MAX)).map(drop)
    }

    /// How many bytes follow a constructor that was taken and, if it has one, its size, which is taken too.
    pub(crate) fn size(&mut self, constructor: u8) -> Result<u64, Malformed> {
        Ok(match constructor {
            code::NULL..=code::LIST_0 => 0,
            code::UBYTE..=code::BOOLEAN => 1,
            code::USHORT | code::SHORT => 2,
            code::UINT..=code::DECIMAL32 => 4,
            code::ULONG..=code::DECIMAL64 => 8,
            code::DECIMAL128 | code::UUID => 16,
            code::BINARY_8 | code::STRING_8 | code::SYMBOL_8 | code::LIST_8 | code::MAP_8 | code::ARRAY_8 => {
                self.take_u8()?.into()
            }
            code::BINARY_32
            | code::STRING_32
            | code::SYMBOL_32
            | code::LIST_32
            | code::MAP_32
            | code::ARRAY_32 => u32::from_be_bytes(self.fixed()?).into(),
            _ => return Err(Malformed::UnknownConstructor(constructor)),
        })
    }

    /// Takes the count at the beginning of a list of `size` bytes, checks it as reading the list would, and says how many
    /// bytes are left.
    pub(crate) fn take_count(&mut self, constructor: u8, size: u64) -> Result<u64, Malformed> {
        let (count, width) = match constructor {
            code::LIST_0 => return Ok(0),
            code::LIST_8 => (self.take_u8()?.into(), 1),
            _ => (u32::from_be_bytes(self.fixed()?), 4),
        };
        match size.checked_sub(width) {
            None => Err(Malformed::Truncated),
            Some(body) if u64::from(count) > body => Err(Malformed::CountExceedsBytes(count)),
            Some(body) => Ok(body),
        }
    }

    /// Passes over the body of a primitive, which must be sound: text is text, a boolean is zero or one.
    pub(crate) fn check_primitive(&mut self, constructor: u8) -> Result<(), Malformed> {
        match constructor {
            code::STRING_8 | code::STRING_32 => {
                let bytes = if constructor == code::STRING_8 { self.sized_8()? } else { self.sized_32()? };
                std::str::from_utf8(bytes).map(drop).map_err(|_| Malformed::NotUtf8)
            }
            code::SYMBOL_8 => ascii(self.sized_8()?).map(drop),
            code::SYMBOL_32 => ascii(self.sized_32()?).map(drop),
            code::BOOLEAN => match self.take_u8()? {
                0 | 1 => Ok(()),
                other => self.unexpected("a boolean octet of 0 or 1", other),
            },
            _ => self.skip_body(constructor),
        }
    }

    /// Passes over one value of any type and gives its bytes, constructor included.
    pub fn encoded(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.at;
        self.skip()?;
        Ok(&self.bytes[start..self.at])
    }
}

/// The elements of an array: what describes them, their constructor, and a reader of their bodies.
#[derive(Debug)]
pub(crate) struct Elements<'a> {
    pub(crate) descriptor: Option<Descriptor<'a>>,
    pub(crate) constructor: u8,
    pub(crate) count: u32,
    pub(crate) bodies: Reader<'a>,
}

impl<'a> Elements<'a> {
    pub(crate) fn of(array: Compound<'a>) -> Result<Self, Malformed> {
        let mut bodies = Reader::new(array.body);
        let descriptor = match bodies.peek()? {
            code::DESCRIBED => Some(bodies.descriptor()?),
            _ => None,
        };
        let constructor = bodies.take_u8()?;
        if !is_constructor(constructor) {
            return Err(Malformed::UnknownConstructor(constructor));
        }
        // The bytes of a descriptor do not count for elements of width zero.
        if array.count as usize > bodies.rest().len().max(1) {
            return Err(Malformed::CountExceedsBytes(array.count));
        }
        Ok(Elements { descriptor, constructor, count: array.count, bodies })
    }
}

/// Whether AMQP 1.0 has this primitive constructor.
fn is_constructor(constructor: u8) -> bool {
    // Without bytes a known one is truncated or empty, an unknown one unknown.
    !matches!(Reader::new(&[]).skip_body(constructor), Err(Malformed::UnknownConstructor(_)))
}

fn ascii(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.is_ascii() {
        std::str::from_utf8(bytes).map_err(|_| Malformed::NotAscii)
    } else {
        Err(Malformed::NotAscii)
    }
}

/// Every element of a list or map has at least its constructor byte, so a count above the byte count is false.
fn compound(count: u32, body: &[u8]) -> Result<Compound<'_>, Malformed> {
    if count as usize <= body.len() {
        Ok(Compound { count, body })
    } else {
        Err(Malformed::CountExceedsBytes(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_is_taken_where_it_stands_and_nothing_else_is() {
        let bytes = [code::TRUE, code::NULL, code::FALSE, code::NULL];
        let mut reader = Reader::new(&bytes);
        assert!(!reader.null());
        assert_eq!(reader.optional(Reader::boolean), Ok(Some(true)));
        assert!(reader.null());
        assert!(!reader.null());
        assert_eq!(reader.position(), 2);
        assert_eq!(reader.optional(Reader::boolean), Ok(Some(false)));
        assert_eq!(reader.optional(Reader::boolean), Ok(None));
        assert!(!reader.null() && reader.is_empty());
    }

    #[test]
    fn a_count_that_the_bytes_cannot_hold_is_refused() {
        let hostile = [code::LIST_32, 0, 0, 0, 4, 0x3f, 0xff, 0xff, 0xff];
        assert_eq!(Reader::new(&hostile).list().unwrap_err(), Malformed::CountExceedsBytes(0x3fff_ffff));
    }

    #[test]
    fn an_array_of_nothing_wide_elements_is_refused() {
        let hostile = [code::ARRAY_32, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, code::NULL];
        assert_eq!(Reader::new(&hostile).array().unwrap_err(), Malformed::CountExceedsBytes(0xffff_ffff));
    }

    #[test]
    fn descriptors_nest_to_the_limit_and_no_deeper() {
        let nested = |depth: u32| {
            let mut bytes = [code::DESCRIBED, code::ULONG_0].repeat(depth as usize);
            bytes.push(code::NULL);
            bytes
        };
        assert_eq!(Reader::new(&nested(VALUE_DEPTH)).skip(), Ok(()));
        assert_eq!(Reader::new(&nested(VALUE_DEPTH + 1)).skip(), Err(Malformed::TooDeep));
    }
}
