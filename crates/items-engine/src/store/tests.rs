//! What every store must do.

use super::*;

fn changes(entries: &[(&str, Option<&str>)]) -> Changes {
    let owned = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let entry = |(key, value): &(&str, Option<&str>)| (owned(key), value.map(owned));
    let mut changes = Changes::default();
    changes.entries = entries.iter().map(entry).collect();
    changes
}

fn seen(view: &dyn View, direction: Direction) -> Vec<String> {
    let text = |entry: Result<(Bytes, Bytes), Unreadable>| {
        let (key, value) = entry.unwrap();
        assert_eq!(view.get(&key).unwrap().as_ref(), Some(&value), "a scan and a get agree");
        format!("{}={}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value))
    };
    view.scan(b"a", b"z", direction).map(text).collect()
}

const ROW_BYTES: u64 = 1 << 20;

/// Runs `test` on every store, with a way to open it again as after a crash.
fn on_every_store(test: impl Fn(&dyn Fn() -> Arc<dyn Store>)) {
    let disk = MemoryDisk::default();
    test(&|| Arc::new(Layered::over(Memory::open(&disk), ROW_BYTES).unwrap()));
    let directory = tempfile::tempdir().unwrap();
    test(&|| Arc::new(Layered::over(Lsm::open(directory.path(), 32 << 20).unwrap(), ROW_BYTES).unwrap()));
}

#[test]
fn a_view_shows_what_was_written_before_it_and_nothing_else() {
    on_every_store(|open| {
        let store = open();
        store.write(&mut changes(&[("b", Some("1")), ("c", Some("1")), ("d", Some("1"))]));
        let before = store.freeze();
        store.write(&mut changes(&[("b", Some("2")), ("c", None), ("e", Some("2"))]));
        store.write(&mut changes(&[("d", Some("2")), ("d", None), ("f", None), ("f", Some("2"))]));
        let check = || {
            assert_eq!(seen(&*before, Direction::Ascending), ["b=1", "c=1", "d=1"]);
            assert_eq!(seen(&*before, Direction::Descending), ["d=1", "c=1", "b=1"]);
            assert_eq!(seen(&*store, Direction::Ascending), ["b=2", "e=2", "f=2"]);
            assert_eq!(seen(&*store.freeze(), Direction::Descending), ["f=2", "e=2", "b=2"]);
            assert_eq!(before.get(b"c").unwrap().as_deref(), Some(&b"1"[..]));
            assert_eq!(store.get(b"c").unwrap(), None);
        };
        check();
        store.close_table(Position(7));
        check();
        store.flush().unwrap();
        while store.tidy().unwrap() {}
        check();
        store.write(&mut changes(&[("e", None), ("g", Some("3"))]));
        assert_eq!(seen(&*before, Direction::Ascending), ["b=1", "c=1", "d=1"]);
        assert_eq!(seen(&*store, Direction::Ascending), ["b=2", "f=2", "g=3"]);
    });
}

#[test]
fn a_crash_goes_back_to_the_newest_checkpoint_and_nothing_in_between() {
    on_every_store(|open| {
        let store = open();
        assert_eq!(store.durable(), Position(0));
        store.write(&mut changes(&[("b", Some("1"))]));
        store.close_table(Position(3));
        store.write(&mut changes(&[("b", Some("2")), ("c", Some("2"))]));
        assert_eq!(store.durable(), Position(0));
        store.flush().unwrap();
        assert_eq!(store.durable(), Position(3));
        assert_eq!(seen(&*store, Direction::Ascending), ["b=2", "c=2"]);
        drop(store);
        let store = open();
        assert_eq!(store.durable(), Position(3));
        assert_eq!(seen(&*store, Direction::Ascending), ["b=1"]);
        // What is written again goes over what is there.
        store.write(&mut changes(&[("b", Some("3"))]));
        assert_eq!(seen(&*store, Direction::Ascending), ["b=3"]);
        store.close_table(Position(4));
        drop(store);
        assert_eq!(open().durable(), Position(3), "closed is not durable");
    });
}

#[test]
fn many_checkpoints_are_merged_and_keep_the_newest() {
    on_every_store(|open| {
        let store = open();
        for round in 0..20 {
            let of_round = round.to_string();
            let entries: Vec<_> = ["b", "c", "d"].iter().map(|key| (*key, Some(of_round.as_str()))).collect();
            store.write(&mut changes(&entries));
            store.write(&mut changes(&[(["x", "y"][round % 2], [None, Some("1")][round % 3 % 2])]));
            store.close_table(Position(round as u64 + 1));
            store.flush().unwrap();
            while store.tidy().unwrap() {}
            assert!(
                store.overlapping_files() <= usize::from(crate::limits::MERGE_FILES) + 1,
                "{}",
                store.overlapping_files()
            );
        }
        let expected = seen(&*store, Direction::Ascending);
        assert_eq!(expected[..3], ["b=19", "c=19", "d=19"]);
        drop(store);
        let store = open();
        assert_eq!(seen(&*store, Direction::Ascending), expected);
        assert_eq!(store.durable(), Position(20));
    });
}

#[test]
fn a_scan_of_many_entries_is_whole_in_both_directions() {
    on_every_store(|open| {
        let store = open();
        let keys: Vec<String> = (0..2_000).map(|n| format!("k{n:05}")).collect();
        for (nth, key) in keys.iter().enumerate() {
            store.write(&mut changes(&[(key, Some("old"))]));
            if nth == 700 || nth == 1_400 {
                store.close_table(Position(nth as u64));
                store.flush().unwrap();
            }
        }
        for key in keys.iter().step_by(3) {
            store.write(&mut changes(&[(key, None)]));
        }
        let left: Vec<String> = keys
            .iter()
            .enumerate()
            .filter(|(nth, _)| nth % 3 != 0)
            .map(|(_, key)| format!("{key}=old"))
            .collect();
        assert_eq!(seen(&*store, Direction::Ascending), left);
        assert_eq!(seen(&*store.freeze(), Direction::Ascending), left);
        let reversed: Vec<String> = left.iter().rev().cloned().collect();
        assert_eq!(seen(&*store, Direction::Descending), reversed);
        assert_eq!(seen(&*store.freeze(), Direction::Descending), reversed);
    });
}
