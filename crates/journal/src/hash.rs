//! The two small functions that need no cryptography: the chain over frames, and the mixer behind
//! incarnations. Both are part of the format or feed it, so they never change within a format version.

/// Odd, with well-spread bits; the fractional part of the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Folds one word into a state: a 64 x 64 -> 128 bit product whose halves are joined, so that an input bit reaches
/// all of the output.
fn fold(state: u64, word: u64) -> u64 {
    let product = u128::from(state.rotate_left(23) ^ word) * u128::from(MULTIPLIER);
    (product as u64) ^ ((product >> 64) as u64)
}

/// The chain value of a frame: a 64-bit hash of its head, which itself contains the chain value before it.
/// Detects holes, forks and swapped frames; it is no defence against somebody who may write to the disk.
pub(crate) fn chain(head: &[u8]) -> u64 {
    let mut state = fold(MULTIPLIER, head.len() as u64);
    let (words, rest) = head.as_chunks::<8>();
    for word in words {
        state = fold(state, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(state, u64::from_le_bytes(last))
}

/// A value that looks random and depends on all of `parts`.
pub(crate) fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(MULTIPLIER, |state, part| {
        let mut z = (state ^ part).wrapping_add(MULTIPLIER);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_depends_on_every_bit_and_on_the_length() {
        let head = [7u8; 91];
        let base = chain(&head);
        for bit in 0..head.len() * 8 {
            let mut flipped = head;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(chain(&flipped), base, "bit {bit}");
        }
        assert_ne!(chain(&[0; 8]), chain(&[0; 9]));
    }

    #[test]
    fn the_chain_is_the_one_that_version_one_wrote() {
        // A change of these values makes every existing journal unreadable.
        assert_eq!(chain(b""), CHAIN_OF_NOTHING);
        assert_eq!(chain(b"otobus journal"), CHAIN_OF_TEXT);
    }

    const CHAIN_OF_NOTHING: u64 = 0xc234_863b_e627_57ff;
    const CHAIN_OF_TEXT: u64 = 0x65ff_d290_d3e7_4158;
}
