//! The few AMQP encodings that the load client writes and reads.

use std::io;

pub const ACCEPTED: u8 = 0x24;

/// Writes values one after the other.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn null(&mut self) {
        self.0.push(0x40);
    }

    pub fn boolean(&mut self, value: bool) {
        self.0.push(if value { 0x41 } else { 0x42 });
    }

    pub fn ubyte(&mut self, value: u8) {
        self.0.extend([0x50, value]);
    }

    pub fn uint(&mut self, value: u32) {
        self.0.push(0x70);
        self.0.extend(value.to_be_bytes());
    }

    pub fn string(&mut self, text: &str) {
        self.variable(0xb1, text.as_bytes());
    }

    pub fn symbol(&mut self, text: &str) {
        self.variable(0xb3, text.as_bytes());
    }

    pub fn binary(&mut self, bytes: &[u8]) {
        self.variable(0xb0, bytes);
    }

    fn variable(&mut self, constructor: u8, bytes: &[u8]) {
        self.0.push(constructor);
        self.0.extend((bytes.len() as u32).to_be_bytes());
        self.0.extend(bytes);
    }

    /// A described list; `fields` writes its fields and returns how many.
    pub fn list(&mut self, code: u8, fields: impl FnOnce(&mut Writer) -> u32) {
        self.0.extend([0x00, 0x53, code, 0xd0]);
        let head = self.0.len();
        self.0.extend([0; 8]);
        let count = fields(self);
        let size = (self.0.len() - head - 4) as u32;
        self.0[head..head + 4].copy_from_slice(&size.to_be_bytes());
        self.0[head + 4..head + 8].copy_from_slice(&count.to_be_bytes());
    }

    /// A frame on channel 0; `body` writes what follows its header.
    pub fn frame(&mut self, frame_type: u8, body: impl FnOnce(&mut Writer)) {
        let head = self.0.len();
        self.0.extend([0, 0, 0, 0, 2, frame_type, 0, 0]);
        body(self);
        let size = (self.0.len() - head) as u32;
        self.0[head..head + 4].copy_from_slice(&size.to_be_bytes());
    }
}

/// Reads values one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| malformed("a value ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn unsigned(&mut self, width: usize) -> io::Result<u64> {
        Ok(self.take(width)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A value's constructor and its bytes; a described value is read past its descriptor.
    pub fn value(&mut self) -> io::Result<(u8, &'a [u8])> {
        let mut constructor = self.take(1)?[0];
        if constructor == 0 {
            self.value()?;
            constructor = self.take(1)?[0];
        }
        let width = match constructor >> 4 {
            0x4 => 0,
            0x5 => 1,
            0x6 => 2,
            0x7 => 4,
            0x8 => 8,
            0x9 => 16,
            0xa | 0xc | 0xe => self.unsigned(1)? as usize,
            0xb | 0xd | 0xf => self.unsigned(4)? as usize,
            _ => return Err(malformed("an unknown type")),
        };
        Ok((constructor, self.take(width)?))
    }

    /// A described list: its code and its fields.
    pub fn list(&mut self) -> io::Result<(u8, Fields<'a>)> {
        let code = self.code().ok_or_else(|| malformed("no described list"))?;
        let (constructor, bytes) = self.value()?;
        let mut rest = Reader(bytes);
        let count = match constructor {
            0x45 => 0,
            0xc0 => rest.unsigned(1)?,
            0xd0 => rest.unsigned(4)?,
            _ => return Err(malformed("no list")),
        };
        Ok((code, Fields { rest, count }))
    }

    /// The code of the described value that comes next.
    pub fn code(&self) -> Option<u8> {
        match self.0 {
            [0x00, 0x53, code, ..] => Some(*code),
            _ => None,
        }
    }
}

/// The fields of a performative, in order; a field that is absent reads as null.
#[derive(Debug)]
pub struct Fields<'a> {
    rest: Reader<'a>,
    count: u64,
}

impl<'a> Fields<'a> {
    fn is_next(&mut self) -> bool {
        let is_next = self.count > 0;
        self.count = self.count.saturating_sub(1);
        is_next
    }

    pub fn skip(&mut self, count: usize) -> io::Result<()> {
        for _ in 0..count {
            if self.is_next() {
                self.rest.value()?;
            }
        }
        Ok(())
    }

    /// An unsigned number; none for null.
    pub fn number(&mut self) -> io::Result<Option<u32>> {
        if !self.is_next() {
            return Ok(None);
        }
        let (constructor, bytes) = self.rest.value()?;
        Ok((constructor != 0x40).then(|| bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))))
    }

    /// The bytes of a string, a symbol or a binary; none for null.
    pub fn bytes(&mut self) -> io::Result<&'a [u8]> {
        if self.is_next() { self.rest.value().map(|(_, bytes)| bytes) } else { Ok(&[]) }
    }

    pub fn boolean(&mut self) -> io::Result<bool> {
        if !self.is_next() {
            return Ok(false);
        }
        let (constructor, bytes) = self.rest.value()?;
        Ok(constructor == 0x41 || bytes == [1])
    }

    /// The code of a described field, such as a delivery state.
    pub fn described(&mut self) -> io::Result<Option<u8>> {
        if !self.is_next() {
            return Ok(None);
        }
        let code = self.rest.code();
        self.rest.value()?;
        Ok(code)
    }

    /// Whatever can be read in the remaining fields, for an error message.
    pub fn text(&self) -> String {
        let shown = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { ' ' };
        let text: String = self.rest.0.iter().map(shown).collect();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

pub fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the broker sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_back_as_it_was_written_and_absent_fields_are_null() {
        let mut writer = Writer::default();
        writer.list(0x15, |w| {
            w.boolean(true);
            w.uint(70_000);
            w.null();
            w.string("skipped");
            w.list(ACCEPTED, |_| 0);
            5
        });
        let (code, mut fields) = Reader(&writer.0).list().expect("it is a list");
        assert_eq!(code, 0x15);
        assert!(fields.boolean().expect("a boolean"));
        assert_eq!(fields.number().expect("a number"), Some(70_000));
        assert_eq!(fields.number().expect("null"), None);
        fields.skip(1).expect("a string");
        assert_eq!(fields.described().expect("a state"), Some(ACCEPTED));
        assert_eq!(fields.number().expect("absent"), None);
    }

    #[test]
    fn a_value_that_ends_early_is_an_error() {
        assert!(Reader(&[0x00, 0x53, 0x15, 0xc0, 9, 1]).list().is_err());
    }
}
