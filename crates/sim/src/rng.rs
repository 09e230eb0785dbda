use std::time::Duration;

/// Numbers that depend on a seed and a purpose alone (SplitMix64).
///
/// Each purpose has a stream of its own, so that one more draw for faults does not change the
/// shape of the world or the schedule.
///
/// ```
/// use millstream_sim::Rng;
///
/// let mut one = Rng::stream(7, "schedule");
/// let mut again = Rng::stream(7, "schedule");
/// let mut other = Rng::stream(7, "workload");
/// assert_eq!(one.next_number(), again.next_number());
/// assert_ne!(one.next_number(), other.next_number());
/// ```
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The numbers of one purpose of one seed.
    #[must_use]
    pub fn stream(seed: u64, purpose: &str) -> Self {
        let mut state = mixed(seed ^ 0x5851_F42D_4C95_7F2D);
        for byte in purpose.bytes() {
            state = mixed(state ^ u64::from(byte));
        }
        Self(state)
    }

    /// A stream of its own for part `number` of this purpose; draws nothing from this one's
    /// future.
    #[must_use]
    pub fn fork(&self, number: u64) -> Self {
        Self(mixed(self.0 ^ mixed(number)))
    }

    /// The next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.0)
    }

    /// A number below `limit`, which must not be zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        assert!(0 < limit, "a number below zero was asked for");
        // The upper half of the product; a modulo would cost a division per step.
        let product = u128::from(self.next_number()) * u128::from(limit);
        u64::try_from(product >> 64).expect("it is below the limit")
    }

    /// A place in a list of `length` things, which must not be empty.
    pub fn index(&mut self, length: usize) -> usize {
        let limit = u64::try_from(length).expect("lists are shorter than 2^64");
        usize::try_from(self.below(limit)).expect("it is below the length")
    }

    /// A number from `low` up to and including `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "the bounds are the wrong way round");
        low + self.below(high - low + 1)
    }

    /// True in `permille` of a thousand cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// A time from `low` up to and including `high`, in whole milliseconds.
    pub fn duration(&mut self, low: Duration, high: Duration) -> Duration {
        let millis = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX - 1);
        Duration::from_millis(self.between(millis(low), millis(high)))
    }

    /// One of the things in a list, which must not be empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.index(list.len())]
    }

    /// Puts a list into random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (1..list.len()).rev() {
            list.swap(end, self.index(end + 1));
        }
    }
}

/// Spreads every bit of a number over all bits.
pub(crate) const fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_and_purpose_give_the_same_numbers() {
        let numbers = |seed, purpose| {
            let mut rng = Rng::stream(seed, purpose);
            [rng.next_number(), rng.next_number(), rng.below(10)]
        };
        assert_eq!(numbers(7, "a"), numbers(7, "a"));
        assert_ne!(numbers(7, "a"), numbers(8, "a"));
        assert_ne!(numbers(7, "a"), numbers(7, "b"));
    }

    #[test]
    fn every_number_below_the_limit_comes_up() {
        let mut rng = Rng::stream(1, "limits");
        let mut seen = [0_u32; 5];
        for _ in 0..1000 {
            seen[rng.index(5)] += 1;
        }
        assert!(seen.iter().all(|it| 150 < *it), "{seen:?}");
        assert_eq!(rng.between(4, 4), 4);
    }

    #[test]
    fn chances_are_in_a_thousand() {
        let mut rng = Rng::stream(1, "chances");
        assert!((0..1000).all(|_| !rng.chance(0) && rng.chance(1000)));
        let hits = (0..10_000).filter(|_| rng.chance(100)).count();
        assert!((800..1200).contains(&hits), "{hits}");
    }

    #[test]
    fn a_shuffled_list_keeps_its_things() {
        let mut list: Vec<u32> = (0..50).collect();
        Rng::stream(3, "shuffle").shuffle(&mut list);
        assert_ne!(list, (0..50).collect::<Vec<u32>>());
        list.sort_unstable();
        assert_eq!(list, (0..50).collect::<Vec<u32>>());
    }
}
