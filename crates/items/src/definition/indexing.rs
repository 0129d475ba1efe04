//! Indexing policies: which members of items have index entries.

use crate::json::{Object, Value};
use crate::{Refusal, key_path, limits};

/// A policy as writes and the planner use it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Indexing {
    /// Not mode `none`.
    pub is_on: bool,
    rules: Vec<Rule>,
}

/// An included or excluded path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    names: Vec<String>,
    /// Ends with `/*`: everything below; else, with `/?`, the scalar there.
    is_subtree: bool,
    is_included: bool,
}

const ETAG: &str = "/\"_etag\"/?";

/// A client's policy with what it leaves out: the whole item is indexed but its etag.
pub fn fill_in(mut policy: Object) -> Result<Object, Refusal> {
    let mode = match policy.get("indexingMode") {
        None | Some(Value::Null) => "consistent".to_owned(),
        Some(Value::String(mode)) => mode.to_ascii_lowercase(),
        Some(_) => return Err(Refusal::bad("The indexing mode is not a text.")),
    };
    let is_on = mode != "none";
    policy.set("indexingMode", Value::text(mode));
    if policy.get("automatic").is_none() {
        policy.set("automatic", Value::Bool(is_on));
    }
    let mut excluded = paths(&policy, "excludedPaths")?;
    let mut included = paths(&policy, "includedPaths")?;
    if is_on {
        let names_root = |list: &[Value]| list.iter().any(|path| path_text(path) == Some("/*"));
        if policy.get("includedPaths").is_none() && !names_root(&excluded) {
            included.push(path("/*"));
        }
        if !excluded.iter().any(|path| path_text(path) == Some(ETAG)) {
            excluded.push(path(ETAG));
        }
        if included.is_empty() && excluded.len() == 1 && policy.get("excludedPaths").is_none() {
            included.push(path("/*"));
        }
    }
    policy.set("includedPaths", Value::Array(included));
    policy.set("excludedPaths", Value::Array(excluded));
    Ok(policy)
}

fn paths(policy: &Object, name: &str) -> Result<Vec<Value>, Refusal> {
    match policy.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(paths)) => Ok(paths.iter().map(as_of_today).collect()),
        Some(_) => Err(Refusal::bad(format!("The {name} of the indexing policy are no array."))),
    }
}

/// A path as older clients send it: `/` is everything, and what kinds of indexes there shall be is not asked any more (5.2).
fn as_of_today(entry: &Value) -> Value {
    let Value::Object(entry) = entry else { return entry.clone() };
    let mut entry = entry.clone();
    entry.0.retain(|(name, _)| name != "indexes");
    if entry.get("path").and_then(Value::as_str) == Some("/") {
        entry.set("path", Value::text("/*"));
    }
    Value::Object(entry)
}

fn path(text: &str) -> Value {
    Value::Object(Object(vec![("path".to_owned(), Value::text(text))]))
}

fn path_text(entry: &Value) -> Option<&str> {
    entry.get("path")?.as_str()
}

/// Reads a policy that is filled in.
pub fn read(policy: &Value) -> Result<Indexing, Refusal> {
    let is_on = match policy.get("indexingMode").and_then(Value::as_str) {
        Some("consistent" | "lazy") => true,
        Some("none") => false,
        _ => return Err(Refusal::bad("The indexing mode is neither consistent nor none.")),
    };
    let mut rules = Vec::new();
    for (list, is_included) in [("includedPaths", true), ("excludedPaths", false)] {
        for entry in policy.get(list).and_then(Value::as_array).unwrap_or_default() {
            let text = path_text(entry).ok_or_else(|| bad_path(&entry.to_text()))?;
            let (names, is_subtree) = read_path(text).ok_or_else(|| bad_path(text.as_bytes()))?;
            rules.push(Rule { names, is_subtree, is_included });
        }
    }
    if rules.len() > limits::INDEX_PATHS {
        return Err(Refusal::bad(format!(
            "The indexing policy has more than {} paths.",
            limits::INDEX_PATHS
        )));
    }
    if is_on && !rules.iter().any(|rule| rule.names.is_empty() && rule.is_subtree) {
        return Err(Refusal::bad(
            "The special mandatory indexing path \"/\" is not provided in any of the path type sets. Please provide this path in one of the sets.",
        ));
    }
    // The longest path decides, and of equally long ones the more precise.
    rules.sort_by_key(|rule| std::cmp::Reverse((rule.names.len(), !rule.is_subtree)));
    Ok(Indexing { is_on, rules })
}

fn bad_path(text: &[u8]) -> Refusal {
    Refusal::bad(format!("The indexing path '{}' could not be accepted.", String::from_utf8_lossy(text)))
}

fn read_path(text: &str) -> Option<(Vec<String>, bool)> {
    let mut names = key_path::names(text).ok()?;
    match names.pop()?.as_str() {
        "*" => Some((names, true)),
        "?" if !names.is_empty() => Some((names, false)),
        _ => None,
    }
}

/// A name in a path of an item: of a member, or `[]` for whatever stands in an array.
pub const EACH: &str = "[]";

impl Indexing {
    /// Whether a scalar at this path is indexed.
    pub fn includes(&self, path: &[&str]) -> bool {
        self.is_on
            && self
                .rules
                .iter()
                .find(|rule| {
                    let is_below = path.len() >= rule.names.len()
                        && rule.names.iter().zip(path).all(|(name, step)| name == step);
                    is_below && (rule.is_subtree || path.len() == rule.names.len())
                })
                .is_some_and(|rule| rule.is_included)
    }

    /// Whether the policy is the plain one: everything.
    pub fn is_everything(&self) -> bool {
        self.is_on && self.rules.iter().all(|rule| rule.is_included || rule.names == ["_etag"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn policy(text: &str) -> Result<Indexing, Refusal> {
        let Value::Object(object) = json::parse(text.as_bytes()).unwrap() else { panic!("an object") };
        read(&Value::Object(fill_in(object)?))
    }

    // CX-5.2.3
    #[test]
    fn nothing_and_a_part_of_a_policy_are_filled_in() {
        for text in ["{}", r#"{"indexingMode":"Consistent"}"#, r#"{"automatic":true,"excludedPaths":[]}"#] {
            let Value::Object(object) = json::parse(text.as_bytes()).unwrap() else { panic!("an object") };
            let filled = Value::Object(fill_in(object).unwrap());
            let expected = json::parse(
                br#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}"#,
            )
            .unwrap();
            assert!(
                json::equal(&filled, &expected),
                "{text}: {}",
                String::from_utf8_lossy(&filled.to_text())
            );
            assert!(policy(text).unwrap().is_everything());
        }
    }

    // CX-5.2.4
    #[test]
    fn paths_of_older_clients_are_those_of_today() {
        let text = r#"{"includedPaths":[{"path":"/","indexes":[{"kind":"Range","dataType":"Number","precision":-1}]}]}"#;
        let Value::Object(object) = json::parse(text.as_bytes()).unwrap() else { panic!("an object") };
        let included = fill_in(object).unwrap().get("includedPaths").unwrap().to_text();
        assert_eq!(included, br#"[{"path":"/*"}]"#);
        assert!(policy(text).unwrap().is_everything());
    }

    #[test]
    fn the_longest_path_decides() {
        let policy = policy(
            r#"{"includedPaths":[{"path":"/*"},{"path":"/a/b/?"},{"path":"/list/[]/x/?"}],"excludedPaths":[{"path":"/a/*"},{"path":"/list/*"}]}"#,
        )
        .unwrap();
        for (path, is_included) in [
            (&["x"][..], true),
            (&["a"], false),
            (&["a", "c"], false),
            (&["a", "b"], true),
            (&["a", "b", "c"], false),
            (&["list", "[]", "x"], true),
            (&["list", "[]", "y"], false),
        ] {
            assert_eq!(policy.includes(path), is_included, "{path:?}");
        }
        assert!(!policy.is_everything());
    }

    // CX-5.2.4
    #[test]
    fn the_root_must_be_named_and_paths_must_end_as_paths_do() {
        assert!(policy(r#"{"includedPaths":[{"path":"/a/?"}]}"#).is_err());
        assert!(policy(r#"{"includedPaths":[],"excludedPaths":[{"path":"/*"}]}"#).is_ok());
        assert!(policy(r#"{"excludedPaths":[{"path":"/*"}]}"#).unwrap().includes(&["a"]).eq(&false));
        assert!(policy(r#"{"includedPaths":[{"path":"/*"},{"path":"/a"}]}"#).is_err());
        assert!(policy(r#"{"indexingMode":"sometimes"}"#).is_err());
        assert!(!policy(r#"{"indexingMode":"None"}"#).unwrap().is_on);
    }
}
