//! What a consumer has seen of the numbers of one key, and what the next number means. No I/O.

use serde::{Deserialize, Serialize};

/// Most separate gaps that are remembered for a key.
const GAPS_MAX: usize = 64;

/// How a message stands to the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It has no number.
    Unnumbered,
    /// It is the first one seen of its key. A consumer that began with the first event expects 1.
    First {
        /// Its number.
        found: u64,
    },
    /// It follows the last one.
    InOrder,
    /// Others are missing before it: they were lost, held back, or come later.
    Gap {
        /// The first that is missing.
        expected: u64,
        /// The one that came.
        found: u64,
    },
    /// It was missing and comes after later ones.
    Late {
        /// The largest number seen.
        last: u64,
        /// The one that came.
        found: u64,
    },
}

/// The numbers seen of one key: all from 1 to `last` but the missing ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Seen {
    pub(super) last_sequence: u64,
    /// First and last number of each gap, in order.
    #[serde(default)]
    pub(super) missing: Vec<(u64, u64)>,
}

/// What a number means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was seen before.
    Repeated,
    /// It is new, and this is to be remembered.
    New(Order, Seen),
}

pub(super) fn judge(seen: Option<&Seen>, found: u64) -> Verdict {
    let Some(seen) = seen else {
        let missing = if 1 < found { vec![(1, found - 1)] } else { Vec::new() };
        return Verdict::New(Order::First { found }, Seen { last_sequence: found, missing });
    };
    let mut after = seen.clone();
    let last = seen.last_sequence;
    if found <= last {
        let Some(place) = seen.missing.iter().position(|(from, to)| *from <= found && found <= *to)
        else {
            return Verdict::Repeated;
        };
        let (from, to) = seen.missing[place];
        let parts = [(from, found.saturating_sub(1)), (found.saturating_add(1), to)];
        let parts = parts.into_iter().filter(|(from, to)| from <= to);
        after.missing.splice(place..=place, parts);
        after.bound();
        return Verdict::New(Order::Late { last, found }, after);
    }
    after.last_sequence = found;
    let expected = last + 1;
    if expected == found {
        return Verdict::New(Order::InOrder, after);
    }
    after.missing.push((expected, found - 1));
    after.bound();
    Verdict::New(Order::Gap { expected, found }, after)
}

impl Seen {
    /// Joins the oldest gaps when there are too many. Numbers between them count as missing then:
    /// one that comes again is told by its message id, and a lost one is never taken for seen.
    fn bound(&mut self) {
        while GAPS_MAX < self.missing.len() {
            let (_, to) = self.missing.remove(1);
            self.missing[0].1 = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds numbers in and spells what each meant: `1` first, `+` in order, `!` gap, `~` late, `=`
    /// repeated. Returns that and the gaps that are left.
    #[track_caller]
    fn check(numbers: &[u64], meanings: &str, missing: &[(u64, u64)]) {
        let mut seen = None;
        let mut found = String::new();
        for number in numbers {
            match judge(seen.as_ref(), *number) {
                Verdict::Repeated => found.push('='),
                Verdict::New(order, after) => {
                    found.push(match order {
                        Order::Unnumbered => '?',
                        Order::First { .. } => '1',
                        Order::InOrder => '+',
                        Order::Gap { .. } => '!',
                        Order::Late { .. } => '~',
                    });
                    seen = Some(after);
                }
            }
        }
        assert_eq!(found, meanings);
        assert_eq!(seen.expect("a number").missing, missing);
    }

    #[test]
    fn numbers_are_told_apart() {
        check(&[1, 2, 3], "1++", &[]);
        check(&[1, 2, 2, 1], "1+==", &[]);
        check(&[1, 5], "1!", &[(2, 4)]);
        check(&[1, 5, 3], "1!~", &[(2, 2), (4, 4)]);
        check(&[1, 5, 3, 2, 4, 6], "1!~~~+", &[]);
        check(&[1, 5, 3, 3, 5], "1!~==", &[(2, 2), (4, 4)]);
        check(&[4, 5, 2], "1+~", &[(1, 1), (3, 3)]);
        check(&[0, 1], "1+", &[]);
        check(&[u64::MAX, u64::MAX], "1=", &[(1, u64::MAX - 1)]);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_forgets_no_gap() {
        let numbers: Vec<u64> = (0..1000).map(|it| it * 2 + 1).collect();
        let mut seen = None;
        for number in &numbers {
            let Verdict::New(_, after) = judge(seen.as_ref(), *number) else {
                panic!("{number} was not seen before");
            };
            seen = Some(after);
        }
        let seen = seen.expect("numbers");
        assert_eq!(seen.missing.len(), GAPS_MAX);
        for lost in (0..999).map(|it| it * 2 + 2) {
            assert_ne!(judge(Some(&seen), lost), Verdict::Repeated, "{lost}");
        }
    }
}
