//! Numbers, bytes and texts of records and stored values: numbers in seven-bit groups, low ones first.

use bytes::Bytes;

pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Small negative numbers stay short.
pub fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, (number << 1 ^ number >> 63) as u64);
}

pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads what the functions above wrote; `None` when it is not that. Bytes are shared, not copied.
#[derive(Debug)]
pub struct Reader {
    bytes: Bytes,
}

impl Reader {
    pub fn new(bytes: Bytes) -> Reader {
        Reader { bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    pub fn rest(self) -> Bytes {
        self.bytes
    }

    pub fn byte(&mut self) -> Option<u8> {
        let first = *self.bytes.first()?;
        bytes::Buf::advance(&mut self.bytes, 1);
        Some(first)
    }

    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let low = u64::from(byte & 0x7F);
            if shift == 63 && low > 1 {
                return None;
            }
            number |= low << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    pub fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    pub fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub fn bytes(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.number()?).ok()?;
        (length <= self.bytes.len()).then(|| self.bytes.split_to(length))
    }

    pub fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.into()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_and_bytes_come_back(number in any::<u64>(), signed in any::<i64>(), bytes in any::<Vec<u8>>()) {
            let mut out = Vec::new();
            put(&mut out, number);
            put_signed(&mut out, signed);
            put_bytes(&mut out, &bytes);
            let mut from = Reader::new(out.into());
            prop_assert_eq!(from.number(), Some(number));
            prop_assert_eq!(from.signed(), Some(signed));
            prop_assert_eq!(from.bytes(), Some(bytes.into()));
            prop_assert!(from.is_empty());
        }

        #[test]
        fn whatever_comes_is_read_or_refused(bytes in any::<Vec<u8>>()) {
            let mut from = Reader::new(bytes.into());
            while from.number().is_some() {}
            let _ = (from.bytes(), from.signed(), from.text());
        }
    }
}
