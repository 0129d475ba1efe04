//! Bodies of the fuzz targets for filters and actions. Not part of the border.

mod print;

use super::action::act;
use super::expression::{Expression, Statement};
use super::filter::ReadyFilter;
use super::like::Pattern;
use super::rule::{Filter, Kind, Rule, Sql, Typed};
use super::scalar::Wrong;
use super::sql::{self, Mistake};
use super::steps::{STEP_BYTES, Steps};
use super::subject::{About, Front, Subject};
use crate::ids::Number;
use crate::limits::{PROPERTIES_BYTES, RULE_STEPS, SQL_CHARACTERS};
use crate::time::LocalTime;
use message::Value;
use message::codec::write_descriptor;
use std::rc::Rc;

/// Properties and parameters that an input may bring. What is behind them is passed over.
const MOST_VALUES: usize = 24;

/// Longest value that an input may ask for: beyond the budget of a rule, were it gone through byte by byte a few times.
const LONG_TEXT: usize = 100_000;

/// Lines: a filter, an action, then properties as `name=kind value` and parameters as `@name=kind value`.
///
/// Nothing panics. What is read as an expression is written and read again to the same. What a rule that was accepted costs
/// stays within its budget, asked twice it answers twice the same, and what its action makes has a bounded size.
pub fn sql(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let (filter, action) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let (mut properties, mut parameters) = (Vec::new(), Vec::new());
    for line in lines.take(MOST_VALUES) {
        let Some((name, value)) = line.split_once('=') else { continue };
        match name.strip_prefix('@') {
            Some(_) => parameters.extend(typed(value).map(|typed| (name.into(), typed))),
            None => properties.push((Value::from(name), property(value))),
        }
    }
    let with = |text: &str| Sql { expression: text.into(), parameters: parameters.clone() };
    let (filter, action) = (with(filter), (!action.is_empty()).then(|| with(action)));
    reads_again(&filter.expression, sql::filter, print::expression);
    if let Some(action) = &action {
        reads_again(&action.expression, sql::action, |parsed| print::statements(parsed));
    }
    let rule = Rule { name: "rule".into(), filter: Filter::Sql(filter), action };
    if rule.check().is_ok() {
        ask(&rule, &message(properties));
    }
}

/// Without values for its parameters, a text means the same after it was written from what it means.
fn reads_again<T: PartialEq + std::fmt::Debug>(
    text: &str,
    read: fn(&Sql) -> Result<T, Mistake>,
    print: impl Fn(&T) -> String,
) {
    if text.chars().count() > SQL_CHARACTERS {
        return;
    }
    let plain = |text: &str| Sql { expression: text.into(), parameters: Vec::new() };
    let Ok(parsed) = read(&plain(text)) else { return };
    let printed = print(&parsed);
    let again = read(&plain(&printed));
    // It has more parentheses than the text had.
    let is_deep = again.as_ref().is_err_and(|mistake| mistake.what.contains("nested deeper"));
    assert!(is_deep || again == Ok(parsed), "{text} was written as {printed}: {again:?}");
}

fn ask(rule: &Rule, stored: &[u8]) {
    let front = Front::of(stored).expect("a message of ours has a front");
    let about = About {
        now: LocalTime(1_000),
        expires: LocalTime(61_000),
        number: Number(7),
        length: stored.len() as u32,
        session_bytes: 0,
        seed: [3, 4],
    };
    let once = || {
        let steps = Rc::new(Steps::default());
        steps.next_rule();
        let ready = ReadyFilter::of(&rule.filter);
        let selected = Subject::new(&front, None, about, &steps).and_then(|subject| ready.selects(&subject));
        let acted = match (&selected, &rule.action) {
            (Ok(true), Some(action)) => {
                let statements = sql::action(action).expect("it was checked");
                Some(act(&statements, &rule.name, &front, None, about, &steps))
            }
            _ => None,
        };
        (selected, acted, steps.spent())
    };
    let (selected, acted, spent) = once();
    let is_over = |wrong: Option<&Wrong>| wrong == Some(&Wrong::TooMuchWork);
    let is_cut =
        is_over(selected.as_ref().err()) || is_over(acted.as_ref().and_then(|acted| acted.as_ref().err()));
    assert!(is_cut || spent <= RULE_STEPS, "{spent} steps of {RULE_STEPS}");
    if let Some(Ok(acted)) = &acted {
        assert!(acted.overlay.encoded_bytes() <= PROPERTIES_BYTES);
    }
    assert_eq!(once(), (selected, acted, spent), "the same question has two answers");
}

/// `kind value`: the kind is a letter. `x` is a text of so many letters.
fn property(value: &str) -> Value {
    let (kind, value) = value.split_at_checked(1).unwrap_or_default();
    let number = value.parse::<i64>().unwrap_or_default();
    match kind {
        "i" => Value::Int(number as i32),
        "l" => Value::Long(number),
        "u" => Value::Ulong(number as u64),
        "d" => Value::Double(value.parse::<f64>().unwrap_or_default().to_bits()),
        "f" => Value::Float(value.parse::<f32>().unwrap_or_default().to_bits()),
        "b" => Value::Boolean(number != 0),
        "t" => Value::Timestamp(number),
        "g" => Value::Uuid([number as u8; 16]),
        "n" => Value::Null,
        "a" => Value::Binary(value.as_bytes().to_vec()),
        "c" => {
            Value::Described(Box::new((Value::Symbol("com.microsoft:timespan".into()), Value::Long(number))))
        }
        "x" => Value::String("ab".repeat(number.unsigned_abs() as usize % (LONG_TEXT / 2))),
        _ => Value::String(value.into()),
    }
}

fn typed(value: &str) -> Option<Typed> {
    let (kind, text) = value.split_at_checked(1)?;
    let kind = match kind {
        "i" => Kind::Int,
        "l" => Kind::Long,
        "b" => Kind::Boolean,
        "d" => Kind::Double,
        "t" => Kind::DateTime,
        "c" => Kind::Duration,
        _ => Kind::String,
    };
    Some(Typed { kind, text: text.into() })
}

fn message(properties: Vec<(Value, Value)>) -> Vec<u8> {
    let mut out = Vec::new();
    write_descriptor(&mut out, 0x73);
    let (id, label) = (Value::Uuid([7; 16]), Value::from("news"));
    Value::List(vec![id, Value::Null, Value::from("to"), label]).encode(&mut out);
    write_descriptor(&mut out, 0x74);
    Value::Map(properties).encode(&mut out);
    write_descriptor(&mut out, 0x75);
    Value::Binary(b"body".to_vec()).encode(&mut out);
    out
}

/// An escape character (or a line feed, for none), a pattern, a line feed, and a value.
///
/// Matching agrees with the plainest matcher, and its steps are linear in the value, whatever the pattern.
pub fn like(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut characters = text.chars();
    let escape = characters.next().filter(|escape| *escape != '\n');
    let Some((pattern, value)) = characters.as_str().split_once('\n') else { return };
    if pattern.chars().count() > SQL_CHARACTERS {
        return;
    }
    let ready = Pattern::new(pattern, escape);
    let (is_match, steps) = ready.matches(value);
    assert_eq!(
        is_match,
        is_like(&units(pattern, escape), value),
        "{value:?} LIKE {pattern:?} ESCAPE {escape:?}"
    );
    // A word of the sets for 64 places of the longest piece, and the pieces themselves.
    let words = pattern.len().div_ceil(64);
    let most = |value: &str| 4 * pattern.len() * (1 + words) + value.len() * (1 + words) + STEP_BYTES;
    assert!(steps <= most(value), "{steps} steps, {} at the most", most(value));
    let longer = value.repeat(8);
    let (_, longer_steps) = ready.matches(&longer);
    assert!(longer_steps <= most(&longer), "{longer_steps} steps, {} at the most", most(&longer));
}

enum Unit {
    Run,
    Any,
    One(char),
}

fn units(pattern: &str, escape: Option<char>) -> Vec<Unit> {
    let mut characters = pattern.chars();
    let mut units = Vec::new();
    while let Some(character) = characters.next() {
        units.push(match character {
            _ if Some(character) == escape => Unit::One(characters.next().unwrap_or(character)),
            '%' => Unit::Run,
            '_' => Unit::Any,
            _ => Unit::One(character),
        });
    }
    units
}

/// A table of what each beginning of the pattern matches: slow, and hard to get wrong.
fn is_like(pattern: &[Unit], value: &str) -> bool {
    let value: Vec<char> = value.chars().collect();
    let mut matched = vec![false; value.len() + 1];
    matched[0] = true;
    for unit in pattern {
        let mut next = vec![false; value.len() + 1];
        for end in 0..=value.len() {
            next[end] = match unit {
                Unit::Run => matched[..=end].contains(&true),
                Unit::Any => end > 0 && matched[end - 1],
                Unit::One(wanted) => end > 0 && matched[end - 1] && value[end - 1] == *wanted,
            };
        }
        matched = next;
    }
    matched[value.len()]
}
