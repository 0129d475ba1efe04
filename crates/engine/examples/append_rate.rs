//! How many durable messages of 1 KiB a second 256 waiting writers get: through the engine, through the journal alone, and
//! against a bare loop that writes and syncs as many bytes each time on a preallocated file. The three alternate, for disks
//! have moods.
//!
//! All of them write to files whose blocks were written before. The bare loop goes round in one; the journals use segments
//! again that were given back, as they do when messages leave as fast as they come: so a consumer takes what the engine
//! has stored, which is paid for by the engine. With `growing` nobody takes anything: then each segment is a new one, and
//! filling it ahead doubles what is written.
//!
//! `cargo run --release -p otobus-engine --example append_rate -- DIRECTORY [growing]`, or `cargo xtask storage append`.

#![allow(clippy::unwrap_used)] // A measurement that cannot run has nothing to say.

use broker::{Command, NamespaceId, QueueSettings, ReceiveMode, Span};
use bytes::Bytes;
use journal::Journal;
use journal::disk::File;
use otobus_engine::{Batch, Connection, Engine, Options, Outgoing};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WRITERS: usize = 256;
/// Writers share connections, as they do in a process that uses an SDK: each waits for its own `accepted`.
const CONNECTIONS: usize = 4;
const BODY_BYTES: usize = 1024;
/// Many turns, each long enough for several segments, and the median of them: disks have moods that last for seconds.
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_secs(1);
/// Longest wait for a journal to have its next segment ready, so that this is not charged to whoever comes next.
const SETTLING: Duration = Duration::from_secs(3);
/// As much as a journal in use goes round in.
const FILE_BYTES: u64 = 160 * 1024 * 1024;
/// What a consumer takes ahead, as an SDK's processor does.
const CREDIT: u64 = 2048;

fn main() {
    let folder = std::env::args().nth(1).expect("a directory to work in");
    let is_growing = std::env::args().nth(2).is_some_and(|word| word == "growing");
    let folder = Path::new(&folder);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let engine = open(&folder.join("journal"));
    let (stored, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let is_running = Arc::new(AtomicBool::new(false));
    runtime.block_on(engine.handle().ask(create)).unwrap().unwrap();
    for _ in 0..CONNECTIONS {
        let connection = engine.handle().connect();
        runtime.spawn(write(connection, stored.clone(), is_running.clone(), is_over.clone()));
    }
    if !is_growing {
        runtime.spawn(consume(engine.handle().connect()));
    }
    let bare = bare_file(&folder.join("bare"));
    let mut alone = Alone::open(&folder.join("alone"), is_growing);
    let syncs = || engine.handle().counters().appends.load(Ordering::Relaxed);
    let (mut ours, mut journals) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (messages, appends, began) = (stored.load(Ordering::Relaxed), syncs(), Instant::now());
        is_running.store(true, Ordering::Relaxed);
        std::thread::sleep(ROUND);
        is_running.store(false, Ordering::Relaxed);
        let messages = stored.load(Ordering::Relaxed) - messages;
        let through = Rate { messages, syncs: syncs() - appends, seconds: began.elapsed().as_secs_f64() };
        settle(&folder.join("journal"));
        let beside = bare_loop(&bare, (messages / through.syncs.max(1)).max(1));
        let alone = alone.run();
        settle(&folder.join("alone"));
        let below = bare_loop(&bare, WRITERS as u64);
        println!(
            "round {round}: engine {through}, bare loop {beside}: {:.0} %; journal alone {alone}, bare loop {below}: {:.0} %{}",
            through.percent_of(&beside),
            alone.percent_of(&below),
            if round == 0 { " (warm-up)" } else { "" }
        );
        if round > 0 {
            ours.push(through.percent_of(&beside));
            journals.push(alone.percent_of(&below));
        }
    }
    is_over.store(true, Ordering::Relaxed);
    println!(
        "{WRITERS} waiting writers of 1 KiB, median of {ROUNDS} rounds: engine {:.0} %, journal alone {:.0} % of the bare loop",
        median(&mut ours),
        median(&mut journals)
    );
    // Writers that still wait are not waited for.
    std::process::exit(0);
}

/// What one turn has stored.
struct Rate {
    messages: u64,
    syncs: u64,
    seconds: f64,
}

impl Rate {
    fn per_second(&self) -> f64 {
        self.messages as f64 / self.seconds
    }

    fn percent_of(&self, other: &Rate) -> f64 {
        100.0 * self.per_second() / other.per_second()
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let a_sync = self.messages as f64 / self.syncs.max(1) as f64;
        write!(f, "{:.0} msg/s in {} syncs ({a_sync:.0} a sync)", self.per_second(), self.syncs)
    }
}

fn median(percents: &mut [f64]) -> f64 {
    percents.sort_by(f64::total_cmp);
    percents[percents.len() / 2]
}

/// Waits until the journal fills no segment in the background and has nothing to write.
fn settle(folder: &Path) {
    let began = Instant::now();
    std::thread::sleep(Duration::from_millis(100));
    while folder.join("spare.tmp").exists() && began.elapsed() < SETTLING {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn open(path: &Path) -> Engine {
    let disk = Arc::new(File::open(path).unwrap());
    let journal = Box::new(journal::Local::open(disk, journal::Options::new(3)).unwrap());
    Engine::open(
        journal,
        Options {
            owner: 1,
            nonce: 9,
            has_sync_thread: true,
            tail_cache_bytes: otobus_engine::limits::TAIL_CACHE_BYTES,
        },
        |why| panic!("{why}"),
    )
    .unwrap()
}

/// The journal without anything around it: what has gathered is one append.
struct Alone {
    journal: journal::Local,
    draft: journal::Draft,
    is_growing: bool,
}

impl Alone {
    fn open(path: &Path, is_growing: bool) -> Alone {
        let disk = Arc::new(File::open(path).unwrap());
        let mut journal = journal::Local::open(disk, journal::Options::new(4)).unwrap();
        journal.fence(1, journal::Epoch(1)).unwrap();
        Alone { journal, draft: journal::Draft::default(), is_growing }
    }

    /// Gives back what lies behind the last segment but one.
    fn trim(&mut self) {
        let stretches = self.journal.stretches();
        if let [.., before_last, _] = &stretches[..]
            && stretches.len() > 3
        {
            let tail = self.journal.tail();
            self.journal.snapshots().put(tail, &mut |out| out.write_all(b"all are gone")).unwrap();
            self.journal.trim(before_last.first).unwrap();
        }
    }

    /// All 256 writers wait for each append. Laying a body out and summing it is theirs to do, as connections do it.
    fn run(&mut self) -> Rate {
        let mut bodies = journal::Draft::default();
        (0..WRITERS).for_each(|_| bodies.push_body(&[7; BODY_BYTES]));
        let pieces = bodies.pieces.chunks(WRITERS / CONNECTIONS).map(|of_one| Bytes::from(of_one.concat()));
        bodies.pieces = pieces.collect();
        let (began, mut syncs) = (Instant::now(), 0);
        while began.elapsed() < ROUND {
            self.draft.clear();
            self.draft.body_lengths.extend_from_slice(&bodies.body_lengths);
            self.draft.pieces.extend_from_slice(&bodies.pieces);
            let at = self.journal.tail().next();
            let ticket = self.journal.append(&self.draft, at).unwrap();
            assert!(matches!(ticket.wait(), journal::Outcome::Committed));
            syncs += 1;
            if !self.is_growing {
                self.trim();
            }
        }
        Rate { messages: syncs * WRITERS as u64, syncs, seconds: began.elapsed().as_secs_f64() }
    }
}

fn create(request: broker::RequestId) -> Command {
    let settings = Box::new(QueueSettings { max_size_megabytes: 1 << 20, ..QueueSettings::default() });
    Command::CreateQueue { request, namespace: NamespaceId(0), path: "q".into(), settings }
}

/// The writers of one connection: each sends, waits for its `accepted`, and sends again.
async fn write(
    connection: Connection,
    stored: Arc<AtomicU64>,
    is_running: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
) {
    let link = connection.link(1);
    let attach = Command::AttachSender { link, namespace: NamespaceId(0), path: "q".into() };
    connection.submit(Batch { commands: vec![attach], ..Batch::default() });
    let (mut taken, mut delivery, mut free) = (Vec::new(), 0, WRITERS / CONNECTIONS);
    loop {
        while !is_running.load(Ordering::Relaxed) {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            tokio::task::yield_now().await;
            std::thread::sleep(Duration::from_micros(50));
        }
        let mut batch = Batch::default();
        for _ in 0..std::mem::take(&mut free) {
            batch.message(Span::MAX, |out| out.resize(out.len() + BODY_BYTES, 7));
            batch.send(link, delivery, false, batch.messages.len() - 1);
            delivery += 1;
        }
        connection.submit(batch);
        while free == 0 {
            connection.outbox().arrived().await;
            connection.outbox().take(&mut taken);
            for each in taken.drain(..) {
                if let Outgoing::Accepted { first, last, .. } = each {
                    free += (last - first + 1) as usize;
                }
            }
        }
        stored.fetch_add(free as u64, Ordering::Relaxed);
    }
}

/// Takes what comes, and looks at nothing of it.
async fn consume(connection: Connection) {
    let (link, mode) = (connection.link(1), ReceiveMode::ReceiveAndDelete);
    let attach = Command::AttachReceiver { link, namespace: NamespaceId(0), path: "q".into(), mode };
    connection.submit(Batch { commands: vec![attach], ..Batch::default() });
    let (mut taken, mut seen, mut limit) = (Vec::new(), 0, 0);
    loop {
        if limit < seen + CREDIT / 2 {
            limit = seen + CREDIT;
            let credit = Command::Credit { link, limit, drain: false };
            connection.submit(Batch { commands: vec![credit], ..Batch::default() });
        }
        connection.outbox().arrived().await;
        connection.outbox().take(&mut taken);
        seen += taken.drain(..).filter(|each| matches!(each, Outgoing::Deliver(_))).count() as u64;
    }
}

fn bare_file(path: &Path) -> std::fs::File {
    let file =
        std::fs::File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..FILE_BYTES >> 20).for_each(|n| file.write_all_at(&zeros, n << 20).unwrap());
    file.sync_all().unwrap();
    file
}

/// Writes and syncs so many messages again and again.
fn bare_loop(file: &std::fs::File, messages: u64) -> Rate {
    let bytes = messages * BODY_BYTES as u64;
    let block = vec![7; bytes as usize];
    let (began, mut syncs, mut at) = (Instant::now(), 0, 0);
    while began.elapsed() < ROUND / 2 {
        if at + bytes > FILE_BYTES {
            at = 0;
        }
        file.write_all_at(&block, at).unwrap();
        file.sync_data().unwrap();
        at += bytes;
        syncs += 1;
    }
    Rate { messages: syncs * messages, syncs, seconds: began.elapsed().as_secs_f64() }
}
