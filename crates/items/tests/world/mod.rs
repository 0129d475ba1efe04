//! An account in memory with short ways to ask it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use otobus_items::*;

pub struct World {
    pub inner: InMemory,
}

pub const START: i64 = 1_700_000_000_000;

pub fn path() -> ContainerPath {
    ContainerPath::new("d", "c")
}

pub fn key(text: &str) -> PartitionKey {
    PartitionKey::of_string(text)
}

pub fn item(id: &str) -> ItemPath {
    ItemPath { container: path(), partition_key: key("p"), id: id.to_owned() }
}

/// The status of a refusal.
pub fn status<T: std::fmt::Debug>(result: &Result<T, Refusal>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(refusal) => refusal.status().0,
    }
}

pub fn text(document: &Document) -> String {
    String::from_utf8(document.body.to_vec()).unwrap()
}

/// A member of a document, as JSON text.
pub fn member(document: &Document, name: &str) -> Option<String> {
    json::walk::member(&document.body, name).map(|value| String::from_utf8(value.to_vec()).unwrap())
}

impl World {
    /// With the database `d`.
    pub fn new() -> World {
        let mut world = World { inner: InMemory { now: Time(START), ..InMemory::default() } };
        let body = r#"{"id":"d"}"#.into();
        world.ask(Command::CreateDatabase { body, throughput: None }).unwrap();
        world
    }

    /// With the container `c`, whose partition key is `/pk`, and these other members.
    pub fn with(members: &str) -> World {
        let mut world = World::new();
        world.create_container(members).unwrap();
        world
    }

    pub fn ask(&mut self, command: Command) -> Result<Answer, Refusal> {
        self.reply(command).map(|reply| reply.answer)
    }

    pub fn reply(&mut self, command: Command) -> Result<Reply, Refusal> {
        self.inner.ask(&command)
    }

    pub fn create_container(&mut self, members: &str) -> Result<Document, Refusal> {
        let comma = if members.is_empty() { "" } else { "," };
        let body = format!(
            r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{comma}{members}}}"#
        );
        let command = Command::CreateContainer { database: "d".into(), body: body.into(), throughput: None };
        self.ask(command).map(document)
    }

    pub fn replace_container(&mut self, members: &str) -> Result<Document, Refusal> {
        let comma = if members.is_empty() { "" } else { "," };
        let body = format!(
            r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{comma}{members}}}"#
        );
        self.ask(Command::ReplaceContainer { container: path(), body: body.into(), if_match: None })
            .map(document)
    }

    pub fn read_container(&mut self) -> Document {
        document(self.ask(Command::ReadContainer { container: path(), if_none_match: None }).unwrap())
    }

    /// An item of the partition `p`.
    pub fn body(id: &str, members: &str) -> String {
        let comma = if members.is_empty() { "" } else { "," };
        format!(r#"{{"id":"{id}","pk":"p"{comma}{members}}}"#)
    }

    pub fn write(id: &str, members: &str) -> ItemWrite {
        let body = World::body(id, members).into();
        ItemWrite { container: path(), partition_key: Some(key("p")), body, ..ItemWrite::default() }
    }

    pub fn create(&mut self, id: &str, members: &str) -> Result<Document, Refusal> {
        self.ask(Command::CreateItem(World::write(id, members))).map(document)
    }

    pub fn upsert(&mut self, id: &str, members: &str) -> Result<Answer, Refusal> {
        self.ask(Command::UpsertItem(World::write(id, members)))
    }

    pub fn replace(&mut self, id: &str, members: &str) -> Result<Document, Refusal> {
        self.ask(Command::ReplaceItem { id: id.into(), write: World::write(id, members) }).map(document)
    }

    pub fn read(&mut self, id: &str) -> Result<Document, Refusal> {
        self.ask(Command::ReadItem { item: item(id), if_none_match: None, session: None }).map(document)
    }

    pub fn delete(&mut self, id: &str) -> Result<Answer, Refusal> {
        self.ask(Command::DeleteItem { item: item(id), condition: Precondition::default() })
    }

    pub fn patch(&mut self, id: &str, body: &str) -> Result<Document, Refusal> {
        let body = body.to_owned().into();
        self.ask(Command::PatchItem { item: item(id), body, condition: Precondition::default() })
            .map(document)
    }

    pub fn batch(&mut self, operations: &str) -> Result<Vec<OperationResult>, Refusal> {
        let body = operations.to_owned().into();
        match self.ask(Command::Batch { container: path(), partition_key: key("p"), body })? {
            Answer::Operations(results) => Ok(results),
            other => panic!("{other:?}"),
        }
    }

    pub fn is_there(&mut self, id: &str) -> bool {
        match self.read(id) {
            Ok(_) => true,
            Err(Refusal::NotFound) => false,
            Err(other) => panic!("{other:?}"),
        }
    }

    /// The ids of a page.
    pub fn feed(&mut self, scope: Scope) -> Vec<String> {
        let command =
            Command::ReadFeed { container: path(), scope, listing: Listing::default(), session: None };
        match self.ask(command).unwrap() {
            Answer::Page(page) => page.values.iter().map(|value| id_of(value)).collect(),
            other => panic!("{other:?}"),
        }
    }

    pub fn changes(&mut self, mode: ChangeFeedMode, start: ChangeFeedStart) -> (Vec<String>, String) {
        match self.change_feed(mode, start, None).unwrap() {
            Answer::Changes { page, etag } => {
                (page.values.iter().map(|value| String::from_utf8(value.to_vec()).unwrap()).collect(), etag)
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn change_feed(
        &mut self,
        mode: ChangeFeedMode,
        start: ChangeFeedStart,
        max_items: Option<i64>,
    ) -> Result<Answer, Refusal> {
        self.ask(Command::ChangeFeed { container: path(), scope: Scope::All, mode, start, max_items })
    }

    pub fn query(&mut self, text: &str) -> Result<Vec<String>, Refusal> {
        let query = Query {
            of: QueryScope::Items { container: path() },
            scope: Scope::All,
            text: text.to_owned(),
            parameters: Vec::new(),
            listing: Listing::default(),
            session: None,
        };
        match self.ask(Command::Query(query))? {
            Answer::Page(page) => {
                Ok(page.values.iter().map(|value| String::from_utf8(value.to_vec()).unwrap()).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn pass_ms(&mut self, ms: i64) {
        self.inner.now = self.inner.now.after_ms(ms);
    }

    pub fn pass(&mut self, seconds: i64) {
        self.pass_ms(seconds * 1_000);
    }

    pub fn purge(&mut self) -> usize {
        self.inner.purge(100)
    }

    /// Everything beside the items agrees with them.
    pub fn check(&self) {
        check::check(&self.inner.account, &self.inner.store, self.inner.now).unwrap();
    }

    /// Keys of items in the store, gone ones too.
    pub fn stored_items(&self) -> usize {
        let items = |key: &&bytes::Bytes| key.first() == Some(&0x10) && key.get(5) == Some(&1);
        self.inner.store.entries.keys().filter(items).count()
    }

    pub fn lsn(&mut self) -> u64 {
        let command = Command::ReadContainer { container: path(), if_none_match: None };
        self.reply(command).unwrap().place.unwrap().lsn
    }
}

pub fn document(answer: Answer) -> Document {
    match answer {
        Answer::Created(document) | Answer::Found(document) => document,
        other => panic!("{other:?}"),
    }
}

pub fn id_of(body: &[u8]) -> String {
    json::walk::string(json::walk::member(body, "id").unwrap()).unwrap().into_owned()
}
