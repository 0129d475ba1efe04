//! LIKE: `%` stands for any run of characters, `_` for one, and the whole value is matched (S-194).
//!
//! A pattern is cut at its runs; each piece is looked for behind the one before it, the first and the last at the ends.
//! Taking the leftmost place of each piece is always right, so nothing is tried twice.

/// One character, or any.
type Piece = Vec<Option<char>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Between the runs: one more than there are runs.
    pieces: Vec<Piece>,
}

impl Pattern {
    pub(super) fn new(text: &str, escape: Option<char>) -> Pattern {
        let mut pieces = vec![Piece::new()];
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let last = pieces.len() - 1;
            match character {
                // At the end it stands for itself.
                _ if Some(character) == escape => {
                    pieces[last].push(Some(characters.next().unwrap_or(character)))
                }
                '%' => pieces.push(Piece::new()),
                '_' => pieces[last].push(None),
                _ => pieces[last].push(Some(character)),
            }
        }
        Pattern { pieces }
    }

    pub(super) fn matches(&self, value: &str) -> bool {
        let value: Vec<char> = value.chars().collect();
        let (first, rest) = self.pieces.split_first().expect("a pattern has a piece");
        let Some((last, between)) = rest.split_last() else {
            return value.len() == first.len() && is_at(first, &value);
        };
        if value.len() < first.len() + last.len() || !is_at(first, &value) {
            return false;
        }
        let end = value.len() - last.len();
        if !is_at(last, &value[end..]) {
            return false;
        }
        let mut at = first.len();
        between.iter().all(|piece| {
            let found = (at..=end).find(|from| end - from >= piece.len() && is_at(piece, &value[*from..]));
            found.map(|from| at = from + piece.len()).is_some()
        })
    }
}

fn is_at(piece: &Piece, value: &[char]) -> bool {
    piece.len() <= value.len() && piece.iter().zip(value).all(|(wanted, c)| wanted.is_none_or(|w| w == *c))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(Pattern::new(pattern, None).matches(value), expected, "{value} LIKE {pattern}");
        }
    }

    #[test]
    fn what_is_escaped_stands_for_itself() {
        // S-194
        let pattern = |text: &str| Pattern::new(text, Some('!'));
        assert!(pattern("100!%").matches("100%") && !pattern("100!%").matches("100 percent"));
        assert!(pattern("a!_b").matches("a_b") && !pattern("a!_b").matches("axb"));
        assert!(pattern("!!%").matches("!x") && pattern("x!").matches("x!"));
    }

    #[test]
    fn a_pattern_that_nearly_matches_everywhere_ends_soon() {
        let value = "a".repeat(32 * 1_024);
        let pattern = format!("{}b", "%a".repeat(500));
        assert!(!Pattern::new(&pattern, None).matches(&value));
    }
}
