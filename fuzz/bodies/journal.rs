//! Any damage to a healthy journal: refused, harmless, or an unsealed last batch cut; never a panic, never wrong bytes.
//!
//! The body lives in the crate, because stamping patched frames again needs its insides.

pub fn run(bytes: &[u8]) {
    otobus_journal::fuzzing::journal(bytes);
}
