//! Which keys a query reads: its partition, its ids, an index, the order of changes, or everything.
//!
//! The query checks every item it is given, so a plan may give too many and never too few. Pages of a query must come from the same plan: a position
//! tells which one it belongs to.

use super::generation;
use super::leaves::{PathHash, value_key};
use crate::definition::Container;
use crate::definition::indexing::EACH;
use crate::item::body::{self, SYSTEM};
use crate::item::scope::Scope;
use crate::item::stored::{Numbers, Stored};
use crate::json::Value;
use crate::keys::{self, Section};
use crate::query::{Conjunct, Path, Step, Test, Wants};
use crate::view::{Direction, Unreadable, View};
use crate::{KeyPart, PartitionKey, limits, order};
use std::collections::HashSet;

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub access: Access,
    pub scope: Scope,
    /// Candidates come in the order that the query asks for.
    pub is_ordered: bool,
    pub direction: Direction,
    /// The few candidates there are come in the order in which their items were made, whatever leads to them.
    pub is_by_making: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Access {
    /// Ranges of items by their place.
    Items(Vec<Range>),
    /// All items by the number in their rid: in the order in which they were made.
    Made,
    /// Ranges of one path's index entries.
    Index { path: Path, ranges: Vec<Range> },
    /// In the order of changes, between two seconds of `_ts`, both included.
    Changes { from: Option<i64>, to: Option<i64> },
}

/// Keys with `from <= key < to`.
pub type Range = (Vec<u8>, Vec<u8>);

impl Plan {
    /// The path whose index is used, as a policy would name it.
    pub fn index_path(&self) -> Option<String> {
        match &self.access {
            Access::Index { path, .. } => Some(path_text(path)),
            Access::Changes { .. } => Some("/_ts/?".to_owned()),
            Access::Items(_) | Access::Made => None,
        }
    }
}

pub fn path_text(path: &Path) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Member(name) => text.push_str(&format!("/{name}")),
            Step::Index(_) | Step::Each => text.push_str("/[]"),
        }
    }
    text + "/?"
}

fn plain(access: Access, scope: Scope) -> Plan {
    Plan { access, scope, is_ordered: false, direction: Direction::Ascending, is_by_making: false }
}

/// Chooses. `resume` is the key at which a page before ended, without its section: the plan is then the one it came from.
pub fn choose(
    container: &Container,
    view: &dyn View,
    wants: &Wants,
    scope: Scope,
    resume: Option<&[u8]>,
) -> Result<Plan, Unreadable> {
    let plan = cheapest(container, view, wants, scope, resume)?;
    if !wants.reads_items || !wants.streams || plan.is_ordered {
        return Ok(plan);
    }
    by_making(container, view, wants, plan, resume)
}

/// Rows of which nobody asked for an order come in the one in which their items were made, as in the service, where that costs little.
/// A page that ended in that order goes on in it.
fn by_making(
    container: &Container,
    view: &dyn View,
    wants: &Wants,
    plan: Plan,
    resume: Option<&[u8]>,
) -> Result<Plan, Unreadable> {
    let goes_on = resume.and_then(|resume| resume.first()).map(|section| *section == Section::Rids as u8);
    let (Access::Items(ranges) | Access::Index { ranges, .. }) = &plan.access else { return Ok(plan) };
    if goes_on == Some(false) {
        return Ok(plan);
    }
    if ranges.len() <= limits::MADE_SORTED && !has_more_than(view, ranges, limits::MADE_SORTED)? {
        return Ok(Plan { is_by_making: true, ..plan });
    }
    let most = if plan.scope == Scope::all() { limits::MADE_ITEMS } else { limits::MADE_ITEMS_SCOPED };
    let is_scan = matches!(plan.access, Access::Items(_)) && !wants.is_filtered;
    let is_cheap = is_scan && Numbers::read(view, container.number)?.items <= most;
    Ok(if goes_on == Some(true) || is_cheap { plain(Access::Made, plan.scope) } else { plan })
}

fn cheapest(
    container: &Container,
    view: &dyn View,
    wants: &Wants,
    scope: Scope,
    resume: Option<&[u8]>,
) -> Result<Plan, Unreadable> {
    if !wants.reads_items {
        return Ok(plain(Access::Items(Vec::new()), scope));
    }
    let (scope, ranges) = by_partition(container, wants, scope);
    if let Some(ranges) = ranges.points {
        return Ok(plain(Access::Items(ranges), scope));
    }
    let items = plain(Access::Items(ranges.partitions), scope.clone());
    let mut plans = by_index(container, wants, &scope);
    if let Some(plan) = by_time(wants, &scope, container) {
        plans.push(plan);
    }
    plans.push(items);
    if let Some(resume) = resume {
        let of_resume = |plan: &Plan| belongs(container, plan, resume);
        if let Some(at) = plans.iter().position(of_resume) {
            return Ok(plans.swap_remove(at));
        }
    }
    let items = plans.last().cloned();
    let plan = smallest(view, wants, plans)?;
    match items {
        Some(items) if reads_much(container, view, &plan, &items)? => Ok(items),
        _ => Ok(plan),
    }
}

struct ByPartition {
    points: Option<Vec<Range>>,
    partitions: Vec<Range>,
}

/// What equalities on the partition key and the id leave of the scope.
fn by_partition(container: &Container, wants: &Wants, scope: Scope) -> (Scope, ByPartition) {
    let settings = &container.settings;
    let keys = match &scope.key {
        Some(key) if key.0.len() == settings.key_paths.len() => vec![key.clone()],
        _ => partition_keys(container, wants),
    };
    if keys.is_empty() {
        let partitions = vec![scope.items(container)];
        return (scope, ByPartition { points: None, partitions });
    }
    let ids = constants(wants, &["id".to_owned()]);
    let ids: Option<Vec<String>> =
        ids.map(|ids| ids.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect());
    let mut points = ids.and_then(|ids| points(container, &keys, &ids));
    let mut partitions: Vec<Range> =
        keys.iter().map(|key| Scope::of_key(settings, key).items(container)).collect();
    for ranges in points.iter_mut().chain([&mut partitions]) {
        ranges.sort();
        ranges.dedup();
    }
    let scope = match (&keys[..], &scope.key) {
        ([key], None) if scope == Scope::all() => Scope::of_key(settings, key),
        _ => scope,
    };
    (scope, ByPartition { points, partitions })
}

/// A range for each item that a key and an id can name; `None`: too many. Where the id is a part of the key, a key names one item
/// at most: a thousand ids are a thousand items then, not a million.
fn points(container: &Container, keys: &[PartitionKey], ids: &[String]) -> Option<Vec<Range>> {
    let settings = &container.settings;
    let level = settings.key_paths.iter().position(|names| *names == ["id"]);
    let known: HashSet<&str> = ids.iter().map(String::as_str).collect();
    if level.is_none() && keys.len() * known.len() > limits::PLAN_POINTS {
        return None;
    }
    let range = |key: &PartitionKey, id: &str| {
        let from = keys::item(container.number, &body::place(settings, key, id));
        let to = [&from[..], &[0]].concat();
        (from, to)
    };
    let mut ranges = Vec::new();
    for key in keys {
        match level.map(|level| &key.0[level]) {
            Some(KeyPart::String(id)) if known.contains(id.as_str()) => ranges.push(range(key, id)),
            Some(_) => {}
            None => ranges.extend(known.iter().map(|id| range(key, id))),
        }
    }
    Some(ranges)
}

/// The partition keys that the query can only find something in; none: any.
fn partition_keys(container: &Container, wants: &Wants) -> Vec<PartitionKey> {
    let mut keys = vec![PartitionKey::default()];
    for names in &container.settings.key_paths {
        let Some(values) = constants(wants, names) else {
            return Vec::new();
        };
        let parts: Vec<KeyPart> = values.into_iter().filter_map(part_of).collect();
        if keys.len() * parts.len() > limits::PLAN_RANGES {
            return Vec::new();
        }
        let longer = |key: &PartitionKey| {
            let with = |part: &KeyPart| PartitionKey([&key.0[..], std::slice::from_ref(part)].concat());
            parts.iter().map(with).collect::<Vec<_>>()
        };
        keys = keys.iter().flat_map(longer).collect();
    }
    keys
}

/// Whether the query can only find something in one logical partition, by what it says of the partition key.
pub fn names_one_partition(container: &Container, wants: &Wants) -> bool {
    let is_named = |names: &Vec<String>| {
        wants.conjuncts.iter().any(|conjunct| {
            let has_one_value = match &conjunct.test {
                Test::Equal(_) => true,
                Test::In(values) => values.len() == 1,
                _ => false,
            };
            has_one_value && is_path(&conjunct.path, names)
        })
    };
    container.settings.key_paths.iter().all(is_named)
}

fn is_path(path: &Path, names: &[String]) -> bool {
    let is_step = |(step, name): (&Step, &String)| matches!(step, Step::Member(member) if member == name);
    path.len() == names.len() && path.iter().zip(names).all(is_step)
}

fn part_of(value: &Value) -> Option<KeyPart> {
    Some(match value {
        Value::Null => KeyPart::Null,
        Value::Bool(fact) => KeyPart::Bool(*fact),
        Value::Number(number) => KeyPart::Number(number.as_f64()),
        Value::String(text) => KeyPart::String(text.clone()),
        // No item has such a key.
        Value::Array(_) | Value::Object(_) => return None,
    })
}

/// The values that the member at these names can only have. Zero has two keys, so it does not count as one value.
fn constants<'w>(wants: &'w Wants, names: &[String]) -> Option<Vec<&'w Value>> {
    let values: Vec<&Value> =
        wants.conjuncts.iter().filter(|conjunct| is_path(&conjunct.path, names)).find_map(|conjunct| {
            match &conjunct.test {
                Test::Equal(value) => Some(vec![value]),
                Test::In(values) if values.len() <= limits::PLAN_RANGES => Some(values.iter().collect()),
                _ => None,
            }
        })?;
    let is_zero = |value: &&&Value| value.as_number().is_some_and(|number| number.as_f64() == 0.0);
    if values.iter().any(|value| is_zero(&value)) { None } else { Some(values) }
}

/// A plan for each test that an index can decide.
fn by_index(container: &Container, wants: &Wants, scope: &Scope) -> Vec<Plan> {
    if container.index.built_to.is_some() || !container.settings.indexing.is_on {
        return Vec::new();
    }
    let order = match &wants.order[..] {
        [order] => Some(order),
        _ => None,
    };
    let mut plans = Vec::new();
    for conjunct in &wants.conjuncts {
        let Some((path, hash)) = indexed(container, conjunct) else { continue };
        let mut front = generation(container.number, container.index.generation);
        front.extend_from_slice(&hash.0.to_be_bytes());
        let Some(mut ranges) = ranges(&front, &conjunct.test) else { continue };
        if scope.is_one_partition(&container.settings)
            && matches!(conjunct.test, Test::Equal(_) | Test::ArrayContains(_))
        {
            // Entries of one value are in the order of places: a partition is one range of them.
            for (from, to) in &mut ranges {
                *to = order::end_of_prefix(&[&from[..], &scope.from].concat());
                from.extend_from_slice(&scope.from);
            }
        }
        ranges.sort();
        ranges.dedup();
        let order = order.filter(|order| order.path == conjunct.path && wants.streams_in_order);
        let direction = match order {
            Some(order) if order.is_descending => Direction::Descending,
            _ => Direction::Ascending,
        };
        let access = Access::Index { path, ranges };
        plans.push(Plan { is_ordered: order.is_some(), direction, ..plain(access, scope.clone()) });
    }
    plans
}

/// The index path that a test needs, if it is indexed.
fn indexed(container: &Container, conjunct: &Conjunct) -> Option<(Path, PathHash)> {
    let mut path = conjunct.path.clone();
    if matches!(conjunct.test, Test::ArrayContains(_)) {
        path.push(Step::Each);
    }
    let is_one_value = matches!(conjunct.test, Test::Equal(_) | Test::ArrayContains(_));
    let mut hash = PathHash::ROOT;
    let mut names = Vec::new();
    for step in &path {
        match step {
            Step::Member(name) => {
                hash = hash.then(name.as_bytes());
                names.push(name.as_str());
            }
            // An item may have several entries below an array, but only one of each value.
            Step::Each if is_one_value => {
                hash = hash.each();
                names.push(EACH);
            }
            Step::Each | Step::Index(_) => return None,
        }
    }
    let is_system = names.first().is_none_or(|name| SYSTEM.contains(name));
    let is_computed =
        container.settings.computed.iter().any(|(name, _)| Some(&name.as_str()) == names.first());
    (!is_system && !is_computed && container.settings.indexing.includes(&names)).then_some((path, hash))
}

/// Index entries behind `front` that can pass the test.
fn ranges(front: &[u8], test: &Test) -> Option<Vec<Range>> {
    let with = |value: &[u8]| [front, value].concat();
    let one = |value: &Value| {
        let from = with(&value_key(value)?.0);
        let to = order::end_of_prefix(&from);
        Some((from, to))
    };
    match test {
        Test::Equal(value) | Test::ArrayContains(value) => Some(vec![one(value)?]),
        Test::In(values) if values.len() <= limits::PLAN_RANGES => values.iter().map(one).collect(),
        Test::In(_) | Test::IsDefined => None,
        Test::Range { low, high } => {
            let kind = low.as_ref().or(high.as_ref()).map(|(value, _)| value)?;
            // A range stays within the type of its bounds.
            let (mut from, mut to) = type_range(front, kind)?;
            if let Some((value, is_included)) = low {
                let (key, is_whole) = value_key(value)?;
                // Behind a text that is cut there may be longer ones.
                from = if *is_included || !is_whole { with(&key) } else { order::end_of_prefix(&with(&key)) };
            }
            if let Some((value, is_included)) = high {
                let (key, is_whole) = value_key(value)?;
                to = if *is_included || !is_whole { order::end_of_prefix(&with(&key)) } else { with(&key) };
            }
            Some(vec![(from, to)])
        }
        Test::StartsWith(text) => {
            let mut key = value_key(&Value::text(text.clone()))?.0;
            // Without its end, a text is the beginning of all that begin so.
            key.truncate(key.len() - 2);
            let from = with(&key);
            let to = order::end_of_prefix(&from);
            Some(vec![(from, to)])
        }
    }
}

/// All entries with values of this value's type.
fn type_range(front: &[u8], value: &Value) -> Option<Range> {
    let first = |value: &Value| value_key(value).and_then(|(key, _)| key.first().copied());
    let (low, high) = match value {
        Value::Bool(_) => (first(&Value::Bool(false))?, first(&Value::Bool(true))?),
        value => (first(value)?, first(value)?),
    };
    let from = [front, &[low]].concat();
    let to = order::end_of_prefix(&[front, &[high]].concat());
    Some((from, to))
}

/// Tests on `_ts`, or the wish for its order: changes are in the order of their time.
fn by_time(wants: &Wants, scope: &Scope, container: &Container) -> Option<Plan> {
    let is_time = |path: &Path| matches!(&path[..], [Step::Member(name)] if name == "_ts");
    let is_computed = container.settings.computed.iter().any(|(name, _)| name == "_ts");
    let order = match &wants.order[..] {
        [order] if is_time(&order.path) && wants.streams_in_order => Some(order),
        _ => None,
    };
    let test = wants.conjuncts.iter().find(|conjunct| is_time(&conjunct.path)).map(|conjunct| &conjunct.test);
    let second = |value: &Value| value.as_number().map(|number| number.as_f64());
    let (from, to) = match test {
        Some(Test::Equal(value)) => (second(value), second(value)),
        Some(Test::Range { low, high }) => {
            let of = |bound: &Option<(Value, bool)>| bound.as_ref().and_then(|(value, _)| second(value));
            (of(low), of(high))
        }
        _ => (None, None),
    };
    if is_computed || (order.is_none() && from.is_none() && to.is_none()) {
        return None;
    }
    let direction = match order {
        Some(order) if order.is_descending => Direction::Descending,
        _ => Direction::Ascending,
    };
    let access =
        Access::Changes { from: from.map(|at| at.floor() as i64), to: to.map(|at| at.ceil() as i64) };
    Some(Plan { is_ordered: order.is_some(), direction, ..plain(access, scope.clone()) })
}

/// Whether a page that ended at this key came from this plan.
pub fn belongs(container: &Container, plan: &Plan, resume: &[u8]) -> bool {
    let Some((&section, _)) = resume.split_first() else { return false };
    match &plan.access {
        _ if plan.is_by_making => section == Section::Rids as u8,
        Access::Made => section == Section::Rids as u8,
        Access::Items(_) => section == Section::Items as u8,
        Access::Changes { .. } => section == Section::Changes as u8,
        Access::Index { ranges, .. } => {
            let key = [&keys::container(container.number)[..], resume].concat();
            section == Section::Index as u8 && ranges.iter().any(|(from, to)| *from <= key && key < *to)
        }
    }
}

/// The plan with the fewest keys, counted up to a limit; where that does not tell, one in the query's order, else an index.
fn smallest(view: &dyn View, wants: &Wants, plans: Vec<Plan>) -> Result<Plan, Unreadable> {
    let mut best: Option<(usize, usize, Plan)> = None;
    let wants_order = !wants.order.is_empty();
    for plan in plans {
        let keys = match &plan.access {
            Access::Items(ranges) | Access::Index { ranges, .. } => count(view, ranges)?,
            Access::Changes { .. } | Access::Made => limits::PLAN_KEYS,
        };
        // Among plans too large to count.
        let rank = match (&plan.access, plan.is_ordered && wants_order) {
            (_, true) => 0,
            (Access::Index { .. }, _) => 1,
            (Access::Changes { .. }, _) => 2,
            (Access::Items(_) | Access::Made, _) => 3,
        };
        if best.as_ref().is_none_or(|(fewest, first, _)| (keys, rank) < (*fewest, *first)) {
            best = Some((keys, rank, plan));
        }
    }
    let (_, _, plan) = best.expect("reading all items is always a plan");
    Ok(plan)
}

/// Whether an index would lead to so many of the items that reading all of them in their order costs less than reading those one by one.
/// Judged by the first ones: places begin with a hash, so those are as good as any.
fn reads_much(container: &Container, view: &dyn View, plan: &Plan, all: &Plan) -> Result<bool, Unreadable> {
    let (Access::Index { ranges, .. }, Access::Items(all)) = (&plan.access, &all.access) else {
        return Ok(false);
    };
    if plan.is_ordered || count(view, ranges)? < limits::PLAN_KEYS {
        return Ok(false);
    }
    let (mut sampled, mut found) = (0, 0);
    'sample: for (from, to) in all {
        for entry in view.scan(from, to, Direction::Ascending) {
            if sampled == limits::PLAN_SAMPLE {
                break 'sample;
            }
            let (key, value) = entry?;
            let entries =
                super::entries(container, &key[keys::SECTION_BYTES..], &Stored::decode(&value)?.text);
            let is_within = |key: &Vec<u8>| ranges.iter().any(|(from, to)| from <= key && key < to);
            sampled += 1;
            found += usize::from(entries.iter().any(is_within));
        }
    }
    Ok(found * limits::SCAN_ADVANTAGE > sampled)
}

/// Up to the limit at which plans are no longer told apart.
fn count(view: &dyn View, ranges: &[Range]) -> Result<usize, Unreadable> {
    count_to(view, ranges, limits::PLAN_KEYS)
}

pub fn has_more_than(view: &dyn View, ranges: &[Range], most: usize) -> Result<bool, Unreadable> {
    Ok(count_to(view, ranges, most + 1)? > most)
}

fn count_to(view: &dyn View, ranges: &[Range], most: usize) -> Result<usize, Unreadable> {
    let mut count = 0;
    for (from, to) in ranges {
        for entry in view.scan(from, to, Direction::Ascending) {
            entry?;
            count += 1;
            if count == most {
                return Ok(count);
            }
        }
    }
    Ok(count)
}
