//! The value of an expression for one row (13.2).

use super::functions::{self, Function, Matcher};
use super::like::Pattern;
use super::meter::Meter;
use super::plan::{Constants, Expr, Select};
use super::rows::{has_row, select_rows};
use super::syntax::{Binary, Unary};
use super::value::{Text, Val};
use super::wants::Step;
use crate::limits;
use crate::refusal::Refusal;
use crate::time::Time;
use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

/// Why a query stops: rare, so behind a pointer.
pub type Stop = Box<Refusal>;

/// What an expression may look at, and what the row has cost.
#[derive(Debug)]
pub struct Env<'a> {
    /// The values of FROM sources, outermost first.
    pub slots: Vec<Val<'a>>,
    /// Keys and aggregates of the group that is being written out.
    pub group: Vec<Val<'a>>,
    pub aggregates: Vec<Val<'a>>,
    pub now: Time,
    /// Rows, elements and candidates.
    pub steps: u64,
    pub meter: &'a Meter<'a>,
    /// Sub-queries whose rows are being gathered: what is made for a row outlives it.
    pub gathering: usize,
    /// State of RAND.
    pub random: u64,
    /// The pattern that REGEXMATCH compiled last.
    pub pattern: Option<(String, Option<Matcher>)>,
}

impl<'a> Env<'a> {
    pub fn new(now: Time, random: u64, meter: &'a Meter<'a>) -> Env<'a> {
        Env {
            slots: Vec::with_capacity(4),
            group: Vec::new(),
            aggregates: Vec::new(),
            now,
            steps: 0,
            meter,
            gathering: 0,
            random,
            pattern: None,
        }
    }

    /// One row, element or candidate more.
    pub fn step(&mut self) -> Result<(), Stop> {
        self.steps += 1;
        self.meter.look(limits::STEP_BYTES as usize)
    }

    /// Bytes are going to be looked at.
    pub fn look(&self, bytes: usize) -> Result<(), Stop> {
        self.meter.look(bytes)
    }

    /// Memory for values of this row.
    pub fn charge(&self, bytes: usize) -> Result<(), Stop> {
        self.meter.charge(bytes)
    }

    /// A text that is made: looked at and held.
    pub fn make(&self, bytes: usize) -> Result<(), Stop> {
        self.meter.look(2 * bytes)?;
        self.meter.charge(bytes)
    }

    /// About how long a value is when it is written. Longer than a row may be, it is refused: what is built of the same long text many times
    /// holds it once, and would be written many times.
    pub fn weigh(&self, value: &Val<'_>) -> Result<usize, Stop> {
        let weight = value.weight(limits::QUERY_ONE_ROW_BYTES);
        self.meter.look(weight)?;
        if weight > limits::QUERY_ONE_ROW_BYTES {
            return Err(too_long());
        }
        Ok(weight)
    }

    /// Adds the bytes that sort as the value does.
    pub fn sort_key(&self, value: &Val<'_>, key: &mut Vec<u8>) -> Result<(), Stop> {
        self.weigh_tree(value)?;
        value.sort_key(key);
        Ok(())
    }

    /// As `weigh`, for what a tree is made of on the way.
    fn weigh_tree(&self, value: &Val<'_>) -> Result<(), Stop> {
        let weight = self.weigh(value)?;
        if value.is_array() || value.is_object() {
            self.meter.look(weight * limits::TREE_WORK)?;
        }
        Ok(())
    }

    /// Before two values are compared.
    pub fn look_at_both(&self, left: &Val<'_>, right: &Val<'_>) -> Result<(), Stop> {
        match (left, right) {
            (Val::Text(left), Val::Text(right)) => self.meter.look(left.len().min(right.len())),
            (left, right) if left.is_array() && right.is_array() || left.is_object() && right.is_object() => {
                self.weigh_tree(left)?;
                self.weigh_tree(right)
            }
            _ => Ok(()),
        }
    }

    fn equals(&self, left: &Val<'_>, right: &Val<'_>) -> Result<Option<bool>, Stop> {
        self.look_at_both(left, right)?;
        Ok(left.equals(right))
    }

    pub fn compare(&self, left: &Val<'_>, right: &Val<'_>) -> Result<Option<Ordering>, Stop> {
        self.look_at_both(left, right)?;
        Ok(left.compare(right))
    }

    /// Whether both are the same value: as `equals`, but values of different types are different.
    pub fn is_same(&self, left: &Val<'_>, right: &Val<'_>) -> Result<bool, Stop> {
        Ok(self.equals(left, right)? == Some(true))
    }

    /// A member of an object: its text is walked up to there.
    pub fn member(&self, value: &Val<'a>, name: &str) -> Evaluated<'a> {
        let (member, walked) = value.member_walked(name);
        self.part(value, member, walked)
    }

    fn element(&self, value: &Val<'a>, index: usize) -> Evaluated<'a> {
        let (element, walked) = value.element_walked(index);
        self.part(value, element, walked)
    }

    fn part(&self, whole: &Val<'a>, part: Val<'a>, walked: usize) -> Evaluated<'a> {
        self.look(walked)?;
        if matches!(whole, Val::RawObject(_) | Val::RawArray(_)) {
            self.charge(part.unescaped_bytes())?;
        }
        Ok(part)
    }
}

pub fn too_long() -> Stop {
    Box::new(Refusal::BadRequest(format!(
        "A row of the query is longer than {} bytes: select less.",
        limits::QUERY_ONE_ROW_BYTES
    )))
}

pub type Evaluated<'a> = Result<Val<'a>, Stop>;

impl Expr {
    pub fn evaluate<'a>(&'a self, env: &mut Env<'a>) -> Evaluated<'a> {
        Ok(match self {
            Expr::Undefined => Val::Undefined,
            Expr::Constant(value) => Val::of_tree(value),
            Expr::ConstantText(text) => Val::of_text(text),
            Expr::Slot(slot) => env.slots.get(*slot).cloned().unwrap_or(Val::Undefined),
            Expr::Path(slot, steps) => match env.slots.get(*slot) {
                Some(value) => follow(value, steps, env)?,
                None => Val::Undefined,
            },
            Expr::Member(value, name) => {
                let value = value.evaluate(env)?;
                env.member(&value, name)?
            }
            Expr::Index(value, index) => indexed(value, index, env)?,
            Expr::Object(members) => object(members, env)?,
            Expr::Array(elements) => array(elements, env)?,
            Expr::Query(select) => scalar(select, env)?,
            Expr::Exists(select) => Val::Bool(has_row(select, env)?),
            Expr::ArrayOf(select) => Val::array(select_rows(select, env)?),
            Expr::Unary(operator, value) => unary(*operator, &value.evaluate(env)?),
            Expr::Binary(operator, left, right) => {
                let left = left.evaluate(env)?;
                let right = right.evaluate(env)?;
                binary(*operator, &left, &right, env)?
            }
            Expr::And(parts) => logic(parts, false, env)?,
            Expr::Or(parts) => logic(parts, true, env)?,
            Expr::Choice(condition, yes, no) => {
                // Anything but true takes the other way.
                let is_yes = condition.evaluate(env)?.as_bool() == Some(true);
                if is_yes { yes.evaluate(env)? } else { no.evaluate(env)? }
            }
            Expr::Coalesce(left, right) => match left.evaluate(env)? {
                Val::Undefined => right.evaluate(env)?,
                value => value,
            },
            Expr::In(value, list) => is_in(value, list, env)?,
            Expr::InConstants(value, constants) => is_constant(value, constants, env)?,
            Expr::Between(value, low, high) => between(value, low, high, env)?,
            Expr::Like(value, pattern) => match value.evaluate(env)?.as_text() {
                Some(text) => Val::Bool(pattern.matches(text, |bytes| env.look(bytes))?),
                None => Val::Undefined,
            },
            Expr::LikeComputed(value, pattern, escape) => like(value, pattern, *escape, env)?,
            Expr::Matches(value, matcher) => match value.evaluate(env)?.as_text() {
                Some(text) => {
                    env.look(matcher.work(text))?;
                    Val::Bool(matcher.is_match(text))
                }
                None => Val::Undefined,
            },
            Expr::Call(function, arguments) => call(*function, arguments, env)?,
            Expr::Aggregate(number) => env.aggregates.get(*number).cloned().unwrap_or(Val::Undefined),
            Expr::GroupKey(number) => env.group.get(*number).cloned().unwrap_or(Val::Undefined),
        })
    }

    /// Whether this is exactly true.
    pub fn holds<'a>(&'a self, env: &mut Env<'a>) -> Result<bool, Stop> {
        Ok(self.evaluate(env)?.as_bool() == Some(true))
    }
}

/// Steps into a value; what is missing is undefined.
pub fn follow<'a>(value: &Val<'a>, steps: &[Step], env: &Env<'a>) -> Evaluated<'a> {
    let mut value = value.clone();
    for step in steps {
        value = match step {
            Step::Member(name) => env.member(&value, name)?,
            Step::Index(index) => env.element(&value, *index)?,
            Step::Each => Val::Undefined,
        };
    }
    Ok(value)
}

/// A member by a computed name, or an element by a computed number.
fn indexed<'a>(value: &'a Expr, index: &'a Expr, env: &mut Env<'a>) -> Evaluated<'a> {
    let value = value.evaluate(env)?;
    Ok(match index.evaluate(env)? {
        Val::Text(name) => env.member(&value, &name)?,
        number => match number.as_integer().and_then(|index| usize::try_from(index).ok()) {
            Some(index) => env.element(&value, index)?,
            None => Val::Undefined,
        },
    })
}

fn object<'a>(members: &'a [(Arc<str>, Expr)], env: &mut Env<'a>) -> Evaluated<'a> {
    let mut made = Vec::with_capacity(members.len());
    for (name, member) in members {
        made.push((Text::Borrowed(name), member.evaluate(env)?));
    }
    env.charge(made.len() * size_of::<(Text<'_>, Val<'_>)>())?;
    Ok(Val::Object(Rc::new(made)))
}

fn array<'a>(elements: &'a [Expr], env: &mut Env<'a>) -> Evaluated<'a> {
    let mut made = Vec::with_capacity(elements.len());
    for element in elements {
        let element = element.evaluate(env)?;
        if !element.is_undefined() {
            made.push(element);
        }
    }
    env.charge(made.len() * size_of::<Val<'_>>())?;
    Ok(Val::array(made))
}

fn call<'a>(function: Function, arguments: &'a [Expr], env: &mut Env<'a>) -> Evaluated<'a> {
    let mut values = Vec::with_capacity(arguments.len());
    for argument in arguments {
        values.push(argument.evaluate(env)?);
    }
    functions::call(function, &values, env)
}

/// False and true have marks of their own but are one type.
pub fn type_bit(mark: u8) -> u16 {
    1 << if mark == 0x04 { 0x03 } else { mark & 0x0f }
}

/// The one row of a sub-query; undefined without one.
fn scalar<'a>(select: &'a Select, env: &mut Env<'a>) -> Evaluated<'a> {
    let mut rows = select_rows(select, env)?;
    match rows.len() {
        0 => Ok(Val::Undefined),
        1 => Ok(rows.remove(0)),
        _ => Err(Box::new(Refusal::bad("A scalar subquery returned more than one row."))),
    }
}

/// AND and OR over three values: `decisive` ends it.
fn logic<'a>(parts: &'a [Expr], decisive: bool, env: &mut Env<'a>) -> Evaluated<'a> {
    let mut is_unknown = false;
    for part in parts {
        match part.evaluate(env)?.as_bool() {
            Some(fact) if fact == decisive => return Ok(Val::Bool(decisive)),
            Some(_) => {}
            None => is_unknown = true,
        }
    }
    Ok(if is_unknown { Val::Undefined } else { Val::Bool(!decisive) })
}

fn three_valued_and<'a>(left: Option<bool>, right: Option<bool>) -> Val<'a> {
    match (left, right) {
        (Some(false), _) | (_, Some(false)) => Val::Bool(false),
        (Some(true), Some(true)) => Val::Bool(true),
        _ => Val::Undefined,
    }
}

fn is_in<'a>(value: &'a Expr, list: &'a [Expr], env: &mut Env<'a>) -> Evaluated<'a> {
    let value = value.evaluate(env)?;
    let mut is_unknown = false;
    for entry in list {
        let entry = entry.evaluate(env)?;
        match env.equals(&value, &entry)? {
            Some(true) => return Ok(Val::Bool(true)),
            Some(false) => {}
            None => is_unknown = true,
        }
    }
    Ok(if is_unknown { Val::Undefined } else { Val::Bool(false) })
}

/// IN over a list that was sorted out when the query was read.
fn is_constant<'a>(value: &'a Expr, constants: &'a Constants, env: &mut Env<'a>) -> Evaluated<'a> {
    let value = value.evaluate(env)?;
    if value.is_undefined() {
        return Ok(Val::Undefined);
    }
    let mut key = Vec::with_capacity(32);
    env.sort_key(&value, &mut key)?;
    Ok(if constants.keys.contains(&key) {
        Val::Bool(true)
    } else if constants.never_undefined || constants.types == type_bit(key[0]) {
        Val::Bool(false)
    } else {
        Val::Undefined
    })
}

fn between<'a>(value: &'a Expr, low: &'a Expr, high: &'a Expr, env: &mut Env<'a>) -> Evaluated<'a> {
    let value = value.evaluate(env)?;
    let (low, high) = (low.evaluate(env)?, high.evaluate(env)?);
    let above = env.compare(&value, &low)?.map(Ordering::is_ge);
    let below = env.compare(&value, &high)?.map(Ordering::is_le);
    Ok(three_valued_and(above, below))
}

/// LIKE with a pattern that is computed for each row.
fn like<'a>(value: &'a Expr, pattern: &'a Expr, escape: Option<char>, env: &mut Env<'a>) -> Evaluated<'a> {
    let value = value.evaluate(env)?;
    let pattern = pattern.evaluate(env)?;
    Ok(match (value.as_text(), pattern.as_text()) {
        (Some(text), Some(pattern)) => {
            env.look(4 * pattern.len())?;
            let (before, held) = (env.meter.row_bytes(), Pattern::held_bytes(pattern));
            env.charge(held)?;
            let is_like = Pattern::new(pattern, escape).matches(text, |bytes| env.look(bytes))?;
            env.meter.free_to(before);
            Val::Bool(is_like)
        }
        _ => Val::Undefined,
    })
}

pub fn unary<'a>(operator: Unary, value: &Val<'a>) -> Val<'a> {
    match (operator, value) {
        (Unary::Plus, Val::Number(_)) => value.clone(),
        (Unary::Minus, Val::Number(crate::json::Number::Integer(integer))) if *integer != 0 => {
            integer.checked_neg().map_or_else(|| Val::number(-(*integer as f64)), Val::integer)
        }
        (Unary::Minus, Val::Number(number)) => Val::number(-number.as_f64()),
        (Unary::BitNot, Val::Number(number)) => Val::integer(i64::from(!to_int32(number.as_f64()))),
        (Unary::Not, Val::Bool(fact)) => Val::Bool(!fact),
        _ => Val::Undefined,
    }
}

fn binary<'a>(operator: Binary, left: &Val<'a>, right: &Val<'a>, env: &mut Env<'a>) -> Evaluated<'a> {
    let truth = |fact: Option<bool>| fact.map_or(Val::Undefined, Val::Bool);
    Ok(match operator {
        Binary::Equal => truth(env.equals(left, right)?),
        Binary::NotEqual => truth(env.equals(left, right)?.map(|is_equal| !is_equal)),
        Binary::Less => truth(env.compare(left, right)?.map(Ordering::is_lt)),
        Binary::LessOrEqual => truth(env.compare(left, right)?.map(Ordering::is_le)),
        Binary::Greater => truth(env.compare(left, right)?.map(Ordering::is_gt)),
        Binary::GreaterOrEqual => truth(env.compare(left, right)?.map(Ordering::is_ge)),
        Binary::Concatenate => match (left.as_text(), right.as_text()) {
            (Some(left), Some(right)) => {
                env.make(left.len() + right.len())?;
                Val::text([left, right].concat())
            }
            _ => Val::Undefined,
        },
        _ => match (left.as_number(), right.as_number()) {
            (Some(left), Some(right)) => arithmetic(operator, left, right),
            _ => Val::Undefined,
        },
    })
}

fn arithmetic<'a>(operator: Binary, left: f64, right: f64) -> Val<'a> {
    let bits = |result: i32| Val::integer(i64::from(result));
    // As in JavaScript, a shift counts modulo 32.
    let by = to_int32(right) as u32 & 31;
    match operator {
        Binary::Multiply => Val::number(left * right),
        Binary::Divide => Val::number(left / right),
        Binary::Modulo => Val::number(left % right),
        Binary::Add => Val::number(left + right),
        Binary::Subtract => Val::number(left - right),
        Binary::ShiftLeft => bits(to_int32(left) << by),
        Binary::ShiftRight => bits(to_int32(left) >> by),
        Binary::ShiftRightZero => Val::integer(i64::from(to_int32(left) as u32 >> by)),
        Binary::BitAnd => bits(to_int32(left) & to_int32(right)),
        Binary::BitXor => bits(to_int32(left) ^ to_int32(right)),
        Binary::BitOr => bits(to_int32(left) | to_int32(right)),
        _ => Val::Undefined,
    }
}

/// The low 32 bits of a number's whole part, as JavaScript takes them.
fn to_int32(number: f64) -> i32 {
    let whole = number.trunc() % 4_294_967_296.0;
    // Between -2^32 and 2^32, so both steps keep the low bits.
    whole as i64 as i32
}
