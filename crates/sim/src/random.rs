//! The one source of chance. Every choice of a run is drawn from a seed, so a run can be had again.

/// SplitMix64: small, quick, and the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The source of the `nth` part of something: parts can be left out without changing the others.
    pub fn part(seed: u64, nth: u64) -> Random {
        let mut random = Random(seed ^ nth.wrapping_mul(0xd134_2543_de82_ef95));
        Random(random.number())
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `count - 1`.
    pub fn below(&mut self, count: u64) -> u64 {
        self.number() % count
    }

    /// A number from `least` to `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Whether something happens that happens once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    pub fn pick_mut<'a, T>(&mut self, from: &'a mut [T]) -> &'a mut T {
        let at = self.below(from.len() as u64) as usize;
        &mut from[at]
    }

    /// An independent source, so that what one part draws does not change what another part draws.
    pub fn fork(&mut self) -> Random {
        Random(self.number())
    }
}
