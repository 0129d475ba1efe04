//! Any bytes, sent as an HTTP request in any pieces: its head means one thing, or it is refused.
//!
//! The body lives in the crate, because it needs its insides.

pub fn run(bytes: &[u8]) {
    otobus_gateway::fuzzing::http_head(bytes);
}
