//! The engine with its threads, on real files: what was accepted is there when it is opened again.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use broker::{Answer, Command, NamespaceId, QueueSettings, Span};
use journal::disk::File;
use journal::{Filling, Local};
use otobus_engine::{Batch, Connection, Engine, Options, Outgoing};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CONNECTIONS: u32 = 4;
const SENDS: u32 = 250;

fn directory() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("threads-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn open(path: &Path, has_sync_thread: bool) -> Engine {
    let disk = Arc::new(File::open(path).unwrap());
    let options = journal::Options { filling: Filling::Inline, ..journal::Options::new(3) };
    let journal = Box::new(Local::open(disk, options).unwrap());
    let options = Options { owner: 1, nonce: 9, has_sync_thread, tail_cache_bytes: 1 << 20 };
    Engine::open(journal, options, |why| panic!("{why}")).unwrap()
}

fn create(request: broker::RequestId) -> Command {
    let settings = Box::new(QueueSettings::default());
    Command::CreateQueue { request, namespace: NamespaceId(0), path: "q".into(), settings }
}

fn describe(request: broker::RequestId) -> Command {
    Command::DescribeEntity { request, namespace: NamespaceId(0), path: "q".into() }
}

/// Sends all messages of one connection, a window at a time, and waits for every answer.
async fn send(connection: Connection) {
    let link = connection.link(1);
    let attach = Command::AttachSender { link, namespace: NamespaceId(0), path: "q".into() };
    connection.submit(Batch { commands: vec![attach], ..Batch::default() });
    let (mut next, mut accepted) = (0, 0);
    let mut taken = Vec::new();
    while accepted < SENDS {
        let mut batch = Batch::default();
        while next < SENDS && next < accepted + 50 {
            let first = batch.messages.len();
            batch.message(Span::MAX, |out| out.extend_from_slice(&next.to_be_bytes()));
            batch.send(link, next, false, first);
            next += 1;
        }
        connection.room().await;
        connection.submit(batch);
        connection.outbox().arrived().await;
        connection.outbox().take(&mut taken);
        for outgoing in taken.drain(..) {
            match outgoing {
                Outgoing::Accepted { first, last, .. } => {
                    assert_eq!(first, accepted, "answers come in order");
                    accepted = last + 1;
                }
                Outgoing::Attached { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

async fn run(path: &Path, has_sync_thread: bool) {
    let engine = open(path, has_sync_thread);
    engine.handle().ask(create).await.unwrap().unwrap();
    let senders: Vec<_> = (0..CONNECTIONS).map(|_| tokio::spawn(send(engine.handle().connect()))).collect();
    for sender in senders {
        sender.await.unwrap();
    }
    engine.stop();
    let engine = open(path, has_sync_thread);
    let answer = engine.handle().ask(describe).await.unwrap().unwrap();
    let Answer::Queue(queue) = answer else { panic!("{answer:?}") };
    assert_eq!(queue.counts.active, u64::from(CONNECTIONS * SENDS));
    assert_eq!(queue.bytes, 4 * queue.counts.active);
    engine.stop();
    std::fs::remove_dir_all(path).unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn what_four_connections_sent_is_there_when_the_journal_is_opened_again() {
    // S-10
    let path = directory();
    run(&path.join("inline"), false).await;
    run(&path.join("threaded"), true).await;
}
