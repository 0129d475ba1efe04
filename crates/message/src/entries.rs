//! The entries of an encoded map, walked in place: annotations and application properties.
//!
//! Keys are strings or symbols, whichever a client chose; both are text here. Any other key has no name but keeps
//! its bytes, so that what we do not understand is still passed on.

use crate::codec::{Malformed, Reader, code};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl Entry<'_> {
    pub(crate) fn is_null(&self) -> bool {
        self.value == [code::NULL]
    }

    pub(crate) fn has_symbol_key(&self) -> bool {
        matches!(self.key.first(), Some(&(code::SYMBOL_8 | code::SYMBOL_32)))
    }

    pub(crate) fn bytes(&self) -> u32 {
        (self.key.len() + self.value.len()) as u32
    }
}

/// Walks an encoded map (its constructor included). Ends after an error; bytes behind the last entry are one.
pub(crate) fn entries(map: &[u8]) -> Result<Entries<'_>, Malformed> {
    let mut reader = Reader::new(map);
    let map = reader.map()?;
    reader.finish()?;
    Ok(Entries { reader: Reader::new(map.body), left: map.count / 2 })
}

/// The entries of a section that may be absent.
pub(crate) fn optional_entries(map: Option<&[u8]>) -> Result<Entries<'_>, Malformed> {
    map.map_or(Ok(Entries { reader: Reader::new(&[]), left: 0 }), entries)
}

#[derive(Debug, Clone)]
pub(crate) struct Entries<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl<'a> Entries<'a> {
    fn read(&mut self) -> Result<Entry<'a>, Malformed> {
        let mut ahead = self.reader.clone();
        let name = match ahead.peek()? {
            code::STRING_8 | code::STRING_32 | code::SYMBOL_8 | code::SYMBOL_32 => Some(ahead.text()?),
            _ => None,
        };
        Ok(Entry { name, key: self.reader.encoded()?, value: self.reader.encoded()? })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let end = self.reader.finish();
            self.reader = Reader::new(&[]);
            return end.err().map(Err);
        }
        self.left -= 1;
        let entry = self.read();
        if entry.is_err() {
            self.left = 0;
            self.reader = Reader::new(&[]);
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    #[test]
    fn entries_keep_their_bytes_and_have_a_name_if_the_key_is_text() {
        let mut map = Vec::new();
        Value::Map(vec![
            ("a".into(), Value::Int(1)),
            (Value::Symbol("b".into()), Value::Null),
            (Value::Ulong(3), Value::Boolean(true)),
        ])
        .encode(&mut map);
        let found: Vec<_> = entries(&map).unwrap().map(Result::unwrap).collect();
        assert_eq!(found.iter().map(|e| e.name).collect::<Vec<_>>(), [Some("a"), Some("b"), None]);
        assert_eq!(found[0].value, [code::INT_SMALL, 1]);
        assert!(found[1].is_null() && found[1].has_symbol_key());
        assert_eq!(found[2].key, [code::ULONG_SMALL, 3]);
    }

    #[test]
    fn a_map_that_lies_about_its_entries_ends_in_one_error() {
        let short = [code::MAP_8, 4, 4, code::NULL, code::NULL, code::NULL];
        assert_eq!(entries(&short).unwrap_err(), Malformed::CountExceedsBytes(4));
        let long = [code::MAP_8, 4, 2, code::NULL, code::NULL, code::NULL];
        let found: Vec<_> = entries(&long).unwrap().collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].unwrap_err(), Malformed::TrailingBytes);
    }
}
