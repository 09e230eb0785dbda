//! How long the log waits for more commits before it syncs those it has.

use std::time::Duration;

/// How many commit at the same time, judged by the last groups.
#[derive(Default)]
pub(super) struct Crowd {
    last: usize,
    before: usize,
}

/// What a group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gathering {
    pub(super) commits: usize,
    pub(super) time_max: Duration,
}

impl Crowd {
    pub(super) fn saw(&mut self, commits: usize) {
        (self.before, self.last) = (self.last, commits);
    }

    /// One sync for many costs less than two for half as many, so a group that has just begun to
    /// gather is given a moment. `came` have come while the last one was synced.
    ///
    /// A few are as fast as the disk if one half of them gathers while the other is synced. Of
    /// many most are given time: they wait for the processor rather than for the disk, and every
    /// sync takes some of it away from them.
    pub(super) fn worth_waiting_for(&self, came: usize) -> Gathering {
        let all = self.last + came;
        if all < CROWD_MIN {
            return Gathering { commits: (self.last + self.before) / 2, time_max: GATHER_MAX };
        }
        Gathering { commits: all * 3 / 4, time_max: CROWD_GATHER_MAX }
    }
}

/// How long a group may gather; less than a sync takes on most disks.
const GATHER_MAX: Duration = Duration::from_micros(80);
/// So many committers are a crowd.
const CROWD_MIN: usize = 16;
const CROWD_GATHER_MAX: Duration = Duration::from_micros(400);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(groups: [usize; 2], came: usize, commits: usize, time_max: Duration) {
        let mut crowd = Crowd::default();
        groups.into_iter().for_each(|it| crowd.saw(it));
        assert_eq!(crowd.worth_waiting_for(came), Gathering { commits, time_max });
    }

    #[test]
    fn one_writer_waits_for_nobody() {
        check([0, 0], 0, 0, GATHER_MAX);
        check([1, 1], 0, 1, GATHER_MAX);
    }

    #[test]
    fn half_of_a_few_gather_while_the_other_half_is_synced() {
        check([4, 4], 4, 4, GATHER_MAX);
        check([7, 9], 6, 8, GATHER_MAX);
    }

    #[test]
    fn most_of_a_crowd_are_synced_at_once() {
        check([10, 10], 10, 15, CROWD_GATHER_MAX);
        check([32, 48], 16, 48, CROWD_GATHER_MAX);
        check([64, 64], 0, 48, CROWD_GATHER_MAX);
    }
}
