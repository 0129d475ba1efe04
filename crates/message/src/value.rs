//! Any AMQP value, owned. For the cold parts of the protocol (properties, filters, management bodies); hot paths
//! read through [`Reader`] and never build one.

use crate::check::Budget;
use crate::codec::{self, Descriptor, Elements, Malformed, Reader, code};

/// One AMQP value. Floats are kept as bits so that values compare and hash exactly as they are encoded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Value {
    #[default]
    Null,
    Boolean(bool),
    Ubyte(u8),
    Ushort(u16),
    Uint(u32),
    Ulong(u64),
    Byte(i8),
    Short(i16),
    Int(i32),
    Long(i64),
    /// IEEE 754 bits.
    Float(u32),
    /// IEEE 754 bits.
    Double(u64),
    Decimal32([u8; 4]),
    Decimal64([u8; 8]),
    Decimal128([u8; 16]),
    /// A UTF-32 code unit as it came; it need not be a valid `char`.
    Char(u32),
    /// Milliseconds since the Unix epoch.
    Timestamp(i64),
    /// RFC 4122 byte order.
    Uuid([u8; 16]),
    Binary(Vec<u8>),
    String(String),
    Symbol(String),
    List(Vec<Value>),
    /// In wire order; AMQP maps are ordered for comparison.
    Map(Vec<(Value, Value)>),
    Array(Array),
    Described(Box<(Value, Value)>),
}

/// Elements that share one constructor. It is kept so that an empty array stays of its type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Array {
    /// The widest primitive constructor of the elements' type, whichever they were read from: arrays that hold the
    /// same values are equal. A described array keeps its descriptor in `descriptor`.
    pub constructor: u8,
    pub descriptor: Option<Box<Value>>,
    pub elements: Vec<Value>,
}

impl Reader<'_> {
    /// Reads one value of any type, within the limits of depth and number.
    pub fn value(&mut self) -> Result<Value, Malformed> {
        read_value(self, 0, &mut Budget::new())
    }

    /// Reads one value that takes its nodes from `left`, for encodings whose values share one budget.
    pub fn value_within(&mut self, left: &mut u32) -> Result<Value, Malformed> {
        let mut budget = Budget { nodes: *left };
        let value = read_value(self, 0, &mut budget);
        *left = budget.nodes;
        value
    }
}

// Recursion here is bounded by VALUE_DEPTH, which `Budget::spend` checks before each descent.
fn read_value(reader: &mut Reader<'_>, depth: u32, budget: &mut Budget) -> Result<Value, Malformed> {
    if reader.peek()? == code::DESCRIBED {
        budget.spend(depth)?;
        let descriptor = descriptor_value(reader.descriptor()?);
        let value = read_value(reader, depth + 1, budget)?;
        return Ok(Value::Described(Box::new((descriptor, value))));
    }
    let constructor = reader.take_u8()?;
    read_body(reader, constructor, depth, budget)
}

/// Reads a value whose constructor was taken, or stands in front of an array.
fn read_body(
    reader: &mut Reader<'_>,
    constructor: u8,
    depth: u32,
    budget: &mut Budget,
) -> Result<Value, Malformed> {
    budget.spend(depth)?;
    match constructor {
        code::LIST_0 | code::LIST_8 | code::LIST_32 => {
            let list = reader.list_body(constructor)?;
            let mut inner = Reader::new(list.body);
            let mut elements = Vec::new();
            for _ in 0..list.count {
                elements.push(read_value(&mut inner, depth + 1, budget)?);
            }
            inner.finish()?;
            Ok(Value::List(elements))
        }
        code::MAP_8 | code::MAP_32 => {
            let map = reader.map_body(constructor)?;
            let mut inner = Reader::new(map.body);
            let mut entries = Vec::new();
            for _ in 0..map.count / 2 {
                let key = read_value(&mut inner, depth + 1, budget)?;
                let value = read_value(&mut inner, depth + 1, budget)?;
                entries.push((key, value));
            }
            inner.finish()?;
            Ok(Value::Map(entries))
        }
        code::ARRAY_8 | code::ARRAY_32 => {
            let mut array = Elements::of(reader.array_body(constructor)?)?;
            let mut elements = Vec::new();
            for _ in 0..array.count {
                elements.push(read_body(&mut array.bodies, array.constructor, depth + 1, budget)?);
            }
            array.bodies.finish()?;
            let descriptor = array.descriptor.map(|descriptor| Box::new(descriptor_value(descriptor)));
            Ok(Value::Array(Array { constructor: widest(array.constructor), descriptor, elements }))
        }
        _ => read_primitive(reader, constructor),
    }
}

fn descriptor_value(descriptor: Descriptor<'_>) -> Value {
    match descriptor {
        Descriptor::Code(code) => Value::Ulong(code),
        Descriptor::Symbol(symbol) => Value::Symbol(symbol.into()),
    }
}

fn read_primitive(reader: &mut Reader<'_>, constructor: u8) -> Result<Value, Malformed> {
    Ok(match constructor {
        code::NULL => Value::Null,
        code::TRUE => Value::Boolean(true),
        code::FALSE => Value::Boolean(false),
        code::BOOLEAN => match reader.take_u8()? {
            0 => Value::Boolean(false),
            1 => Value::Boolean(true),
            found => return Err(Malformed::Unexpected { expected: "a boolean octet of 0 or 1", found }),
        },
        code::UBYTE => Value::Ubyte(reader.take_u8()?),
        code::BYTE => Value::Byte(reader.take_u8()? as i8),
        code::USHORT => Value::Ushort(u16::from_be_bytes(reader.fixed()?)),
        code::SHORT => Value::Short(i16::from_be_bytes(reader.fixed()?)),
        code::UINT_0 => Value::Uint(0),
        code::UINT_SMALL => Value::Uint(reader.take_u8()?.into()),
        code::UINT => Value::Uint(u32::from_be_bytes(reader.fixed()?)),
        code::INT_SMALL => Value::Int((reader.take_u8()? as i8).into()),
        code::INT => Value::Int(i32::from_be_bytes(reader.fixed()?)),
        code::ULONG_0 => Value::Ulong(0),
        code::ULONG_SMALL => Value::Ulong(reader.take_u8()?.into()),
        code::ULONG => Value::Ulong(u64::from_be_bytes(reader.fixed()?)),
        code::LONG_SMALL => Value::Long((reader.take_u8()? as i8).into()),
        code::LONG => Value::Long(i64::from_be_bytes(reader.fixed()?)),
        code::FLOAT => Value::Float(u32::from_be_bytes(reader.fixed()?)),
        code::DOUBLE => Value::Double(u64::from_be_bytes(reader.fixed()?)),
        code::DECIMAL32 => Value::Decimal32(reader.fixed()?),
        code::DECIMAL64 => Value::Decimal64(reader.fixed()?),
        code::DECIMAL128 => Value::Decimal128(reader.fixed()?),
        code::CHAR => Value::Char(u32::from_be_bytes(reader.fixed()?)),
        code::TIMESTAMP => Value::Timestamp(i64::from_be_bytes(reader.fixed()?)),
        code::UUID => Value::Uuid(reader.fixed()?),
        code::BINARY_8 | code::BINARY_32 => Value::Binary(sized(reader, constructor)?.into()),
        code::STRING_8 | code::STRING_32 => {
            let text = std::str::from_utf8(sized(reader, constructor)?).map_err(|_| Malformed::NotUtf8)?;
            Value::String(text.into())
        }
        code::SYMBOL_8 | code::SYMBOL_32 => {
            let bytes = sized(reader, constructor)?;
            if !bytes.is_ascii() {
                return Err(Malformed::NotAscii);
            }
            Value::Symbol(String::from_utf8_lossy(bytes).into_owned())
        }
        other => return Err(Malformed::UnknownConstructor(other)),
    })
}

/// The constructor in which [`Array::encode`] writes elements of this type.
fn widest(constructor: u8) -> u8 {
    match constructor {
        code::TRUE | code::FALSE => code::BOOLEAN,
        code::UINT_0 | code::UINT_SMALL => code::UINT,
        code::ULONG_0 | code::ULONG_SMALL => code::ULONG,
        code::INT_SMALL => code::INT,
        code::LONG_SMALL => code::LONG,
        code::BINARY_8 => code::BINARY_32,
        code::STRING_8 => code::STRING_32,
        code::SYMBOL_8 => code::SYMBOL_32,
        code::LIST_0 | code::LIST_8 => code::LIST_32,
        code::MAP_8 => code::MAP_32,
        code::ARRAY_8 => code::ARRAY_32,
        other => other,
    }
}

fn sized<'a>(reader: &mut Reader<'a>, constructor: u8) -> Result<&'a [u8], Malformed> {
    let length = if constructor < 0xb0 {
        reader.take_u8()? as usize
    } else {
        u32::from_be_bytes(reader.fixed()?) as usize
    };
    reader.take(length)
}

impl Value {
    /// Decodes exactly one value and nothing after it.
    pub fn decode(bytes: &[u8]) -> Result<Value, Malformed> {
        let mut reader = Reader::new(bytes);
        let value = reader.value()?;
        reader.finish()?;
        Ok(value)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::Null => codec::write_null(out),
            Value::Boolean(value) => codec::write_boolean(out, *value),
            Value::Ubyte(value) => codec::write_ubyte(out, *value),
            Value::Ushort(value) => codec::write_ushort(out, *value),
            Value::Uint(value) => codec::write_uint(out, *value),
            Value::Ulong(value) => codec::write_ulong(out, *value),
            Value::Byte(value) => out.extend_from_slice(&[code::BYTE, *value as u8]),
            Value::Int(value) => codec::write_int(out, *value),
            Value::Long(value) => codec::write_long(out, *value),
            Value::Timestamp(value) => codec::write_timestamp(out, *value),
            Value::Binary(value) => codec::write_binary(out, value),
            Value::String(value) => codec::write_string(out, value),
            Value::Symbol(value) => codec::write_symbol(out, value),
            Value::Short(_)
            | Value::Float(_)
            | Value::Double(_)
            | Value::Decimal32(_)
            | Value::Decimal64(_)
            | Value::Decimal128(_)
            | Value::Char(_)
            | Value::Uuid(_) => {
                out.push(self.wide_constructor());
                self.encode_body(out);
            }
            Value::List(elements) => {
                let open = codec::begin_list(out);
                elements.iter().for_each(|element| element.encode(out));
                codec::end_compound(out, open, elements.len() as u32);
            }
            Value::Map(entries) => {
                let open = codec::begin_map(out);
                for (key, value) in entries {
                    key.encode(out);
                    value.encode(out);
                }
                codec::end_compound(out, open, 2 * entries.len() as u32);
            }
            Value::Array(array) => array.encode(out),
            Value::Described(described) => {
                out.push(code::DESCRIBED);
                described.0.encode(out);
                described.1.encode(out);
            }
        }
    }

    /// The fixed or 32-bit wide constructor of this type: the one form that every element of an array can take.
    pub fn wide_constructor(&self) -> u8 {
        match self {
            Value::Null => code::NULL,
            Value::Boolean(_) => code::BOOLEAN,
            Value::Ubyte(_) => code::UBYTE,
            Value::Ushort(_) => code::USHORT,
            Value::Uint(_) => code::UINT,
            Value::Ulong(_) => code::ULONG,
            Value::Byte(_) => code::BYTE,
            Value::Short(_) => code::SHORT,
            Value::Int(_) => code::INT,
            Value::Long(_) => code::LONG,
            Value::Float(_) => code::FLOAT,
            Value::Double(_) => code::DOUBLE,
            Value::Decimal32(_) => code::DECIMAL32,
            Value::Decimal64(_) => code::DECIMAL64,
            Value::Decimal128(_) => code::DECIMAL128,
            Value::Char(_) => code::CHAR,
            Value::Timestamp(_) => code::TIMESTAMP,
            Value::Uuid(_) => code::UUID,
            Value::Binary(_) => code::BINARY_32,
            Value::String(_) => code::STRING_32,
            Value::Symbol(_) => code::SYMBOL_32,
            Value::List(_) => code::LIST_32,
            Value::Map(_) => code::MAP_32,
            Value::Array(_) => code::ARRAY_32,
            Value::Described(_) => code::DESCRIBED,
        }
    }

    /// Writes this value without its constructor, in the width of [`Value::wide_constructor`].
    fn encode_body(&self, out: &mut Vec<u8>) {
        let sized = |out: &mut Vec<u8>, bytes: &[u8]| {
            out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            out.extend_from_slice(bytes);
        };
        match self {
            Value::Null => {}
            Value::Boolean(value) => out.push(u8::from(*value)),
            Value::Ubyte(value) => out.push(*value),
            Value::Byte(value) => out.push(*value as u8),
            Value::Ushort(value) => out.extend_from_slice(&value.to_be_bytes()),
            Value::Short(value) => out.extend_from_slice(&value.to_be_bytes()),
            Value::Uint(value) | Value::Float(value) | Value::Char(value) => {
                out.extend_from_slice(&value.to_be_bytes());
            }
            Value::Int(value) => out.extend_from_slice(&value.to_be_bytes()),
            Value::Ulong(value) | Value::Double(value) => out.extend_from_slice(&value.to_be_bytes()),
            Value::Long(value) | Value::Timestamp(value) => out.extend_from_slice(&value.to_be_bytes()),
            Value::Decimal32(bytes) => out.extend_from_slice(bytes),
            Value::Decimal64(bytes) => out.extend_from_slice(bytes),
            Value::Decimal128(bytes) | Value::Uuid(bytes) => out.extend_from_slice(bytes),
            Value::Binary(bytes) => sized(out, bytes),
            Value::String(text) | Value::Symbol(text) => sized(out, text.as_bytes()),
            // The long forms written by `encode` begin with the constructor that the array already has.
            Value::List(_) | Value::Map(_) | Value::Array(_) => {
                let mut whole = Vec::new();
                self.encode(&mut whole);
                out.extend_from_slice(&whole[1..]);
            }
            Value::Described(described) => described.1.encode_body(out),
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) | Value::Symbol(text) => Some(text),
            _ => None,
        }
    }

    /// Any integer type as an `i64`, if it fits: clients use the integer types interchangeably.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Value::Ubyte(value) => Some((*value).into()),
            Value::Ushort(value) => Some((*value).into()),
            Value::Uint(value) => Some((*value).into()),
            Value::Ulong(value) => i64::try_from(*value).ok(),
            Value::Byte(value) => Some((*value).into()),
            Value::Short(value) => Some((*value).into()),
            Value::Int(value) => Some((*value).into()),
            Value::Long(value) => Some(*value),
            _ => None,
        }
    }

    /// Looks a text key up in a map, whether keys are strings or symbols.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Map(entries) => entries.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, v)| v),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
}

impl Array {
    /// An array of values of one type; empty arrays take the type of `sample`.
    pub fn of(sample: &Value, elements: Vec<Value>) -> Array {
        Array { constructor: sample.wide_constructor(), descriptor: None, elements }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        // Every element is written in the wide form of its type, whatever narrower form it was read from.
        let constructor = self.elements.first().map_or(self.constructor, Value::wide_constructor);
        let open = codec::begin_array(out, constructor);
        if let Some(descriptor) = &self.descriptor {
            out.pop();
            out.push(code::DESCRIBED);
            descriptor.encode(out);
            out.push(constructor);
        }
        self.elements.iter().for_each(|element| element.encode_body(out));
        codec::end_compound(out, open, self.elements.len() as u32);
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::VALUE_DEPTH;

    #[test]
    fn lists_nest_to_the_limit_and_no_deeper() {
        let nested = |depth: u32| (0..depth).fold(Value::Null, |inner, _| Value::List(vec![inner]));
        let decode = |value: Value| {
            let mut bytes = Vec::new();
            value.encode(&mut bytes);
            Value::decode(&bytes)
        };
        assert_eq!(decode(nested(VALUE_DEPTH)), Ok(nested(VALUE_DEPTH)));
        assert_eq!(decode(nested(VALUE_DEPTH + 1)), Err(Malformed::TooDeep));
    }

    #[test]
    fn descriptors_nest_to_the_limit_and_no_deeper_whether_a_value_is_read_or_only_checked() {
        let nested = |depth: u32| {
            let mut bytes = [code::DESCRIBED, code::ULONG_SMALL, 9].repeat(depth as usize);
            bytes.push(code::NULL);
            bytes
        };
        for (depth, expected) in [(VALUE_DEPTH, Ok(())), (VALUE_DEPTH + 1, Err(Malformed::TooDeep))] {
            assert_eq!(Value::decode(&nested(depth)).map(drop), expected);
            assert_eq!(Reader::new(&nested(depth)).check(), expected);
        }
    }

    #[test]
    fn every_type_of_integer_is_one_and_no_other_type() {
        let seven = [
            Value::Ubyte(7),
            Value::Ushort(7),
            Value::Uint(7),
            Value::Ulong(7),
            Value::Byte(7),
            Value::Short(7),
            Value::Int(7),
            Value::Long(7),
        ];
        for value in seven {
            assert_eq!(value.as_integer(), Some(7), "{value:?}");
        }
        for value in [Value::Byte(-7), Value::Short(-7), Value::Int(-7), Value::Long(-7)] {
            assert_eq!(value.as_integer(), Some(-7), "{value:?}");
        }
        assert_eq!(Value::Ulong(i64::MAX as u64).as_integer(), Some(i64::MAX));
        for value in
            [Value::Ulong(1 << 63), Value::Timestamp(7), Value::Boolean(true), "7".into(), Value::Null]
        {
            assert_eq!(value.as_integer(), None, "{value:?}");
        }
    }

    #[test]
    fn values_that_share_a_budget_take_their_nodes_from_it() {
        let list = Value::List(vec![Value::Int(1), Value::Int(2)]);
        let mut bytes = Vec::new();
        list.encode(&mut bytes);
        let mut left = 7;
        for rest in [4, 1] {
            assert_eq!(Reader::new(&bytes).value_within(&mut left), Ok(list.clone()));
            assert_eq!(left, rest);
        }
        assert_eq!(Reader::new(&bytes).value_within(&mut left), Err(Malformed::TooManyNodes));
    }

    #[test]
    fn many_small_arrays_share_one_budget() {
        let array = Value::Array(Array::of(&Value::Ubyte(0), vec![Value::Ubyte(1); 255]));
        let mut bytes = Vec::new();
        Value::List(vec![array; 300]).encode(&mut bytes);
        assert_eq!(Value::decode(&bytes), Err(Malformed::TooManyNodes));
    }

    #[test]
    fn an_array_read_from_a_narrow_form_equals_the_one_it_is_written_as() {
        let narrow = [code::ARRAY_8, 4, 2, code::INT_SMALL, 1, 0xff];
        let value = Value::decode(&narrow).unwrap();
        assert_eq!(value, Value::Array(Array::of(&Value::Int(0), vec![Value::Int(1), Value::Int(-1)])));
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert_eq!(Value::decode(&bytes), Ok(value));
    }

    #[test]
    fn even_an_empty_array_is_of_a_known_type() {
        assert!(Value::decode(&[code::ARRAY_8, 2, 0, code::UUID]).is_ok());
        assert_eq!(Value::decode(&[code::ARRAY_8, 2, 0, 0x9f]), Err(Malformed::UnknownConstructor(0x9f)));
    }

    #[test]
    fn an_array_of_zero_wide_elements_costs_its_sender_their_bytes() {
        let hostile = [code::ARRAY_8, 3, 200, code::NULL, 0];
        assert_eq!(Value::decode(&hostile), Err(Malformed::CountExceedsBytes(200)));
        let described = [code::ARRAY_8, 5, 4, code::DESCRIBED, code::ULONG_SMALL, 9, code::NULL];
        assert_eq!(Value::decode(&described), Err(Malformed::CountExceedsBytes(4)));
    }
}
