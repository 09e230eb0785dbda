//! Documents of every form, as their SDKs write them.

use millstream_core::{Continuation, FeedMode, KeyRange, Lsn, RangeId, StartFrom, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::error::ErrorKind;
use crate::foreign::tests::harness::{
    PREFIX, dotnet_epk, dotnet_pk, etag, java_base64, java_epk, java_pk, java_state, library,
};
use crate::foreign::{
    ForeignDocument, ForeignForm, ForeignLease, ForeignPosition, ForeignScope, NumberedPositions,
    PositionTranslator,
};

fn lease(document: &Value) -> ForeignLease {
    match ForeignDocument::parse(document.to_string().as_bytes()).unwrap() {
        Some(ForeignDocument::Lease(lease)) => *lease,
        other => panic!("{document} is no lease but {other:?}"),
    }
}

/// Puts other values into a document; a null takes the property away.
fn with(mut document: Value, changes: &Value) -> Value {
    let fields = document.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        match value.is_null() {
            true => drop(fields.remove(name)),
            false => drop(fields.insert(name.clone(), value.clone())),
        }
    }
    document
}

#[track_caller]
fn check_refused(document: &Value, kind: &ErrorKind, reason: &str) {
    let error = ForeignDocument::parse(document.to_string().as_bytes()).unwrap_err();
    assert_eq!(error.kind(), kind, "{document}");
    let report = error.report();
    assert!(report.contains(reason), "{report:?} does not say {reason:?}");
}

fn half() -> KeyRange {
    KeyRange::divide(2).unwrap().remove(0)
}

fn quoted(number: u64) -> Value {
    Value::from(etag(number))
}

#[test]
fn leases_of_partitions_are_read() {
    let cases = [
        (dotnet_pk(3, &quoted(7)), ForeignForm::DotnetPk),
        (java_pk(3, &quoted(7)), ForeignForm::JavaPk),
        (library(3, &quoted(7)), ForeignForm::DotnetLibrary),
        // Came from the V2 library and was taken over by .NET V3.
        (with(dotnet_pk(3, &quoted(7)), &json!({ "PartitionId": "3" })), ForeignForm::DotnetPk),
        // Before there were versions.
        (with(dotnet_pk(3, &quoted(7)), &json!({ "version": null })), ForeignForm::DotnetPk),
    ];
    for (document, form) in cases {
        let lease = lease(&document);
        assert_eq!(lease.form, form, "{document}");
        assert_eq!(lease.prefix, PREFIX);
        assert_eq!(lease.scope, ForeignScope::Partition { id: RangeId(3), keys: None });
        assert_eq!(lease.position, ForeignPosition::Etag("\"7\"".to_owned()));
        assert_eq!(lease.mode, Some(FeedMode::LatestVersion));
        assert_eq!(lease.owner, None);
    }
}

#[test]
fn leases_of_ranges_are_read() {
    let keys = half();
    let state = java_state(&keys, &json!({ "Type": "BEGINNING" }), &["\"7\""]);
    let cases = [
        (dotnet_epk(&keys, &quoted(7)), ForeignForm::DotnetEpk),
        (java_epk(&keys, &state), ForeignForm::JavaEpk),
    ];
    for (document, form) in cases {
        let lease = lease(&document);
        assert_eq!(lease.form, form, "{document}");
        assert_eq!(lease.scope, ForeignScope::Keys(keys.clone()));
        assert_eq!(lease.position, ForeignPosition::Etag("\"7\"".to_owned()));
        assert_eq!(lease.mode, Some(FeedMode::LatestVersion));
    }
}

#[test]
fn the_lease_of_the_design_document_is_read() {
    // As the Java SDK wrote it on 2022-11-15, with flags in the feed range.
    let state = json!({
        "V": 1, "Rid": "/dbs/shared/colls/8c653f75-9758-46a1-be32-21c040d2345a",
        "Mode": "INCREMENTAL", "StartFrom": { "Type": "BEGINNING" },
        "Continuation": {
            "V": 1, "Rid": "/dbs/shared/colls/8c653f75-9758-46a1-be32-21c040d2345a",
            "Continuation": [{ "token": "\"11\"", "range": { "min": "", "max": "FF" } }],
            "Range": { "min": "", "max": "FF", "isMinInclusive": true, "isMaxInclusive": false },
        },
    });
    let range = json!({ "min": "", "max": "FF", "isMinInclusive": true, "isMaxInclusive": false });
    let lease = lease(&json!({
        "id": "test.documents.azure.com_bf8uAA==_bf8uALgoqxk=..-FF", "LeaseToken": "-FF",
        "ContinuationToken": java_base64(&state), "timestamp": "2022-11-15T17:43:34.634427Z",
        "Owner": "ZKNjph", "version": 1, "feedRange": { "Range": range },
    }));
    assert_eq!(lease.form, ForeignForm::JavaEpk);
    assert_eq!(lease.scope, ForeignScope::Keys(KeyRange::all()));
    assert_eq!(lease.position, ForeignPosition::Etag("\"11\"".to_owned()));
    assert_eq!(lease.owner.as_deref(), Some("ZKNjph"));
    assert_eq!(lease.timestamp.as_deref(), Some("2022-11-15T17:43:34.634427Z"));
}

#[test]
fn a_feed_range_has_four_spellings() {
    let keys = half();
    let expected = ForeignScope::Partition { id: RangeId(0), keys: Some(keys.clone()) };
    let bare = json!({ "Range": { "min": keys.min(), "max": keys.max() } });
    let spellings = [
        ("FeedRange", bare.clone()),
        ("feedRange", bare.clone()),
        ("FeedRange", Value::from(bare.to_string())),
        ("FeedRange", Value::from(keys.to_base64())),
        ("FeedRange", serde_json::from_str(&keys.to_json()).unwrap()),
    ];
    for (name, range) in spellings {
        let document =
            with(dotnet_pk(0, &quoted(1)), &json!({ "FeedRange": null, name: range.clone() }));
        assert_eq!(lease(&document).scope, expected, "{document}");
    }
    let named = with(dotnet_pk(0, &quoted(1)), &json!({ "FeedRange": { "PKRangeId": "0" } }));
    assert_eq!(lease(&named).scope, ForeignScope::Partition { id: RangeId(0), keys: None });
}

#[test]
fn a_lease_without_a_position_says_where_it_starts_if_it_can() {
    let keys = half();
    assert_eq!(lease(&dotnet_pk(0, &Value::Null)).position, ForeignPosition::NotStarted);
    assert_eq!(lease(&java_pk(0, &json!(""))).position, ForeignPosition::NotStarted);
    let unknown = lease(&java_epk(&keys, &Value::Null));
    assert_eq!((unknown.position, unknown.mode), (ForeignPosition::NotStarted, None));
    let time = StartFrom::Time(Timestamp::from_millis(1_700_000_000_000));
    let cases = [
        (json!({ "Type": "BEGINNING" }), ForeignPosition::Start(StartFrom::Beginning)),
        (json!({ "Type": "NOW" }), ForeignPosition::Start(StartFrom::Now)),
        (
            json!({ "Type": "POINT_IN_TIME", "PointInTimeMs": 1_700_000_000_000_u64 }),
            ForeignPosition::Start(time),
        ),
        (json!({ "Type": "LEASE", "Etag": "\"5\"" }), ForeignPosition::Etag("\"5\"".to_owned())),
        (Value::Null, ForeignPosition::NotStarted),
    ];
    for (start, expected) in cases {
        let state = java_base64(&json!({ "V": 1, "Mode": "FULL_FIDELITY", "StartFrom": start }));
        let lease = lease(&java_epk(&keys, &state));
        assert_eq!(lease.position, expected, "{start}");
        assert_eq!(lease.mode, Some(FeedMode::AllVersions));
    }
}

#[test]
fn markers_and_locks_are_told_apart_from_other_documents() {
    let parse = |id: &str| {
        let body = json!({ "id": id, "processor": "billing" }).to_string();
        ForeignDocument::parse(body.as_bytes()).unwrap()
    };
    let prefix = "p".to_owned();
    assert_eq!(parse("p.info"), Some(ForeignDocument::Marker { prefix: prefix.clone() }));
    assert_eq!(parse("p.lock"), Some(ForeignDocument::Lock { prefix: prefix.clone() }));
    let processor = "billing".to_owned();
    assert_eq!(parse("p.imported"), Some(ForeignDocument::Imported { prefix, processor }));
    for id in ["p", "billing:control", "billing:lease:1:-FF", "p..0", ""] {
        assert_eq!(parse(id), None, "{id:?}");
    }
    assert_eq!(ForeignDocument::parse(b"{}").unwrap(), None);
}

#[test]
fn newer_versions_are_refused_and_not_misread() {
    let keys = half();
    let newer = ErrorKind::NewerSchema;
    let two = json!({ "version": 2 });
    check_refused(&with(dotnet_pk(0, &quoted(1)), &two), &newer, "version 2");
    check_refused(&with(dotnet_epk(&keys, &quoted(1)), &two), &newer, "version 2");
    let state = java_state(&keys, &Value::Null, &["\"1\""]);
    check_refused(&with(java_epk(&keys, &state), &two), &newer, "version 2");
    let state = java_base64(&json!({ "V": 2, "Mode": "INCREMENTAL" }));
    check_refused(&java_epk(&keys, &state), &newer, "V 2");
    let inner = json!({ "V": 1, "Mode": "INCREMENTAL", "Continuation": { "V": 2 } });
    check_refused(&java_epk(&keys, &java_base64(&inner)), &newer, "V 2");
}

#[test]
fn what_contradicts_itself_is_refused() {
    let keys = half();
    let refused = |document: Value, reason: &str| {
        check_refused(&document, &ErrorKind::Invalid, reason);
    };
    let (pk, epk) = (dotnet_pk(0, &quoted(1)), dotnet_epk(&keys, &quoted(1)));
    refused(with(pk.clone(), &json!({ "version": "1" })), "its version is");
    refused(with(pk.clone(), &json!({ "version": -1 })), "its version is");
    refused(with(pk.clone(), &json!({ "LeaseToken": "1" })), "its LeaseToken is \"1\"");
    refused(with(pk.clone(), &json!({ "PartitionId": "1" })), "its PartitionId is \"1\"");
    refused(with(pk.clone(), &json!({ "Mode": "Sideways" })), "\"Sideways\" is not known");
    refused(with(pk.clone(), &json!({ "Owner": 7 })), "Owner is not a string");
    refused(with(pk.clone(), &json!({ "ContinuationToken": 7 })), "ContinuationToken is not");
    refused(with(pk, &json!({ "FeedRange": { "PK": ["a"] } })), "FeedRange: could not read");
    // An old SDK takes a lease of a range for one of a partition.
    refused(with(epk.clone(), &json!({ "version": null })), "number of a physical partition");
    refused(with(epk.clone(), &json!({ "FeedRange": null })), "it has no feed range");
    let all = json!({ "Range": { "min": "", "max": "FF" } });
    refused(with(epk, &json!({ "FeedRange": all })), "its token and its feed range");
}

#[test]
fn states_of_java_that_are_not_understood_are_refused() {
    let keys = half();
    let refused = |state: Value, reason: &str| {
        check_refused(&java_epk(&keys, &state), &ErrorKind::Invalid, reason);
    };
    let start = json!({ "Type": "BEGINNING" });
    refused(java_state(&keys, &start, &["\"1\"", "\"2\""]), "exactly one token");
    refused(java_state(&keys, &start, &[]), "exactly one token");
    let other = KeyRange::divide(2).unwrap().remove(1);
    refused(java_state(&other, &start, &["\"1\""]), "and not for");
    // What the .NET SDK would have written there.
    refused(quoted(1), "is not base64");
    refused(json!("AAAA"), "is not JSON");
    refused(java_base64(&json!({ "Mode": "INCREMENTAL" })), "does not say V 1");
    refused(java_base64(&json!({ "V": 1 })), "the mode \"\" is not known");
    for start in [json!({ "Type": "POINT_IN_TIME" }), json!({ "Type": "LEGACY_CHECKPOINT" })] {
        let state = json!({ "V": 1, "Mode": "INCREMENTAL", "StartFrom": start });
        refused(java_base64(&state), "is not known or lacks its value");
    }
    refused(Value::from("A".repeat(40_000)), "has 40000 bytes");
}

#[test]
fn documents_are_bounded_in_size() {
    let body = json!({ "id": "p.info", "ballast": "x".repeat(70_000) }).to_string();
    let error = ForeignDocument::parse(body.as_bytes()).unwrap_err();
    assert!(error.report().contains("more than any lease"), "{}", error.report());
    for body in ["", "[]", "7", "{", "\u{feff}{}"] {
        ForeignDocument::parse(body.as_bytes()).unwrap_err();
    }
}

#[test]
fn etags_are_numbers_in_quotes() {
    let positions = NumberedPositions::of_container(9);
    let keys = KeyRange::all();
    let from = |etag: &str| positions.from_etag(&keys, etag, FeedMode::AllVersions);
    assert_eq!(from("\"42\"").unwrap().as_str(), "1.9.a.42");
    assert_eq!(from("42").unwrap().as_str(), "1.9.a.42");
    // The time at which a reader began means something in one of the feeds.
    assert_eq!(from("\"42.1000\"").unwrap().as_str(), "1.9.a.42");
    let latest = positions.from_etag(&keys, "\"42.1000\"", FeedMode::LatestVersion);
    assert_eq!(latest.unwrap().as_str(), "1.9.l.42.1000");
    for text in ["\"42.\"", "\".42\"", "\"42.+1\"", "\"42.1.1\"", "\"42.x\""] {
        assert_eq!(*from(text).unwrap_err().kind(), ErrorKind::Invalid, "{text}");
    }
    for text in ["", "\"\"", "\"", "\"x\"", "\"-1\"", "\"+1\"", "W/\"1\"", "\"1\"\"2\""] {
        assert_eq!(*from(text).unwrap_err().kind(), ErrorKind::Invalid, "{text}");
    }
    assert_eq!(*from("\"18446744073709551616\"").unwrap_err().kind(), ErrorKind::Invalid);

    let to = |text: &str| positions.to_etag(&Continuation::new(text).unwrap());
    assert_eq!(to("1.9.l.42").unwrap(), "\"42\"");
    assert_eq!(to("1.9.l.42.1000").unwrap(), "\"42\"");
    assert_eq!(*to("1.8.l.42").unwrap_err().kind(), ErrorKind::ContainerRecreated);
    assert!(to("1.9.l.0.1000").unwrap_err().report().contains("begins at a time"));
    assert!(to("c1.something").is_err());
    let position = Continuation::new("1.9.l.42").unwrap();
    assert!(positions.is_beyond(&position, Lsn::new(41)));
    assert!(!positions.is_beyond(&position, Lsn::new(42)));
}

/// Documents that are nearly right, so that every check is reached.
fn nearly_a_lease() -> impl Strategy<Value = Value> {
    let value = prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!({ "Range": { "min": "", "max": "FF" } })),
        any::<i64>().prop_map(Value::from),
        "[0-9A-F]{0,6}-?[0-9A-F]{0,4}".prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        any::<(u8, String)>()
            .prop_map(|(version, text)| java_base64(&json!({ "V": version % 3, "Mode": text }))),
    ];
    let names = [
        "LeaseToken",
        "PartitionId",
        "version",
        "FeedRange",
        "feedRange",
        "ContinuationToken",
        "Mode",
        "Owner",
    ];
    let field = (proptest::sample::select(names.to_vec()), value);
    ("\\PC{0,8}\\.\\.[0-9]{0,3}", proptest::collection::vec(field, 0..8)).prop_map(
        |(id, fields)| {
            let mut document = json!({ "id": id });
            for (name, value) in fields {
                document[name] = value;
            }
            document
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = ForeignDocument::parse(&bytes);
    }

    #[test]
    fn no_document_makes_the_reader_panic(document in nearly_a_lease()) {
        let _ = ForeignDocument::parse(document.to_string().as_bytes());
    }

    #[test]
    fn a_position_survives_the_way_there_and_back(number in any::<u64>()) {
        let positions = NumberedPositions::of_container(number / 2);
        let text = etag(number);
        let position = positions.from_etag(&KeyRange::all(), &text, FeedMode::LatestVersion)?;
        prop_assert_eq!(positions.to_etag(&position)?, text);
    }
}
