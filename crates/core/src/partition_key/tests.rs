use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::{
    ContainerSettings, EffectiveKey, ErrorKind, HashKind, KeyRange, NewBody, PartitionKey,
    PartitionKeyComponent, PartitionKeyDefinition,
};

fn key(text: &str) -> PartitionKey {
    text.parse().unwrap()
}

/// Reads `text` and writes it again.
#[track_caller]
fn check_text(text: &str, expected: &str) {
    let found = text.parse::<PartitionKey>();
    assert_eq!(
        found.as_ref().map(ToString::to_string).map_err(|it| it.report()),
        Ok(expected.into())
    );
}

#[track_caller]
fn check_refused(text: &str, reason: &str) {
    let error = text.parse::<PartitionKey>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.report().contains(reason), "{}", error.report());
}

/// Finds the key of `body` where `paths`, divided by blanks, lead.
#[track_caller]
fn check_extract(paths: &str, body: &str, expected: &str) {
    let definition = PartitionKeyDefinition::multi_hash(paths.split(' ')).unwrap();
    let found = definition.extract(body.as_bytes()).map(|key| key.to_string());
    assert_eq!(found.map_err(|it| it.report()).unwrap_or_else(|it| it), expected);
}

#[track_caller]
fn check_path(path: &str, expected: Result<&[&str], &str>) {
    match (PartitionKeyDefinition::hash(path), expected) {
        (Ok(definition), Ok(expected)) => assert_eq!(definition.segments(), [expected]),
        (Err(error), Err(reason)) => {
            assert!(error.report().ends_with(reason), "{}", error.report())
        }
        (found, _) => panic!("{path:?} gave {found:?}"),
    }
}

#[test]
fn the_text_is_json_in_ascii() {
    check_text(r#"["a"]"#, r#"["a"]"#);
    check_text(r#"[""]"#, r#"[""]"#);
    check_text(r#"["a","b"]"#, r#"["a","b"]"#);
    check_text(" [ \"a\" , null,true,false ]".replace(",false", "").as_str(), r#"["a",null,true]"#);
    check_text("[{}]", "[{}]");
    check_text("[{ }]", "[{}]");
    check_text(
        r#"["é😀\u00e9\n\u0000\"\\/ ~\u007f"]"#,
        r#"["\u00e9\ud83d\ude00\u00e9\n\u0000\"\\/ ~\u007f"]"#,
    );
}

#[test]
fn numbers_are_written_shortest() {
    check_text("[1.0]", "[1]");
    check_text("[-0.0]", "[0]");
    check_text("[-1.5e0]", "[-1.5]");
    check_text("[9007199254740993]", "[9007199254740992]");
    check_text("[1e20]", "[100000000000000000000]");
    check_text("[1e21]", "[1e21]");
    check_text("[0.000001]", "[0.000001]");
    check_text("[1e-7]", "[1e-7]");
    check_text("[5e-324]", "[5e-324]");
    check_text("[1.7976931348623157E+308]", "[1.7976931348623157e308]");
}

#[test]
fn texts_that_are_no_keys_are_refused() {
    check_refused("", "EOF");
    check_refused("[", "EOF");
    check_refused(r#""a""#, "expected a sequence");
    check_refused(r#"["a"] x"#, "trailing");
    check_refused("[]", "it has no components");
    check_refused("[1,2,3,4]", "it has more than three components");
    check_refused(r#"[{"a":1}]"#, "a component is an object");
    check_refused("[[]]", "a component is an array");
    check_refused("[1e400]", "inf is not a number of JSON");
    check_refused(r#"["\ud800"]"#, "unexpected end of hex escape");
    check_refused(&format!("[{}]", " ".repeat(20_000)), "its text has 20002 bytes");
}

#[test]
fn strings_have_2048_bytes_together() {
    let long = "é".repeat(1024);
    check_refused(&format!(r#"["{long}a"]"#), "its strings have 2049 bytes, more than 2048");
    check_refused(&format!(r#"["{long}","a"]"#), "its strings have 2049 bytes");
    let definition = PartitionKeyDefinition::hash("/a").unwrap();
    assert!(definition.effective(&PartitionKey::from(long.as_str())).is_ok());
    assert!(definition.effective(&PartitionKey::from(long + "a")).is_err());
}

#[test]
fn every_byte_of_the_longest_key_may_be_escaped() {
    let longest = PartitionKey::from("\u{1}".repeat(2048));
    assert_eq!(key(&longest.to_string()), longest);
}

#[test]
fn constructors_give_what_the_text_gives() {
    assert_eq!(PartitionKey::from("a"), key(r#"["a"]"#));
    assert_eq!(PartitionKey::from(true), key("[true]"));
    assert_eq!(PartitionKey::from(7), key("[7]"));
    assert_eq!(PartitionKey::from(i64::MAX), key("[9223372036854775807]"));
    assert_eq!(PartitionKey::number(-0.0).unwrap(), key("[0]"));
    assert_eq!(PartitionKey::try_from(0.5).unwrap(), key("[0.5]"));
    assert_eq!(PartitionKey::none(), key("[{}]"));
    assert_eq!(PartitionKey::null(), key("[null]"));
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(PartitionKey::number(number).is_err());
    }
}

#[test]
fn keys_are_ordered_by_kind_then_value() {
    let ordered = [
        "[{}]",
        "[null]",
        "[false]",
        "[true]",
        "[-1]",
        "[0]",
        "[1e300]",
        r#"[""]"#,
        r#"["a"]"#,
        r#"["a",{}]"#,
        r#"["a","b"]"#,
        r#"["b"]"#,
    ];
    let keys: BTreeSet<PartitionKey> = ordered.into_iter().map(key).collect();
    assert_eq!(keys.iter().map(ToString::to_string).collect::<Vec<_>>(), ordered);
    assert!(key(r#"["a"]"#).is_prefix_of(&key(r#"["a","b"]"#)));
    assert!(!key(r#"["a","b"]"#).is_prefix_of(&key(r#"["a"]"#)));
}

/// The form is stored: these bytes may never change.
#[test]
fn the_stored_form_stays_as_it_is() {
    let mut bytes = Vec::new();
    key("[{},null,false]").encode(&mut bytes);
    key("[true,1]").encode(&mut bytes);
    key(r#"["aé"]"#).encode(&mut bytes);
    let expected: [&[u8]; 3] = [
        &[3, 0x00, 0x01, 0x02],
        &[2, 0x03, 0x05, 0, 0, 0, 0, 0, 0, 0xF0, 0x3F],
        &[1, 0x08, b'a', 0xC3, 0xA9, 0xFF],
    ];
    assert_eq!(bytes, expected.concat());
}

#[test]
fn bytes_that_were_never_written_are_corrupt() {
    let long = [&[1, 8][..], &[b'a'; 2049], &[0xFF]].concat();
    let cases: [&[u8]; 12] = [
        &[],
        &[0],
        &[4, 0, 0, 0, 0],
        &[1],
        &[2, 0],
        &[1, 4],
        &[1, 5, 0, 0, 0, 0, 0, 0, 0],
        &[1, 5, 0, 0, 0, 0, 0, 0, 0, 0x80],
        &[1, 5, 0, 0, 0, 0, 0, 0, 0xF0, 0x7F],
        &[1, 8, b'a'],
        &[1, 8, 0xC3, 0xFF],
        &long,
    ];
    for bytes in cases {
        let error = PartitionKey::decode(bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{bytes:?}");
    }
}

#[test]
fn paths_have_plain_and_quoted_segments() {
    check_path("/partitionKey", Ok(&["partitionKey"]));
    check_path("/a/b c/d", Ok(&["a", "b c", "d"]));
    check_path(r#"/"a b"/c"#, Ok(&["a b", "c"]));
    check_path(r#"/"a/b"/'c"d'"#, Ok(&["a/b", "c\"d"]));
    check_path(r#"/"a\"\\b""#, Ok(&["a\"\\b"]));
    check_path("/ a / b", Ok(&["a", "b"]));
    check_path("", Err("does not begin with a slash"));
    check_path("a", Err("does not begin with a slash"));
    check_path("/", Err("has an empty segment"));
    check_path("/a/", Err("has an empty segment"));
    check_path("/a//b", Err("has an empty segment"));
    check_path(r#"/"""#, Err("has an empty segment"));
    check_path(r#"/"a"#, Err("lacks a closing quote"));
    check_path(r#"/"a\"#, Err("ends in a backslash"));
    check_path(r#"/"a"b"#, Err("goes on after a closing quote"));
    check_path(&"/a".repeat(33), Err("has more than 32 segments"));
    check_path(&format!("/{}", "a".repeat(1024)), Err("is longer than 1024 bytes"));
}

#[test]
fn a_definition_has_as_many_paths_as_its_kind_allows() {
    let allowed = |count, kind| {
        PartitionKeyDefinition::new(["/a", "/b", "/c", "/d"].into_iter().take(count), kind).is_ok()
    };
    for kind in [HashKind::V1, HashKind::V2] {
        assert_eq!([0, 1, 2].map(|count| allowed(count, kind)), [false, true, false]);
    }
    let found = [0, 1, 2, 3, 4].map(|count| allowed(count, HashKind::MultiHash));
    assert_eq!(found, [false, true, true, true, false]);
    assert!(PartitionKeyDefinition::multi_hash(["/a", "/a"]).is_err());
    assert!(PartitionKeyDefinition::multi_hash(["/a", "/a/b"]).is_err());
    assert!(PartitionKeyDefinition::multi_hash(["/a/b", "/a/c"]).is_ok());
}

#[test]
fn a_definition_reads_and_writes_the_form_of_cosmos_db() {
    let check = |text: &str, expected: &str| {
        let found = serde_json::from_str::<PartitionKeyDefinition>(text)
            .map(|definition| serde_json::to_string(&definition).unwrap())
            .unwrap_or_else(|error| error.to_string());
        assert!(found.starts_with(expected), "{found}");
    };
    check(r#"{"paths":["/a"]}"#, r#"{"paths":["/a"],"kind":"Hash","version":1}"#);
    check(r#"{"paths":["/a"],"kind":"Hash"}"#, r#"{"paths":["/a"],"kind":"Hash","version":1}"#);
    let whole = r#"{"paths":["/a"],"kind":"Hash","version":2}"#;
    check(whole, whole);
    check(r#"{"version":2,"systemKey":true,"kind":"Hash","paths":["/a"]}"#, whole);
    let whole = r#"{"paths":["/a","/b"],"kind":"MultiHash","version":2}"#;
    check(whole, whole);
    check(r#"{"paths":["/a"],"kind":"Hash","version":3}"#, "Hash has versions 1 and 2");
    check(r#"{"paths":["/a"],"kind":"MultiHash","version":1}"#, "MultiHash has version 2 only");
    check(r#"{"paths":["/a","/b"],"version":2}"#, "could not define the partition key: Hash takes");
    check(r#"{"paths":["/a"],"kind":"Range"}"#, "unknown variant");
}

#[test]
fn the_key_is_found_along_its_paths() {
    check_extract("/a", r#"{"id":"1","a":"x","z":[{"a":1}]}"#, r#"["x"]"#);
    check_extract("/a", r#" { "b" : {"a":1} } "#, "[{}]");
    check_extract("/a", r#"{"a":null}"#, "[null]");
    check_extract("/a", r#"{"a":-0.0}"#, "[0]");
    check_extract("/a/b", r#"{"b":1,"a":{"c":2,"b":true}}"#, "[true]");
    check_extract("/a/b", r#"{"a":[{"b":1}]}"#, "[{}]");
    check_extract("/a/b", r#"{"a":1e400}"#, "[{}]");
    check_extract("/a/c /a/b /d", r#"{"d":3,"a":{"b":2,"c":1}}"#, "[1,2,3]");
    check_extract("/a /b", r#"{"b":2}"#, "[{},2]");
    check_extract("/a/b/c /a/d", r#"{"a":{"b":{"c":"x"},"d":"y"}}"#, r#"["x","y"]"#);
}

#[test]
fn names_are_compared_after_unescaping() {
    check_extract("/ab", r#"{"\u0061b":"x"}"#, r#"["x"]"#);
    check_extract("/a\u{e9}", r#"{"a\u00e9":"x"}"#, r#"["x"]"#);
    check_extract("/a", r#"{"\ud800":1,"a":"x","b":"\ud800"}"#, r#"["x"]"#);
}

#[test]
fn the_last_of_equal_names_counts() {
    check_extract("/a", r#"{"a":"x","a":"y"}"#, r#"["y"]"#);
    check_extract("/a", r#"{"a":{},"a":"y"}"#, r#"["y"]"#);
    check_extract("/a/b", r#"{"a":{"b":1},"a":{"c":2}}"#, "[{}]");
    check_extract("/a/b", r#"{"a":{"b":1},"a":2}"#, "[{}]");
}

#[test]
fn an_object_or_an_array_counts_as_no_value() {
    check_extract("/a", r#"{"a":{}}"#, "[{}]");
    check_extract("/a", r#"{"a":"x","a":[1]}"#, "[{}]");
    check_extract("/a", r#"{"a":{"b":"x"}}"#, "[{}]");
    check_extract("/a/b", r#"{"a":{"b":["x"]}}"#, "[{}]");
}

#[test]
fn numbers_are_rounded_to_the_nearest_double() {
    // serde_json alone is off by one unit in the last place here.
    let text = "1.0715660391465826e-75";
    let expected = PartitionKey::number(text.parse().unwrap()).unwrap();
    check_extract("/a", &format!(r#"{{"a":{text}}}"#), &expected.to_string());
    assert_eq!(key(&format!("[{text}]")), expected);
}

#[test]
fn values_that_cannot_be_keys_are_refused() {
    check_extract(
        "/a",
        r#"{"a":1e400}"#,
        "could not use the partition key: inf is not a number of JSON",
    );
    let definition = PartitionKeyDefinition::hash("/a").unwrap();
    for body in ["", "[]", "1", r#"{"a":"x""#, r#"{"a":"x"} {}"#, r#"{"a":"x",}"#, r#"{"b":tru}"#] {
        let error = definition.extract(body.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.report().starts_with("could not find the partition key in the item: "));
    }
    assert!(definition.extract(b"{\"a\":\"\xFF\"}").is_err());
    assert!(definition.extract(format!(r#"{{"a":"{}"}}"#, "x".repeat(2049)).as_bytes()).is_err());
}

#[test]
fn a_deep_item_is_read_without_recursion() {
    let deep = format!(r#"{{"b":{}{},"a":1}}"#, "[".repeat(100_000), "]".repeat(100_000));
    check_extract("/a", &deep, "[1]");
}

#[test]
fn only_whole_keys_have_a_place() {
    let definition = PartitionKeyDefinition::multi_hash(["/a", "/b"]).unwrap();
    assert!(definition.effective(&key("[1,2]")).is_ok());
    let error = definition.effective(&key("[1]")).unwrap_err();
    assert_eq!(
        error.report(),
        "could not hash the partition key: it has 1 components where the container has 2 paths"
    );
    assert!(definition.effective(&key("[1,2,3]")).is_err());
    assert!(PartitionKeyDefinition::hash("/a").unwrap().effective(&key("[1,2]")).is_err());
}

#[test]
fn a_key_and_a_prefix_have_ranges() {
    let range = |kind, paths: &[&str], text: &str| {
        let definition = PartitionKeyDefinition::new(paths.iter().copied(), kind).unwrap();
        definition.range_of(&key(text)).map(|range| range.to_string()).ok()
    };
    assert_eq!(
        range(HashKind::V2, &["/a"], r#"["a"]"#).as_deref(),
        Some("[3A5381E1114EB8D3FCC90795045B49B7,3A5381E1114EB8D3FCC90795045B49B8)")
    );
    assert_eq!(
        range(HashKind::V1, &["/a"], r#"["a"]"#).as_deref(),
        Some("[05C1D78593652C086200,05C1D78593652C086201)")
    );
    assert_eq!(
        range(HashKind::MultiHash, &["/a", "/b"], r#"["a"]"#).as_deref(),
        Some("[3A5381E1114EB8D3FCC90795045B49B7,3A5381E1114EB8D3FCC90795045B49B7FF)")
    );
    assert_eq!(
        range(HashKind::MultiHash, &["/a"], r#"["a"]"#).as_deref(),
        Some("[3A5381E1114EB8D3FCC90795045B49B7,3A5381E1114EB8D3FCC90795045B49B8)")
    );
    assert_eq!(range(HashKind::V2, &["/a"], r#"["a","b"]"#), None);
    assert_eq!(range(HashKind::MultiHash, &["/a", "/b"], r#"["a","b","c"]"#), None);
}

#[test]
fn the_middle_of_version_1_halves_its_hashes() {
    let definition = PartitionKeyDefinition::new(["/a"], HashKind::V1).unwrap();
    let quarters = definition.divide(4).unwrap();
    let middle = |min: &KeyRange, max: &KeyRange| {
        let range = KeyRange::new(min.min().clone(), max.max().clone()).unwrap();
        definition.middle(&range)
    };
    assert_eq!(middle(&quarters[0], &quarters[3]).as_ref(), Some(quarters[2].min()));
    assert_eq!(middle(&quarters[0], &quarters[1]).as_ref(), Some(quarters[1].min()));
    assert_eq!(middle(&quarters[2], &quarters[3]).as_ref(), Some(quarters[3].min()));
    // What lies beyond all hashes of version 1 has no middle.
    let beyond = KeyRange::new("06".parse().unwrap(), EffectiveKey::MAX).unwrap();
    assert_eq!(definition.middle(&beyond), None);
}

#[test]
fn parts_of_version_1_share_its_keys() {
    let definition = PartitionKeyDefinition::new(["/a"], HashKind::V1).unwrap();
    let parts = definition.divide(4).unwrap();
    let mut counts = [0; 4];
    for number in 0..1000 {
        let place = definition.effective(&PartitionKey::from(number)).unwrap();
        counts[parts.iter().position(|part| part.contains(&place)).unwrap()] += 1;
    }
    assert!(counts.iter().all(|count| 150 < *count), "{counts:?}");
}

fn component() -> impl Strategy<Value = PartitionKeyComponent> {
    prop_oneof![
        Just(PartitionKeyComponent::Undefined),
        Just(PartitionKeyComponent::Null),
        any::<bool>().prop_map(PartitionKeyComponent::from),
        any::<i64>().prop_map(PartitionKeyComponent::from),
        any::<f64>()
            .prop_filter("finite", |it| it.is_finite())
            .prop_map(PartitionKeyComponent::from),
        any::<String>().prop_map(PartitionKeyComponent::from),
        "[a\\x00\u{ff}]{0,3}".prop_map(PartitionKeyComponent::from),
    ]
}

fn any_key() -> impl Strategy<Value = PartitionKey> {
    prop::collection::vec(component(), 1..=3)
        .prop_map(|components| PartitionKey::of(components).unwrap())
}

fn encoded(key: &PartitionKey) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

/// Checks whether a body may be stored under a key, in the quick way and in the thorough one.
#[track_caller]
fn check_body(path: &str, key: &str, body: &str, is_right: bool) {
    let definition = PartitionKeyDefinition::hash(path).unwrap();
    let settings = ContainerSettings::new(definition.clone());
    let checked = NewBody::check(body.to_owned().into(), &key.into(), &settings);
    assert_eq!(checked.is_ok(), is_right, "{body}");
    let found = definition.extract(body.as_bytes()).unwrap();
    assert_eq!(found == PartitionKey::from(key), is_right, "{body}");
}

#[test]
fn a_body_has_its_key_however_it_is_spelled() {
    check_body("/key", "ab", r#"{"id":"1","key":"ab"}"#, true);
    check_body("/key", "ab", r#"{"id":"1","key":"\u0061b"}"#, true);
    check_body("/key", "ab", r#"{"id":"1","k\u0065y":"ab"}"#, true);
    check_body("/key", "ab", r#"{"id":"1","key":"ab","key":"c"}"#, false);
    check_body("/key", "ab", r#"{"id":"1","key":"c","key":"ab"}"#, true);
    check_body("/key", "ab", r#"{"id":"1"}"#, false);
    check_body("/key", "1", r#"{"id":"1","key":1}"#, false);
    check_body("/id", "ab", r#"{"id":"ab"}"#, true);
    check_body("/type", "ab", r#"{"id":"1","type":"ab"}"#, true);
    check_body("/a/key", "ab", r#"{"id":"1","key":"ab","a":{"key":"c"}}"#, false);
    // What is an escape in JSON is not one in the key.
    check_body("/key", r"a\n", r#"{"id":"1","key":"a\n"}"#, false);
    check_body("/key", r"a\n", r#"{"id":"1","key":"a\\n"}"#, true);
}

proptest! {
    #[test]
    fn the_stored_form_gives_the_key_and_the_rest_back(key in any_key(), rest: Vec<u8>) {
        let bytes = [encoded(&key), rest.clone()].concat();
        let (found, after) = PartitionKey::decode(&bytes).unwrap();
        prop_assert_eq!(found, key);
        prop_assert_eq!(after, &rest[..]);
    }

    #[test]
    fn no_stored_form_begins_another(one in any_key(), two in any_key()) {
        prop_assert_eq!(encoded(&one).starts_with(&encoded(&two)), one == two);
    }

    #[test]
    fn the_text_gives_the_key_back(key in any_key()) {
        let text = key.to_string();
        prop_assert!(text.chars().all(|it| (' '..='~').contains(&it)));
        prop_assert_eq!(text.parse::<PartitionKey>().unwrap(), key);
    }

    #[test]
    fn an_item_gives_its_key_back(first in component(), second in component()) {
        let key = PartitionKey::of([first.clone(), second.clone()]).unwrap();
        let mut body = r#"{"x":[1,{"a":2}],"#.to_owned();
        for (name, component) in [("a", first), ("b", second)] {
            if component != PartitionKeyComponent::Undefined {
                body += &format!(r#""{name}":{component},"#);
            }
        }
        body += r#""y":null}"#;
        let definition = PartitionKeyDefinition::multi_hash(["/a", "/b"]).unwrap();
        prop_assert_eq!(definition.extract(body.as_bytes()).unwrap(), key);
    }

    #[test]
    fn a_key_lies_in_its_own_range_and_in_those_of_its_prefixes(key in any_key()) {
        let paths = ["/a", "/b", "/c"].into_iter().take(key.components().len());
        let definition = PartitionKeyDefinition::multi_hash(paths).unwrap();
        let place = definition.effective(&key).unwrap();
        for length in 1..=key.components().len() {
            let prefix = PartitionKey::of(key.components()[..length].iter().cloned()).unwrap();
            prop_assert!(definition.range_of(&prefix).unwrap().contains(&place));
        }
    }

    #[test]
    fn decoding_any_bytes_does_not_panic(bytes: Vec<u8>) {
        if let Ok((key, rest)) = PartitionKey::decode(&bytes) {
            prop_assert_eq!([&encoded(&key), rest].concat(), bytes);
        }
    }

    #[test]
    fn decoding_nearly_right_bytes_does_not_panic(
        key in any_key(), place: prop::sample::Index, byte: u8,
    ) {
        let mut bytes = encoded(&key);
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Ok((key, rest)) = PartitionKey::decode(&bytes) {
            prop_assert_eq!([&encoded(&key), rest].concat(), bytes);
        }
    }

    #[test]
    fn reading_any_text_does_not_panic(text: String) {
        let _ = text.parse::<PartitionKey>();
        let _ = PartitionKeyDefinition::hash(text.as_str());
        let definition = PartitionKeyDefinition::hash("/a/b").unwrap();
        let _ = definition.extract(text.as_bytes());
    }
}
