//! Every input that the fuzzer keeps, replayed, and thousands that are made of them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/bodies/binary_json.rs"]
mod binary_json;
#[path = "../../../fuzz/bodies/items_continuation.rs"]
mod items_continuation;
#[path = "../../../fuzz/bodies/items_patch.rs"]
mod items_patch;
#[path = "../../../fuzz/bodies/items_query.rs"]
mod items_query;

/// Inputs that are made of the kept ones for each target. More: `OTOBUS_NOISE=100000 cargo test --test corpus`.
const NOISE: u64 = 2_000;

fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no corpus in {}", folder.display());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn replay(target: &str, run: fn(&[u8])) {
    let kept = kept(target);
    kept.iter().for_each(|input| run(input));
    let mut state = 0x2026_1115_u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let count = std::env::var("OTOBUS_NOISE").ok().and_then(|count| count.parse().ok()).unwrap_or(NOISE);
    for _ in 0..count {
        let mut input = kept[draw(kept.len())].clone();
        for _ in 0..=draw(4) {
            let (at, other) = (draw(input.len() + 1), &kept[draw(kept.len())]);
            let (from, length) = (draw(other.len() + 1), draw(24));
            let piece = other[from..other.len().min(from + length)].to_vec();
            let end = input.len().min(at + draw(8));
            match draw(3) {
                // Bytes are left out, put in from another input, or changed.
                0 => drop(input.drain(at..end)),
                1 => drop(input.splice(at..end, piece)),
                _ => input[at..end].iter_mut().for_each(|byte| *byte ^= 1 << draw(8)),
            }
        }
        println!("{}", String::from_utf8_lossy(&input));
        run(&input);
    }
}

#[test]
fn every_kept_binary_json_is_read_without_harm() {
    replay("binary_json", binary_json::run);
}

#[test]
fn every_kept_query_is_read_without_harm() {
    replay("items_query", items_query::run);
}

#[test]
fn every_kept_patch_leaves_an_item() {
    replay("items_patch", items_patch::run);
}

#[test]
fn every_kept_continuation_is_refused_or_gives_a_page() {
    replay("items_continuation", items_continuation::run);
}
