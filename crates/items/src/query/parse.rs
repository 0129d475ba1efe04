//! From tokens to the tree of a query (13.1).
//!
//! The parser descends recursively, so nesting is counted: every bracket, sub-query and operator that makes the tree deeper takes from
//! the same budget, and what walks the tree later is as deep at most. Chains of AND and OR are flat.

use super::error::{Span, code, error};
use super::lex::{Kind, Token, tokens};
use super::syntax::{Binary, Expr, ExprKind, From, FromSource, Item, Select, Selection, Sort, Unary};
use crate::json::Value;
use crate::limits;
use crate::refusal::Refusal;

/// Words that name nothing unless they are quoted or stand behind a dot.
const RESERVED: [&str; 31] = [
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "DESC",
    "DISTINCT",
    "ESCAPE",
    "EXISTS",
    "FALSE",
    "FROM",
    "GROUP",
    "IN",
    "JOIN",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "OR",
    "ORDER",
    "SELECT",
    "TOP",
    "TRUE",
    "UNDEFINED",
    "VALUE",
    "WHERE",
    "ARRAY",
    "UDF",
    "RANK",
    "HAVING",
];

/// Reads a whole query.
pub fn query(text: &str) -> Result<Select, Refusal> {
    let mut parser = Parser::new(text)?;
    let select = parser.select()?;
    parser.end()?;
    Ok(select)
}

/// Reads the condition of a patch: `from c where ...` (P-55), or a whole query.
pub fn condition(text: &str) -> Result<Select, Refusal> {
    let mut parser = Parser::new(text)?;
    let select = if parser.is_word("SELECT") {
        parser.select()?
    } else {
        let one = Expr { kind: ExprKind::Literal(Value::integer(1)), span: Span::default() };
        parser.body(false, None, Selection::Value(Box::new(one)), Span::default())?
    };
    parser.end()?;
    Ok(select)
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Parser<'a>, Refusal> {
        if text.len() > limits::QUERY_BYTES {
            let span = Span { start: limits::QUERY_BYTES, end: text.len() };
            return Err(error(code::TOO_LARGE, span, "The SQL query text exceeded the maximum limit."));
        }
        Ok(Parser { text, tokens: tokens(text)?, at: 0, depth: 0 })
    }

    fn token(&self) -> &Token<'a> {
        // The last token is `End` and is never passed.
        &self.tokens[self.at]
    }

    fn span(&self) -> Span {
        self.token().span
    }

    /// The span of the token before.
    fn passed(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    fn advance(&mut self) {
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
    }

    fn wrong<T>(&self) -> Result<T, Refusal> {
        let span = self.span();
        let near = &self.text[span.start..span.end];
        let near: String = near.chars().take(limits::ERROR_QUOTE).collect();
        let message = if near.is_empty() {
            "Syntax error, incorrect syntax near the end of the query.".to_owned()
        } else {
            format!("Syntax error, incorrect syntax near '{near}'.")
        };
        Err(error(code::SYNTAX, span, &message))
    }

    fn end(&self) -> Result<(), Refusal> {
        if self.token().kind == Kind::End { Ok(()) } else { self.wrong() }
    }

    fn is_word(&self, keyword: &str) -> bool {
        matches!(self.token().kind, Kind::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    fn word(&mut self, keyword: &str) -> bool {
        let is_it = self.is_word(keyword);
        if is_it {
            self.advance();
        }
        is_it
    }

    fn need_word(&mut self, keyword: &str) -> Result<(), Refusal> {
        if self.word(keyword) { Ok(()) } else { self.wrong() }
    }

    fn is_sign(&self, wanted: &str) -> bool {
        matches!(self.token().kind, Kind::Sign(sign) if sign == wanted)
    }

    fn sign(&mut self, wanted: &str) -> bool {
        let is_it = self.is_sign(wanted);
        if is_it {
            self.advance();
        }
        is_it
    }

    fn need_sign(&mut self, wanted: &str) -> Result<(), Refusal> {
        if self.sign(wanted) { Ok(()) } else { self.wrong() }
    }

    /// One level deeper, for as long as `inside` runs.
    fn deeper<T>(&mut self, inside: impl FnOnce(&mut Self) -> Result<T, Refusal>) -> Result<T, Refusal> {
        self.deeper_by(1)?;
        let result = inside(self);
        self.depth -= 1;
        result
    }

    fn deeper_by(&mut self, levels: usize) -> Result<(), Refusal> {
        self.depth += levels;
        if self.depth > limits::QUERY_DEPTH {
            let message = format!("The query is nested deeper than {} levels.", limits::QUERY_DEPTH);
            return Err(error(code::TOO_LARGE, self.span(), &message));
        }
        Ok(())
    }

    fn is_name(&self) -> bool {
        matches!(self.token().kind, Kind::Word(word) if !is_reserved(word))
    }

    /// A name that is no keyword.
    fn name(&mut self) -> Result<String, Refusal> {
        match self.token().kind {
            Kind::Word(word) if !is_reserved(word) => {
                self.advance();
                Ok(word.to_owned())
            }
            _ => self.wrong(),
        }
    }

    fn select(&mut self) -> Result<Select, Refusal> {
        let start = self.span();
        self.need_word("SELECT")?;
        let is_distinct = self.word("DISTINCT");
        let top_at = self.span();
        let top = if self.word("TOP") { Some((self.primary()?, top_at)) } else { None };
        let selection = if self.is_sign("*") {
            let span = self.span();
            self.advance();
            Selection::Star(span)
        } else if self.word("VALUE") {
            Selection::Value(Box::new(self.expr()?))
        } else {
            let mut items = vec![self.item()?];
            while self.sign(",") {
                items.push(self.item()?);
            }
            Selection::List(items)
        };
        self.body(is_distinct, top, selection, start)
    }

    fn item(&mut self) -> Result<Item, Refusal> {
        let value = self.expr()?;
        let alias = if self.word("AS") {
            // An alias may be a keyword: `AS value`.
            match self.token().kind.clone() {
                Kind::Word(word) => {
                    self.advance();
                    Some(word.to_owned())
                }
                Kind::Text(text) => {
                    self.advance();
                    Some(text)
                }
                _ => return self.wrong(),
            }
        } else if self.is_name() {
            Some(self.name()?)
        } else {
            None
        };
        Ok(Item { value, alias })
    }

    /// Everything behind the selection.
    fn body(
        &mut self,
        is_distinct: bool,
        top: Option<(Expr, Span)>,
        selection: Selection,
        start: Span,
    ) -> Result<Select, Refusal> {
        let mut from = Vec::new();
        if self.word("FROM") {
            from.push(self.from()?);
            while self.word("JOIN") {
                if from.len() > limits::QUERY_JOINS {
                    let message =
                        format!("The query exceeded the maximum number of joins: {}.", limits::QUERY_JOINS);
                    return Err(error(code::TOO_LARGE, self.passed(), &message));
                }
                from.push(self.from()?);
            }
        }
        let filter = if self.word("WHERE") { Some(self.expr()?) } else { None };
        let mut group = Vec::new();
        if self.word("GROUP") {
            self.need_word("BY")?;
            group = self.list(&mut |parser| parser.expr())?;
        }
        let mut order = Vec::new();
        if self.word("ORDER") {
            self.need_word("BY")?;
            let is_rank = self.word("RANK");
            order = self.list(&mut |parser| parser.sort(is_rank))?;
        }
        let at = self.span();
        let slice = if self.word("OFFSET") {
            let offset = self.primary()?;
            self.need_word("LIMIT")?;
            Some((offset, self.primary()?, at))
        } else {
            None
        };
        let span = start.to(self.passed());
        Ok(Select { is_distinct, top, selection, from, filter, group, order, slice, span })
    }

    fn list<T>(&mut self, one: &mut dyn FnMut(&mut Self) -> Result<T, Refusal>) -> Result<Vec<T>, Refusal> {
        let mut list = vec![one(self)?];
        while self.sign(",") {
            list.push(one(self)?);
        }
        Ok(list)
    }

    fn sort(&mut self, is_rank: bool) -> Result<Sort, Refusal> {
        let value = self.expr()?;
        let is_descending = self.word("DESC");
        let has_direction = is_descending || self.word("ASC");
        Ok(Sort { value, is_descending, has_direction, is_rank })
    }

    fn from(&mut self) -> Result<From, Refusal> {
        let start = self.span();
        let is_each = self.is_name()
            && matches!(self.tokens.get(self.at + 1).map(|token| &token.kind),
                Some(Kind::Word(word)) if word.eq_ignore_ascii_case("IN"));
        if is_each {
            let alias = self.name()?;
            self.need_word("IN")?;
            let source = self.source()?;
            return Ok(From { source, alias: Some(alias), is_each, span: start.to(self.passed()) });
        }
        let source = self.source()?;
        let alias = if self.word("AS") || self.is_name() { Some(self.name()?) } else { None };
        Ok(From { source, alias, is_each, span: start.to(self.passed()) })
    }

    fn source(&mut self) -> Result<FromSource, Refusal> {
        if self.sign("(") {
            let select = self.deeper(Self::select)?;
            self.need_sign(")")?;
            return Ok(FromSource::Query(Box::new(select)));
        }
        let span = self.span();
        let name = self.name()?;
        let mut path = Expr { kind: ExprKind::Name(name), span };
        let mut steps = 0;
        while self.is_sign(".") || self.is_sign("[") {
            path = self.step(path)?;
            steps += 1;
            self.deeper_by(1)?;
        }
        self.depth -= steps;
        Ok(FromSource::Path(Box::new(path)))
    }

    /// `.name` or `[expression]` behind a value.
    fn step(&mut self, value: Expr) -> Result<Expr, Refusal> {
        let start = value.span;
        if self.sign(".") {
            let Kind::Word(word) = self.token().kind else { return self.wrong() };
            self.advance();
            let kind = ExprKind::Member(Box::new(value), word.to_owned());
            return Ok(Expr { kind, span: start.to(self.passed()) });
        }
        self.need_sign("[")?;
        let index = self.expr()?;
        self.need_sign("]")?;
        let kind = match index.kind {
            ExprKind::Literal(Value::String(name)) => ExprKind::Member(Box::new(value), name),
            _ => ExprKind::Index(Box::new(value), Box::new(index)),
        };
        Ok(Expr { kind, span: start.to(self.passed()) })
    }

    fn expr(&mut self) -> Result<Expr, Refusal> {
        self.deeper(|parser| {
            let condition = parser.coalesce()?;
            if !parser.sign("?") {
                return Ok(condition);
            }
            let yes = parser.expr()?;
            parser.need_sign(":")?;
            let no = parser.expr()?;
            let span = condition.span.to(no.span);
            Ok(Expr { kind: ExprKind::Choice(Box::new(condition), Box::new(yes), Box::new(no)), span })
        })
    }

    fn coalesce(&mut self) -> Result<Expr, Refusal> {
        let mut left = self.or()?;
        let mut levels = 0;
        while self.sign("??") {
            let right = self.or()?;
            let span = left.span.to(right.span);
            left = Expr { kind: ExprKind::Coalesce(Box::new(left), Box::new(right)), span };
            levels += 1;
            self.deeper_by(1)?;
        }
        self.depth -= levels;
        Ok(left)
    }

    fn or(&mut self) -> Result<Expr, Refusal> {
        let first = self.and()?;
        let mut parts = vec![first];
        while self.word("OR") {
            parts.push(self.and()?);
        }
        Ok(flat(parts, ExprKind::Or))
    }

    fn and(&mut self) -> Result<Expr, Refusal> {
        let first = self.not()?;
        let mut parts = vec![first];
        while self.word("AND") {
            parts.push(self.not()?);
        }
        Ok(flat(parts, ExprKind::And))
    }

    /// NOT takes a whole comparison: `NOT c.a = 1` is `NOT (c.a = 1)`.
    fn not(&mut self) -> Result<Expr, Refusal> {
        let start = self.span();
        if !self.word("NOT") {
            return self.comparison();
        }
        let value = self.deeper(Self::not)?;
        let span = start.to(value.span);
        Ok(Expr { kind: ExprKind::Unary(Unary::Not, Box::new(value)), span })
    }

    /// Comparisons, and IN, BETWEEN, LIKE, which stand on the same level.
    fn comparison(&mut self) -> Result<Expr, Refusal> {
        let mut left = self.binary(0)?;
        let mut levels = 0;
        loop {
            let is_negated = self.is_word("NOT");
            if is_negated {
                self.advance();
            }
            let start = left.span;
            let kind = if self.word("IN") {
                ExprKind::In(Box::new(left), self.in_list()?)
            } else if self.word("BETWEEN") {
                let low = self.binary(0)?;
                self.need_word("AND")?;
                ExprKind::Between(Box::new(left), Box::new(low), Box::new(self.binary(0)?))
            } else if self.word("LIKE") {
                let pattern = self.binary(0)?;
                let escape = if self.word("ESCAPE") { Some(self.escape()?) } else { None };
                ExprKind::Like(Box::new(left), Box::new(pattern), escape)
            } else if is_negated {
                return self.wrong();
            } else if let Some(operator) = self.compare_operator() {
                self.advance();
                ExprKind::Binary(operator, Box::new(left), Box::new(self.binary(0)?))
            } else {
                self.depth -= levels;
                return Ok(left);
            };
            let span = start.to(self.passed());
            left = Expr { kind, span };
            if is_negated {
                left = Expr { kind: ExprKind::Unary(Unary::Not, Box::new(left)), span };
                levels += 1;
                self.deeper_by(1)?;
            }
            levels += 1;
            self.deeper_by(1)?;
        }
    }

    fn in_list(&mut self) -> Result<Vec<Expr>, Refusal> {
        self.need_sign("(")?;
        let list = self.list(&mut |parser| parser.expr())?;
        if list.len() > limits::QUERY_IN_LIST {
            let message = format!("The IN list has more than {} entries.", limits::QUERY_IN_LIST);
            return Err(error(code::TOO_LARGE, self.span(), &message));
        }
        self.need_sign(")")?;
        Ok(list)
    }

    fn escape(&mut self) -> Result<char, Refusal> {
        if let Kind::Text(text) = &self.token().kind {
            let mut letters = text.chars();
            if let (Some(letter), None) = (letters.next(), letters.next()) {
                self.advance();
                return Ok(letter);
            }
        }
        self.wrong()
    }

    fn compare_operator(&self) -> Option<Binary> {
        let Kind::Sign(sign) = self.token().kind else { return None };
        Some(match sign {
            "=" => Binary::Equal,
            "!=" | "<>" => Binary::NotEqual,
            "<" => Binary::Less,
            "<=" => Binary::LessOrEqual,
            ">" => Binary::Greater,
            ">=" => Binary::GreaterOrEqual,
            _ => return None,
        })
    }

    /// Operators of arithmetic and bits, by binding power.
    fn binary(&mut self, least: u8) -> Result<Expr, Refusal> {
        let mut left = self.unary()?;
        let mut levels = 0;
        while let Some((operator, power)) = self.binary_operator() {
            if power < least {
                break;
            }
            self.advance();
            let right = self.deeper(|parser| parser.binary(power + 1))?;
            let span = left.span.to(right.span);
            left = Expr { kind: ExprKind::Binary(operator, Box::new(left), Box::new(right)), span };
            levels += 1;
            self.deeper_by(1)?;
        }
        self.depth -= levels;
        Ok(left)
    }

    fn binary_operator(&self) -> Option<(Binary, u8)> {
        let Kind::Sign(sign) = self.token().kind else { return None };
        Some(match sign {
            "||" => (Binary::Concatenate, 0),
            "|" => (Binary::BitOr, 1),
            "^" => (Binary::BitXor, 2),
            "&" => (Binary::BitAnd, 3),
            "<<" => (Binary::ShiftLeft, 4),
            ">>" => (Binary::ShiftRight, 4),
            ">>>" => (Binary::ShiftRightZero, 4),
            "+" => (Binary::Add, 5),
            "-" => (Binary::Subtract, 5),
            "*" => (Binary::Multiply, 6),
            "/" => (Binary::Divide, 6),
            "%" => (Binary::Modulo, 6),
            _ => return None,
        })
    }

    fn unary(&mut self) -> Result<Expr, Refusal> {
        let start = self.span();
        let operator = match self.token().kind {
            Kind::Sign("+") => Unary::Plus,
            Kind::Sign("-") => Unary::Minus,
            Kind::Sign("~") => Unary::BitNot,
            // `1 = NOT true`: as a part of arithmetic it binds tightly.
            Kind::Word(word) if word.eq_ignore_ascii_case("NOT") => Unary::Not,
            _ => return self.postfix(),
        };
        self.advance();
        let value = self.deeper(Self::unary)?;
        let span = start.to(value.span);
        Ok(Expr { kind: ExprKind::Unary(operator, Box::new(value)), span })
    }

    /// A value and the steps into it.
    fn postfix(&mut self) -> Result<Expr, Refusal> {
        let mut value = self.primary()?;
        let mut steps = 0;
        while self.is_sign(".") || self.is_sign("[") {
            value = self.step(value)?;
            steps += 1;
            self.deeper_by(1)?;
        }
        self.depth -= steps;
        Ok(value)
    }

    fn primary(&mut self) -> Result<Expr, Refusal> {
        let start = self.span();
        let kind = match self.token().kind.clone() {
            Kind::Number(number) => {
                self.advance();
                ExprKind::Literal(Value::Number(number))
            }
            Kind::Text(text) => {
                self.advance();
                ExprKind::Literal(Value::String(text))
            }
            Kind::Parameter(name) => {
                self.advance();
                ExprKind::Parameter(name.to_owned())
            }
            Kind::Word(word) => self.word_value(word)?,
            Kind::Sign("(") => return self.parenthesis(),
            Kind::Sign("[") => ExprKind::Array(self.elements("[", "]", &mut |parser| parser.expr())?),
            Kind::Sign("{") => ExprKind::Object(self.elements("{", "}", &mut |parser| parser.member())?),
            _ => return self.wrong(),
        };
        Ok(Expr { kind, span: start.to(self.passed()) })
    }

    /// What a word begins: a literal, a sub-query, a call, or a name.
    fn word_value(&mut self, word: &str) -> Result<ExprKind, Refusal> {
        let is_call = matches!(self.tokens.get(self.at + 1).map(|token| &token.kind), Some(Kind::Sign("(")));
        let keyword = word.to_ascii_uppercase();
        match keyword.as_str() {
            "TRUE" | "FALSE" => {
                self.advance();
                Ok(ExprKind::Literal(Value::Bool(keyword == "TRUE")))
            }
            "NULL" => {
                self.advance();
                Ok(ExprKind::Literal(Value::Null))
            }
            "UNDEFINED" => {
                self.advance();
                Ok(ExprKind::Undefined)
            }
            "EXISTS" | "ARRAY" if is_call => {
                self.advance();
                self.need_sign("(")?;
                let select = Box::new(self.deeper(Self::select)?);
                self.need_sign(")")?;
                Ok(if keyword == "EXISTS" { ExprKind::Exists(select) } else { ExprKind::ArrayOf(select) })
            }
            "UDF" => {
                self.advance();
                self.need_sign(".")?;
                let name = self.name()?;
                self.elements("(", ")", &mut |parser| parser.expr())?;
                Ok(ExprKind::UserFunction(name))
            }
            _ if is_reserved(word) => self.wrong(),
            _ if is_call => {
                self.advance();
                let arguments = self.elements("(", ")", &mut |parser| parser.expr())?;
                Ok(ExprKind::Call(word.to_owned(), arguments))
            }
            _ => {
                self.advance();
                Ok(ExprKind::Name(word.to_owned()))
            }
        }
    }

    /// A list in brackets, empty or not.
    fn elements<T>(
        &mut self,
        open: &str,
        close: &str,
        one: &mut dyn FnMut(&mut Self) -> Result<T, Refusal>,
    ) -> Result<Vec<T>, Refusal> {
        self.need_sign(open)?;
        if self.sign(close) {
            return Ok(Vec::new());
        }
        let list = self.list(one)?;
        self.need_sign(close)?;
        Ok(list)
    }

    fn member(&mut self) -> Result<(String, Expr), Refusal> {
        let name = match self.token().kind.clone() {
            Kind::Text(text) => text,
            Kind::Word(word) => word.to_owned(),
            _ => return self.wrong(),
        };
        self.advance();
        self.need_sign(":")?;
        Ok((name, self.expr()?))
    }

    fn parenthesis(&mut self) -> Result<Expr, Refusal> {
        let start = self.span();
        self.need_sign("(")?;
        let mut inside = if self.is_word("SELECT") {
            let select = self.deeper(Self::select)?;
            Expr { kind: ExprKind::Query(Box::new(select)), span: start }
        } else {
            self.expr()?
        };
        self.need_sign(")")?;
        inside.span = start.to(self.passed());
        Ok(inside)
    }
}

fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word))
}

/// One part is itself; several make one flat node.
fn flat(mut parts: Vec<Expr>, make: fn(Vec<Expr>) -> ExprKind) -> Expr {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let span = parts[0].span.to(parts[parts.len() - 1].span);
    Expr { kind: make(parts), span }
}
