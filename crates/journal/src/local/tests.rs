//! What only the journal on segment files can be asked: files, damage, recycling.

use super::*;
use crate::disk::Memory;
use crate::ticket::Outcome;

fn options(seed: u64) -> Options {
    let (segment_bytes, first_segment_bytes) = (16 * 1024, 8 * 1024);
    Options { filling: Filling::Never, segment_bytes, first_segment_bytes, ..Options::new(seed) }
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
