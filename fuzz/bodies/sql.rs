//! Any texts, taken as a filter and an action and asked about a message: bounded work, and the same meaning once written.
//!
//! The body lives in the crate, because it needs its insides.

pub fn run(bytes: &[u8]) {
    otobus_broker::fuzzing::sql(bytes);
}
