//! JSON: values, text, their order.
//!
//! A stored item is JSON text, and stays the text that the client sent as far as possible (P-35). So there are two ways to read it:
//! [`parse()`] makes a tree of [`Value`]s, and [`walk`] finds members in the text without making anything. The text of an item is
//! checked once, when it is written ([`without_duplicates`]); walking trusts it afterwards and gives up quietly on text that was
//! never checked, but never panics.
//!
//! Numbers are doubles (P-35); an integer of 64 bits keeps its digits when it is written back, and compares as the double it is.

mod order;
mod parse;
pub mod walk;
mod write;

pub use order::{compare, equal, sort_key, sort_key_number, sort_key_text};
pub use parse::{members_without_duplicates, parse, without_duplicates};
pub use walk::members;
pub use write::{write, write_number, write_text};

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Value>),
    Object(Object),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Written without fraction and exponent, and fits.
    Integer(i64),
    Double(f64),
}

/// Members in the order of the text, each name once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Object(pub Vec<(String, Value)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the text is not JSON, at byte {0}")]
    Malformed(usize),
    #[error("the text is not UTF-8, at byte {0}")]
    NotText(usize),
    #[error("the JSON is nested deeper than {limit} levels, at byte {0}", limit = crate::limits::NESTING)]
    TooDeep(usize),
    #[error("a number is too large, at byte {0}")]
    NumberTooLarge(usize),
}

impl Number {
    pub fn as_f64(self) -> f64 {
        match self {
            // The nearest double: what the service takes any number for (P-35).
            Number::Integer(integer) => integer as f64,
            Number::Double(double) => double,
        }
    }

    /// The whole number that this is, when it is one and fits.
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Number::Integer(integer) => Some(integer),
            // 2^63 as a double is one past the largest integer, and every double below it fits.
            Number::Double(double)
                if double.fract() == 0.0
                    && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&double) =>
            {
                Some(double as i64)
            }
            Number::Double(_) => None,
        }
    }
}

impl Value {
    pub fn text(text: impl Into<String>) -> Value {
        Value::String(text.into())
    }

    pub fn integer(integer: i64) -> Value {
        Value::Number(Number::Integer(integer))
    }

    pub fn double(double: f64) -> Value {
        Value::Number(Number::Double(double))
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(fact) => Some(*fact),
            _ => None,
        }
    }

    pub fn as_number(&self) -> Option<Number> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(elements) => Some(elements),
            _ => None,
        }
    }

    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The member of that name, when this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object()?.get(name)
    }

    pub fn to_text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        write(self, &mut text);
        text
    }
}

impl Object {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.0.iter_mut().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    /// Sets a member where it stands, or at the end.
    pub fn set(&mut self, name: &str, value: Value) {
        match self.get_mut(name) {
            Some(place) => *place = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(member, _)| member == name)?;
        Some(self.0.remove(at).1)
    }
}
