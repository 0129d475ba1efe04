//! Every input that the fuzzer keeps, replayed.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/bodies/atom_xml.rs"]
mod atom_xml;
#[path = "../../../fuzz/bodies/broker_properties.rs"]
mod broker_properties;
#[path = "../../../fuzz/bodies/http_head.rs"]
mod http_head;
#[path = "../../../fuzz/bodies/items_head.rs"]
mod items_head;
#[path = "../../../fuzz/bodies/sas_token.rs"]
mod sas_token;
#[path = "../../../fuzz/bodies/websocket.rs"]
mod websocket;

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
fn every_kept_head_of_a_request_to_the_items_is_read_without_harm() {
    replay("items_head", items_head::run);
}

#[test]
fn every_kept_head_of_a_request_means_one_thing() {
    replay("http_head", http_head::run);
}

#[test]
fn every_kept_entry_says_the_same_once_written() {
    replay("atom_xml", atom_xml::run);
}

#[test]
fn all_kept_broker_properties_reach_the_receiver() {
    replay("broker_properties", broker_properties::run);
}

#[test]
fn no_kept_token_lets_a_stranger_in() {
    replay("sas_token", sas_token::run);
}

#[test]
fn all_kept_web_socket_frames_mean_the_same_however_they_are_cut() {
    replay("websocket", websocket::run);
}
