//! Bytes and frames without sense: nothing panics, output stays in proportion. The body is the fuzz target's.

use crate::arbitrary::plausible;
use otobus_amqp::frame::{AMQP_HEADER, SASL_HEADER};
use otobus_amqp::performative::{Begin, Open, Performative};
use otobus_amqp::sasl::Sasl;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fs;
use std::path::Path;

#[path = "../../../../fuzz/bodies/frame.rs"]
mod body;
#[path = "../../../../fuzz/bodies/connection.rs"]
mod connection;

/// A conversation up to the first session.
fn opened() -> Vec<u8> {
    let mut bytes = SASL_HEADER.to_vec();
    Sasl::Init { mechanism: "ANONYMOUS", initial_response: None, hostname: None }.write(&mut bytes);
    bytes.extend_from_slice(&AMQP_HEADER);
    let open = Open { container_id: "noise".into(), max_frame_size: 4096, ..Open::default() };
    Performative::Open(Box::new(open)).write(&mut bytes, 0, &[]);
    let begin = Begin { incoming_window: 3, ..Begin::default() };
    Performative::Begin(Box::new(begin)).write(&mut bytes, 0, &[]);
    bytes
}

proptest! {
    #[test]
    fn random_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..600), is_opened: bool) {
        let mut input = if is_opened { opened() } else { Vec::new() };
        input.extend_from_slice(&bytes);
        body::run(&input);
        body::run(&bytes);
    }

    #[test]
    fn random_frames_do_no_harm(
        frames in vec((plausible(), vec(any::<u8>(), 0..60)), 0..24),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let mut input = opened();
        let begun = input.len();
        for ((channel, performative), payload) in frames {
            performative.write(&mut input, channel, &payload);
        }
        if input.len() > begun {
            for (index, bits) in flips {
                let at = begun + index.index(input.len() - begun);
                input[at] ^= bits;
            }
        }
        body::run(&input);
    }
}

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("a corpus") {
        let path = entry.expect("a file").path();
        println!("{}", path.display());
        run(&fs::read(path).expect("a file"));
        count += 1;
    }
    assert!(count >= 10, "only {count} files");
}

#[test]
fn the_fuzzers_corpus_does_no_harm() {
    replay("frame", body::run);
}

#[test]
fn the_fuzzers_connections_mean_the_same_however_they_are_cut() {
    replay("connection", connection::run);
}
