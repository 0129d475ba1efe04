//! The items of the measurements: 1 KiB each, seven indexed members, a thousand partition keys.

use std::sync::LazyLock;

const PARTITIONS: u64 = 1_000;
/// Values of the members that are filtered by: each is in ten of a million items.
const VALUES: u64 = 100_000;
const PADDING: usize = 912;

/// A number that looks like any other.
pub fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

pub fn key(number: u64) -> String {
    format!("p{}", number % PARTITIONS)
}

pub fn id(number: u64) -> String {
    format!("i{number}")
}

/// `indexed` and `scanned` have the same value, so that the same rows can be found with the index and without it.
pub fn body(number: u64, round: u64) -> String {
    let (id, key, value) = (id(number), key(number), mixed(number) % VALUES);
    let (name, score) = (mixed(number ^ round) % VALUES, (mixed(round) % 1_000) as f64 / 8.0);
    static TEXT: LazyLock<String> = LazyLock::new(|| "lorem ipsum dolor sit amet ".repeat(PADDING / 27 + 1));
    let padding = &TEXT[..PADDING];
    format!(
        r#"{{"id":"{id}","pk":"{key}","indexed":{value},"scanned":{value},"name":"n{name}","score":{score},"round":{round},"text":"{padding}"}}"#
    )
}

/// A container whose items have everything indexed but `scanned`.
pub fn container(name: &str, ttl: Option<u64>) -> String {
    let ttl = ttl.map_or(String::new(), |ttl| format!(r#","defaultTtl":{ttl}"#));
    format!(
        r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},"indexingPolicy":{{"indexingMode":"consistent","automatic":true,"includedPaths":[{{"path":"/*"}}],"excludedPaths":[{{"path":"/scanned/?"}},{{"path":"/_etag/?"}}]}}{ttl}}}"#
    )
}

/// A container as clients make one who say nothing of its index: every member is in it.
pub fn container_by_default(name: &str) -> String {
    format!(r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#)
}

/// A container with no index beside its key, as a table with a primary key alone.
pub fn container_with_key_alone(name: &str) -> String {
    format!(
        r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},"indexingPolicy":{{"indexingMode":"none","automatic":false}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_has_about_a_kibibyte() {
        let length = body(123_456, 7).len();
        assert!((1_000..1_048).contains(&length), "{length}");
    }
}
