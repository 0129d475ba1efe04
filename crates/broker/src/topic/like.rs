//! LIKE: `%` stands for any run of characters, `_` for one, and the whole value is matched (S-194).
//!
//! A pattern is cut at its runs; each piece is looked for behind the one before it, the first and the last at the ends.
//! Taking the leftmost place of each piece is always right, so nothing is tried twice. A piece that is plain text is looked for
//! as texts are, in time that grows with the value; one with `_` in it by keeping, for each character of the value, the set of
//! beginnings of the piece that end there, 64 to a word.

use super::steps::STEP_BYTES;
use message::planted::is_planted;
use std::collections::HashMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Between the runs: one more than there are runs.
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// One character each, or any.
    Characters(Vec<Option<char>>),
}

impl Pattern {
    pub(super) fn new(text: &str, escape: Option<char>) -> Pattern {
        let mut pieces = vec![Piece::Text(String::new())];
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let last = pieces.len() - 1;
            match character {
                // At the end it stands for itself.
                _ if Some(character) == escape => {
                    pieces[last].push(Some(characters.next().unwrap_or(character)));
                }
                '%' => pieces.push(Piece::Text(String::new())),
                '_' => pieces[last].push(None),
                _ => pieces[last].push(Some(character)),
            }
        }
        Pattern { pieces }
    }

    /// Whether a value is matched, and how many steps it took to tell.
    pub(super) fn matches(&self, value: &str) -> (bool, usize) {
        let mut steps = self.pieces.len();
        let is_match = self.is_match(value, &mut steps).is_some();
        (is_match, steps)
    }

    fn is_match(&self, value: &str, steps: &mut usize) -> Option<()> {
        let (first, rest) = self.pieces.split_first()?;
        let whole = value;
        let value = first.strip_start(value, steps)?;
        let Some((last, between)) = rest.split_last() else {
            return value.is_empty().then_some(());
        };
        // The beginning and the end do not share characters.
        let mut value = last.strip_end(if is_planted("like") { whole } else { value }, steps)?;
        for piece in between {
            value = piece.strip_through(value, steps)?;
        }
        Some(())
    }
}

impl Piece {
    fn push(&mut self, wanted: Option<char>) {
        match (&mut *self, wanted) {
            (Piece::Text(text), Some(character)) => text.push(character),
            (Piece::Text(text), None) => {
                *self = Piece::Characters(text.chars().map(Some).chain([None]).collect());
            }
            (Piece::Characters(characters), wanted) => characters.push(wanted),
        }
    }

    /// What is left of a value that begins with this piece.
    fn strip_start<'v>(&self, value: &'v str, steps: &mut usize) -> Option<&'v str> {
        match self {
            Piece::Text(text) => {
                *steps += text.len() / STEP_BYTES;
                value.strip_prefix(&**text)
            }
            Piece::Characters(wanted) => {
                *steps += wanted.len();
                let mut characters = value.chars();
                for wanted in wanted {
                    let character = characters.next()?;
                    wanted.is_none_or(|wanted| wanted == character).then_some(())?;
                }
                Some(characters.as_str())
            }
        }
    }

    /// What is left of a value that ends with this piece.
    fn strip_end<'v>(&self, value: &'v str, steps: &mut usize) -> Option<&'v str> {
        match self {
            Piece::Text(text) => {
                *steps += text.len() / STEP_BYTES;
                value.strip_suffix(&**text)
            }
            Piece::Characters(wanted) => {
                *steps += wanted.len();
                let mut characters = value.chars();
                for wanted in wanted.iter().rev() {
                    let character = characters.next_back()?;
                    wanted.is_none_or(|wanted| wanted == character).then_some(())?;
                }
                Some(characters.as_str())
            }
        }
    }

    /// What is left of a value behind the leftmost place of this piece.
    fn strip_through<'v>(&self, value: &'v str, steps: &mut usize) -> Option<&'v str> {
        match self {
            Piece::Text(text) => {
                // The time of a search in a text grows with both, whatever they are.
                let found = value.find(&**text);
                let seen = found.map_or(value.len(), |at| at + text.len());
                *steps += (seen + text.len()) / STEP_BYTES;
                found.map(|_| &value[seen..])
            }
            Piece::Characters(wanted) => strip_through(wanted, value, steps),
        }
    }
}

/// For each character of the value: which beginnings of the piece end with it (Shift-And).
fn strip_through<'v>(wanted: &[Option<char>], value: &'v str, steps: &mut usize) -> Option<&'v str> {
    let words = wanted.len().div_ceil(64);
    let mut any = vec![0_u64; words];
    let mut places: HashMap<char, Vec<u64>> = HashMap::new();
    let bit = |nth: usize| (nth / 64, 1_u64 << (nth % 64));
    for (nth, _) in wanted.iter().enumerate().filter(|(_, wanted)| wanted.is_none()) {
        any[bit(nth).0] |= bit(nth).1;
    }
    for (nth, wanted) in wanted.iter().enumerate() {
        if let Some(wanted) = wanted {
            places.entry(*wanted).or_insert_with(|| any.clone())[bit(nth).0] |= bit(nth).1;
        }
    }
    *steps += wanted.len() + places.len() * words;
    let mut begun = vec![0_u64; words];
    let (last_word, last_bit) = bit(wanted.len() - 1);
    for (at, character) in value.char_indices() {
        *steps += words;
        let places = places.get(&character).unwrap_or(&any);
        let mut carry = 1;
        for (begun, places) in begun.iter_mut().zip(places) {
            let next = *begun >> 63;
            *begun = (*begun << 1 | carry) & places;
            carry = next;
        }
        if begun[last_word] & last_bit != 0 {
            return Some(&value[at + character.len_utf8()..]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_like(value: &str, pattern: &str, escape: Option<char>) -> bool {
        Pattern::new(pattern, escape).matches(value).0
    }

    #[test]
    fn a_whole_value_is_matched() {
        // S-194
        for (pattern, value, expected) in [
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("%My.Event%", "x, My.Event, y", true),
            ("%My.Event%", "MyXEvent", false),
            ("a%", "a", true),
            ("a%a", "a", false),
            ("a%b%c", "aXbYbc", true),
            ("a%b%c", "acb", false),
            ("_ü_", "aüb", true),
            ("_", "", false),
            ("%", "", true),
            ("%%", "x", true),
            ("%a_c%d", "xxabcabd", true),
            ("%ab", "abab", true),
            ("A", "a", false),
            ("%_", "", false),
            ("%_%_%", "ab", true),
            ("%_%_%", "a", false),
            ("_%_", "a", false),
            ("%ü_%", "xüü", true),
            ("%ü_", "xxü", false),
        ] {
            assert_eq!(is_like(value, pattern, None), expected, "{value} LIKE {pattern}");
        }
    }

    #[test]
    fn what_is_escaped_stands_for_itself() {
        // S-194
        let is_like = |value, pattern| is_like(value, pattern, Some('!'));
        assert!(is_like("100%", "100!%") && !is_like("100 percent", "100!%"));
        assert!(is_like("a_b", "a!_b") && !is_like("axb", "a!_b"));
        assert!(is_like("!x", "!!%") && is_like("x!", "x!"));
    }

    /// Every pattern over a few characters against every value, held against the plainest way to tell.
    #[test]
    fn every_short_pattern_matches_what_trying_everything_matches() {
        fn plain(pattern: &[u8], value: &[u8]) -> bool {
            match pattern.split_first() {
                None => value.is_empty(),
                Some((b'%', rest)) => (0..=value.len()).any(|at| plain(rest, &value[at..])),
                Some((b'_', rest)) => !value.is_empty() && plain(rest, &value[1..]),
                Some((wanted, rest)) => value.first() == Some(wanted) && plain(rest, &value[1..]),
            }
        }
        let texts = |letters: &[u8], length: u32| {
            (0..letters.len().pow(length))
                .map(|number| {
                    (0..length)
                        .map(|place| letters[number / letters.len().pow(place) % letters.len()])
                        .collect()
                })
                .collect::<Vec<Vec<u8>>>()
        };
        let values: Vec<_> = (0..6).flat_map(|length| texts(b"ab", length)).collect();
        for pattern in (0..6).flat_map(|length| texts(b"ab_%", length)) {
            let text = std::str::from_utf8(&pattern).unwrap();
            for value in &values {
                let found = is_like(std::str::from_utf8(value).unwrap(), text, None);
                assert_eq!(found, plain(&pattern, value), "{value:?} LIKE {text}");
            }
        }
    }

    #[test]
    fn the_steps_of_a_long_value_grow_with_it_and_not_with_the_pieces() {
        let steps = |pattern: &str, length: usize| Pattern::new(pattern, None).matches(&"a".repeat(length)).1;
        let nearly = "a".repeat(500);
        let patterns = [
            format!("{}b", "%a".repeat(500)),
            format!("%{nearly}b%{nearly}b%"),
            format!("%{nearly}_b%{nearly}%"),
            "%a_a".repeat(250),
            format!("%{}%", "_".repeat(1_000)),
        ];
        for pattern in patterns {
            let (once, twice) = (steps(&pattern, 50_000), steps(&pattern, 100_000));
            assert!(twice <= 100_000 * 1_024_usize.div_ceil(64) + 3_000, "{twice} steps: {pattern:.20}");
            assert!(twice <= 2 * once + 3_000, "{once}, then {twice}: {pattern:.20}");
        }
    }
}
