//! The value of a partition key as a client gives it or an item holds it (P-38, P-39).

use crate::Refusal;
use crate::json::{self, Value};

/// One level of a partition key.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyPart {
    /// The item lacks the property; `{}` in the header.
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    String(String),
}

/// One part for each path of the container's definition. Fewer are a prefix, which only deleting by partition key, feeds and
/// queries take. `[]` is the key of a container without a definition and counts as all undefined.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PartitionKey(pub Vec<KeyPart>);

impl PartitionKey {
    pub fn of_string(text: &str) -> PartitionKey {
        PartitionKey(vec![KeyPart::String(text.to_owned())])
    }
}

/// The JSON value of a part; an undefined one has none.
pub fn value_of(part: &KeyPart) -> Option<Value> {
    Some(match part {
        KeyPart::Undefined => return None,
        KeyPart::Null => Value::Null,
        KeyPart::Bool(fact) => Value::Bool(*fact),
        KeyPart::Number(number) => Value::double(*number),
        KeyPart::String(text) => Value::text(text.clone()),
    })
}

/// Reads a key as clients write it: a JSON array, `{}` for what is undefined (P-38).
pub fn read(text: &[u8]) -> Result<PartitionKey, Refusal> {
    let bad =
        || Refusal::bad("The partition key is not an array of texts, numbers, true, false, null or {}.");
    let value = json::parse(text).map_err(|_| bad())?;
    let parts = value.as_array().ok_or_else(bad)?.iter().map(|part| {
        Ok(match part {
            Value::Null => KeyPart::Null,
            Value::Bool(fact) => KeyPart::Bool(*fact),
            Value::Number(number) => KeyPart::Number(number.as_f64()),
            Value::String(text) => KeyPart::String(text.clone()),
            Value::Object(object) if object.0.is_empty() => KeyPart::Undefined,
            _ => return Err(bad()),
        })
    });
    Ok(PartitionKey(parts.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // P-38
    #[test]
    fn a_key_is_read_as_clients_write_it() {
        let key = read(br#"["x", 1.5, true, null, {}]"#).unwrap();
        let parts = [
            KeyPart::String("x".into()),
            KeyPart::Number(1.5),
            KeyPart::Bool(true),
            KeyPart::Null,
            KeyPart::Undefined,
        ];
        assert_eq!(key.0, parts);
        assert_eq!(read(b"[]").unwrap(), PartitionKey::default());
        for bad in ["", "\"x\"", "[[1]]", r#"[{"a":1}]"#, "{}"] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
