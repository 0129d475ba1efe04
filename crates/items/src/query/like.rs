//! LIKE: `%` any text, `_` any letter, `[a-f]` and `[^a]` classes, and an escape character.

use std::str::Chars;

/// A pattern is cut at its runs (`%`); each piece is looked for behind the one before it, the first and the last at the ends. Taking the leftmost
/// place of each piece is always right, so nothing is tried twice. A piece of plain text is found as texts are, in time that grows with
/// the text; one with `_` or a class in it is tried at each place, and each letter that is compared counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    /// Between the runs: one more than there are runs.
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Mixed(Vec<Part>),
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    One,
    Letter(char),
    Class(Box<Class>),
}

#[derive(Debug, Clone, PartialEq)]
struct Class {
    ranges: Vec<(char, char)>,
    is_negated: bool,
}

impl Pattern {
    pub fn new(text: &str, escape: Option<char>) -> Pattern {
        let mut letters = text.chars();
        let mut pieces = Vec::new();
        let mut piece = Piece::Text(String::new());
        while let Some(letter) = letters.next() {
            match letter {
                // An escape at the very end stands for itself.
                _ if Some(letter) == escape => piece.push(Part::Letter(letters.next().unwrap_or(letter))),
                // Two runs are as one.
                '%' if !pieces.is_empty() && piece.is_empty() => {}
                '%' => pieces.push(std::mem::replace(&mut piece, Piece::Text(String::new()))),
                '_' => piece.push(Part::One),
                '[' => match class(letters.clone(), escape) {
                    Some((class, rest)) => {
                        letters = rest;
                        piece.push(Part::Class(Box::new(class)));
                    }
                    None => piece.push(Part::Letter('[')),
                },
                _ => piece.push(Part::Letter(letter)),
            }
        }
        pieces.push(piece);
        Pattern { pieces }
    }

    /// Bytes that a pattern of this text holds at most.
    pub fn held_bytes(text: &str) -> usize {
        // Pieces grow by doubling.
        let each =
            if text.bytes().any(|byte| matches!(byte, b'_' | b'[')) { 2 * size_of::<Part>() } else { 2 };
        let runs = text.bytes().filter(|byte| *byte == b'%').count();
        text.len() * each + (runs + 1) * 3 * size_of::<Piece>()
    }

    /// The letters that every matching text begins with, and whether that is all the pattern asks (`abc%`).
    pub fn prefix(&self) -> (String, bool) {
        let (first, is_whole) = match self.pieces.first() {
            Some(Piece::Text(text)) => (text.clone(), true),
            Some(Piece::Mixed(parts)) => {
                let letters = parts.iter().map_while(|part| match part {
                    Part::Letter(letter) => Some(*letter),
                    _ => None,
                });
                (letters.collect(), false)
            }
            None => (String::new(), true),
        };
        let is_only_prefix = is_whole && self.pieces.len() == 2 && self.pieces[1].is_empty();
        (first, is_only_prefix)
    }

    /// Whether the pattern is plain text.
    pub fn is_exact(&self) -> bool {
        matches!(&self.pieces[..], [Piece::Text(_)])
    }

    /// Whether a text is matched. `look` is told of bytes before they are looked at, and may stop it.
    pub fn matches<E>(&self, text: &str, mut look: impl FnMut(usize) -> Result<(), E>) -> Result<bool, E> {
        let Some((first, rest)) = self.pieces.split_first() else { return Ok(text.is_empty()) };
        let Some(text) = first.strip_start(text, &mut look)? else { return Ok(false) };
        let Some((last, between)) = rest.split_last() else { return Ok(text.is_empty()) };
        let Some(mut text) = last.strip_end(text, &mut look)? else { return Ok(false) };
        for piece in between {
            match piece.strip_through(text, &mut look)? {
                Some(rest) => text = rest,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

type Stripped<'t, E> = Result<Option<&'t str>, E>;

impl Piece {
    fn push(&mut self, part: Part) {
        match (&mut *self, part) {
            (Piece::Text(text), Part::Letter(letter)) => text.push(letter),
            (Piece::Text(text), part) => {
                *self = Piece::Mixed(text.chars().map(Part::Letter).chain([part]).collect());
            }
            (Piece::Mixed(parts), part) => parts.push(part),
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Piece::Text(text) if text.is_empty())
    }

    /// What is left of a text that begins with this piece.
    fn strip_start<'t, E>(
        &self,
        text: &'t str,
        look: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Stripped<'t, E> {
        match self {
            Piece::Text(piece) => {
                look(piece.len().min(text.len()))?;
                Ok(text.strip_prefix(&**piece))
            }
            Piece::Mixed(parts) => {
                let mut letters = text.chars();
                for part in parts {
                    look(part.cost())?;
                    if !letters.next().is_some_and(|letter| part.takes(letter)) {
                        return Ok(None);
                    }
                }
                Ok(Some(letters.as_str()))
            }
        }
    }

    /// What is left of a text that ends with this piece.
    fn strip_end<'t, E>(
        &self,
        text: &'t str,
        look: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Stripped<'t, E> {
        match self {
            Piece::Text(piece) => {
                look(piece.len().min(text.len()))?;
                Ok(text.strip_suffix(&**piece))
            }
            Piece::Mixed(parts) => {
                let mut letters = text.chars();
                for part in parts.iter().rev() {
                    look(part.cost())?;
                    if !letters.next_back().is_some_and(|letter| part.takes(letter)) {
                        return Ok(None);
                    }
                }
                Ok(Some(letters.as_str()))
            }
        }
    }

    /// What is left of a text behind the leftmost place of this piece.
    fn strip_through<'t, E>(
        &self,
        text: &'t str,
        look: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Stripped<'t, E> {
        match self {
            Piece::Text(piece) => {
                let found = text.find(&**piece);
                // A search takes time that grows with both, whatever they are, and no more than a millisecond or so.
                look(found.unwrap_or(text.len()) + 2 * piece.len())?;
                Ok(found.map(|at| &text[at + piece.len()..]))
            }
            Piece::Mixed(_) => {
                let mut rest = text.chars();
                loop {
                    if let Some(behind) = self.strip_start(rest.as_str(), look)? {
                        return Ok(Some(behind));
                    }
                    if rest.next().is_none() {
                        return Ok(None);
                    }
                }
            }
        }
    }
}

impl Part {
    fn takes(&self, letter: char) -> bool {
        match self {
            Part::One => true,
            Part::Letter(wanted) => *wanted == letter,
            Part::Class(class) => {
                class.ranges.iter().any(|(low, high)| (*low..=*high).contains(&letter)) != class.is_negated
            }
        }
    }

    /// What a comparison takes, in bytes: many times as much as in a search for plain text.
    fn cost(&self) -> usize {
        match self {
            Part::One | Part::Letter(_) => 8,
            Part::Class(class) => 8 + 4 * class.ranges.len(),
        }
    }
}

/// A class behind its `[`, and what is behind it; `None` when it does not end.
fn class(mut letters: Chars<'_>, escape: Option<char>) -> Option<(Class, Chars<'_>)> {
    let mut ahead = letters.clone();
    let is_negated = ahead.next() == Some('^');
    if is_negated {
        letters = ahead;
    }
    let mut ranges = Vec::new();
    loop {
        let mut low = letters.next()?;
        if low == ']' && !ranges.is_empty() {
            return Some((Class { ranges, is_negated }, letters));
        }
        if Some(low) == escape {
            low = letters.next()?;
        }
        let mut ahead = letters.clone();
        match (ahead.next(), ahead.next()) {
            (Some('-'), Some(high)) if high != ']' => {
                ranges.push((low, high));
                letters = ahead;
            }
            _ => ranges.push((low, low)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn patterns_match_as_documented() {
        for (text, pattern, expected) in [
            ("driver", "%driver%", true),
            ("a driver b", "%driver%", true),
            ("driver", "driver_", false),
            ("drivers", "driver_", true),
            ("abc", "a%c", true),
            ("abcd", "a%c", false),
            ("", "%", true),
            ("", "", true),
            ("a", "", false),
            ("cat", "[a-c]at", true),
            ("dat", "[a-c]at", false),
            ("dat", "[^a-c]at", true),
            ("a]", "a[]]", true),
            ("aXbXc", "%X%X%", true),
            ("[x", "[x", true),
        ] {
            assert_eq!(is_like(text, pattern, None), expected, "{text} LIKE {pattern}");
        }
        assert!(is_like("20%", "20!%", Some('!')));
        assert!(!is_like("200", "20!%", Some('!')));
    }

    fn is_like(text: &str, pattern: &str, escape: Option<char>) -> bool {
        let looked = Pattern::new(pattern, escape).matches(text, |_| Ok::<_, Infallible>(()));
        looked.unwrap_or_else(|never| match never {})
    }

    #[test]
    fn a_prefix_is_all_that_some_patterns_ask() {
        let of = |pattern| Pattern::new(pattern, None).prefix();
        assert_eq!(of("abc%"), ("abc".to_owned(), true));
        assert_eq!(of("abc%%"), ("abc".to_owned(), true));
        assert_eq!(of("abc%d"), ("abc".to_owned(), false));
        assert_eq!(of("abc_%"), ("abc".to_owned(), false));
        assert_eq!(of("abc"), ("abc".to_owned(), false));
        assert_eq!(of("%abc"), (String::new(), false));
        assert!(Pattern::new("abc", None).is_exact() && !Pattern::new("ab_", None).is_exact());
    }

    /// Every pattern over a few letters against every text, held against the plainest way to tell.
    #[test]
    fn every_short_pattern_matches_what_trying_everything_matches() {
        fn plain(pattern: &[u8], text: &[u8]) -> bool {
            match pattern.split_first() {
                None => text.is_empty(),
                Some((b'%', rest)) => (0..=text.len()).any(|at| plain(rest, &text[at..])),
                Some((b'_', rest)) => !text.is_empty() && plain(rest, &text[1..]),
                Some((wanted, rest)) => text.first() == Some(wanted) && plain(rest, &text[1..]),
            }
        }
        let texts = |letters: &[u8], length: u32| {
            let count = letters.len();
            let text = |number: usize| {
                (0..length).map(|place| letters[number / count.pow(place) % count]).collect::<Vec<u8>>()
            };
            (0..count.pow(length)).map(text).collect::<Vec<_>>()
        };
        let values: Vec<_> = (0..6).flat_map(|length| texts(b"ab", length)).collect();
        for pattern in (0..6).flat_map(|length| texts(b"ab_%", length)) {
            let wanted = std::str::from_utf8(&pattern).unwrap();
            for value in &values {
                let text = std::str::from_utf8(value).unwrap();
                assert_eq!(is_like(text, wanted, None), plain(&pattern, value), "{text} LIKE {wanted}");
            }
        }
    }

    #[test]
    fn what_is_looked_at_grows_with_the_text_and_what_multiplies_is_counted_and_can_be_stopped() {
        // W-39
        let looked = |pattern: &str, length: usize, most: usize| {
            let mut looked = 0;
            let matched = Pattern::new(pattern, None).matches(&"a".repeat(length), |bytes| {
                looked += bytes;
                if looked > most { Err(()) } else { Ok(()) }
            });
            (matched, looked)
        };
        let nearly = "a".repeat(500);
        for pattern in [
            format!("{}b%", "%a".repeat(500)),
            format!("%{nearly}b%{nearly}b%"),
            format!("%{}b%", "a".repeat(40_000)),
        ] {
            let (matched, once) = looked(&pattern, 50_000, usize::MAX);
            assert_eq!(matched, Ok(false));
            let (_, twice) = looked(&pattern, 100_000, usize::MAX);
            assert!(twice <= 2 * once && twice <= 4 * (100_000 + pattern.len()), "{twice}: {pattern:.20}");
        }
        let (matched, looked) = looked(&format!("%{nearly}_b%"), 100_000, 1_000_000);
        assert_eq!(matched, Err(()));
        assert!(looked < 1_000_100);
    }
}
