//! The language of SQL filters and actions: whether a text is one, and where it stops being one (S-201, S-205).
//!
//! A filter is an expression; whatever yields a value may stand where a truth is asked for, as what it yields is known
//! only when a message is there. Precedence, low to high: OR; AND; NOT; comparison, LIKE, IN, IS; + -; * / %; signs
//! (S-199). Texts come from clients, so nesting is bounded.

use crate::limits::{SQL_DEPTH, SQL_STATEMENTS};
use std::fmt;

/// Where a text is wrong, and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The first character is 1.
    pub at: usize,
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.at, self.what)
    }
}

/// Whether a text is a filter.
pub fn check_filter(text: &str) -> Result<(), Mistake> {
    let mut parser = Parser::new(text)?;
    parser.expression()?;
    parser.end()
}

/// Whether a text is an action: statements, one after the other, semicolons between them or not.
pub fn check_action(text: &str) -> Result<(), Mistake> {
    let mut parser = Parser::new(text)?;
    for count in 0.. {
        while parser.take_symbol(";") {}
        if parser.here().is_none() && count > 0 {
            break;
        }
        if count == SQL_STATEMENTS {
            return parser.wrong(&format!("there are more than {SQL_STATEMENTS} statements"));
        }
        parser.statement()?;
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A name or a keyword, as it was written.
    Word(String),
    /// A name in brackets or double quotes, which is never a keyword (S-191).
    Delimited,
    Text,
    Number,
    /// `@name`.
    Parameter,
    Symbol(&'static str),
}

/// Longer ones first.
const SYMBOLS: [&str; 18] =
    ["<>", "!=", ">=", "<=", "=", ">", "<", "+", "-", "*", "/", "%", "(", ")", ",", ".", ";", "@"];

/// Words that are not names unless they are delimited.
const KEYWORDS: [&str; 12] =
    ["AND", "OR", "NOT", "IS", "NULL", "IN", "LIKE", "ESCAPE", "EXISTS", "TRUE", "FALSE", "SET"];

/// Splits a text into tokens with the number of their first character.
fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Mistake> {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&first) = characters.get(at) {
        let begin = at;
        let rest = &characters[at..];
        let run = |is_part: fn(char) -> bool| rest.iter().take_while(|c| is_part(**c)).count();
        let is_digit = |c: Option<&char>| c.is_some_and(char::is_ascii_digit);
        let token = match first {
            _ if first.is_whitespace() => {
                at += 1;
                continue;
            }
            '\'' | '"' | '[' => {
                let end = if first == '[' { ']' } else { first };
                at += enclosed(rest, end).ok_or_else(|| Mistake {
                    at: begin + 1,
                    what: format!("what begins with {first} does not end with {end}"),
                })?;
                if first == '\'' { Token::Text } else { Token::Delimited }
            }
            _ if is_digit(Some(&first)) || first == '.' && is_digit(rest.get(1)) => {
                at += number(rest);
                if characters.get(at).is_some_and(|c| is_word(*c)) {
                    let what = "a number ends in letters".to_owned();
                    return Err(Mistake { at: begin + 1, what });
                }
                Token::Number
            }
            '@' if rest.get(1).is_some_and(|c| is_word(*c)) => {
                at += 1 + rest[1..].iter().take_while(|c| is_word(**c)).count();
                Token::Parameter
            }
            _ if is_word(first) => {
                at += run(is_word);
                Token::Word(characters[begin..at].iter().collect())
            }
            _ => {
                let symbol = SYMBOLS
                    .into_iter()
                    .find(|symbol| symbol.chars().enumerate().all(|(nth, c)| rest.get(nth) == Some(&c)));
                let what = || format!("the character '{first}' has no meaning here");
                let symbol = symbol.ok_or_else(|| Mistake { at: begin + 1, what: what() })?;
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

/// Characters of what begins here, up to the `end` that is not doubled.
fn enclosed(characters: &[char], end: char) -> Option<usize> {
    let mut at = 1;
    loop {
        match (characters.get(at)?, characters.get(at + 1)) {
            (here, Some(next)) if *here == end && *next == end => at += 2,
            (here, _) if *here == end => return Some(at + 1),
            _ => at += 1,
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

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    /// Characters of the whole text.
    length: usize,
    depth: usize,
}

type Checked = Result<(), Mistake>;

impl Parser {
    fn new(text: &str) -> Result<Parser, Mistake> {
        Ok(Parser { tokens: tokens(text)?, next: 0, length: text.chars().count(), depth: 0 })
    }

    fn here(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    fn wrong(&self, what: &str) -> Checked {
        let at = self.tokens.get(self.next).map_or(self.length + 1, |(at, _)| *at);
        Err(Mistake { at, what: what.to_owned() })
    }

    fn end(&self) -> Checked {
        match self.here() {
            None => Ok(()),
            Some(_) => self.wrong("the expression is over and more follows"),
        }
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let is_here = matches!(self.here(), Some(Token::Symbol(here)) if *here == symbol);
        self.next += usize::from(is_here);
        is_here
    }

    fn take_one_of(&mut self, symbols: &[&str]) -> bool {
        symbols.iter().any(|symbol| self.take_symbol(symbol))
    }

    fn is_keyword(&self, keyword: &str) -> bool {
        matches!(self.here(), Some(Token::Word(word)) if word.eq_ignore_ascii_case(keyword))
    }

    fn take_keyword(&mut self, keyword: &str) -> bool {
        let is_here = self.is_keyword(keyword);
        self.next += usize::from(is_here);
        is_here
    }

    fn expect(&mut self, symbol: &str) -> Checked {
        if self.take_symbol(symbol) { Ok(()) } else { self.wrong(&format!("a {symbol} is missing")) }
    }

    fn statement(&mut self) -> Checked {
        if self.take_keyword("SET") {
            self.property()?;
            self.expect("=")?;
            self.expression()
        } else if self.take_keyword("REMOVE") {
            self.property()
        } else {
            self.wrong("a statement begins with SET or REMOVE")
        }
    }

    fn expression(&mut self) -> Checked {
        self.depth += 1;
        if self.depth > SQL_DEPTH {
            return self.wrong(&format!("it is nested deeper than {SQL_DEPTH}"));
        }
        self.conjunction()?;
        while self.take_keyword("OR") {
            self.conjunction()?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn conjunction(&mut self) -> Checked {
        self.negation()?;
        while self.take_keyword("AND") {
            self.negation()?;
        }
        Ok(())
    }

    fn negation(&mut self) -> Checked {
        while self.take_keyword("NOT") {}
        self.comparison()
    }

    fn comparison(&mut self) -> Checked {
        self.sum()?;
        if self.take_one_of(&["=", "<>", "!=", ">=", ">", "<=", "<"]) {
            return self.sum();
        }
        if self.take_keyword("IS") {
            self.take_keyword("NOT");
            return if self.take_keyword("NULL") { Ok(()) } else { self.wrong("IS asks for NULL") };
        }
        let is_not = self.take_keyword("NOT");
        if self.take_keyword("LIKE") {
            self.sum()?;
            return if self.take_keyword("ESCAPE") { self.sum() } else { Ok(()) };
        }
        if self.take_keyword("IN") {
            self.expect("(")?;
            self.expression()?;
            while self.take_symbol(",") {
                self.expression()?;
            }
            return self.expect(")");
        }
        if is_not { self.wrong("behind a value, NOT asks for LIKE or IN") } else { Ok(()) }
    }

    fn sum(&mut self) -> Checked {
        self.product()?;
        while self.take_one_of(&["+", "-"]) {
            self.product()?;
        }
        Ok(())
    }

    fn product(&mut self) -> Checked {
        self.signed()?;
        while self.take_one_of(&["*", "/", "%"]) {
            self.signed()?;
        }
        Ok(())
    }

    fn signed(&mut self) -> Checked {
        while self.take_one_of(&["+", "-"]) {}
        self.value()
    }

    fn value(&mut self) -> Checked {
        if self.take_symbol("(") {
            self.expression()?;
            return self.expect(")");
        }
        if let Some(Token::Number | Token::Text | Token::Parameter) = self.here() {
            self.next += 1;
            return Ok(());
        }
        if ["TRUE", "FALSE", "NULL"].iter().any(|constant| self.take_keyword(constant)) {
            return Ok(());
        }
        if self.take_keyword("EXISTS") {
            self.expect("(")?;
            self.property()?;
            return self.expect(")");
        }
        match (self.here(), self.tokens.get(self.next + 1)) {
            (Some(Token::Word(name)), Some((_, Token::Symbol("(")))) => {
                let name = name.to_ascii_lowercase();
                self.function(&name)
            }
            _ => self.property(),
        }
    }

    fn function(&mut self, name: &str) -> Checked {
        if !matches!(name, "newid" | "property" | "p") {
            return self.wrong("there is no function of this name; there are newid, property and p");
        }
        self.next += 1;
        self.expect("(")?;
        if name != "newid" {
            self.expression()?;
        }
        self.expect(")")
    }

    /// A name, perhaps behind its scope (S-190, S-202).
    fn property(&mut self) -> Checked {
        let is_scope = self.is_keyword("sys") || self.is_keyword("user");
        self.name()?;
        if matches!(self.here(), Some(Token::Symbol("."))) {
            if !is_scope {
                return self.wrong("only sys and user stand before a dot; put a name with dots into [ ]");
            }
            self.next += 1;
            return self.name();
        }
        Ok(())
    }

    fn name(&mut self) -> Checked {
        match self.here() {
            Some(Token::Delimited) => {}
            Some(Token::Word(word)) if !KEYWORDS.iter().any(|known| word.eq_ignore_ascii_case(known)) => {}
            Some(_) => return self.wrong("a value or the name of a property is missing"),
            None => return self.wrong("it ends where a value or the name of a property is missing"),
        }
        self.next += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // S-190 to S-194, S-199, S-202, S-203
    #[test]
    fn what_clients_write_is_a_filter() {
        for text in [
            "1=1",
            "1 = 0",
            "color = 'blue' AND quantity > 10",
            "sys.Label LIKE '%o''clock%' ESCAPE '\\'",
            "[NServiceBus.EnclosedMessageTypes] LIKE '%My.Event%'",
            "user.a IS NOT NULL or not exists(b)",
            "a NOT IN ('x', 'y', @z) and b in (1)",
            "\"a \"\" b\" <> [c ]] d] or (x + 2) * -3.5E-2 % 4 <= .5",
            "property('a.b') != p(c) AND newid() = newid()",
            "NOT NOT (TRUE) AND FALSE OR NULL IS NULL",
            "Größe_1 >= 1e10",
            "urgent",
            "MyProperty = @p1 AND x=-1",
        ] {
            assert_eq!(check_filter(text), Ok(()), "{text}");
        }
    }

    // S-201
    #[test]
    fn what_is_none_is_told_where_it_goes_wrong() {
        for (text, at, what) in [
            ("", 1, "it ends where a value"),
            ("a =", 4, "it ends where a value"),
            ("a = = 1", 5, "a value or the name"),
            ("a = 'open", 5, "does not end with '"),
            ("[a = 1", 1, "does not end with ]"),
            ("(a = 1", 7, "a ) is missing"),
            ("a = 1)", 6, "more follows"),
            ("a = 1 b = 2", 7, "more follows"),
            ("a AND", 6, "it ends where a value"),
            ("a.b = 1", 2, "only sys and user"),
            ("a ! 1", 3, "'!' has no meaning"),
            ("a # 1", 3, "'#' has no meaning"),
            ("a IS 1", 6, "IS asks for NULL"),
            ("a NOT = 1", 7, "LIKE or IN"),
            ("a IN 1", 6, "a ( is missing"),
            ("a IN ()", 7, "a value or the name"),
            ("f(1) = 1", 1, "no function"),
            ("newid(1)", 7, "a ) is missing"),
            ("exists('a')", 8, "the name of a property"),
            ("1a = 1", 1, "a number ends in letters"),
            ("@ = 1", 1, "a value or the name"),
            ("like = 1", 1, "a value or the name"),
            ("SET a = 1", 1, "a value or the name"),
        ] {
            let mistake = check_filter(text).expect_err(text);
            assert_eq!(mistake.at, at, "{text}: {mistake}");
            assert!(mistake.what.contains(what), "{text}: {mistake}");
        }
    }

    // S-205
    #[test]
    fn an_action_sets_and_removes() {
        let many = |count: usize| "SET a = 1 ".repeat(count);
        for text in [
            "SET a = 1",
            "set sys.Label='x'; REMOVE b;",
            "SET a=a+1 SET [b.c]=newid() remove user.d",
            ";SET a=1",
        ] {
            assert_eq!(check_action(text), Ok(()), "{text}");
        }
        assert_eq!(check_action(&many(SQL_STATEMENTS)), Ok(()));
        for (text, what) in [
            ("", "SET or REMOVE"),
            ("a = 1", "SET or REMOVE"),
            ("SET a", "a = is missing"),
            ("SET = 1", "the name of a property"),
            ("REMOVE 'a'", "the name of a property"),
            ("SET a = 1, b = 2", "SET or REMOVE"),
            (&many(SQL_STATEMENTS + 1), "more than 32 statements"),
        ] {
            let mistake = check_action(text).expect_err(text);
            assert!(mistake.what.contains(what), "{text}: {mistake}");
        }
    }

    #[test]
    fn nesting_ends_somewhere() {
        let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
        assert_eq!(check_filter(&nested(SQL_DEPTH - 1)), Ok(()));
        assert!(check_filter(&nested(SQL_DEPTH)).expect_err("refused").what.contains("deeper"));
        assert!(check_filter(&"(".repeat(1_024)).is_err());
        assert_eq!(check_filter(&format!("{}a", "NOT ".repeat(255))), Ok(()));
        assert_eq!(check_filter(&format!("{}1", "-".repeat(1_000))), Ok(()));
    }
}
