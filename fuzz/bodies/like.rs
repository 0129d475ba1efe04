//! Any pattern against any value: as the plainest matcher has it, in steps that grow with the value alone.
//!
//! The body lives in the crate, because it needs its insides.

pub fn run(bytes: &[u8]) {
    otobus_broker::fuzzing::like(bytes);
}
