//! Definitions as clients see them: JSON with system properties (section 5).

use super::{Container, Database, Definitions, Document, Offer, Stamp};
use crate::keys::{Kind, Version};
use crate::{Document as Shown, Throughput, Time, json, rid};
use bytes::Bytes;

/// An entity tag, with its quotes: a function of the version and the time (P-25).
pub fn etag(version: Version, at: Time) -> String {
    let Version { lsn, index } = version;
    let mut text = String::with_capacity(ETAG_BYTES);
    text.push('"');
    push_hex(&mut text, u64::from(lsn as u32), 8);
    text.push('-');
    push_hex(&mut text, (lsn >> 32) & 0xffff, 4);
    text.push('-');
    push_hex(&mut text, u64::from(index), 4);
    text.push_str("-0000-");
    push_hex(&mut text, u64::from(at.seconds() as u32), 8);
    text.push_str("0000\"");
    text
}

/// A UUID between quotes.
const ETAG_BYTES: usize = 38;

/// So many hexadecimal digits of a number. Every answer about an item has three of them, and formatting takes ten times as long.
fn push_hex(text: &mut String, number: u64, digits: u32) {
    let digit = |nth: u32| char::from_digit((number >> (4 * nth)) as u32 & 0xf, 16);
    text.extend((0..digits).rev().filter_map(digit));
}

/// JSON text of an object with more members behind its own; `members` begins without a comma.
pub fn with_members(object: &[u8], members: &str) -> Bytes {
    let end = object.iter().rposition(|&byte| byte == b'}').unwrap_or(object.len());
    let mut text = Vec::with_capacity(object.len() + members.len() + 2);
    text.extend_from_slice(&object[..end]);
    while text.last().is_some_and(u8::is_ascii_whitespace) {
        text.pop();
    }
    if text.last() != Some(&b'{') && !members.is_empty() {
        text.push(b',');
    }
    text.extend_from_slice(members.as_bytes());
    text.push(b'}');
    text.into()
}

fn system(rid: &str, link: &str, stamp: Stamp) -> String {
    let etag = stamp.etag();
    format!(
        r#""_rid":"{rid}","_self":"{link}","_etag":"\"{}\"","_ts":{}"#,
        etag.trim_matches('"'),
        stamp.at.seconds()
    )
}

fn shown(body: Bytes, stamp: Stamp) -> Shown {
    Shown { body, etag: stamp.etag() }
}

pub fn database_link(database: &Database) -> String {
    format!("dbs/{}/", rid::database(database.number))
}

pub fn database(database: &Database) -> Shown {
    let mut name = Vec::new();
    json::write_text(&database.name, &mut name);
    let own = [b"{\"id\":", &name[..], b"}"].concat();
    let system = system(&rid::database(database.number), &database_link(database), database.stamp);
    shown(with_members(&own, &(system + r#","_colls":"colls/","_users":"users/""#)), database.stamp)
}

pub fn container(container: &Container) -> Shown {
    let system = system(&container.rid, &container.link, container.stamp);
    let feeds = r#","_docs":"docs/","_sprocs":"sprocs/","_triggers":"triggers/","_udfs":"udfs/","_conflicts":"conflicts/""#;
    shown(with_members(&container.definition, &(system + feeds)), container.stamp)
}

pub fn document_rid(definitions: &Definitions, document: &Document) -> String {
    let number = u64::from(document.number);
    let child = |kind| {
        let database = definitions.containers.get(&document.parent).map_or(0, |container| container.database);
        rid::child(database, document.parent, kind, number)
    };
    match document.kind {
        Kind::Procedure => child(rid::Child::Procedure),
        Kind::Trigger => child(rid::Child::Trigger),
        Kind::Function => child(rid::Child::Function),
        Kind::Permission => {
            let user = definitions.documents.values().find(|user| user.number == document.parent);
            rid::permission(user.map_or(0, |user| user.parent), document.parent, number)
        }
        _ => rid::user(document.parent, document.number),
    }
}

/// The link of what owns the document, and the segment of its feed.
fn document_link(definitions: &Definitions, document: &Document, rid: &str) -> String {
    let in_container = |feed: &str| {
        let owner = definitions.containers.get(&document.parent).map(|container| &*container.link);
        format!("{}{feed}/{rid}/", owner.unwrap_or_default())
    };
    match document.kind {
        Kind::Procedure => in_container("sprocs"),
        Kind::Trigger => in_container("triggers"),
        Kind::Function => in_container("udfs"),
        Kind::Permission => {
            let user = definitions.documents.values().find(|user| user.number == document.parent);
            let owner = user.map(|user| document_link(definitions, user, &document_rid(definitions, user)));
            format!("{}permissions/{rid}/", owner.unwrap_or_default())
        }
        Kind::EncryptionKey => format!("dbs/{}/clientencryptionkeys/{rid}/", rid::database(document.parent)),
        _ => format!("dbs/{}/users/{rid}/", rid::database(document.parent)),
    }
}

pub fn document(definitions: &Definitions, document: &Document) -> Shown {
    let rid = document_rid(definitions, document);
    let mut system = system(&rid, &document_link(definitions, document, &rid), document.stamp);
    if document.kind == Kind::User {
        system.push_str(r#","_permissions":"permissions/""#);
    }
    shown(with_members(&document.body, &system), document.stamp)
}

/// The rid of an offer, which is also its id: three bytes.
pub fn offer_rid(offer: &Offer) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(&offer.number.to_be_bytes()[1..]).replace('/', "-")
}

/// P-75
pub fn offer(definitions: &Definitions, offer: &Offer) -> Shown {
    let rid = offer_rid(offer);
    let (resource, owner_rid) = match definitions.containers.get(&offer.owner) {
        Some(container) => (container.link.to_string(), container.rid.to_string()),
        None => {
            let rid = rid::database(offer.owner);
            (format!("dbs/{rid}/"), rid)
        }
    };
    let most = offer.most;
    let ever = format!(
        r#""offerIsRUPerMinuteThroughputEnabled":false,"offerMinimumThroughputParameters":{{"maxThroughputEverProvisioned":{most},"maxConsumedStorageEverInKB":0}}"#
    );
    let content = match offer.throughput {
        Throughput::Fixed(units) => format!(r#"{{"offerThroughput":{units},{ever}}}"#),
        // What an idle autoscale offer runs at: a tenth.
        Throughput::Autoscale { most, increment_percent } => format!(
            r#"{{"offerThroughput":{},{ever},"offerAutopilotSettings":{{"tier":0,"maximumTierThroughput":{most},"autoUpgrade":false,"maxThroughput":{most},"autoUpgradePolicy":{{"throughputPolicy":{{"incrementPercent":{increment_percent}}}}}}}}}"#,
            most / 10
        ),
    };
    let own = format!(
        r#"{{"offerVersion":"V2","offerType":"Invalid","resource":"{resource}","offerResourceId":"{owner_rid}","content":{content},"id":"{rid}"}}"#
    );
    let system = system(&rid, &format!("offers/{rid}/"), offer.stamp);
    shown(with_members(own.as_bytes(), &system), offer.stamp)
}

/// The one partition key range of a container (section 8, P-45): all keys there are.
pub fn range(container: &Container, lsn: u64) -> Shown {
    let rid = rid::child(container.database, container.number, rid::Child::Range, 1);
    // Ranges never change, so neither does their etag (P-44).
    let stamp = Stamp { at: Time(0), change: u64::from(container.number) };
    let system = system(&rid, &format!("{}pkranges/{rid}/", container.link), stamp);
    let own = format!(
        r#"{{"id":"0","minInclusive":"","maxExclusive":"FF","ridPrefix":0,"throughputFraction":1,"status":"online","parents":[],"lsn":{lsn}}}"#
    );
    shown(with_members(own.as_bytes(), &system), stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    // P-25
    #[test]
    fn an_etag_has_quotes_and_tells_version_and_time() {
        let version = Version { lsn: 0x1_0000_00ab, index: 2 };
        assert_eq!(etag(version, Time(0x5c77_12e8 * 1000)), "\"000000ab-0001-0002-0000-5c7712e80000\"");
    }

    #[test]
    fn members_are_added_behind_those_that_are_there() {
        assert_eq!(with_members(b"{}", "\"a\":1"), r#"{"a":1}"#);
        assert_eq!(with_members(b" { \"b\" : 2 } ", "\"a\":1"), r#" { "b" : 2,"a":1}"#);
        assert_eq!(with_members(b"{\"b\":2}", ""), r#"{"b":2}"#);
    }
}
