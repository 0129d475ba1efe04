//! The value of a partition key as a client gives it or an item holds it (P-38, P-39).

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
