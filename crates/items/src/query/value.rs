//! Values while a query runs: undefined and JSON, read from item text only as far as they are looked at.
//!
//! Arrays and objects of an item stay the text that they are. What a query computes is held behind a reference count. Nothing
//! here outlives the row that it was made for; what does is written out as text or as a sort key.

use crate::json::{self, Number, Value, walk};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

/// The first byte of the sort key of undefined: before all others.
pub const UNDEFINED_MARK: u8 = 0x01;

#[derive(Debug, Clone)]
pub enum Val<'a> {
    Undefined,
    Null,
    Bool(bool),
    Number(Number),
    Text(Text<'a>),
    /// The text of an array.
    RawArray(&'a [u8]),
    /// The text of an object.
    RawObject(&'a [u8]),
    Array(Rc<Vec<Val<'a>>>),
    Object(Rc<Vec<(Text<'a>, Val<'a>)>>),
}

#[derive(Debug, Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Rc<str>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl<'a> From<Cow<'a, str>> for Text<'a> {
    fn from(text: Cow<'a, str>) -> Text<'a> {
        match text {
            Cow::Borrowed(text) => Text::Borrowed(text),
            Cow::Owned(text) => Text::Shared(text.into()),
        }
    }
}

impl<'a> Val<'a> {
    /// The value whose text this is; undefined when it is none.
    pub fn of_text(text: &'a [u8]) -> Val<'a> {
        match walk::kind(text) {
            Some(walk::Kind::Null) => Val::Null,
            Some(walk::Kind::Bool(fact)) => Val::Bool(fact),
            Some(walk::Kind::Number) => walk::number(text).map_or(Val::Undefined, Val::Number),
            Some(walk::Kind::String) => {
                walk::string(text).map_or(Val::Undefined, |text| Val::Text(text.into()))
            }
            Some(walk::Kind::Array) => Val::RawArray(text),
            Some(walk::Kind::Object) => Val::RawObject(text),
            None => Val::Undefined,
        }
    }

    /// The value of a tree that outlives the row.
    pub fn of_tree(value: &'a Value) -> Val<'a> {
        match value {
            Value::Null => Val::Null,
            Value::Bool(fact) => Val::Bool(*fact),
            Value::Number(number) => Val::Number(*number),
            Value::String(text) => Val::Text(Text::Borrowed(text)),
            Value::Array(elements) => Val::Array(Rc::new(elements.iter().map(Val::of_tree).collect())),
            Value::Object(object) => Val::Object(Rc::new(
                object
                    .0
                    .iter()
                    .map(|(name, member)| (Text::Borrowed(name.as_str()), Val::of_tree(member)))
                    .collect(),
            )),
        }
    }

    /// The value of a tree that does not.
    pub fn of_owned(value: Value) -> Val<'a> {
        match value {
            Value::Null => Val::Null,
            Value::Bool(fact) => Val::Bool(fact),
            Value::Number(number) => Val::Number(number),
            Value::String(text) => Val::text(text),
            Value::Array(elements) => Val::array(elements.into_iter().map(Val::of_owned).collect()),
            Value::Object(object) => Val::Object(Rc::new(
                object
                    .0
                    .into_iter()
                    .map(|(name, member)| (Text::Shared(name.into()), Val::of_owned(member)))
                    .collect(),
            )),
        }
    }

    pub fn text(text: impl Into<Rc<str>>) -> Val<'a> {
        Val::Text(Text::Shared(text.into()))
    }

    /// A number, unless it is none: division by zero and the like are undefined.
    pub fn number(double: f64) -> Val<'a> {
        if double.is_finite() { Val::Number(Number::Double(double)) } else { Val::Undefined }
    }

    pub fn integer(integer: i64) -> Val<'a> {
        Val::Number(Number::Integer(integer))
    }

    pub fn array(elements: Vec<Val<'a>>) -> Val<'a> {
        Val::Array(Rc::new(elements))
    }

    pub fn is_undefined(&self) -> bool {
        matches!(self, Val::Undefined)
    }

    pub fn is_array(&self) -> bool {
        matches!(self, Val::RawArray(_) | Val::Array(_))
    }

    pub fn is_object(&self) -> bool {
        matches!(self, Val::RawObject(_) | Val::Object(_))
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Val::Bool(fact) => Some(*fact),
            _ => None,
        }
    }

    pub fn as_number(&self) -> Option<f64> {
        match self {
            Val::Number(number) => Some(number.as_f64()),
            _ => None,
        }
    }

    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Val::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Val::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A member of an object; undefined for anything else.
    pub fn member(&self, name: &str) -> Val<'a> {
        match self {
            Val::RawObject(text) => walk::member(text, name).map_or(Val::Undefined, Val::of_text),
            Val::Object(members) => members
                .iter()
                .find(|(member, _)| &**member == name)
                .map_or(Val::Undefined, |(_, value)| value.clone()),
            _ => Val::Undefined,
        }
    }

    /// An element of an array; undefined for anything else.
    pub fn element(&self, index: usize) -> Val<'a> {
        match self {
            Val::RawArray(text) => walk::element(text, index).map_or(Val::Undefined, Val::of_text),
            Val::Array(elements) => elements.get(index).cloned().unwrap_or(Val::Undefined),
            _ => Val::Undefined,
        }
    }

    /// The elements of an array; `None` for anything else.
    pub fn elements(&self) -> Option<Elements<'a>> {
        match self {
            Val::RawArray(text) => walk::Elements::of(text).ok().map(Elements::Raw),
            Val::Array(elements) => Some(Elements::Made(Rc::clone(elements), 0)),
            _ => None,
        }
    }

    /// The members of an object; `None` for anything else.
    pub fn members(&self) -> Option<Vec<(Text<'a>, Val<'a>)>> {
        match self {
            Val::RawObject(text) => {
                let members = walk::members(text).ok()?;
                Some(members.into_iter().map(|(name, value)| (name.into(), Val::of_text(value))).collect())
            }
            Val::Object(members) => Some(members.to_vec()),
            _ => None,
        }
    }

    /// About how many bytes the value takes as a tree.
    pub fn tree_bytes(&self) -> usize {
        size_of::<Value>()
            + match self {
                Val::Text(text) => text.len(),
                Val::RawArray(text) | Val::RawObject(text) => tree_bytes_of_text(text),
                Val::Array(elements) => elements.iter().map(Val::tree_bytes).sum(),
                Val::Object(members) => members
                    .iter()
                    .map(|(name, member)| size_of::<String>() + name.len() + member.tree_bytes())
                    .sum(),
                _ => 0,
            }
    }

    /// About how long the value is when it is written, counted up to a little more than `most`.
    pub fn weight(&self, most: usize) -> usize {
        match self {
            Val::Text(text) => text.len() + 2,
            Val::RawArray(text) | Val::RawObject(text) => text.len(),
            Val::Array(elements) => elements.iter().fold(2, |weight, element| match weight > most {
                true => weight,
                false => weight + 1 + element.weight(most - weight),
            }),
            Val::Object(members) => members.iter().fold(2, |weight, (name, member)| match weight > most {
                true => weight,
                false => weight + 4 + name.len() + member.weight(most.saturating_sub(weight + name.len())),
            }),
            _ => 8,
        }
    }

    /// A member, and how many bytes were walked to find it or not to.
    pub fn member_walked(&self, name: &str) -> (Val<'a>, usize) {
        match self {
            Val::RawObject(text) => part_walked(text, walk::member(text, name)),
            Val::Object(members) => (self.member(name), 8 * members.len()),
            _ => (Val::Undefined, 0),
        }
    }

    /// An element, and how many bytes were walked to find it or not to.
    pub fn element_walked(&self, index: usize) -> (Val<'a>, usize) {
        match self {
            Val::RawArray(text) => part_walked(text, walk::element(text, index)),
            _ => (self.element(index), 0),
        }
    }

    /// Bytes of a text that was read out of an item's and is no part of it, because something in it was escaped.
    pub fn unescaped_bytes(&self) -> usize {
        match self {
            Val::Text(Text::Shared(text)) => text.len(),
            _ => 0,
        }
    }

    /// As a tree; `None` for undefined. Undefined members and elements are left out.
    pub fn tree(&self) -> Option<Value> {
        Some(match self {
            Val::Undefined => return None,
            Val::Null => Value::Null,
            Val::Bool(fact) => Value::Bool(*fact),
            Val::Number(number) => Value::Number(*number),
            Val::Text(text) => Value::String(text.to_string()),
            Val::RawArray(text) | Val::RawObject(text) => json::parse(text).ok()?,
            Val::Array(elements) => Value::Array(elements.iter().filter_map(Val::tree).collect()),
            Val::Object(members) => Value::Object(json::Object(
                members.iter().filter_map(|(name, value)| Some((name.to_string(), value.tree()?))).collect(),
            )),
        })
    }

    /// As JSON text. Undefined members and elements are left out (P-66); undefined itself writes nothing.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Val::Undefined => {}
            Val::Null => out.extend_from_slice(b"null"),
            Val::Bool(fact) => out.extend_from_slice(if *fact { b"true" } else { b"false" }),
            Val::Number(number) => json::write_number(*number, out),
            Val::Text(text) => json::write_text(text, out),
            Val::RawArray(text) | Val::RawObject(text) => out.extend_from_slice(text),
            Val::Array(elements) => {
                out.push(b'[');
                let mut is_first = true;
                for element in elements.iter().filter(|element| !element.is_undefined()) {
                    if !std::mem::take(&mut is_first) {
                        out.push(b',');
                    }
                    element.write(out);
                }
                out.push(b']');
            }
            Val::Object(members) => {
                out.push(b'{');
                let mut is_first = true;
                for (name, value) in members.iter().filter(|(_, value)| !value.is_undefined()) {
                    if !std::mem::take(&mut is_first) {
                        out.push(b',');
                    }
                    json::write_text(name, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }

    /// Bytes that sort as the values do, undefined first.
    pub fn sort_key(&self, out: &mut Vec<u8>) {
        match self {
            Val::Undefined => out.push(UNDEFINED_MARK),
            Val::Number(number) => json::sort_key_number(*number, out),
            Val::Text(text) => json::sort_key_text(text, out),
            other => match other.tree() {
                Some(tree) => json::sort_key(&tree, out),
                None => out.push(UNDEFINED_MARK),
            },
        }
    }

    /// `=`: `None` where it is undefined.
    pub fn equals(&self, other: &Val<'_>) -> Option<bool> {
        match (self, other) {
            (Val::Undefined, _) | (_, Val::Undefined) => None,
            (Val::Null, Val::Null) => Some(true),
            (Val::Bool(left), Val::Bool(right)) => Some(left == right),
            (Val::Number(left), Val::Number(right)) => Some(left.as_f64() == right.as_f64()),
            (Val::Text(left), Val::Text(right)) => Some(**left == **right),
            (left, right) if left.is_array() && right.is_array() || left.is_object() && right.is_object() => {
                Some(json::equal(&left.tree()?, &right.tree()?))
            }
            _ => None,
        }
    }

    /// `<` and the like: `None` where they are undefined.
    pub fn compare(&self, other: &Val<'_>) -> Option<Ordering> {
        match (self, other) {
            (Val::Null, Val::Null) => Some(Ordering::Equal),
            (Val::Bool(left), Val::Bool(right)) => Some(left.cmp(right)),
            (Val::Number(left), Val::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
            (Val::Text(left), Val::Text(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
            _ => None,
        }
    }
}

/// The same of JSON text. In front of each value within there is one of these signs; vectors grow by doubling.
pub fn tree_bytes_of_text(text: &[u8]) -> usize {
    let values = text.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{' | b':')).count();
    text.len() + 2 * values * size_of::<Value>()
}

fn part_walked<'a>(text: &'a [u8], part: Option<&'a [u8]>) -> (Val<'a>, usize) {
    match part {
        // The part is in the text, so this is the place where it ends.
        Some(part) => (Val::of_text(part), part.as_ptr() as usize + part.len() - text.as_ptr() as usize),
        None => (Val::Undefined, text.len()),
    }
}

/// The elements of an array, one after the other.
#[derive(Debug)]
pub enum Elements<'a> {
    Raw(walk::Elements<'a>),
    Made(Rc<Vec<Val<'a>>>, usize),
}

impl<'a> Iterator for Elements<'a> {
    type Item = Val<'a>;

    fn next(&mut self) -> Option<Val<'a>> {
        match self {
            Elements::Raw(elements) => elements.next()?.ok().map(Val::of_text),
            Elements::Made(elements, next) => {
                let element = elements.get(*next).cloned();
                *next += 1;
                element
            }
        }
    }
}
