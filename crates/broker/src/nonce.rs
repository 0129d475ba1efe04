//! The unguessable half of lock tokens: a count under a key. A receiver learns from its own tokens nothing of those of
//! others, because SipHash (Aumasson and Bernstein, 2012) is a pseudo-random function; with the same key the same numbers
//! come again, as the simulator needs.

/// Gives numbers that nobody without the key can foretell.
#[derive(Clone)]
pub struct Nonces {
    key: [u64; 2],
    count: u64,
}

impl Nonces {
    /// The key must be fresh for each run of a broker, and secret.
    pub fn new(key: u128) -> Nonces {
        Nonces { key: [key as u64, (key >> 64) as u64], count: 0 }
    }

    pub fn fresh(&mut self) -> u64 {
        self.count += 1;
        sip_2_4(self.key, self.count)
    }
}

impl std::fmt::Debug for Nonces {
    /// The key is a secret, and what was given out says nothing.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nonces").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Default for Nonces {
    /// For states that hand out nothing.
    fn default() -> Nonces {
        Nonces::new(0)
    }
}

/// SipHash-2-4 of one word.
fn sip_2_4([k0, k1]: [u64; 2], word: u64) -> u64 {
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    // The second block is the length in its highest byte, with nothing left over.
    for block in [word, 8 << 56] {
        state[3] ^= block;
        round(&mut state);
        round(&mut state);
        state[0] ^= block;
    }
    state[2] ^= 0xff;
    (0..4).for_each(|_| round(&mut state));
    state.into_iter().fold(0, |all, each| all ^ each)
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn it_is_the_function_of_the_paper() {
        // Appendix A of the reference implementation: the key 00..0f, the message 00..07.
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(sip_2_4(key, 0x0706_0504_0302_0100), 0x93f5_f579_9a93_2462);
    }

    #[test]
    #[allow(deprecated, reason = "it is there, it is right, and it is only an oracle")]
    fn it_agrees_with_the_standard_library() {
        use std::hash::{Hasher, SipHasher};
        let mut nonces = Nonces::new(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        for count in 1..1_000_u64 {
            let mut oracle = SipHasher::new_with_keys(nonces.key[0], nonces.key[1]);
            oracle.write_u64(count);
            assert_eq!(nonces.fresh(), oracle.finish());
        }
    }

    #[test]
    fn one_key_gives_the_same_numbers_again_and_another_key_others() {
        let first = |key| {
            let mut nonces = Nonces::new(key);
            (0..1_000).map(|_| nonces.fresh()).collect::<Vec<_>>()
        };
        assert_eq!(first(7), first(7));
        let all: HashSet<u64> = [first(7), first(8), first(7 << 64)].concat().into_iter().collect();
        assert_eq!(all.len(), 3_000);
    }

    // What was given out lets nobody step on to the next: the mixing of a plain generator can be undone.
    #[test]
    fn the_next_number_does_not_follow_from_the_last() {
        let unmixed = |mixed: u64| {
            let undo = |value: u64, shift: u32| value ^ (value >> shift) ^ (value >> (2 * shift));
            let value = undo(mixed, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
            let value = undo(value, 27).wrapping_mul(0x96de_1b17_3f11_9089);
            undo(value, 30)
        };
        let mut nonces = Nonces::new(42);
        let (one, two) = (nonces.fresh(), nonces.fresh());
        assert_ne!(unmixed(two).wrapping_sub(unmixed(one)), 0x9e37_79b9_7f4a_7c15);
    }
}
