//! Values made from a seed, quicker than a strategy makes them, with the bounds of every width among them.

use otobus_message::codec::code;
use otobus_message::value::{Array, Value};

/// Deepest nesting that is made.
const DEPTH: u32 = 4;

/// SplitMix64.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a bound that is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number of any width, often one at the bound of a width.
    fn wide(&mut self) -> u64 {
        const BOUNDS: [u64; 8] = [0, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff];
        let number = match self.below(4) {
            0 => self.next() >> self.below(64),
            _ => {
                let index = self.below(BOUNDS.len() as u64) as usize;
                BOUNDS[index].wrapping_add(self.below(3)).wrapping_sub(1)
            }
        };
        if self.below(4) == 0 { number.wrapping_neg() } else { number }
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next() as u8)
    }

    /// Mostly short, now and then around the most that a byte can count.
    fn length(&mut self) -> usize {
        let length = if self.below(64) == 0 { 253 + self.below(6) } else { self.below(9) };
        length as usize
    }

    fn text(&mut self) -> String {
        const LETTERS: [char; 8] = ['a', 'Z', ' ', '\0', '\u{7f}', 'ü', '€', '😀'];
        (0..self.length()).map(|_| LETTERS[self.below(8) as usize]).collect()
    }

    fn symbol(&mut self) -> String {
        (0..self.length()).map(|_| char::from(self.below(128) as u8)).collect()
    }

    /// Any value that holds no other.
    pub fn scalar(&mut self) -> Value {
        let kind = self.below(21);
        self.scalar_of(kind)
    }

    fn scalar_of(&mut self, kind: u64) -> Value {
        match kind {
            0 => Value::Null,
            1 => Value::Boolean(self.below(2) == 0),
            2 => Value::Ubyte(self.wide() as u8),
            3 => Value::Ushort(self.wide() as u16),
            4 => Value::Uint(self.wide() as u32),
            5 => Value::Ulong(self.wide()),
            6 => Value::Byte(self.wide() as i8),
            7 => Value::Short(self.wide() as i16),
            8 => Value::Int(self.wide() as i32),
            9 => Value::Long(self.wide() as i64),
            10 => Value::Float(self.next() as u32),
            11 => Value::Double(self.next()),
            12 => Value::Decimal32(self.bytes()),
            13 => Value::Decimal64(self.bytes()),
            14 => Value::Decimal128(self.bytes()),
            15 => Value::Char(char::from_u32(self.wide() as u32 & 0x1f_ffff).unwrap_or('\u{10ffff}').into()),
            16 => Value::Timestamp(self.wide() as i64),
            17 => Value::Uuid(self.bytes()),
            18 => Value::Binary((0..self.length()).map(|_| self.next() as u8).collect()),
            19 => Value::String(self.text()),
            _ => Value::Symbol(self.symbol()),
        }
    }

    /// A value of any type.
    pub fn value(&mut self, depth: u32) -> Value {
        match self.below(16) {
            0 | 1 if depth < DEPTH => Value::List((0..self.count()).map(|_| self.value(depth + 1)).collect()),
            2 | 3 if depth < DEPTH => self.map(depth),
            4 if depth < DEPTH => Value::Array(self.array(depth)),
            5 if depth < DEPTH => {
                let descriptor =
                    if self.below(2) == 0 { Value::Ulong(self.wide()) } else { Value::Symbol(self.symbol()) };
                Value::Described(Box::new((descriptor, self.value(depth + 1))))
            }
            _ => self.scalar(),
        }
    }

    fn count(&mut self) -> u64 {
        if self.below(256) == 0 { 250 + self.below(10) } else { self.below(5) }
    }

    fn map(&mut self, depth: u32) -> Value {
        let mut entries: Vec<(Value, Value)> = Vec::new();
        for _ in 0..self.below(4) {
            let key = self.scalar();
            // AMQP 1.0 part 1, 1.6.23: a map has each key once. Numbers with a point may be equal and look different.
            let is_there = |(other, _): &(Value, Value)| {
                *other == key || matches!(key, Value::Float(_) | Value::Double(_))
            };
            if !entries.iter().any(is_there) {
                entries.push((key, self.value(depth + 1)));
            }
        }
        Value::Map(entries)
    }

    /// Elements of one type: of a scalar's, or lists, maps or arrays.
    fn array(&mut self, depth: u32) -> Array {
        let kind = self.below(24);
        // Elements without width are bounded by the bytes that are left (limits of the codec): one is.
        let count = if kind == 0 { self.below(2) } else { self.count() };
        let element = |random: &mut Random| match kind {
            21 => Value::List((0..random.below(3)).map(|_| random.value(depth + 1)).collect()),
            22 => random.map(depth + 1),
            23 => Value::Array(random.array(DEPTH)),
            kind => random.scalar_of(kind),
        };
        let first = element(self);
        let elements = (0..count).map(|_| element(self)).collect();
        Array::of(&first, elements)
    }

    /// Encodes a value with widths that need not be the smallest.
    pub fn encode_in_any_width(&mut self, value: &Value, out: &mut Vec<u8>) {
        if self.below(2) == 0 && !matches!(value, Value::List(_) | Value::Map(_) | Value::Described(_)) {
            return value.encode(out);
        }
        match value {
            Value::Boolean(truth) => out.extend([code::BOOLEAN, u8::from(*truth)]),
            Value::Uint(number @ 0..=255) if self.below(2) == 0 => {
                out.extend([code::UINT_SMALL, *number as u8])
            }
            Value::Uint(number) => wide(out, code::UINT, &number.to_be_bytes()),
            Value::Ulong(number @ 0..=255) if self.below(2) == 0 => {
                out.extend([code::ULONG_SMALL, *number as u8]);
            }
            Value::Ulong(number) => wide(out, code::ULONG, &number.to_be_bytes()),
            Value::Int(number) => wide(out, code::INT, &number.to_be_bytes()),
            Value::Long(number) => wide(out, code::LONG, &number.to_be_bytes()),
            Value::Binary(bytes) => sized(out, code::BINARY_32, bytes),
            Value::String(text) => sized(out, code::STRING_32, text.as_bytes()),
            Value::Symbol(text) => sized(out, code::SYMBOL_32, text.as_bytes()),
            Value::List(elements) => {
                self.compound(out, (code::LIST_8, code::LIST_32), &elements.iter().collect::<Vec<_>>())
            }
            Value::Map(entries) => {
                let flat: Vec<_> = entries.iter().flat_map(|(key, value)| [key, value]).collect();
                self.compound(out, (code::MAP_8, code::MAP_32), &flat);
            }
            Value::Described(described) => {
                out.push(code::DESCRIBED);
                self.encode_in_any_width(&described.0, out);
                self.encode_in_any_width(&described.1, out);
            }
            other => other.encode(out),
        }
    }

    fn compound(&mut self, out: &mut Vec<u8>, (small, large): (u8, u8), values: &[&Value]) {
        let mut body = Vec::new();
        values.iter().for_each(|value| self.encode_in_any_width(value, &mut body));
        if body.len() < 255 && values.len() < 256 && self.below(2) == 0 {
            out.extend([small, body.len() as u8 + 1, values.len() as u8]);
        } else {
            wide(out, large, &(body.len() as u32 + 4).to_be_bytes());
            out.extend_from_slice(&(values.len() as u32).to_be_bytes());
        }
        out.extend(body);
    }
}

fn wide(out: &mut Vec<u8>, constructor: u8, number: &[u8]) {
    out.push(constructor);
    out.extend_from_slice(number);
}

fn sized(out: &mut Vec<u8>, constructor: u8, bytes: &[u8]) {
    wide(out, constructor, &(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}
