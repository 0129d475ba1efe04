//! What only the journal on segment files can be asked: files, damage, recycling.

use super::segment::Header;
use super::*;
use crate::disk::{Call, Memory, Watched};
use crate::ticket::Outcome;

fn options(seed: u64) -> Options {
    let (segment_bytes, first_segment_bytes) = (16 * 1024, 8 * 1024);
    Options {
        filling: Filling::Never,
        segment_bytes,
        first_segment_bytes,
        reserve_segments: 0,
        ..Options::new(seed)
    }
}

fn open(disk: &Memory) -> Result<Local, Error> {
    let mut journal = Local::open(Arc::new(disk.clone()), options(1))?;
    let epoch = journal.epoch().next();
    journal.fence(7, epoch)?;
    Ok(journal)
}

fn write(journal: &mut Local, body: &[u8]) {
    let at = journal.tail().next();
    let mut draft =
        Draft { time: at.0 as i64, record_count: 1, records: vec![at.0 as u8; 5], ..Draft::default() };
    draft.push_body(body);
    let ticket = journal.append(&draft, at).unwrap();
    assert!(matches!(ticket.wait(), Outcome::Committed));
}

#[test]
fn what_was_written_is_read_back_after_a_restart_over_many_segments() {
    let disk = Memory::new();
    let mut journal = open(&disk).unwrap();
    for n in 0..100u8 {
        write(&mut journal, &[n; 700]);
    }
    drop(journal);
    let journal = open(&disk).unwrap();
    assert!(journal.segments.len() > 4);
    assert_eq!(journal.tail(), Position(100));
    assert_eq!(journal.next_body(), BodyId(101));
    let mut seen = 0;
    let each = &mut |batch: Batch<'_>| {
        seen += 1;
        assert_eq!(batch.position, Position(seen));
        assert_eq!(batch.records, [seen as u8; 5]);
        Ok(())
    };
    journal.read(Position(1), each).unwrap();
    assert_eq!(seen, 100);
    for n in 0..100u64 {
        assert_eq!(journal.place(BodyId(n + 1)).unwrap().read().unwrap(), [n as u8; 700]);
    }
    assert!(journal.place(BodyId(101)).is_none() && journal.place(BodyId(0)).is_none());
}

#[test]
fn the_thread_that_fills_ahead_gives_the_next_segment() {
    let folder = crate::fuzzing::Scratch::new("fill");
    let disk = Arc::new(crate::disk::File::open(folder.path()).unwrap());
    let options = Options { filling: Filling::Background, ..options(1) };
    let mut journal = Local::open(disk, options).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    for _ in 0..100 {
        write(&mut journal, &[3; 900]);
    }
    assert_eq!(journal.place(BodyId(50)).unwrap().read().unwrap(), [3; 900]);
}

/// Writes and gives back, as when messages leave as fast as they come, until so many segments were used.
fn go_round(journal: &mut Local, segments: u64) {
    while journal.active().header.ordinal < segments {
        write(journal, &[3; 900]);
        if journal.segments.len() > 2 {
            let tail = journal.tail();
            journal.snapshots().put(tail, &mut |out| out.write_all(b"all are gone")).unwrap();
            journal.trim(tail).unwrap();
        }
    }
}

#[test]
fn segments_that_come_back_are_used_again_and_none_is_made() {
    let disk = Memory::new();
    let mut journal = open(&disk).unwrap();
    go_round(&mut journal, 10);
    // Room for a snapshot, but for no segment.
    disk.set_room(Some(journal.space().unwrap().used_bytes + 4096));
    go_round(&mut journal, 30);
    drop(journal);
    // After a restart as well.
    go_round(&mut open(&disk).unwrap(), 40);
}

#[test]
fn while_segments_come_back_none_is_filled_before_half_of_the_last_is_used() {
    let disk = Memory::new();
    let options = Options { filling: Filling::Background, ..options(1) };
    let mut spare = Spare::new(Arc::new(disk.clone()), Arc::default(), &options, &[]);
    disk.create("old").unwrap();
    assert!(spare.recycle("old", options.segment_bytes).unwrap());
    let header = |ordinal| Header { ordinal, ..open(&disk).unwrap().active().header };
    let (_, from) = spare.make(&Header { bytes: options.segment_bytes, ..header(2) }).unwrap();
    assert_eq!(from, names::SPARE_RECYCLED);
    spare.prepare(49, 100);
    assert!(!spare.is_filling());
    spare.prepare(50, 100);
    assert!(spare.is_filling());
}

#[test]
fn a_write_leaves_no_page_half_old() {
    let disk = Memory::new();
    let mut journal = open(&disk).unwrap();
    go_round(&mut journal, 10);
    let name = names::segment(journal.active().header.ordinal);
    disk.damage(&name, |content| content[journal.offset as usize..].fill(0xee));
    write(&mut journal, &[4; 900]);
    let (content, end) = (disk.content(&name).unwrap(), journal.offset as usize);
    let page_end = end.next_multiple_of(4096).min(content.len());
    assert!(end < page_end, "the test needs a frame that ends within a page");
    assert!(content[end..page_end].iter().all(|byte| *byte == 0));
}

#[test]
#[should_panic(expected = "an append is in flight")]
fn a_second_append_in_flight_is_a_bug() {
    let mut journal = open(&Memory::new()).unwrap();
    let _first = journal.append(&Draft::default(), Position(1)).unwrap();
    let _ = journal.append(&Draft::default(), Position(2));
}

#[test]
#[should_panic(expected = "an append goes behind the tail")]
fn an_append_at_another_position_is_a_bug() {
    let mut journal = open(&Memory::new()).unwrap();
    let _ = journal.append(&Draft::default(), Position(2));
}

#[test]
#[should_panic(expected = "the journal was not fenced")]
fn an_append_without_a_fence_is_a_bug() {
    let mut journal = Local::open(Arc::new(Memory::new()), options(1)).unwrap();
    let _ = journal.append(&Draft::default(), Position(1));
}

#[test]
fn a_full_disk_refuses_the_next_segment_and_goes_on_when_there_is_room() {
    use crate::disk::{Fault, Faulty};
    let mut was_full = 0;
    for call in 1..200 {
        let disk = Arc::new(Faulty::new(Arc::new(Memory::new()), Fault::Enospc, call));
        let Ok(mut journal) = Local::open(disk, options(1)) else { continue };
        if journal.fence(1, Epoch(1)).is_err() {
            continue;
        }
        let mut draft = Draft::default();
        draft.push_body(&[1; 3000]);
        for at in (1..12).map(Position) {
            let ticket = match journal.append(&draft, at) {
                Err(Error::Full { .. }) => {
                    was_full += 1;
                    assert_eq!(journal.tail().next(), at, "nothing was written");
                    journal.append(&draft, at).unwrap()
                }
                Err(_) => break,
                Ok(ticket) => ticket,
            };
            if !matches!(ticket.wait(), Outcome::Committed) {
                break;
            }
        }
    }
    assert!(was_full > 3, "{was_full}");
}

#[test]
fn a_second_process_is_told_whom_to_stop() {
    let disk = Memory::new();
    let _first = open(&disk).unwrap();
    let refused = open(&disk).unwrap_err().to_string();
    assert!(refused.contains(&format!("in use by process {}", std::process::id())), "{refused}");
}

#[test]
fn a_journal_opens_with_segments_of_any_size() {
    for bytes in [0, 1, 4095, 4096, 4097, 5000] {
        let disk = Memory::new();
        let options = Options { segment_bytes: bytes, first_segment_bytes: bytes, ..options(1) };
        for life in 0..3 {
            let mut journal = Local::open(Arc::new(disk.clone()), options.clone()).unwrap();
            assert_eq!(journal.tail(), Position(life * 2));
            journal.fence(1, Epoch(life + 1)).unwrap();
            write(&mut journal, &[1; 6000]);
            write(&mut journal, b"");
        }
    }
}

#[test]
fn the_reserve_carries_a_full_disk_through_a_roll_and_comes_back() {
    let disk = Memory::new();
    let options = Options { reserve_segments: 2, ..options(1) };
    let mut journal = Local::open(Arc::new(disk.clone()), options).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    assert!(journal.has_reserve());
    let used = journal.space().unwrap().used_bytes;
    // Somebody else has taken everything that is left.
    disk.set_room(Some(used));
    let mut rolls = 0;
    while journal.has_reserve() {
        let segments = journal.segments.len();
        write(&mut journal, &[1; 3000]);
        rolls += usize::from(journal.segments.len() > segments);
    }
    assert_eq!(rolls, 1, "the first roll draws on the reserve");
    // What is left of it takes a snapshot and one more segment.
    let at = journal.tail();
    journal.put_snapshot(at, &mut |out| out.write_all(&[5; 4000])).unwrap();
    assert!(!journal.refill_reserve().unwrap(), "there is no room for it");
    disk.set_room(None);
    assert!(journal.refill_reserve().unwrap() && journal.has_reserve());
}

#[test]
fn a_small_disk_takes_its_reserve_back_at_the_price_of_the_spare() {
    let disk = Memory::new();
    let options = Options { reserve_segments: 2, first_segment_bytes: 16 * 1024, ..options(1) };
    let mut journal = Local::open(Arc::new(disk.clone()), options).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    (0..12).for_each(|n| write(&mut journal, &[n; 3000]));
    let used = journal.space().unwrap().used_bytes;
    disk.set_room(Some(used));
    while journal.has_reserve() {
        write(&mut journal, &[1; 3000]);
    }
    let at = journal.tail();
    for at in [at.0 - 1, at.0] {
        journal.put_snapshot(Position(at), &mut |_| Ok(())).unwrap();
    }
    journal.trim(at).unwrap();
    let spares = || [names::SPARE, names::SPARE_RECYCLED].map(|name| disk.content(name).is_some());
    assert_eq!(spares(), [true, true], "what was trimmed became spares");
    let used: usize =
        disk.list().unwrap().iter().map(|name| disk.content(name).map_or(0, |bytes| bytes.len())).sum();
    // The reserve and an eighth of a segment, with the spares and not without.
    let needed = 2 * 16 * 1024 + 2 * 1024 - 2 * 16 * 1024;
    disk.set_room(Some(used as u64 + needed - 1));
    assert_eq!(journal.lacking_bytes(), 1);
    assert!(!journal.refill_reserve().unwrap());
    disk.set_room(Some(used as u64 + needed));
    assert_eq!(journal.lacking_bytes(), 0);
    assert!(journal.refill_reserve().unwrap());
    assert_eq!(spares(), [false, false]);
    write(&mut journal, b"it goes on");
}

#[test]
fn where_room_cannot_be_reserved_a_full_disk_refuses_the_frame_and_loses_nothing() {
    use crate::disk::{Fault, Faulty};
    let memory = Memory::new();
    let disk = Arc::new(Faulty::new(Arc::new(memory.clone()), Fault::Enospc, u64::MAX));
    let mut journal = Local::open(disk.clone(), options(1)).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    for n in 1..=6 {
        let mut draft = Draft::default();
        draft.push_body(&[n as u8; 1000]);
        disk.fail_in(1);
        let refused = journal.append(&draft, Position(n)).unwrap_err();
        assert!(matches!(refused, Error::Full { .. }), "{refused}");
        disk.fail_in(1);
        let refused = journal.seal().err();
        assert!(n == 1 || matches!(refused, Some(Error::Full { .. })), "{refused:?}");
        disk.fail_in(u64::MAX / 2);
        // What was begun is no batch, and the next one takes its place.
        assert_eq!(Local::open(Arc::new(memory.crash_image(1)), options(1)).unwrap().tail().0, n - 1);
        assert!(matches!(journal.append(&draft, Position(n)).unwrap().wait(), Outcome::Committed));
    }
    drop(journal);
    let journal = Local::open(Arc::new(memory.crash_image(0)), options(1)).unwrap();
    assert_eq!(journal.tail(), Position(6));
    assert_eq!(journal.place(BodyId(6)).unwrap().read().unwrap(), [6; 1000]);
}

#[test]
fn a_full_disk_without_a_reserve_left_loses_nothing_and_goes_on() {
    let disk = Memory::new();
    let mut journal = Local::open(Arc::new(disk.clone()), options(1)).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    disk.set_room(Some(journal.space().unwrap().used_bytes));
    let mut draft = Draft::default();
    draft.push_body(&[1; 3000]);
    let refused = loop {
        let at = journal.tail().next();
        match journal.append(&draft, at) {
            Ok(ticket) => assert!(matches!(ticket.wait(), Outcome::Committed)),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    let at = journal.tail().next();
    assert!(matches!(journal.append(&draft, at), Err(Error::Full { .. })), "still full");
    disk.set_room(None);
    assert!(matches!(journal.append(&draft, at).unwrap().wait(), Outcome::Committed));
}

#[test]
fn many_segments_need_few_handles() {
    let folder = crate::fuzzing::Scratch::new("handles");
    let open_files = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap();
        let names = files.filter_map(|each| std::fs::read_link(each.unwrap().path()).ok());
        names.filter(|name| name.starts_with(folder.path())).count()
    };
    let disk = || Arc::new(crate::disk::File::open(folder.path()).unwrap());
    // A segment for each batch.
    let small = || Options { segment_bytes: 4096, first_segment_bytes: 4096, ..options(1) };
    // The segments, the one that is written, which is open twice, one whose pages are released, their list, the directory and
    // the lock on it.
    let most = crate::limits::SEGMENT_HANDLES + 6;
    let count = 300;
    let mut journal = Local::open(disk(), small()).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    (0..count).for_each(|n| write(&mut journal, &[n as u8; 100]));
    assert!(journal.segments.len() >= count && open_files() <= most, "{} are open", open_files());
    drop(journal);
    let mut journal = Local::open(disk(), small()).unwrap();
    assert!(open_files() <= most, "{} are open after a start", open_files());
    journal.fence(1, Epoch(2)).unwrap();
    let places: Vec<_> = (1..=count as u64).map(|body| journal.place(BodyId(body)).unwrap()).collect();
    for (n, place) in places.iter().enumerate() {
        assert_eq!(place.read().unwrap(), [n as u8; 100]);
    }
    assert!(open_files() <= most, "{} are open after reading all", open_files());
    // What goes is closed, unless somebody still reads it.
    drop(places);
    let place = journal.place(BodyId(7)).unwrap();
    let last = journal.tail();
    for at in [last.0 - 1, last.0] {
        journal.put_snapshot(Position(at), &mut |_| Ok(())).unwrap();
    }
    journal.trim(last).unwrap();
    assert!(journal.segments.len() < 5 && open_files() < 12, "{} are open after trimming", open_files());
    assert_eq!(place.read().unwrap(), [6; 100], "its file has no name any more");
}

#[test]
fn a_process_without_handles_waits_and_loses_nothing() {
    let is_scarce = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let scarce = is_scarce.clone();
    let watch = move |call: Call<'_>| match call {
        Call::Create(_) | Call::Open(_) if scarce.load(std::sync::atomic::Ordering::Relaxed) => {
            Err(rustix::io::Errno::MFILE.into())
        }
        _ => Ok(()),
    };
    let disk = Watched::new(Arc::new(Memory::new()), Arc::new(watch));
    let mut journal = Local::open(Arc::new(disk), options(1)).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    (0..20).for_each(|n| write(&mut journal, &[n; 3000]));
    is_scarce.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut draft = Draft::default();
    draft.push_body(&[9; 3000]);
    let refused = loop {
        let at = journal.tail().next();
        match journal.append(&draft, at) {
            Ok(ticket) => assert!(matches!(ticket.wait(), Outcome::Committed)),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    is_scarce.store(false, std::sync::atomic::Ordering::Relaxed);
    write(&mut journal, b"it goes on");
    assert_eq!(journal.place(BodyId(1)).unwrap().read().unwrap(), [0; 3000]);
}

#[test]
fn after_a_snapshot_that_could_not_be_written_nothing_more_is_taken() {
    use crate::disk::{Fault, Faulty};
    let mut stopped = 0;
    for call in 1.. {
        let disk = Arc::new(Faulty::new(Arc::new(Memory::new()), Fault::Eio, u64::MAX));
        let mut journal = Local::open(disk.clone(), options(1)).unwrap();
        journal.fence(1, Epoch(1)).unwrap();
        write(&mut journal, b"one");
        let before = disk.calls();
        disk.fail_in(call);
        let written = journal.put_snapshot(Position(1), &mut |out| out.write_all(&[5; 4000]));
        if disk.calls() - before < call {
            assert!(written.is_ok() && call > 4, "{written:?} at call {call}");
            break;
        }
        let failed = written.unwrap_err();
        assert!(matches!(failed, Error::Io { .. }), "call {call}: {failed}");
        let refused = journal.append(&Draft::default(), Position(2)).unwrap_err();
        assert!(matches!(refused, Error::Stopped { .. }), "call {call}: {refused}");
        stopped += 1;
    }
    assert!(stopped > 4);
}

#[test]
fn what_is_left_to_whoever_waits_can_be_read_before_and_is_on_the_disk_after() {
    let disk = Memory::direct();
    let one = |seed| Options { segment_bytes: 8 << 20, first_segment_bytes: 8 << 20, ..options(seed) };
    let mut journal = Local::open(Arc::new(disk.clone()), one(1)).unwrap();
    journal.fence(1, Epoch(1)).unwrap();
    let content = || disk.content(&names::segment(1)).unwrap();
    for (n, bytes) in [100, 5_000, 70_000, 3 << 20, 40].into_iter().enumerate() {
        let mut draft = Draft { record_count: 1, records: vec![n as u8; 9], ..Draft::default() };
        draft.push_body(&vec![n as u8 + 1; bytes]);
        let (at, before) = (journal.tail().next(), content());
        let ticket = journal.append(&draft, at).unwrap();
        let place = journal.place(BodyId(n as u64 + 1)).unwrap();
        assert!(place.read().unwrap() == vec![n as u8 + 1; bytes], "read before it is written");
        let mut seen = Vec::new();
        let mut see = |batch: Batch<'_>| {
            seen.push(batch.position);
            Ok(())
        };
        journal.read(at, &mut see).unwrap();
        assert_eq!(seen, [at], "and so are its records");
        assert!(content() == before, "nobody has waited for the disk");
        assert!(matches!(ticket.wait(), Outcome::Committed));
        assert!(place.read().unwrap() == vec![n as u8 + 1; bytes], "read after it was written");
    }
    drop(journal);
    let journal = Local::open(Arc::new(disk.crash_image(0)), one(2)).unwrap();
    assert_eq!((journal.tail(), journal.cut()), (Position(5), None));
}
