//! What a request's headers ask for. Names are compared in any case, and so are words such as `True` (P-4).

use super::failure::Failure;
use super::signature::http_date;
use crate::limits::KEY_BOUND_BYTES;
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use items::{
    ChangeFeedMode, ChangeFeedStart, KeyPart, KeyRange, Listing, PartitionKey, Precondition, Refusal, Scope,
    Throughput,
};
use serde_json::Value;

/// The one partition key range that every container has (P-46).
pub const RANGE: &str = "0";

fn length_bit(name: &str) -> u64 {
    1 << (name.len() % 64)
}

#[derive(Debug, Clone, Copy)]
pub struct Headers<'a> {
    all: &'a HeaderMap,
    /// A bit for each length that a name has: most of the two dozen names that are looked for are not there, and this tells so at once.
    lengths: u64,
}

impl<'a> Headers<'a> {
    pub fn of(all: &'a HeaderMap) -> Headers<'a> {
        let lengths = all.keys().fold(0, |lengths, name| lengths | length_bit(name.as_str()));
        Headers { all, lengths }
    }

    /// Compares name after name: there are a dozen of them, and hashing one text takes as long as comparing it with all of these.
    fn get(self, name: &str) -> Option<&'a HeaderValue> {
        if self.lengths & length_bit(name) == 0 {
            return None;
        }
        self.all.iter().find(|(known, _)| known.as_str() == name).map(|(_, value)| value)
    }

    /// The value of a header that must be text. What is not ASCII is passed over: no header that is read here may be.
    pub fn text(self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(|value| value.to_str().ok()).map(str::trim).filter(|text| !text.is_empty())
    }

    /// P-4
    pub fn flag(self, name: &str) -> bool {
        self.text(name).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    pub fn owned(self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    /// P-32
    pub fn wants_no_content(self) -> bool {
        let preferences = self.all.iter().filter(|(name, _)| name.as_str() == "prefer");
        let is_minimal = preferences.into_iter().any(|(_, value)| {
            value.to_str().is_ok_and(|text| {
                text.split([',', ';']).any(|part| part.trim().eq_ignore_ascii_case("return=minimal"))
            })
        });
        let shows = self.text("x-ms-cosmos-populate-content-response-on-write");
        is_minimal || shows.is_some_and(|text| text.eq_ignore_ascii_case("false"))
    }

    /// P-31: each of three marks makes a request a query.
    pub fn is_query(self) -> bool {
        let content = self.text("content-type").unwrap_or_default();
        let kind = content.split(';').next().unwrap_or_default().trim();
        self.flag("x-ms-documentdb-isquery")
            || self.flag("x-ms-documentdb-query")
            || kind.eq_ignore_ascii_case("application/query+json")
    }

    pub fn precondition(self) -> Precondition {
        Precondition { if_match: self.owned("if-match"), if_none_match: self.owned("if-none-match") }
    }

    /// P-51
    pub fn listing(self) -> Result<Listing, Failure> {
        Ok(Listing { max_items: self.max_items()?, continuation: self.owned("x-ms-continuation") })
    }

    pub fn max_items(self) -> Result<Option<i64>, Failure> {
        let Some(text) = self.text("x-ms-max-item-count") else { return Ok(None) };
        match text.parse::<i64>() {
            Ok(count) if count == -1 || count > 0 => Ok(Some(count)),
            _ => Err(Failure::bad("The header x-ms-max-item-count must be -1 or a positive number.")),
        }
    }

    /// The newest transaction that the client has seen (P-82): of `0:-1#57` and `0:0#57#1=57` it is 57. What is not of that form
    /// says nothing about this server.
    pub fn session(self) -> Option<u64> {
        let tokens = self.text("x-ms-session-token")?.split(',');
        let newest = tokens.filter_map(|token| {
            let (_, progress) = token.trim().split_once(':')?;
            progress.split('#').nth(1)?.parse::<u64>().ok()
        });
        newest.max()
    }

    /// P-38
    pub fn partition_key(self) -> Result<Option<PartitionKey>, Failure> {
        let Some(value) = self.get("x-ms-documentdb-partitionkey") else { return Ok(None) };
        let wrong = || Failure::bad("The header x-ms-documentdb-partitionkey is not UTF-8.");
        std::str::from_utf8(value.as_bytes()).map_err(|_| wrong()).and_then(partition_key).map(Some)
    }

    /// P-41, P-46, P-71
    pub fn scope(self) -> Result<Scope, Failure> {
        if let Some(range) = self.text("x-ms-documentdb-partitionkeyrangeid") {
            // Older clients put the container's rid before it.
            if range.rsplit(',').next().map(str::trim) != Some(RANGE) {
                return Err(Refusal::RangeGone.into());
            }
        }
        if let Some(key) = self.partition_key()? {
            return Ok(Scope::Key(key));
        }
        let bound = |name: &str, usual: &str| match self.text(name) {
            None => Ok(usual.to_owned()),
            Some(text)
                if text.len() <= KEY_BOUND_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
            {
                Ok(text.to_ascii_uppercase())
            }
            Some(_) => Err(Failure::bad(format!("The header {name} is not hexadecimal."))),
        };
        let (start, end) = ("x-ms-start-epk", "x-ms-end-epk");
        if !self.all.contains_key(start) && !self.all.contains_key(end) {
            return Ok(Scope::All);
        }
        let range = KeyRange { start: bound(start, "")?, end: bound(end, "FF")? };
        let is_whole = range.start.is_empty() && range.end == "FF";
        Ok(if is_whole { Scope::All } else { Scope::Range(range) })
    }

    /// The scope of a query: who names no partition has to say that it may ask all of them (12.1).
    pub fn query_scope(self) -> Result<Scope, Failure> {
        let scope = self.scope()?;
        let names_a_range = ["x-ms-documentdb-partitionkeyrangeid", "x-ms-start-epk", "x-ms-end-epk"]
            .iter()
            .any(|name| self.get(name).is_some());
        let has_leave = names_a_range || self.flag("x-ms-documentdb-query-enablecrosspartition");
        let names_nothing = match &scope {
            Scope::All => true,
            Scope::Key(key) => key.0.is_empty(),
            _ => false,
        };
        Ok(if names_nothing && !has_leave { Scope::WithoutLeave } else { scope })
    }

    /// Whether the client speaks a version of the API in which containers have partition keys. Versions are dates.
    pub fn knows_partition_keys(self) -> bool {
        self.text("x-ms-version").is_none_or(|version| version >= "2018-12-31")
    }

    /// P-77
    pub fn throughput(self) -> Result<Option<Throughput>, Failure> {
        if let Some(settings) = self.text("x-ms-cosmos-offer-autopilot-settings") {
            return Ok(Some(items::autoscale_of_header(settings)?));
        }
        let Some(text) = self.text("x-ms-offer-throughput") else { return Ok(None) };
        let wrong = |_| Failure::bad("The header x-ms-offer-throughput is not a number.");
        text.parse().map(Throughput::Fixed).map(Some).map_err(wrong)
    }

    /// Which feed of changes is asked for, if one is (P-69, P-73).
    pub fn change_feed(self) -> Result<Option<(ChangeFeedMode, ChangeFeedStart)>, Failure> {
        let Some(manipulation) = self.text("a-im") else { return Ok(None) };
        let mode = if manipulation.eq_ignore_ascii_case("incremental feed") {
            ChangeFeedMode::LatestVersion
        } else if manipulation.eq_ignore_ascii_case("full-fidelity feed") {
            ChangeFeedMode::AllVersionsAndDeletes
        } else {
            return Err(Failure::bad("The header A-IM is neither Incremental Feed nor Full-Fidelity Feed."));
        };
        let start = match (self.text("if-none-match"), self.text("if-modified-since")) {
            (Some("*"), _) => ChangeFeedStart::Now,
            (Some(etag), _) => ChangeFeedStart::After(etag.to_owned()),
            (None, Some(date)) => ChangeFeedStart::Time(http_date(date).ok_or_else(|| {
                Failure::bad("The header If-Modified-Since is not of the form of RFC 1123.")
            })?),
            (None, None) => ChangeFeedStart::Beginning,
        };
        Ok(Some((mode, start)))
    }

    /// P-85: the account is of level Session; a request for more cannot be met.
    pub fn check_consistency(self) -> Result<(), Failure> {
        match self.text("x-ms-consistency-level") {
            Some(level) if ["strong", "boundedstaleness"].contains(&level.to_ascii_lowercase().as_str()) => {
                Err(Failure::bad(format!(
                    "ConsistencyLevel {level} specified in the request is invalid when service is configured with \
                     consistency level Session. Ensure the request consistency level is not stronger than the service \
                     consistency level."
                )))
            }
            _ => Ok(()),
        }
    }
}

/// The value of the header: a JSON array (P-38).
fn partition_key(text: &str) -> Result<PartitionKey, Failure> {
    if let Some(plain) = plain_text(text) {
        return Ok(PartitionKey::of_string(plain));
    }
    let wrong = || {
        Failure::bad(
            "The header x-ms-documentdb-partitionkey is not a JSON array of texts, numbers, booleans, nulls and {}.",
        )
    };
    let values: Vec<Value> = serde_json::from_str(text).map_err(|_| wrong())?;
    let part = |value: Value| match value {
        Value::Null => Ok(KeyPart::Null),
        Value::Bool(value) => Ok(KeyPart::Bool(value)),
        Value::Number(number) => number.as_f64().map(KeyPart::Number).ok_or_else(wrong),
        Value::String(text) => Ok(KeyPart::String(text)),
        Value::Object(members) if members.is_empty() => Ok(KeyPart::Undefined),
        Value::Array(_) | Value::Object(_) => Err(wrong()),
    };
    values.into_iter().map(part).collect::<Result<_, _>>().map(PartitionKey)
}

/// The text in `["text"]`, where nothing in it needs a closer look: what nearly every request has.
fn plain_text(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("[\"")?.strip_suffix("\"]")?;
    let is_plain = |byte: u8| (0x20..0x7F).contains(&byte) && byte != b'"' && byte != b'\\';
    inner.bytes().all(is_plain).then_some(inner)
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
