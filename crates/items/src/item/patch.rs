//! Partial updates (section 10): operations on an item's members, all or none.

use crate::definition::container::Settings;
use crate::item::body::SYSTEM;
use crate::json::{self, Number, Object, Value, walk};
use crate::query::{self, Condition};
use crate::{PatchOperation, PatchVerb, Refusal, limits};
use bytes::Bytes;

/// A patch as it was asked for.
#[derive(Debug)]
pub struct Patch {
    pub operations: Vec<PatchOperation>,
    pub condition: Option<Condition>,
}

impl Patch {
    pub fn read(body: &[u8]) -> Result<Patch, Refusal> {
        if body.len() > limits::ITEM_BYTES {
            return Err(Refusal::TooLarge { bytes: body.len(), limit: limits::ITEM_BYTES });
        }
        let bad = |error: json::Error| Refusal::bad(format!("The patch is invalid: {error}."));
        let body = json::without_duplicates(body).map_err(bad)?;
        let text = body.trim_ascii();
        let (list, condition) = match walk::kind(text) {
            Some(walk::Kind::Array) => (text, None),
            Some(walk::Kind::Object) => {
                let list = walk::member(text, "operations");
                let list = list.ok_or_else(|| Refusal::bad("The patch has no operations."))?;
                (list, walk::member(text, "condition"))
            }
            _ => return Err(Refusal::bad("The patch is neither an object nor an array.")),
        };
        let elements = walk::Elements::of(list).map_err(|_| Refusal::bad("The operations are no array."))?;
        let operations = elements.map(|one| operation(one.map_err(bad)?)).collect::<Result<Vec<_>, _>>()?;
        if operations.is_empty() || operations.len() > limits::PATCH_OPERATIONS {
            return Err(Refusal::bad(format!(
                "The number of patch operations is {}; it is from 1 to {}.",
                operations.len(),
                limits::PATCH_OPERATIONS
            )));
        }
        let condition = match condition.map(|text| (walk::kind(text), walk::string(text))) {
            None | Some((Some(walk::Kind::Null), _)) => None,
            Some((_, Some(text))) => Some(query::prepare_condition(&text)?),
            Some((_, None)) => return Err(Refusal::bad("The condition of the patch is not a text.")),
        };
        Ok(Patch { operations, condition })
    }

    /// What the operations make of an item's own text.
    pub fn apply(&self, settings: &Settings, text: &[u8]) -> Result<Bytes, Refusal> {
        let mut item = json::parse(text).map_err(|error| Refusal::bad(error.to_string()))?;
        for operation in &self.operations {
            check_target(settings, &operation.path)?;
            if operation.verb == PatchVerb::Move {
                check_target(settings, &operation.from)?;
            }
            apply_one(&mut item, operation)?;
        }
        Ok(item.to_text().into())
    }
}

fn operation(text: &[u8]) -> Result<PatchOperation, Refusal> {
    let string = |name: &str| walk::member(text, name).and_then(walk::string);
    let verb = match string("op").unwrap_or_default().to_ascii_lowercase().as_str() {
        "add" => PatchVerb::Add,
        "set" => PatchVerb::Set,
        "replace" => PatchVerb::Replace,
        "remove" => PatchVerb::Remove,
        "incr" | "increment" => PatchVerb::Increment,
        "move" => PatchVerb::Move,
        other => return Err(Refusal::bad(format!("The patch operation '{other}' is not known."))),
    };
    let path = pointer(&string("path").ok_or_else(|| Refusal::bad("A patch operation has no path."))?)?;
    let from = match string("from") {
        Some(from) => pointer(&from)?,
        None if verb == PatchVerb::Move => return Err(Refusal::bad("A move has no from.")),
        None => Vec::new(),
    };
    // P-91: a value that is left out is null.
    let value = walk::member(text, "value").map_or(Bytes::from_static(b"null"), Bytes::copy_from_slice);
    Ok(PatchOperation { verb, path, from, value })
}

/// The names in a JSON pointer.
fn pointer(text: &str) -> Result<Vec<String>, Refusal> {
    let bad = || Refusal::bad(format!("The path '{text}' of the patch operation is invalid."));
    let rest = text.strip_prefix('/').ok_or_else(bad)?;
    let mut names = Vec::new();
    for name in rest.split('/') {
        let mut unescaped = String::with_capacity(name.len());
        let mut letters = name.chars();
        while let Some(letter) = letters.next() {
            unescaped.push(match letter {
                '~' => match letters.next() {
                    Some('0') => '~',
                    Some('1') => '/',
                    _ => return Err(bad()),
                },
                letter => letter,
            });
        }
        names.push(unescaped);
    }
    if names.iter().any(String::is_empty) || names.len() > limits::NESTING {
        return Err(bad());
    }
    Ok(names)
}

/// P-54: the id, system properties and the partition key stay what they are.
fn check_target(settings: &Settings, path: &[String]) -> Result<(), Refusal> {
    let fixed = |what: &str| Err(Refusal::bad(format!("Cannot patch {what}: '/{}'.", path.join("/"))));
    let top = path.first().map(String::as_str).unwrap_or_default();
    if top == "id" && path.len() == 1 {
        return fixed("the id");
    }
    if SYSTEM.contains(&top) {
        return fixed("a system property");
    }
    let touches = |key: &Vec<String>| key.iter().zip(path).all(|(name, step)| name == step);
    if settings.key_paths.iter().any(touches) {
        return fixed("a partition key");
    }
    Ok(())
}

fn apply_one(item: &mut Value, operation: &PatchOperation) -> Result<(), Refusal> {
    let value = || json::parse(&operation.value).map_err(|error| Refusal::bad(error.to_string()));
    match operation.verb {
        PatchVerb::Add => put(item, &operation.path, value()?, true),
        PatchVerb::Set => put(item, &operation.path, value()?, false),
        PatchVerb::Replace => {
            let target = target(item, &operation.path).ok_or_else(|| missing(&operation.path))?;
            *target = value()?;
            Ok(())
        }
        PatchVerb::Remove => remove(item, &operation.path).map(|_| ()),
        PatchVerb::Increment => increment(item, &operation.path, &value()?),
        PatchVerb::Move => {
            if operation.path.starts_with(&operation.from) && operation.path != operation.from {
                return Err(Refusal::bad("A value cannot be moved into itself."));
            }
            let value = remove(item, &operation.from)?;
            put(item, &operation.path, value, true)
        }
    }
}

fn missing(path: &[String]) -> Refusal {
    Refusal::bad(format!("The path '/{}' of the patch operation does not exist.", path.join("/")))
}

fn step<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    match value {
        Value::Object(object) => object.get_mut(name),
        Value::Array(elements) => elements.get_mut(index(name)?),
        _ => None,
    }
}

/// An index into an array: digits without leading zeros.
fn index(name: &str) -> Option<usize> {
    let is_plain = name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
    if is_plain { name.parse().ok() } else { None }
}

fn target<'a>(item: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(item, |value, name| step(value, name))
}

fn put(item: &mut Value, path: &[String], value: Value, inserts: bool) -> Result<(), Refusal> {
    let (last, parents) = path.split_last().ok_or_else(|| missing(path))?;
    match target(item, parents).ok_or_else(|| missing(parents))? {
        Value::Object(Object(members)) => {
            match members.iter_mut().find(|(name, _)| name == last) {
                Some((_, place)) => *place = value,
                None => members.push((last.clone(), value)),
            }
            Ok(())
        }
        Value::Array(elements) => {
            let at = if last == "-" { Some(elements.len()) } else { index(last) };
            match at {
                Some(at) if at < elements.len() && !inserts => elements[at] = value,
                Some(at) if at <= elements.len() => elements.insert(at, value),
                _ => return Err(Refusal::bad(format!("The index '{last}' is behind the end of the array."))),
            }
            Ok(())
        }
        _ => Err(missing(parents)),
    }
}

fn remove(item: &mut Value, path: &[String]) -> Result<Value, Refusal> {
    let (last, parents) = path.split_last().ok_or_else(|| missing(path))?;
    let removed = match target(item, parents) {
        Some(Value::Object(object)) => object.remove(last),
        Some(Value::Array(elements)) => {
            index(last).filter(|at| *at < elements.len()).map(|at| elements.remove(at))
        }
        _ => None,
    };
    removed.ok_or_else(|| missing(path))
}

fn increment(item: &mut Value, path: &[String], by: &Value) -> Result<(), Refusal> {
    let Value::Number(by) = by else {
        return Err(Refusal::bad("The value of an increment is not a number."));
    };
    match target(item, path) {
        Some(Value::Number(number)) => {
            *number =
                sum(*number, *by).ok_or_else(|| Refusal::bad("The sum of an increment is too large."))?;
            Ok(())
        }
        Some(_) => Err(Refusal::bad("The target of an increment is not a number.")),
        None => put(item, path, Value::Number(*by), false),
    }
}

fn sum(left: Number, right: Number) -> Option<Number> {
    if let (Number::Integer(left), Number::Integer(right)) = (left, right)
        && let Some(sum) = left.checked_add(right)
    {
        return Some(Number::Integer(sum));
    }
    let sum = left.as_f64() + right.as_f64();
    sum.is_finite().then_some(Number::Double(sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::container;

    fn patched(item: &str, operations: &str) -> Result<String, Refusal> {
        let settings =
            container::read(br#"{"id":"c","partitionKey":{"paths":["/pk/a"],"version":2}}"#, None).unwrap().1;
        let patch = Patch::read(operations.as_bytes())?;
        let text = patch.apply(&settings, item.as_bytes())?;
        Ok(String::from_utf8(text.to_vec()).unwrap())
    }

    // CX-10.1
    #[test]
    fn every_operation_does_what_it_says() {
        for (item, operation, expected) in [
            (r#"{"a":1}"#, r#"{"op":"add","path":"/b","value":2}"#, r#"{"a":1,"b":2}"#),
            (r#"{"a":1}"#, r#"{"op":"add","path":"/a","value":2}"#, r#"{"a":2}"#),
            (r#"{"a":[1,2]}"#, r#"{"op":"add","path":"/a/1","value":9}"#, r#"{"a":[1,9,2]}"#),
            (r#"{"a":[1,2]}"#, r#"{"op":"add","path":"/a/2","value":9}"#, r#"{"a":[1,2,9]}"#),
            (r#"{"a":[1,2]}"#, r#"{"op":"add","path":"/a/-","value":9}"#, r#"{"a":[1,2,9]}"#),
            (r#"{"a":[1,2]}"#, r#"{"op":"set","path":"/a/1","value":9}"#, r#"{"a":[1,9]}"#),
            (r#"{"a":[1,2]}"#, r#"{"op":"set","path":"/a/2","value":9}"#, r#"{"a":[1,2,9]}"#),
            (r#"{"a":1}"#, r#"{"op":"set","path":"/b"}"#, r#"{"a":1,"b":null}"#),
            (
                r#"{"a":{"b":1}}"#,
                r#"{"op":"replace","path":"/a/b","value":{"c":[]}}"#,
                r#"{"a":{"b":{"c":[]}}}"#,
            ),
            (r#"{"a":[1,2,3]}"#, r#"{"op":"remove","path":"/a/1"}"#, r#"{"a":[1,3]}"#),
            (r#"{"a":1,"b":2}"#, r#"{"op":"remove","path":"/a"}"#, r#"{"b":2}"#),
            (r#"{"a":1}"#, r#"{"op":"incr","path":"/a","value":5}"#, r#"{"a":6}"#),
            (r#"{"a":1}"#, r#"{"op":"incr","path":"/a","value":-0.5}"#, r#"{"a":0.5}"#),
            (r#"{"a":1}"#, r#"{"op":"incr","path":"/b","value":5}"#, r#"{"a":1,"b":5}"#),
            (
                r#"{"a":{"x":1},"b":{}}"#,
                r#"{"op":"move","from":"/a/x","path":"/b/y"}"#,
                r#"{"a":{},"b":{"y":1}}"#,
            ),
            (r#"{"a~/b":1}"#, r#"{"op":"set","path":"/a~0~1b","value":2}"#, r#"{"a~/b":2}"#),
            (r#"{"ttl":5}"#, r#"{"op":"set","path":"/ttl","value":-1}"#, r#"{"ttl":-1}"#),
            (r#"{"x":{"id":5}}"#, r#"{"op":"set","path":"/x/id","value":1}"#, r#"{"x":{"id":1}}"#),
        ] {
            assert_eq!(
                patched(item, &format!(r#"{{"operations":[{operation}]}}"#)).unwrap(),
                expected,
                "{operation}"
            );
            assert_eq!(patched(item, &format!("[{operation}]")).unwrap(), expected, "a bare array");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (item, operation) in [
            (r#"{"a":[1]}"#, r#"{"op":"add","path":"/a/2","value":9}"#),
            (r#"{"a":[1]}"#, r#"{"op":"add","path":"/a/01","value":9}"#),
            (r#"{"a":1}"#, r#"{"op":"add","path":"/b/c","value":9}"#),
            (r#"{"a":1}"#, r#"{"op":"set","path":"/a/c","value":9}"#),
            (r#"{"a":1}"#, r#"{"op":"replace","path":"/b","value":9}"#),
            (r#"{"a":1}"#, r#"{"op":"remove","path":"/b"}"#),
            (r#"{"a":"x"}"#, r#"{"op":"incr","path":"/a","value":1}"#),
            (r#"{"a":1}"#, r#"{"op":"incr","path":"/a","value":"x"}"#),
            (r#"{"a":1}"#, r#"{"op":"move","from":"/b","path":"/c"}"#),
            (r#"{"a":{}}"#, r#"{"op":"move","from":"/a","path":"/a/b"}"#),
            (r#"{"a":1}"#, r#"{"op":"move","path":"/c"}"#),
            (r#"{"a":1}"#, r#"{"op":"jump","path":"/a"}"#),
            (r#"{"a":1}"#, r#"{"op":"set","path":"a","value":1}"#),
            (r#"{"a":1}"#, r#"{"op":"set","path":"/","value":1}"#),
            (r#"{"a":1}"#, r#"{"op":"set","path":"/~2","value":1}"#),
            (r#"{"a":1}"#, r#"{"op":"set","value":1}"#),
        ] {
            let result = patched(item, &format!(r#"{{"operations":[{operation}]}}"#));
            assert!(matches!(result, Err(Refusal::BadRequest(_))), "{operation}: {result:?}");
        }
    }

    // P-54
    #[test]
    fn the_id_system_properties_and_the_partition_key_cannot_be_patched() {
        let item = r#"{"id":"x","pk":{"a":1,"b":2}}"#;
        for path in ["/id", "/_ts", "/_etag", "/_rid", "/_self", "/_attachments", "/pk", "/pk/a", "/pk/a/b"] {
            for operation in [
                format!(r#"{{"op":"set","path":"{path}","value":1}}"#),
                format!(r#"{{"op":"remove","path":"{path}"}}"#),
                format!(r#"{{"op":"move","from":"{path}","path":"/z"}}"#),
            ] {
                assert!(patched(item, &format!("[{operation}]")).is_err(), "{operation}");
            }
        }
        assert!(patched(item, r#"[{"op":"set","path":"/pk/b","value":1}]"#).is_ok());
    }

    #[test]
    fn a_patch_has_one_to_ten_operations() {
        let with = |count: usize| {
            let one = r#"{"op":"incr","path":"/a","value":1}"#;
            patched(r#"{"a":0}"#, &format!("[{}]", vec![one; count].join(",")))
        };
        assert!(with(0).is_err());
        assert_eq!(with(10).unwrap(), r#"{"a":10}"#);
        assert!(with(11).is_err());
        for bad in ["", "1", "{}", r#"{"operations":1}"#, r#"{"operations":[],"condition":1}"#, "[1]"] {
            assert!(patched("{}", bad).is_err(), "{bad}");
        }
    }
}
