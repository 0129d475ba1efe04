//! Reading JSON text that nobody has checked: into a tree, or only to see that it is sound.

use super::walk::{self, is_space};
use super::{Error, Number, Object, Value, write_text};
use crate::limits;
use memchr::memchr2;
use std::borrow::Cow;
use std::collections::HashMap;

/// The value that the whole text is. Of members with the same name the last one counts, in the place of the first.
pub fn parse(text: &[u8]) -> Result<Value, Error> {
    let mut reader = Reader { text, at: 0, depth: 0 };
    reader.space();
    let value = reader.value()?;
    reader.end()?;
    Ok(value)
}

/// Checks that `text` is JSON. When some object in it has a name twice, gives the text rewritten so that only the last one is
/// left (in the place of the first); otherwise the text itself.
///
/// What is stored has gone through here: only then may [`walk`] stop at the first member of a name.
pub fn without_duplicates(text: &[u8]) -> Result<Cow<'_, [u8]>, Error> {
    Ok(members_without_duplicates(text)?.0)
}

/// The name of a member, escapes resolved, and the text of its value.
pub type CheckedMember<'a> = (Cow<'a, [u8]>, &'a [u8]);

/// A text without duplicates, and the members of the object that it is, unless it had to be rewritten. A text that is something else has
/// none.
pub type Checked<'a> = (Cow<'a, [u8]>, Option<Vec<CheckedMember<'a>>>);

/// The same, with the members.
pub fn members_without_duplicates(text: &[u8]) -> Result<Checked<'_>, Error> {
    let mut reader = Reader { text, at: 0, depth: 0 };
    reader.space();
    let (members, has_duplicates) = match reader.peek() {
        Some(b'{') => reader.check_object()?,
        _ => (Vec::new(), reader.check()?),
    };
    reader.end()?;
    if !has_duplicates {
        return Ok((Cow::Borrowed(text), Some(members)));
    }
    let mut rewritten = Vec::with_capacity(text.len());
    rewrite(text, &mut rewritten)?;
    Ok((Cow::Owned(rewritten), None))
}

/// Writes checked text without duplicate members; values keep their own text.
fn rewrite(text: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    match walk::kind(text.trim_ascii()) {
        Some(walk::Kind::Object) => {
            let mut last: Vec<(Cow<'_, str>, &[u8])> = Vec::new();
            let mut places: HashMap<Cow<'_, str>, usize> = HashMap::new();
            for (name, value) in walk::members(text)? {
                match places.get(&name) {
                    Some(place) => last[*place].1 = value,
                    None => {
                        places.insert(name.clone(), last.len());
                        last.push((name, value));
                    }
                }
            }
            out.push(b'{');
            for (index, (name, value)) in last.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_text(name, out);
                out.push(b':');
                rewrite(value, out)?;
            }
            out.push(b'}');
        }
        Some(walk::Kind::Array) => {
            out.push(b'[');
            for (index, element) in walk::Elements::of(text)?.enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                rewrite(element?, out)?;
            }
            out.push(b']');
        }
        _ => out.extend_from_slice(text),
    }
    Ok(())
}

/// A number of so many characters without an exponent is far from what a double can hold.
const SMALL_DIGITS: usize = 64;

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(Error::Malformed(self.at)) }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Error> {
        if self.peek() != Some(byte) {
            return Err(Error::Malformed(self.at));
        }
        self.at += 1;
        Ok(())
    }

    fn open(&mut self) -> Result<(), Error> {
        if self.depth == limits::NESTING {
            return Err(Error::TooDeep(self.at));
        }
        self.depth += 1;
        self.at += 1;
        self.space();
        Ok(())
    }

    /// After a member or an element: whether another one follows.
    fn has_more(&mut self, close: u8) -> Result<bool, Error> {
        self.space();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.space();
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.close();
                Ok(false)
            }
            _ => Err(Error::Malformed(self.at)),
        }
    }

    fn close(&mut self) {
        self.at += 1;
        self.depth -= 1;
    }

    fn value(&mut self) -> Result<Value, Error> {
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => Ok(Value::String(self.string()?.into_owned())),
            Some(b'n') => self.word(b"null").map(|()| Value::Null),
            Some(b't') => self.word(b"true").map(|()| Value::Bool(true)),
            Some(b'f') => self.word(b"false").map(|()| Value::Bool(false)),
            _ => self.number().map(Value::Number),
        }
    }

    fn array(&mut self) -> Result<Value, Error> {
        self.open()?;
        let mut elements = Vec::new();
        if self.peek() == Some(b']') {
            self.close();
            return Ok(Value::Array(elements));
        }
        loop {
            elements.push(self.value()?);
            if !self.has_more(b']')? {
                return Ok(Value::Array(elements));
            }
        }
    }

    fn object(&mut self) -> Result<Value, Error> {
        self.open()?;
        let mut members: Vec<(String, Value)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        if self.peek() == Some(b'}') {
            self.close();
            return Ok(Value::Object(Object(members)));
        }
        loop {
            let name = self.member_name()?.into_owned();
            let value = self.value()?;
            match place_of(&name, &members, &mut places) {
                Some(place) => members[place].1 = value,
                None => members.push((name, value)),
            }
            if !self.has_more(b'}')? {
                return Ok(Value::Object(Object(members)));
            }
        }
    }

    fn member_name(&mut self) -> Result<Cow<'a, str>, Error> {
        let name = self.string()?;
        self.colon()?;
        Ok(name)
    }

    fn colon(&mut self) -> Result<(), Error> {
        self.space();
        self.expect(b':')?;
        self.space();
        Ok(())
    }

    /// Passes over an object, checking it; tells whether it, or one in it, has a name twice.
    fn check_object(&mut self) -> Result<(Vec<CheckedMember<'a>>, bool), Error> {
        self.open()?;
        let mut has_duplicates = false;
        let mut members: Vec<CheckedMember<'a>> = Vec::with_capacity(limits::FEW_MEMBERS / 2);
        if self.peek() == Some(b'}') {
            self.close();
            return Ok((members, false));
        }
        loop {
            let name = match self.plain_string() {
                Some(plain) => Cow::Borrowed(plain),
                None => match self.string()? {
                    Cow::Borrowed(name) => Cow::Borrowed(name.as_bytes()),
                    Cow::Owned(name) => Cow::Owned(name.into_bytes()),
                },
            };
            self.colon()?;
            let start = self.at;
            has_duplicates |= self.check()?;
            members.push((name, &self.text[start..self.at]));
            if !self.has_more(b'}')? {
                break;
            }
        }
        has_duplicates |= if members.len() > limits::FEW_MEMBERS {
            let mut names: Vec<&[u8]> = members.iter().map(|(name, _)| &**name).collect();
            names.sort_unstable();
            names.windows(2).any(|pair| pair[0] == pair[1])
        } else {
            let is_before = |at: usize| members[..at].iter().any(|(name, _)| *name == members[at].0);
            (1..members.len()).any(is_before)
        };
        Ok((members, has_duplicates))
    }

    /// Passes over a value, checking it; tells whether an object in it has a name twice.
    fn check(&mut self) -> Result<bool, Error> {
        let mut has_duplicates = false;
        match self.peek() {
            Some(b'{') => has_duplicates = self.check_object()?.1,
            Some(b'[') => {
                self.open()?;
                if self.peek() == Some(b']') {
                    self.close();
                    return Ok(false);
                }
                loop {
                    has_duplicates |= self.check()?;
                    if !self.has_more(b']')? {
                        break;
                    }
                }
            }
            Some(b'"') => {
                if self.plain_string().is_none() {
                    self.string()?;
                }
            }
            Some(b'n') => self.word(b"null")?,
            Some(b't') => self.word(b"true")?,
            Some(b'f') => self.word(b"false")?,
            _ => self.check_number()?,
        }
        Ok(has_duplicates)
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Error> {
        if !self.text[self.at..].starts_with(word) {
            return Err(Error::Malformed(self.at));
        }
        self.at += word.len();
        Ok(())
    }

    /// A short string of ASCII without escapes, as nearly all names and many values are: one look at each byte tells all of it. Any other
    /// is left to [`Reader::string`].
    fn plain_string(&mut self) -> Option<&'a [u8]> {
        let inside = self.text.get(self.at..)?.strip_prefix(b"\"")?;
        let is_end = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20 | 0x7f..);
        let end = inside.iter().take(limits::PLAIN_STRING_BYTES).position(is_end)?;
        if inside[end] != b'"' {
            return None;
        }
        self.at += end + 2;
        Some(&inside[..end])
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Error> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            match memchr2(b'"', b'\\', rest) {
                Some(found) if rest[found] == b'"' => {
                    self.at += found;
                    break;
                }
                // Whatever is escaped does not end the string.
                Some(found) => self.at += found + 2,
                None => {
                    self.check_controls(start, self.text.len())?;
                    return Err(Error::Malformed(self.text.len()));
                }
            }
        }
        self.check_controls(start, self.at)?;
        let raw = &self.text[start..self.at];
        self.at += 1;
        walk::name_text(raw).map_err(|error| match error {
            Error::NotText(at) => Error::NotText(start + at),
            Error::Malformed(at) => Error::Malformed(start + at),
            other => other,
        })
    }

    /// No control character stands in a string as it is. All bytes are looked at: that takes many at a time.
    fn check_controls(&self, from: usize, to: usize) -> Result<(), Error> {
        let raw = self.text.get(from..to).unwrap_or_default();
        if !raw.iter().fold(false, |is_found, &byte| is_found | (byte < 0x20)) {
            return Ok(());
        }
        let at = raw.iter().position(|&byte| byte < 0x20).unwrap_or(0);
        Err(Error::Malformed(from + at))
    }

    fn number(&mut self) -> Result<Number, Error> {
        let start = self.at;
        walk::number(self.number_text()?).ok_or(Error::NumberTooLarge(start))
    }

    /// Passes over a number. One of few digits needs no closer look: it is not too large.
    fn check_number(&mut self) -> Result<(), Error> {
        let start = self.at;
        let text = self.number_text()?;
        let is_small = text.len() <= SMALL_DIGITS && !text.iter().any(|byte| matches!(byte, b'e' | b'E'));
        if !is_small {
            walk::number(text).ok_or(Error::NumberTooLarge(start))?;
        }
        Ok(())
    }

    fn number_text(&mut self) -> Result<&'a [u8], Error> {
        let start = self.at;
        let digits = |reader: &mut Self| {
            let from = reader.at;
            while reader.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                reader.at += 1;
            }
            if reader.at == from { Err(Error::Malformed(from)) } else { Ok(reader.at - from) }
        };
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let starts_with_zero = self.peek() == Some(b'0');
        if digits(self)? > 1 && starts_with_zero {
            return Err(Error::Malformed(start));
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            digits(self)?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            digits(self)?;
        }
        Ok(&self.text[start..self.at])
    }
}

/// Where a member of that name stands already. Many members get a table, so that an object of a million costs no square.
fn place_of(name: &str, members: &[(String, Value)], places: &mut HashMap<String, usize>) -> Option<usize> {
    if members.len() < limits::FEW_MEMBERS {
        return members.iter().position(|(member, _)| member == name);
    }
    if places.is_empty() {
        places.extend(members.iter().enumerate().map(|(place, (member, _))| (member.clone(), place)));
    }
    match places.get(name) {
        Some(place) => Some(*place),
        None => {
            places.insert(name.to_owned(), members.len());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Value, Error> {
        parse(text.as_bytes())
    }

    #[test]
    fn of_members_with_the_same_name_the_last_one_counts() {
        let twice = r#"{"a":1,"b":{"x":1,"x":2},"a":[{"y":0,"y":1.50}]}"#;
        let once = r#"{"a":[{"y":1.50}],"b":{"x":2}}"#;
        assert_eq!(read(twice), read(once));
        assert_eq!(without_duplicates(twice.as_bytes()).unwrap(), once.as_bytes());
        assert!(matches!(without_duplicates(once.as_bytes()), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn the_members_of_a_sound_object_are_told_with_their_names_resolved() {
        let long = "x".repeat(limits::PLAIN_STRING_BYTES + 1);
        for plain in
            [0, 1, limits::PLAIN_STRING_BYTES - 1, limits::PLAIN_STRING_BYTES, limits::PLAIN_STRING_BYTES + 1]
        {
            let (name, value) = ("n".repeat(plain), "v".repeat(plain));
            let text = format!(
                r#" {{ "{name}" : "{value}" ,"d\u00e9\"":{{"a":1,"a\u0000":[2,{{}}]}},"é":"é\\","{long}":-1.5e3,"t":true }} "#
            );
            let (same, members) = members_without_duplicates(text.as_bytes()).unwrap();
            assert_eq!(same, text.as_bytes());
            let expected = walk::members(text.trim().as_bytes()).unwrap();
            let expected: Vec<_> =
                expected.iter().map(|(name, value)| (Cow::Borrowed(name.as_bytes()), *value)).collect();
            assert_eq!(members.unwrap(), expected);
        }
        for (text, count) in [("{}", Some(0)), ("[{\"a\":1}]", Some(0)), ("{\"a\":1,\"\\u0061\":2}", None)] {
            let members = members_without_duplicates(text.as_bytes()).unwrap().1;
            assert_eq!(members.map(|members| members.len()), count, "{text}");
        }
    }

    #[test]
    fn numbers_that_no_double_holds_are_refused_however_they_are_written() {
        for (text, is_sound) in [
            ("9".repeat(SMALL_DIGITS), true),
            ("9".repeat(SMALL_DIGITS + 1), true),
            ("9".repeat(308), true),
            ("9".repeat(400), false),
            ("1e308".to_owned(), true),
            ("1E309".to_owned(), false),
            (format!("-{}.5e300", "9".repeat(20)), false),
        ] {
            assert_eq!(without_duplicates(text.as_bytes()).is_ok(), is_sound, "{text}");
            assert_eq!(parse(text.as_bytes()).is_ok(), is_sound, "{text}");
        }
    }

    #[test]
    fn objects_of_many_members_have_each_name_once() {
        let members: Vec<String> = (0..100).map(|index| format!("\"m{}\":{index}", index % 40)).collect();
        let text = format!("{{{}}}", members.join(","));
        let Ok(Value::Object(object)) = read(&text) else { panic!("not an object") };
        assert_eq!(object.0.len(), 40);
        assert_eq!(object.get("m19"), Some(&Value::integer(99)));
        let rewritten = without_duplicates(text.as_bytes()).unwrap();
        assert_eq!(parse(&rewritten), Ok(Value::Object(object)));
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(read(&nested(limits::NESTING)).is_ok());
        assert!(matches!(read(&nested(limits::NESTING + 1)), Err(Error::TooDeep(_))));
        assert!(matches!(read(&"[".repeat(1_000_000)), Err(Error::TooDeep(_))));
        assert!(without_duplicates(nested(limits::NESTING + 1).as_bytes()).is_err());
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "",
            " ",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "nul",
            "truee",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "'a'",
            "\"a",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\n\"",
            "1 2",
            "[1 2]",
            "{\"a\"}",
            "-",
            "NaN",
            "1e999",
            "\"\\",
        ] {
            assert!(read(text).is_err(), "{text}");
            assert!(without_duplicates(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn escapes_are_resolved() {
        let text = r#""\ud83d\ude00 \u00e9\n\/\\ \ud800 end""#;
        assert_eq!(read(text), Ok(Value::text("\u{1f600} \u{e9}\n/\\ \u{fffd} end")));
    }
}
