//! Aggregates: what is kept while rows go by, and what comes of it.

use super::value::Val;
use crate::json::{self, Number, Value};
use crate::limits::HELD_ROW_COST;
use std::cmp::Ordering;
use std::collections::HashSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    Avg,
    Count,
    CountIf,
    MakeList,
    MakeSet,
    Max,
    Min,
    Sum,
}

impl Aggregate {
    pub fn by_name(name: &str) -> Option<Aggregate> {
        Some(match name.to_ascii_uppercase().as_str() {
            "AVG" => Aggregate::Avg,
            "COUNT" => Aggregate::Count,
            "COUNTIF" => Aggregate::CountIf,
            "MAKELIST" => Aggregate::MakeList,
            "MAKESET" => Aggregate::MakeSet,
            "MAX" => Aggregate::Max,
            "MIN" => Aggregate::Min,
            "SUM" => Aggregate::Sum,
            _ => return None,
        })
    }

    pub fn start(self) -> State {
        match self {
            Aggregate::Count | Aggregate::CountIf => State::Count(0),
            Aggregate::Sum | Aggregate::Avg => State::Sum { sum: 0.0, count: 0, is_spoilt: false },
            Aggregate::Min | Aggregate::Max => State::Best { best: None, is_spoilt: false },
            Aggregate::MakeList => State::List(Vec::new()),
            Aggregate::MakeSet => State::Set { keys: HashSet::new(), values: Vec::new() },
        }
    }

    /// Takes one row's value in; gives how many bytes more, or less, are held from now on.
    pub fn take(self, state: &mut State, value: &Val<'_>) -> isize {
        if value.is_undefined() {
            return 0;
        }
        match (self, state) {
            (Aggregate::Count, State::Count(count)) => *count += 1,
            (_, State::Count(count)) => *count += u64::from(value.as_bool() == Some(true)),
            (_, State::Sum { sum, count, is_spoilt }) => match value.as_number() {
                Some(number) => {
                    *sum += number;
                    *count += 1;
                }
                None => *is_spoilt = true,
            },
            (_, State::Best { best, is_spoilt }) => {
                if value.is_array() || value.is_object() {
                    *is_spoilt = true;
                }
                if *is_spoilt {
                    return 0;
                }
                let Some(value) = value.tree() else { return 0 };
                let text_bytes = |value: &Value| value.as_str().map_or(0, str::len) as isize;
                let is_better = best.as_ref().is_none_or(|best| {
                    let wanted = if self == Aggregate::Min { Ordering::Less } else { Ordering::Greater };
                    json::compare(&value, best) == wanted
                });
                if is_better {
                    let more = text_bytes(&value) - best.as_ref().map_or(0, text_bytes);
                    *best = Some(value);
                    return more;
                }
            }
            (_, State::List(values)) => {
                values.extend(value.tree());
                return 2 * value.tree_bytes() as isize;
            }
            (_, State::Set { keys, values }) => {
                let mut key = Vec::new();
                value.sort_key(&mut key);
                let key_bytes = key.len() + HELD_ROW_COST;
                if keys.insert(key) {
                    values.extend(value.tree());
                    return (key_bytes + 2 * value.tree_bytes()) as isize;
                }
            }
        }
        0
    }

    /// `None` is undefined.
    pub fn finish(self, state: State) -> Option<Value> {
        match state {
            State::Count(count) => {
                Some(Value::Number(Number::Integer(i64::try_from(count).unwrap_or(i64::MAX))))
            }
            State::Sum { is_spoilt: true, .. } => None,
            State::Sum { sum, .. } if self == Aggregate::Sum => {
                Some(Value::double(sum)).filter(|_| sum.is_finite())
            }
            State::Sum { sum, count, .. } => {
                let average = sum / count as f64;
                Some(Value::double(average)).filter(|_| average.is_finite())
            }
            State::Best { best, is_spoilt } => best.filter(|_| !is_spoilt),
            State::List(values) | State::Set { values, .. } => Some(Value::Array(values)),
        }
    }
}

#[derive(Debug, Clone)]
pub enum State {
    Count(u64),
    Sum { sum: f64, count: u64, is_spoilt: bool },
    Best { best: Option<Value>, is_spoilt: bool },
    List(Vec<Value>),
    Set { keys: HashSet<Vec<u8>>, values: Vec<Value> },
}
