//! How many durable messages of 1 KiB a second 256 waiting writers get: through the engine, and through the journal alone,
//! against a bare loop that writes and syncs as many bytes each time. They take turns, for disks have moods.
//!
//! All of them go forward through a file of one size whose blocks were written before: a segment of that size,
//! filled ahead, and for the bare loop a file of zeros. So nothing is filled while it is measured, as in a journal in
//! use, where segments come back.
//!
//! `cargo run --release -p otobus-engine --example append_rate -- DIRECTORY`, or `cargo xtask storage append`.

#![allow(clippy::unwrap_used)] // A measurement that cannot run has nothing to say.

use broker::{Command, NamespaceId, QueueSettings, Span};
use bytes::Bytes;
use journal::disk::File;
use journal::{Filling, Journal, Local};
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
/// Short turns, for a mood of the disk lasts longer than several of them, and many, of which the median counts.
const ROUND: Duration = Duration::from_millis(50);
const ROUNDS: usize = 10;
/// Each with new files, for the rounds of one must not fill them.
const SETS: usize = 4;
const FILE_BYTES: u32 = 512 << 20;
/// A disk that has taken a gigabyte of zeros at once, or lost one, is out of humour for a while. So it gets a rest before each set
/// of rounds, and all files are removed at the end.
const REST: Duration = Duration::from_secs(20);
/// What was on its way at the end of a turn has long arrived then.
const PAUSE: Duration = Duration::from_millis(20);

fn main() {
    let folder = std::env::args().nth(1).expect("a directory to work in");
    let (mut ours, mut journals) = (Vec::new(), Vec::new());
    for set in 1..=SETS {
        let folder = Path::new(&folder).join(set.to_string());
        std::fs::create_dir(&folder).unwrap();
        for (through, alone) in measure(&folder) {
            ours.push(through);
            journals.push(alone);
        }
    }
    for set in 1..=SETS {
        std::fs::remove_dir_all(Path::new(&folder).join(set.to_string())).unwrap();
    }
    println!(
        "{WRITERS} waiting writers of 1 KiB, median of {} rounds: engine {:.0} %, journal alone {:.0} % of the bare loop",
        ours.len(),
        median(&mut ours),
        median(&mut journals)
    );
}

/// In percent of the bare loop, for each round but the first, which is for warming up.
fn measure(folder: &Path) -> Vec<(f64, f64)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let engine = engine(&folder.join("engine"));
    let (stored, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let is_running = Arc::new(AtomicBool::new(false));
    runtime.block_on(engine.handle().ask(create)).unwrap().unwrap();
    for _ in 0..CONNECTIONS {
        let connection = engine.handle().connect();
        runtime.spawn(write(connection, stored.clone(), is_running.clone(), is_over.clone()));
    }
    let mut alone = Alone::open(&folder.join("alone"));
    let mut bare = Bare::open(&folder.join("bare"));
    let counted = || {
        let counters = engine.handle().counters();
        let [syncs, bytes] =
            [&counters.appends, &counters.appended_bytes].map(|count| count.load(Ordering::Relaxed));
        (stored.load(Ordering::Relaxed), syncs, bytes)
    };
    let mut percents = Vec::new();
    std::thread::sleep(REST);
    for round in 0..=ROUNDS {
        let (before, began) = (counted(), Instant::now());
        is_running.store(true, Ordering::Relaxed);
        std::thread::sleep(ROUND);
        let (after, took) = (counted(), began.elapsed());
        is_running.store(false, Ordering::Relaxed);
        assert!(after.2 + (after.2 - before.2) < u64::from(FILE_BYTES), "the segment is nearly full");
        std::thread::sleep(PAUSE);
        let through =
            Rate { messages: after.0 - before.0, syncs: after.1 - before.1, bytes: after.2 - before.2, took };
        let beside = bare.run(&through);
        let alone = alone.run();
        let below = bare.run(&alone);
        let found = (through.percent_of(&beside), alone.percent_of(&below));
        let remark = if round == 0 { " (warm-up)" } else { "" };
        println!(
            "engine {through}, bare loop {beside}: {:.0} %; journal alone {alone}, bare loop {below}: {:.0} %{remark}",
            found.0, found.1
        );
        if round > 0 {
            percents.push(found);
        }
    }
    is_over.store(true, Ordering::Relaxed);
    runtime.shutdown_background();
    engine.stop().unwrap();
    percents
}

/// What one turn has stored.
struct Rate {
    messages: u64,
    syncs: u64,
    bytes: u64,
    took: Duration,
}

impl Rate {
    fn per_second(&self) -> f64 {
        self.messages as f64 / self.took.as_secs_f64()
    }

    fn percent_of(&self, other: &Rate) -> f64 {
        100.0 * self.per_second() / other.per_second()
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let a_sync = |count: u64| count / self.syncs.max(1);
        let (messages, bytes) = (a_sync(self.messages), a_sync(self.bytes));
        write!(f, "{:.0} msg/s in {} syncs of {messages} and {bytes} B", self.per_second(), self.syncs)
    }
}

fn median(percents: &mut [f64]) -> f64 {
    percents.sort_by(f64::total_cmp);
    percents[percents.len() / 2]
}

/// A journal of one segment that is filled before anything is written to it.
fn journal(path: &Path, seed: u64) -> Local {
    let options = journal::Options {
        filling: Filling::Inline,
        segment_bytes: FILE_BYTES,
        first_segment_bytes: FILE_BYTES,
        reserve_segments: 0,
        ..journal::Options::new(seed)
    };
    Local::open(Arc::new(File::open(path).unwrap()), options).unwrap()
}

fn engine(path: &Path) -> Engine {
    let options = Options::new(9);
    Engine::open(Box::new(journal(path, 3)), options, |why| panic!("{why}")).unwrap()
}

/// The journal without anything around it: what has gathered is one append.
struct Alone {
    journal: Local,
    draft: journal::Draft,
}

impl Alone {
    fn open(path: &Path) -> Alone {
        let mut journal = journal(path, 4);
        journal.fence(1, journal::Epoch(1)).unwrap();
        Alone { journal, draft: journal::Draft::default() }
    }

    /// All 256 writers wait for each append. Laying a body out and summing it is theirs to do, as connections do it.
    fn run(&mut self) -> Rate {
        let mut bodies = journal::Draft::default();
        (0..WRITERS).for_each(|_| bodies.push_body(&[7; BODY_BYTES]));
        let pieces = bodies.pieces.chunks(WRITERS / CONNECTIONS).map(|of_one| Bytes::from(of_one.concat()));
        bodies.pieces = pieces.collect();
        let (began, mut syncs, mut bytes) = (Instant::now(), 0, 0);
        while began.elapsed() < ROUND {
            self.draft.clear();
            self.draft.body_lengths.extend_from_slice(&bodies.body_lengths);
            self.draft.pieces.extend_from_slice(&bodies.pieces);
            bytes += self.journal.batch_bytes(&self.draft) as u64;
            let at = self.journal.tail().next();
            let ticket = self.journal.append(&self.draft, at).unwrap();
            assert!(matches!(ticket.wait(), journal::Outcome::Committed));
            syncs += 1;
        }
        Rate { messages: syncs * WRITERS as u64, syncs, bytes, took: began.elapsed() }
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
            // The one thread of the writers has nothing else to do.
            std::thread::sleep(Duration::from_micros(100));
            tokio::task::yield_now().await;
        }
        let mut batch = Batch::default();
        batch.bodies.reserve_exact(free * (journal::BODY_PREFIX_BYTES + BODY_BYTES));
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

/// Writes and syncs, and nothing else.
struct Bare {
    file: std::fs::File,
    at: u64,
}

impl Bare {
    fn open(path: &Path) -> Bare {
        let file = std::fs::File::options().write(true).create_new(true).open(path).unwrap();
        let zeros = vec![0; 1 << 20];
        (0..u64::from(FILE_BYTES) >> 20).for_each(|n| file.write_all_at(&zeros, n << 20).unwrap());
        file.sync_all().unwrap();
        Bare { file, at: 0 }
    }

    /// As many bytes a sync as the other had.
    fn run(&mut self, other: &Rate) -> Rate {
        let bytes = other.bytes / other.syncs.max(1);
        let block = vec![7; bytes as usize];
        let (began, mut syncs) = (Instant::now(), 0);
        while began.elapsed() < ROUND / 2 {
            if self.at + bytes > u64::from(FILE_BYTES) {
                self.at = 0;
            }
            self.file.write_all_at(&block, self.at).unwrap();
            self.file.sync_data().unwrap();
            self.at += bytes;
            syncs += 1;
        }
        let messages = syncs * other.messages / other.syncs.max(1);
        Rate { messages, syncs, bytes: syncs * bytes, took: began.elapsed() }
    }
}
