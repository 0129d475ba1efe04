//! What a planner may use of a query: tests on paths that every row must pass, and the order of rows.

use super::functions::Function;
use super::plan::{Expr, FromSource, Select};
use super::run::reads_items;
use super::syntax::Binary;
use super::value::Val;
use crate::json::{self, Value};
use crate::limits;
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashSet;

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
    /// Whether items may be passed over: there is a WHERE.
    pub is_filtered: bool,
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
        low: Option<Bound>,
        high: Option<Bound>,
    },
    StartsWith(String),
    /// There at all, null included.
    IsDefined,
    /// An array with an element equal to this.
    ArrayContains(Value),
}

/// A value, and whether it is within the range itself.
pub type Bound = (Value, bool);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortPath {
    pub path: Path,
    pub is_descending: bool,
}

/// What the plan of a query lets a planner use.
pub(super) fn of(select: &Select) -> Wants {
    let reads_items = reads_items(select);
    let mut wants = Wants { reads_items, ..Wants::default() };
    if !reads_items {
        wants.streams = true;
        wants.streams_in_order = true;
        return wants;
    }
    let paths = Paths::of(select);
    wants.is_filtered = select.filter.is_some();
    if let Some(filter) = &select.filter {
        collect(filter, &paths, &mut wants.conjuncts);
        wants.conjuncts = joined(wants.conjuncts);
        touch(filter, &paths, &mut wants.touched);
    }
    let sorts = select.order.iter().map(|sort| {
        let path = paths.of_expr(&sort.value)?;
        let is_plain = !path.contains(&Step::Each);
        is_plain.then_some(SortPath { path, is_descending: sort.is_descending })
    });
    for sort in &select.order {
        touch(&sort.value, &paths, &mut wants.touched);
    }
    wants.order = sorts.collect::<Option<Vec<SortPath>>>().unwrap_or_default();
    let sees_all = select.is_grouped() || select.is_distinct || select.rank.is_some();
    wants.streams = !sees_all && select.order.is_empty();
    wants.streams_in_order = !sees_all && (select.order.is_empty() || !wants.order.is_empty());
    wants
}

/// The path into the item that each slot stands for, where it does.
struct Paths {
    of_slot: Vec<Option<Path>>,
    /// Bytes of constants that tests may hold from now on: each place of a query that names a long parameter has a copy in its test.
    room: Cell<usize>,
}

impl Paths {
    fn of(select: &Select) -> Paths {
        let mut paths = Paths { of_slot: Vec::new(), room: Cell::new(limits::PLANNED_BYTES) };
        for from in &select.from {
            let mut path = match &from.source {
                FromSource::Items(steps) => Some(steps.clone()),
                FromSource::Value(value) => paths.of_expr(value),
                FromSource::Query(_) => None,
            };
            if let Some(path) = &mut path
                && from.is_each
            {
                path.push(Step::Each);
            }
            paths.of_slot.push(path);
        }
        paths
    }

    /// Whether tests may hold a constant of so many bytes more.
    fn has_room(&self, bytes: usize) -> bool {
        let left = self.room.get().checked_sub(bytes);
        self.room.set(left.unwrap_or(self.room.get()));
        left.is_some()
    }

    /// The value of a constant, if there is room for it. Without it the query is only planned with fewer tests.
    fn constant(&self, expr: &Expr) -> Option<Value> {
        let value = expr.as_constant()?;
        self.has_room(Val::of_tree(&value).tree_bytes()).then(|| (*value).clone())
    }

    fn of_expr(&self, expr: &Expr) -> Option<Path> {
        match expr {
            Expr::Slot(slot) => self.of_slot.get(*slot)?.clone(),
            Expr::Path(slot, steps) => {
                let mut path = self.of_slot.get(*slot)?.clone()?;
                path.extend(steps.iter().cloned());
                Some(path)
            }
            _ => None,
        }
    }
}

/// Adds the tests that an expression, being true, implies.
fn collect(expr: &Expr, paths: &Paths, conjuncts: &mut Vec<Conjunct>) {
    if let Expr::And(parts) = expr {
        parts.iter().for_each(|part| collect(part, paths, conjuncts));
        return;
    }
    let conjunct = match expr {
        Expr::Binary(operator, left, right) => comparison(*operator, left, right, paths),
        Expr::InConstants(value, constants) => {
            let bytes = constants.values.iter().map(|value| Val::of_tree(value).tree_bytes()).sum();
            paths
                .of_expr(value)
                .filter(|_| paths.has_room(bytes))
                .map(|path| Conjunct { path, test: Test::In(constants.values.clone()) })
        }
        Expr::Between(value, low, high) => range(value, low, high, paths),
        Expr::Like(value, pattern) => paths.of_expr(value).and_then(|path| {
            let (prefix, _) = pattern.prefix();
            paths.has_room(prefix.len()).then_some(())?;
            let test = match (pattern.is_exact(), prefix.is_empty()) {
                (true, _) => Test::Equal(Value::String(prefix)),
                (false, false) => Test::StartsWith(prefix),
                (false, true) => return None,
            };
            Some(Conjunct { path, test })
        }),
        Expr::Call(function, arguments) => call(*function, arguments, paths),
        Expr::Or(parts) => {
            conjuncts.extend(any_of(parts, paths));
            None
        }
        _ => None,
    };
    conjuncts.extend(conjunct);
}

fn comparison(operator: Binary, left: &Expr, right: &Expr, paths: &Paths) -> Option<Conjunct> {
    let (path, value, operator) = match paths.of_expr(left) {
        Some(path) => (path, paths.constant(right)?, operator),
        None => (paths.of_expr(right)?, paths.constant(left)?, mirrored(operator)),
    };
    let test = match operator {
        Binary::Equal => Test::Equal(value),
        Binary::Less => Test::Range { low: None, high: Some((value, false)) },
        Binary::LessOrEqual => Test::Range { low: None, high: Some((value, true)) },
        Binary::Greater => Test::Range { low: Some((value, false)), high: None },
        Binary::GreaterOrEqual => Test::Range { low: Some((value, true)), high: None },
        _ => return None,
    };
    Some(Conjunct { path, test })
}

fn mirrored(operator: Binary) -> Binary {
    match operator {
        Binary::Less => Binary::Greater,
        Binary::LessOrEqual => Binary::GreaterOrEqual,
        Binary::Greater => Binary::Less,
        Binary::GreaterOrEqual => Binary::LessOrEqual,
        other => other,
    }
}

fn range(value: &Expr, low: &Expr, high: &Expr, paths: &Paths) -> Option<Conjunct> {
    let (path, low, high) = (paths.of_expr(value)?, paths.constant(low)?, paths.constant(high)?);
    let is_one_type = std::mem::discriminant(&low) == std::mem::discriminant(&high);
    is_one_type
        .then_some(Conjunct { path, test: Test::Range { low: Some((low, true)), high: Some((high, true)) } })
}

/// Makes one range of several on the same path: `c.a >= 1 AND c.a < 9` is between two keys of an index, and each half of it alone may be
/// most of the container.
fn joined(conjuncts: Vec<Conjunct>) -> Vec<Conjunct> {
    let mut joined: Vec<Conjunct> = Vec::with_capacity(conjuncts.len());
    for conjunct in conjuncts {
        let is_done = joined.iter_mut().any(|other| other.narrow(&conjunct));
        if !is_done {
            joined.push(conjunct);
        }
    }
    joined
}

impl Conjunct {
    /// Takes in the values of another test, if both name values.
    fn widen(&mut self, by: &Test) -> bool {
        let mut values = match &mut self.test {
            Test::Equal(value) => vec![std::mem::replace(value, Value::Null)],
            Test::In(values) => std::mem::take(values),
            _ => return false,
        };
        match by {
            Test::Equal(value) => values.push(value.clone()),
            Test::In(more) => values.extend(more.iter().cloned()),
            _ => return false,
        }
        self.test = Test::In(values);
        true
    }

    /// Names each value once: many parts of an OR have the same partition key.
    fn without_repeats(&mut self) {
        if let Test::In(values) = &mut self.test {
            let mut seen = HashSet::new();
            values.retain(|value| seen.insert(value.to_text()));
        }
    }

    /// Takes the bounds of a range on the same path, if both are ranges over values of one type.
    fn narrow(&mut self, by: &Conjunct) -> bool {
        // Below an array each test may hold for another element.
        if self.path != by.path || self.path.contains(&Step::Each) {
            return false;
        }
        let (Test::Range { low, high }, Test::Range { low: by_low, high: by_high }) =
            (&mut self.test, &by.test)
        else {
            return false;
        };
        let bound = |low: &Option<Bound>, high: &Option<Bound>| {
            low.as_ref().or(high.as_ref()).map(|(value, _)| std::mem::discriminant(value))
        };
        if bound(low, high) != bound(by_low, by_high) {
            return false;
        }
        tighten(low, by_low, Ordering::Greater);
        tighten(high, by_high, Ordering::Less);
        true
    }
}

/// Keeps the tighter of two bounds: the one that is `tighter` than the other, or of equal ones the one that is left out.
fn tighten(bound: &mut Option<Bound>, by: &Option<Bound>, tighter: Ordering) {
    let Some((by, by_is_included)) = by else { return };
    let is_tighter = bound.as_ref().is_none_or(|(value, _)| {
        let order = json::compare(by, value);
        order == tighter || order == Ordering::Equal && !by_is_included
    });
    if is_tighter {
        *bound = Some((by.clone(), *by_is_included));
    }
}

fn call(function: Function, arguments: &[Expr], paths: &Paths) -> Option<Conjunct> {
    let path = paths.of_expr(arguments.first()?)?;
    let second = arguments.get(1).and_then(|second| paths.constant(second));
    // A third argument ignores case, or takes parts of objects.
    let has_flag = arguments.len() > 2 && arguments[2].as_constant().as_deref() != Some(&Value::Bool(false));
    let test = match (function, second) {
        (Function::IsDefined, _) => Test::IsDefined,
        (Function::StartsWith, Some(Value::String(prefix))) if !has_flag => Test::StartsWith(prefix),
        (Function::StringEquals | Function::StringEquals2, Some(value @ Value::String(_))) if !has_flag => {
            Test::Equal(value)
        }
        (Function::ArrayContains, Some(value)) if !has_flag => Test::ArrayContains(value),
        _ => return None,
    };
    Some(Conjunct { path, test })
}

/// `c.a = 1 OR c.a = 2` is `c.a IN (1, 2)`. Of `c.id = 1 AND c.k = 2 OR c.id = 3 AND c.k = 4`, as clients ask for many items (P-62), it
/// is one for each path that every part decides.
fn any_of(parts: &[Expr], paths: &Paths) -> Vec<Conjunct> {
    let found = |part: &Expr| {
        let mut found = Vec::new();
        collect(part, paths, &mut found);
        found.retain(|conjunct| matches!(conjunct.test, Test::Equal(_) | Test::In(_)));
        found
    };
    let Some((first, others)) = parts.split_first() else { return Vec::new() };
    let mut unions = found(first);
    for part in others {
        let part = found(part);
        unions.retain_mut(|union| {
            let same = part.iter().find(|conjunct| conjunct.path == union.path);
            same.is_some_and(|conjunct| union.widen(&conjunct.test))
        });
    }
    unions.iter_mut().for_each(Conjunct::without_repeats);
    unions
}

/// Every path that an expression looks at, sub-queries aside.
fn touch(expr: &Expr, paths: &Paths, touched: &mut Vec<Path>) {
    if let Some(path) = paths.of_expr(expr) {
        if !path.is_empty() && !touched.contains(&path) {
            touched.push(path);
        }
        return;
    }
    let mut each = |parts: &[&Expr]| parts.iter().for_each(|part| touch(part, paths, touched));
    match expr {
        Expr::And(parts) | Expr::Or(parts) | Expr::Array(parts) | Expr::Call(_, parts) => {
            each(&parts.iter().collect::<Vec<_>>());
        }
        Expr::Unary(_, value)
        | Expr::Member(value, _)
        | Expr::Like(value, _)
        | Expr::Matches(value, _)
        | Expr::InConstants(value, _) => each(&[value]),
        Expr::Binary(_, left, right)
        | Expr::Coalesce(left, right)
        | Expr::Index(left, right)
        | Expr::LikeComputed(left, right, _) => each(&[left, right]),
        Expr::Choice(first, second, third) | Expr::Between(first, second, third) => {
            each(&[first, second, third])
        }
        Expr::In(value, list) => {
            each(&[value]);
            each(&list.iter().collect::<Vec<_>>());
        }
        _ => {}
    }
}
