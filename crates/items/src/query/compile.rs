//! From the tree of a query's text to its plan: names are resolved, parameters filled in, functions found, constants computed.

use super::Known;
use super::aggregate::Aggregate;
use super::error::{Span, code, error};
use super::evaluate::{Env, type_bit, unary};
use super::functions::{Function, Matcher, telling_words};
use super::like::Pattern;
use super::meter::Meter;
use super::parse;
use super::plan::{Constants, Expr, From, FromSource, Select, Selection, Sort};
use super::rank::{Rank, is_euclidean};
use super::syntax::{self, ExprKind};
use super::value::{Val, tree_bytes_of_text};
use super::wants::Step;
use crate::json::{self, Object, Value};
use crate::limits;
use crate::refusal::Refusal;
use crate::time::Time;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;

/// The language of the service's English policies, and the number that Windows has for it.
const ENGLISH: [&str; 2] = ["en-US", "1033"];

/// Reads a query that stands for itself.
pub fn top(
    select: &syntax::Select,
    parameters: &HashMap<&str, Expr>,
    known: Known<'_>,
) -> Result<Select, Refusal> {
    let room = Meter::text();
    let (scope, slots, root, grouping) = (Vec::new(), 0, None, None);
    let mut compiler = Compiler { parameters, known, room: &room, scope, slots, root, grouping };
    compiler.select(select, true)
}

pub(super) struct Compiler<'c> {
    parameters: &'c HashMap<&'c str, Expr>,
    known: Known<'c>,
    /// What constants and patterns may take, to be computed and to be held: a query is read where nothing else is decided meanwhile.
    room: &'c Meter<'c>,
    /// Aliases and their slots, innermost last.
    scope: Vec<(String, usize)>,
    slots: usize,
    /// The slot of whole items: the one whose computed properties count.
    root: Option<usize>,
    /// While the SELECT and ORDER BY of a grouping query are read.
    grouping: Option<Grouping>,
}

/// What of a compiler belongs to one SELECT, kept while one within it is read.
struct Outer {
    names: usize,
    slots: usize,
    grouping: Option<Grouping>,
}

struct Grouping {
    /// Each GROUP BY expression, written down to be compared.
    keys: Vec<String>,
    aggregates: Vec<(Aggregate, Expr)>,
    first_slot: usize,
    /// The ORDER BY of the one row that aggregates without groups make is read: any name may stand there.
    sorts_one_row: bool,
}

impl Compiler<'_> {
    fn select(&mut self, select: &syntax::Select, is_top: bool) -> Result<Select, Refusal> {
        let outer = self.enter();
        let first_slot = self.slots;
        let mut from = Vec::new();
        for (place, source) in select.from.iter().enumerate() {
            from.push(self.from(source, is_top && place == 0)?);
        }
        let filter = select.filter.as_ref().map(|filter| self.expr(filter)).transpose()?;
        let mut group = Vec::new();
        for key in &select.group {
            group.push(self.expr(key)?);
        }
        check_star(select)?;
        if !group.is_empty() || has_aggregate(&select.selection) {
            let keys = group.iter().map(|key| self.written(key)).collect::<Result<_, _>>()?;
            self.grouping = Some(Grouping { keys, aggregates: Vec::new(), first_slot, sorts_one_row: false });
        }
        let selection = self.selection(&select.selection)?;
        let makes_one_row = group.is_empty() && self.grouping.is_some();
        if let Some(grouping) = self.grouping.as_mut().filter(|_| makes_one_row) {
            grouping.sorts_one_row = true;
        }
        let rank = self.rank(select, is_top)?;
        let mut order = Vec::new();
        for sort in select.order.iter().filter(|_| rank.is_none()) {
            order.push(self.sort(sort)?);
        }
        if makes_one_row {
            // it was only read to find what is wrong in it.
            order.clear();
        }
        let aggregates = self.grouping.take().map(|grouping| grouping.aggregates).unwrap_or_default();
        let top = match &select.top {
            Some((count, span)) => Some(self.count(count, "TOP", *span)?),
            None => None,
        };
        let slice = match &select.slice {
            Some((offset, limit, span)) => {
                Some((self.count(offset, "OFFSET", *span)?, self.count(limit, "LIMIT", *span)?))
            }
            None => None,
        };
        check_slice(select)?;
        self.leave(outer);
        Ok(Select {
            is_distinct: select.is_distinct,
            top,
            selection,
            from,
            filter,
            group,
            aggregates,
            order,
            rank,
            slice,
            first_slot,
        })
    }

    fn enter(&mut self) -> Outer {
        Outer { names: self.scope.len(), slots: self.slots, grouping: self.grouping.take() }
    }

    fn leave(&mut self, outer: Outer) {
        self.scope.truncate(outer.names);
        (self.slots, self.grouping) = (outer.slots, outer.grouping);
    }

    /// A count of TOP, OFFSET or LIMIT: a literal or a parameter.
    fn count(&mut self, count: &syntax::Expr, clause: &str, span: Span) -> Result<u64, Refusal> {
        let value = self.expr(count)?.as_constant();
        let integer = value.as_deref().and_then(|value| value.as_number()).and_then(|number| number.as_i64());
        match integer.and_then(|count| u64::try_from(count).ok()) {
            Some(count) => Ok(count),
            None => {
                let message =
                    format!("The count value provided for a {clause} clause must be a non-negative integer.");
                Err(error(code::WRONG_COUNT, span.to(count.span), &message))
            }
        }
    }

    fn from(&mut self, from: &syntax::From, is_first_of_all: bool) -> Result<From, Refusal> {
        let (source, default_alias) = match &from.source {
            syntax::FromSource::Query(select) => {
                (FromSource::Query(Box::new(self.select(select, false)?)), None)
            }
            syntax::FromSource::Path(path) => {
                let (name, last) = names(path);
                if is_first_of_all && !self.scope.iter().any(|(alias, _)| *alias == name) {
                    let steps = self.root_steps(path)?;
                    if steps.is_empty() {
                        self.root = Some(self.slots);
                    }
                    (FromSource::Items(steps), last)
                } else {
                    (FromSource::Value(self.expr(path)?), last)
                }
            }
        };
        let is_whole = matches!(&source, FromSource::Items(steps) if steps.is_empty());
        let alias = from.alias.clone().or(default_alias);
        if let Some(alias) = alias {
            self.scope.push((alias, self.slots));
        }
        self.slots += 1;
        // `FROM x IN root` walks the items themselves.
        let is_each = from.is_each && !is_whole && !matches!(source, FromSource::Query(_));
        Ok(From { source, is_each })
    }

    /// The steps of a path whose first name is the container's.
    fn root_steps(&mut self, path: &syntax::Expr) -> Result<Vec<Step>, Refusal> {
        match &path.kind {
            ExprKind::Member(value, name) => {
                let mut steps = self.root_steps(value)?;
                steps.push(Step::Member(name.clone()));
                Ok(steps)
            }
            ExprKind::Index(value, index) => {
                let mut steps = self.root_steps(value)?;
                match self.expr(index)?.as_constant().as_deref().and_then(step_of) {
                    Some(step) => steps.push(step),
                    None => {
                        return Err(error(code::SYNTAX, index.span, "A step of FROM must be a constant."));
                    }
                }
                Ok(steps)
            }
            _ => Ok(Vec::new()),
        }
    }

    fn selection(&mut self, selection: &syntax::Selection) -> Result<Selection, Refusal> {
        match selection {
            syntax::Selection::Star(_) => Ok(Selection::Star),
            syntax::Selection::Value(value) => Ok(Selection::Value(self.expr(value)?)),
            syntax::Selection::List(items) => {
                let mut list: Vec<(Arc<str>, Expr)> = Vec::new();
                let mut unnamed = 0;
                for item in items {
                    let name = item.alias.clone().or_else(|| own_name(&item.value)).unwrap_or_else(|| {
                        unnamed += 1;
                        format!("${unnamed}")
                    });
                    let value = self.expr(&item.value)?;
                    match list.iter_mut().find(|(known, _)| **known == *name) {
                        Some(place) => place.1 = value,
                        None => list.push((name.into(), value)),
                    }
                }
                Ok(Selection::List(list))
            }
        }
    }

    /// ORDER BY RANK, which sees every row: not in a sub-query, of groups, or of distinct rows.
    fn rank(&mut self, select: &syntax::Select, is_top: bool) -> Result<Option<Rank>, Refusal> {
        let [sort, others @ ..] = &select.order[..] else { return Ok(None) };
        if !sort.is_rank {
            return Ok(None);
        }
        if !others.is_empty() || !is_top || self.grouping.is_some() || select.is_distinct {
            let message = "The ORDER BY RANK clause takes one score, in a query without GROUP BY, DISTINCT and aggregates that is no sub-query.";
            return Err(error(code::NOT_SUPPORTED, sort.value.span, message));
        }
        Rank::compile(self, sort).map(Some)
    }

    fn sort(&mut self, sort: &syntax::Sort) -> Result<Sort, Refusal> {
        let value = self.expr(&sort.value)?;
        let mut is_descending = sort.is_descending;
        if let Expr::Call(Function::VectorDistance, arguments) = &value {
            if sort.has_direction {
                let message =
                    "Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported.";
                return Err(error(code::NOT_SUPPORTED, sort.value.span, message));
            }
            // The nearest first: likeness falls, distance rises.
            is_descending = !is_euclidean(arguments);
        }
        Ok(Sort { value, is_descending })
    }

    fn boxed(&mut self, expr: &syntax::Expr) -> Result<Box<Expr>, Refusal> {
        self.expr(expr).map(Box::new)
    }

    fn list(&mut self, list: &[syntax::Expr]) -> Result<Vec<Expr>, Refusal> {
        list.iter().map(|expr| self.expr(expr)).collect()
    }

    pub(super) fn expr(&mut self, expr: &syntax::Expr) -> Result<Expr, Refusal> {
        if let Some(key) = self.group_key(expr)? {
            return Ok(Expr::GroupKey(key));
        }
        let plan = match &expr.kind {
            ExprKind::Literal(value) => Expr::Constant(Arc::new(value.clone())),
            ExprKind::Undefined => Expr::Undefined,
            ExprKind::Parameter(name) => self.parameter(name, expr.span)?,
            ExprKind::Name(name) => Expr::Slot(self.slot(name, expr.span)?),
            ExprKind::Member(value, name) => {
                let value = self.expr(value)?;
                self.computed_property(&value, name)?
                    .unwrap_or_else(|| stepped(value, Step::Member(name.clone())))
            }
            ExprKind::Index(value, index) => self.index(value, index)?,
            ExprKind::Call(name, arguments) => return self.call(name, arguments, expr.span),
            ExprKind::UserFunction(name) => {
                let message = format!(
                    "User defined functions cannot be called: 'udf.{name}'. They are stored, not executed."
                );
                return Err(error(code::NOT_SUPPORTED, expr.span, &message));
            }
            ExprKind::Object(members) => self.object(members)?,
            ExprKind::Array(elements) => Expr::Array(self.list(elements)?),
            ExprKind::Query(select) => return Ok(Expr::Query(Box::new(self.select(select, false)?))),
            ExprKind::Exists(select) => return Ok(Expr::Exists(Box::new(self.select(select, false)?))),
            ExprKind::ArrayOf(select) => return Ok(Expr::ArrayOf(Box::new(self.select(select, false)?))),
            ExprKind::Unary(operator, value) => {
                let value = self.expr(value)?;
                match value.as_constant() {
                    Some(constant) => folded(&unary(*operator, &Val::of_tree(&constant))),
                    None => Expr::Unary(*operator, Box::new(value)),
                }
            }
            ExprKind::Binary(operator, left, right) => {
                Expr::Binary(*operator, self.boxed(left)?, self.boxed(right)?)
            }
            ExprKind::And(parts) => Expr::And(self.list(parts)?),
            ExprKind::Or(parts) => Expr::Or(self.list(parts)?),
            ExprKind::Choice(condition, yes, no) => {
                Expr::Choice(self.boxed(condition)?, self.boxed(yes)?, self.boxed(no)?)
            }
            ExprKind::Coalesce(left, right) => Expr::Coalesce(self.boxed(left)?, self.boxed(right)?),
            ExprKind::In(value, list) => self.membership(value, list)?,
            ExprKind::Between(value, low, high) => {
                Expr::Between(self.boxed(value)?, self.boxed(low)?, self.boxed(high)?)
            }
            ExprKind::Like(value, pattern, escape) => self.like(value, pattern, *escape)?,
        };
        Ok(self.fold(plan))
    }

    fn parameter(&self, name: &str, span: Span) -> Result<Expr, Refusal> {
        let value = self
            .parameters
            .get(name)
            .ok_or_else(|| error(code::UNRESOLVED, span, &format!("Parameter '{name}' is not declared.")))?;
        Ok(value.clone())
    }

    fn index(&mut self, value: &syntax::Expr, index: &syntax::Expr) -> Result<Expr, Refusal> {
        let value = self.expr(value)?;
        let index = self.expr(index)?;
        Ok(match index.as_constant().as_deref().and_then(step_of) {
            Some(step) => stepped(value, step),
            None => Expr::Index(Box::new(value), Box::new(index)),
        })
    }

    /// Of members with the same name the last one counts, in the place of the first.
    fn object(&mut self, members: &[(String, syntax::Expr)]) -> Result<Expr, Refusal> {
        let mut list: Vec<(Arc<str>, Expr)> = Vec::new();
        for (name, value) in members {
            let value = self.expr(value)?;
            match list.iter_mut().find(|(known, _)| **known == *name.as_str()) {
                Some(place) => place.1 = value,
                None => list.push((name.as_str().into(), value)),
            }
        }
        Ok(Expr::Object(list))
    }

    fn membership(&mut self, value: &syntax::Expr, list: &[syntax::Expr]) -> Result<Expr, Refusal> {
        let value = self.boxed(value)?;
        let list = self.list(list)?;
        Ok(match self.constants(&list) {
            Some(constants) => Expr::InConstants(value, Arc::new(constants)),
            None => Expr::In(value, list),
        })
    }

    fn like(
        &mut self,
        value: &syntax::Expr,
        pattern: &syntax::Expr,
        escape: Option<char>,
    ) -> Result<Expr, Refusal> {
        let value = self.boxed(value)?;
        let pattern = self.expr(pattern)?;
        Ok(match pattern.as_constant().as_deref() {
            Some(Value::String(text)) if self.has_room(text.len(), Pattern::held_bytes(text)) => {
                Expr::Like(value, Pattern::new(text, escape))
            }
            _ => Expr::LikeComputed(value, Box::new(pattern), escape),
        })
    }

    fn slot(&self, name: &str, span: Span) -> Result<usize, Refusal> {
        let found = self.scope.iter().rev().find(|(alias, _)| alias == name);
        let Some((_, slot)) = found else {
            let message = format!("Identifier '{name}' could not be resolved.");
            return Err(error(code::UNRESOLVED, span, &message));
        };
        if let Some(grouping) = &self.grouping
            && *slot >= grouping.first_slot
            && !grouping.sorts_one_row
        {
            let message = format!(
                "Property reference '{name}' is invalid in the select list because it is not contained in either an aggregate function or the GROUP BY clause."
            );
            return Err(error(code::NOT_GROUPED, span, &message));
        }
        Ok(*slot)
    }

    /// Which GROUP BY expression this is, while SELECT and ORDER BY are read.
    fn group_key(&mut self, expr: &syntax::Expr) -> Result<Option<usize>, Refusal> {
        if !matches!(
            expr.kind,
            ExprKind::Name(_)
                | ExprKind::Member(..)
                | ExprKind::Index(..)
                | ExprKind::Call(..)
                | ExprKind::Binary(..)
                | ExprKind::Unary(..)
                | ExprKind::Choice(..)
                | ExprKind::Coalesce(..)
                | ExprKind::Between(..)
                | ExprKind::In(..)
                | ExprKind::And(_)
                | ExprKind::Or(_)
                | ExprKind::Like(..)
        ) {
            return Ok(None);
        }
        let Some(grouping) = self.grouping.take() else { return Ok(None) };
        let mut found = None;
        if !grouping.keys.is_empty() {
            // Read as the keys were, outside of the group; what cannot be read so is no key.
            let before = (self.scope.len(), self.slots);
            if let Ok(plan) = self.expr(expr) {
                let written = match self.written(&plan) {
                    Ok(written) => written,
                    Err(refusal) => {
                        self.grouping = Some(grouping);
                        return Err(refusal);
                    }
                };
                found = grouping.keys.iter().position(|key| *key == written);
            }
            self.scope.truncate(before.0);
            self.slots = before.1;
        }
        self.grouping = Some(grouping);
        Ok(found)
    }

    fn call(&mut self, name: &str, arguments: &[syntax::Expr], span: Span) -> Result<Expr, Refusal> {
        if let Some(aggregate) = Aggregate::by_name(name) {
            return self.aggregate(aggregate, name, arguments, span);
        }
        let Some((function, least, most)) = Function::by_name(name) else {
            let message = format!("'{name}' is not a recognized built-in function name.");
            return Err(error(code::NO_SUCH_FUNCTION, span, &message));
        };
        if arguments.len() < least || arguments.len() > most {
            let count = match most {
                usize::MAX => format!("at least {least}"),
                _ if least == most => least.to_string(),
                _ => format!("{least} to {most}"),
            };
            let message = format!("The {} function requires {count} argument(s).", name.to_ascii_uppercase());
            return Err(error(code::WRONG_COUNT_OF_ARGUMENTS, span, &message));
        }
        let mut plans = self.list(arguments)?;
        match function {
            Function::RegexMatch => {
                let constants: Option<Vec<Arc<Value>>> = plans[1..].iter().map(Expr::as_constant).collect();
                if let Some(constants) = constants
                    && let Some(wanted) = constants[0].as_str()
                    && let Some(modifiers) = constants.get(1).map_or(Some(""), |value| value.as_str())
                {
                    let matcher = self.matcher(wanted, modifiers, arguments[1].span)?;
                    return Ok(self.fold(Expr::Matches(Box::new(plans.remove(0)), matcher)));
                }
            }
            Function::VectorDistance => self.measure(&mut plans),
            // A constant list of simple values is a set.
            Function::ArrayContains if plans.len() == 2 => {
                if let Some(Value::Array(values)) = self.known_constant(&plans[0]).as_deref()
                    && !values.iter().any(|value| matches!(value, Value::Array(_) | Value::Object(_)))
                    && let Some(mut constants) = self.constants_of(values.iter())
                {
                    constants.never_undefined = true;
                    return Ok(self.fold(Expr::InConstants(Box::new(plans.remove(1)), Arc::new(constants))));
                }
            }
            _ => {}
        }
        Ok(self.fold(Expr::Call(function, plans)))
    }

    /// The pattern of REGEXMATCH, if there is room for one more.
    fn matcher(&self, wanted: &str, modifiers: &str, span: Span) -> Result<Matcher, Refusal> {
        let refused = |code: &str, message: &str| Err(error(code, span, message));
        let (too_many, text_bytes) = ("The patterns of REGEXMATCH are too large.", wanted.len());
        if text_bytes > limits::PATTERN_TEXT_BYTES || !self.has_room(limits::SMALL_PATTERN_BYTES, 0) {
            return refused(code::TOO_LARGE, too_many);
        }
        match Matcher::new(wanted, modifiers) {
            Some(matcher) if self.has_room(matcher.held_bytes, matcher.held_bytes) => Ok(matcher),
            Some(_) => refused(code::TOO_LARGE, too_many),
            None => refused(code::NOT_SUPPORTED, "The pattern of REGEXMATCH is not valid, or too large."),
        }
    }

    /// Takes room for looking at so many bytes and for holding so many, if there is as much.
    fn has_room(&self, looked: usize, held: usize) -> bool {
        self.room.look(looked).is_ok() && self.room.keep(held).is_ok()
    }

    /// The value, if it is constant. A long array or object too, while there is room for such trees.
    pub(super) fn known_constant(&self, expr: &Expr) -> Option<Arc<Value>> {
        match expr {
            Expr::ConstantText(text) if text.len() > limits::CONSTANT_TREE_BYTES => {
                let is_small = tree_bytes_of_text(text) <= limits::QUERY_TEXT_BYTES;
                (is_small && self.has_room(limits::TREE_WORK * text.len(), 0)).then_some(())?;
                json::parse(text).ok().map(Arc::new)
            }
            expr => expr.as_constant(),
        }
    }

    /// The words of a constant phrase that count for a score.
    pub(super) fn telling_words(&self, text: &str, is_english: bool) -> Result<Vec<String>, Refusal> {
        self.room.free_to(0);
        telling_words(text, is_english, &Env::new(Time(0), 0, self.room)).map_err(|stop| *stop)
    }

    /// An expression, written down to be compared with others.
    fn written(&self, plan: &Expr) -> Result<String, Refusal> {
        let mut written = Written { room: self.room, text: String::new() };
        write!(written, "{plan:?}").map_err(|_| {
            Refusal::bad("The expressions of GROUP BY, and those that are selected of groups, are too long.")
        })?;
        Ok(written.text)
    }

    /// The constants of an IN list, when all entries are simple constants.
    fn constants(&self, list: &[Expr]) -> Option<Constants> {
        let values = list.iter().map(Expr::as_constant).collect::<Option<Vec<_>>>()?;
        self.constants_of(values.iter().map(|value| &**value))
    }

    fn constants_of<'v>(&self, list: impl Iterator<Item = &'v Value> + Clone) -> Option<Constants> {
        let bytes = |value: &Value| match value {
            Value::String(text) => text.len(),
            Value::Array(_) | Value::Object(_) => limits::CONSTANT_TREE_BYTES * 32,
            _ => 0,
        };
        // As a key, as a value, and for a planner.
        let held: usize = list.clone().map(|value| 2 * (bytes(value) + limits::CONSTANT_COST)).sum();
        self.has_room(2 * held, held).then_some(())?;
        let mut constants =
            Constants { keys: HashSet::new(), values: Vec::new(), types: 0, never_undefined: false };
        for value in list {
            let mut key = Vec::new();
            json::sort_key(value, &mut key);
            constants.types |= type_bit(key[0]);
            constants.keys.insert(key);
            constants.values.push(value.clone());
        }
        Some(constants)
    }

    /// Computes once what depends on no row, if it is small and takes little: else it is computed when the query runs.
    fn fold(&self, plan: Expr) -> Expr {
        if !can_fold(&plan) {
            return plan;
        }
        self.room.free_to(0);
        let mut env = Env::new(Time(0), 0, self.room);
        let folded = match plan.evaluate(&mut env) {
            Ok(value) => match env.weigh(&value) {
                Ok(weight) if self.has_room(limits::TREE_WORK * weight, 2 * value.tree_bytes()) => {
                    Some(folded(&value))
                }
                _ => None,
            },
            // Too large: the same is said when it runs.
            Err(_) => None,
        };
        folded.unwrap_or(plan)
    }

    fn aggregate(
        &mut self,
        aggregate: Aggregate,
        name: &str,
        arguments: &[syntax::Expr],
        span: Span,
    ) -> Result<Expr, Refusal> {
        let [argument] = arguments else {
            let message = format!("The {} function requires 1 argument(s).", name.to_ascii_uppercase());
            return Err(error(code::WRONG_COUNT_OF_ARGUMENTS, span, &message));
        };
        let Some(mut grouping) = self.grouping.take() else {
            let message =
                "Cannot perform an aggregate function here, or on an expression containing an aggregate.";
            return Err(error(code::AGGREGATE_OF_AGGREGATE, span, message));
        };
        let argument = self.expr(argument)?;
        grouping.aggregates.push((aggregate, argument));
        let number = grouping.aggregates.len() - 1;
        self.grouping = Some(grouping);
        Ok(Expr::Aggregate(number))
    }

    /// What a list of members of whole items has for this one.
    fn known_of<'b>(&self, list: &'b [(Vec<String>, String)], member: &Expr) -> Option<&'b str> {
        let Expr::Path(slot, steps) = member else { return None };
        let is_it = |names: &[String]| {
            let is_named =
                |(step, name): (&Step, &String)| matches!(step, Step::Member(own) if **own == **name);
            names.len() == steps.len() && steps.iter().zip(names).all(is_named)
        };
        let found = list.iter().find(|(names, _)| Some(*slot) == self.root && is_it(names));
        found.map(|(_, known)| known.as_str())
    }

    /// Whether a text is English, which it is unless the container's policy says otherwise for the member.
    pub fn is_english(&self, text: &Expr) -> bool {
        let language = self.known_of(self.known.languages, text);
        language.is_none_or(|language| ENGLISH.contains(&language))
    }

    /// How a distance is measured that does not say so itself: as the container's policy has it for the member.
    fn measure(&self, arguments: &mut Vec<Expr>) {
        let options = arguments.get(3).and_then(Expr::as_constant);
        if options.is_some_and(|options| options.get("distanceFunction").is_some()) {
            return;
        }
        let of = |vector: &Expr| self.known_of(self.known.distances, vector);
        let Some(function) = arguments.iter().take(2).find_map(of) else { return };
        let options = Object(vec![("distanceFunction".to_owned(), Value::text(function))]);
        arguments.resize(3, Expr::Constant(Arc::new(Value::Bool(false))));
        arguments.push(constant(Value::Object(options)));
    }

    /// A computed property of whole items: its query's value in place of the member.
    fn computed_property(&mut self, value: &Expr, name: &str) -> Result<Option<Expr>, Refusal> {
        let (Expr::Slot(slot), Some(root)) = (value, self.root) else { return Ok(None) };
        if *slot != root {
            return Ok(None);
        }
        let Some((_, text)) = self.known.computed.iter().find(|(known, _)| known == name) else {
            return Ok(None);
        };
        // It is read again for each place that names it.
        if !self.has_room(limits::PROPERTY_WORK * text.len(), limits::PROPERTY_COST * text.len()) {
            return Err(Refusal::bad(
                "The computed properties that the query names are too long, or too many.",
            ));
        }
        let select = parse::query(text)?;
        let parameters = HashMap::new();
        let mut inner = Compiler {
            parameters: &parameters,
            known: Known::default(),
            room: self.room,
            scope: Vec::new(),
            slots: root,
            root: None,
            grouping: None,
        };
        let Selection::Value(value) = inner.select(&select, true)?.selection else {
            return Err(Refusal::bad(format!(
                "The computed property '{name}' has a query without SELECT VALUE."
            )));
        };
        Ok(Some(value))
    }
}

/// The first and the last name of a path.
fn names(path: &syntax::Expr) -> (String, Option<String>) {
    match &path.kind {
        ExprKind::Name(name) => (name.clone(), Some(name.clone())),
        ExprKind::Member(value, name) => (names(value).0, Some(name.clone())),
        ExprKind::Index(value, _) => (names(value).0, None),
        _ => (String::new(), None),
    }
}

/// What a selected expression is called without an alias: its last name.
fn own_name(expr: &syntax::Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Name(name) | ExprKind::Member(_, name) => Some(name.clone()),
        _ => None,
    }
}

/// `SELECT *` gives the items of the one source as they are.
fn check_star(select: &syntax::Select) -> Result<(), Refusal> {
    let syntax::Selection::Star(span) = &select.selection else { return Ok(()) };
    if !select.group.is_empty() {
        return Err(error(code::STAR_WITH_GROUP, *span, "'SELECT *' is not allowed with GROUP BY."));
    }
    if select.from.len() != 1 {
        let message = "'SELECT *' is only valid with a single input set.";
        return Err(error(code::STAR_NEEDS_ONE_SOURCE, *span, message));
    }
    Ok(())
}

fn check_slice(select: &syntax::Select) -> Result<(), Refusal> {
    match (&select.top, &select.slice) {
        (Some(_), Some((.., span))) => {
            Err(error(code::SYNTAX, *span, "'TOP' is not allowed together with 'OFFSET LIMIT'."))
        }
        _ => Ok(()),
    }
}

fn has_aggregate(selection: &syntax::Selection) -> bool {
    match selection {
        syntax::Selection::Star(_) => false,
        syntax::Selection::Value(value) => contains_aggregate(value),
        syntax::Selection::List(items) => items.iter().any(|item| contains_aggregate(&item.value)),
    }
}

/// Whether an aggregate stands in the expression, outside of sub-queries.
fn contains_aggregate(expr: &syntax::Expr) -> bool {
    match &expr.kind {
        ExprKind::Call(name, arguments) => {
            Aggregate::by_name(name).is_some() || arguments.iter().any(contains_aggregate)
        }
        ExprKind::Member(value, _) | ExprKind::Unary(_, value) | ExprKind::Like(value, ..) => {
            contains_aggregate(value)
        }
        ExprKind::Index(left, right) | ExprKind::Binary(_, left, right) | ExprKind::Coalesce(left, right) => {
            contains_aggregate(left) || contains_aggregate(right)
        }
        ExprKind::Object(members) => members.iter().any(|(_, value)| contains_aggregate(value)),
        ExprKind::Array(parts) | ExprKind::And(parts) | ExprKind::Or(parts) => {
            parts.iter().any(contains_aggregate)
        }
        ExprKind::Choice(first, second, third) | ExprKind::Between(first, second, third) => {
            [first, second, third].iter().any(|part| contains_aggregate(part))
        }
        ExprKind::In(value, list) => contains_aggregate(value) || list.iter().any(contains_aggregate),
        ExprKind::Query(_) | ExprKind::Exists(_) | ExprKind::ArrayOf(_) => false,
        ExprKind::Literal(_)
        | ExprKind::Undefined
        | ExprKind::Parameter(_)
        | ExprKind::Name(_)
        | ExprKind::UserFunction(_) => false,
    }
}

/// Simple values as they are; arrays and objects as text, which is walked only as far as needed.
pub fn constant(value: Value) -> Expr {
    match value {
        Value::Array(_) | Value::Object(_) => Expr::ConstantText(value.to_text().into()),
        simple => Expr::Constant(Arc::new(simple)),
    }
}

fn folded(value: &Val<'_>) -> Expr {
    value.tree().map_or(Expr::Undefined, constant)
}

fn step_of(value: &Value) -> Option<Step> {
    match value {
        Value::String(name) => Some(Step::Member(name.clone())),
        Value::Number(number) => {
            number.as_i64().and_then(|index| usize::try_from(index).ok()).map(Step::Index)
        }
        _ => None,
    }
}

fn stepped(value: Expr, step: Step) -> Expr {
    match value {
        Expr::Slot(slot) => Expr::Path(slot, vec![step]),
        Expr::Path(slot, mut steps) => {
            steps.push(step);
            Expr::Path(slot, steps)
        }
        other => match step {
            Step::Member(name) => Expr::Member(Box::new(other), name.into()),
            Step::Index(index) => {
                let index = Arc::new(Value::integer(index as i64));
                Expr::Index(Box::new(other), Box::new(Expr::Constant(index)))
            }
            Step::Each => other,
        },
    }
}

/// Text that is written as long as there is room to look at it.
struct Written<'r> {
    room: &'r Meter<'r>,
    text: String,
}

impl Write for Written<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.room.look(text.len()).map_err(|_| std::fmt::Error)?;
        self.text.push_str(text);
        Ok(())
    }
}

/// Whether it depends on no row.
fn can_fold(plan: &Expr) -> bool {
    let is_constant =
        |expr: &Expr| matches!(expr, Expr::Constant(_) | Expr::ConstantText(_) | Expr::Undefined);
    match plan {
        Expr::Call(function, arguments) => function.is_pure() && arguments.iter().all(is_constant),
        Expr::Binary(_, left, right) | Expr::Coalesce(left, right) => is_constant(left) && is_constant(right),
        Expr::Array(elements) => {
            elements.iter().all(|element| matches!(element, Expr::Constant(_) | Expr::ConstantText(_)))
        }
        Expr::Object(members) => {
            members.iter().all(|(_, value)| matches!(value, Expr::Constant(_) | Expr::ConstantText(_)))
        }
        Expr::Member(value, _)
        | Expr::Like(value, _)
        | Expr::Matches(value, _)
        | Expr::InConstants(value, _) => is_constant(value),
        Expr::Index(value, index) => is_constant(value) && is_constant(index),
        Expr::Between(value, low, high) => is_constant(value) && is_constant(low) && is_constant(high),
        _ => false,
    }
}
