//! Replays the corpus of the fuzz target, so that no crash comes back unnoticed.

#[path = "../../../fuzz/bodies/journal.rs"]
mod body;

use std::path::Path;

#[test]
fn the_corpus_holds_no_surprises() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/journal");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        body::run(&std::fs::read(path).unwrap());
        count += 1;
    }
    assert!(count >= 15, "{count} files in {}", folder.display());
}

/// A few thousand scripts of our own, for where no fuzzer runs.
#[test]
fn random_patches_hold_no_surprises() {
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    for _ in 0..4000 {
        let mut script = vec![(draw() % 2) as u8];
        for _ in 0..=draw() % 4 {
            // Mostly into the frames, rarely into the headers, and nearly always into a segment.
            let offset = if draw() % 8 == 0 { draw() % 80 } else { 4096 + draw() % 16384 };
            script.push((draw() % 7 % 3) as u8);
            script.extend_from_slice(&(offset as u16).to_le_bytes());
            script.push(1 << (draw() % 8));
        }
        body::run(&script);
    }
}
