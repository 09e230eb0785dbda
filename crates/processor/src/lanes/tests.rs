use std::sync::Arc;
use std::time::Duration;

use millstream_core::{Change, ChangeKind, Continuation, ItemId, Lsn, PartitionKey, Timestamp};
use tokio::sync::Notify;

use super::*;
use crate::batch::ChangeBatch;

const ATTEMPTS_MAX: u32 = 3;

/// `"a1 b2 a3"` is a page with three changes: partition key and id of each.
fn page(number: u64, text: &str) -> Arc<Page> {
    let change = |it: &str| Change {
        kind: ChangeKind::Written,
        lsn: Lsn::new(number),
        committed_at: Timestamp::EPOCH,
        partition_key: PartitionKey::from(&it[..1]),
        id: ItemId::new(it).unwrap(),
        current: None,
        previous: None,
    };
    let changes = text.split_whitespace().map(change).collect();
    let nowhere = Continuation::new("").unwrap();
    Page::new(number, changes, nowhere.clone(), nowhere, Arc::new(Notify::new()))
}

fn text(segments: &[Segment]) -> String {
    let batch = ChangeBatch::new(segments.to_vec());
    batch.iter().map(|it| it.id.as_str().to_owned()).collect::<Vec<_>>().join(" ")
}

fn lanes(keyed: bool, pages: &[&str]) -> (Lanes, Vec<Arc<Page>>) {
    let mut lanes = Lanes::new(keyed, 2);
    let numbered = pages.iter().zip(1..);
    let pages: Vec<_> = numbered.map(|(it, number)| page(number, it)).collect();
    for page in &pages {
        lanes.add(page);
    }
    (lanes, pages)
}

/// Takes batches until there is none, each done at once.
fn drain(lanes: &mut Lanes) -> Vec<String> {
    let mut taken = Vec::new();
    while let Some((key, batch, _)) = lanes.take(u64::MAX) {
        taken.push(text(&batch));
        lanes.succeeded(&key, count(&batch));
    }
    taken
}

const FAILED: Failure = Failure { progressed: false, is_first: false, permanent: false };

#[test]
fn a_key_is_busy_while_its_lane_is() {
    for (keyed, other) in [(true, false), (false, true)] {
        let (mut lanes, _) = lanes(keyed, &["a1 b2"]);
        let busy =
            |lanes: &Lanes| [lanes.is_busy_with(&"a".into()), lanes.is_busy_with(&"b".into())];
        assert_eq!(busy(&lanes), [false, false]);
        let (key, batch, _) = lanes.take(u64::MAX).unwrap();
        assert_eq!(busy(&lanes), [true, other]);
        lanes.succeeded(&key, count(&batch));
        assert_eq!(busy(&lanes), [false, false]);
    }
}

#[test]
fn a_serial_batch_is_a_page_or_several_that_fit() {
    let (mut large, _) = lanes(false, &["a1 b2 a3", "c4"]);
    assert_eq!(drain(&mut large), ["a1 b2 a3", "c4"]);
    let (mut small, _) = lanes(false, &["a1", "b2", "c3", "d4 e5", "f6"]);
    assert_eq!(drain(&mut small), ["a1 b2", "c3", "d4 e5", "f6"]);
    let (mut bounded, _) = lanes(false, &["a1", "b2"]);
    assert_eq!(text(&bounded.take(1).unwrap().1), "a1", "later pages are not begun");
}

#[test]
fn keyed_batches_hold_one_key_in_order_over_pages() {
    let (mut lanes, _) = lanes(true, &["a1 b2 a3", "a4 b5"]);
    assert_eq!(drain(&mut lanes), ["a1 a3", "b2 b5", "a4"]);
}

#[test]
fn a_key_has_one_batch_at_a_time() {
    let (mut lanes, _) = lanes(true, &["a1 a2 a3", "b4"]);
    let (a, first, _) = lanes.take(u64::MAX).unwrap();
    assert_eq!(text(&first), "a1 a2");
    let (_, second, _) = lanes.take(u64::MAX).unwrap();
    assert_eq!(text(&second), "b4");
    assert!(lanes.take(u64::MAX).is_none());
    lanes.succeeded(&a, 2);
    let (_, third, _) = lanes.take(u64::MAX).unwrap();
    assert_eq!(text(&third), "a3");
}

#[test]
fn pages_beyond_the_limit_wait() {
    let (mut lanes, _) = lanes(true, &["a1 b2", "a3 c4"]);
    let (a, batch, _) = lanes.take(1).unwrap();
    assert_eq!(text(&batch), "a1");
    lanes.succeeded(&a, 1);
    let (b, batch, _) = lanes.take(1).unwrap();
    assert_eq!(text(&batch), "b2");
    lanes.succeeded(&b, 1);
    assert!(!lanes.has_ready(1));
    assert!(lanes.take(1).is_none());
    assert_eq!(drain(&mut lanes), ["c4", "a3"]);
}

#[test]
fn the_same_batch_comes_again_until_the_attempts_are_spent() {
    let (mut lanes, _) = lanes(false, &["a1 b2"]);
    for attempts in 1..ATTEMPTS_MAX {
        let (key, batch, before) = lanes.take(u64::MAX).unwrap();
        assert_eq!((text(&batch).as_str(), before), ("a1 b2", attempts - 1));
        let (verdict, _) = lanes.failed(&key, batch, FAILED, ATTEMPTS_MAX);
        assert_eq!(verdict, Verdict::Retry { attempts });
        assert!(lanes.take(u64::MAX).is_none());
        lanes.wait_until(&key, Duration::from_secs(1));
        assert_eq!(lanes.release_due(Duration::ZERO), Some(Duration::from_secs(1)));
        assert_eq!(lanes.release_due(Duration::from_secs(1)), None);
    }
}

#[test]
fn halves_are_tried_to_find_the_failing_change() {
    let (mut lanes, _) = lanes(false, &["a1 b2 c3 d4 e5 f6 g7"]);
    let mut tried = Vec::new();
    let mut given_up = String::new();
    let mut failures = 0;
    while let Some((key, batch, _)) = lanes.take(u64::MAX) {
        tried.push(text(&batch));
        if !text(&batch).contains("e5") {
            lanes.succeeded(&key, count(&batch));
            continue;
        }
        failures += 1;
        let (verdict, first) = lanes.failed(&key, batch, FAILED, 1);
        if let Some(first) = first {
            assert_eq!(verdict, Verdict::GiveUp { attempts: 1 });
            given_up = text(&[first]);
        }
        lanes.go_on(&key);
    }
    let expected = ["a1 b2 c3 d4 e5 f6 g7", "a1 b2 c3 d4", "e5 f6 g7", "e5 f6", "e5", "f6", "g7"];
    assert_eq!(tried, expected);
    assert_eq!((given_up.as_str(), failures), ("e5", 4));
}

#[test]
fn changes_that_went_another_way_leave_no_suspicion_behind() {
    let (mut lanes, _) = lanes(false, &["a1 a2", "b3 c4"]);
    let (key, batch, _) = lanes.take(u64::MAX).unwrap();
    assert_eq!(lanes.failed(&key, batch, FAILED, 1).0, Verdict::Narrow);
    lanes.go_on(&key);
    let (key, batch, _) = lanes.take(u64::MAX).unwrap();
    assert_eq!(text(&batch), "a1");
    assert_eq!(lanes.failed(&key, batch, FAILED, 1).0, Verdict::GiveUp { attempts: 1 });
    lanes.go_on(&key);
    let (key, batch, _) = lanes.take(u64::MAX).unwrap();
    assert_eq!(text(&batch), "a2");
    lanes.acquit(&key, 1);
    lanes.go_on(&key);
    let (key, batch, attempts) = lanes.take(u64::MAX).unwrap();
    assert_eq!((text(&batch).as_str(), attempts), ("b3 c4", 0));
    let (verdict, _) = lanes.failed(&key, batch, FAILED, ATTEMPTS_MAX);
    assert_eq!(verdict, Verdict::Retry { attempts: 1 });
}

#[test]
fn attempts_begin_anew_after_progress() {
    let (mut lanes, pages) = lanes(false, &["a1 b2 c3"]);
    let (key, batch, _) = lanes.take(u64::MAX).unwrap();
    let (_, _) = lanes.failed(&key, batch, FAILED, ATTEMPTS_MAX);
    lanes.go_on(&key);
    let (key, batch, attempts) = lanes.take(u64::MAX).unwrap();
    assert_eq!(attempts, 1);
    pages[0].finish(0);
    let rest = ChangeBatch::new(batch).open();
    assert_eq!(text(&rest), "b2 c3");
    let progressed = Failure { progressed: true, ..FAILED };
    let (verdict, _) = lanes.failed(&key, rest, progressed, ATTEMPTS_MAX);
    assert_eq!(verdict, Verdict::Retry { attempts: 1 });
}

#[test]
fn a_known_culprit_needs_no_search() {
    let (mut lanes, _) = lanes(false, &["a1 b2 c3"]);
    let (key, batch, _) = lanes.take(u64::MAX).unwrap();
    let known = Failure { is_first: true, permanent: true, progressed: false };
    let (verdict, first) = lanes.failed(&key, batch, known, ATTEMPTS_MAX);
    assert_eq!(verdict, Verdict::GiveUp { attempts: ATTEMPTS_MAX });
    assert_eq!(text(&[first.unwrap()]), "a1");
    lanes.go_on(&key);
    assert_eq!(drain(&mut lanes), ["b2 c3"]);
}

#[test]
fn the_watermark_stops_at_the_first_page_that_is_not_done() {
    let pages = [page(1, "a1"), page(2, "b2 c3"), page(3, "d4")];
    let mut progress = Progress::default();
    for page in &pages {
        progress.add(Arc::clone(page));
    }
    pages[2].finish(0);
    assert!(progress.advance().is_none());
    pages[0].finish(0);
    let (page, items) = progress.advance().unwrap();
    assert_eq!((page.number, items), (1, 1));
    pages[1].finish(0);
    assert!(progress.advance().is_none());
    assert_eq!(progress.partly_done().map(|(it, done)| (it.number, done)), Some((2, 1)));
    pages[1].finish(1);
    let (page, items) = progress.advance().unwrap();
    assert_eq!((page.number, items), (3, 3));
    assert!(progress.is_empty());
}
