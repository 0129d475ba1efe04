//! What the engine costs without a door: `cargo run --release -p otobus-items-engine --example load -- [items] [connections]`.
//! Upserts of 1 KiB that are durable, point reads, an indexed filter beside a scan, a start after the process was killed.

use items::{
    Answer, Command, ContainerPath, ItemPath, ItemWrite, PartitionKey, Precondition, Query, QueryScope, Scope,
};
use journal::Local;
use journal::disk::File;
use otobus_items_engine::{Engine, Handle, Options, PARTITION, limits};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn open(path: &Path) -> Engine {
    let disk = Arc::new(File::open(path).expect("a directory"));
    let options =
        journal::Options { partition: PARTITION, ..journal::Options::new(std::process::id().into()) };
    let journal = Local::open(disk, options).expect("a journal");
    let options = Options { owner: 1, cache_bytes: limits::CACHE_BYTES };
    Engine::open(Box::new(journal), path, &options, |why| panic!("{why}")).expect("items")
}

fn container() -> ContainerPath {
    ContainerPath::new("d", "c")
}

fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

/// An item of about 1 KiB with six indexed members.
fn body(id: u64, round: u64) -> String {
    let (a, b, c) = (mixed(id) % 100_000, mixed(id ^ round), id % 10);
    let padding = "x".repeat(880);
    format!(
        r#"{{"id":"i{id}","pk":"p{}","a":{a},"b":{b},"c":{c},"round":{round},"text":"{padding}"}}"#,
        id % 1_000
    )
}

fn key(id: u64) -> PartitionKey {
    PartitionKey::of_string(&format!("p{}", id % 1_000))
}

fn upsert(id: u64, round: u64) -> Command {
    Command::UpsertItem(ItemWrite {
        container: container(),
        partition_key: Some(key(id)),
        body: body(id, round).into(),
        condition: Precondition::default(),
    })
}

fn read(id: u64) -> Command {
    let item = ItemPath { container: container(), partition_key: key(id), id: format!("i{id}") };
    Command::ReadItem { item, if_none_match: None, session: None }
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .rsplit_once(") ")
        .map(|(_, rest)| rest.split(' ').skip(11).take(2).filter_map(|field| field.parse().ok()).collect())
        .unwrap_or_default();
    fields.iter().sum::<f64>() / 100.0
}

/// Runs `each` for every number below `count`, on so many connections, and tells the pace.
async fn pace(what: &str, handle: &Handle, count: u64, connections: u64, each: impl Fn(u64) -> Command) {
    let commands: Vec<Vec<Command>> = (0..connections)
        .map(|nth| (0..count).filter(|number| number % connections == nth).map(&each).collect())
        .collect();
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let tasks: Vec<_> = commands
        .into_iter()
        .map(|commands| {
            let handle = handle.clone();
            tokio::spawn(async move {
                for command in commands {
                    handle.ask(command).await.expect("an answer");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a client");
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    println!("{what}: {:.0}/s, {:.1} us of CPU each", count as f64 / seconds, cpu * 1e6 / count as f64);
}

async fn query(handle: &Handle, text: &str) -> usize {
    let query = Query {
        of: QueryScope::Items { container: container() },
        scope: Scope::All,
        text: text.into(),
        parameters: Vec::new(),
        listing: Default::default(),
        session: None,
    };
    let began = Instant::now();
    match handle.ask(Command::Query(query)).await {
        Ok(reply) => match reply.answer {
            Answer::Page(page) => {
                println!("{text}: {:?}, {} rows in the first page", began.elapsed(), page.values.len());
                page.values.len()
            }
            other => panic!("{other:?}"),
        },
        Err(refusal) => {
            println!("{text}: {refusal}");
            0
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let number =
        |nth, usual: u64| std::env::args().nth(nth).and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (items, connections) = (number(1, 100_000), number(2, 32));
    let directory = tempfile::tempdir_in(".").expect("a directory");
    let began = Instant::now();
    let engine = open(directory.path());
    println!("first start: {:?}", began.elapsed());
    let handle = engine.handle().clone();
    handle
        .ask(Command::CreateDatabase { body: r#"{"id":"d"}"#.into(), throughput: None })
        .await
        .expect("a database");
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    let create = Command::CreateContainer { database: "d".into(), body: body.into(), throughput: None };
    handle.ask(create).await.expect("a container");
    for round in 0..items.div_ceil(100_000) {
        let base = round * 100_000;
        let count = (items - base).min(100_000);
        pace("creates", &handle, count, connections, |nth| upsert(base + nth, 0)).await;
    }
    let some = items.min(100_000);
    pace("upserts of what is there", &handle, some, connections, |nth| upsert(mixed(nth) % items, 1)).await;
    pace("reads", &handle, some, connections, |nth| read(mixed(nth) % items)).await;
    pace("reads again", &handle, some, connections, |nth| read(mixed(nth) % items)).await;
    query(&handle, "SELECT VALUE c.id FROM c WHERE c.a = 4711").await;
    query(&handle, "SELECT VALUE c.id FROM c WHERE c.a >= 4711 AND c.a < 4720").await;
    query(&handle, "SELECT VALUE COUNT(1) FROM c WHERE c.c = 3").await;
    drop(handle);
    engine.stop().expect("a clean stop");
    let began = Instant::now();
    let engine = open(directory.path());
    engine.handle().ask(read(1)).await.expect("an item");
    println!("start to the first answer: {:?}", began.elapsed());
    engine.stop().expect("a clean stop");
}
