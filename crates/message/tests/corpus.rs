//! Every input that the fuzzer keeps, replayed.

#![allow(clippy::unwrap_used)]

use otobus_message::{Facts, Sections};
use std::fs;
use std::path::Path;

#[path = "../../../fuzz/bodies/message.rs"]
mod message;
#[path = "../../../fuzz/bodies/value.rs"]
mod value;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        run(&fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count > 0, "no corpus in {}", folder.display());
}

#[test]
fn every_kept_value_is_read_without_harm() {
    replay("value", value::run);
}

#[test]
fn every_kept_message_is_taken_in_without_harm() {
    replay("message", message::run);
}

/// The seeds say in their names whether they are sound: a seed that stops early tests little.
#[test]
fn sound_seeds_pass_intake_and_hostile_ones_do_not() {
    let hostile = [
        "fourteen-properties",
        "hostile-count",
        "hostile-size",
        "odd-map",
        "overlay",
        "overlay-out-of-order",
        "partition-key-twice",
        "properties-lie-about-their-length",
        "sections-out-of-order",
    ];
    let sound = [
        "amqp-value-body",
        "batch-of-two",
        "brokers-names-forged",
        "full-message-with-one-data-section",
        "long-ttl-told-by-two-times",
        "message-with-empty-maps-everywhere",
        "message-without-an-id",
        "symbolic-descriptors",
        "two-sequence-sections",
        "wide-descriptors",
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/message");
    let passes = |name: &&str| {
        let bytes = fs::read(folder.join(name)).unwrap();
        Sections::scan(&bytes).is_ok_and(|sections| Facts::read(&bytes, &sections).is_ok())
    };
    assert_eq!(hostile.iter().find(|name| passes(name)), None);
    assert_eq!(sound.iter().find(|name| !passes(name)), None);
}
