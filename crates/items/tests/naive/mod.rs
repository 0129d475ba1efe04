//! A second evaluator, as simple as it can be: an expression is a tree, a value is JSON or nothing, and every rule of section Q is
//! written down once more. It shares no code with the first.

#![allow(clippy::manual_try_fold)] // Undefined is a value here, not the end.

use serde_json::Value as Json;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// `None` is undefined.
pub type Val = Option<Json>;

#[derive(Debug, Clone)]
pub enum Expr {
    Literal(Json),
    /// Below `c` or below the variable of a JOIN.
    Path(&'static str, Vec<Step>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    In(Box<Expr>, Vec<Json>),
    Between(Box<Expr>, Box<Expr>, Box<Expr>),
    Like(Box<Expr>, &'static str),
    Call(&'static str, Vec<Expr>),
}

#[derive(Debug, Clone)]
pub enum Step {
    Member(&'static str),
    Index(usize),
}

/// What the variables stand for.
pub type Scope = BTreeMap<&'static str, Json>;

impl Expr {
    pub fn text(&self) -> String {
        match self {
            Expr::Literal(value) => value.to_string(),
            Expr::Path(root, steps) => steps.iter().fold((*root).to_owned(), |text, step| match step {
                Step::Member(name) => format!("{text}.{name}"),
                Step::Index(index) => format!("{text}[{index}]"),
            }),
            Expr::Binary(operator, left, right) => format!("({} {operator} {})", left.text(), right.text()),
            Expr::Not(inner) => format!("(NOT {})", inner.text()),
            Expr::In(inner, values) => {
                let values: Vec<String> = values.iter().map(Json::to_string).collect();
                format!("({} IN ({}))", inner.text(), values.join(", "))
            }
            Expr::Between(inner, low, high) => {
                format!("({} BETWEEN {} AND {})", inner.text(), low.text(), high.text())
            }
            Expr::Like(inner, pattern) => format!("({} LIKE '{pattern}')", inner.text()),
            Expr::Call(name, arguments) => {
                let arguments: Vec<String> = arguments.iter().map(Expr::text).collect();
                format!("{name}({})", arguments.join(", "))
            }
        }
    }

    pub fn value(&self, scope: &Scope) -> Val {
        match self {
            Expr::Literal(value) => Some(value.clone()),
            Expr::Path(root, steps) => {
                let mut value = scope.get(root)?;
                for step in steps {
                    value = match step {
                        Step::Member(name) => value.as_object()?.get(*name)?,
                        Step::Index(index) => value.as_array()?.get(*index)?,
                    };
                }
                Some(value.clone())
            }
            Expr::Binary(operator, left, right) => binary(operator, left.value(scope), right.value(scope)),
            Expr::Not(inner) => Some(Json::Bool(!inner.value(scope)?.as_bool()?)),
            Expr::In(inner, values) => {
                let inner = inner.value(scope);
                let equal = |value: &Json| binary("=", inner.clone(), Some(value.clone()));
                values
                    .iter()
                    .map(equal)
                    .fold(Some(Json::Bool(false)), |left, right| binary("OR", left, right))
            }
            Expr::Between(inner, low, high) => {
                let (value, low, high) = (inner.value(scope), low.value(scope), high.value(scope));
                binary("AND", binary(">=", value.clone(), low), binary("<=", value, high))
            }
            Expr::Like(inner, pattern) => {
                let text = inner.value(scope)?;
                let text: Vec<char> = text.as_str()?.chars().collect();
                let pattern: Vec<char> = pattern.chars().collect();
                Some(Json::Bool(is_like(&text, &pattern)))
            }
            Expr::Call(name, arguments) => {
                call(name, arguments.iter().map(|argument| argument.value(scope)).collect())
            }
        }
    }

    pub fn is_true(&self, scope: &Scope) -> bool {
        self.value(scope) == Some(Json::Bool(true))
    }
}

/// Q-13, but for undefined, which is before everything.
pub fn rank(value: &Json) -> u8 {
    match value {
        Json::Null => 1,
        Json::Bool(_) => 2,
        Json::Number(_) => 3,
        Json::String(_) => 4,
        Json::Array(_) => 5,
        Json::Object(_) => 6,
    }
}

fn number(value: f64) -> Val {
    serde_json::Number::from_f64(value).map(Json::Number)
}

/// Numbers are doubles, whatever they look like.
pub fn plain(value: &Json) -> Json {
    match value {
        // Zero has no sign in JSON.
        Json::Number(number) => serde_json::json!(number.as_f64().map(|number| number + 0.0)),
        Json::Array(values) => Json::Array(values.iter().map(plain).collect()),
        Json::Object(members) => {
            Json::Object(members.iter().map(|(name, value)| (name.clone(), plain(value))).collect())
        }
        other => other.clone(),
    }
}

/// Two values of one type that has an order.
fn ordering(left: &Json, right: &Json) -> Option<Ordering> {
    match (left, right) {
        (Json::Null, Json::Null) => Some(Ordering::Equal),
        (Json::Bool(left), Json::Bool(right)) => Some(left.cmp(right)),
        (Json::Number(left), Json::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?),
        (Json::String(left), Json::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

fn binary(operator: &str, left: Val, right: Val) -> Val {
    match operator {
        "AND" | "OR" => {
            let truth = |value: &Val| value.as_ref().and_then(Json::as_bool);
            let decides = operator == "OR";
            match (truth(&left), truth(&right)) {
                (Some(one), _) | (_, Some(one)) if one == decides => Some(Json::Bool(decides)),
                (Some(_), Some(_)) => Some(Json::Bool(!decides)),
                _ => None,
            }
        }
        "??" => left.or(right),
        "=" | "!=" => {
            let (left, right) = (left?, right?);
            let is_equal = plain(&left) == plain(&right);
            (rank(&left) == rank(&right)).then_some(Json::Bool(is_equal == (operator == "=")))
        }
        "<" | "<=" | ">" | ">=" => {
            let order = ordering(&left?, &right?)?;
            Some(Json::Bool(match operator {
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                _ => order.is_ge(),
            }))
        }
        "||" => Some(Json::String(left?.as_str()?.to_owned() + right?.as_str()?)),
        _ => {
            let (Json::Number(left), Json::Number(right)) = (left?, right?) else { return None };
            let (left, right) = (left.as_f64()?, right.as_f64()?);
            number(match operator {
                "+" => left + right,
                "-" => left - right,
                "*" => left * right,
                "/" => left / right,
                _ => left % right,
            })
        }
    }
}

fn is_like(text: &[char], pattern: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('%', rest)) => (0..=text.len()).any(|at| is_like(&text[at..], rest)),
        Some(('_', rest)) => !text.is_empty() && is_like(&text[1..], rest),
        Some((letter, rest)) => text.first() == Some(letter) && is_like(&text[1..], rest),
    }
}

fn call(name: &str, mut arguments: Vec<Val>) -> Val {
    let is_a = |ranks: &[u8]| {
        let is = arguments[0].as_ref().is_some_and(|value| ranks.contains(&rank(value)));
        Some(Json::Bool(is))
    };
    match name {
        "IS_DEFINED" => return Some(Json::Bool(arguments[0].is_some())),
        "IS_NULL" => return is_a(&[1]),
        "IS_BOOL" => return is_a(&[2]),
        "IS_NUMBER" => return is_a(&[3]),
        "IS_STRING" => return is_a(&[4]),
        "IS_ARRAY" => return is_a(&[5]),
        "IS_OBJECT" => return is_a(&[6]),
        "IS_PRIMITIVE" => return is_a(&[1, 2, 3, 4]),
        _ => {}
    }
    let second = if arguments.len() > 1 { arguments.pop()? } else { None };
    let first = arguments.pop()??;
    let text = || first.as_str();
    let other = || second.as_ref().and_then(Json::as_str);
    let list = || first.as_array();
    Some(match name {
        "LENGTH" => return number(text()?.chars().count() as f64),
        "UPPER" => Json::String(text()?.to_uppercase()),
        "REVERSE" => Json::String(text()?.chars().rev().collect()),
        "CONCAT" => Json::String(text()?.to_owned() + other()?),
        "STARTSWITH" => Json::Bool(text()?.starts_with(other()?)),
        "ENDSWITH" => Json::Bool(text()?.ends_with(other()?)),
        "CONTAINS" => Json::Bool(text()?.contains(other()?)),
        "INDEX_OF" => {
            let (text, wanted) = (text()?, other()?);
            return number(text.find(wanted).map_or(-1.0, |at| text[..at].chars().count() as f64));
        }
        "ABS" => return number(first.as_f64()?.abs()),
        "ARRAY_LENGTH" => return number(list()?.len() as f64),
        "ARRAY_CONTAINS" => {
            let wanted = plain(&second?);
            Json::Bool(list()?.iter().any(|value| plain(value) == wanted))
        }
        "ARRAY_CONCAT" => Json::Array(list()?.iter().chain(second?.as_array()?).cloned().collect()),
        _ => panic!("{name} is not known here"),
    })
}

/// An aggregate over the values of all rows.
pub fn aggregate(name: &str, values: &[Val]) -> Val {
    let defined: Vec<&Json> = values.iter().flatten().collect();
    let numbers: Option<Vec<f64>> = defined.iter().map(|value| value.as_f64()).collect();
    match name {
        "COUNT" => number(defined.len() as f64),
        "SUM" => number(numbers?.iter().sum()),
        "AVG" => {
            let numbers = numbers?;
            number(numbers.iter().sum::<f64>() / numbers.len() as f64)
        }
        _ => {
            if defined.iter().any(|value| rank(value) > 4) {
                return None;
            }
            let mut sorted = defined;
            sorted.sort_by(|left, right| compare(&Some((*left).clone()), &Some((*right).clone())));
            let best = if name == "MIN" { sorted.first() } else { sorted.last() };
            best.map(|value| (*value).clone())
        }
    }
}

/// The order of ORDER BY. Arrays and objects are not sorted by here.
pub fn compare(left: &Val, right: &Val) -> Ordering {
    let ranks = |value: &Val| value.as_ref().map_or(0, rank);
    let same_type = || ordering(left.as_ref()?, right.as_ref()?);
    ranks(left).cmp(&ranks(right)).then_with(|| same_type().unwrap_or(Ordering::Equal))
}
