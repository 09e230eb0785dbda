use proptest::prelude::*;

use super::*;
use crate::json::edit::{set_properties, set_property};
use crate::json::scanner::properties;
use crate::{ErrorKind, JSON_DEPTH_MAX};

/// `expected` is `id ttl kind`, or part of the report of an error.
#[track_caller]
fn check_scan(body: &str, expected: &str) {
    match Envelope::scan(body.as_bytes()) {
        Ok(Envelope { id, ttl, kind }) => {
            let ttl = ttl.map_or("-".to_owned(), |ttl| format!("{ttl:?}"));
            let kind = kind.unwrap_or("-".to_owned());
            assert_eq!(format!("{id} {ttl} {kind}"), expected, "{body}");
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.report().contains(expected), "{body}: {}", error.report());
        }
    }
}

/// Whether `json` is one JSON value.
fn is_json(json: &[u8]) -> bool {
    std::str::from_utf8(json).is_ok_and(|text| RawJson::parse(text).is_ok())
}

#[track_caller]
fn check_value(json: &str, expected: &str) {
    let found = RawJson::parse(json).map_or_else(|error| error.report(), |it| it.0);
    let found = found.trim_start_matches("could not read a JSON value: ");
    assert_eq!(found, expected, "{json}");
}

fn nested(depth: u32) -> String {
    let depth = usize::try_from(depth - 1).unwrap();
    format!("{{\"id\":\"1\",\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn an_envelope_is_read_from_anywhere_in_the_body() {
    check_scan(r#"{"id":"1"}"#, "1 - -");
    check_scan(
        " {\n\t\"id\" : \"1\" ,\r\n \"ttl\" : 5 , \"type\" : \"order\" } \n",
        "1 Seconds(5) order",
    );
    check_scan(r#"{"a":{"id":2,"ttl":0},"b":[{"type":"x"}],"id":"1","ttl":-1}"#, "1 Never -");
    check_scan(r#"{"id":"1","type":5}"#, "1 - -");
    check_scan(r#"{"id":"1","type":null}"#, "1 - -");
    check_scan(r#"{"id":"ä€😀"}"#, "ä€😀 - -");
}

#[test]
fn names_and_strings_may_be_spelled_with_escapes() {
    check_scan(r#"{"\u0069d":"\u00e4\ud83d\ude00\"","t\u0079pe":"\u0041"}"#, "ä😀\" - A");
    check_scan(r#"{"i\\d":"2","id":"1"}"#, "1 - -");
}

#[test]
fn of_a_repeated_property_the_last_one_counts() {
    check_scan(r#"{"id":2,"id":"1","ttl":0,"ttl":7,"type":"a","type":1}"#, "1 Seconds(7) -");
    check_scan(r#"{"id":"1","ttl":7,"ttl":0}"#, "could not use 0 as time to live");
}

#[test]
fn numbers_of_any_size_are_accepted() {
    let body = r#"{"id":"1","n":[1e400,-1E+400,18446744073709551615,0.1,-0,0e0,1.5e-999]}"#;
    check_scan(body, "1 - -");
    let digits = "9".repeat(5000);
    check_scan(&format!("{{\"id\":\"1\",\"n\":{digits}.{digits}e{digits}}}"), "1 - -");
}

#[test]
fn a_body_is_one_object_with_a_string_id() {
    check_scan("", "expected an object at byte 0");
    check_scan("[]", "expected an object at byte 0");
    check_scan("\u{feff}{}", "expected an object at byte 0");
    check_scan("{}", "it has no property \"id\"");
    check_scan(r#"{"id":1}"#, "its property \"id\" is not a string");
    check_scan(r#"{"id":null}"#, "its property \"id\" is not a string");
    check_scan(r#"{"id":""}"#, "it is empty");
    check_scan(r#"{"id":"a/b"}"#, "it holds / or \\");
    check_scan(r#"{"id":"1"}x"#, "expected the end at byte 10");
    check_scan(r#"{"id":"1"}{}"#, "expected the end at byte 10");
    check_scan(r#"{"id":"1",}"#, "expected a string at byte 10");
    check_scan(r#"{"id":"1""#, "expected \",\" or \"}\" at byte 9");
    check_scan(r#"{"id" "1"}"#, "expected \":\" at byte 6");
    check_scan(r#"{id:"1"}"#, "expected a string at byte 1");
    let report = Envelope::scan(b"{\"id\":\"\xff\"}").unwrap_err().report();
    assert_eq!(report, "could not read the item's body: no UTF-8 at byte 7");
}

#[test]
fn a_time_to_live_is_never_or_whole_positive_seconds() {
    check_scan(r#"{"id":"1","ttl":1}"#, "1 Seconds(1) -");
    check_scan(r#"{"id":"1","ttl":2147483647}"#, "1 Seconds(2147483647) -");
    for ttl in [
        "0",
        "-0",
        "-2",
        "2147483648",
        "1e400",
        "1.5",
        "10.0",
        "1e1",
        "null",
        "true",
        "\"5\"",
        "[1]",
    ] {
        check_scan(
            &format!("{{\"id\":\"1\",\"ttl\":{ttl}}}"),
            &format!("could not use {ttl} as time to live"),
        );
    }
    assert_eq!(TimeToLive::new(-1).unwrap(), TimeToLive::Never);
    assert_eq!(TimeToLive::new(60).unwrap(), TimeToLive::Seconds(60));
    assert!(TimeToLive::new(0).is_err());
    assert!(TimeToLive::new(i64::MIN).is_err());
}

#[test]
fn nesting_has_a_limit_and_costs_no_stack() {
    check_scan(&nested(JSON_DEPTH_MAX), "1 - -");
    check_scan(&nested(JSON_DEPTH_MAX + 1), "nested deeper than 128 levels at byte 141");
    check_scan(&format!("{{\"a\":{}", "[".repeat(1_000_000)), "nested deeper than 128 levels");
    check_scan(
        &format!("{{\"a\":{}", "{\"a\":".repeat(1_000_000)),
        "nested deeper than 128 levels",
    );
    // Levels next to each other do not add up.
    check_scan(&format!("{{\"id\":\"1\",\"a\":[{}0]}}", "[[]],{\"b\":{}},".repeat(500)), "1 - -");
}

#[test]
fn values_are_checked_to_the_byte() {
    check_value(" [1, {\"a\" : null}, true,false] ", "[1, {\"a\" : null}, true,false]");
    check_value("01", "expected the end at byte 1");
    check_value("-", "expected a digit at byte 1");
    check_value("1.", "expected a digit at byte 2");
    check_value("1e+", "expected a digit at byte 3");
    check_value("+1", "expected a value at byte 0");
    check_value(".5", "expected a value at byte 0");
    check_value("NaN", "expected a value at byte 0");
    check_value("nul", "expected a value at byte 0");
    check_value("truex", "expected the end at byte 4");
    check_value("[1 2]", "expected \",\" or \"]\" at byte 3");
    check_value("[1}", "expected \",\" or \"]\" at byte 2");
    check_value("{\"a\":1]", "expected \",\" or \"}\" at byte 6");
    check_value("[1,]", "expected a value at byte 3");
    check_value("\"abc", "string without an end at byte 4");
    check_value("\"a\tb\"", "control character without an escape at byte 2");
    check_value("\"0123456789\u{1f}\"", "control character without an escape at byte 11");
    check_value("\"0123456789\u{7f}\u{80}\"", "\"0123456789\u{7f}\u{80}\"");
    check_value(r#""\x""#, "unknown escape at byte 1");
    check_value(r#""\u12g4""#, "expected four hexadecimal digits in the escape at byte 1");
    check_value(r#""\u12"#, "expected four hexadecimal digits in the escape at byte 1");
    check_value(r#""\ud800""#, "half of a surrogate pair at byte 1");
    check_value(r#""\ud800\u0041""#, "half of a surrogate pair at byte 1");
    check_value(r#""\udc00""#, "half of a surrogate pair at byte 1");
    check_value(r#""\ud83d\ude00""#, r#""\ud83d\ude00""#);
}

#[test]
fn a_property_is_set_and_every_other_byte_stays() {
    #[track_caller]
    fn check(body: &str, name: &str, value: &str, expected: &str) {
        let found = set_property(body.as_bytes(), name, value);
        assert_eq!(String::from_utf8(found).unwrap(), expected);
    }
    check("{}", "a", "1", r#"{"a":1}"#);
    check(" { } ", "a", "1", r#" {"a":1 } "#);
    check(r#"{ "a" : 1 , "b" : 1e400 }"#, "a", "[2]", r#"{ "a" : [2] , "b" : 1e400 }"#);
    check("{\"a\": 1.0\n}", "b", "2", "{\"a\": 1.0,\"b\":2\n}");
    check(r#"{"a":1,"\u0061":2}"#, "a", "3", r#"{"a":1,"\u0061":3}"#);
    check(r#"{"x":{"a":1}}"#, "a", "3", r#"{"x":{"a":1},"a":3}"#);
    check("{}", "a\"\n", "3", r#"{"a\"\n":3}"#);
}

/// Names that begin with an underscore are put behind all others without a look at these, unless
/// one of them may be the same.
#[test]
fn a_reserved_property_is_set_wherever_it_stands() {
    #[track_caller]
    fn check(body: &str, expected: &str) {
        let found = set_properties(body.as_bytes(), &[("_a", "1"), ("_b", "2")]);
        assert_eq!(String::from_utf8(found).unwrap(), expected);
    }
    check("{}", r#"{"_a":1,"_b":2}"#);
    check(" { } ", r#" {"_a":1,"_b":2 } "#);
    check("{\"a\": 1.0\n}", "{\"a\": 1.0,\"_a\":1,\"_b\":2\n}");
    check(r#"{"x":{}}"#, r#"{"x":{},"_a":1,"_b":2}"#);
    check(r#"{"_b":7,"x":0}"#, r#"{"_b":2,"x":0,"_a":1}"#);
    check(r#"{"\u005fb":7,"x":0}"#, r#"{"\u005fb":2,"x":0,"_a":1}"#);
    check(r#"{"x":"_b"}"#, r#"{"x":"_b","_a":1,"_b":2}"#);
    check(r#"{"x":{"_b":7}}"#, r#"{"x":{"_b":7},"_a":1,"_b":2}"#);
}

#[test]
fn several_properties_are_set_at_once() {
    let changes = [("d", "4"), ("b", "\"x\""), ("c", "3"), ("a", "null")];
    let found = set_properties(br#"{"a":1,"b":2}"#, &changes);
    assert_eq!(String::from_utf8(found).unwrap(), r#"{"a":null,"b":"x","d":4,"c":3}"#);
    assert_eq!(set_properties(b"{}", &[("a", "1"), ("b", "2")]), br#"{"a":1,"b":2}"#);
    assert_eq!(set_properties(b" {}", &[]), b" {}");
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "the new value of \"a\" is not JSON")]
fn a_property_is_not_set_to_something_else_than_json() {
    let _ = set_property(b"{}", "a", "1}");
}

/// JSON text with odd spaces, escapes, repeated keys and numbers of many spellings.
pub(crate) fn any_json() -> impl Strategy<Value = String> {
    let space = || prop::sample::select(vec!["", "", "", " ", "\n", "\t\r "]);
    let leaf = prop_oneof![
        prop::sample::select(vec![
            "null",
            "true",
            "false",
            "0",
            "-0",
            "1",
            "-17",
            "0.5",
            "-1.25",
            "2e2",
            "1E+2",
            "25e-2",
            "9223372036854775807",
            "-9223372036854775808",
            "\"\"",
            r#""a\n\u00e4""#,
            r#""\ud83d\ude00""#,
            "{}",
            "[]",
            "[ ]",
            "{ }",
        ])
        .prop_map(str::to_owned),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        let key = prop::sample::select(vec!["a", "b", "0", "1", "-", "\\u0061", "a\\/b", "~", "ä"]);
        let member = (space(), key, space(), space(), inner.clone(), space()).prop_map(
            |(one, key, two, three, value, four)| {
                format!("{one}\"{key}\"{two}:{three}{value}{four}")
            },
        );
        let element =
            (space(), inner, space()).prop_map(|(one, it, two)| format!("{one}{it}{two}"));
        prop_oneof![
            prop::collection::vec(member, 0..6).prop_map(|them| format!("{{{}}}", them.join(","))),
            prop::collection::vec(element, 0..6).prop_map(|them| format!("[{}]", them.join(","))),
        ]
    })
}

fn any_object() -> impl Strategy<Value = String> {
    any_json().prop_map(|json| match json.starts_with('{') {
        true => json,
        false => format!("{{\"b\":0,\"a\" :{json}}}"),
    })
}

/// JSON with a few bytes overwritten, put in or taken out.
fn damaged_json() -> impl Strategy<Value = Vec<u8>> {
    let byte =
        prop_oneof![prop::sample::select(b"{}[]\",:\\u0e.-+ \n1tnd8".to_vec()), any::<u8>(),];
    let damage = prop::collection::vec((any::<prop::sample::Index>(), byte, 0..3_u8), 0..4);
    (any_json(), damage).prop_map(|(text, damage)| {
        let mut bytes = text.into_bytes();
        for (index, byte, how) in damage {
            let at = index.index(bytes.len() + 1);
            match how {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                _ if at < bytes.len() => drop(bytes.remove(at)),
                _ => (),
            }
        }
        bytes
    })
}

/// Whether `serde_json` calls it JSON; it cannot say when a number fits no double.
fn is_json_to_serde(json: &[u8]) -> Option<bool> {
    match serde_json::from_slice::<serde_json::Value>(json) {
        Ok(_) => Some(true),
        Err(error) if error.to_string().starts_with("number out of range") => None,
        Err(_) => Some(false),
    }
}

#[track_caller]
fn check_against_serde(json: &[u8]) {
    let _ = Envelope::scan(json);
    if let Some(expected) = is_json_to_serde(json) {
        assert_eq!(is_json(json), expected, "{}", String::from_utf8_lossy(json));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_are_judged_as_serde_judges_them(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        check_against_serde(&bytes);
    }

    #[test]
    fn damaged_json_is_judged_as_serde_judges_it(bytes in damaged_json()) {
        check_against_serde(&bytes);
    }

    #[test]
    fn properties_are_those_serde_finds(json in any_object()) {
        let found = properties(&json, ["a", "ä", "-"]).unwrap();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        for (name, found) in ["a", "ä", "-"].into_iter().zip(found) {
            let found = found.map(|raw| serde_json::from_str(raw).unwrap());
            prop_assert_eq!(found.as_ref(), value.get(name));
        }
        let changed = set_properties(json.as_bytes(), &[("a", "17"), ("new", "[1]")]);
        let mut expected = value;
        expected["a"] = 17.into();
        expected["new"] = serde_json::json!([1]);
        prop_assert_eq!(serde_json::from_slice::<serde_json::Value>(&changed).unwrap(), expected);
    }
}
