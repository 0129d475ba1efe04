//! The engine on a real disk: what is answered is durable, and what is read was answered.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use items::{
    Answer, Command, ContainerPath, ItemPath, ItemWrite, PartitionKey, Precondition, Refusal, Reply,
};
use journal::disk::File;
use journal::{Filling, Local};
use otobus_items_engine::{Engine, Handle, Options, PARTITION};
use std::path::Path;
use std::sync::Arc;

const CACHE_BYTES: u64 = 16 << 20;

fn open(path: &Path) -> Engine {
    let disk = Arc::new(File::open(path).unwrap());
    let options =
        journal::Options { partition: PARTITION, filling: Filling::Never, ..journal::Options::new(7) };
    let journal = Local::open(disk, options).unwrap();
    let options = Options { owner: 1, cache_bytes: CACHE_BYTES };
    Engine::open(Box::new(journal), path, &options, |why| panic!("{why}")).unwrap()
}

fn container() -> ContainerPath {
    ContainerPath::new("d", "c")
}

async fn prepare(handle: &Handle, members: &str) {
    handle.ask(Command::CreateDatabase { body: r#"{"id":"d"}"#.into(), throughput: None }).await.unwrap();
    let body =
        format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{members}}}"#);
    let command = Command::CreateContainer { database: "d".into(), body: body.into(), throughput: None };
    handle.ask(command).await.unwrap();
}

fn write(id: &str, members: &str) -> ItemWrite {
    ItemWrite {
        container: container(),
        partition_key: Some(PartitionKey::of_string("p")),
        body: format!(r#"{{"id":"{id}","pk":"p"{members}}}"#).into(),
        condition: Precondition::default(),
    }
}

async fn upsert(handle: &Handle, id: &str, members: &str) -> Result<Reply, Refusal> {
    handle.ask(Command::UpsertItem(write(id, members))).await
}

async fn read(handle: &Handle, id: &str) -> Result<String, Refusal> {
    let item =
        ItemPath { container: container(), partition_key: PartitionKey::of_string("p"), id: id.to_owned() };
    let reply = handle.ask(Command::ReadItem { item, if_none_match: None, session: None }).await?;
    match reply.answer {
        Answer::Found(document) => Ok(String::from_utf8(document.body.to_vec()).unwrap()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_was_answered_is_read_at_once_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    prepare(engine.handle(), "").await;
    upsert(engine.handle(), "a", r#","n":1"#).await.unwrap();
    upsert(engine.handle(), "a", r#","n":2"#).await.unwrap();
    assert!(read(engine.handle(), "a").await.unwrap().contains(r#""n":2"#));
    assert_eq!(read(engine.handle(), "b").await, Err(Refusal::NotFound));
    engine.stop().unwrap();
    let engine = open(directory.path());
    assert!(read(engine.handle(), "a").await.unwrap().contains(r#""n":2"#));
    engine.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_share_appends_and_checkpoints_keep_what_they_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    prepare(engine.handle(), "").await;
    let padding = format!(r#","s":"{}""#, "x".repeat(1_000));
    let writer = |nth: u32| {
        let (handle, padding) = (engine.handle().clone(), padding.clone());
        async move {
            for round in 0..150 {
                upsert(&handle, &format!("i{nth}-{round}"), &format!(r#"{padding},"n":{round}"#))
                    .await
                    .unwrap();
            }
        }
    };
    let writers: Vec<_> = (0..32).map(|nth| tokio::spawn(writer(nth))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let (appends, _) = engine.handle().activity().written();
    assert!(appends < 32 * 150, "{appends} appends for {} writes", 32 * 150);
    engine.stop().unwrap();
    let store = directory.path().join(otobus_items_engine::STORE).join("tables");
    assert!(std::fs::read_dir(store).unwrap().count() > 0, "a checkpoint was made");
    let engine = open(directory.path());
    for nth in 0..32 {
        for round in [0, 75, 149] {
            let body = read(engine.handle(), &format!("i{nth}-{round}")).await.unwrap();
            assert!(body.contains(&format!(r#""n":{round}"#)));
        }
    }
    engine.stop().unwrap();
}

// C-29, C-42: the test clock moves the items, for good.
#[tokio::test]
async fn moved_time_expires_items_and_stays_moved_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    prepare(engine.handle(), r#","defaultTtl":3600"#).await;
    upsert(engine.handle(), "a", "").await.unwrap();
    upsert(engine.handle(), "b", r#","ttl":-1"#).await.unwrap();
    let before = engine.handle().now_ms();
    let moved = engine.handle().ask(Command::Advance { by_ms: 3_600_000 }).await.unwrap();
    assert!(matches!(moved.answer, Answer::Advanced { now_ms } if now_ms >= before + 3_600_000));
    assert_eq!(read(engine.handle(), "a").await, Err(Refusal::NotFound));
    read(engine.handle(), "b").await.unwrap();
    engine.stop().unwrap();
    let engine = open(directory.path());
    assert!(engine.handle().now_ms() >= before + 3_600_000);
    assert!(engine.handle().now_ms() < before + 3_660_000, "and no further");
    assert_eq!(read(engine.handle(), "a").await, Err(Refusal::NotFound));
    read(engine.handle(), "b").await.unwrap();
    engine.stop().unwrap();
}

#[tokio::test]
async fn a_stopped_engine_answers_that_it_has_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let handle = engine.handle().clone();
    prepare(&handle, "").await;
    engine.stop().unwrap();
    assert_eq!(upsert(&handle, "a", "").await, Err(Refusal::Stopped));
    assert_eq!(handle.condition().problems(std::time::Instant::now()).len(), 1);
}

// P-80: what is provisioned is kept, and what is left over is the purge's.
#[tokio::test]
async fn more_than_is_provisioned_is_refused_until_the_next_second() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let handle = engine.handle();
    handle.ask(Command::CreateDatabase { body: r#"{"id":"d"}"#.into(), throughput: None }).await.unwrap();
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    let throughput = Some(items::Throughput::Fixed(400));
    let command = Command::CreateContainer { database: "d".into(), body: body.into(), throughput };
    handle.ask(command).await.unwrap();
    let mut refused = None;
    for nth in 0..10_000 {
        if let Err(refusal) = upsert(handle, &format!("i{nth}"), "").await {
            refused = Some(refusal);
            break;
        }
    }
    assert!(matches!(refused, Some(Refusal::TooManyRequests { .. })), "{refused:?}");
    engine.stop().unwrap();
}

// W-39
#[tokio::test]
async fn a_patch_whose_condition_takes_long_holds_up_nobody_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    prepare(engine.handle(), "").await;
    let texts = format!(r#","t":"{0}{0}{0}","p":"%{0}_b%""#, "a".repeat(300_000));
    upsert(engine.handle(), "long", &texts).await.unwrap();
    let before = read(engine.handle(), "long").await.unwrap();
    let patch = Command::PatchItem {
        item: ItemPath {
            container: container(),
            partition_key: PartitionKey::of_string("p"),
            id: "long".into(),
        },
        body:
            r#"{"condition":"FROM c WHERE c.t LIKE c.p","operations":[{"op":"set","path":"/z","value":1}]}"#
                .into(),
        condition: Precondition::default(),
    };
    let began = std::time::Instant::now();
    // On one thread: whatever is decided on it holds up everything else.
    let (refused, other) =
        tokio::join!(engine.handle().ask(patch), upsert(engine.handle(), "other", r#","n":1"#));
    let refused = refused.unwrap_err();
    assert_eq!(refused.status(), (400, 0));
    assert!(refused.to_string().contains("The condition takes more than"), "{refused}");
    other.unwrap();
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    assert_eq!(read(engine.handle(), "long").await.unwrap(), before);
    engine.stop().unwrap();
}
