//! Functions of arrays, sets and objects.

use super::Function as F;
use super::Function;
use crate::limits::{HELD_ROW_COST, VALUE_COST};
use crate::query::evaluate::{Env, Evaluated, Stop};
use crate::query::value::{Elements, Text, Val, tree_bytes_of_text};
use std::collections::HashSet;
use std::rc::Rc;

pub fn call<'a>(function: Function, arguments: &[Val<'a>], env: &mut Env<'a>) -> Evaluated<'a> {
    let result = match function {
        F::ArrayConcat => concat(arguments, env)?,
        F::ArrayContains => contains(arguments, env)?,
        F::ArrayContainsAll => contains_each(arguments, true, env)?,
        F::ArrayContainsAny => contains_each(arguments, false, env)?,
        F::ArrayLength => elements(&arguments[0], env)?.map(|elements| Val::integer(elements.count() as i64)),
        F::ArraySlice => slice(arguments, env)?,
        F::ArrayAvg => numbers(arguments, env)?.filter(|all| !all.is_empty()).map(|all| {
            let sum: f64 = all.iter().sum();
            Val::number(sum / all.len() as f64)
        }),
        F::ArraySum => numbers(arguments, env)?.map(|all| Val::number(all.iter().sum())),
        F::ArrayMedian => numbers(arguments, env)?.and_then(median),
        F::ArrayMax => extreme(arguments, true, env)?,
        F::ArrayMin => extreme(arguments, false, env)?,
        F::Choose => choose(arguments),
        F::ObjectToArray => object_to_array(arguments, env)?,
        F::SetIntersect => sets(arguments, env, |_, in_right| in_right, false)?,
        F::SetDifference => sets(arguments, env, |_, in_right| !in_right, false)?,
        F::SetUnion => sets(arguments, env, |_, _| true, true)?,
        F::SetEqual => set_equal(arguments, env)?,
        _ => None,
    };
    Ok(result.unwrap_or(Val::Undefined))
}

/// The elements of an array, whose text is walked.
fn elements<'a>(value: &Val<'a>, env: &Env<'a>) -> Result<Option<Elements<'a>>, Stop> {
    if let Val::RawArray(text) = value {
        env.look(text.len())?;
    }
    Ok(value.elements())
}

fn unescaped_bytes(of: &Val<'_>, element: &Val<'_>) -> usize {
    if matches!(of, Val::RawArray(_)) { element.unescaped_bytes() } else { 0 }
}

/// All elements of an array; `None` when it is none.
fn all<'a>(value: &Val<'a>, env: &mut Env<'a>) -> Result<Option<Vec<Val<'a>>>, Stop> {
    let Some(elements) = elements(value, env)? else { return Ok(None) };
    let mut all = Vec::new();
    for element in elements {
        env.step()?;
        env.charge(VALUE_COST + unescaped_bytes(value, &element))?;
        all.push(element);
    }
    Ok(Some(all))
}

fn concat<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let mut joined = Vec::new();
    for argument in arguments {
        let Some(elements) = all(argument, env)? else { return Ok(None) };
        env.charge(elements.len() * VALUE_COST)?;
        joined.extend(elements);
    }
    Ok(Some(Val::array(joined)))
}

fn contains<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let (Some(elements), wanted) = (elements(&arguments[0], env)?, &arguments[1]) else { return Ok(None) };
    let is_partial = match arguments.get(2) {
        Some(flag) => match flag.as_bool() {
            Some(flag) => flag,
            None => return Ok(None),
        },
        None => false,
    };
    if wanted.is_undefined() {
        return Ok(None);
    }
    for element in elements {
        env.step()?;
        if env.is_same(&element, wanted)? || is_partial && has_members(&element, wanted, env)? {
            return Ok(Some(Val::Bool(true)));
        }
    }
    Ok(Some(Val::Bool(false)))
}

/// Whether an object has all members of another one, those in turn as parts.
fn has_members<'a>(element: &Val<'a>, wanted: &Val<'a>, env: &Env<'a>) -> Result<bool, Stop> {
    if !element.is_object() {
        return Ok(false);
    }
    let before = env.meter.row_bytes();
    env.charge(wanted_bytes(wanted))?;
    env.look(wanted_bytes(wanted))?;
    let Some(members) = wanted.members() else { return Ok(false) };
    for (name, value) in &members {
        let found = env.member(element, name)?;
        if !env.is_same(&found, value)? && !has_members(&found, value, env)? {
            return Ok(false);
        }
    }
    env.meter.free_to(before);
    Ok(true)
}

/// What the members of an object take, taken apart.
fn wanted_bytes(object: &Val<'_>) -> usize {
    match object {
        Val::RawObject(text) => 2 * tree_bytes_of_text(text),
        Val::Object(members) => members.len() * 2 * VALUE_COST,
        _ => 0,
    }
}

fn contains_each<'a>(
    arguments: &[Val<'a>],
    wants_all: bool,
    env: &mut Env<'a>,
) -> Result<Option<Val<'a>>, Stop> {
    let Some(elements) = all(&arguments[0], env)? else { return Ok(None) };
    for wanted in &arguments[1..] {
        let mut is_there = false;
        for element in &elements {
            env.step()?;
            is_there |= env.is_same(element, wanted)?;
        }
        if is_there != wants_all {
            return Ok(Some(Val::Bool(!wants_all)));
        }
    }
    Ok(Some(Val::Bool(wants_all)))
}

/// A negative start counts from the end.
fn slice<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let Some(mut elements) = all(&arguments[0], env)? else { return Ok(None) };
    let Some(start) = arguments[1].as_integer() else { return Ok(None) };
    let length = match arguments.get(2) {
        Some(length) => match length.as_integer() {
            Some(length) => length,
            None => return Ok(None),
        },
        None => i64::MAX,
    };
    let count = elements.len() as i64;
    let start = if start < 0 { start.saturating_add(count).max(0) } else { start.min(count) };
    elements.drain(..start as usize);
    elements.truncate(usize::try_from(length).unwrap_or(0));
    Ok(Some(Val::array(elements)))
}

/// All elements as numbers; `None` when one is none.
fn numbers<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Result<Option<Vec<f64>>, Stop> {
    Ok(all(&arguments[0], env)?.and_then(|all| all.iter().map(Val::as_number).collect()))
}

fn median<'a>(mut numbers: Vec<f64>) -> Option<Val<'a>> {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let upper = numbers.get(middle)?;
    Some(Val::number(if numbers.len() % 2 == 1 { *upper } else { (numbers[middle - 1] + upper) / 2.0 }))
}

/// Of one type of simple values, the least or the greatest.
fn extreme<'a>(arguments: &[Val<'a>], wants_most: bool, env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let Some(all) = all(&arguments[0], env)? else { return Ok(None) };
    let mut best: Option<Val<'a>> = None;
    for element in all {
        let is_better = match &best {
            None => true,
            Some(best) => match env.compare(&element, best)? {
                Some(order) => {
                    if wants_most {
                        order.is_gt()
                    } else {
                        order.is_lt()
                    }
                }
                None => return Ok(None),
            },
        };
        if is_better {
            best = Some(element);
        }
    }
    Ok(best)
}

/// Counts from one.
fn choose<'a>(arguments: &[Val<'a>]) -> Option<Val<'a>> {
    let index = usize::try_from(arguments[0].as_integer()?).ok()?;
    if index == 0 { None } else { arguments.get(index).cloned() }
}

/// `[{"k": name, "v": value}]`, the names of the two members as asked.
fn object_to_array<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    env.charge(wanted_bytes(&arguments[0]))?;
    env.look(wanted_bytes(&arguments[0]))?;
    let Some(members) = arguments[0].members() else { return Ok(None) };
    let name_of = |at: usize, default: &'static str| match arguments.get(at) {
        Some(Val::Text(name)) => Some(name.clone()),
        Some(_) => None,
        None => Some(Text::Borrowed(default)),
    };
    let (Some(key_name), Some(value_name)) = (name_of(1, "k"), name_of(2, "v")) else { return Ok(None) };
    env.charge(members.len() * 8 * size_of::<Val<'_>>())?;
    let pair = |(name, value): (Text<'a>, Val<'a>)| {
        Val::Object(Rc::new(vec![(key_name.clone(), Val::Text(name)), (value_name.clone(), value)]))
    };
    Ok(Some(Val::array(members.into_iter().map(pair).collect())))
}

/// The keys of elements, and the bytes that they hold in a set.
fn key<'a>(value: &Val<'a>, env: &Env<'a>) -> Result<Vec<u8>, Stop> {
    let mut key = Vec::new();
    env.sort_key(value, &mut key)?;
    env.charge(key.len() + HELD_ROW_COST)?;
    Ok(key)
}

fn keys<'a>(elements: &[Val<'a>], env: &Env<'a>) -> Result<HashSet<Vec<u8>>, Stop> {
    elements.iter().map(|element| key(element, env)).collect()
}

/// Distinct elements of the left array that `keeps` (then of the right one, if it adds), in order.
fn sets<'a>(
    arguments: &[Val<'a>],
    env: &mut Env<'a>,
    keeps: fn(&Val<'a>, bool) -> bool,
    adds_right: bool,
) -> Result<Option<Val<'a>>, Stop> {
    let (Some(left), Some(right)) = (all(&arguments[0], env)?, all(&arguments[1], env)?) else {
        return Ok(None);
    };
    let before = env.meter.row_bytes();
    let right_keys = keys(&right, env)?;
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for element in left {
        let key = key(&element, env)?;
        if keeps(&element, right_keys.contains(&key)) && seen.insert(key) {
            kept.push(element);
        }
    }
    if adds_right {
        for element in right {
            if seen.insert(key(&element, env)?) {
                kept.push(element);
            }
        }
    }
    env.meter.free_to(before);
    env.charge(kept.len() * VALUE_COST)?;
    Ok(Some(Val::array(kept)))
}

fn set_equal<'a>(arguments: &[Val<'a>], env: &mut Env<'a>) -> Result<Option<Val<'a>>, Stop> {
    let before = env.meter.row_bytes();
    let (Some(left), Some(right)) = (all(&arguments[0], env)?, all(&arguments[1], env)?) else {
        return Ok(None);
    };
    let is_equal = keys(&left, env)? == keys(&right, env)?;
    env.meter.free_to(before);
    Ok(Some(Val::Bool(is_equal)))
}
