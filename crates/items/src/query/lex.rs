//! From text to tokens.

use super::error::{Span, code, error};
use crate::json::{Number, walk};
use crate::limits;
use crate::refusal::Refusal;
use winnow::ascii::{digit0, digit1, hex_digit1};
use winnow::combinator::{alt, not, opt, preceded};
use winnow::prelude::*;
use winnow::token::{literal, take_till, take_while};

#[derive(Debug, Clone, PartialEq)]
pub struct Token<'a> {
    pub kind: Kind<'a>,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Kind<'a> {
    Word(&'a str),
    /// With its `@`.
    Parameter(&'a str),
    Text(String),
    Number(Number),
    Sign(&'static str),
    End,
}

/// Longest first: the first one that fits is taken.
const SIGNS: [&str; 30] = [
    ">>>", "<<", ">>", "<=", ">=", "<>", "!=", "||", "??", "(", ")", "[", "]", "{", "}", ",", ".", ":", "?",
    "*", "/", "%", "+", "-", "~", "&", "^", "|", "=", "<",
];

/// All tokens of the text, `End` last.
pub fn tokens(text: &str) -> Result<Vec<Token<'_>>, Refusal> {
    let mut rest = text;
    let mut tokens = Vec::new();
    loop {
        space(&mut rest);
        let start = text.len() - rest.len();
        if rest.is_empty() {
            tokens.push(Token { kind: Kind::End, span: Span { start, end: start } });
            return Ok(tokens);
        }
        if tokens.len() == limits::QUERY_TOKENS {
            let message = format!("The query has more than {} tokens.", limits::QUERY_TOKENS);
            return Err(error(code::SYNTAX, Span { start, end: start }, &message));
        }
        let Ok(kind) = token(&mut rest) else {
            let width = rest.chars().next().map_or(0, char::len_utf8);
            let near = &rest[..width];
            let message = format!("Syntax error, invalid token or text that does not end near '{near}'.");
            return Err(error(code::SYNTAX, Span { start, end: start + width }, &message));
        };
        tokens.push(Token { kind, span: Span { start, end: text.len() - rest.len() } });
    }
}

/// White space and comments.
fn space(rest: &mut &str) {
    loop {
        let before = rest.len();
        *rest = rest.trim_start();
        let comment: Result<_, winnow::error::EmptyError> =
            preceded(literal("--"), take_till(0.., '\n')).parse_next(rest);
        if comment.is_err() && rest.len() == before {
            return;
        }
    }
}

fn token<'a>(rest: &mut &'a str) -> winnow::Result<Kind<'a>, winnow::error::EmptyError> {
    alt((
        word.map(Kind::Word),
        ('@', word).take().map(Kind::Parameter),
        number.map(Kind::Number),
        quoted.map(Kind::Text),
        sign.map(Kind::Sign),
    ))
    .parse_next(rest)
}

fn word<'a>(rest: &mut &'a str) -> winnow::Result<&'a str, winnow::error::EmptyError> {
    let is_first = |letter: char| letter == '_' || letter == '$' || letter.is_alphabetic();
    let is_other = |letter: char| letter == '_' || letter == '$' || letter.is_alphanumeric();
    (take_while(1, is_first), take_while(0.., is_other)).take().parse_next(rest)
}

fn number(rest: &mut &str) -> winnow::Result<Number, winnow::error::EmptyError> {
    let hex = preceded(alt(("0x", "0X")), hex_digit1)
        .verify_map(|digits| i64::from_str_radix(digits, 16).ok().map(Number::Integer));
    let fraction = ('.', digit0);
    let exponent = (alt(('e', 'E')), opt(alt(('+', '-'))), digit1);
    let decimal = (alt(((digit1, opt(fraction)).take(), ('.', digit1).take())), opt(exponent))
        .take()
        .verify_map(|text: &str| {
            walk::number(text.as_bytes())
                .or_else(|| text.parse::<f64>().ok().filter(|double| double.is_finite()).map(Number::Double))
        });
    // `1x` is no number and no word.
    (alt((hex, decimal)), not(word)).map(|(number, ())| number).parse_next(rest)
}

/// A string in either kind of quotes, escapes as in JSON and `\'`.
fn quoted(rest: &mut &str) -> winnow::Result<String, winnow::error::EmptyError> {
    let text: &str = rest;
    let quote =
        text.chars().next().filter(|first| matches!(first, '"' | '\'')).ok_or(winnow::error::EmptyError)?;
    let mut at = 1;
    let bytes = text.as_bytes();
    let mut has_escapes = false;
    while *bytes.get(at).ok_or(winnow::error::EmptyError)? != quote as u8 {
        let is_escape = bytes[at] == b'\\';
        has_escapes |= is_escape;
        at += if is_escape { 2 } else { 1 };
    }
    let inside = text.get(1..at).ok_or(winnow::error::EmptyError)?;
    let read = if has_escapes {
        // JSON knows every escape but this one.
        let json = escape_apostrophes(inside);
        walk::name_text(json.as_bytes()).map_err(|_| winnow::error::EmptyError)?.into_owned()
    } else {
        inside.to_owned()
    };
    *rest = &text[at + 1..];
    Ok(read)
}

/// Makes `\'` plain, minding that `\\` is an escape of its own.
fn escape_apostrophes(inside: &str) -> String {
    let mut json = String::with_capacity(inside.len());
    let mut letters = inside.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('\'') => json.push('\''),
                Some(other) => json.extend(['\\', other]),
                None => json.push('\\'),
            },
            other => json.push(other),
        }
    }
    json
}

fn sign(rest: &mut &str) -> winnow::Result<&'static str, winnow::error::EmptyError> {
    let found = SIGNS.into_iter().chain([">"]).find(|sign| rest.starts_with(sign));
    let sign = found.ok_or(winnow::error::EmptyError)?;
    literal(sign).parse_next(rest)?;
    Ok(sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind<'_>> {
        tokens(text).unwrap().into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn literals_are_read() {
        //
        assert_eq!(
            kinds("'it\\'s' \"\\u0041\\\\\" 0xFF 1.5e3 .5 12 -- rest\n @p c"),
            [
                Kind::Text("it's".to_owned()),
                Kind::Text("A\\".to_owned()),
                Kind::Number(Number::Integer(255)),
                Kind::Number(Number::Double(1500.0)),
                Kind::Number(Number::Double(0.5)),
                Kind::Number(Number::Integer(12)),
                Kind::Parameter("@p"),
                Kind::Word("c"),
                Kind::End,
            ]
        );
        assert_eq!(kinds("a>>>b"), [Kind::Word("a"), Kind::Sign(">>>"), Kind::Word("b"), Kind::End]);
    }

    #[test]
    fn text_without_end_and_unknown_signs_are_refused_with_their_place() {
        let place = |text: &str| tokens(text).unwrap_err().to_string();
        assert!(place("SELECT 'abc").contains("\"start\":7,\"end\":8"));
        assert!(place("SELECT #").contains("\"start\":7,\"end\":8"));
        assert!(tokens("'\\q'").is_err());
        assert!(tokens("1x").is_err());
        assert!(tokens("'\\").is_err());
    }
}
