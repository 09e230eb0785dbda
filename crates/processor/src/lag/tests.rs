use std::sync::Arc;
use std::time::Duration;

use millstream_core::{
    Change, ChangeKind, Continuation, FeedPage, ItemId, KeyRange, Lsn, PartitionKey, Timestamp,
};

use crate::lag::{Estimate, LagTracker, LeaseLag};

/// Does what `script` says and shows the lag at second 100.
///
/// `read 3,4/9` reads the commits 3 and 4 while 9 is the newest; a commit is made in the second of
/// its number. `handled 3` and `failing 2` speak for themselves.
#[track_caller]
fn check(script: &str, expected: &str) {
    let mut tracker = LagTracker::new(Arc::new(KeyRange::all()), "a", 7);
    for step in script.split("; ").filter(|it| !it.is_empty()) {
        let (verb, rest) = step.split_once(' ').unwrap();
        match verb {
            "read" => {
                let (changes, newest) = rest.split_once('/').unwrap();
                let changes = changes.split(',').filter(|it| !it.is_empty());
                let changes: Vec<_> = changes.map(|it| change(it.parse().unwrap())).collect();
                let newest = Lsn::new(newest.parse().unwrap());
                let continuation = Continuation::new("").unwrap();
                let at_end = changes.last().is_none_or(|it| newest <= it.lsn);
                tracker.page_read(&FeedPage { changes, continuation, newest }, at_end);
            }
            "handled" => {
                let lsns: Vec<u64> = rest.split(',').map(|it| it.parse().unwrap()).collect();
                tracker.handled(&change(*lsns.last().unwrap()), lsns.len());
            }
            _ => tracker.failing(rest.parse().unwrap()),
        }
    }
    let shown = match tracker.lag(Timestamp::from_millis(100_000)) {
        None => "unknown".to_owned(),
        Some(lag) => {
            assert_eq!((lag.owner.as_deref(), lag.epoch, lag.expired), (Some("a"), 7, false));
            let items = lag.items.map_or("?".to_owned(), |it| it.to_string());
            let seconds = lag.seconds.map_or("?".to_owned(), |it| it.as_secs().to_string());
            format!(
                "{} commits, {items} items, {seconds} s, {} attempts",
                lag.commits, lag.attempts
            )
        }
    };
    assert_eq!(shown, expected, "{script}");
}

fn change(lsn: u64) -> Change {
    Change {
        kind: ChangeKind::Written,
        lsn: Lsn::new(lsn),
        committed_at: Timestamp::from_millis(lsn * 1_000),
        partition_key: PartitionKey::from("a"),
        id: ItemId::new("a").unwrap(),
        current: None,
        previous: None,
    }
}

#[test]
fn the_owner_knows_its_lag_from_what_it_reads_and_handles() {
    check("", "unknown");
    check("read /0", "0 commits, 0 items, 0 s, 0 attempts");
    check("read /9", "0 commits, 0 items, 0 s, 0 attempts");
    check("read 3,4/9", "7 commits, ? items, 97 s, 0 attempts");
    check("read 3,4/9; handled 3", "6 commits, ? items, 97 s, 0 attempts");
    check("read 3,4/9; handled 3,4", "5 commits, ? items, 96 s, 0 attempts");
    check("read 3,4/9; handled 3,4; read /9", "0 commits, 0 items, 0 s, 0 attempts");
    check("read 3,4/4", "2 commits, 2 items, 97 s, 0 attempts");
    check("read 3,4/9; read 6,6,8/9; read /9", "7 commits, 5 items, 97 s, 0 attempts");
    check("read 3,4/9; read 6,6,8/9; read /9; handled 3,4", "4 commits, 3 items, 94 s, 0 attempts");
    check(
        "read 3,4/9; read 6,6,8/9; read /9; handled 3,4,6,6",
        "3 commits, 1 items, 94 s, 0 attempts",
    );
    check(
        "read 3,4/9; read 6,6,8/9; read /9; handled 3,4,6,6,8",
        "0 commits, 0 items, 0 s, 0 attempts",
    );
    check("read 3/3; failing 4", "1 commits, 1 items, 97 s, 4 attempts");
    check("read 3/3; failing 4; handled 3; failing 0", "0 commits, 0 items, 0 s, 0 attempts");
}

#[test]
fn an_estimate_adds_up_its_leases() {
    let lag = |keys: &KeyRange, commits, seconds: Option<u64>| LeaseLag {
        keys: Arc::new(keys.clone()),
        owner: None,
        epoch: 0,
        commits,
        items: None,
        seconds: seconds.map(Duration::from_secs),
        attempts: 0,
        expired: false,
    };
    let halves = KeyRange::divide(2).unwrap();
    let leases = vec![lag(&halves[1], 3, Some(5)), lag(&halves[0], u64::MAX, None)];
    let estimate = Estimate::new(leases, false);
    assert_eq!(estimate.commits, u64::MAX);
    assert_eq!(estimate.oldest, Some(Duration::from_secs(5)));
    assert_eq!(*estimate.leases[0].keys, halves[0]);
    assert!(!estimate.is_caught_up());
    assert!(Estimate::new(vec![lag(&halves[0], 0, Some(0))], true).is_caught_up());
}
