use proptest::prelude::*;

use crate::range::RangeId;
use crate::{EffectiveKey, KeyRange};

fn key(text: &str) -> EffectiveKey {
    text.parse().unwrap()
}

/// `"06AB..FF"`; `".."` is everything.
fn range(text: &str) -> KeyRange {
    let (min, max) = text.split_once("..").unwrap();
    KeyRange::new(key(min), if max.is_empty() { EffectiveKey::MAX } else { key(max) }).unwrap()
}

#[test]
fn an_empty_range_is_refused() {
    for (min, max) in [("06AB", "06AB"), ("06AB", "06AB00"), ("06AB00", "06AB"), ("07", "06")] {
        let error = KeyRange::new(key(min), key(max)).unwrap_err();
        assert_eq!(
            error.report(),
            format!("could not make the range [{min},{max}): it would be empty")
        );
    }
    assert!(KeyRange::new(EffectiveKey::MAX, key("FFFF")).is_err());
}

#[test]
fn zeros_at_the_end_of_a_bound_mean_nothing() {
    assert_eq!(range("06AB..07"), range("06AB0000..0700"));
    assert_eq!(range("..FF"), range("0000..FFFFFFFF"));
    assert_eq!(range("06AB0000..0700").to_string(), "[06AB0000,0700)");
    assert!(!range("06..06AB0000").overlaps(&range("06AB..07")));
    assert!(range("06AB0000..07").covers(&range("06AB..07")));
    assert!(range("06AB0000..07").contains(&key("06AB")));
    assert!(!range("06..06AB0000").contains(&key("06AB")));
    assert!(!range("06..06AB").contains(&key("06AB00")));
}

#[test]
fn a_range_includes_its_lower_bound_only() {
    let found =
        ["06", "06AB", "06AB01", "06FF", "07", "08"].map(|it| range("06AB..07").contains(&key(it)));
    assert_eq!(found, [false, true, true, true, false, false]);
    assert!(KeyRange::all().contains(&EffectiveKey::MIN));
    assert!(!KeyRange::all().contains(&EffectiveKey::MAX));
}

#[test]
fn ranges_overlap_where_they_share_a_place() {
    let check = |one: &str, two: &str, expected: Option<&str>| {
        let (one, two) = (range(one), range(two));
        assert_eq!(one.overlaps(&two), expected.is_some());
        assert_eq!(one.intersect(&two), expected.map(range));
        assert_eq!(two.intersect(&one), expected.map(range));
    };
    check("..", "10..20", Some("10..20"));
    check("10..20", "18..30", Some("18..20"));
    check("10..20", "20..30", None);
    check("10..20", "30..40", None);
    assert!(range("..").covers(&range("10..20")));
    assert!(range("10..20").covers(&range("10..20")));
    assert!(!range("10..20").covers(&range("10..21")));
    assert!(!range("10..20").covers(&range("0F..20")));
}

#[test]
fn a_split_is_inside() {
    assert_eq!(range("10..20").split_at(&key("18")).unwrap(), (range("10..18"), range("18..20")));
    for place in ["10", "1000", "20", "0F", "21", ""] {
        assert!(range("10..20").split_at(&key(place)).is_err(), "{place}");
    }
    assert!(KeyRange::all().split_at(&key("00")).is_err());
}

#[test]
fn the_space_is_divided_as_in_cosmos_db() {
    let bounds = |parts| -> Vec<String> {
        let ranges = KeyRange::divide(parts).unwrap();
        ranges.iter().skip(1).map(|it| it.min().to_string()).collect()
    };
    assert_eq!(KeyRange::divide(1).unwrap(), [KeyRange::all()]);
    assert_eq!(bounds(2), ["1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"]);
    assert_eq!(bounds(3), ["15555555555555555555555555555555", "2AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"]);
    assert_eq!(bounds(4)[2], "2FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF");
    assert!(KeyRange::divide(0).is_err());
    assert!(KeyRange::divide(10_001).is_err());
}

#[test]
fn the_middle_leaves_half_on_either_side() {
    let middle = |text| range(text).middle().map(|it| it.to_string());
    assert_eq!(middle("..").as_deref(), Some("1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"));
    assert_eq!(middle("10..20").as_deref(), Some("18000000000000000000000000000000"));
    assert_eq!(
        middle("1000000000000000000000000000000000..1000000000000000000000000000000001"),
        None
    );
    assert_eq!(middle("40..FF"), None);
}

#[test]
fn feed_ranges_have_the_text_of_the_sdks() {
    let json = r#"{"Range":{"min":"","max":"FF","isMinInclusive":true,"isMaxInclusive":false}}"#;
    assert_eq!(KeyRange::all().to_json(), json);
    assert_eq!(KeyRange::from_json(json).unwrap(), KeyRange::all());
    // As .NET writes it.
    assert_eq!(
        KeyRange::from_json(r#"{"Range":{"min":"05","max":"1fff"}}"#).unwrap(),
        range("05..1FFF")
    );
    let rust = "eyJSYW5nZSI6eyJtaW4iOiIiLCJtYXgiOiJGRiIsImlzTWluSW5jbHVzaXZl\
                Ijp0cnVlLCJpc01heEluY2x1c2l2ZSI6ZmFsc2V9fQ==";
    assert_eq!(KeyRange::all().to_base64(), rust);
    // Python puts blanks into the JSON.
    let python = "eyJSYW5nZSI6IHsibWluIjogIiIsICJtYXgiOiAiRkYiLCAiaXNNaW5JbmNs\
                  dXNpdmUiOiB0cnVlLCAiaXNNYXhJbmNsdXNpdmUiOiBmYWxzZX19";
    for text in [rust, python] {
        assert_eq!(KeyRange::from_base64(text).unwrap(), KeyRange::all());
    }
}

#[test]
fn a_range_from_a_key_to_itself_holds_the_key() {
    let check = |min: &str, max: &str, expected: Option<&str>| {
        let json = format!(r#"{{"Range":{{"min":"{min}","max":"{max}","isMaxInclusive":true}}}}"#);
        assert_eq!(KeyRange::from_json(&json).ok(), expected.map(range));
    };
    check("05FF", "05FF", Some("05FF..0600"));
    check("", "FF", Some(".."));
    check("", "", None);
}

#[test]
fn texts_that_are_no_feed_ranges_are_refused() {
    let check = |json: &str, reason: &str| {
        let report = KeyRange::from_json(json).unwrap_err().report();
        assert!(report.contains(reason), "{report}");
    };
    check("", "EOF");
    check(r#"{"PK":["a"]}"#, "missing field `Range`");
    check(r#"{"Range":{"min":"10","max":"10"}}"#, "it would be empty");
    check(r#"{"Range":{"min":"1","max":"FF"}}"#, "odd number of digits");
    check(r#"{"Range":{"min":"","max":"FF","isMinInclusive":false}}"#, "lower bound");
    check(&" ".repeat(4097), "it has 4097 bytes");
    for text in ["", "!", "e30=", "/w==", &"A".repeat(4097)] {
        assert!(KeyRange::from_base64(text).is_err(), "{text:?}");
    }
}

#[test]
fn the_longest_bounds_fit_the_text() {
    let (min, max) = ([0x3E; 336], [0x3F; 336]);
    let longest = KeyRange::new(EffectiveKey::new(&min), EffectiveKey::new(&max)).unwrap();
    assert_eq!(KeyRange::from_base64(&longest.to_base64()).unwrap(), longest);
}

#[test]
fn a_range_id_is_a_decimal_number() {
    assert_eq!(RangeId(17).to_string(), "17");
    assert_eq!("17".parse::<RangeId>().unwrap(), RangeId(17));
    for text in ["", "-1", "1a", "4294967296"] {
        assert!(text.parse::<RangeId>().is_err(), "{text:?}");
    }
}

fn any_range() -> impl Strategy<Value = KeyRange> {
    (prop::collection::vec(0..4_u8, 0..4), prop::collection::vec(0..4_u8, 0..4))
        .prop_filter_map("empty", |(min, max)| {
            KeyRange::new(EffectiveKey::new(&min), EffectiveKey::new(&max)).ok()
        })
}

proptest! {
    #[test]
    fn parts_tile_the_space(parts in 1..=10_000_u32) {
        let ranges = KeyRange::divide(parts).unwrap();
        prop_assert_eq!(ranges.len(), usize::try_from(parts).unwrap());
        prop_assert_eq!(ranges.first().unwrap().min(), &EffectiveKey::MIN);
        prop_assert_eq!(ranges.last().unwrap().max(), &EffectiveKey::MAX);
        for pair in ranges.windows(2) {
            prop_assert_eq!(pair[0].max(), pair[1].min());
            prop_assert_eq!(pair[0].max().as_bytes().len(), 16);
        }
    }

    #[test]
    fn an_intersection_holds_what_both_hold(
        one in any_range(), two in any_range(), place in prop::collection::vec(0..4_u8, 0..5),
    ) {
        let place = EffectiveKey::new(&place);
        let both = one.contains(&place) && two.contains(&place);
        let intersection = one.intersect(&two);
        prop_assert_eq!(intersection.as_ref().is_some_and(|it| it.contains(&place)), both);
        prop_assert_eq!(one.covers(&two), intersection.as_ref() == Some(&two));
        prop_assert_eq!(one.overlaps(&two), intersection.is_some());
    }

    #[test]
    fn the_halves_of_a_split_hold_what_the_whole_held(
        whole in any_range(), at in prop::collection::vec(0..4_u8, 0..4),
        place in prop::collection::vec(0..4_u8, 0..5),
    ) {
        let place = EffectiveKey::new(&place);
        if let Ok((low, high)) = whole.split_at(&EffectiveKey::new(&at)) {
            prop_assert_eq!(low.contains(&place) || high.contains(&place), whole.contains(&place));
            prop_assert!(!(low.contains(&place) && high.contains(&place)));
            prop_assert!(whole.covers(&low) && whole.covers(&high) && !low.overlaps(&high));
        }
    }

    #[test]
    fn the_texts_give_the_range_back(range in any_range()) {
        let found = KeyRange::from_base64(&range.to_base64()).unwrap();
        prop_assert_eq!(found.to_string(), range.to_string());
        let json = serde_json::to_string(&range).unwrap();
        prop_assert_eq!(serde_json::from_str::<KeyRange>(&json).unwrap(), range);
    }

    #[test]
    fn reading_any_text_does_not_panic(text: String) {
        let _ = KeyRange::from_base64(&text);
        let _ = KeyRange::from_json(&text);
    }
}
