//! Writes interleaved with reads: whatever was appended can be read at every moment, before it is written, while it is
//! and after it is synced; and what fails, or is written in part, at each call.

use super::*;
use crate::disk::{Call, Fault, Faulty, Memory, PAGE_BYTES, Watched};
use crate::ticket::Outcome;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

fn options() -> Options {
    let (segment_bytes, first_segment_bytes) = (4 << 20, 4 << 20);
    Options {
        filling: Filling::Never,
        segment_bytes,
        first_segment_bytes,
        reserve_segments: 0,
        ..Options::new(1)
    }
}

/// A batch with one body, small or larger than what is written at once.
fn draft(at: u64) -> Draft {
    let mut draft = Draft { record_count: 1, records: vec![at as u8; 30], ..Draft::default() };
    draft.push_body(&body(at));
    draft
}

fn body(at: u64) -> Vec<u8> {
    let lengths = [100, 5_000, 700_000, 40, 4_096, 1_500_000];
    vec![at as u8; lengths[at as usize % lengths.len()]]
}

fn must_read(places: &[Place], when: &str) {
    for (n, place) in places.iter().enumerate() {
        let read = place.read().unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(read == body(n as u64 + 1), "{when}: body {}", n + 1);
    }
    let mut found = Vec::new();
    crate::read_run(places, &mut found).unwrap_or_else(|error| panic!("{when}: {error}"));
    assert!(found.iter().zip(1..).all(|(found, at)| found[..] == body(at)[..]), "{when}: as a run");
}

type Places = Arc<Mutex<Vec<Place>>>;

/// A disk that reads all bodies back before and after every write and sync to it.
fn reading(memory: Memory, places: &Places, looked: &Arc<AtomicU32>) -> Arc<dyn Disk> {
    struct Reader(Places, Arc<AtomicU32>, AtomicBool);
    impl Reader {
        fn look(&self, call: Call<'_>, when: &str) {
            let is_written = matches!(call, Call::Write { .. } | Call::Sync(_));
            if !is_written || self.2.swap(true, Ordering::SeqCst) {
                return;
            }
            must_read(&self.0.lock().unwrap(), &format!("{when} {call:?}"));
            self.1.fetch_add(1, Ordering::SeqCst);
            self.2.store(false, Ordering::SeqCst);
        }
    }
    impl crate::disk::Watch for Reader {
        fn before(&self, call: Call<'_>) -> std::io::Result<()> {
            self.look(call, "before");
            Ok(())
        }
        fn after(&self, call: Call<'_>) {
            self.look(call, "after");
        }
    }
    let reader = Reader(places.clone(), looked.clone(), AtomicBool::new(false));
    Arc::new(Watched::new(Arc::new(memory), Arc::new(reader)))
}

#[test]
fn what_was_appended_can_be_read_at_every_moment_until_it_is_synced() {
    for memory in [Memory::direct(), Memory::new()] {
        let (places, looked) = (Places::default(), Arc::default());
        let mut journal = Local::open(reading(memory.clone(), &places, &looked), options()).unwrap();
        journal.fence(1, Epoch(1)).unwrap();
        for at in 1..=18 {
            let ticket = journal.append(&draft(at), Position(at)).unwrap();
            places.lock().unwrap().push(journal.place(BodyId(at)).unwrap());
            must_read(&places.lock().unwrap(), "appended");
            let mut seen = 0;
            let count = &mut |_: Batch<'_>| {
                seen += 1;
                Ok(())
            };
            journal.read(Position(1), count).unwrap();
            assert_eq!(seen, at, "and so are the records");
            assert!(matches!(ticket.wait(), Outcome::Committed));
            must_read(&places.lock().unwrap(), "committed");
        }
        assert!(looked.load(Ordering::SeqCst) > 2 * 18, "it was read in the middle of things");
        drop(journal);
        let journal = Local::open(Arc::new(memory.crash_image(0)), options()).unwrap();
        assert_eq!((journal.tail(), journal.cut()), (Position(18), None));
        let places: Vec<Place> = (1..=18).map(|body| journal.place(BodyId(body)).unwrap()).collect();
        must_read(&places, "after a power failure");
    }
}

#[test]
fn what_is_left_is_written_by_whoever_waits_however_large_it_is() {
    let disk = Arc::new(Faulty::new(Arc::new(Memory::direct()), Fault::Eio, u64::MAX));
    let mut journal = Local::open(disk.clone(), options()).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    for at in 1..=8 {
        let before = disk.calls();
        let ticket = journal.append(&draft(at), Position(at)).unwrap();
        assert_eq!(disk.calls(), before, "append {at} waits for no disk");
        assert!(matches!(ticket.wait(), Outcome::Committed));
        assert!(disk.calls() > before + 1, "the one who waits writes and syncs");
    }
}

#[test]
fn a_ticket_that_nobody_waits_for_leaves_the_batch_readable_and_absent() {
    let memory = Memory::direct();
    let mut journal = Local::open(Arc::new(memory.clone()), options()).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    assert!(matches!(journal.append(&draft(1), Position(1)).unwrap().wait(), Outcome::Committed));
    let before = memory.content(&names::segment(1));
    drop(journal.append(&draft(2), Position(2)).unwrap());
    must_read(&[1, 2].map(|body| journal.place(BodyId(body)).unwrap()), "dropped");
    assert!(memory.content(&names::segment(1)) == before);
    drop(journal);
    let journal = Local::open(Arc::new(memory), options()).unwrap();
    assert_eq!((journal.tail(), journal.cut()), (Position(1), None));
}

/// Appends until something fails; returns the last that was committed, and whether one failed.
fn write_until_failure(journal: &mut Local, last: u64) -> (u64, bool) {
    for at in 1..=last {
        match journal.append(&draft(at), Position(at)).map(|ticket| ticket.wait()) {
            Ok(Outcome::Committed) => {}
            Ok(Outcome::Failed(_)) | Err(_) => return (at - 1, true),
            Ok(other) => panic!("{other:?}"),
        }
    }
    (last, false)
}

#[test]
fn a_write_that_fails_or_is_torn_at_any_call_loses_nothing_that_was_committed() {
    for (fault, make) in [
        (Fault::Eio, Memory::direct as fn() -> Memory),
        (Fault::Torn, Memory::direct),
        (Fault::PowerCut, Memory::direct),
        (Fault::Eio, Memory::new),
        (Fault::Torn, Memory::new),
    ] {
        for call in 1.. {
            let memory = make();
            let disk = Arc::new(Faulty::new(Arc::new(memory.clone()), fault, u64::MAX));
            let mut journal = Local::open(disk.clone(), options()).unwrap();
            journal.fence(1, Epoch(1)).unwrap();
            disk.fail_in(call);
            let (committed, is_failed) = write_until_failure(&mut journal, 6);
            if !is_failed {
                assert!(call > 7, "{fault:?}: every call before {call} fails something");
                break;
            }
            let refused = journal.append(&draft(committed + 1), Position(committed + 1));
            assert!(matches!(refused, Err(Error::Stopped { .. })), "{fault:?} at call {call}: {refused:?}");
            for seed in 0..6 {
                let image = memory.crash_image(seed);
                let found = Local::open(Arc::new(image), options()).unwrap();
                let tail = found.tail().0;
                assert!((committed..=committed + 1).contains(&tail), "{fault:?} at call {call}: {tail}");
                let places: Vec<Place> = (1..=tail).map(|body| found.place(BodyId(body)).unwrap()).collect();
                must_read(&places, &format!("{fault:?} at call {call}, seed {seed}"));
            }
        }
    }
}

#[test]
fn short_writes_are_continued_wherever_they_happen() {
    for call in 1..30 {
        let memory = Memory::direct();
        let disk = Arc::new(Faulty::lasting(Arc::new(memory.clone()), Fault::Short, u64::MAX, 3));
        let mut journal = Local::open(disk.clone(), options()).unwrap();
        journal.fence(1, Epoch(1)).unwrap();
        disk.fail_in(call);
        assert_eq!(write_until_failure(&mut journal, 6), (6, false), "call {call}");
        drop(journal);
        let journal = Local::open(Arc::new(memory.crash_image(0)), options()).unwrap();
        let places: Vec<Place> = (1..=6).map(|body| journal.place(BodyId(body)).unwrap()).collect();
        must_read(&places, &format!("call {call}"));
    }
}

#[test]
fn what_is_scrubbed_is_on_the_disk_and_what_is_in_flight_comes_next_time() {
    let memory = Memory::direct();
    let mut journal = Local::open(Arc::new(memory.clone()), options()).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    let scrubbed = |journal: &Local| {
        let scrub = journal.scrub(Position(0)).unwrap();
        let mut damage = Vec::new();
        let counts = scrub.run(&mut |_| {}, &mut |error| damage.push(error)).unwrap();
        (counts.batches, damage.iter().filter_map(Error::flaw).collect::<Vec<_>>())
    };
    for at in 1..=8 {
        let ticket = journal.append(&draft(at), Position(at)).unwrap();
        assert_eq!(scrubbed(&journal), (at - 1, vec![]), "what is in flight is no damage");
        assert!(matches!(ticket.wait(), Outcome::Committed));
        assert_eq!(scrubbed(&journal), (at, vec![]));
    }
    // The page in which the next frame begins is in memory too; it is read from the disk all the same.
    let end = journal.offset as usize;
    assert!(!end.is_multiple_of(PAGE_BYTES), "the last page is begun");
    let _ticket = journal.append(&draft(9), Position(9)).unwrap();
    memory.damage(&names::segment(1), |bytes| bytes[end - 20] ^= 1);
    assert_eq!(scrubbed(&journal).1, [crate::Flaw::BodyChecksum]);
}
