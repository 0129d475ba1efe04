//! Every input that the fuzzer keeps, replayed.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/bodies/like.rs"]
mod like;
#[path = "../../../fuzz/bodies/snapshot.rs"]
mod snapshot;
#[path = "../../../fuzz/bodies/sql.rs"]
mod sql;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        run(&fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 5, "{count} files in {}", folder.display());
}

#[test]
fn every_kept_rule_is_asked_within_its_budget() {
    replay("sql", sql::run);
}

#[test]
fn every_kept_pattern_matches_as_the_plainest_matcher_does() {
    replay("like", like::run);
}

#[test]
fn every_kept_snapshot_is_refused_or_written_again_to_the_same() {
    replay("snapshot", snapshot::run);
}
