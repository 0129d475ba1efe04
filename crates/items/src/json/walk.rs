//! Walking JSON text without making anything of it.
//!
//! A query looks at few members of many items, so it steps over the rest: strings by searching for their end, nested values by
//! counting brackets. The text is trusted to have been checked when it was stored; on other text a step gives an error or a
//! wrong member, never a panic. Names are found where they stand first: a stored text has each name once.

use super::{Error, Number};
use memchr::memchr2;
use std::borrow::Cow;

/// What a value begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Null,
    Bool(bool),
    Number,
    String,
    Array,
    Object,
}

/// The name of a member and the text of its value.
pub type Member<'a> = (Cow<'a, str>, &'a [u8]);

/// The name of a member between its quotes, as it stands, and the text of its value.
pub type RawMember<'a> = (&'a [u8], &'a [u8]);

/// The members of the object that `text` is, in order, each with the text of its value.
pub fn members(text: &[u8]) -> Result<Vec<Member<'_>>, Error> {
    let mut walk = Members::of(text)?;
    let mut members = Vec::new();
    while let Some((name, value)) = walk.next_member()? {
        members.push((name_text(name)?, value));
    }
    let mut at = walk.text.at;
    while at < text.len() && is_space(text[at]) {
        at += 1;
    }
    if at < text.len() { Err(Error::Malformed(at)) } else { Ok(members) }
}

/// What the value at the start of `text` is, by its first byte.
pub fn kind(text: &[u8]) -> Option<Kind> {
    match text.first()? {
        b'n' => Some(Kind::Null),
        b't' => Some(Kind::Bool(true)),
        b'f' => Some(Kind::Bool(false)),
        b'"' => Some(Kind::String),
        b'[' => Some(Kind::Array),
        b'{' => Some(Kind::Object),
        b'-' | b'0'..=b'9' => Some(Kind::Number),
        _ => None,
    }
}

/// The text of the member of that name in the object that `text` is.
pub fn member<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut members = Members::of(text).ok()?;
    while let Some((raw, value)) = members.next_member().ok()? {
        if is_name(raw, name) {
            return Some(value);
        }
    }
    None
}

/// The text of the element at that place in the array that `text` is.
pub fn element(text: &[u8], index: usize) -> Option<&[u8]> {
    Elements::of(text).ok()?.nth(index)?.ok()
}

/// The string that `text` is, quotes and all; without escapes nothing is copied.
pub fn string(text: &[u8]) -> Option<Cow<'_, str>> {
    let inside = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    name_text(inside).ok()
}

/// The number that `text` is.
pub fn number(text: &[u8]) -> Option<Number> {
    // Eighteen digits always fit; more of them take the careful way.
    let (digits, is_negative) = match text.strip_prefix(b"-") {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    if !digits.is_empty() && digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit) {
        let value = digits.iter().fold(0_i64, |value, digit| value * 10 + i64::from(digit - b'0'));
        return Some(match (is_negative, value) {
            (true, 0) => Number::Double(-0.0),
            (true, value) => Number::Integer(-value),
            (false, value) => Number::Integer(value),
        });
    }
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(integer) = text.parse::<i64>() {
        return Some(Number::Integer(integer));
    }
    text.parse::<f64>().ok().filter(|double| double.is_finite()).map(Number::Double)
}

/// Whether a name between its quotes is this one.
pub fn is_name(raw: &[u8], name: &str) -> bool {
    raw == name.as_bytes()
        || (memchr::memchr(b'\\', raw).is_some() && name_text(raw).is_ok_and(|read| read == name))
}

/// A string between its quotes, escapes resolved.
pub fn name_text(raw: &[u8]) -> Result<Cow<'_, str>, Error> {
    let text = std::str::from_utf8(raw).map_err(|bad| Error::NotText(bad.valid_up_to()))?;
    if memchr::memchr(b'\\', raw).is_none() {
        return Ok(Cow::Borrowed(text));
    }
    unescape(text).map(Cow::Owned)
}

/// Resolves the escapes of JSON. Half a surrogate pair becomes the replacement character: what is stored is UTF-8.
fn unescape(text: &str) -> Result<String, Error> {
    let mut resolved = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        resolved.push_str(&rest[..at]);
        let malformed = || Error::Malformed(text.len() - rest.len() + at);
        let escape = *rest.as_bytes().get(at + 1).ok_or_else(malformed)?;
        let mut used = at + 2;
        match escape {
            b'"' => resolved.push('"'),
            b'\\' => resolved.push('\\'),
            b'/' => resolved.push('/'),
            b'b' => resolved.push('\u{8}'),
            b'f' => resolved.push('\u{c}'),
            b'n' => resolved.push('\n'),
            b'r' => resolved.push('\r'),
            b't' => resolved.push('\t'),
            b'u' => {
                let unit = code_unit(rest, used).ok_or_else(malformed)?;
                used += 4;
                let low = if rest[used..].starts_with("\\u") { code_unit(rest, used + 2) } else { None };
                match (unit, low) {
                    (0xd800..0xdc00, Some(low @ 0xdc00..0xe000)) => {
                        let point = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                        resolved.push(char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER));
                        used += 6;
                    }
                    _ => resolved.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)),
                }
            }
            _ => return Err(malformed()),
        }
        rest = &rest[used..];
    }
    resolved.push_str(rest);
    Ok(resolved)
}

/// Four hexadecimal digits at a place.
fn code_unit(text: &str, at: usize) -> Option<u32> {
    let digits = text.as_bytes().get(at..at + 4)?;
    digits.iter().try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
}

/// Steps through the members of an object's text: names between their quotes, and the text of values.
#[derive(Debug, Clone)]
pub struct Members<'a> {
    text: Walk<'a>,
    is_first: bool,
}

impl<'a> Members<'a> {
    pub fn of(text: &'a [u8]) -> Result<Members<'a>, Error> {
        let mut text = Walk { text, at: 0 };
        text.space();
        text.expect(b'{')?;
        Ok(Members { text, is_first: true })
    }

    /// How far the text was walked: to the end of a member.
    pub fn at(&self) -> usize {
        self.text.at
    }

    /// Steps over the next member if it stands there as `same` does, which is one in another text with what stands before it.
    pub fn skip_same(&mut self, same: &[u8]) -> bool {
        let rest = self.text.text.get(self.text.at..).and_then(|rest| rest.strip_prefix(same));
        // A number may go on.
        let is_same = rest.is_some_and(|rest| matches!(rest.first(), Some(b',' | b'}')));
        if is_same {
            self.text.at += same.len();
            self.is_first = false;
        }
        is_same
    }

    pub fn next_member(&mut self) -> Result<Option<RawMember<'a>>, Error> {
        self.text.space();
        if self.text.peek() == Some(b'}') {
            self.text.at += 1;
            return Ok(None);
        }
        if !self.is_first {
            self.text.expect(b',')?;
            self.text.space();
        }
        self.is_first = false;
        let name = self.text.name()?;
        self.text.space();
        self.text.expect(b':')?;
        self.text.space();
        Ok(Some((name, self.text.value()?)))
    }
}

/// Steps through the elements of an array's text.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    text: Walk<'a>,
    is_first: bool,
    is_over: bool,
}

impl<'a> Elements<'a> {
    pub fn of(text: &'a [u8]) -> Result<Elements<'a>, Error> {
        let mut text = Walk { text, at: 0 };
        text.space();
        text.expect(b'[')?;
        Ok(Elements { text, is_first: true, is_over: false })
    }

    fn step(&mut self) -> Result<Option<&'a [u8]>, Error> {
        self.text.space();
        if self.text.peek() == Some(b']') {
            return Ok(None);
        }
        if !self.is_first {
            self.text.expect(b',')?;
            self.text.space();
        }
        self.is_first = false;
        self.text.value().map(Some)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let step = self.step().transpose();
        self.is_over = !matches!(step, Some(Ok(_)));
        step
    }
}

#[derive(Debug, Clone)]
struct Walk<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Error> {
        if self.peek() != Some(byte) {
            return Err(Error::Malformed(self.at));
        }
        self.at += 1;
        Ok(())
    }

    /// A string, without its quotes.
    fn name(&mut self) -> Result<&'a [u8], Error> {
        self.expect(b'"')?;
        let start = self.at;
        self.string_end()?;
        Ok(&self.text[start..self.at - 1])
    }

    /// From within a string to behind its closing quote.
    fn string_end(&mut self) -> Result<(), Error> {
        loop {
            // Most names and values are short: looking at a few bytes first is faster than a search.
            let rest = self.text.get(self.at..).unwrap_or_default();
            let found = match rest.iter().take(16).position(|byte| matches!(byte, b'"' | b'\\')) {
                Some(near) => Some(near),
                None => memchr2(b'"', b'\\', rest),
            };
            let Some(found) = found else { return Err(Error::Malformed(self.text.len())) };
            if rest[found] == b'"' {
                self.at += found + 1;
                return Ok(());
            }
            self.at += found + 2;
        }
    }

    /// Any value; gives its text.
    fn value(&mut self) -> Result<&'a [u8], Error> {
        let start = self.at;
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                self.string_end()?;
            }
            Some(b'{' | b'[') => self.nested()?,
            Some(_) => {
                let is_inside = |byte: u8| !matches!(byte, b',' | b'}' | b']') && !is_space(byte);
                while self.peek().is_some_and(is_inside) {
                    self.at += 1;
                }
            }
            None => {}
        }
        if self.at == start { Err(Error::Malformed(start)) } else { Ok(&self.text[start..self.at]) }
    }

    /// From an opening bracket to behind its closing one, counting.
    fn nested(&mut self) -> Result<(), Error> {
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'"' => self.string_end()?,
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
        Err(Error::Malformed(self.text.len()))
    }
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\t' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_behind_anything_else() {
        let text = br#" { "a" : "x\"}" , "b":{"c":[1,"]"]}, "d\u00e9" :-1.5e3,"e":[ ] } "#;
        let found: Vec<(String, &[u8])> =
            members(text).unwrap().into_iter().map(|(name, value)| (name.into_owned(), value)).collect();
        assert_eq!(
            found,
            [
                ("a".to_owned(), &br#""x\"}""#[..]),
                ("b".to_owned(), br#"{"c":[1,"]"]}"#),
                ("d\u{e9}".to_owned(), b"-1.5e3"),
                ("e".to_owned(), b"[ ]"),
            ]
        );
        assert_eq!(member(text, "d\u{e9}"), Some(&b"-1.5e3"[..]));
        assert_eq!(member(text, "c"), None);
        assert_eq!(element(b"[1, [2,3] ,\"x\"]", 1), Some(&b"[2,3]"[..]));
        assert_eq!(element(b"[1]", 1), None);
    }

    #[test]
    fn numbers_keep_integers_and_are_doubles_otherwise() {
        assert_eq!(number(b"9223372036854775807"), Some(Number::Integer(i64::MAX)));
        assert_eq!(number(b"9223372036854775808"), Some(Number::Double(9_223_372_036_854_775_808.0)));
        assert_eq!(number(b"-12"), Some(Number::Integer(-12)));
        assert_eq!(number(b"1.50"), Some(Number::Double(1.5)));
        assert_eq!(number(b"1e999"), None);
        assert!(number(b"-0").unwrap().as_f64().is_sign_negative());
    }

    #[test]
    fn text_that_was_never_checked_is_given_up_on() {
        for text in [
            "",
            "{",
            "{\"a",
            "{\"a\":",
            "{\"a\":}",
            "{\"a\" 1}",
            "[1",
            "{\"a\":[}",
            "{]",
            "]",
            "{\"a\":1 x",
            "{\"\\",
        ] {
            let _ = members(text.as_bytes());
            let _ = member(text.as_bytes(), "b");
            let _ = Elements::of(text.as_bytes()).map(Iterator::count);
            let _ = string(text.as_bytes());
        }
        assert!(members(b"{} x").is_err());
    }
}
