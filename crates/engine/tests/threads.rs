//! The engine with its threads, on real files: what was accepted is there when it is opened again.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use broker::{Answer, Command, NamespaceId, Notice, QueueSettings, Span};
use journal::disk::{Call, Disk, File, Memory, Watch, Watched};
use journal::{Filling, Local, Log};
use otobus_engine::{Batch, Connection, Engine, Options, Outgoing, recover};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const CONNECTIONS: u32 = 4;
const SENDS: u32 = 250;

/// Each test has its own, for they run at once.
fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("threads-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn open(path: &Path) -> Engine {
    open_on(Arc::new(File::open(path).unwrap()))
}

fn open_on(disk: Arc<dyn Disk>) -> Engine {
    let options = journal::Options { filling: Filling::Inline, ..journal::Options::new(3) };
    let journal = Box::new(Local::open(disk, options).unwrap());
    let options = Options { tail_cache_bytes: 1 << 20, ..Options::new(9) };
    Engine::open(journal, options, |_| {}).unwrap()
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
                Outgoing::Notice(Notice::Attached { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

async fn run(path: &Path) {
    let engine = open(path);
    engine.handle().ask(create).await.unwrap().unwrap();
    let senders: Vec<_> = (0..CONNECTIONS).map(|_| tokio::spawn(send(engine.handle().connect()))).collect();
    for sender in senders {
        sender.await.unwrap();
    }
    engine.stop().unwrap();
    let engine = open(path);
    let answer = engine.handle().ask(describe).await.unwrap().unwrap();
    let Answer::Queue(queue) = answer else { panic!("{answer:?}") };
    assert_eq!(queue.counts.active, u64::from(CONNECTIONS * SENDS));
    assert_eq!(queue.bytes, 4 * queue.counts.active);
    engine.stop().unwrap();
    std::fs::remove_dir_all(path).unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn what_four_connections_sent_is_there_when_the_journal_is_opened_again() {
    // S-10
    let path = directory("sent");
    run(&path).await;
}

/// Syncing can be made to fail, and the writing of a snapshot to wait.
#[derive(Debug, Default)]
struct Gate {
    fails: AtomicBool,
    syncs: AtomicU32,
    /// The next snapshot waits until the other end says something or is gone.
    snapshot: Mutex<Option<mpsc::Receiver<()>>>,
    /// Snapshots that were begun.
    begun: AtomicBool,
}

impl Gate {
    /// A disk in memory behind the gate.
    fn disk(self: &Arc<Gate>, memory: Memory) -> Arc<dyn Disk> {
        Arc::new(Watched::new(Arc::new(memory), self.clone()))
    }
}

impl Watch for Gate {
    fn before(&self, call: Call<'_>) -> io::Result<()> {
        match call {
            Call::Create("snapshot.tmp") => {
                self.begun.store(true, Ordering::SeqCst);
                if let Some(gate) = self.snapshot.lock().unwrap().take() {
                    let _ = gate.recv();
                }
            }
            Call::Sync(_) => {
                self.syncs.fetch_add(1, Ordering::SeqCst);
                if self.fails.load(Ordering::SeqCst) {
                    return Err(io::Error::other("the disk is broken"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_lone_message_costs_one_sync() {
    let gate = Arc::new(Gate::default());
    let engine = open_on(gate.disk(Memory::new()));
    engine.handle().ask(create).await.unwrap().unwrap();
    let connection = engine.handle().connect();
    let link = connection.link(1);
    let attach = Command::AttachSender { link, namespace: NamespaceId(0), path: "q".into() };
    connection.submit(Batch { commands: vec![attach], ..Batch::default() });
    connection.outbox().arrived().await;
    let before = gate.syncs.load(Ordering::SeqCst);
    for delivery in 0..SENDS {
        // The partition's thread goes to sleep, which is no silence yet.
        std::thread::sleep(Duration::from_millis(1));
        let mut batch = Batch::default();
        batch.message(Span::MAX, |out| out.push(1));
        batch.send(link, delivery, false, 0);
        connection.submit(batch);
        let mut taken = Vec::new();
        while !taken.iter().any(|each| matches!(each, Outgoing::Accepted { .. })) {
            connection.outbox().arrived().await;
            connection.outbox().take(&mut taken);
        }
    }
    let syncs = gate.syncs.load(Ordering::SeqCst) - before;
    // On a busy machine there may be silences, in which the journal is sealed.
    assert!(syncs < SENDS + SENDS / 2, "{syncs} syncs for {SENDS} messages");
    engine.stop().unwrap();
}

/// Connections on threads of their own, so that one brings work while another decides it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_one_connection_sends_is_decided_in_its_order_whoever_decides_it() {
    // S-10
    let path = directory("order");
    send_from_all_sides(open(&path)).await;
    std::fs::remove_dir_all(path).unwrap();
    // Whatever disk is below: what is left to the thread that waits for it, or not.
    send_from_all_sides(open_on(Arc::new(Memory::direct()))).await;
    send_from_all_sides(open_on(Arc::new(Memory::new()))).await;
}

async fn send_from_all_sides(engine: Engine) {
    engine.handle().ask(create).await.unwrap().unwrap();
    for _ in 0..20 {
        // New ones each time: the first batch of a connection comes right behind the connection.
        let senders: Vec<_> = (0..8).map(|_| tokio::spawn(send(engine.handle().connect()))).collect();
        for sender in senders {
            sender.await.unwrap();
        }
    }
    engine.stop().unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn a_stop_that_cannot_be_finished_says_so() {
    // P4
    let gate = Arc::new(Gate::default());
    let engine = open_on(gate.disk(Memory::new()));
    engine.handle().ask(create).await.unwrap().unwrap();
    gate.fails.store(true, Ordering::SeqCst);
    // Accepted by nobody, and to be written before the end.
    let connection = engine.handle().connect();
    let link = connection.link(1);
    let mut batch = Batch::default();
    batch.commands.push(Command::AttachSender { link, namespace: NamespaceId(0), path: "q".into() });
    batch.message(Span::MAX, |out| out.push(1));
    batch.send(link, 0, false, 0);
    connection.submit(batch);
    let why = engine.stop().unwrap_err();
    assert!(why.contains("the disk is broken"), "{why}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_stop_waits_for_the_snapshot_that_is_being_written() {
    let gate = Arc::new(Gate::default());
    let memory = Memory::new();
    let engine = open_on(gate.disk(memory.clone()));
    engine.handle().ask(create).await.unwrap().unwrap();
    let (held, waits) = mpsc::channel();
    *gate.snapshot.lock().unwrap() = Some(waits);
    let connection = engine.handle().connect();
    let link = connection.link(1);
    let attach = Command::AttachSender { link, namespace: NamespaceId(0), path: "q".into() };
    connection.submit(Batch { commands: vec![attach], ..Batch::default() });
    let body = vec![7; 512 * 1024];
    let mut delivery = 0;
    while !gate.begun.load(Ordering::SeqCst) {
        let mut batch = Batch::default();
        batch.message(Span::MAX, |out| out.extend_from_slice(&body));
        batch.send(link, delivery, false, 0);
        delivery += 1;
        connection.room().await;
        connection.submit(batch);
        connection.outbox().arrived().await;
        connection.outbox().take(&mut Vec::new());
    }
    std::thread::scope(|scope| {
        let stopping = scope.spawn(move || engine.stop());
        // However long it takes, it does not end before the snapshot does.
        for _ in 0..1_000 {
            std::thread::yield_now();
        }
        assert!(!stopping.is_finished());
        drop(held);
        stopping.join().unwrap().unwrap();
    });
    let names = memory.list().unwrap();
    assert!(names.iter().any(|name| name.ends_with(".snapshot")), "{names:?}");
    assert!(!names.iter().any(|name| name == "snapshot.tmp"), "{names:?}");
}

#[tokio::test(flavor = "current_thread")]
async fn what_another_owner_wrote_until_it_was_fenced_off_is_read() {
    let log = Log::default();
    let options = Options { tail_cache_bytes: 1 << 20, ..Options::new(9) };
    let engine = Engine::open(Box::new(log.open().unwrap()), options, |_| {}).unwrap();
    // Somebody looks at the log before the queue is there, and takes it over afterwards.
    let mut next = log.open().unwrap();
    engine.handle().ask(create).await.unwrap().unwrap();
    let recovered = recover(&mut next, 2).unwrap();
    assert_eq!(recovered.durable.queues().count(), 1);
}

#[test]
fn a_pause_that_was_ended_before_it_began_is_none_and_one_that_began_ends_with_the_next_end() {
    let pauses = otobus_engine::commit::Pauses::default();
    let long = Duration::from_secs(3_600);
    let ends = pauses.ends();
    pauses.end();
    pauses.pause(ends, long);
    let ends = pauses.ends();
    std::thread::scope(|scope| {
        scope.spawn(|| pauses.pause(ends, long));
        pauses.end();
    });
    pauses.pause(pauses.ends(), Duration::from_micros(1));
}
