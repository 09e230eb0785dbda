//! Resume filters, which SDKs send beside a sorted query, and what queries see of an item.

use bytes::Bytes;
use millstream_core::{Item, set_property};
use millstream_query::{Limits, Parameters, Query, Scope, Specification};

use crate::harness::Harness;

/// A resource id of a document with this number.
fn rid(number: u8) -> String {
    use base64::Engine;
    let mut bytes = [0_u8; 16];
    bytes[8] = number;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn ties() -> Harness {
    let document =
        |n: u8| format!(r#"{{"id":"{}","pk":"p{n}","x":{},"_rid":"{}"}}"#, 9 - n, n / 3, rid(n));
    Harness::new(&["/pk"], &(0..9).map(document).collect::<Vec<_>>())
}

#[track_caller]
fn check(order: &str, filter: &str, expected: &[u8]) {
    let harness = ties();
    let text = format!("SELECT VALUE c.id FROM c ORDER BY c.x {order}");
    let body = format!(r#"{{"query": "{text}", "resumeFilter": {filter}}}"#);
    let specification = Specification::from_json(body.as_bytes()).unwrap();
    let resume = specification.resume.as_ref().unwrap();
    let request = harness.request().with_resume_filter(resume).with_limits(Limits::items(100));
    let page = harness.page(&specification.query, &request).unwrap();
    let expected: Vec<String> = expected.iter().map(|n| format!("\"{}\"", 9 - n)).collect();
    assert_eq!(page.rows, expected, "{order} {filter}");
}

#[test]
fn rows_with_equal_keys_come_by_resource_id_in_the_direction_of_the_first_key() {
    check("ASC", r#"{"value": [[]], "exclude": true}"#, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    check(
        "DESC",
        r#"{"value": [{}], "exclude": true}"#.replace("{}", "9").as_str(),
        &[8, 7, 6, 5, 4, 3, 2, 1, 0],
    );
}

#[test]
fn a_resume_filter_goes_on_at_a_row() {
    check("ASC", r#"{"value": [1], "exclude": true}"#, &[6, 7, 8]);
    check("ASC", r#"{"value": [1], "exclude": false}"#, &[3, 4, 5, 6, 7, 8]);
    let at =
        |exclude: bool| format!(r#"{{"value": [1], "rid": "{}", "exclude": {exclude}}}"#, rid(4));
    check("ASC", &at(false), &[4, 5, 6, 7, 8]);
    check("ASC", &at(true), &[5, 6, 7, 8]);
    check("DESC", &at(false), &[4, 3, 2, 1, 0]);
    check("DESC", &at(true), &[3, 2, 1, 0]);
    check("ASC", r#"{"value": ["s"], "exclude": false}"#, &[]);
    check("ASC", r#"{"value": [null], "exclude": false}"#, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_resume_filter_of_another_query_is_refused() {
    let harness = ties();
    let body = br#"{"query": "SELECT * FROM c ORDER BY c.x", "resumeFilter": {"value": [1, 2]}}"#;
    let specification = Specification::from_json(body).unwrap();
    let request = harness.request().with_resume_filter(specification.resume.as_ref().unwrap());
    let error = harness.page(&specification.query, &request).unwrap_err();
    let expected = "could not resume the query: the resume filter has another number of values \
                    than ORDER BY";
    assert_eq!(error.report(), expected);
}

/// Items sorted by strings that are too long for a short continuation.
fn long_titles(count: u8) -> Harness {
    let title = |n: u8| format!("{n:03}{}", "x".repeat(300));
    let document = |n: u8| {
        format!(r#"{{"id":"{n}","pk":"p","n":{n},"t":"{}","_rid":"{}"}}"#, title(n), rid(n))
    };
    Harness::new(&["/pk"], &(0..count).map(document).collect::<Vec<_>>())
}

/// The rows of all pages from a continuation on, with a resume filter behind this row.
fn resumed(harness: &Harness, from: &str, behind: u8, limits: Limits) -> Vec<u8> {
    let title = format!("{behind:03}{}", "x".repeat(300));
    let rid = rid(behind);
    let body = format!(
        r#"{{"query": "{BY_TITLE}",
            "resumeFilter": {{"value": ["{title}"], "rid": "{rid}", "exclude": true}}}}"#
    );
    let specification = Specification::from_json(body.as_bytes()).unwrap();
    let resume = specification.resume.as_ref().unwrap();
    let (mut rows, mut continuation) = (Vec::new(), Some(from.to_owned()));
    while let Some(from) = continuation {
        let request = harness.request().with_resume_filter(resume).with_limits(limits);
        let request = request.with_continuation(&from);
        let page = harness.page(&specification.query, &request).unwrap();
        rows.extend(page.rows.iter().map(|it| it.parse::<u8>().unwrap()));
        continuation = page.continuation;
        // Nobody else knows what was counted.
        if let Some(next) = &continuation
            && limits.continuation_bytes_max < 1000
        {
            let request = harness.request().with_limits(limits).with_continuation(next);
            let error = harness.page(&specification.query, &request).unwrap_err();
            assert!(error.report().contains("beside a resume filter"), "{}", error.report());
        }
    }
    rows
}

const BY_TITLE: &str = "SELECT VALUE c.n FROM c ORDER BY c.t";

#[test]
fn a_resume_filter_beside_the_continuation_of_an_earlier_page_goes_on_at_its_row() {
    let harness = long_titles(40);
    let query = Query::parse(BY_TITLE).unwrap();
    for continuation_bytes_max in [100, 8192] {
        let limits = Limits { continuation_bytes_max, ..Limits::items(7) };
        let first = harness.page(&query, &harness.request().with_limits(limits)).unwrap();
        let from = first.continuation.unwrap();
        // The client has had some rows of the second page, or nearly all.
        for behind in [6, 7, 9, 13] {
            let rows = resumed(&harness, &from, behind, limits);
            let expected: Vec<u8> = (behind + 1..40).collect();
            assert_eq!(rows, expected, "{behind} {continuation_bytes_max}");
        }
    }
}

#[test]
fn rows_before_the_one_that_a_page_goes_on_behind_are_not_kept_again() {
    let (filler, title) = ("x".repeat(20_000), "x".repeat(1000));
    let large = |n: u8| format!(r#"{{"id":"{n}","pk":"p","t":"{n:03}","f":"{filler}"}}"#);
    let small = |n: u8| format!(r#"{{"id":"{n}","pk":"p","t":"{n:03}{title}"}}"#);
    let documents: Vec<_> = (0..40).map(large).chain((40..80).map(small)).collect();
    let harness = Harness::new(&["/pk"], &documents);
    let query = Query::parse("SELECT * FROM c ORDER BY c.t").unwrap();
    let limits =
        Limits { continuation_bytes_max: 500, held_bytes_max: 400_000, ..Limits::items(10) };
    let rows = harness.all(&query, &Parameters::default(), &Scope::all(), limits).unwrap();
    assert_eq!(rows, documents);
}

#[test]
fn counted_rows_are_those_of_the_filter_that_they_were_counted_under() {
    let title = |n: u8| if n < 20 { String::new() } else { "x".repeat(300) };
    let document = |n: u8| format!(r#"{{"id":"{n}","pk":"p","n":{n},"t":"{n:03}{}"}}"#, title(n));
    let harness = Harness::new(&["/pk"], &(0..40).map(document).collect::<Vec<_>>());
    let limits = Limits { continuation_bytes_max: 400, ..Limits::items(7) };
    let page = |filter: &str, continuation: Option<&str>| {
        let text = format!("SELECT VALUE c.n FROM c WHERE {filter} ORDER BY c.t");
        let request = harness.request().with_limits(limits);
        let request = match continuation {
            Some(continuation) => request.with_continuation(continuation),
            None => request,
        };
        harness.page(&Query::parse(&text).unwrap(), &request).unwrap()
    };
    let mut found = page("c.n >= 0", None);
    let mut rows = found.rows;
    // SDKs add what they know of the rows they have had.
    while let Some(continuation) = found.continuation {
        found = page("c.n > 6", Some(&continuation));
        rows.extend(found.rows);
    }
    let expected: Vec<String> = (0..40).map(|it| it.to_string()).collect();
    assert_eq!(rows, expected);
}

#[test]
fn queries_see_what_the_presentation_adds() {
    let harness = Harness::new(&["/pk"], &[r#"{"id":"1","pk":"a"}"#.to_owned()]);
    let present = |item: &Item| {
        let seconds = item.written_at.as_millis() / 1000;
        Bytes::from(set_property(&item.body, "_ts", &seconds.to_string()))
    };
    let query = Query::parse("SELECT c._ts, c.id FROM c WHERE c._ts > 0").unwrap();
    let page = harness.page(&query, &harness.request().with_presentation(&present)).unwrap();
    assert_eq!(page.rows, [r#"{"_ts":1770635257,"id":"1"}"#]);
    assert!(harness.page(&query, &harness.request()).unwrap().rows.is_empty());
}
