//! Power failures and failing disks at every call that a run makes.
//!
//! The run appends, seals, rolls, puts snapshots, trims and reopens. What was acknowledged must be there afterwards,
//! whatever the disk kept of the rest; nothing that was never written may appear; and a healthy disk is never called
//! damaged.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use otobus_journal::conformance::{sample, verify, verify_snapshot, write_snapshot, write_up_to};
use otobus_journal::disk::{Disk, Fault, Faulty, Memory};
use otobus_journal::{Durability, Epoch, Error, Filling, Journal, Local, Options, Outcome, Position};
use std::sync::Arc;

/// What the outside was told during a run.
#[derive(Debug, Default)]
struct Told {
    /// The last batch that was acknowledged, and the last one that was tried.
    acknowledged: u64,
    tried: u64,
    snapshot: Option<u64>,
}

fn options() -> Options {
    let (segment_bytes, first_segment_bytes) = (10 * 1024, 8 * 1024);
    Options { filling: Filling::Never, segment_bytes, first_segment_bytes, ..Options::new(11) }
}

fn open(disk: Arc<dyn Disk>) -> Result<Local, Error> {
    let mut journal = Local::open(disk, options())?;
    let epoch = journal.epoch().next();
    journal.fence(1, epoch)?;
    Ok(journal)
}

/// Two lives of a journal. Ends at the first error, as a process would; a full disk is waited out.
fn run(disk: Arc<dyn Disk>, told: &mut Told) -> Result<(), Error> {
    for last in [20, 44] {
        let mut journal = open(disk.clone())?;
        // A killed process's append may have survived without being acknowledged.
        assert!(
            (told.acknowledged..=told.tried).contains(&journal.tail().0),
            "{told:?}, {:?}",
            journal.tail()
        );
        // The opener may tell others what is there, so from now on it has to stay.
        told.acknowledged = journal.tail().0;
        while journal.tail() < Position(last) {
            step(&mut journal, told)?;
        }
        verify(&journal, journal.first())?;
        // The process is killed between writing and syncing.
        told.tried = last + 1;
        drop(journal.append(&sample(Position(last + 1)), Position(last + 1))?);
    }
    Ok(())
}

fn step(journal: &mut Local, told: &mut Told) -> Result<(), Error> {
    let at = journal.tail().next();
    told.tried = at.0;
    let ticket = match journal.append(&sample(at), at) {
        Err(Error::Full { .. }) => journal.append(&sample(at), at)?,
        other => other?,
    };
    match ticket.wait() {
        Outcome::Committed => told.acknowledged = at.0,
        Outcome::Failed(error) => {
            assert!(matches!(journal.append(&sample(at.next()), at.next()), Err(Error::Stopped { .. })));
            assert!(matches!(journal.seal(), Err(Error::Stopped { .. })));
            return Err(error);
        }
        other => panic!("{other:?}"),
    }
    if at.0.is_multiple_of(5) {
        journal.seal()?;
    }
    if at.0.is_multiple_of(6) {
        write_snapshot(journal, at)?;
        told.snapshot = Some(at.0);
        journal.trim(at)?;
    }
    Ok(())
}

/// What must hold of a disk after the run ended somewhere.
fn judge(disk: &Memory, told: &Told, context: &str) {
    let mut journal =
        Local::open(Arc::new(disk.clone()), options()).unwrap_or_else(|error| panic!("{context}: {error}"));
    let tail = journal.tail().0;
    assert!((told.acknowledged..=told.tried).contains(&tail), "{context}: tail {tail}, {told:?}");
    verify(&journal, journal.first()).unwrap_or_else(|error| panic!("{context}: {error}"));
    if let Some(snapshot) = told.snapshot {
        let newest = journal.latest_snapshots().unwrap()[0].position;
        assert!(newest.0 >= snapshot && journal.first() <= newest.next(), "{context}: {newest:?}");
        verify_snapshot(&journal, newest);
    }
    // And it goes on, over whatever is behind the tail.
    let epoch = journal.epoch().next();
    journal.fence(2, epoch).unwrap();
    write_up_to(&mut journal, Position(tail + 2));
    let first = journal.first();
    drop(journal);
    let journal =
        Local::open(Arc::new(disk.clone()), options()).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(journal.tail().0, tail + 2, "{context}");
    verify(&journal, first).unwrap();
}

#[test]
fn a_power_failure_at_any_call_loses_nothing_acknowledged() {
    cut_power_at_any_call(&Memory::new);
}

#[test]
fn a_power_failure_at_any_call_loses_nothing_acknowledged_where_writes_are_waited_for() {
    cut_power_at_any_call(&Memory::direct);
}

fn cut_power_at_any_call(disk: &dyn Fn() -> Memory) {
    let mut images = 0;
    for call in 1.. {
        let memory = disk();
        let faulty = Arc::new(Faulty::new(Arc::new(memory.clone()), Fault::PowerCut, call));
        let mut told = Told::default();
        let ended = run(faulty.clone(), &mut told);
        for seed in [0, 1].into_iter().chain((2..5).map(|n| call * 1000 + n)) {
            judge(&memory.crash_image(seed), &told, &format!("power off at call {call}, image {seed}"));
            images += 1;
        }
        if ended.is_ok() {
            assert!(faulty.calls() < call);
            break;
        }
    }
    assert!(images > 1000, "{images}");
}

#[test]
fn a_failure_of_any_single_call_is_noticed_and_loses_nothing_acknowledged() {
    fail_any_single_call(&Memory::new);
}

#[test]
fn a_failure_of_any_single_call_is_noticed_where_writes_are_waited_for() {
    fail_any_single_call(&Memory::direct);
}

fn fail_any_single_call(disk: &dyn Fn() -> Memory) {
    for fault in [Fault::Eio, Fault::Enospc, Fault::Torn, Fault::Short] {
        let mut failed_runs = 0;
        for call in 1.. {
            let memory = disk();
            let faulty = Arc::new(Faulty::new(Arc::new(memory.clone()), fault, call));
            let mut told = Told::default();
            let ended = run(faulty.clone(), &mut told);
            let context = format!("{fault:?} at call {call}");
            failed_runs += u32::from(ended.is_err());
            // The process stopped, the machine did not: everything written is there.
            judge(&memory.crash_image(1), &told, &context);
            judge(&memory.crash_image(call + 2), &told, &context);
            if faulty.calls() < call {
                assert!(ended.is_ok(), "{context}: {ended:?}");
                break;
            }
            if fault == Fault::Short {
                assert!(ended.is_ok(), "{context}: a short write is no failure: {ended:?}");
            }
        }
        assert!(failed_runs > 20 || fault == Fault::Short, "{fault:?}: {failed_runs}");
    }
}

fn relaxed() -> Options {
    let (segment_bytes, first_segment_bytes) = (64 * 1024, 64 * 1024);
    Options { durability: Durability::Os, segment_bytes, first_segment_bytes, ..options() }
}

#[test]
fn a_snapshot_never_outlives_its_batches_though_they_were_not_synced() {
    let disk = Memory::new();
    let mut journal = Local::open(Arc::new(disk.clone()), relaxed()).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    write_up_to(&mut journal, Position(10));
    write_snapshot(&mut journal, Position(10)).unwrap();
    write_up_to(&mut journal, Position(12));
    for seed in [0].into_iter().chain(2..40) {
        let journal = Local::open(Arc::new(disk.crash_image(seed)), relaxed()).unwrap();
        assert!(journal.tail() >= Position(10), "image {seed}");
        verify_snapshot(&journal, Position(10));
    }
}

#[test]
fn what_made_room_for_trimming_is_durable_before_anything_goes() {
    let disk = Memory::new();
    let small = Options { segment_bytes: 10 * 1024, first_segment_bytes: 8 * 1024, ..relaxed() };
    let mut journal = Local::open(Arc::new(disk.clone()), small.clone()).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    write_up_to(&mut journal, Position(20));
    write_snapshot(&mut journal, Position(19)).unwrap();
    write_snapshot(&mut journal, Position(20)).unwrap();
    // Whatever lived in the front was copied by the newest batch.
    write_up_to(&mut journal, Position(21));
    journal.trim(Position(20)).unwrap();
    assert!(journal.first() > Position(1));
    for seed in [0].into_iter().chain(2..40) {
        let journal = Local::open(Arc::new(disk.crash_image(seed)), small.clone()).unwrap();
        assert_eq!(journal.tail(), Position(21), "image {seed}");
    }
}

#[test]
fn what_an_opened_journal_shows_is_durable() {
    let disk = Memory::new();
    let mut journal = open(Arc::new(disk.clone())).unwrap();
    drop(journal.append(&sample(Position(1)), Position(1)).unwrap());
    drop(journal);
    let journal = Local::open(Arc::new(disk.clone()), options()).unwrap();
    assert_eq!(journal.tail(), Position(1), "written by a process that was killed before it synced");
    let image = disk.crash_image(0);
    assert_eq!(Local::open(Arc::new(image), options()).unwrap().tail(), Position(1));
}

#[test]
fn what_is_shown_after_a_failed_sync_is_on_the_disk() {
    for durability in [Durability::LocalSync, Durability::Os] {
        let options = Options { durability, ..relaxed() };
        let memory = Memory::new();
        let disk = Arc::new(Faulty::new(Arc::new(memory.clone()), Fault::Eio, u64::MAX));
        let mut journal = Local::open(disk.clone(), options.clone()).unwrap();
        journal.fence(1, Epoch(1)).unwrap();
        write_up_to(&mut journal, Position(7));
        if durability == Durability::LocalSync {
            disk.fail_in(2);
            let ticket = journal.append(&sample(Position(8)), Position(8)).unwrap();
            assert!(matches!(ticket.wait(), Outcome::Failed(_)));
        } else {
            write_up_to(&mut journal, Position(8));
            disk.fail_in(1);
            assert!(journal.seal().is_err());
        }
        drop(journal);
        memory.forget_unsynced();
        // The next lives do not get far either: their syncs fail in turn.
        let mut failed = 0;
        for nth in 1..20 {
            let mut journal = Local::open(disk.clone(), options.clone()).unwrap();
            assert_eq!(journal.tail(), Position(8));
            disk.fail_in(nth);
            let epoch = journal.epoch().next();
            failed += u32::from(journal.fence(1, epoch).is_err());
            disk.fail_in(u64::MAX / 2);
            drop(journal);
            memory.forget_unsynced();
        }
        assert!(failed > 5, "{failed}");
        let mut journal = Local::open(disk, options.clone()).unwrap();
        let epoch = journal.epoch().next();
        journal.fence(1, epoch).unwrap();
        assert_eq!(journal.tail(), Position(8));
        let journal = Local::open(Arc::new(memory.crash_image(0)), options).unwrap();
        assert_eq!(journal.tail(), Position(8), "{durability:?}: what was shown is lost");
        verify(&journal, Position(1)).unwrap();
    }
}

#[test]
fn a_seal_and_the_batch_behind_it_are_never_in_flight_together() {
    // Records of many lengths, so that the seal ends up on either side of a sector's edge.
    for length in (0..512).step_by(16) {
        let disk = Memory::new();
        let roomy = Options { first_segment_bytes: 64 * 1024, ..options() };
        let mut journal = Local::open(Arc::new(disk.clone()), roomy).unwrap();
        journal.fence(1, Epoch(1)).unwrap();
        let mut draft = sample(Position(1));
        draft.records.resize(length, 1);
        assert!(matches!(journal.append(&draft, Position(1)).unwrap().wait(), Outcome::Committed));
        journal.seal().unwrap();
        drop(journal.append(&sample(Position(2)), Position(2)).unwrap());
        for seed in 2..22 {
            let image = disk.crash_image(seed);
            let journal = Local::open(Arc::new(image), options()).unwrap();
            assert!(journal.tail() >= Position(1));
        }
    }
}
