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
    let other = "the continuation belongs to another query, other parameters or another container";
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
fn sorted_rows_go_on_with_another_filter() {
    let harness = numbers(30);
    let first = "SELECT VALUE c.n FROM c WHERE true ORDER BY c.n DESC";
    let page = first_page(&harness, first, Limits::items(10));
    let continuation = page.continuation.unwrap();
    let next = "SELECT VALUE c.n FROM c WHERE (c.n <= 20 AND c.n != 15) ORDER BY c.n DESC";
    let request = harness.request().with_limits(Limits::items(6));
    let request = request.with_continuation(&continuation);
    let page = harness.page(&Query::parse(next).unwrap(), &request).unwrap();
    assert_eq!(page.rows, ["19", "18", "17", "16", "14", "13"]);
    let other = "the continuation belongs to another query, other parameters or another container";
    refused(&harness, "SELECT VALUE c.n FROM c ORDER BY c.n", &continuation, other);
    refused(&harness, "SELECT VALUE c.id FROM c ORDER BY c.n DESC", &continuation, other);
    // What is counted depends on what is left out, and so do groups.
    let limits = Limits { continuation_bytes_max: 10, ..Limits::items(10) };
    let counted = first_page(&harness, first, limits).continuation.unwrap();
    refused(&harness, next, &counted, other);
    let grouped = "SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk";
    let group = first_page(&harness, grouped, Limits::items(2)).continuation.unwrap();
    let grouped = "SELECT c.pk, COUNT(1) AS n FROM c WHERE c.n < 9 GROUP BY c.pk";
    refused(&harness, grouped, &group, other);
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
fn a_continuation_of_another_container_is_refused() {
    let harness = numbers(30);
    for query in ["SELECT VALUE c.id FROM c", "SELECT VALUE c.id FROM c ORDER BY c.n"] {
        let query = Query::parse(query).unwrap();
        let request = harness.request().with_limits(Limits::items(10)).with_container("one");
        let continuation = harness.page(&query, &request).unwrap().continuation.unwrap();
        let next = request.with_continuation(&continuation);
        assert_eq!(harness.page(&query, &next).unwrap().rows.len(), 10);
        let error = harness.page(&query, &next.with_container("other")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Continuation);
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
    for query in [
        "SELECT VALUE c.id FROM c",
        "SELECT VALUE c.id FROM c ORDER BY c.n DESC",
        "SELECT DISTINCT VALUE c.id FROM c",
        "SELECT DISTINCT VALUE c.id FROM c ORDER BY c.n DESC",
        "SELECT VALUE c.id FROM c GROUP BY c.id",
    ] {
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
fn what_many_documents_have_is_returned_once_in_all_parts() {
    let document = |n: u32| {
        let value = n % 7;
        format!(r#"{{"id":"{n}","pk":"{n}","v":{value}}}"#)
    };
    let harness = Harness::new(&["/pk"], &(0..60).map(document).collect::<Vec<_>>());
    for (query, expected) in [
        ("SELECT DISTINCT VALUE c.v FROM c", &["0", "1", "2", "3", "4", "5", "6"][..]),
        ("SELECT DISTINCT TOP 5 VALUE c.v FROM c ORDER BY c.v", &["0", "1", "2", "3", "4"]),
    ] {
        let parsed = Query::parse(query).unwrap();
        let page = first_page(&harness, query, Limits::items(2));
        let mut rows = page.rows;
        let whole = page.continuation.unwrap();
        let quarters = KeyRange::divide(4).unwrap();
        for (index, quarter) in quarters.iter().enumerate() {
            let scope = Scope::keys(quarter.clone());
            let mut next = Some(whole.clone());
            while let Some(text) = next {
                let limits = Limits::items(index + 1);
                let request = harness.request().with_scope(&scope).with_limits(limits);
                let page = harness.page(&parsed, &request.with_continuation(&text)).unwrap();
                rows.extend(page.rows);
                next = page.continuation;
            }
        }
        rows.sort();
        assert_eq!(rows, expected, "{query}");
    }
}

#[test]
fn a_sum_does_not_go_on_in_parts() {
    let harness = numbers(50);
    let half = Scope::keys(KeyRange::divide(2).unwrap()[0].clone());
    let limits = Limits { documents_max: 4, ..Limits::items(1) };
    let nested = "SELECT VALUE n FROM (SELECT DISTINCT VALUE c.n FROM c) AS n";
    for query in ["SELECT VALUE SUM(c.n) FROM c", nested] {
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

#[test]
fn a_list_pauses_as_long_as_it_fits_into_a_continuation() {
    let harness = numbers(100);
    let limits =
        |bytes| Limits { documents_max: 4, continuation_bytes_max: bytes, ..Limits::items(1) };
    let pages = |query: &str, bytes: usize| {
        let query = Query::parse(query).unwrap();
        let (mut visited, mut next): (_, Option<String>) = (Vec::new(), None);
        loop {
            let request = harness.request().with_limits(limits(bytes));
            let page = match &next {
                Some(text) => harness.page(&query, &request.with_continuation(text)),
                None => harness.page(&query, &request),
            };
            let page = page.unwrap();
            visited.push(page.documents_visited);
            next = page.continuation;
            if next.is_none() {
                return (visited, page.rows);
            }
        }
    };
    let (visited, rows) = pages("SELECT VALUE MAKELIST(c.id) FROM c", 8192);
    assert_eq!(visited, [4; 25]);
    let (shorter, same) = pages("SELECT VALUE MAKELIST(c.id) FROM c", 512);
    // Then it is made in one go.
    assert!(1 < shorter.len() && 50 < *shorter.last().unwrap(), "{shorter:?}");
    assert_eq!(rows, same);
    let ids: Vec<String> = serde_json::from_str(&rows[0]).unwrap();
    assert_eq!(ids.len(), 100);
    // A set stays short.
    let (visited, rows) = pages("SELECT VALUE MAKESET(c.even) FROM c", 512);
    assert_eq!((visited, rows.len()), (vec![4; 25], 1));
}

#[test]
fn aggregates_that_are_too_long_for_a_continuation_are_tried_now_and_then() {
    let document = |n: u32| {
        let long = "x".repeat(if n == 3 { 2000 } else { 0 });
        format!(r#"{{"id":"{n:02}","pk":"p","s":"{n:02}{long}"}}"#)
    };
    let harness = Harness::new(&["/pk"], &(0..20).map(document).collect::<Vec<_>>());
    let limits = Limits { documents_max: 4, continuation_bytes_max: 1024, ..Limits::items(1) };
    // The next one is short enough, but to write the state before each further item to see that it
    // is still too long would take more time than the items do.
    let page = first_page(&harness, "SELECT VALUE MAX(c.s) FROM c", limits);
    assert_eq!((page.documents_visited, page.rows.len()), (8, 0));
    let page = first_page(&harness, "SELECT VALUE MIN(c.s) FROM c", limits);
    assert_eq!((page.documents_visited, page.rows.len()), (4, 0));
}

#[test]
fn what_a_query_within_an_aggregate_looks_at_is_there_on_one_page() {
    let harness = numbers(10);
    let limits = Limits { documents_max: 2, ..Limits::items(1) };
    // No continuation has the row.
    let query = "SELECT VALUE [COUNT(1), ARRAY(SELECT VALUE [x, c.n] FROM x IN [1, 2])] FROM c \
                 WHERE c.id = '005'";
    let page = first_page(&harness, query, limits);
    assert_eq!((page.rows, page.continuation), (vec!["[1,[[1,5],[2,5]]]".to_owned()], None));
}

#[test]
fn values_that_nest_as_deep_as_they_may_go_on() {
    let deep = format!("{}1{}", "[".repeat(126), "]".repeat(126));
    let document = |n: u32| format!("{{\"id\":\"{n}\", \"pk\":\"p\",\"d\":{deep}}}");
    let documents: Vec<String> = (0..3).map(document).collect();
    let harness = Harness::new(&["/pk"], &documents);
    let limits = Limits { documents_max: 1, ..Limits::items(1) };
    let check = |query: &str, expected: &[String]| {
        let query = Query::parse(query).unwrap();
        let page = harness.page(&query, &harness.request().with_limits(limits)).unwrap();
        assert!(page.continuation.is_some());
        let rows = harness.all(&query, &Parameters::default(), &Scope::all(), limits).unwrap();
        assert_eq!(rows, expected);
    };
    // Byte for byte.
    check("SELECT VALUE MAKELIST(c) FROM c", &[format!("[{}]", documents.join(","))]);
    // Queries nest what they find in up to 250 levels more.
    let (open, close) = ("[".repeat(200), "]".repeat(200));
    let nested = |inner: &str| format!("{open}{inner}{close}");
    let of_all = format!("[{0},{0},{0}]", nested(&deep));
    check(&format!("SELECT VALUE MAKELIST({}) FROM c", nested("c.d")), &[of_all]);
    let ids: Vec<String> = (0..3).map(|n| format!("\"{n}\"")).collect();
    let key = nested("{a: c.d, b: c.id}");
    check(&format!("SELECT VALUE c.id FROM c ORDER BY {key}, c.id"), &ids);
    check(&format!("SELECT VALUE COUNT(1) FROM c GROUP BY {key}"), &["1"; 3].map(str::to_owned));
}

#[test]
fn groups_of_long_values_have_short_continuations() {
    let document = |n: u32| {
        let long = "x".repeat(60_000);
        format!(r#"{{"id":"{n:02}","pk":"{}","g":"{:02}{long}","n":{n}}}"#, n % 5, n / 2)
    };
    let harness = Harness::new(&["/pk"], &(0..40).map(document).collect::<Vec<_>>());
    for query in [
        "SELECT VALUE [LEFT(c.g, 2), COUNT(1)] FROM c GROUP BY c.g",
        // Some of the groups have no row, and count all the same.
        "SELECT VALUE (LEFT(c.g, 2) < '07' ? undefined : LEFT(c.g, 2)) FROM c GROUP BY c.g",
        "SELECT VALUE LEFT(c.g, 2) FROM c GROUP BY c.g OFFSET 3 LIMIT 12",
    ] {
        let limits = Limits { continuation_bytes_max: 1024, ..Limits::items(3) };
        let first = first_page(&harness, query, limits);
        assert!(first.continuation.unwrap().len() <= 1024, "{query}");
        let parsed = Query::parse(query).unwrap();
        let rows =
            |limits| harness.all(&parsed, &Parameters::default(), &Scope::all(), limits).unwrap();
        assert_eq!(rows(limits), rows(Limits::items(1000)), "{query}");
    }
}

#[test]
fn rows_in_order_go_on_after_a_split_whatever_the_length_of_their_keys() {
    let long = "z".repeat(300);
    let key = |n: u32, shape: &str| match shape {
        "long" => format!("\"{n:02}{long}\""),
        // A continuation behind it is longer than it should be; behind the first ones it is not.
        "long at the end" if 10 <= n => format!("\"{long}{n:02}\""),
        "in turns" if n.is_multiple_of(3) => format!("\"{n:02}{long}\""),
        _ => format!("\"{n:02}\""),
    };
    for shape in ["long", "long at the end", "in turns", "short"] {
        let document = |n: u32| {
            format!(r#"{{"id":"{n:02}","pk":"{}","n":{n},"k":{}}}"#, n * 7 % 31, key(n, shape))
        };
        let harness = Harness::new(&["/pk"], &(0..60).map(document).collect::<Vec<_>>());
        let query = Query::parse("SELECT VALUE c.n FROM c ORDER BY c.k").unwrap();
        for held_bytes_max in [8_000, 14_000, 20_000, 30_000, 1_000_000] {
            let limits = Limits { continuation_bytes_max: 220, held_bytes_max, ..Limits::items(5) };
            let page = |scope: &Scope, text: Option<&str>| {
                let request = harness.request().with_scope(scope).with_limits(limits);
                let request = match text {
                    Some(text) => request.with_continuation(text),
                    None => request,
                };
                harness.page(&query, &request).unwrap()
            };
            for pages_before in [1, 2, 4] {
                let (mut rows, mut whole) = (Vec::new(), None);
                for _ in 0..pages_before {
                    let page = page(&Scope::all(), whole.as_deref());
                    rows.extend(page.rows);
                    whole = page.continuation;
                }
                for half in KeyRange::divide(2).unwrap() {
                    let (scope, mut next) = (Scope::keys(half), whole.clone());
                    while let Some(text) = next {
                        let page = page(&scope, Some(&text));
                        rows.extend(page.rows);
                        next = page.continuation;
                    }
                }
                let mut found: Vec<u32> = rows.iter().map(|it| it.parse().unwrap()).collect();
                found.sort_unstable();
                let case = format!("{shape}, {held_bytes_max}, {pages_before}");
                assert_eq!(found, (0..60).collect::<Vec<_>>(), "{case}");
            }
        }
    }
}

#[test]
fn values_that_are_told_apart_are_read_until_the_page_is_full() {
    let harness = numbers(1000);
    let page = first_page(&harness, "SELECT DISTINCT VALUE c.n FROM c", Limits::items(5));
    assert_eq!((page.rows.len(), page.documents_visited), (5, 6));
    let page = first_page(&harness, "SELECT DISTINCT TOP 5 VALUE c.n FROM c", Limits::items(9));
    assert_eq!((page.rows.len(), page.documents_visited, page.continuation), (5, 5, None));
}

/// Values that lie in all parts, more of them than a page keeps, and some that are not there.
fn shared_values() -> Harness {
    let document = |n: u32| match n % 50 {
        0 => format!(r#"{{"id":"{n}","pk":"{n}","n":{n}}}"#),
        _ => format!(r#"{{"id":"{n}","pk":"{n}","n":{n},"v":{}}}"#, n * 7 % 300),
    };
    Harness::new(&["/pk"], &(0..900).map(document).collect::<Vec<_>>())
}

#[test]
fn rows_of_many_documents_go_on_after_a_split_and_another_one() {
    let harness = shared_values();
    let halves = KeyRange::divide(2).unwrap();
    let quarters = KeyRange::divide(4).unwrap();
    for query in [
        "SELECT c.v, COUNT(1) AS n FROM c GROUP BY c.v",
        "SELECT VALUE c.v FROM c GROUP BY c.v",
        "SELECT c.v, COUNT(1) AS n FROM c GROUP BY c.v OFFSET 30 LIMIT 200",
        "SELECT c.v, COUNT(1) AS n FROM c GROUP BY c.v ORDER BY c.v DESC",
        "SELECT DISTINCT VALUE c.v FROM c",
        "SELECT DISTINCT c.v, c.n % 2 AS odd FROM c",
        "SELECT DISTINCT TOP 111 VALUE c.v FROM c",
        "SELECT DISTINCT VALUE c.v FROM c ORDER BY c.v",
        "SELECT DISTINCT c.v FROM c ORDER BY c.v DESC OFFSET 30 LIMIT 200",
        "SELECT DISTINCT VALUE c.v FROM c ORDER BY c.n",
        "SELECT TOP 250 VALUE c.n FROM c ORDER BY c.n",
        "SELECT VALUE c.n FROM c ORDER BY c.v DESC OFFSET 30 LIMIT 200",
        "SELECT TOP 250 VALUE c.n FROM c",
        "SELECT VALUE c.n FROM c WHERE c.n % 3 != 0 OFFSET 30 LIMIT 200",
    ] {
        let parsed = Query::parse(query).unwrap();
        let page = |keys: &KeyRange, text: &str| {
            let scope = Scope::keys(keys.clone());
            let request = harness.request().with_scope(&scope).with_limits(Limits::items(30));
            harness.page(&parsed, &request.with_continuation(text)).unwrap()
        };
        let first = first_page(&harness, query, Limits::items(30));
        let mut rows = first.rows;
        let whole = first.continuation.unwrap();
        for (half, parts) in halves.iter().zip(quarters.chunks(2)) {
            let second = page(half, &whole);
            rows.extend(second.rows);
            for quarter in parts {
                let mut next = second.continuation.clone();
                while let Some(text) = next {
                    let page = page(quarter, &text);
                    assert!(page.rows.len() <= 30, "{query}");
                    rows.extend(page.rows);
                    next = page.continuation;
                }
            }
        }
        let limits = Limits::items(1000);
        let all = harness.all(&parsed, &Parameters::default(), &Scope::all(), limits);
        let mut expected = all.unwrap();
        assert!(100 < expected.len(), "{query}");
        expected.sort();
        rows.sort();
        assert_eq!(rows, expected, "{query}");
    }
}

#[test]
fn a_part_keeps_no_more_than_the_whole_did() {
    let harness = shared_values();
    for query in
        ["SELECT VALUE c.v FROM c GROUP BY c.v", "SELECT DISTINCT VALUE c.v FROM c ORDER BY c.v"]
    {
        let limits = Limits { held_bytes_max: 96 * 1024, ..Limits::items(30) };
        let parsed = Query::parse(query).unwrap();
        let mut rows = first_page(&harness, query, limits).rows.len();
        for half in KeyRange::divide(2).unwrap() {
            let mut next = first_page(&harness, query, limits).continuation;
            let scope = Scope::keys(half);
            while let Some(text) = next {
                let request = harness.request().with_scope(&scope).with_limits(limits);
                let page = harness.page(&parsed, &request.with_continuation(&text)).unwrap();
                rows += page.rows.len();
                next = page.continuation;
            }
        }
        let whole = harness.all(&parsed, &Parameters::default(), &Scope::all(), limits).unwrap();
        assert_eq!(rows, whole.len(), "{query}");
    }
}
