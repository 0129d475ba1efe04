//! Every journal of this crate does what every journal must do.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use otobus_journal::conformance::{Damage, Harness, check_all, damage_log, damage_segments};
use otobus_journal::disk::{Disk, Fault, Faulty, File, Memory};
use otobus_journal::fuzzing::Scratch;
use otobus_journal::{
    Distant, Durability, Error, Filling, Journal, Local, Log, Options, Position, Unsure, Verdict, Wire,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Segments so small that every check crosses several.
fn options(filling: Filling, durability: Durability) -> Options {
    let (segment_bytes, first_segment_bytes) = (12 * 1024, 8 * 1024);
    Options { filling, durability, segment_bytes, first_segment_bytes, ..Options::new(3) }
}

/// On a disk in memory, where a kill is a power failure that keeps what it likes of what was not synced.
struct OnMemory {
    disk: Mutex<Memory>,
    options: Options,
    kills: AtomicU64,
}

impl OnMemory {
    fn new(options: Options) -> OnMemory {
        OnMemory { disk: Mutex::default(), options, kills: AtomicU64::new(2) }
    }

    fn disk(&self) -> Memory {
        self.disk.lock().unwrap().clone()
    }
}

impl Harness for OnMemory {
    fn open(&self) -> Result<Box<dyn Journal>, Error> {
        Ok(Box::new(Local::open(Arc::new(self.disk()), self.options.clone())?))
    }

    fn kill(&self, journal: Box<dyn Journal>) {
        let is_synced = self.options.durability >= Durability::LocalSync;
        let seed = if is_synced { self.kills.fetch_add(1, Ordering::Relaxed) } else { 1 };
        let image = self.disk().crash_image(seed);
        *self.disk.lock().unwrap() = image;
        drop(journal);
    }

    fn damage(&self, damage: Damage) {
        damage_segments(&self.disk(), damage).unwrap();
    }
}

#[test]
fn the_journal_on_a_disk_in_memory_conforms() {
    check_all(&|| Box::new(OnMemory::new(options(Filling::Never, Durability::LocalSync))));
}

#[test]
fn the_journal_conforms_where_writes_are_waited_for() {
    check_all(&|| {
        let harness = OnMemory::new(options(Filling::Never, Durability::LocalSync));
        *harness.disk.lock().unwrap() = Memory::direct();
        Box::new(harness)
    });
}

#[test]
fn the_journal_that_does_not_sync_conforms() {
    // A hole in its last segment is no damage, so each batch gets a segment of its own here.
    let synced_segments =
        Options { segment_bytes: 1, first_segment_bytes: 1, ..options(Filling::Inline, Durability::Os) };
    check_all(&|| Box::new(OnMemory::new(synced_segments.clone())));
}

struct OnFiles {
    folder: Scratch,
}

impl OnFiles {
    fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(File::open(self.folder.path()).unwrap())
    }
}

impl Harness for OnFiles {
    fn open(&self) -> Result<Box<dyn Journal>, Error> {
        let options = options(Filling::Background, Durability::LocalSync);
        Ok(Box::new(Local::open(self.disk(), options)?))
    }

    fn damage(&self, damage: Damage) {
        damage_segments(&*self.disk(), damage).unwrap();
    }
}

#[test]
fn the_journal_on_files_conforms() {
    check_all(&|| Box::new(OnFiles { folder: Scratch::new("conformance") }));
}

#[derive(Default)]
struct OnLog {
    log: Log,
}

impl Harness for OnLog {
    fn open(&self) -> Result<Box<dyn Journal>, Error> {
        Ok(Box::new(self.log.open()?))
    }

    fn damage(&self, damage: Damage) {
        damage_log(&self.log, damage);
    }
}

#[test]
fn the_log_in_memory_that_several_may_open_conforms() {
    check_all(&|| Box::new(OnLog::default()));
}

/// The same log at a distance.
#[derive(Default)]
struct OverWire {
    log: Log,
    wire: Wire,
}

impl Harness for OverWire {
    fn open(&self) -> Result<Box<dyn Journal>, Error> {
        Ok(Box::new(Distant::open(&self.log, &self.wire)?))
    }

    fn wire(&self) -> Option<Wire> {
        Some(self.wire.clone())
    }

    fn damage(&self, damage: Damage) {
        damage_log(&self.log, damage);
    }
}

#[test]
fn the_log_at_a_distance_conforms() {
    check_all(&|| Box::new(OverWire::default()));
}

/// On a disk that can be told to fail.
struct OnFaulty {
    memory: Memory,
    disk: Arc<Faulty>,
}

impl Harness for OnFaulty {
    fn open(&self) -> Result<Box<dyn Journal>, Error> {
        let options = options(Filling::Never, Durability::LocalSync);
        Ok(Box::new(Local::open(self.disk.clone(), options)?))
    }

    fn damage(&self, damage: Damage) {
        damage_segments(&self.memory, damage).unwrap();
    }

    fn fail(&self, nth: u64) -> bool {
        self.disk.fail_in(nth);
        true
    }
}

#[test]
fn the_journal_on_a_failing_disk_conforms() {
    for fault in [Fault::Eio, Fault::Torn] {
        check_all(&|| {
            let memory = Memory::new();
            let disk = Arc::new(Faulty::new(Arc::new(memory.clone()), fault, u64::MAX));
            Box::new(OnFaulty { memory, disk })
        });
    }
}

/// Any journal whose requests and answers get lost.
struct Unreliable<H> {
    inner: H,
}

impl<H: Harness> Harness for Unreliable<H> {
    fn open(&self) -> Result<Box<dyn Journal>, Error> {
        let mut appends = 0;
        let judge = move |_: Position| {
            appends += 1;
            match appends {
                _ if appends % 5 == 0 => Verdict::LoseRequest,
                _ if appends % 7 == 0 => Verdict::LoseAnswer,
                _ => Verdict::Pass,
            }
        };
        Ok(Box::new(Unsure::new(self.inner.open()?, judge)))
    }

    fn kill(&self, journal: Box<dyn Journal>) {
        self.inner.kill(journal);
    }

    fn damage(&self, damage: Damage) {
        self.inner.damage(damage);
    }
}

#[test]
fn a_journal_that_loses_answers_conforms() {
    check_all(&|| Box::new(Unreliable { inner: OnLog::default() }));
    check_all(&|| Box::new(Unreliable { inner: OverWire::default() }));
    let local = || OnMemory::new(options(Filling::Never, Durability::LocalSync));
    check_all(&|| Box::new(Unreliable { inner: local() }));
}
