//! The grammar of SQL filters and actions: what a text means, or where it stops meaning anything (S-201, S-205).
//!
//! A filter is an expression; whatever yields a value may stand where a truth is asked for, as what it yields is known
//! only when a message is there. Precedence, low to high: OR; AND; NOT; comparison, LIKE, IN, IS; + -; * / %; signs
//! (S-199). Texts come from clients, so nesting is bounded.

use super::expression::{Arithmetic, Comparison, Expression, Like, Property, Statement, System};
use super::rule::{Sql, Typed};
use super::scalar::Scalar;
use super::tokens::{Token, tokens};
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
pub fn check_filter(sql: &Sql) -> Result<(), Mistake> {
    filter(sql).map(drop)
}

/// Whether a text is an action.
pub fn check_action(sql: &Sql) -> Result<(), Mistake> {
    action(sql).map(drop)
}

pub(super) fn filter(sql: &Sql) -> Result<Expression, Mistake> {
    let mut parser = Parser::new(sql)?;
    let expression = parser.expression()?;
    match parser.here() {
        None => Ok(expression),
        Some(_) => parser.wrong("the expression is over and more follows"),
    }
}

/// Statements, one after the other, semicolons between them or not.
pub(super) fn action(sql: &Sql) -> Result<Vec<Statement>, Mistake> {
    let mut parser = Parser::new(sql)?;
    let mut statements = Vec::new();
    loop {
        while parser.take_symbol(";") {}
        if parser.here().is_none() && !statements.is_empty() {
            return Ok(statements);
        }
        if statements.len() == SQL_STATEMENTS {
            return parser.wrong(&format!("there are more than {SQL_STATEMENTS} statements"));
        }
        statements.push(parser.statement()?);
    }
}

/// Words that are not names unless they are delimited.
const KEYWORDS: [&str; 12] =
    ["AND", "OR", "NOT", "IS", "NULL", "IN", "LIKE", "ESCAPE", "EXISTS", "TRUE", "FALSE", "SET"];

const COMPARISONS: [(&str, Comparison); 7] = [
    ("=", Comparison::Equal),
    ("<>", Comparison::Different),
    ("!=", Comparison::Different),
    (">=", Comparison::AtLeast),
    (">", Comparison::Greater),
    ("<=", Comparison::AtMost),
    ("<", Comparison::Less),
];

const SUMS: [(&str, Arithmetic); 2] = [("+", Arithmetic::Plus), ("-", Arithmetic::Minus)];

const PRODUCTS: [(&str, Arithmetic); 3] =
    [("*", Arithmetic::Times), ("/", Arithmetic::Divided), ("%", Arithmetic::Modulo)];

struct Parser<'a> {
    tokens: Vec<(usize, Token)>,
    next: usize,
    /// Characters of the whole text.
    length: usize,
    depth: usize,
    parameters: &'a [(Box<str>, Typed)],
}

type Parsed<T = Expression> = Result<T, Mistake>;

impl<'a> Parser<'a> {
    fn new(sql: &'a Sql) -> Result<Parser<'a>, Mistake> {
        let text = &sql.expression;
        let (tokens, length) = (tokens(text)?, text.chars().count());
        Ok(Parser { tokens, next: 0, length, depth: 0, parameters: &sql.parameters })
    }

    fn here(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    fn wrong<T>(&self, what: &str) -> Parsed<T> {
        let at = self.tokens.get(self.next).map_or(self.length + 1, |(at, _)| *at);
        Err(Mistake { at, what: what.to_owned() })
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let is_here = matches!(self.here(), Some(Token::Symbol(here)) if *here == symbol);
        self.next += usize::from(is_here);
        is_here
    }

    fn take_one_of<T: Copy>(&mut self, symbols: &[(&str, T)]) -> Option<T> {
        symbols.iter().find(|(symbol, _)| self.take_symbol(symbol)).map(|(_, meaning)| *meaning)
    }

    fn is_keyword(&self, keyword: &str) -> bool {
        matches!(self.here(), Some(Token::Word(word)) if word.eq_ignore_ascii_case(keyword))
    }

    fn take_keyword(&mut self, keyword: &str) -> bool {
        let is_here = self.is_keyword(keyword);
        self.next += usize::from(is_here);
        is_here
    }

    fn expect(&mut self, symbol: &str) -> Parsed<()> {
        if self.take_symbol(symbol) { Ok(()) } else { self.wrong(&format!("a {symbol} is missing")) }
    }

    fn statement(&mut self) -> Parsed<Statement> {
        if self.take_keyword("SET") {
            let property = self.property()?;
            self.expect("=")?;
            Ok(Statement::Set(property, self.expression()?))
        } else if self.take_keyword("REMOVE") {
            Ok(Statement::Remove(self.property()?))
        } else {
            self.wrong("a statement begins with SET or REMOVE")
        }
    }

    fn expression(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > SQL_DEPTH {
            return self.wrong(&format!("it is nested deeper than {SQL_DEPTH}"));
        }
        let chain = self.chain("OR", Parser::conjunction)?;
        self.depth -= 1;
        Ok(one_or(chain, Expression::Or))
    }

    fn conjunction(&mut self) -> Parsed {
        Ok(one_or(self.chain("AND", Parser::negation)?, Expression::And))
    }

    fn chain(&mut self, keyword: &str, part: fn(&mut Parser<'a>) -> Parsed) -> Parsed<Vec<Expression>> {
        let mut chain = vec![part(self)?];
        while self.take_keyword(keyword) {
            chain.push(part(self)?);
        }
        Ok(chain)
    }

    fn negation(&mut self) -> Parsed {
        let mut is_not = false;
        while self.take_keyword("NOT") {
            is_not = !is_not;
        }
        Ok(negated(is_not, self.comparison()?))
    }

    fn comparison(&mut self) -> Parsed {
        let left = self.sum()?;
        if let Some(comparison) = self.take_one_of(&COMPARISONS) {
            return Ok(Expression::Comparison(comparison, Box::new([left, self.sum()?])));
        }
        if self.take_keyword("IS") {
            let is_not = self.take_keyword("NOT");
            return match self.take_keyword("NULL") {
                true => Ok(negated(is_not, Expression::IsNull(Box::new(left)))),
                false => self.wrong("IS asks for NULL"),
            };
        }
        let is_not = self.take_keyword("NOT");
        if self.take_keyword("LIKE") {
            let pattern = self.sum()?;
            let escape = if self.take_keyword("ESCAPE") { Some(self.sum()?) } else { None };
            return Ok(negated(is_not, Expression::Like(Box::new(Like { value: left, pattern, escape }))));
        }
        if self.take_keyword("IN") {
            self.expect("(")?;
            let mut list = vec![self.expression()?];
            while self.take_symbol(",") {
                list.push(self.expression()?);
            }
            self.expect(")")?;
            return Ok(negated(is_not, Expression::In(Box::new(left), list)));
        }
        if is_not { self.wrong("behind a value, NOT asks for LIKE or IN") } else { Ok(left) }
    }

    fn sum(&mut self) -> Parsed {
        self.arithmetic(&SUMS, Parser::product)
    }

    fn product(&mut self) -> Parsed {
        self.arithmetic(&PRODUCTS, Parser::signed)
    }

    fn arithmetic(
        &mut self,
        operators: &[(&str, Arithmetic)],
        part: fn(&mut Parser<'a>) -> Parsed,
    ) -> Parsed {
        let mut left = part(self)?;
        while let Some(operator) = self.take_one_of(operators) {
            left = Expression::Arithmetic(operator, Box::new([left, part(self)?]));
        }
        Ok(left)
    }

    fn signed(&mut self) -> Parsed {
        let mut is_negative = false;
        while let Some(sign) = self.take_one_of(&SUMS) {
            is_negative ^= sign == Arithmetic::Minus;
        }
        let value = self.value()?;
        Ok(match value {
            // A parameter may be the one number that has no opposite: that is an error when it is evaluated.
            Expression::Constant(Scalar::Integer(number)) if is_negative && number != i64::MIN => {
                Expression::Constant(Scalar::Integer(-number))
            }
            value if is_negative => Expression::Negative(Box::new(value)),
            value => value,
        })
    }

    fn value(&mut self) -> Parsed {
        if self.take_symbol("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if let Some(constant) = self.constant() {
            self.next += 1;
            return Ok(constant);
        }
        if self.take_keyword("EXISTS") {
            self.expect("(")?;
            let property = self.property()?;
            self.expect(")")?;
            return Ok(Expression::Exists(property));
        }
        match (self.here(), self.tokens.get(self.next + 1)) {
            (Some(Token::Word(name)), Some((_, Token::Symbol("(")))) => {
                let name = name.to_ascii_lowercase();
                self.function(&name)
            }
            _ => self.property().map(Expression::Property),
        }
    }

    /// What stands here, if it is a value of its own.
    fn constant(&self) -> Option<Expression> {
        let constant = match self.here()? {
            Token::Integer(number) => Scalar::Integer(*number),
            Token::Real(number) => Scalar::Real(*number),
            Token::Text(text) => Scalar::text(text.clone()),
            Token::Parameter(name) => {
                let value = self.parameters.iter().find(|(known, _)| is_parameter(known, name));
                return Some(match value {
                    Some((_, value)) => Expression::Constant(Scalar::typed(value)),
                    None => Expression::Unset(name.as_str().into()),
                });
            }
            Token::Word(_) if self.is_keyword("TRUE") => Scalar::Truth(true),
            Token::Word(_) if self.is_keyword("FALSE") => Scalar::Truth(false),
            Token::Word(_) if self.is_keyword("NULL") => Scalar::Unknown,
            Token::Word(_) | Token::Delimited(_) | Token::Symbol(_) => return None,
        };
        Some(Expression::Constant(constant))
    }

    fn function(&mut self, name: &str) -> Parsed {
        if !matches!(name, "newid" | "property" | "p") {
            return self.wrong("there is no function of this name; there are newid, property and p");
        }
        self.next += 1;
        self.expect("(")?;
        let function = match name {
            "newid" => Expression::NewId,
            _ => Expression::PropertyNamed(Box::new(self.expression()?)),
        };
        self.expect(")")?;
        Ok(function)
    }

    /// A name, perhaps behind its scope (S-190, S-202).
    fn property(&mut self) -> Parsed<Property> {
        let (is_system, is_user) = (self.is_keyword("sys"), self.is_keyword("user"));
        let name = self.name()?;
        if !matches!(self.here(), Some(Token::Symbol("."))) {
            return Ok(Property::User(name));
        }
        if !is_system && !is_user {
            return self.wrong("only sys and user stand before a dot; put a name with dots into [ ]");
        }
        self.next += 1;
        let name = self.name()?;
        Ok(if is_system { Property::System(System::named(&name)) } else { Property::User(name) })
    }

    fn name(&mut self) -> Parsed<Box<str>> {
        let name: Box<str> = match self.here() {
            Some(Token::Delimited(name)) => name.as_str().into(),
            Some(Token::Word(word)) if !KEYWORDS.iter().any(|known| word.eq_ignore_ascii_case(known)) => {
                word.as_str().into()
            }
            Some(_) => return self.wrong("a value or the name of a property is missing"),
            None => return self.wrong("it ends where a value or the name of a property is missing"),
        };
        self.next += 1;
        Ok(name)
    }
}

/// Clients name a parameter with its sign or without (S-193).
fn is_parameter(known: &str, name: &str) -> bool {
    known.strip_prefix('@').unwrap_or(known).eq_ignore_ascii_case(name)
}

fn one_or(mut chain: Vec<Expression>, many: fn(Vec<Expression>) -> Expression) -> Expression {
    match chain.pop() {
        Some(only) if chain.is_empty() => only,
        last => {
            chain.extend(last);
            many(chain)
        }
    }
}

fn negated(is_not: bool, expression: Expression) -> Expression {
    if is_not { Expression::Not(Box::new(expression)) } else { expression }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_filter(text: &str) -> Result<(), Mistake> {
        super::check_filter(&Sql { expression: text.into(), parameters: Vec::new() })
    }

    fn check_action(text: &str) -> Result<(), Mistake> {
        super::check_action(&Sql { expression: text.into(), parameters: Vec::new() })
    }

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
