//! What the client asks for, and what it hears.

use super::model::Model;
use crate::random::Random;
use items::{
    Answer, Command, ContainerPath, ItemPath, ItemWrite, PartitionKey, Precondition, Refusal, Reply,
};
use items_engine::Answered;

/// Names of one small world: few, so that everything meets everything.
const PARTITIONS: u64 = 2;
const IDS: u64 = 5;

/// An item's partition and id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub partition: u64,
    pub id: u64,
}

impl Key {
    /// Every item there may be.
    pub fn all() -> impl Iterator<Item = Key> {
        (0..PARTITIONS).flat_map(|partition| (0..IDS).map(move |id| Key { partition, id }))
    }

    pub fn path(self) -> ItemPath {
        ItemPath {
            container: container(),
            partition_key: PartitionKey::of_string(&format!("p{}", self.partition)),
            id: format!("i{}", self.id),
        }
    }
}

pub fn draw_key(random: &mut Random) -> Key {
    Key { partition: random.below(PARTITIONS), id: random.below(IDS) }
}

pub fn container() -> ContainerPath {
    ContainerPath::new("d", "c")
}

/// What an item is to hold: a number that no other write has, and perhaps a time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    pub number: u64,
    pub ttl: Option<i64>,
}

/// Whether a write insists on the version that it has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    Any,
    /// The entity tag that the client has last heard of.
    Known(String),
    Nonsense,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    Database,
    Container {
        ttl: Option<i64>,
    },
    SetTtl {
        ttl: Option<i64>,
    },
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
    Delete {
        key: Key,
        matching: Match,
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
    pub fn draw(random: &mut Random, model: &Model) -> Ask {
        let key = draw_key(random);
        let ttls = [None, None, None, Some(-1), Some(1), Some(2), Some(5)];
        let content = Content { number: random.number() >> 24, ttl: *random.pick(&ttls) };
        let matching = match random.below(4) {
            0 => model.tag(&key).map_or(Match::Any, Match::Known),
            1 if random.once_in(2) => Match::Nonsense,
            _ => Match::Any,
        };
        match random.below(100) {
            0..20 => Ask::Create { key, content },
            20..50 => Ask::Upsert { key, content },
            50..62 => Ask::Replace { key, content, matching },
            62..76 => Ask::Delete { key, matching },
            76..90 => {
                let count = random.between(1, 3);
                let first = random.below(IDS);
                let write = |nth| {
                    let number = content.number ^ nth;
                    ((first + nth) % IDS, Content { number, ..content })
                };
                let writes = (0..count).map(write).collect();
                Ask::Batch { partition: key.partition, writes, creates_last: random.once_in(3) }
            }
            90..97 => Ask::SetTtl { ttl: *random.pick(&[None, Some(-1), Some(1), Some(3), Some(10)]) },
            _ => Ask::Advance { by_ms: random.between(1, 4_000) },
        }
    }

    pub fn command(&self) -> Command {
        match self {
            Ask::Database => Command::CreateDatabase { body: r#"{"id":"d"}"#.into(), throughput: None },
            Ask::Container { ttl } => Command::CreateContainer {
                database: "d".into(),
                body: definition(*ttl).into(),
                throughput: None,
            },
            Ask::SetTtl { ttl } => Command::ReplaceContainer {
                container: container(),
                body: definition(*ttl).into(),
                if_match: None,
            },
            Ask::Create { key, content } => Command::CreateItem(write(*key, *content, &Match::Any)),
            Ask::Upsert { key, content } => Command::UpsertItem(write(*key, *content, &Match::Any)),
            Ask::Replace { key, content, matching } => {
                Command::ReplaceItem { id: format!("i{}", key.id), write: write(*key, *content, matching) }
            }
            Ask::Delete { key, matching } => {
                Command::DeleteItem { item: key.path(), condition: condition(matching) }
            }
            Ask::Batch { partition, writes, creates_last } => Command::Batch {
                container: container(),
                partition_key: PartitionKey::of_string(&format!("p{partition}")),
                body: batch(*partition, writes, *creates_last).into(),
            },
            Ask::Advance { by_ms } => Command::Advance { by_ms: *by_ms },
        }
    }
}

fn definition(ttl: Option<i64>) -> String {
    let ttl = ttl.map_or_else(String::new, |ttl| format!(r#","defaultTtl":{ttl}"#));
    format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{ttl}}}"#)
}

fn body(key: Key, content: Content) -> String {
    let ttl = content.ttl.map_or_else(String::new, |ttl| format!(r#","ttl":{ttl}"#));
    format!(r#"{{"id":"i{}","pk":"p{}","n":{}{ttl}}}"#, key.id, key.partition, content.number)
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
    pub fn of(answer: &Answered) -> Heard {
        match answer {
            Ok(Reply { answer, .. }) => Heard::done(answer),
            Err(refusal) => Heard::Refused { status: refusal.status().0 },
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
