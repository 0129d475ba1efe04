//! What the store holds in memory, counted by the allocator, against what it says it holds and against its budget. One test alone,
//! for the allocator counts the whole process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use items::{Changes, View};
use journal::Position;
use otobus_items_engine::{Layered, Lsm, Store};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const ROW_BYTES: u64 = 4 << 20;
const BLOCK_BYTES: u64 = 4 << 20;
const TABLE_BYTES: u64 = 4 << 20;
/// Beside what has a budget: a file that is being written.
const SPARE_BYTES: u64 = 8 << 20;
/// Forty times the table.
const ITEMS: u64 = 64_000;

/// An item and seven entries of its index, as the items write them.
fn write(store: &dyn Store, changes: &mut Changes, number: u64) {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    changes.put(format!("item {mixed:020} of a container"), [7; 1_200]);
    for path in 0..7 {
        changes.put(format!("index {path} {:020} and the place {mixed:020}", mixed.rotate_left(path)), []);
    }
    store.write(changes);
}

// P7
#[test]
fn tables_rows_and_blocks_hold_what_they_count_however_much_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let store = Layered::over(Lsm::open(directory.path(), BLOCK_BYTES).unwrap(), ROW_BYTES).unwrap();
    let before = MEMORY.current_usage() as u64;
    let held = || (MEMORY.current_usage() as u64).saturating_sub(before);
    let mut changes = Changes::default();
    let mut position = 0;
    for number in 0..ITEMS {
        write(&store, &mut changes, number);
        if store.open_bytes() < TABLE_BYTES {
            continue;
        }
        position += 1;
        if position == 1 {
            let (counted, held) = (store.open_bytes(), held());
            assert!(held < counted * 11 / 10, "{held} bytes are held and {counted} counted");
        }
        store.close_table(Position(position));
        assert!(
            store.recent_bytes() >= TABLE_BYTES && store.open_bytes() == 0,
            "what is closed still counts"
        );
        store.flush().unwrap();
        assert_eq!(store.recent_bytes(), 0);
        while store.tidy().unwrap() {}
        for wanted in number.saturating_sub(900)..number {
            let mixed = wanted.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert!(store.get(format!("item {mixed:020} of a container").as_bytes()).unwrap().is_some());
        }
    }
    assert!(position >= 30, "{position}");
    let (peak, disk) = ((MEMORY.peak_usage() as u64).saturating_sub(before), store.disk_bytes());
    let budget = TABLE_BYTES + ROW_BYTES + BLOCK_BYTES + SPARE_BYTES;
    assert!(disk > 3 * budget, "{disk} bytes are stored");
    assert!(peak < budget, "{peak} bytes were held at a time, {budget} may be; {} at the end", held());
}
