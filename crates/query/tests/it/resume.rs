//! Resume filters, which SDKs send beside a sorted query, and what queries see of an item.

use bytes::Bytes;
use millstream_core::{Item, set_property};
use millstream_query::{Limits, Query, Specification};

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
