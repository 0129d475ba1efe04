//! The tree of a query's text.

use super::error::Span;
use crate::json::Value;

#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    pub is_distinct: bool,
    pub top: Option<(Expr, Span)>,
    pub selection: Selection,
    pub from: Vec<From>,
    pub filter: Option<Expr>,
    pub group: Vec<Expr>,
    pub order: Vec<Sort>,
    /// OFFSET and LIMIT.
    pub slice: Option<(Expr, Expr, Span)>,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Selection {
    Star(Span),
    Value(Box<Expr>),
    List(Vec<Item>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    pub value: Expr,
    pub alias: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct From {
    pub source: FromSource,
    pub alias: Option<String>,
    /// `alias IN source`: each element of the array, not the array.
    pub is_each: bool,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub enum FromSource {
    /// A name and steps into it.
    Path(Box<Expr>),
    Query(Box<Select>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Sort {
    pub value: Expr,
    pub is_descending: bool,
    /// ASC or DESC was written.
    pub has_direction: bool,
    /// ORDER BY RANK: by score, the best first.
    pub is_rank: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    Literal(Value),
    Undefined,
    Parameter(String),
    Name(String),
    Member(Box<Expr>, String),
    Index(Box<Expr>, Box<Expr>),
    Call(String, Vec<Expr>),
    UserFunction(String),
    Object(Vec<(String, Expr)>),
    Array(Vec<Expr>),
    Query(Box<Select>),
    Exists(Box<Select>),
    ArrayOf(Box<Select>),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    Coalesce(Box<Expr>, Box<Expr>),
    In(Box<Expr>, Vec<Expr>),
    Between(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Value, pattern, escape character.
    Like(Box<Expr>, Box<Expr>, Option<char>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unary {
    Plus,
    Minus,
    BitNot,
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    Multiply,
    Divide,
    Modulo,
    Add,
    Subtract,
    ShiftLeft,
    ShiftRight,
    ShiftRightZero,
    BitAnd,
    BitXor,
    BitOr,
    Concatenate,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}
