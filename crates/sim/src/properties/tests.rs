use millstream_core::{
    Change, ChangeKind, EffectiveKey, Etag, FeedMode, Item, ItemId, KeyRange, Lsn, PartitionKey,
    Timestamp,
};

use crate::properties::Deliveries;
use crate::truth::Truth;

/// `"a=1 b=2+c=3 a-"` is three commits: a at version 1, b and c together, a deleted. The key of all
/// is `k`, the numbers of the commits count from 1.
fn written(text: &str) -> Truth {
    let truth = Truth::default();
    for (lsn, commit) in (1..).zip(text.split_whitespace()) {
        let changes = commit.split('+').map(|it| match it.split_once('=') {
            Some((id, version)) => (id.into(), Some(version.parse().unwrap())),
            None => (it.trim_end_matches('-').into(), None),
        });
        let changes = changes.collect();
        truth.lock().add(&"k".into(), EffectiveKey::MIN, Lsn::new(lsn), changes);
    }
    truth
}

/// `"a=1@1"` is item a at version 1, written by commit 1; `"a-1@3"` the delete of that version.
fn change(text: &str) -> Change {
    let (name, lsn) = text.split_once('@').unwrap();
    let is_delete = name.contains('-');
    let (id, version) = name.split_once(['=', '-']).unwrap();
    let (id, lsn) = (ItemId::new(id).unwrap(), Lsn::new(lsn.parse().unwrap()));
    let partition_key = PartitionKey::from("k");
    let item = Item {
        id: id.clone(),
        partition_key: partition_key.clone(),
        body: format!(r#"{{"id":"{id}","partitionKey":"k","version":{version}}}"#).into(),
        etag: Etag::new("1"),
        lsn,
        written_at: Timestamp::EPOCH,
        expires_at: None,
        sequence: None,
    };
    let (current, previous) = if is_delete { (None, Some(item)) } else { (Some(item), None) };
    let kind = ChangeKind::Written;
    Change { kind, lsn, committed_at: Timestamp::EPOCH, partition_key, id, current, previous }
}

#[track_caller]
fn check(mode: FeedMode, truth: &str, delivered: &str, expected: &str) {
    let deliveries = Deliveries::new(written(truth), mode);
    let result = delivered.split_whitespace().try_for_each(|it| {
        deliveries.delivered(&change(it))?;
        deliveries.handled(&change(it))
    });
    let result = result.and_then(|()| deliveries.complete());
    match result {
        Ok(()) => assert_eq!(expected, ""),
        Err(violation) => {
            assert!(!expected.is_empty() && violation.contains(expected), "{violation}");
        }
    }
}

#[test]
fn the_latest_versions_in_order_pass() {
    let mode = FeedMode::LatestVersion;
    check(mode, "a=1 b=2", "a=1@1 b=2@2", "");
    check(mode, "a=1 b=2", "a=1@1 a=1@1 b=2@2 a=1@1", "");
    check(mode, "a=1 b=2 a=3", "b=2@2 a=3@3", "");
    check(mode, "a=1 b=2 a-", "b=2@2", "");
}

#[test]
fn gaps_and_wrong_order_are_found() {
    let mode = FeedMode::LatestVersion;
    check(mode, "a=1 b=2", "b=2@2 a=1@1", "gap");
    check(mode, "a=1 b=2 a=3", "b=2@2 a=3@3 a=1@1", "out of order");
    check(mode, "a=1 b=2", "a=1@1", "commit 2 of key \"k\" was never handled");
    check(mode, "a=1+b=2", "a=1@1", "never handled");
    check(mode, "a=1", "a=7@1", "as it never was");
    check(mode, "a=1", "a=1@2", "as it never was");
}

#[test]
fn all_versions_shows_every_one() {
    let mode = FeedMode::AllVersions;
    check(mode, "a=1 a=2 a-", "a=1@1 a=2@2 a-2@3", "");
    check(mode, "a=1 a=2 a-", "a=2@2 a-2@3", "gap");
    check(mode, "a=1 a=2 a-", "a=1@1 a=2@2", "commit 3 of key \"k\" was never handled");
}

#[test]
fn a_checkpoint_must_not_be_ahead_of_what_was_handled() {
    let deliveries = Deliveries::new(written("a=1 b=2"), FeedMode::LatestVersion);
    let all = KeyRange::all();
    deliveries.delivered(&change("a=1@1")).unwrap();
    assert!(deliveries.checkpoint(&all, Lsn::new(1)).unwrap_err().contains("ahead"));
    deliveries.handled(&change("a=1@1")).unwrap();
    assert_eq!(deliveries.checkpoint(&all, Lsn::new(1)), Ok(()));
    assert!(deliveries.checkpoint(&all, Lsn::new(2)).unwrap_err().contains("commit 2"));
    let elsewhere = KeyRange::divide(2).unwrap().remove(1);
    assert_eq!(deliveries.checkpoint(&elsewhere, Lsn::new(2)), Ok(()));
}

#[test]
fn what_was_there_at_the_start_is_excused() {
    let truth = written("a=1 b=2");
    let deliveries = Deliveries::new(truth.clone(), FeedMode::LatestVersion);
    deliveries.begin(&[(KeyRange::all(), Some(Lsn::new(2)))]);
    assert_eq!(deliveries.complete(), Ok(()));
    let third = vec![("c".into(), Some(3))];
    truth.lock().add(&"k".into(), EffectiveKey::MIN, Lsn::new(3), third);
    assert!(deliveries.complete().is_err());
    deliveries.delivered(&change("c=3@3")).unwrap();
}

#[test]
fn what_is_put_aside_counts_as_handled_and_holds_back_what_follows() {
    let deliveries = Deliveries::new(written("a=1 b=2"), FeedMode::LatestVersion);
    deliveries.delivered(&change("a=1@1")).unwrap();
    deliveries.kept("k", Lsn::new(1), "a").unwrap();
    assert_eq!(deliveries.checkpoint(&KeyRange::all(), Lsn::new(1)), Ok(()));
    assert!(deliveries.not_behind_kept(&change("b=2@2")).unwrap_err().contains("is parked"));
    assert_eq!(deliveries.not_behind_kept(&change("a=1@1")), Ok(()));
    assert!(deliveries.all_handled().is_err());
    assert_eq!(deliveries.removed("k", Lsn::new(1), "a"), Ok(Some(EffectiveKey::MIN)));
    assert_eq!(deliveries.not_behind_kept(&change("b=2@2")), Ok(()));
}
