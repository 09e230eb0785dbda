use std::time::Duration;

use uuid::Uuid;

use crate::observe::{Listing, Observer};
use crate::stored::Owner;

const LEASE: Duration = Duration::from_secs(10);

/// `"a1"` is the first life of the instance `a`.
fn owner(text: &str) -> Owner {
    let (instance, life) = text.split_at(1);
    let incarnation = Uuid::from_u128(life.parse().unwrap());
    Owner { instance: instance.to_owned(), incarnation }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Plays rounds such as `"3 a1=5 b1=2 -c1"`: after three seconds a listing has `a1` with the count
/// 5, `b1` with 2, and a lease names `c1`, who has no document.
fn play(rounds: &[&str]) -> Observer {
    let mut observer = Observer::new(LEASE);
    for round in rounds {
        let (now, text) = round.split_once(' ').unwrap_or((round, ""));
        let listing = Listing::at(seconds(now.parse().unwrap()));
        let seen: Vec<_> = text.split_whitespace().filter_map(|it| it.split_once('=')).collect();
        let seen: Vec<_> =
            seen.iter().map(|(who, count)| (owner(who), count.parse().unwrap())).collect();
        observer.observe(listing, seen.iter().map(|(who, count)| (who, *count)));
        for who in text.split_whitespace().filter_map(|it| it.strip_prefix('-')) {
            observer.absent(listing, &owner(who));
        }
    }
    observer
}

/// What the observer thinks after the rounds: `"+a1 -b1 ?c1"` for live, expired and unknown.
#[track_caller]
fn check(rounds: &[&str], expected: &str) {
    let observer = play(rounds);
    let found: Vec<_> = expected
        .split_whitespace()
        .map(|text| {
            let who = owner(&text[1..]);
            let sign = match (observer.is_live(&who), observer.is_expired(&who)) {
                (true, false) => '+',
                (false, true) => '-',
                (false, false) => '?',
                (true, true) => panic!("{text} is live and expired"),
            };
            format!("{sign}{}", &text[1..])
        })
        .collect();
    assert_eq!(found.join(" "), expected);
}

#[test]
fn a_member_that_counts_on_is_live_for_ever() {
    check(&["0 a1=1", "9 a1=2", "18 a1=3", "27 a1=4"], "+a1");
    check(&["0 a1=1", "100 a1=2"], "+a1");
}

#[test]
fn a_member_expires_after_a_lease_duration_without_change() {
    check(&["5 a1=1", "14 a1=1"], "+a1");
    check(&["5 a1=1", "15 a1=1"], "-a1");
    check(&["0 a1=1", "5 a1=2", "14 a1=2"], "+a1");
    check(&["0 a1=1", "5 a1=2", "15 a1=2"], "-a1");
}

#[test]
fn whom_nobody_has_seen_is_neither_live_nor_expired() {
    check(&[], "?a1");
    check(&["0 a1=1", "100 a1=2"], "+a1 ?a2 ?b1");
}

#[test]
fn the_first_look_never_calls_anybody_dead() {
    check(&["1000000 a1=1 -b1"], "+a1 +b1");
}

#[test]
fn one_who_was_thought_dead_and_counts_on_is_live_again() {
    check(&["0 a1=1", "20 a1=1"], "-a1");
    check(&["0 a1=1", "20 a1=1", "21 a1=2"], "+a1");
    check(&["0 a1=1", "20 a1=1", "21 a1=2", "31 a1=2"], "-a1");
}

#[test]
fn time_without_a_look_does_not_count() {
    // The observer itself was stopped; what it sees first afterwards decides.
    check(&["0 a1=1 b1=1", "3 a1=2 b1=2"], "+a1 +b1");
    check(&["0 a1=1 b1=1", "3 a1=2 b1=2", "500 a1=9 b1=2"], "+a1 -b1");
}

#[test]
fn a_count_that_goes_back_is_no_sign_of_life() {
    check(&["0 a1=5", "4 a1=4", "9 a1=5"], "+a1");
    check(&["0 a1=5", "4 a1=4", "10 a1=5"], "-a1");
    check(&["0 a1=5", "4 a1=4", "10 a1=4"], "-a1");
    check(&["0 a1=5", "4 a1=4", "8 a1=6", "17 a1=5"], "+a1");
    let observer = play(&["0 a1=5", "4 a1=6", "8 a1=5"]);
    assert_eq!(observer.unchanged_since(&owner("a1")), Some(seconds(4)));
}

#[test]
fn a_new_life_does_not_keep_the_old_one_alive() {
    check(&["0 a1=7", "4 a2=1 -a1"], "+a1 +a2");
    check(&["0 a1=7", "4 a2=1 -a1", "10 a2=3 -a1"], "-a1 +a2");
    // A new life counts from the beginning again.
    check(&["0 a1=7", "4 a2=1", "13 a2=2"], "+a2");
}

#[test]
fn an_old_listing_does_not_bring_the_old_life_back_for_longer() {
    check(&["0 a1=7", "4 a2=1 -a1", "6 a1=7", "10 a2=2 -a1"], "-a1 +a2");
}

#[test]
fn a_member_that_is_missing_from_a_listing_lives_on_until_its_time_is_over() {
    check(&["0 a1=1", "4"], "+a1");
    check(&["0 a1=1", "4", "9"], "+a1");
    check(&["0 a1=1", "4", "9 a1=2", "18 a1=2"], "+a1");
}

#[test]
fn an_owner_without_a_document_expires_from_when_it_was_first_missed() {
    check(&["5 -a1", "14 -a1"], "+a1");
    check(&["5 -a1", "15 -a1"], "-a1");
    // It was seen before, so its time had begun then.
    check(&["0 a1=3", "5 -a1", "10 -a1"], "-a1");
    // Its document shows up after all.
    check(&["0 -a1", "9 a1=0", "18 a1=0"], "+a1");
    check(&["0 -a1", "9 a1=0", "19 a1=0"], "-a1");
}

#[test]
fn an_expired_owner_stays_expired_as_long_as_a_lease_names_it() {
    check(&["0 a1=1", "10 -a1"], "-a1");
    check(&["0 a1=1", "10 -a1", "20 -a1", "30 -a1", "40 -a1"], "-a1");
}

#[test]
fn those_who_are_gone_are_forgotten() {
    check(&["0 a1=1", "10", "20"], "?a1");
    check(&["0 -a1", "10 -a1", "20", "30"], "?a1");
    let mut observer = Observer::new(LEASE);
    for round in 0..1_000_u64 {
        let restless = owner(&format!("a{round}"));
        observer.observe(Listing::at(seconds(round)), [(&restless, 0)]);
        observer.absent(Listing::at(seconds(round)), &owner(&format!("b{round}")));
        assert!(observer.sightings.len() <= 24, "{} after {round}", observer.sightings.len());
    }
}

#[test]
fn a_clock_that_stands_still_or_goes_back_expires_nobody() {
    check(&["50 a1=1", "50 a1=1", "3 a1=1"], "+a1");
    check(&["50 a1=1", "3 a1=1", "59 a1=1"], "+a1");
}

#[test]
fn a_listing_that_takes_long_is_read_in_favour_of_the_member() {
    let who = owner("a1");
    let mut observer = Observer::new(LEASE);
    observer.observe(Listing { asked: seconds(0), answered: seconds(4) }, [(&who, 1)]);
    assert_eq!(observer.unchanged_since(&who), Some(seconds(4)));
    // Unchanged from 4 to 13 for certain; whoever counts on the ends would say from 0 to 17.
    observer.observe(Listing { asked: seconds(13), answered: seconds(17) }, [(&who, 1)]);
    assert!(observer.is_live(&who));
    observer.observe(Listing { asked: seconds(14), answered: seconds(18) }, [(&who, 1)]);
    assert!(observer.is_expired(&who));
}

#[test]
fn the_same_member_twice_in_a_listing_counts_once() {
    check(&["0 a1=5 a1=4", "9 a1=5 a1=4"], "+a1");
    check(&["0 a1=5 a1=4", "10 a1=4 a1=5"], "-a1");
}

#[test]
fn a_document_that_is_only_found_is_no_sign_of_life() {
    let (found, counting) = (owner("a1"), owner("b1"));
    let observer = play(&["0 a1=7 b1=7", "5 a1=7 b1=8"]);
    assert!(observer.is_live(&found) && !observer.has_given_sign(&found));
    assert!(observer.has_given_sign(&counting));
    // A lease named it before its document was seen.
    let observer = play(&["0 -a1", "5 a1=1"]);
    assert!(!observer.has_given_sign(&found));
}

#[test]
fn the_next_expiry_is_that_of_the_longest_silence_among_the_others() {
    let me = owner("m1");
    let observer = play(&["0 m1=1 a1=1 b1=1", "4 m1=1 a1=1 b1=2"]);
    assert_eq!(observer.next_expiry(&me), Some(seconds(10)));
    let observer = play(&["0 m1=1 a1=1 b1=1", "4 m1=1 a1=1 b1=2", "10 m1=1 a1=1 b1=2"]);
    assert_eq!(observer.next_expiry(&me), Some(seconds(14)));
    assert_eq!(play(&["0 m1=1"]).next_expiry(&me), None);
}
