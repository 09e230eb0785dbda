//! Pages end where they must, and the next one goes on there.

use millstream_core::{KeyRange, PartitionKey};
use millstream_query::{ErrorKind, Limits, Page, Parameters, Query, Scope};

use crate::harness::Harness;

fn numbers(count: u32) -> Harness {
    let document = |n: u32| {
        let is_even = n.is_multiple_of(2);
        format!(r#"{{"id":"{n:03}","pk":"p{}","n":{n},"l":[1,2,3],"even":{is_even}}}"#, n % 7)
    };
    Harness::new(&["/pk"], &(0..count).map(document).collect::<Vec<_>>())
}

fn first_page(harness: &Harness, query: &str, limits: Limits) -> Page {
    let query = Query::parse(query).unwrap();
    harness.page(&query, &harness.request().with_limits(limits)).unwrap()
}

#[track_caller]
fn refused(harness: &Harness, query: &str, continuation: &str, expected: &str) {
    let query = Query::parse(query).unwrap();
    let request = harness.request().with_continuation(continuation);
    let error = harness.page(&query, &request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Continuation);
    assert_eq!(error.report(), format!("could not continue the query: {expected}"));
}

#[test]
fn the_last_page_of_a_plain_query_says_so() {
    let harness = numbers(10);
    let all = first_page(&harness, "SELECT * FROM c", Limits::items(10));
    assert_eq!((all.rows.len(), all.continuation), (10, None));
    let all = first_page(&harness, "SELECT * FROM c ORDER BY c.n", Limits::items(10));
    assert_eq!((all.rows.len(), all.continuation), (10, None));
    let some = first_page(&harness, "SELECT * FROM c", Limits::items(9));
    assert!(some.continuation.is_some());
}

#[test]
fn a_foreign_continuation_is_refused() {
    let harness = numbers(10);
    let page = first_page(&harness, "SELECT * FROM c", Limits::items(3));
    let continuation = page.continuation.unwrap();
    let other = "the continuation belongs to another query or to other parameters";
    refused(&harness, "SELECT VALUE c FROM c", &continuation, other);
    refused(&harness, "SELECT * FROM c ", &continuation, other);
    let foreign = "the continuation was not given out by a query";
    for text in ["", "x", "-RID:~abc#RT:1#TRC:10", "e30", "bnVsbA", "%%%"] {
        refused(&harness, "SELECT * FROM c", text, foreign);
    }
    let version = "the continuation has a version that is not known here";
    refused(&harness, "SELECT * FROM c", "eyJ2Ijo5OX0", version);
    let long = "the continuation is longer than any of ours";
    refused(&harness, "SELECT * FROM c", &"a".repeat(100_000), long);
}

#[test]
fn parameters_belong_to_the_continuation() {
    let harness = numbers(10);
    let query = Query::parse("SELECT * FROM c WHERE c.n < @n").unwrap();
    let one = Parameters::from_json(br#"[{"name": "@n", "value": 9}]"#).unwrap();
    let two = Parameters::from_json(br#"[{"name": "@n", "value": 8}]"#).unwrap();
    let request = harness.request().with_limits(Limits::items(2)).with_parameters(&one);
    let continuation = harness.page(&query, &request).unwrap().continuation.unwrap();
    let request = harness.request().with_continuation(&continuation);
    assert!(harness.page(&query, &request.with_parameters(&one)).is_ok());
    let error = harness.page(&query, &request.with_parameters(&two)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Continuation);
}

#[test]
fn a_page_ends_after_so_many_bytes() {
    let harness = numbers(20);
    let limits = Limits { bytes_max: 200, ..Limits::items(100) };
    for query in ["SELECT * FROM c", "SELECT * FROM c ORDER BY c.n"] {
        let page = first_page(&harness, query, limits);
        assert!((1..20).contains(&page.rows.len()), "{query}");
        assert!(page.rows.iter().map(String::len).sum::<usize>() <= 200, "{query}");
        let parsed = Query::parse(query).unwrap();
        let rows = harness.all(&parsed, &Parameters::default(), &Scope::all(), limits).unwrap();
        assert_eq!(rows.len(), 20, "{query}");
    }
    // A row that fits no page is a page of its own.
    let tiny = Limits { bytes_max: 1, ..Limits::items(100) };
    let query = Query::parse("SELECT * FROM c").unwrap();
    let rows = harness.all(&query, &Parameters::default(), &Scope::all(), tiny).unwrap();
    assert_eq!(rows.len(), 20);
}

#[test]
fn a_page_ends_after_so_many_documents() {
    let harness = numbers(30);
    let limits = Limits { documents_max: 4, ..Limits::items(100) };
    let page = first_page(&harness, "SELECT * FROM c WHERE c.n = 1000", limits);
    assert_eq!((page.rows.len(), page.documents_visited), (0, 4));
    assert!(page.continuation.is_some());
    // An aggregate carries what it knows along.
    for (query, expected) in [
        ("SELECT VALUE SUM(c.n) FROM c", "435"),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.n = 1000", "0"),
    ] {
        let page = first_page(&harness, query, limits);
        assert_eq!((page.rows.len(), page.documents_visited), (0, 4), "{query}");
        let query = Query::parse(query).unwrap();
        let rows = harness.all(&query, &Parameters::default(), &Scope::all(), limits).unwrap();
        assert_eq!(rows, [expected]);
    }
}

#[test]
fn what_would_look_at_too_much_is_refused() {
    let harness = numbers(30);
    let check = |query: &str, limits: Limits, expected: &str| {
        let query = Query::parse(query).unwrap();
        let error = harness.page(&query, &harness.request().with_limits(limits)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert_eq!(error.report(), format!("could not run the query: {expected}"));
    };
    let limits = Limits { pass_documents_max: 10, ..Limits::items(100) };
    let expected =
        "it would have to look at more than 10 documents before its first row; filter more";
    check("SELECT * FROM c ORDER BY c.n", limits, expected);
    check("SELECT c.even FROM c GROUP BY c.even", limits, expected);
    let limits = Limits { steps_max: 100_000, ..Limits::items(100) };
    let joined = "SELECT VALUE 1 FROM c JOIN a IN c.l JOIN b IN c.l JOIN d IN c.l JOIN e IN c.l \
                  JOIN f IN c.l JOIN g IN c.l JOIN h IN c.l JOIN i IN c.l JOIN j IN c.l \
                  WHERE a + b + d + e > 100";
    let expected = "a page of it takes more steps than are allowed; filter more, or join less";
    check(joined, limits, expected);
    let limits = Limits { held_bytes_max: 100, ..Limits::items(100) };
    let query = Query::parse("SELECT DISTINCT VALUE c.id FROM c").unwrap();
    let error = harness.page(&query, &harness.request().with_limits(limits)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
}

#[test]
fn a_continuation_goes_on_in_parts_of_a_range_that_was_split() {
    let harness = numbers(50);
    let halves = KeyRange::divide(2).unwrap();
    for query in ["SELECT VALUE c.id FROM c", "SELECT VALUE c.id FROM c ORDER BY c.n DESC"] {
        let parsed = Query::parse(query).unwrap();
        let page = first_page(&harness, query, Limits::items(9));
        let mut rows = page.rows;
        let continuation = page.continuation.unwrap();
        for half in &halves {
            let scope = Scope::keys(half.clone());
            let mut next = Some(continuation.clone());
            while let Some(text) = next {
                let request = harness
                    .request()
                    .with_scope(&scope)
                    .with_limits(Limits::items(4))
                    .with_continuation(&text);
                let page = harness.page(&parsed, &request).unwrap();
                rows.extend(page.rows);
                next = page.continuation;
            }
        }
        rows.sort();
        let expected: Vec<String> = (0..50).map(|n| format!("\"{n:03}\"")).collect();
        assert_eq!(rows, expected, "{query}");
    }
}

#[test]
fn what_has_been_counted_does_not_go_on_in_parts() {
    let harness = numbers(50);
    let half = Scope::keys(KeyRange::divide(2).unwrap()[0].clone());
    let limits = Limits { documents_max: 4, ..Limits::items(1) };
    for query in ["SELECT VALUE SUM(c.n) FROM c", "SELECT DISTINCT VALUE c.n FROM c"] {
        let continuation = first_page(&harness, query, limits).continuation.unwrap();
        let query = Query::parse(query).unwrap();
        let request = harness.request().with_scope(&half).with_continuation(&continuation);
        let error = harness.page(&query, &request).unwrap_err();
        let expected = "could not continue the query: the keys of the query have been divided \
                        since; start it again";
        assert_eq!(error.report(), expected);
    }
}

#[test]
fn a_continuation_of_other_keys_is_refused() {
    let harness = numbers(50);
    let halves = KeyRange::divide(2).unwrap();
    let query = Query::parse("SELECT VALUE c.id FROM c").unwrap();
    let scope = Scope::keys(halves[0].clone());
    let request = harness.request().with_scope(&scope).with_limits(Limits::items(2));
    let continuation = harness.page(&query, &request).unwrap().continuation.unwrap();
    let expected = "the continuation was given out for other keys";
    refused(&harness, "SELECT VALUE c.id FROM c", &continuation, expected);
    let other = Scope::keys(halves[1].clone());
    let request = harness.request().with_scope(&other).with_continuation(&continuation);
    assert_eq!(harness.page(&query, &request).unwrap_err().kind(), ErrorKind::Continuation);
}

#[test]
fn items_that_stay_are_returned_once_whatever_is_deleted_meanwhile() {
    let document = |n: u32| format!(r#"{{"id":"{n:03}","pk":"p","n":{n}}}"#);
    for query in ["SELECT VALUE c.n FROM c WHERE c.n >= 0", "SELECT VALUE c.n FROM c ORDER BY c.n"]
    {
        let harness = Harness::new(&["/pk"], &(0..20).map(document).collect::<Vec<_>>());
        let query = Query::parse(query).unwrap();
        let scope = Scope::partition(PartitionKey::from("p"));
        let request = harness.request().with_scope(&scope).with_limits(Limits::items(5));
        let page = harness.page(&query, &request).unwrap();
        let mut rows = page.rows;
        harness.delete("p", "004");
        harness.delete("p", "002");
        harness.delete("p", "007");
        let mut next = page.continuation;
        while let Some(text) = next {
            let page = harness.page(&query, &request.with_continuation(&text)).unwrap();
            rows.extend(page.rows);
            next = page.continuation;
        }
        let expected: Vec<String> = (0..20).filter(|n| *n != 7).map(|n| n.to_string()).collect();
        assert_eq!(rows, expected);
    }
}

#[test]
fn a_continuation_stays_short_even_if_rows_are_sorted_by_long_values() {
    let long = "x".repeat(5000);
    let document = |n: u32| format!(r#"{{"id":"{n}","pk":"p","s":"{long}{}"}}"#, 9 - n);
    let harness = Harness::new(&["/pk"], &(0..9).map(document).collect::<Vec<_>>());
    let query = Query::parse("SELECT VALUE c.id FROM c ORDER BY c.s").unwrap();
    let limits = Limits { continuation_bytes_max: 1024, ..Limits::items(2) };
    let page = harness.page(&query, &harness.request().with_limits(limits)).unwrap();
    assert!(page.continuation.unwrap().len() <= 1024);
    let rows = harness.all(&query, &Parameters::default(), &Scope::all(), limits).unwrap();
    let expected: Vec<String> = (0..9).rev().map(|n| format!("\"{n}\"")).collect();
    assert_eq!(rows, expected);
}
