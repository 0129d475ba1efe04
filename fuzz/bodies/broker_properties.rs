//! Any bytes, read as broker properties: what is understood reaches the receiver as it was said.
//!
//! The body lives in the crate, because it needs its insides.

pub fn run(bytes: &[u8]) {
    otobus_gateway::fuzzing::broker_properties(bytes);
}
