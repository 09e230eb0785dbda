use std::hash::{BuildHasher, RandomState};

/// Numbers that depend on a seed alone (SplitMix64), so that a failure can be run again.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Same seed, same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed nobody chose.
    #[must_use]
    pub fn fresh_seed() -> u64 {
        // Short enough to type again.
        RandomState::new().hash_one(0_u8) % 1_000_000_000
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which must not be zero.
    pub const fn below(&mut self, limit: u64) -> u64 {
        assert!(0 < limit, "a number below zero was asked for");
        self.next() % limit
    }

    /// True once in `times`.
    pub const fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_same_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [random.next(), random.next(), random.below(10)]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }
}
