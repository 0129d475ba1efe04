//! Any bytes, read as an Atom entry: bounded, and the same once written.
//!
//! The body lives in the crate, because it needs its insides.

pub fn run(bytes: &[u8]) {
    otobus_gateway::fuzzing::atom_xml(bytes);
}
