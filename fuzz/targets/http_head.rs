#![no_main]

#[path = "../bodies/http_head.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
