//! Every input that the fuzzer keeps, replayed.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/bodies/items_head.rs"]
mod items_head;

#[test]
fn every_kept_head_of_a_request_to_the_items_is_read_without_harm() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/items_head");
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        items_head::run(&fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count > 0, "no corpus in {}", folder.display());
}
