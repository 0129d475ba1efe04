//! Random commands and steps of time against a naive model: a map of items with the time at which each ends.
//!
//! The model knows nothing of keys, indexes or purges. What a client sees must be the same, everything beside the items must agree
//! with them, and the records alone must make the same bytes again.

#![allow(clippy::unwrap_used, reason = "a test")]

mod world;

use otobus_items::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use world::*;

#[derive(Debug, Clone)]
enum Step {
    Create(u8, u8, Option<i64>),
    Upsert(u8, u8, Option<i64>),
    Replace(u8, u8, Option<i64>),
    Delete(u8),
    Increment(u8),
    SetTtl(u8, i64),
    Batch(Vec<(u8, u8, bool)>),
    DeletePartition(bool),
    Default(Option<i64>),
    Policy(bool),
    Pass(i64),
    Purge(usize),
}

fn ttl() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![3 => Just(None), 1 => Just(Some(-1)), 3 => (1..30_i64).prop_map(Some)]
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0..12_u8;
    let value = || 0..6_u8;
    prop_oneof![
        4 => (id(), value(), ttl()).prop_map(|(id, n, ttl)| Step::Create(id, n, ttl)),
        4 => (id(), value(), ttl()).prop_map(|(id, n, ttl)| Step::Upsert(id, n, ttl)),
        2 => (id(), value(), ttl()).prop_map(|(id, n, ttl)| Step::Replace(id, n, ttl)),
        2 => id().prop_map(Step::Delete),
        2 => id().prop_map(Step::Increment),
        1 => (id(), 1..30_i64).prop_map(|(id, ttl)| Step::SetTtl(id, ttl)),
        1 => proptest::collection::vec((id(), value(), any::<bool>()), 1..5).prop_map(Step::Batch),
        1 => any::<bool>().prop_map(Step::DeletePartition),
        2 => ttl().prop_map(Step::Default),
        1 => any::<bool>().prop_map(Step::Policy),
        5 => prop_oneof![0..3_i64, 500..20_000_i64].prop_map(Step::Pass),
        2 => (1..20_usize).prop_map(Step::Purge),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Naive {
    n: u8,
    ttl: Option<i64>,
    written: i64,
}

/// What should be seen. Every step first takes away what has ended: so nothing can come back.
#[derive(Default)]
struct Model {
    now: i64,
    default_ttl: Option<i64>,
    items: BTreeMap<u8, Naive>,
}

impl Model {
    fn settle(&mut self) {
        let (now, default_ttl) = (self.now, self.default_ttl);
        self.items.retain(|_, item| match (default_ttl, item.ttl) {
            (None, _) | (_, Some(-1)) | (Some(-1), None) => true,
            (Some(_), Some(own)) => item.written + own * 1000 > now,
            (Some(default), None) => item.written + default * 1000 > now,
        });
    }

    /// No two items of a partition have the same `n`.
    fn is_unique(&self, id: u8, n: u8) -> bool {
        self.items
            .iter()
            .all(|(other, item)| *other == id || partition(*other) != partition(id) || item.n != n)
    }

    fn put(&mut self, id: u8, n: u8, ttl: Option<i64>) -> u16 {
        if !self.is_unique(id, n) {
            return 409;
        }
        let was = self.items.insert(id, Naive { n, ttl, written: self.now });
        if was.is_some() { 200 } else { 201 }
    }
}

fn partition(id: u8) -> String {
    format!("p{}", id % 2)
}

fn body(id: u8, n: u8, ttl: Option<i64>) -> String {
    let ttl = ttl.map(|ttl| format!(",\"ttl\":{ttl}")).unwrap_or_default();
    let list = "1,".repeat(usize::from(n)) + "2";
    format!(
        r#"{{"id":"i{id}","pk":"{}","n":{n},"list":[{list}],"deep":{{"text":"t{n}"}}{ttl}}}"#,
        partition(id)
    )
}

fn write(id: u8, n: u8, ttl: Option<i64>) -> ItemWrite {
    ItemWrite { container: path(), body: body(id, n, ttl).into(), ..ItemWrite::default() }
}

fn item_path(id: u8) -> ItemPath {
    ItemPath { container: path(), partition_key: key(&partition(id)), id: format!("i{id}") }
}

fn status_of(result: Result<Answer, Refusal>) -> u16 {
    match result {
        Ok(Answer::Created(_)) => 201,
        Ok(Answer::Deleted) => 204,
        Ok(_) => 200,
        Err(refusal) => refusal.status().0,
    }
}

struct Run {
    world: World,
    model: Model,
    policy: bool,
}

impl Run {
    fn container(&self) -> String {
        let ttl = self.model.default_ttl.map(|ttl| format!("\"defaultTtl\":{ttl},")).unwrap_or_default();
        let policy = if self.policy {
            r#""indexingPolicy":{"includedPaths":[{"path":"/n/?"},{"path":"/list/[]/?"}],"excludedPaths":[{"path":"/*"}]}"#
        } else {
            r#""indexingPolicy":{}"#
        };
        format!("{ttl}{policy}")
    }

    fn take(&mut self, step: &Step) {
        self.model.settle();
        let expected_and_found = match step {
            Step::Create(id, n, ttl) => {
                let expected = match self.model.items.contains_key(id) {
                    true => 409,
                    false => self.model.put(*id, *n, *ttl),
                };
                (expected, status_of(self.world.ask(Command::CreateItem(write(*id, *n, *ttl)))))
            }
            Step::Upsert(id, n, ttl) => {
                let expected = self.model.put(*id, *n, *ttl);
                (expected, status_of(self.world.ask(Command::UpsertItem(write(*id, *n, *ttl)))))
            }
            Step::Replace(id, n, ttl) => {
                let expected = match self.model.items.contains_key(id) {
                    true => self.model.put(*id, *n, *ttl),
                    false => 404,
                };
                let command = Command::ReplaceItem { id: format!("i{id}"), write: write(*id, *n, *ttl) };
                (expected, status_of(self.world.ask(command)))
            }
            Step::Delete(id) => {
                let expected = if self.model.items.remove(id).is_some() { 204 } else { 404 };
                let command =
                    Command::DeleteItem { item: item_path(*id), condition: Precondition::default() };
                (expected, status_of(self.world.ask(command)))
            }
            Step::Increment(id) => {
                let expected = match self.model.items.get(id).cloned() {
                    Some(item) => self.model.put(*id, item.n + 1, item.ttl),
                    None => 404,
                };
                (expected, self.patch(*id, r#"[{"op":"incr","path":"/n","value":1}]"#))
            }
            Step::SetTtl(id, ttl) => {
                let expected = match self.model.items.get(id).cloned() {
                    Some(item) => self.model.put(*id, item.n, Some(*ttl)),
                    None => 404,
                };
                (expected, self.patch(*id, &format!(r#"[{{"op":"set","path":"/ttl","value":{ttl}}}]"#)))
            }
            Step::Batch(operations) => self.batch(operations),
            Step::DeletePartition(which) => {
                let which = partition(u8::from(*which));
                self.model.items.retain(|id, _| partition(*id) != which);
                let command = Command::DeletePartition { container: path(), partition_key: key(&which) };
                (200, status_of(self.world.ask(command)))
            }
            Step::Default(ttl) => {
                self.model.default_ttl = *ttl;
                let members = self.container();
                (200, status(&self.world.replace_container(&members)))
            }
            Step::Policy(policy) => {
                self.policy = *policy;
                let members = self.container();
                (200, status(&self.world.replace_container(&members)))
            }
            Step::Pass(ms) => {
                self.model.now += ms;
                self.world.pass_ms(*ms);
                (0, 0)
            }
            Step::Purge(most) => {
                let purge = self.world.inner.account.purge(
                    &self.world.inner.store,
                    self.world.inner.now,
                    *most,
                    &|_| None,
                );
                if let Ok(Purge::Slice { records, .. }) = purge {
                    records.into_iter().for_each(|record| self.world.inner.apply(record));
                }
                (0, 0)
            }
        };
        assert_eq!(expected_and_found.0, expected_and_found.1, "{step:?}");
    }

    fn patch(&mut self, id: u8, operations: &str) -> u16 {
        let body = operations.to_owned().into();
        status_of(self.world.ask(Command::PatchItem {
            item: item_path(id),
            body,
            condition: Precondition::default(),
        }))
    }

    /// Upserts and deletes of one partition: all or none.
    fn batch(&mut self, operations: &[(u8, u8, bool)]) -> (u16, u16) {
        let before = self.model.items.clone();
        let mut texts = Vec::new();
        let mut failed = None;
        for (id, n, deletes) in operations {
            // All in the partition of the first.
            let id = id / 2 * 2;
            if *deletes {
                texts.push(format!(r#"{{"operationType":"Delete","id":"i{id}"}}"#));
                if failed.is_none() && self.model.items.remove(&id).is_none() {
                    failed = Some(404);
                }
            } else {
                texts.push(format!(r#"{{"operationType":"Upsert","resourceBody":{}}}"#, body(id, *n, None)));
                if failed.is_none() && self.model.put(id, *n, None) == 409 {
                    failed = Some(409);
                }
            }
        }
        if failed.is_some() {
            self.model.items = before;
        }
        let body = format!("[{}]", texts.join(",")).into();
        let command = Command::Batch { container: path(), partition_key: key("p0"), body };
        let Answer::Operations(results) = self.world.ask(command).unwrap() else { panic!("results") };
        let worst =
            results.iter().map(|result| result.status).find(|status| *status >= 400 && *status != 424);
        (failed.unwrap_or(0), worst.unwrap_or(0))
    }

    /// Every way of reading shows what the model holds.
    fn compare(&mut self) {
        self.model.settle();
        let expected: Vec<String> = self.model.items.keys().map(|id| format!("i{id}")).collect();
        let sorted = |mut ids: Vec<String>| {
            ids.sort_by_key(|id| id[1..].parse::<u8>().unwrap());
            ids
        };
        let feed = self.world.feed(Scope::All);
        assert_eq!(sorted(feed), expected);
        let (changes, _) = self.world.changes(ChangeFeedMode::LatestVersion, ChangeFeedStart::Beginning);
        assert_eq!(sorted(changes.iter().map(|value| id_of(value.as_bytes())).collect()), expected);
        for id in 0..12_u8 {
            let read = Command::ReadItem { item: item_path(id), if_none_match: None, session: None };
            let found = self.world.ask(read).map(document).ok();
            let n = found.as_ref().and_then(|found| member(found, "n"));
            assert_eq!(n, self.model.items.get(&id).map(|item| item.n.to_string()));
            let ts = found.as_ref().and_then(|found| member(found, "_ts"));
            assert_eq!(ts, self.model.items.get(&id).map(|item| (item.written / 1000).to_string()));
        }
        self.world.check();
    }

    /// The records alone make the same store, and so do their bytes.
    fn replay(&self) {
        let mut again = InMemory::default();
        for record in &self.world.inner.records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            again.apply(Record::decode(&bytes.into()).unwrap());
        }
        assert_eq!(again.store, self.world.inner.store);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    // C-16, C-27, C-28, C-29, C-32, C-41, P-57
    #[test]
    fn what_is_seen_is_what_a_naive_model_says(steps in proptest::collection::vec(step(), 1..60)) {
        let unique = r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/n"]}]},"changeFeedPolicy":{"retentionDuration":1}"#;
        let mut run = Run { world: World::with(unique), model: Model::default(), policy: false };
        run.model.now = START;
        for step in &steps {
            run.take(step);
            run.compare();
        }
        run.replay();
        // When everything is purged, nothing that is gone is left.
        run.model.settle();
        run.world.purge();
        prop_assert_eq!(run.world.stored_items(), run.model.items.len());
        run.compare();
    }
}
