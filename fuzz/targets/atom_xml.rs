#![no_main]

#[path = "../bodies/atom_xml.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
