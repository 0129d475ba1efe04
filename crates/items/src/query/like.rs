//! LIKE: `%` any text, `_` any letter, `[a-f]` and `[^a]` classes, and an escape character.

#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Any,
    One,
    Letter(char),
    Class { ranges: Vec<(char, char)>, is_negated: bool },
}

impl Pattern {
    pub fn new(text: &str, escape: Option<char>) -> Pattern {
        let letters: Vec<char> = text.chars().collect();
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(&letter) = letters.get(at) {
            at += 1;
            let part = match letter {
                _ if Some(letter) == escape => {
                    at += 1;
                    // An escape at the very end stands for itself.
                    Part::Letter(letters.get(at - 1).copied().unwrap_or(letter))
                }
                '%' => Part::Any,
                '_' => Part::One,
                '[' => match class(&letters[at..], escape) {
                    Some((class, used)) => {
                        at += used;
                        class
                    }
                    None => Part::Letter('['),
                },
                _ => Part::Letter(letter),
            };
            if part != Part::Any || parts.last() != Some(&Part::Any) {
                parts.push(part);
            }
        }
        Pattern { parts }
    }

    /// The letters that every matching text begins with, and whether that is all the pattern asks (`abc%`).
    pub fn prefix(&self) -> (String, bool) {
        let letters = self.parts.iter().map_while(|part| match part {
            Part::Letter(letter) => Some(*letter),
            _ => None,
        });
        let prefix: String = letters.collect();
        let rest = &self.parts[prefix.chars().count()..];
        (prefix, matches!(rest, [Part::Any]))
    }

    /// Whether the pattern is plain text.
    pub fn is_exact(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Letter(_)))
    }

    /// Goes back to the last `%` only: text times pattern at worst, never more.
    pub fn matches(&self, text: &str) -> bool {
        let mut part = 0;
        let mut rest = text.chars();
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            match self.parts.get(part) {
                Some(Part::Any) => {
                    part += 1;
                    if part == self.parts.len() {
                        return true;
                    }
                    retry = Some((part, rest.clone()));
                    continue;
                }
                Some(wanted) => {
                    let mut ahead = rest.clone();
                    match ahead.next() {
                        Some(letter) if wanted.takes(letter) => {
                            rest = ahead;
                            part += 1;
                            continue;
                        }
                        Some(_) => {}
                        None => return false,
                    }
                }
                None if rest.as_str().is_empty() => return true,
                None => {}
            }
            let Some((after, from)) = &mut retry else { return false };
            if from.next().is_none() {
                return false;
            }
            part = *after;
            rest = from.clone();
        }
    }
}

impl Part {
    fn takes(&self, letter: char) -> bool {
        match self {
            Part::Any | Part::One => true,
            Part::Letter(wanted) => *wanted == letter,
            Part::Class { ranges, is_negated } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&letter)) != *is_negated
            }
        }
    }
}

/// A class behind its `[`, and how many letters it takes; `None` when it does not end.
fn class(letters: &[char], escape: Option<char>) -> Option<(Part, usize)> {
    let mut at = 0;
    let is_negated = letters.first() == Some(&'^');
    if is_negated {
        at += 1;
    }
    let mut ranges = Vec::new();
    loop {
        let mut low = *letters.get(at)?;
        if low == ']' && !ranges.is_empty() {
            return Some((Part::Class { ranges, is_negated }, at + 1));
        }
        if Some(low) == escape {
            at += 1;
            low = *letters.get(at)?;
        }
        at += 1;
        match (letters.get(at), letters.get(at + 1)) {
            (Some('-'), Some(high)) if *high != ']' => {
                ranges.push((low, *high));
                at += 2;
            }
            _ => ranges.push((low, low)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(Pattern::new(text_of(pattern), None).matches(text), expected, "{text} LIKE {pattern}");
        }
        assert!(Pattern::new("20!%", Some('!')).matches("20%"));
        assert!(!Pattern::new("20!%", Some('!')).matches("200"));
    }

    fn text_of(text: &str) -> &str {
        text
    }

    #[test]
    fn many_wildcards_take_no_more_than_text_times_pattern() {
        let pattern = Pattern::new(&"%a".repeat(2_000), None);
        assert!(!pattern.matches(&"a".repeat(1_999)));
        assert!(!Pattern::new(&format!("{}b", "%a".repeat(1_000)), None).matches(&"a".repeat(5_000)));
    }
}
