#![no_main]

#[path = "../bodies/snapshot.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
