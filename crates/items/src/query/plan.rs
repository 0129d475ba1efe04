//! A query that was checked: names resolved to slots, parameters filled in, functions and patterns found.

use super::aggregate::Aggregate;
use super::functions::{Function, Matcher};
use super::like::Pattern;
use super::rank::Rank;
use super::syntax::{Binary, Unary};
use super::wants::Step;
use crate::json::Value;
use crate::limits;
use std::collections::HashSet;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Select {
    pub is_distinct: bool,
    pub top: Option<u64>,
    pub selection: Selection,
    pub from: Vec<From>,
    pub filter: Option<Expr>,
    pub group: Vec<Expr>,
    /// What aggregates of the selection and of ORDER BY compute, by number.
    pub aggregates: Vec<(Aggregate, Expr)>,
    pub order: Vec<Sort>,
    /// ORDER BY RANK, by more than one vector's distance. There is no `order` then.
    pub rank: Option<Rank>,
    pub slice: Option<(u64, u64)>,
    /// Slots below this one belong to the queries around.
    pub first_slot: usize,
}

impl Select {
    /// One row for each group, or one for everything.
    pub fn is_grouped(&self) -> bool {
        !self.group.is_empty() || !self.aggregates.is_empty()
    }

    /// Only asks how many items there are: no item is looked into, only at the keys.
    pub fn counts_items(&self) -> bool {
        let is_items = |from: &From| {
            !from.is_each && matches!(&from.source, FromSource::Items(steps) if steps.is_empty())
        };
        let is_count = |(aggregate, of): &(Aggregate, Expr)| {
            *aggregate == Aggregate::Count && matches!(of, Expr::Constant(_) | Expr::Slot(_))
        };
        matches!(&self.from[..], [from] if is_items(from))
            && self.filter.is_none()
            && self.group.is_empty()
            && !self.aggregates.is_empty()
            && self.aggregates.iter().all(is_count)
    }
}

#[derive(Debug, Clone)]
pub enum Selection {
    /// The one source's value.
    Star,
    Value(Expr),
    List(Vec<(Arc<str>, Expr)>),
}

#[derive(Debug, Clone)]
pub struct From {
    pub source: FromSource,
    pub is_each: bool,
}

#[derive(Debug, Clone)]
pub enum FromSource {
    /// The items of the container, and steps into each.
    Items(Vec<Step>),
    Value(Expr),
    Query(Box<Select>),
}

#[derive(Debug, Clone)]
pub struct Sort {
    pub value: Expr,
    pub is_descending: bool,
}

#[derive(Debug, Clone)]
pub enum Expr {
    Undefined,
    /// Shared by all places of a query that name the same parameter.
    Constant(Arc<Value>),
    /// Text of a constant array or object, or of anything as it stands.
    ConstantText(Arc<[u8]>),
    Slot(usize),
    /// Steps from a slot: the common case.
    Path(usize, Vec<Step>),
    Member(Box<Expr>, Arc<str>),
    Index(Box<Expr>, Box<Expr>),
    Object(Vec<(Arc<str>, Expr)>),
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
    /// All entries are constants: their sort keys.
    InConstants(Box<Expr>, Arc<Constants>),
    Between(Box<Expr>, Box<Expr>, Box<Expr>),
    Like(Box<Expr>, Pattern),
    LikeComputed(Box<Expr>, Box<Expr>, Option<char>),
    Call(Function, Vec<Expr>),
    /// A compiled pattern of REGEXMATCH with a constant pattern.
    Matches(Box<Expr>, Matcher),
    /// The result of an aggregate, by number.
    Aggregate(usize),
    /// The value of a GROUP BY expression, by number.
    GroupKey(usize),
}

/// Constants of an IN list, as sort keys for look-up and as values for a planner.
#[derive(Debug, Clone)]
pub struct Constants {
    pub keys: HashSet<Vec<u8>>,
    pub values: Vec<Value>,
    /// Marks of the types that occur: against another type the comparison is undefined.
    pub types: u16,
    /// The look-up is ARRAY_CONTAINS: against another type it is false.
    pub never_undefined: bool,
}

impl Expr {
    /// The value, if it is constant. A long array or object is none: it is walked, not made a tree for each place that names it.
    pub fn as_constant(&self) -> Option<Arc<Value>> {
        match self {
            Expr::Constant(value) => Some(Arc::clone(value)),
            Expr::ConstantText(text) if text.len() <= limits::CONSTANT_TREE_BYTES => {
                crate::json::parse(text).ok().map(Arc::new)
            }
            _ => None,
        }
    }
}
