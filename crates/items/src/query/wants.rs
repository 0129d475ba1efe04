//! What a planner may use of a query: tests on paths that every row must pass, and the order of rows.

use crate::json::Value;

/// A step of a path into an item.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    Member(String),
    Index(usize),
    /// Any element of an array: the path of a `JOIN x IN c.list`.
    Each,
}

pub type Path = Vec<Step>;

/// What a query asks of the items' order and choice. The query checks every candidate itself, so a planner may use of this as much
/// or as little as it likes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Wants {
    /// False for a query without FROM: it needs no candidates at all.
    pub reads_items: bool,
    /// Every one of them holds for each item that gives a row. A test of a path with `Each` holds for some element.
    pub conjuncts: Vec<Conjunct>,
    /// The paths of ORDER BY, when all of its keys are paths; empty otherwise. A source in this order (ties in any order that is always the
    /// same, undefined first when ascending) makes sorting unnecessary.
    pub order: Vec<SortPath>,
    /// Rows come as candidates come: a page reads no more candidates than it needs. False for aggregates, GROUP BY, DISTINCT, and ORDER BY over
    /// candidates in another order.
    pub streams: bool,
    /// As `streams`, if the source is in the order of `order`.
    pub streams_in_order: bool,
    /// Every path that filters or sorts, also where an index cannot serve: for the index metrics.
    pub touched: Vec<Path>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Conjunct {
    pub path: Path,
    pub test: Test,
}

/// A test that a constant decides. Comparing across types is never true, so a range stays within the type of its bounds.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    Equal(Value),
    /// Equal to one of these.
    In(Vec<Value>),
    /// At least one bound; both of the same type. `true` includes the bound.
    Range {
        low: Option<(Value, bool)>,
        high: Option<(Value, bool)>,
    },
    StartsWith(String),
    /// There at all, null included.
    IsDefined,
    /// An array with an element equal to this.
    ArrayContains(Value),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortPath {
    pub path: Path,
    pub is_descending: bool,
}
