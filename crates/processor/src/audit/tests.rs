use millstream_core::{EffectiveKey, KeyRange};
use proptest::prelude::*;

use crate::audit::{AuditedLease, AuditedState, Coverage, HoleWatch, audit};

/// `"10-20"`; nothing before or after the sign is the end of the space.
fn range(text: &str) -> KeyRange {
    let (min, max) = text.split_once('-').unwrap();
    let max = if max.is_empty() { "FF" } else { max };
    KeyRange::new(min.parse().unwrap(), max.parse().unwrap()).unwrap()
}

/// `"a:-10"` is an active lease, `"a:-20>-10,10-20"` one that is being replaced, `"a:-10!"` a
/// retired one.
fn lease(text: &str) -> AuditedLease {
    let (id, text) = text.split_once(':').unwrap();
    let (keys, state) = match (text.split_once('>'), text.strip_suffix('!')) {
        (Some((keys, children)), _) => {
            let children = children.split(',').map(range).collect();
            (keys, AuditedState::Splitting { children })
        }
        (None, Some(keys)) => (keys, AuditedState::Retired),
        (None, None) => (text, AuditedState::Active),
    };
    AuditedLease { id: id.to_owned(), keys: range(keys), state }
}

fn leases(text: &str) -> Vec<AuditedLease> {
    text.split_whitespace().map(lease).collect()
}

fn text(keys: &KeyRange) -> String {
    let max = if *keys.max() == EffectiveKey::MAX { "" } else { &keys.max().to_string() };
    format!("{}-{max}", keys.min())
}

fn words(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(" ")
}

fn overlaps(coverage: &Coverage) -> String {
    words(coverage.overlaps.iter().map(|(one, two, keys)| format!("{one}+{two}:{}", text(keys))))
}

#[track_caller]
fn check(text_of_leases: &str, holes: &str, expected_overlaps: &str) {
    let mut leases = leases(text_of_leases);
    let coverage = audit(&[KeyRange::all()], &leases);
    assert_eq!(words(coverage.holes.iter().map(text)), holes, "the holes");
    assert_eq!(overlaps(&coverage), expected_overlaps, "the overlaps");
    assert_eq!(coverage.is_whole(), holes.is_empty() && expected_overlaps.is_empty());
    leases.reverse();
    assert_eq!(audit(&[KeyRange::all()], &leases), coverage, "the order should mean nothing");
}

#[test]
fn leases_that_tile_the_space_are_whole() {
    check("a:-", "", "");
    check("a:-10 b:10-20 c:20-", "", "");
    check("a:-10 b:1000-20 c:200000-", "", "");
}

#[test]
fn what_no_lease_stands_for_is_a_hole() {
    check("", "-", "");
    check("b:10-20", "-10 20-", "");
    check("a:-10 c:20-", "10-20", "");
    check("a:-10 b:18-20 c:30-", "10-18 20-30", "");
    check("a:-10! c:10-", "-10", "");
}

#[test]
fn what_two_leases_stand_for_is_an_overlap() {
    check("a:-20 b:10-", "", "a+b:10-20");
    check("a:- b:10-20 c:18-30", "", "a+b:10-20 a+c:18-30");
    check("a:-20 b:10-30 c:20-", "", "a+b:10-20 b+c:20-30");
}

#[test]
fn duplicate_documents_are_reported_and_break_nothing() {
    check("a:-10 b:10- c:10-", "", "b+c:10-");
    check("a:- b:- c:-", "", "a+b:- a+c:-");
    let coverage = audit(&[KeyRange::all()], &leases("c:10- a:-10 b:10- d:1000-"));
    let duplicate = |other: &str| ("b".to_owned(), other.to_owned());
    assert_eq!(coverage.duplicates, [duplicate("c"), duplicate("d")]);
    assert!(coverage.holes.is_empty());
    // The same document twice in one listing.
    assert_eq!(audit(&[KeyRange::all()], &leases("a:- a:-")).duplicates.len(), 1);
    // A retired parent with the keys of a living lease is none.
    assert!(audit(&[KeyRange::all()], &leases("a:-! b:-")).duplicates.is_empty());
}

#[test]
fn a_parent_stands_for_its_children_until_they_have_documents() {
    check("p:->-10,10-", "", "");
    check("p:->-10,10- a:-10", "", "");
    check("p:->-10,10- b:10-", "", "");
    check("p:->-10,10- a:-10 b:10-", "", "");
    check("p:-! a:-10 b:10-", "", "");
    // The parent was retired too early.
    check("p:-! a:-10", "10-", "");
}

#[test]
fn a_child_that_was_split_itself_still_counts_as_created() {
    check("p:->-10,10- a:-10>-08,08-10 c:-08 b:10-", "", "");
    check("p:->-10,10- a:-10! c:-08 d:08-10", "", "");
}

#[test]
fn children_that_leave_something_out_leave_a_hole() {
    check("p:->-10,18-", "10-18", "");
    check("p:->-10,18- a:-10 b:18-", "10-18", "");
    check("p:->-20,10-", "", "p+p:10-20");
}

#[test]
fn parents_of_a_merge_stand_for_their_own_keys_only() {
    check("p:-10>- q:10->-", "", "");
    check("p:-10>- q:10->- c:-", "", "");
    check("p:-10>- q:10-! c:-", "", "");
    check("p:-10>- q:10-", "", "");
}

#[test]
fn a_lease_can_be_replaced_by_one_with_the_same_keys() {
    check("p:->-", "", "");
    check("p:->- c:-", "", "");
}

#[test]
fn the_space_can_be_a_union_of_ranges() {
    let holes = |space: &str, text_of_leases: &str| {
        let space: Vec<_> = space.split_whitespace().map(range).collect();
        words(audit(&space, &leases(text_of_leases)).holes.iter().map(text))
    };
    assert_eq!(holes("-10 20-30", "a:-10 b:20-30"), "");
    assert_eq!(holes("20-30 -10", "a:08-28"), "-08 28-30");
    assert_eq!(holes("-10 10-20 20-30", ""), "-30");
    assert_eq!(holes("-20 10-30", "a:-"), "");
    assert_eq!(holes("", "a:-10"), "");
}

fn coverage(holes: &str) -> Coverage {
    Coverage { holes: holes.split_whitespace().map(range).collect(), ..Coverage::default() }
}

#[track_caller]
fn check_watch(audits: &[(&str, &str)]) {
    let mut watch = HoleWatch::default();
    for (number, (seen, confirmed)) in audits.iter().enumerate() {
        let found = watch.confirm(&coverage(seen));
        assert_eq!(words(found.iter().map(text)), *confirmed, "audit {number}");
    }
}

#[test]
fn a_hole_counts_after_three_audits() {
    check_watch(&[("10-20", ""), ("10-20", ""), ("10-20", "10-20"), ("10-20", "10-20")]);
    check_watch(&[("10-20", ""), ("1000-20", ""), ("10-2000", "10-2000")]);
}

#[test]
fn a_hole_that_was_not_there_once_is_counted_anew() {
    check_watch(&[("10-20", ""), ("10-20", ""), ("", ""), ("10-20", ""), ("10-20", "")]);
    check_watch(&[("10-20", ""), ("10-20", ""), ("10-18", ""), ("10-20", "")]);
}

#[test]
fn holes_are_counted_each_for_itself() {
    check_watch(&[("10-20", ""), ("10-20 30-", ""), ("10-20 30-", "10-20"), ("30-", "30-")]);
}

/// Keys of the small space of the properties.
const PLACES: u8 = 12;

/// The range between two places; the last place is the end of the space.
fn small(from: u8, to: u8) -> KeyRange {
    let key = |place: u8| match place {
        0 => EffectiveKey::MIN,
        PLACES => EffectiveKey::MAX,
        _ => EffectiveKey::from_bytes(&[place]).unwrap(),
    };
    KeyRange::new(key(from), key(to)).unwrap()
}

fn any_range() -> impl Strategy<Value = KeyRange> {
    (0..PLACES).prop_flat_map(|from| (from + 1..=PLACES).prop_map(move |to| small(from, to)))
}

fn any_state() -> impl Strategy<Value = AuditedState> {
    prop_oneof![
        3 => Just(AuditedState::Active),
        2 => prop::collection::vec(any_range(), 0..4)
            .prop_map(|children| AuditedState::Splitting { children }),
        1 => Just(AuditedState::Retired),
    ]
}

fn any_leases() -> impl Strategy<Value = Vec<AuditedLease>> {
    prop::collection::vec((any_range(), any_state()), 0..8).prop_map(|leases| {
        let named = |(number, (keys, state))| AuditedLease { id: format!("{number}"), keys, state };
        leases.into_iter().enumerate().map(named).collect()
    })
}

fn key(place: u8) -> EffectiveKey {
    EffectiveKey::from_bytes(&[place]).unwrap()
}

/// How often a lease stands for a place, by the words of the rules.
fn times(lease: &AuditedLease, leases: &[AuditedLease], place: &EffectiveKey) -> usize {
    if !lease.keys.contains(place) {
        return 0;
    }
    let created = |child: &KeyRange| leases.iter().any(|it| it.id != lease.id && it.keys == *child);
    match &lease.state {
        AuditedState::Active => 1,
        AuditedState::Retired => 0,
        AuditedState::Splitting { children } => {
            children.iter().filter(|child| child.contains(place) && !created(child)).count()
        }
    }
}

proptest! {
    #[test]
    fn every_place_is_judged_as_by_looking_at_it(
        leases in any_leases(),
        space in prop::collection::vec(any_range(), 0..4),
    ) {
        let coverage = audit(&space, &leases);
        let find = |id: &str| leases.iter().find(|it| it.id == id).unwrap();
        for place in (0..PLACES).map(key) {
            let count: usize = leases.iter().map(|it| times(it, &leases, &place)).sum();
            let in_space = space.iter().any(|keys| keys.contains(&place));
            let in_holes = coverage.holes.iter().filter(|keys| keys.contains(&place)).count();
            prop_assert_eq!(in_holes, usize::from(in_space && count == 0));
            let reported: Vec<_> =
                coverage.overlaps.iter().filter(|(_, _, keys)| keys.contains(&place)).collect();
            prop_assert_eq!(!reported.is_empty(), 1 < count);
            for (one, two, _) in reported {
                let least = if one == two { 2 } else { 1 };
                prop_assert!(least <= times(find(one), &leases, &place));
                prop_assert!(least <= times(find(two), &leases, &place));
            }
        }
        for pair in coverage.holes.windows(2) {
            prop_assert!(pair[0].max().trimmed() < pair[1].min().trimmed(), "holes touch");
        }
        prop_assert!(coverage.overlaps.len() <= 4 * leases.len());
        for (one, two) in &coverage.duplicates {
            prop_assert!(one < two && find(one).keys == find(two).keys);
        }
    }
}
