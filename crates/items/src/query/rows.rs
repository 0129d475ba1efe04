//! The rows of a query: what FROM binds, WHERE keeps and SELECT makes, for one item or one row of the query around.

use super::aggregate::State;
use super::continuation::short;
use super::evaluate::{Env, Evaluated, Stop, follow};
use super::plan::{From, FromSource, Select, Selection};
use super::value::{Text, Val};
use crate::json::Value;
use crate::limits::{self, AGGREGATE_COST, GROUP_COST};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    On,
    Enough,
}

type Found<'f, 'a> = &'f mut dyn FnMut(&mut Env<'a>) -> Result<Flow, Stop>;

/// Calls `found` for every row that passes WHERE. `item` is the item at hand, for a source that reads items.
pub fn each_row<'a>(
    select: &'a Select,
    item: Option<&Val<'a>>,
    env: &mut Env<'a>,
    found: Found<'_, 'a>,
) -> Result<Flow, Stop> {
    each_source(select, &select.from, item, env, found)
}

/// As `each_of_source`. Outside of sub-queries what was made for a row is gone with it.
fn each_source<'a>(
    select: &'a Select,
    from: &'a [From],
    item: Option<&Val<'a>>,
    env: &mut Env<'a>,
    found: Found<'_, 'a>,
) -> Result<Flow, Stop> {
    let before = env.meter.row_bytes();
    let flow = each_of_source(select, from, item, env, found)?;
    if env.gathering == 0 {
        env.meter.free_to(before);
    }
    Ok(flow)
}

fn each_of_source<'a>(
    select: &'a Select,
    from: &'a [From],
    item: Option<&Val<'a>>,
    env: &mut Env<'a>,
    found: Found<'_, 'a>,
) -> Result<Flow, Stop> {
    let Some((first, rest)) = from.split_first() else {
        if let Some(filter) = &select.filter {
            let before = env.meter.row_bytes();
            let holds = filter.holds(env)?;
            env.meter.free_to(before);
            if !holds {
                return Ok(Flow::On);
            }
        }
        return found(env);
    };
    let value = match &first.source {
        FromSource::Items(steps) => follow(item.unwrap_or(&Val::Undefined), steps, env)?,
        FromSource::Value(expr) => expr.evaluate(env)?,
        FromSource::Query(query) => {
            for row in select_rows(query, env)? {
                if bind(select, rest, item, row, env, found)? == Flow::Enough {
                    return Ok(Flow::Enough);
                }
            }
            return Ok(Flow::On);
        }
    };
    if !first.is_each {
        return if value.is_undefined() { Ok(Flow::On) } else { bind(select, rest, item, value, env, found) };
    }
    // Missing or no array: no rows.
    let Some(elements) = value.elements() else { return Ok(Flow::On) };
    let is_raw = matches!(value, Val::RawArray(_));
    for element in elements {
        if is_raw {
            env.charge(element.unescaped_bytes())?;
        }
        if bind(select, rest, item, element, env, found)? == Flow::Enough {
            return Ok(Flow::Enough);
        }
    }
    Ok(Flow::On)
}

fn bind<'a>(
    select: &'a Select,
    rest: &'a [From],
    item: Option<&Val<'a>>,
    value: Val<'a>,
    env: &mut Env<'a>,
    found: Found<'_, 'a>,
) -> Result<Flow, Stop> {
    env.step()?;
    if let Val::RawArray(text) | Val::RawObject(text) = &value {
        // It was walked to find where it ends.
        env.look(text.len())?;
    }
    env.slots.push(value);
    let flow = each_source(select, rest, item, env, found);
    env.slots.pop();
    flow
}

/// What SELECT makes of the row that is bound.
pub fn project<'a>(select: &'a Select, env: &mut Env<'a>) -> Evaluated<'a> {
    match &select.selection {
        Selection::Star => Ok(env.slots.get(select.first_slot).cloned().unwrap_or(Val::Undefined)),
        Selection::Value(expr) => expr.evaluate(env),
        Selection::List(items) => {
            let mut members = Vec::with_capacity(items.len());
            for (name, expr) in items {
                members.push((Text::Borrowed(name), expr.evaluate(env)?));
            }
            Ok(Val::Object(Rc::new(members)))
        }
    }
}

/// The sort keys of the row that is bound, descending ones turned over.
pub fn sort_key<'a>(select: &'a Select, env: &mut Env<'a>) -> Result<Vec<u8>, Stop> {
    let mut key = Vec::with_capacity(16 * select.order.len());
    for sort in &select.order {
        let from = key.len();
        let value = sort.value.evaluate(env)?;
        env.sort_key(&value, &mut key)?;
        if sort.is_descending {
            // No key is the beginning of another, so turning every byte over turns the order over.
            key[from..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
    Ok(key)
}

/// Whether a sub-query has a row that is not undefined.
pub fn has_row<'a>(select: &'a Select, env: &mut Env<'a>) -> Result<bool, Stop> {
    if select.is_grouped() || select.slice.is_some() || select.top == Some(0) {
        return Ok(!select_rows(select, env)?.is_empty());
    }
    let mut has_row = false;
    each_row(select, None, env, &mut |env| {
        has_row = !project(select, env)?.is_undefined();
        Ok(if has_row { Flow::Enough } else { Flow::On })
    })?;
    Ok(has_row)
}

/// All rows of a sub-query, undefined ones left out.
pub fn select_rows<'a>(select: &'a Select, env: &mut Env<'a>) -> Result<Vec<Val<'a>>, Stop> {
    env.gathering += 1;
    let rows = gathered(select, env);
    env.gathering -= 1;
    rows
}

fn gathered<'a>(select: &'a Select, env: &mut Env<'a>) -> Result<Vec<Val<'a>>, Stop> {
    let mut rows: Vec<(Vec<u8>, Val<'a>)> = Vec::new();
    if select.is_grouped() {
        let mut groups = Groups::new(select);
        each_row(select, None, env, &mut |env| {
            let held = groups.take(select, env)?;
            env.charge(usize::try_from(held).unwrap_or(0))?;
            Ok(Flow::On)
        })?;
        for group in groups.finish() {
            rows.extend(group.row(select, env)?);
        }
    } else {
        // Without ORDER BY and DISTINCT the first rows are all that is asked for.
        let enough = match (select.order.is_empty() && !select.is_distinct, select.top, select.slice) {
            (true, Some(top), _) => top,
            (true, None, Some((offset, limit))) => offset.saturating_add(limit),
            _ => u64::MAX,
        };
        each_row(select, None, env, &mut |env| {
            if rows.len() as u64 >= enough {
                return Ok(Flow::Enough);
            }
            let row = project(select, env)?;
            if !row.is_undefined() {
                let key = sort_key(select, env)?;
                env.charge(key.len() + size_of::<(Vec<u8>, Val<'_>)>())?;
                rows.push((key, row));
            }
            Ok(Flow::On)
        })?;
    }
    if !select.order.is_empty() {
        rows.sort_by(|left, right| left.0.cmp(&right.0));
    }
    let mut rows: Vec<Val<'a>> = rows.into_iter().map(|(_, row)| row).collect();
    if select.is_distinct {
        rows = distinct(rows, env)?;
    }
    if let Some((offset, limit)) = select.slice {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(rows.len());
        rows.drain(..offset);
        rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    if let Some(top) = select.top {
        rows.truncate(usize::try_from(top).unwrap_or(usize::MAX));
    }
    Ok(rows)
}

/// Each value once, where it came first.
fn distinct<'a>(rows: Vec<Val<'a>>, env: &mut Env<'a>) -> Result<Vec<Val<'a>>, Stop> {
    let before = env.meter.row_bytes();
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for row in rows {
        let mut key = Vec::new();
        env.sort_key(&row, &mut key)?;
        let key_bytes = key.len();
        if seen.insert(short(&key)) {
            env.charge(key_bytes.min(limits::TOKEN_NAME_BYTES) + limits::HELD_ROW_COST)?;
            kept.push(row);
        }
    }
    env.meter.free_to(before);
    Ok(kept)
}

/// Groups while rows go by. Without GROUP BY there is one, also without rows.
#[derive(Debug)]
pub struct Groups {
    places: HashMap<Vec<u8>, usize>,
    groups: Vec<Group>,
}

#[derive(Debug)]
pub struct Group {
    /// Sort keys of the GROUP BY values: what names the group.
    pub key: Vec<u8>,
    values: Vec<Option<Value>>,
    states: Vec<State>,
    results: Vec<Option<Value>>,
}

impl Groups {
    pub fn new(select: &Select) -> Groups {
        let mut groups = Groups { places: HashMap::new(), groups: Vec::new() };
        if select.group.is_empty() {
            groups.places.insert(Vec::new(), 0);
            groups.groups.push(Group::new(select, Vec::new(), Vec::new()));
        }
        groups
    }

    /// Takes the row that is bound; gives how many bytes more, or less, are held from now on.
    pub fn take<'a>(&mut self, select: &'a Select, env: &mut Env<'a>) -> Result<isize, Stop> {
        let mut key = Vec::new();
        let mut values = Vec::with_capacity(select.group.len());
        for expr in &select.group {
            let value = expr.evaluate(env)?;
            env.sort_key(&value, &mut key)?;
            values.push(value);
        }
        let mut held = 0_isize;
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None => {
                let aggregates = select.aggregates.len() * AGGREGATE_COST;
                let trees: usize = values.iter().map(Val::tree_bytes).sum();
                held += (2 * key.len() + trees + GROUP_COST + aggregates) as isize;
                let values = values.iter().map(Val::tree).collect();
                self.groups.push(Group::new(select, key.clone(), values));
                self.places.insert(key, self.groups.len() - 1);
                self.groups.len() - 1
            }
        };
        for ((aggregate, argument), state) in select.aggregates.iter().zip(&mut self.groups[place].states) {
            let value = argument.evaluate(env)?;
            env.weigh(&value)?;
            held += aggregate.take(state, &value);
        }
        Ok(held)
    }

    /// In the order of their keys.
    pub fn finish(self) -> Vec<Group> {
        let mut groups = self.groups;
        groups.sort_by(|left, right| left.key.cmp(&right.key));
        groups
    }
}

impl Group {
    fn new(select: &Select, key: Vec<u8>, values: Vec<Option<Value>>) -> Group {
        let states = select.aggregates.iter().map(|(aggregate, _)| aggregate.start()).collect();
        Group { key, values, states, results: Vec::new() }
    }

    /// Ends the aggregates, once.
    pub fn end(&mut self, select: &Select) {
        let states = std::mem::take(&mut self.states);
        self.results = select
            .aggregates
            .iter()
            .zip(states)
            .map(|((aggregate, _), state)| aggregate.finish(state))
            .collect();
    }

    /// Binds what SELECT and ORDER BY of a group look at.
    pub fn bind<'a>(&'a self, env: &mut Env<'a>) {
        let defined = |value: &'a Option<Value>| value.as_ref().map_or(Val::Undefined, Val::of_tree);
        env.group = self.values.iter().map(defined).collect();
        env.aggregates = self.results.iter().map(defined).collect();
    }

    /// Sort key and row of a sub-query's group.
    fn row<'a>(mut self, select: &'a Select, env: &mut Env<'a>) -> Result<Option<(Vec<u8>, Val<'a>)>, Stop> {
        self.end(select);
        let defined = |value: Option<Value>| value.map_or(Val::Undefined, Val::of_owned);
        let outer = (std::mem::take(&mut env.group), std::mem::take(&mut env.aggregates));
        env.group = self.values.into_iter().map(defined).collect();
        env.aggregates = self.results.into_iter().map(defined).collect();
        let row = project(select, env)?;
        let key = sort_key(select, env)?;
        (env.group, env.aggregates) = outer;
        Ok(if row.is_undefined() { None } else { Some((key, row)) })
    }
}
