//! MurmurHash3, the variants x86 32 bit and x64 128 bit, with seed 0.

pub fn x86_32(bytes: &[u8]) -> u32 {
    const C1: u32 = 0xCC9E_2D51;
    const C2: u32 = 0x1B87_3593;
    let mixed = |word: u32| word.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);
    let mut hash = 0u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        hash ^= mixed(u32::from_le_bytes(*word));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xE654_6B64);
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        hash ^= mixed(u32::from_le_bytes(last));
    }
    hash ^= bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85EB_CA6B);
    hash = (hash ^ hash >> 13).wrapping_mul(0xC2B2_AE35);
    hash ^ hash >> 16
}

/// The second half is the high one.
pub fn x64_128(bytes: &[u8]) -> u128 {
    const C1: u64 = 0x87C3_7B91_1142_53D5;
    const C2: u64 = 0x4CF5_AD43_2745_937F;
    let mixed_low = |word: u64| word.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let mixed_high = |word: u64| word.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let (mut low, mut high) = (0u64, 0u64);
    let (blocks, rest) = bytes.as_chunks::<16>();
    let halves = |block: &[u8; 16]| {
        let whole = u128::from_le_bytes(*block);
        (whole as u64, (whole >> 64) as u64)
    };
    for block in blocks {
        let (first, second) = halves(block);
        low ^= mixed_low(first);
        low = low.rotate_left(27).wrapping_add(high).wrapping_mul(5).wrapping_add(0x52DC_E729);
        high ^= mixed_high(second);
        high = high.rotate_left(31).wrapping_add(low).wrapping_mul(5).wrapping_add(0x3849_5AB5);
    }
    let mut last = [0; 16];
    last[..rest.len()].copy_from_slice(rest);
    let (first, second) = halves(&last);
    // Of nothing but zeros they are zero, so an end of less than nine bytes needs no case of its own.
    high ^= mixed_high(second);
    low ^= mixed_low(first);
    low ^= bytes.len() as u64;
    high ^= bytes.len() as u64;
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    low = finished(low);
    high = finished(high);
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    u128::from(high) << 64 | u128::from(low)
}

fn finished(mut half: u64) -> u64 {
    half = (half ^ half >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    half = (half ^ half >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    half ^ half >> 33
}
