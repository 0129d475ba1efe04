//! Hashes for comparing: bodies with what was sent, and one run with another. No protection against anybody.

use std::hash::{DefaultHasher, Hasher};

pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Everything that came out of a run, boiled down to one number.
#[derive(Debug, Default, Clone)]
pub struct Trace(DefaultHasher);

impl Trace {
    pub fn add(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.0.write_u64(*number));
    }

    pub fn hash(&self) -> u64 {
        self.0.finish()
    }
}
