//! Any frames, read as a snapshot of the broker: refused, or written and read again to the same.
//!
//! The body lives in the crate, because it needs its insides.

pub fn run(bytes: &[u8]) {
    otobus_broker::fuzzing::snapshot(bytes);
}
