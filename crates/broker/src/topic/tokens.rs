//! The words of the SQL language: a text split into tokens, each with the number of its first character (S-191, S-192).

use super::sql::Mistake;
use message::planted::is_planted;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A name or a keyword, as it was written.
    Word(String),
    /// A name in brackets or double quotes, which is never a keyword (S-191).
    Delimited(String),
    Text(String),
    Integer(i64),
    Real(f64),
    /// `@name`.
    Parameter(String),
    Symbol(&'static str),
}

/// Longer ones first.
const SYMBOLS: [&str; 18] =
    ["<>", "!=", ">=", "<=", "=", ">", "<", "+", "-", "*", "/", "%", "(", ")", ",", ".", ";", "@"];

/// Splits a text into tokens with the number of their first character.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Mistake> {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&first) = characters.get(at) {
        let begin = at;
        let rest = &characters[at..];
        let wrong = |what: &str| Mistake { at: begin + 1, what: what.to_owned() };
        let is_digit = |c: Option<&char>| c.is_some_and(char::is_ascii_digit);
        let token = match first {
            _ if first.is_whitespace() => {
                at += 1;
                continue;
            }
            '\'' | '"' | '[' => {
                let end = if first == '[' { ']' } else { first };
                let (length, content) = enclosed(rest, end)
                    .ok_or_else(|| wrong(&format!("what begins with {first} does not end with {end}")))?;
                at += length;
                if first == '\'' { Token::Text(content) } else { Token::Delimited(content) }
            }
            _ if is_digit(Some(&first)) || first == '.' && is_digit(rest.get(1)) => {
                at += number(rest);
                if characters.get(at).is_some_and(|c| is_word(*c)) {
                    return Err(wrong("a number ends in letters"));
                }
                let digits: String = characters[begin..at].iter().collect();
                number_token(&digits).ok_or_else(|| wrong("a number is too large"))?
            }
            '@' if rest.get(1).is_some_and(|c| is_word(*c)) => {
                at += 1 + rest[1..].iter().take_while(|c| is_word(**c)).count();
                Token::Parameter(characters[begin + 1..at].iter().collect())
            }
            _ if is_word(first) => {
                at += rest.iter().take_while(|c| is_word(**c)).count();
                Token::Word(characters[begin..at].iter().collect())
            }
            _ => {
                let is_here =
                    |symbol: &&str| symbol.chars().enumerate().all(|(nth, c)| rest.get(nth) == Some(&c));
                let symbol = SYMBOLS.into_iter().find(is_here);
                let symbol =
                    symbol.ok_or_else(|| wrong(&format!("the character '{first}' has no meaning here")))?;
                at += symbol.len();
                Token::Symbol(symbol)
            }
        };
        tokens.push((begin + 1, token));
    }
    Ok(tokens)
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// What begins here, up to the `end` that is not doubled: how many characters, and what is between.
fn enclosed(characters: &[char], end: char) -> Option<(usize, String)> {
    let (mut at, mut content) = (1, String::new());
    loop {
        match (*characters.get(at)?, characters.get(at + 1)) {
            (here, Some(next)) if here == end && *next == end => {
                content.push(end);
                if is_planted("sql") && end == '\'' {
                    content.push(end);
                }
                at += 2;
            }
            (here, _) if here == end => return Some((at + 1, content)),
            (here, _) => {
                content.push(here);
                at += 1;
            }
        }
    }
}

/// Characters of a number: digits, perhaps a fraction, perhaps an exponent (S-192).
fn number(characters: &[char]) -> usize {
    let digits = |from: usize| characters[from..].iter().take_while(|c| c.is_ascii_digit()).count();
    let mut at = digits(0);
    if characters.get(at) == Some(&'.') {
        at += 1;
        at += digits(at);
    }
    if matches!(characters.get(at), Some('e' | 'E')) {
        let sign = usize::from(matches!(characters.get(at + 1), Some('+' | '-')));
        let exponent = characters.get(at + 1 + sign).map_or(0, |_| digits(at + 1 + sign));
        at += if exponent > 0 { 1 + sign + exponent } else { 0 };
    }
    at
}

/// Whole numbers have 64 bits, all others are doubles.
fn number_token(digits: &str) -> Option<Token> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        digits.parse().ok().map(Token::Integer)
    } else {
        digits.parse().ok().filter(|number: &f64| number.is_finite()).map(Token::Real)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Token> {
        tokens(text).unwrap().into_iter().map(|(_, token)| token).collect()
    }

    #[test]
    fn what_is_doubled_stands_for_itself() {
        // S-191
        let delimited = |text: &str| Token::Delimited(text.into());
        assert_eq!(
            read("[a]]b] \"a\"\"b\" 'a''b'"),
            [delimited("a]b"), delimited("a\"b"), Token::Text("a'b".into())]
        );
        assert_eq!(read("''"), [Token::Text(String::new())]);
    }

    #[test]
    fn numbers_are_whole_or_not() {
        // S-192
        let real = |number| Token::Real(number);
        assert_eq!(
            read("7 1.5 1.5E3 .5 2e-1"),
            [Token::Integer(7), real(1.5), real(1_500.0), real(0.5), real(0.2)]
        );
        assert_eq!(read("9223372036854775807"), [Token::Integer(i64::MAX)]);
        assert!(tokens("9223372036854775808").is_err() && tokens("1e999").is_err());
    }
}
