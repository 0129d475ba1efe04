//! Hashes for comparing: bodies with what was sent, and one run with another. Quick, the same on every machine, and no
//! protection against anybody.

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(hash: u64, number: u64) -> u64 {
    let product = (hash ^ number).wrapping_mul(FACTOR);
    product ^ (product >> 29)
}

pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(bytes.len() as u64, |hash, word| mixed(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, byte| mixed(hash, u64::from(*byte)))
}

/// Everything that came out of a run, boiled down to one number.
#[derive(Debug, Default, Clone)]
pub struct Trace(u64);

impl Trace {
    pub fn add(&mut self, numbers: &[u64]) {
        self.0 = numbers.iter().fold(self.0, |hash, number| mixed(hash, *number));
    }

    pub fn hash(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_or_missing_byte_changes_the_hash() {
        let bytes: Vec<u8> = (0..100).collect();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_ne!(hash_bytes(&changed), hash_bytes(&bytes));
            assert_ne!(hash_bytes(&bytes[..at]), hash_bytes(&bytes));
        }
    }
}
