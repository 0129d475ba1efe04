//! The power goes at every boundary between two calls that change the disk, and the disk keeps what it likes of what
//! was not synced: nothing, everything, torn sectors, later writes without earlier ones.

use crate::is_long;
use crate::judge::judge;
use crate::owner::{Shared, TestPartition, Told, options, work};
use crate::watching::watching;
use broker::Time;
use journal::disk::{Disk, Memory};
use journal::{Durability, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Images of one boundary beside "nothing more" and "everything".
const MIXTURES: u64 = 6;

fn run(seed: u64, operations: u32, durability: Durability) -> (u64, u64, u64) {
    let memory = if seed.is_multiple_of(2) { Memory::direct() } else { Memory::new() };
    let told = Shared::default();
    let (calls, images) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (heard, call, count) = (told.clone(), calls.clone(), images.clone());
    let disk = watching(memory.clone(), move |memory| {
        let call = call.fetch_add(1, Ordering::Relaxed);
        let told = heard.lock();
        // What was not synced may be lost. The rest must be whole, and the journal must open.
        let unsure = Told { tried: told.tried.clone(), ..Told::default() };
        let told = if durability == Durability::Os { &unsure } else { &*told };
        for image in [0, 1].into_iter().chain((0..MIXTURES).map(|n| 2 + seed * 7_919 + call * 31 + n)) {
            judge(&memory.crash_image(image), told, &format!("seed {seed}, call {call}, image {image}"));
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let options = Options { durability, ..options() };
    let mut partition = TestPartition::open_with(disk, told, Time(1_000_000), options).unwrap();
    work(&mut partition, operations, 1, seed).unwrap();
    partition.rest(40).unwrap();
    partition.stop().unwrap();
    let snapshots = memory.list().unwrap().iter().filter(|name| name.ends_with(".snapshot")).count();
    assert_eq!(snapshots, 2, "the run takes snapshots");
    let trimmed = memory.list().unwrap().iter().any(|name| name == "0000000000000001.segment");
    (calls.load(Ordering::Relaxed), images.load(Ordering::Relaxed), u64::from(!trimmed))
}

#[test]
fn a_power_cut_at_any_boundary_loses_nothing_accepted_and_brings_nothing_completed_back() {
    // R4: every boundary of runs of 300 operations.
    let runs = if is_long() { 8 } else { 2 };
    let (mut boundaries, mut images, mut trimmed) = (0, 0, 0);
    for seed in 1..=runs {
        let (calls, judged, has_trimmed) = run(seed, 300, Durability::LocalSync);
        boundaries += calls;
        images += judged;
        trimmed += has_trimmed;
    }
    println!("{images} images at {boundaries} boundaries of {runs} runs of 300 operations");
    assert!(trimmed > 0, "no run gave space back");
    assert!(images >= 10_000, "{images} images");
}

#[test]
fn a_power_cut_at_any_boundary_leaves_a_journal_that_opens_also_where_nothing_is_synced_at_once() {
    let runs = if is_long() { 8 } else { 1 };
    let (mut images, mut trimmed) = (0, 0);
    for seed in 11..11 + runs {
        let (_, judged, has_trimmed) = run(seed, 300, Durability::Os);
        images += judged;
        trimmed += has_trimmed;
    }
    println!("{images} images of {runs} runs of 300 operations without syncing");
    assert!(trimmed > 0 && images > 2_000, "{images} images, {trimmed} runs gave space back");
}
