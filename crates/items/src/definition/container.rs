//! What a container's definition says, defaults filled in (5.2).
//!
//! Members that are not known here are kept and echoed. What a replace may not change is compared, and what it leaves out of that
//! is kept.

use super::check_name;
use super::indexing::{self, Indexing};
use super::search;
use crate::effective_key::Hashing;
use crate::json::{self, Object, Value};
use crate::{Refusal, Time, key_path, limits, query};

/// The time to live of a container: `None` is off (C-6), `-1` on without a default (C-7), else seconds.
pub type DefaultTtl = Option<i64>;

/// A definition as the rest of the crate uses it.
#[derive(Debug, Clone)]
pub struct Settings {
    pub name: String,
    /// The names of the members in each partition key path, outermost first.
    pub key_paths: Vec<Vec<String>>,
    pub hashing: Hashing,
    pub default_ttl: DefaultTtl,
    pub indexing: Indexing,
    /// Each with the names in its paths.
    pub unique_keys: Vec<Vec<Vec<String>>>,
    /// Name and query.
    pub computed: Vec<(String, String)>,
    /// Members that hold vectors, and how their distance is measured.
    pub distances: Vec<(Vec<String>, String)>,
    /// Members that hold text, and in what language.
    pub languages: Vec<(Vec<String>, String)>,
    /// How long the feed of all versions and deletes goes back, in milliseconds; `None`: the container keeps none (P-73).
    pub retention_ms: Option<i64>,
}

/// System members that a client may send back; they are left out of what is kept (P-29).
const SYSTEM: [&str; 9] =
    ["_rid", "_self", "_etag", "_ts", "_docs", "_sprocs", "_triggers", "_udfs", "_conflicts"];

/// What a replace keeps when the client leaves it out, because it can never change or clients do not send it.
const KEPT: [&str; 7] = [
    "partitionKey",
    "uniqueKeyPolicy",
    "geospatialConfig",
    "vectorEmbeddingPolicy",
    "clientEncryptionPolicy",
    "changeFeedPolicy",
    "fullTextPolicy",
];

/// Reads a request's body and fills in what it leaves out. `before` is the definition that it replaces.
pub fn read(body: &[u8], before: Option<&[u8]>) -> Result<(Value, Settings), Refusal> {
    if body.len() > limits::DEFINITION_BYTES {
        return Err(Refusal::TooLarge { bytes: body.len(), limit: limits::DEFINITION_BYTES });
    }
    let Ok(Value::Object(mut definition)) = json::parse(body) else {
        return Err(Refusal::bad("The request's body is not a JSON object."));
    };
    definition.0.retain(|(name, _)| !SYSTEM.contains(&name.as_str()));
    let before = before.and_then(|before| json::parse(before).ok()).and_then(|before| match before {
        Value::Object(before) => Some(before),
        _ => None,
    });
    search::check(&definition, before.as_ref())?;
    if let Some(before) = &before {
        keep_what_stays(&mut definition, before)?;
    }
    fill_in(&mut definition)?;
    let definition = Value::Object(definition);
    let settings = understand(&definition)?;
    for (_, text) in &settings.computed {
        query::prepare(text, &[])?;
    }
    Ok((definition, settings))
}

/// What is stored already: it was checked when it was written.
pub fn stored(definition: &[u8]) -> Option<Settings> {
    understand(&json::parse(definition).ok()?).ok()
}

fn keep_what_stays(definition: &mut Object, before: &Object) -> Result<(), Refusal> {
    for name in KEPT {
        if let (None, Some(value)) = (definition.get(name), before.get(name)) {
            definition.set(name, value.clone());
        }
    }
    let mut filled = definition.clone();
    fill_in(&mut filled)?;
    for name in ["id", "partitionKey", "uniqueKeyPolicy"] {
        let same = match (filled.get(name), before.get(name)) {
            (Some(now), Some(was)) => json::equal(now, was),
            (now, was) => now.is_none() && was.is_none(),
        };
        if !same {
            return Err(Refusal::bad(format!("The {name} of a container cannot be changed.")));
        }
    }
    Ok(())
}

fn object(definition: &Object, name: &str) -> Result<Object, Refusal> {
    match definition.get(name) {
        None | Some(Value::Null) => Ok(Object::default()),
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(_) => Err(Refusal::bad(format!("The {name} is not an object."))),
    }
}

fn fill_in(definition: &mut Object) -> Result<(), Refusal> {
    for name in ["defaultTtl", "analyticalStorageTtl", "changeFeedPolicy", "computedProperties"] {
        // C-24: null is the same as nothing.
        if definition.get(name) == Some(&Value::Null) {
            definition.remove(name);
        }
    }
    let mut key = object(definition, "partitionKey")?;
    if key.get("paths").is_none() {
        return Err(Refusal::bad(
            "The partition key definition is missing: a container needs a partitionKey.",
        ));
    }
    if key.get("kind").is_none() {
        key.set("kind", Value::text("Hash"));
    }
    if key.get("kind").and_then(Value::as_str) == Some("MultiHash") && key.get("version").is_none() {
        key.set("version", Value::integer(2));
    }
    definition.set("partitionKey", Value::Object(key));
    let policy = indexing::fill_in(object(definition, "indexingPolicy")?)?;
    definition.set("indexingPolicy", Value::Object(policy));
    let mut unique = object(definition, "uniqueKeyPolicy")?;
    if unique.get("uniqueKeys").is_none() {
        unique.set("uniqueKeys", Value::Array(Vec::new()));
    }
    definition.set("uniqueKeyPolicy", Value::Object(unique));
    let mut conflicts = object(definition, "conflictResolutionPolicy")?;
    for (name, value) in
        [("mode", "LastWriterWins"), ("conflictResolutionPath", "/_ts"), ("conflictResolutionProcedure", "")]
    {
        if conflicts.get(name).is_none() {
            conflicts.set(name, Value::text(value));
        }
    }
    definition.set("conflictResolutionPolicy", Value::Object(conflicts));
    let mut geospatial = object(definition, "geospatialConfig")?;
    if geospatial.get("type").is_none() {
        geospatial.set("type", Value::text("Geography"));
    }
    definition.set("geospatialConfig", Value::Object(geospatial));
    Ok(())
}

fn understand(definition: &Value) -> Result<Settings, Refusal> {
    let name = match definition.get("id") {
        Some(Value::String(name)) => name.clone(),
        _ => return Err(Refusal::bad("The id of the container is missing.")),
    };
    check_name(&name, limits::NAME_BYTES)?;
    let (key_paths, hashing) = partition_key(definition)?;
    let default_ttl = ttl(definition.get("defaultTtl"), "defaultTtl")?;
    ttl(definition.get("analyticalStorageTtl"), "analyticalStorageTtl")?;
    let policy = definition.get("indexingPolicy").ok_or(Refusal::bad("The indexing policy is missing."))?;
    let indexing = indexing::read(policy)?;
    if default_ttl.is_some() && !indexing.is_on {
        // C-35
        return Err(Refusal::bad(
            "Time to live needs an index: defaultTtl and the indexing mode none exclude each other.",
        ));
    }
    conflict_policy(definition)?;
    Ok(Settings {
        name,
        key_paths,
        hashing,
        default_ttl,
        indexing,
        unique_keys: unique_keys(definition)?,
        computed: computed(definition)?,
        distances: distances(definition),
        languages: languages(definition),
        retention_ms: retention(definition)?,
    })
}

fn partition_key(definition: &Value) -> Result<(Vec<Vec<String>>, Hashing), Refusal> {
    let bad = |text: String| Err(Refusal::bad(format!("The partition key definition is invalid: {text}.")));
    let Some(key) = definition.get("partitionKey") else {
        return bad("it is missing".into());
    };
    let Some(paths) = key.get("paths").and_then(Value::as_array) else {
        return bad("paths is not an array".into());
    };
    let mut key_paths = Vec::new();
    for path in paths {
        let names = path.as_str().filter(|path| is_plain_or_quoted(path)).map(key_path::names);
        match names {
            Some(Ok(names)) if !names.is_empty() && names.iter().all(|name| name != "*" && name != "[]") => {
                key_paths.push(names);
            }
            _ => {
                let path = path.as_str().map_or_else(|| path.to_text(), |path| path.as_bytes().to_vec());
                return bad(format!(
                    "The partition key component definition path '{}' could not be accepted. Partition key paths must \
                     contain only valid characters and not contain a trailing slash or wildcard character",
                    String::from_utf8_lossy(&path)
                ));
            }
        }
    }
    let version = match key.get("version") {
        None => None,
        Some(version) => match version.as_number().and_then(|number| number.as_i64()) {
            Some(version @ (1 | 2)) => Some(version),
            _ => return bad("its version is neither 1 nor 2".into()),
        },
    };
    let hashing = match (key.get("kind").and_then(Value::as_str), version) {
        (Some("Hash"), None | Some(1)) => Hashing::V1,
        (Some("Hash"), _) => Hashing::V2,
        (Some("MultiHash"), Some(2)) => Hashing::Multi,
        (Some("MultiHash"), _) => return bad("MultiHash is of version 2".into()),
        _ => return bad("its kind is neither Hash nor MultiHash".into()),
    };
    // P-40
    let most = if hashing == Hashing::Multi { limits::KEY_PATHS } else { 1 };
    if key_paths.len() > most {
        return bad(format!("Too many partition key paths: {} of at most {most}", key_paths.len()));
    }
    if key_paths.is_empty() {
        return bad("it has no path".into());
    }
    Ok((key_paths, hashing))
}

/// A name with a space in it stands in quotes.
fn is_plain_or_quoted(path: &str) -> bool {
    path.contains(['"', '\'']) || !path.trim().contains(char::is_whitespace)
}

/// C-20
fn ttl(value: Option<&Value>, name: &str) -> Result<Option<i64>, Refusal> {
    let Some(value) = value else {
        return Ok(None);
    };
    let seconds = match value {
        Value::Number(number) => number.as_i64(),
        _ => None,
    };
    match seconds {
        Some(seconds) if seconds == -1 || (1..=limits::TTL_SECONDS_MOST).contains(&seconds) => {
            Ok(Some(seconds))
        }
        _ => Err(invalid_ttl(name, &value.to_text())),
    }
}

/// C-22
pub fn invalid_ttl(name: &str, text: &[u8]) -> Refusal {
    Refusal::bad(format!(
        "The input {name} '{}' is invalid. Ensure to provide a nonzero positive integer less than or equal to '{}', or -1 which means never expire.",
        String::from_utf8_lossy(&text[..text.len().min(limits::TOLD_BYTES)]),
        limits::TTL_SECONDS_MOST
    ))
}

fn conflict_policy(definition: &Value) -> Result<(), Refusal> {
    let mode = definition.get("conflictResolutionPolicy").and_then(|policy| policy.get("mode"));
    match mode.and_then(Value::as_str) {
        Some(mode) if ["lastwriterwins", "custom"].contains(&mode.to_ascii_lowercase().as_str()) => Ok(()),
        _ => Err(Refusal::bad("The conflict resolution mode is neither LastWriterWins nor Custom.")),
    }
}

fn unique_keys(definition: &Value) -> Result<Vec<Vec<Vec<String>>>, Refusal> {
    let bad = |text: &str| Refusal::bad(format!("The unique key policy is invalid: {text}."));
    let policy = definition.get("uniqueKeyPolicy").ok_or_else(|| bad("it is missing"))?;
    let keys =
        policy.get("uniqueKeys").and_then(Value::as_array).ok_or_else(|| bad("uniqueKeys is no array"))?;
    if keys.len() > limits::UNIQUE_KEYS {
        return Err(bad("it has more than 10 keys"));
    }
    let mut unique_keys = Vec::new();
    for key in keys {
        let paths = key.get("paths").and_then(Value::as_array).ok_or_else(|| bad("paths is no array"))?;
        if paths.is_empty() || paths.len() > limits::UNIQUE_KEY_PATHS {
            return Err(bad("a key has 1 to 16 paths"));
        }
        let mut names = Vec::new();
        for path in paths {
            match path.as_str().map(key_path::names) {
                Some(Ok(path)) if !path.is_empty() => names.push(path),
                _ => return Err(bad("a path is malformed")),
            }
        }
        unique_keys.push(names);
    }
    Ok(unique_keys)
}

fn computed(definition: &Value) -> Result<Vec<(String, String)>, Refusal> {
    let bad = |text: &str| {
        Refusal::bad(format!("One of the specified inputs is invalid: computedProperties: {text}."))
    };
    let Some(list) = definition.get("computedProperties") else {
        return Ok(Vec::new());
    };
    let list = list.as_array().ok_or_else(|| bad("they are no array"))?;
    if list.len() > limits::COMPUTED_PROPERTIES {
        return Err(bad("there are more than 20"));
    }
    let mut computed: Vec<(String, String)> = Vec::new();
    for property in list {
        let text = |name: &str| property.get(name).and_then(Value::as_str).map(str::to_owned);
        let (Some(name), Some(query)) = (text("name"), text("query")) else {
            return Err(bad("each has a name and a query"));
        };
        if name.is_empty() || name == "id" || SYSTEM.contains(&name.as_str()) {
            return Err(bad("a name is empty, id or a system property"));
        }
        if computed.iter().any(|(other, _)| *other == name) {
            return Err(bad("two have the same name"));
        }
        computed.push((name, query));
    }
    Ok(computed)
}

/// Of the policy of vectors, as far as it can be read: how distances are measured where a query does not say.
fn distances(definition: &Value) -> Vec<(Vec<String>, String)> {
    let policy = definition.get("vectorEmbeddingPolicy").and_then(|policy| policy.get("vectorEmbeddings"));
    let of = |embedding: &Value| {
        let names = key_path::names(embedding.get("path")?.as_str()?).ok()?;
        Some((names, embedding.get("distanceFunction")?.as_str()?.to_owned()))
    };
    policy.and_then(Value::as_array).unwrap_or_default().iter().filter_map(of).collect()
}

/// Of the policy of full text, as far as it can be read: a path that names no language has the default one.
fn languages(definition: &Value) -> Vec<(Vec<String>, String)> {
    let Some(policy) = definition.get("fullTextPolicy") else { return Vec::new() };
    let text = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
    let of = |path: &Value| {
        let names = key_path::names(&text(path, "path")?).ok()?;
        Some((names, text(path, "language").or_else(|| text(policy, "defaultLanguage"))?))
    };
    policy.get("fullTextPaths").and_then(Value::as_array).unwrap_or_default().iter().filter_map(of).collect()
}

fn retention(definition: &Value) -> Result<Option<i64>, Refusal> {
    let Some(policy) = definition.get("changeFeedPolicy") else {
        return Ok(None);
    };
    let bad = || Refusal::bad("The retentionDuration of the change feed policy is a number of minutes.");
    let minutes = match policy.get("retentionDuration") {
        None => 0,
        Some(value) => value.as_number().and_then(|number| number.as_i64()).ok_or_else(bad)?,
    };
    match minutes {
        0 => Ok(None),
        1..=limits::RETENTION_MINUTES_MOST => Ok(Some(minutes * 60_000)),
        _ => Err(bad()),
    }
}

impl Settings {
    /// What queries know of the items.
    pub fn known(&self) -> query::Known<'_> {
        query::Known { computed: &self.computed, distances: &self.distances, languages: &self.languages }
    }

    /// Until when what had expired under these settings stays gone, if the settings end at `now` (C-41).
    pub fn gone_at(&self, now: Time) -> (Option<Time>, Option<Time>) {
        match self.default_ttl {
            None => (None, None),
            Some(-1) => (Some(now), None),
            Some(seconds) => (Some(now), Some(now.after_ms(-seconds * 1_000))),
        }
    }
}
