//! Whether an encoded value is sound all the way down, without building it.
//!
//! A receiver decodes what a sender wrote; a broker that passes broken values on lets one client kill another. So what
//! we hand out unread is checked at intake. This accepts exactly what [`Reader::value`] reads, under the same limits.

use crate::codec::{Elements, Malformed, Reader, code};
use crate::limits::{VALUE_DEPTH, VALUE_NODES};

/// What is left of the limits while one encoding is walked.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) nodes: u32,
}

impl Budget {
    pub(crate) fn new() -> Budget {
        Budget { nodes: VALUE_NODES }
    }

    pub(crate) fn spend(&mut self, depth: u32) -> Result<(), Malformed> {
        if depth > VALUE_DEPTH {
            return Err(Malformed::TooDeep);
        }
        self.nodes = self.nodes.checked_sub(1).ok_or(Malformed::TooManyNodes)?;
        Ok(())
    }
}

impl Reader<'_> {
    /// Passes over one value of any type and over everything inside it, and fails where [`Reader::value`] would.
    pub fn check(&mut self) -> Result<(), Malformed> {
        check_value(self, 0, &mut Budget::new())
    }
}

/// Whether an encoded value nests deeper than [`VALUE_DEPTH`], however many values there are in it. What is broken in another way
/// is not judged here: a body is its receiver's affair, but for what may cost a receiver its stack.
pub fn is_too_deep(value: &[u8]) -> bool {
    let mut budget = Budget { nodes: u32::MAX };
    matches!(check_value(&mut Reader::new(value), 0, &mut budget), Err(Malformed::TooDeep))
}

// Recursion here is bounded by VALUE_DEPTH, which `Budget::spend` checks before each descent.
fn check_value(reader: &mut Reader<'_>, depth: u32, budget: &mut Budget) -> Result<(), Malformed> {
    if reader.peek()? == code::DESCRIBED {
        budget.spend(depth)?;
        reader.descriptor()?;
        return check_value(reader, depth + 1, budget);
    }
    let constructor = reader.take_u8()?;
    check_body(reader, constructor, depth, budget)
}

fn check_body(
    reader: &mut Reader<'_>,
    constructor: u8,
    depth: u32,
    budget: &mut Budget,
) -> Result<(), Malformed> {
    budget.spend(depth)?;
    let inside = match constructor {
        code::LIST_0 | code::LIST_8 | code::LIST_32 => reader.list_body(constructor)?,
        code::MAP_8 | code::MAP_32 => reader.map_body(constructor)?,
        code::ARRAY_8 | code::ARRAY_32 => {
            let mut array = Elements::of(reader.array_body(constructor)?)?;
            for _ in 0..array.count {
                check_body(&mut array.bodies, array.constructor, depth + 1, budget)?;
            }
            return array.bodies.finish();
        }
        _ => return reader.check_primitive(constructor),
    };
    let mut elements = Reader::new(inside.body);
    for _ in 0..inside.count {
        check_value(&mut elements, depth + 1, budget)?;
    }
    elements.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    #[test]
    fn what_is_broken_deep_inside_is_found() {
        let mut sound = Vec::new();
        let text = Value::List(vec![Value::Map(vec![("k".into(), "text".into())])]);
        text.encode(&mut sound);
        assert_eq!(Reader::new(&sound).check(), Ok(()));
        *sound.last_mut().unwrap() = 0xff;
        assert_eq!(Reader::new(&sound).check(), Err(Malformed::NotUtf8));
        assert_eq!(Reader::new(&sound).skip(), Ok(()), "passing over does not look inside");
    }

    #[test]
    fn only_what_is_too_deep_is_too_deep() {
        let nested = |depth: u32| {
            let mut value = Value::Null;
            for _ in 0..depth {
                value = Value::List(vec![value]);
            }
            let mut bytes = Vec::new();
            value.encode(&mut bytes);
            bytes
        };
        assert!(!is_too_deep(&nested(VALUE_DEPTH)) && is_too_deep(&nested(VALUE_DEPTH + 1)));
        let mut many = Vec::new();
        Value::List(vec![Value::Null; 2 * VALUE_NODES as usize]).encode(&mut many);
        assert!(!is_too_deep(&many) && !is_too_deep(b"\xff"));
    }

    #[test]
    fn array_elements_are_looked_into() {
        let symbols = [code::ARRAY_8, 6, 2, code::SYMBOL_8, 1, b'a', 1, 0xff];
        assert_eq!(Reader::new(&symbols).check(), Err(Malformed::NotAscii));
    }

    #[test]
    fn a_boolean_octet_is_zero_or_one() {
        assert_eq!(Reader::new(&[code::BOOLEAN, 1]).check(), Ok(()));
        assert!(matches!(Reader::new(&[code::BOOLEAN, 2]).check(), Err(Malformed::Unexpected { .. })));
    }
}
