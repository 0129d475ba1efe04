//! Cosmos binary JSON, turned into JSON text (P-86 to P-88). The Rust client sends items in it.
//!
//! A document is the byte 80 and one value: a marker and what it announces, numbers little-endian. Whatever the bytes claim, the text
//! stays below the bound that the caller names, the nesting below that of any item, and nothing is allocated for a length before
//! the bytes are seen. Dictionaries of the user's own are not known here, for nobody sends them with a request.

mod string;

use crate::limits::NESTING;

/// The first byte of every document.
pub const MARK: u8 = 0x80;

/// Why bytes are no document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the binary JSON ends too early")]
    Unfinished,
    #[error("the binary JSON has bytes behind its value")]
    Trailing,
    #[error("the binary JSON has a marker 0x{0:02X} that is not known here")]
    Marker(u8),
    #[error("the binary JSON has a string that is not UTF-8")]
    NotUtf8,
    #[error("the binary JSON has a length or count that does not fit what it is about")]
    Length,
    #[error("the binary JSON has a number that JSON cannot say")]
    Number,
    #[error("the binary JSON has a reference to something that is no string")]
    Reference,
    #[error("the binary JSON is nested too deep")]
    TooDeep,
    #[error("the binary JSON is too long as text")]
    TooLong,
}

/// Whether a body is binary JSON: no JSON text begins with this byte.
pub fn is_binary(body: &[u8]) -> bool {
    body.first() == Some(&MARK)
}

/// The document as JSON text of at most `most` bytes.
pub fn to_text(document: &[u8], most: usize) -> Result<Vec<u8>, Error> {
    if !is_binary(document) {
        return Err(Error::Marker(document.first().copied().unwrap_or_default()));
    }
    let text = Text { bytes: Vec::with_capacity(document.len().min(most)), most };
    let mut reader = Reader { document, at: 1, text };
    reader.value(0)?;
    if reader.at < document.len() { Err(Error::Trailing) } else { Ok(reader.text.bytes) }
}

/// What has been written, with its bound.
struct Text {
    bytes: Vec<u8>,
    most: usize,
}

impl Text {
    fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > self.most - self.bytes.len() {
            return Err(Error::TooLong);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// As a JSON string.
    fn string(&mut self, text: &str) -> Result<(), Error> {
        self.push(b"\"")?;
        let mut rest = text;
        while let Some(at) = rest.bytes().position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
            self.push(&rest.as_bytes()[..at])?;
            match rest.as_bytes()[at] {
                b'"' => self.push(b"\\\"")?,
                b'\\' => self.push(b"\\\\")?,
                control => self.push(format!("\\u{control:04x}").as_bytes())?,
            }
            rest = &rest[at + 1..];
        }
        self.push(rest.as_bytes())?;
        self.push(b"\"")
    }
}

/// How many bytes a length has.
#[derive(Clone, Copy)]
enum Width {
    One,
    Two,
    Four,
}

struct Reader<'a> {
    document: &'a [u8],
    at: usize,
    text: Text,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let end = self.at.checked_add(count).ok_or(Error::Unfinished)?;
        let bytes = self.document.get(self.at..end).ok_or(Error::Unfinished)?;
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        self.take(N)?.try_into().map_err(|_| Error::Unfinished)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        self.array().map(|[byte]| byte)
    }

    fn length(&mut self, width: Width) -> Result<usize, Error> {
        Ok(match width {
            Width::One => usize::from(self.byte()?),
            Width::Two => usize::from(u16::from_le_bytes(self.array()?)),
            Width::Four => u32::from_le_bytes(self.array()?) as usize,
        })
    }

    fn value(&mut self, depth: usize) -> Result<(), Error> {
        if depth > NESTING {
            return Err(Error::TooDeep);
        }
        match self.byte()? {
            marker @ 0x00..=0x1F => self.text.push(marker.to_string().as_bytes()),
            0xD0 => self.text.push(b"null"),
            0xD1 => self.text.push(b"false"),
            0xD2 => self.text.push(b"true"),
            marker @ (0xC7..=0xCE | 0xD7..=0xDC) => self.number(marker),
            0xE0 => self.text.push(b"[]"),
            0xE1 => {
                self.text.push(b"[")?;
                self.value(depth + 1)?;
                self.text.push(b"]")
            }
            0xE2 => self.members(Width::One, false, depth, Self::value, [b"[", b"]"]),
            0xE3 => self.members(Width::Two, false, depth, Self::value, [b"[", b"]"]),
            0xE4 => self.members(Width::Four, false, depth, Self::value, [b"[", b"]"]),
            0xE5 => self.members(Width::One, true, depth, Self::value, [b"[", b"]"]),
            0xE6 => self.members(Width::Two, true, depth, Self::value, [b"[", b"]"]),
            0xE7 => self.members(Width::Four, true, depth, Self::value, [b"[", b"]"]),
            0xE8 => self.text.push(b"{}"),
            0xE9 => {
                self.text.push(b"{")?;
                self.member(depth + 1)?;
                self.text.push(b"}")
            }
            0xEA => self.members(Width::One, false, depth, Self::member, [b"{", b"}"]),
            0xEB => self.members(Width::Two, false, depth, Self::member, [b"{", b"}"]),
            0xEC => self.members(Width::Four, false, depth, Self::member, [b"{", b"}"]),
            0xED => self.members(Width::One, true, depth, Self::member, [b"{", b"}"]),
            0xEE => self.members(Width::Two, true, depth, Self::member, [b"{", b"}"]),
            0xEF => self.members(Width::Four, true, depth, Self::member, [b"{", b"}"]),
            0xF0 => self.numbers(Width::One),
            0xF1 => self.numbers(Width::Two),
            0xF2 => self.rows_of_numbers(Width::One, 0xF0),
            0xF3 => self.rows_of_numbers(Width::Two, 0xF1),
            marker => self.string(marker, false),
        }
    }

    /// A name and a value.
    fn member(&mut self, depth: usize) -> Result<(), Error> {
        let marker = self.byte()?;
        self.string(marker, false)?;
        self.text.push(b":")?;
        self.value(depth)
    }

    /// An array or object whose length in bytes is told, and perhaps how many it holds.
    fn members(
        &mut self,
        width: Width,
        has_count: bool,
        depth: usize,
        one: fn(&mut Self, usize) -> Result<(), Error>,
        brackets: [&[u8]; 2],
    ) -> Result<(), Error> {
        let length = self.length(width)?;
        let expected = if has_count { Some(self.length(width)?) } else { None };
        let end =
            self.at.checked_add(length).filter(|end| *end <= self.document.len()).ok_or(Error::Unfinished)?;
        self.text.push(brackets[0])?;
        let mut count = 0;
        while self.at < end {
            if count > 0 {
                self.text.push(b",")?;
            }
            one(self, depth + 1)?;
            count += 1;
        }
        if self.at != end || expected.is_some_and(|expected| expected != count) {
            return Err(Error::Length);
        }
        self.text.push(brackets[1])
    }

    fn number(&mut self, marker: u8) -> Result<(), Error> {
        let text = match marker {
            0xC7 => u64::from_le_bytes(self.array()?).to_string(),
            0xC8 | 0xD7 => self.byte()?.to_string(),
            0xD8 => i8::from_le_bytes(self.array()?).to_string(),
            0xC9 | 0xD9 => i16::from_le_bytes(self.array()?).to_string(),
            0xCA | 0xDA => i32::from_le_bytes(self.array()?).to_string(),
            0xCB | 0xDB => i64::from_le_bytes(self.array()?).to_string(),
            0xDC => u32::from_le_bytes(self.array()?).to_string(),
            0xCC | 0xCE => real(f64::from_le_bytes(self.array()?))?,
            0xCD => real(f64::from(f32::from_le_bytes(self.array()?)))?,
            other => return Err(Error::Marker(other)),
        };
        self.text.push(text.as_bytes())
    }

    /// Numbers of one kind, without a marker each.
    fn numbers(&mut self, width: Width) -> Result<(), Error> {
        let kind = self.byte()?;
        let count = self.length(width)?;
        self.row(kind, count)
    }

    fn row(&mut self, kind: u8, count: usize) -> Result<(), Error> {
        self.text.push(b"[")?;
        for index in 0..count {
            if index > 0 {
                self.text.push(b",")?;
            }
            self.number(kind)?;
        }
        self.text.push(b"]")
    }

    fn rows_of_numbers(&mut self, width: Width, row: u8) -> Result<(), Error> {
        match self.byte()? {
            marker if marker == row => {}
            other => return Err(Error::Marker(other)),
        }
        let kind = self.byte()?;
        let (inner, outer) = (self.length(width)?, self.length(width)?);
        self.text.push(b"[")?;
        for index in 0..outer {
            if index > 0 {
                self.text.push(b",")?;
            }
            self.row(kind, inner)?;
        }
        self.text.push(b"]")
    }
}

/// The shortest text that reads back as the same number; whole numbers without a fraction.
fn real(value: f64) -> Result<String, Error> {
    if !value.is_finite() {
        return Err(Error::Number);
    }
    let is_handy = value == 0.0 || (1e-7..1e21).contains(&value.abs());
    Ok(if is_handy { value.to_string() } else { format!("{value:e}") })
}

#[cfg(test)]
mod tests;
