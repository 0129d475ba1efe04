//! What the client asks for, and what it hears.

use super::model::Model;
use crate::random::Random;
use items::{
    Answer, Command, ContainerPath, ItemPath, ItemWrite, PartitionKey, Precondition, Refusal, Reply,
};
use items_engine::ReplyOrRefusal;

/// Names of one small world: few, so that everything meets everything.
pub const PARTITIONS: u64 = 2;
const IDS: u64 = 5;

/// In some worlds there are more than the removal takes at once.
const MANY_IDS: u64 = 40;
const MANY_ONCE_IN: u64 = 8;

/// Values of the unique key that several items would like to have.
const WANTED_VALUES: u64 = 3;

/// How long the feed of all versions keeps what it tells: as long as it can, because somebody sets the clock.
const RETENTION_MINUTES: i64 = items::limits::RETENTION_MINUTES_MOST;

/// An item's partition and id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub partition: u64,
    pub id: u64,
}

impl Key {
    /// Every item there may be in a world with so many ids.
    pub fn all(ids: u64) -> impl Iterator<Item = Key> {
        (0..PARTITIONS).flat_map(move |partition| (0..ids).map(move |id| Key { partition, id }))
    }

    pub fn path(self) -> ItemPath {
        ItemPath { container: container(), partition_key: partition_key(self.partition), id: self.id() }
    }

    fn id(self) -> String {
        format!("i{}", self.id)
    }
}

pub fn draw_ids(random: &mut Random) -> u64 {
    if random.once_in(MANY_ONCE_IN) { MANY_IDS } else { IDS }
}

pub fn draw_key(random: &mut Random, ids: u64) -> Key {
    Key { partition: random.below(PARTITIONS), id: random.below(ids) }
}

pub fn container() -> ContainerPath {
    ContainerPath::new("d", "c")
}

pub fn partition_key(partition: u64) -> PartitionKey {
    PartitionKey::of_string(&format!("p{partition}"))
}

/// What an item is to hold: a number that no other write has, a value that no other item of its partition may have, and
/// perhaps a time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    pub number: u64,
    pub unique: u64,
    pub ttl: Option<i64>,
}

impl Content {
    fn draw(random: &mut Random) -> Content {
        let number = 1_000 + (random.number() >> 24);
        let unique = if random.once_in(4) { random.below(WANTED_VALUES) } else { number };
        Content { number, unique, ttl: draw_ttl(random) }
    }
}

fn draw_ttl(random: &mut Random) -> Option<i64> {
    *random.pick(&[None, None, None, Some(-1), Some(1), Some(2), Some(5)])
}

/// Whether a write insists on the version that it has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    Any,
    /// The entity tag that the client has last heard of.
    Known(String),
    Nonsense,
}

/// What can be changed about the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    pub ttl: Option<i64>,
    /// Which paths are indexed: all, all but one that queries look for, none but that.
    pub indexing: u8,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    Database,
    Container(Settings),
    Set(Settings),
    Create {
        key: Key,
        content: Content,
    },
    Upsert {
        key: Key,
        content: Content,
    },
    Replace {
        key: Key,
        content: Content,
        matching: Match,
    },
    /// Sets number and time to live, if the number is at least this.
    Patch {
        key: Key,
        number: u64,
        ttl: Option<i64>,
        least: u64,
        matching: Match,
    },
    Delete {
        key: Key,
        matching: Match,
    },
    DeletePartition {
        partition: u64,
    },
    /// Upserts of several items of a partition, all or nothing; the last one may be a create, which fails if it is there.
    Batch {
        partition: u64,
        writes: Vec<(u64, Content)>,
        creates_last: bool,
    },
    Advance {
        by_ms: u64,
    },
}

impl Ask {
    pub fn draw(random: &mut Random, model: &Model, ids: u64) -> Ask {
        let key = draw_key(random, ids);
        let content = Content::draw(random);
        let matching = match random.below(4) {
            0 => model.tag(&key).map_or(Match::Any, Match::Known),
            1 if random.once_in(2) => Match::Nonsense,
            _ => Match::Any,
        };
        match random.below(100) {
            0..20 => Ask::Create { key, content },
            20..44 => Ask::Upsert { key, content },
            44..54 => Ask::Replace { key, content, matching },
            54..64 => {
                let least = if random.once_in(4) { random.number() >> 24 } else { 0 };
                Ask::Patch { key, number: content.number, ttl: content.ttl, least, matching }
            }
            64..75 => Ask::Delete { key, matching },
            75 => Ask::DeletePartition { partition: key.partition },
            76..90 => {
                let count = random.between(1, 3);
                let writes = (0..count).map(|_| (random.below(ids), Content::draw(random))).collect();
                Ask::Batch { partition: key.partition, writes, creates_last: random.once_in(3) }
            }
            90..97 => {
                let ttl = *random.pick(&[None, Some(-1), Some(1), Some(3), Some(10)]);
                let before = model.settings();
                let indexing = if random.once_in(3) { random.below(3) as u8 } else { before.indexing };
                Ask::Set(Settings { ttl, indexing })
            }
            _ => Ask::Advance { by_ms: random.between(1, 4_000) },
        }
    }

    pub fn command(&self) -> Command {
        match self {
            Ask::Database => Command::CreateDatabase { body: r#"{"id":"d"}"#.into(), throughput: None },
            Ask::Container(settings) => Command::CreateContainer {
                database: "d".into(),
                body: definition(*settings).into(),
                throughput: None,
            },
            Ask::Set(settings) => Command::ReplaceContainer {
                container: container(),
                body: definition(*settings).into(),
                if_match: None,
            },
            Ask::Create { key, content } => Command::CreateItem(write(*key, *content, &Match::Any)),
            Ask::Upsert { key, content } => Command::UpsertItem(write(*key, *content, &Match::Any)),
            Ask::Replace { key, content, matching } => {
                Command::ReplaceItem { id: key.id(), write: write(*key, *content, matching) }
            }
            Ask::Patch { key, number, ttl, least, matching } => Command::PatchItem {
                item: key.path(),
                body: patch(*number, *ttl, *least).into(),
                condition: condition(matching),
            },
            Ask::Delete { key, matching } => {
                Command::DeleteItem { item: key.path(), condition: condition(matching) }
            }
            Ask::DeletePartition { partition } => {
                Command::DeletePartition { container: container(), partition_key: partition_key(*partition) }
            }
            Ask::Batch { partition, writes, creates_last } => Command::Batch {
                container: container(),
                partition_key: partition_key(*partition),
                body: batch(*partition, writes, *creates_last).into(),
            },
            Ask::Advance { by_ms } => Command::Advance { by_ms: *by_ms },
        }
    }

    /// Whether it is taken on a full disk.
    pub fn frees_room(&self) -> bool {
        matches!(self, Ask::Delete { .. } | Ask::DeletePartition { .. })
    }

    /// Items that its answer may rest on.
    pub fn keys(&self) -> Vec<Key> {
        match self {
            Ask::Database | Ask::Container(_) | Ask::Set(_) | Ask::Advance { .. } => Vec::new(),
            Ask::Create { key, .. } | Ask::Upsert { key, .. } | Ask::Replace { key, .. } => vec![*key],
            Ask::Patch { key, .. } | Ask::Delete { key, .. } => vec![*key],
            // Whatever it tells, it does not tell of single items.
            Ask::DeletePartition { .. } | Ask::Batch { .. } => Vec::new(),
        }
    }
}

fn definition(settings: Settings) -> String {
    let ttl = settings.ttl.map_or_else(String::new, |ttl| format!(r#","defaultTtl":{ttl}"#));
    let indexing = match settings.indexing {
        0 => r#"{}"#,
        1 => r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/n/?"}]}"#,
        _ => r#"{"includedPaths":[{"path":"/n/?"}],"excludedPaths":[{"path":"/*"}]}"#,
    };
    format!(
        r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},"indexingPolicy":{indexing},"uniqueKeyPolicy":{{"uniqueKeys":[{{"paths":["/u"]}}]}},"changeFeedPolicy":{{"retentionDuration":{RETENTION_MINUTES}}}{ttl}}}"#
    )
}

fn body(key: Key, content: Content) -> String {
    let Content { number, unique, ttl } = content;
    let ttl = ttl.map_or_else(String::new, |ttl| format!(r#","ttl":{ttl}"#));
    format!(r#"{{"id":"i{}","pk":"p{}","n":{number},"u":{unique}{ttl}}}"#, key.id, key.partition)
}

fn patch(number: u64, ttl: Option<i64>, least: u64) -> String {
    let ttl = ttl.map_or_else(String::new, |ttl| format!(r#",{{"op":"set","path":"/ttl","value":{ttl}}}"#));
    let condition = match least {
        0 => String::new(),
        least => format!(r#""condition":"from c where c.n >= {least}","#),
    };
    format!(r#"{{{condition}"operations":[{{"op":"set","path":"/n","value":{number}}}{ttl}]}}"#)
}

fn write(key: Key, content: Content, matching: &Match) -> ItemWrite {
    ItemWrite {
        container: container(),
        partition_key: Some(key.path().partition_key),
        body: body(key, content).into(),
        condition: condition(matching),
    }
}

fn condition(matching: &Match) -> Precondition {
    let if_match = match matching {
        Match::Any => None,
        Match::Known(tag) => Some(tag.clone()),
        Match::Nonsense => Some("\"nonsense\"".into()),
    };
    Precondition { if_match, if_none_match: None }
}

fn batch(partition: u64, writes: &[(u64, Content)], creates_last: bool) -> String {
    let operation = |(nth, (id, content)): (usize, &(u64, Content))| {
        let is_create = creates_last && nth + 1 == writes.len();
        let kind = if is_create { "Create" } else { "Upsert" };
        let body = body(Key { partition, id: *id }, *content);
        format!(r#"{{"operationType":"{kind}","resourceBody":{body}}}"#)
    };
    let operations: Vec<_> = writes.iter().enumerate().map(operation).collect();
    format!("[{}]", operations.join(","))
}

/// What a client makes of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Done; the number and entity tag of the item, if one was shown.
    Done {
        status: u16,
        number: Option<u64>,
        tag: Option<String>,
    },
    /// A batch: the status of each operation.
    Batch(Vec<u16>),
    Refused {
        status: u16,
    },
}

impl Heard {
    pub fn of(answer: &ReplyOrRefusal) -> Heard {
        match answer {
            Ok(Reply { answer, .. }) => Heard::done(answer),
            Err(refusal) => Heard::Refused { status: status(refusal) },
        }
    }

    fn done(answer: &Answer) -> Heard {
        let (status, document) = match answer {
            Answer::Created(document) => (201, Some(document)),
            Answer::Found(document) => (200, Some(document)),
            Answer::Deleted => (204, None),
            Answer::Operations(results) => {
                return Heard::Batch(results.iter().map(|result| result.status).collect());
            }
            _ => (200, None),
        };
        Heard::Done {
            status,
            number: document.and_then(|document| number_in(&document.body)),
            tag: document.map(|document| document.etag.clone()),
        }
    }
}

/// The member `n` of an item.
pub fn number_in(body: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(body).ok()?;
    let from = text.find("\"n\":")? + 4;
    let digits: String = text[from..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// How a refusal looks to a client.
pub fn status(refusal: &Refusal) -> u16 {
    refusal.status().0
}
