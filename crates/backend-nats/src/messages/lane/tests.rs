use std::time::Duration;

use millstream_core::{Delivery, Message, Settlement, Timestamp};

use crate::messages::lane::{Accepted, Aside, Lane, LockLost};
use crate::messages::options::SubscriptionOptions;
use crate::messages::record::LaneRecord;

const START: Duration = Duration::from_secs(1000);
const LOCK: Duration = Duration::from_secs(60);

fn options() -> SubscriptionOptions {
    SubscriptionOptions { delivery_count_max: 3, ..SubscriptionOptions::default() }
}

fn at(seconds: u64) -> Duration {
    START + Duration::from_secs(seconds)
}

/// `"1:a 4:b"` are messages with these numbers and sessions.
fn push(lane: &mut Lane, text: &str) {
    for word in text.split_whitespace() {
        let (number, session) = word.split_once(':').unwrap();
        let message = Message::new(format!("m{number}"), "x").session(session);
        lane.push(number.parse().unwrap(), message, Timestamp::EPOCH);
    }
}

fn lane(text: &str) -> Lane {
    let mut lane = Lane::new(&LaneRecord::new(0), options());
    push(&mut lane, text);
    lane
}

fn accept(lane: &mut Lane, now: Duration) -> Accepted {
    lane.advance(now);
    lane.accept(now).expect("a session is ready")
}

fn take(lane: &mut Lane, lock: u64, now: Duration) -> Vec<Delivery> {
    lane.take(lock, 100, now).unwrap()
}

fn numbers(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|it| it.sequence_number).collect()
}

#[track_caller]
fn check_record(lane: &Lane, expected: &str) {
    let (record, _) = lane.snapshot(&LaneRecord::new(0));
    assert_eq!(format!("{} {:?} {:?}", record.floor, record.done, record.tries), expected);
}

#[test]
fn the_session_that_has_waited_longest_comes_first() {
    let mut lane = lane("3:a 4:b 7:a 9:c");
    let names: Vec<String> = (0..3).map(|_| accept(&mut lane, START).session.to_string()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(lane.accept(START), None);
}

#[test]
fn a_session_is_given_out_whole_and_in_order() {
    let mut lane = lane("3:a 4:b 7:a 9:a");
    let lock = accept(&mut lane, START).lock;
    assert_eq!(numbers(&lane.take(lock, 2, START).unwrap()), [3, 7]);
    push(&mut lane, "12:a");
    assert_eq!(numbers(&take(&mut lane, lock, START)), [9, 12]);
    assert!(take(&mut lane, lock, START).is_empty());
}

#[test]
fn what_is_done_moves_the_floor() {
    let mut lane = lane("3:a 4:b 7:a");
    let (a, b) = (accept(&mut lane, START).lock, accept(&mut lane, START).lock);
    let (of_a, of_b) = (take(&mut lane, a, START), take(&mut lane, b, START));
    check_record(&lane, "2 [] {3: 1, 4: 1, 7: 1}");
    lane.settle(b, &of_b, &Settlement::Complete, START).unwrap();
    check_record(&lane, "2 [(4, 4)] {3: 1, 7: 1}");
    assert!(lane.is_urgent());
    lane.settle(a, &of_a[1..], &Settlement::Complete, START).unwrap();
    check_record(&lane, "2 [(4, 7)] {3: 1}");
    lane.settle(a, &of_a[..1], &Settlement::Complete, START).unwrap();
    check_record(&lane, "7 [] {}");
    assert!(lane.settle(a, &of_a, &Settlement::Complete, START).is_err());
}

#[test]
fn an_abandoned_message_comes_again_before_later_ones_after_a_rest() {
    let mut lane = lane("3:a 7:a");
    let lock = accept(&mut lane, START).lock;
    let first = lane.take(lock, 1, START).unwrap();
    lane.settle(lock, &first, &Settlement::Abandon, START).unwrap();
    assert!(take(&mut lane, lock, START).is_empty());
    assert_eq!(lane.next_timer(), Some(START + Duration::from_millis(100)));
    let again = take(&mut lane, lock, at(1));
    assert_eq!(numbers(&again), [3, 7]);
    assert_eq!(again[0].delivery_count, 2);
    // The first delivery of it is over.
    assert_eq!(lane.settle(lock, &first, &Settlement::Complete, at(1)), Err(LockLost));
}

#[test]
fn a_lock_that_is_not_renewed_ends() {
    let mut lane = lane("3:a 7:a");
    let lock = accept(&mut lane, START).lock;
    let given = take(&mut lane, lock, START);
    lane.renew(lock, at(30)).unwrap();
    assert!(lane.settle(lock, &given[..1], &Settlement::Complete, at(89)).is_ok());
    assert_eq!(lane.settle(lock, &given[1..], &Settlement::Complete, at(90)), Err(LockLost));
    assert_eq!(lane.renew(lock, at(90)), Err(LockLost));
    assert_eq!(lane.accept(at(90)), None, "it rests");
    let next = accept(&mut lane, at(91));
    let again = take(&mut lane, next.lock, at(91));
    assert_eq!((numbers(&again), again[0].delivery_count), (vec![7], 2));
}

#[test]
fn a_closed_session_is_free_at_once_if_nothing_failed() {
    let mut lane = lane("3:a 7:a");
    let lock = accept(&mut lane, START).lock;
    let given = lane.take(lock, 1, START).unwrap();
    lane.settle(lock, &given, &Settlement::Complete, START).unwrap();
    lane.close(lock, START).unwrap();
    assert_eq!(lane.close(lock, START), Err(LockLost));
    let lock = accept(&mut lane, START).lock;
    assert_eq!(numbers(&take(&mut lane, lock, START)), [7]);
}

#[test]
fn a_message_that_failed_too_often_leaves_and_holds_its_session_until_it_left() {
    let mut lane = lane("3:a 7:a");
    for round in 0..3 {
        let lock = accept(&mut lane, at(round * 100)).lock;
        assert_eq!(numbers(&lane.take(lock, 1, at(round * 100)).unwrap()), [3]);
        lane.close(lock, at(round * 100)).unwrap();
    }
    assert_eq!(lane.first_ready(), None);
    let leaving = lane.leaving();
    assert_eq!((leaving.len(), leaving[0].number, leaving[0].tries), (1, 3, 3));
    let Aside::Dead { reason, .. } = &leaving[0].aside else { panic!("it is a dead letter") };
    assert_eq!(reason, "MaxDeliveryCountExceeded");
    lane.left(3);
    check_record(&lane, "6 [] {}");
    assert_eq!(lane.first_ready(), Some(7));
}

#[test]
fn deferred_messages_and_dead_letters_leave() {
    let mut lane = lane("3:a 7:a 8:a");
    let lock = accept(&mut lane, START).lock;
    let given = lane.take(lock, 2, START).unwrap();
    let dead = Settlement::DeadLetter { reason: "r".to_owned(), description: "d".to_owned() };
    lane.settle(lock, &given[..1], &Settlement::Defer, START).unwrap();
    lane.settle(lock, &given[1..], &dead, START).unwrap();
    assert!(take(&mut lane, lock, START).is_empty(), "8 waits for 3 and 7");
    let asides: Vec<Aside> = lane.leaving().into_iter().map(|it| it.aside).collect();
    let (reason, description) = ("r".to_owned(), "d".to_owned());
    assert_eq!(asides, [Aside::Deferred, Aside::Dead { reason, description }]);
    lane.left(7);
    lane.left(3);
    assert!(!lane.is_leaving(3));
    assert_eq!(numbers(&take(&mut lane, lock, START)), [8]);
}

#[test]
fn the_next_owner_goes_on_where_the_record_says() {
    let mut before = lane("3:a 4:b 7:a 9:c");
    let (a, b) = (accept(&mut before, START).lock, accept(&mut before, START).lock);
    take(&mut before, a, START);
    let of_b = take(&mut before, b, START);
    before.settle(b, &of_b, &Settlement::Complete, START).unwrap();
    let (record, _) = before.snapshot(&LaneRecord::new(0));
    let mut after = Lane::new(&record, options());
    assert_eq!(after.read_to(), 2);
    push(&mut after, "3:a 4:b 7:a 9:c");
    let accepted = accept(&mut after, START);
    assert_eq!(&*accepted.session, "a");
    let again = take(&mut after, accepted.lock, START);
    assert_eq!((numbers(&again), again[0].delivery_count), (vec![3, 7], 2));
    assert_eq!(&*accept(&mut after, START).session, "c");
}

#[test]
fn a_lane_that_stops_lets_open_sessions_end() {
    let mut lane = lane("3:a 4:b 7:a");
    let lock = accept(&mut lane, START).lock;
    let given = lane.take(lock, 1, START).unwrap();
    lane.stop();
    assert_eq!(lane.accept(START), None);
    assert!(take(&mut lane, lock, START).is_empty());
    lane.settle(lock, &given, &Settlement::Complete, START).unwrap();
    assert!(lane.has_open_sessions());
    lane.close(lock, START).unwrap();
    assert!(!lane.has_open_sessions());
}

#[test]
fn memory_is_bounded() {
    let mut lane = lane("");
    assert_eq!(lane.room(), 1000);
    for number in 1..=1000 {
        push(&mut lane, &format!("{number}:a"));
    }
    assert_eq!(lane.room(), 0);
    let lock = accept(&mut lane, START).lock;
    let given = take(&mut lane, lock, START);
    lane.settle(lock, &given, &Settlement::Complete, START).unwrap();
    assert_eq!(lane.room(), 100);
    check_record(&lane, "100 [] {}");
    assert_eq!(lane.next_timer(), Some(START + LOCK));
}
