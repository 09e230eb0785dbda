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
fn a_page_keeps_no_more_than_it_returns() {
    let filler = "x".repeat(300);
    let document =
        |n: u32| format!(r#"{{"id":"{n:04}","pk":"p","n":{n},"k":{},"s":"{filler}"}}"#, n / 2);
    let harness = Harness::new(&["/pk"], &(0..1000).map(document).collect::<Vec<_>>());
    // All documents have more than 300 KiB, and twice that in memory; what was told apart takes 32
    // bytes of each.
    let limits = Limits { held_bytes_max: 180 * 1024, ..Limits::items(40) };
    let check = |query: &str, rows: usize| {
        let query = Query::parse(query).unwrap();
        let found = harness.all(&query, &Parameters::default(), &Scope::all(), limits).unwrap();
        assert_eq!(found.len(), rows, "{}", query.text());
    };
    check("SELECT * FROM c ORDER BY c.n DESC", 1000);
    check("SELECT DISTINCT c.k, c.s FROM c ORDER BY c.k", 500);
    check("SELECT DISTINCT c.k, c.s FROM c", 500);
    check("SELECT c.k, c.s, COUNT(1) AS n FROM c GROUP BY c.k, c.s", 500);
    // Here the rows of a value may lie apart, so that all have to be kept.
    let apart = Query::parse("SELECT DISTINCT c.k, c.s FROM c ORDER BY c.n").unwrap();
    let error = harness.page(&apart, &harness.request().with_limits(limits)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
}

#[test]
fn what_takes_more_memory_than_text_counts_as_such() {
    let zeros = vec!["0"; 10_000].join(",");
    let document = |n: u32| format!(r#"{{"id":"{n}","pk":"p","n":{n},"v":[{zeros}]}}"#);
    let harness = Harness::new(&["/pk"], &(0..10).map(document).collect::<Vec<_>>());
    // Their text has 200 KB.
    let limits = Limits { held_bytes_max: 1024 * 1024, ..Limits::items(40) };
    for query in [
        "SELECT VALUE MAKELIST(c.v) FROM c",
        "SELECT VALUE c.n FROM c ORDER BY c.v",
        "SELECT VALUE v[0] FROM (SELECT VALUE c.v FROM c ORDER BY c.n) AS v",
    ] {
        let query = Query::parse(query).unwrap();
        let refused = harness.page(&query, &harness.request().with_limits(limits)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooLarge, "{}", query.text());
    }
}

#[test]
fn rows_count_the_ids_and_partition_keys_of_their_items() {
    let long = "x".repeat(900);
    let document = |n: u32| format!(r#"{{"id":"{n}{long}","pk":"{long}","n":{n}}}"#);
    let harness = Harness::new(&["/pk"], &(0..100).map(document).collect::<Vec<_>>());
    let limits = Limits { held_bytes_max: 60_000, ..Limits::items(1) };
    // Nothing else of them is kept, but that of all items.
    let query = Query::parse("SELECT DISTINCT VALUE c.n FROM c ORDER BY -c.n").unwrap();
    let refused = harness.page(&query, &harness.request().with_limits(limits)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
}

#[test]
fn rows_that_are_only_returned_take_up_as_much_as_their_text() {
    let zeros = vec!["0"; 10_000].join(",");
    let value = |n: u32| format!("[{n},{zeros}]");
    let document = |n: u32| format!(r#"{{"id":"{n}","pk":"p","n":{n},"v":{}}}"#, value(n));
    let harness = Harness::new(&["/pk"], &(0..10).map(document).collect::<Vec<_>>());
    // Their text has 200 KB; to look into them takes 3 MB.
    let limits = Limits { held_bytes_max: 320 * 1024, ..Limits::items(40) };
    let check = |query: &str, row: &dyn Fn(u32) -> String| {
        let query = Query::parse(query).unwrap();
        let none = Parameters::default();
        let mut rows = harness.all(&query, &none, &Scope::all(), limits).unwrap();
        rows.sort();
        assert_eq!(rows, (0..10).map(row).collect::<Vec<_>>(), "{}", query.text());
    };
    check("SELECT VALUE c.v FROM c ORDER BY c.n", &value);
    check("SELECT VALUE [c.v] FROM c ORDER BY c.n", &|n| format!("[{}]", value(n)));
    check("SELECT c.v FROM c ORDER BY c.n DESC", &|n| format!(r#"{{"v":{}}}"#, value(n)));
    check("SELECT c.n, c AS d FROM c ORDER BY c.n", &|n| {
        format!(r#"{{"n":{n},"d":{}}}"#, document(n))
    });
    check("SELECT * FROM c ORDER BY c.n", &document);
    check("SELECT DISTINCT VALUE c.v FROM c", &value);
    check("SELECT DISTINCT VALUE c.v FROM c ORDER BY c.n", &value);
    check("SELECT VALUE c.v FROM (SELECT * FROM c) AS c ORDER BY c.n", &value);
}

#[test]
fn groups_take_up_no_more_memory_than_is_allowed() {
    let zeros = vec!["0"; 10_000].join(",");
    let twenty = vec!["0"; 20].join(",");
    let document = |n: u32| format!(r#"{{"id":"{n}","pk":"p","v":[{n},{zeros}],"w":[{twenty}]}}"#);
    let harness = Harness::new(&["/pk"], &(0..30).map(document).collect::<Vec<_>>());
    let limits = Limits { held_bytes_max: 4 * 1024 * 1024, ..Limits::items(40) };
    for query in [
        // The text of all arrays has 600 KB.
        "SELECT VALUE COUNT(1) FROM c GROUP BY c.v",
        // What is grouped by may be in no item.
        "SELECT VALUE COUNT(1) FROM c GROUP BY ARRAY(SELECT VALUE CONCAT(c.id, \
         REPLICATE('x', 10000)) FROM i IN c.w)",
        "SELECT VALUE COUNT(1) FROM c GROUP BY [ARRAY(SELECT VALUE CONCAT(c.id, \
         REPLICATE('x', 10000)) FROM i IN c.w)][0]",
    ] {
        let query = Query::parse(query).unwrap();
        let refused = harness.page(&query, &harness.request().with_limits(limits)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooLarge, "{}", query.text());
        assert!(refused.report().contains("its rows take up more than"), "{}", refused.report());
    }
}

#[test]
fn the_least_and_greatest_of_groups_take_up_no_more_than_is_allowed() {
    let document = |n: usize| {
        // The first item of a group is short, and of the others every second.
        let long = "x".repeat(n % 2 * 10_000);
        format!(r#"{{"id":"{n:04}","pk":"p","g":{},"s":"{n:04}{long}"}}"#, n % 100 / 2)
    };
    let harness = Harness::new(&["/pk"], &(0..400).map(document).collect::<Vec<_>>());
    let limits = Limits { held_bytes_max: 100_000, ..Limits::items(100) };
    let run = |query: &str| {
        let query = Query::parse(query).unwrap();
        harness.all(&query, &Parameters::default(), &Scope::all(), limits)
    };
    // The rows themselves are short.
    let error = run("SELECT VALUE LENGTH(MAX(c.s)) FROM c GROUP BY c.g").unwrap_err();
    assert!(error.report().contains("its rows take up more than 100000"), "{}", error.report());
    // Their least ones are short.
    assert_eq!(run("SELECT VALUE MIN(c.s) FROM c GROUP BY c.g").unwrap().len(), 50);
    // What was the greatest takes up nothing any more.
    assert_eq!(run("SELECT VALUE MAX(c.s) FROM c").unwrap().len(), 1);
    let small = Limits { held_bytes_max: 5000, documents_max: 7, ..limits };
    for query in ["SELECT VALUE MAX(c.s) FROM c", "SELECT VALUE LENGTH(MAX(c.s)) FROM c"] {
        let query = Query::parse(query).unwrap();
        let error = harness.all(&query, &Parameters::default(), &Scope::all(), small).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{}", query.text());
    }
}

#[test]
fn lists_and_sets_take_up_no_more_than_is_allowed() {
    let filler = "x".repeat(90);
    let document = |n: u32| {
        format!(r#"{{"id":"{n:04}","pk":"p","n":{n},"g":{},"s":"{filler}{}"}}"#, n / 100, n % 9)
    };
    let harness = Harness::new(&["/pk"], &(0..1000).map(document).collect::<Vec<_>>());
    let run = |query: &str, limits: Limits| {
        let query = Query::parse(query).unwrap();
        harness.all(&query, &Parameters::default(), &Scope::all(), limits)
    };
    // All strings have 93 KB, those of a group 9 KB, those of a set less than 1 KB.
    let small = |items_max| Limits { held_bytes_max: 40_000, ..Limits::items(items_max) };
    for query in [
        "SELECT VALUE MAKELIST(c.s) FROM c",
        "SELECT VALUE MAKESET(CONCAT(c.s, c.id)) FROM c",
        "SELECT VALUE ARRAY_LENGTH(l) FROM (SELECT VALUE MAKELIST(c.s) FROM c) AS l",
    ] {
        let error = run(query, small(100)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{query}");
        let expected = "could not run the query: its rows take up more than 40000 bytes while they \
                        are gathered; filter more, or order and group less";
        assert_eq!(error.report(), expected, "{query}");
    }
    assert_eq!(run("SELECT VALUE ARRAY_LENGTH(MAKESET(c.s)) FROM c", small(1)).unwrap(), ["9"]);
    // Only the groups of a page count, and one to see whether there are more.
    let grouped = "SELECT VALUE MAKELIST(c.s) FROM c GROUP BY c.g";
    assert_eq!(run(grouped, small(1)).unwrap().len(), 10);
    assert_eq!(run(grouped, small(10)).unwrap_err().kind(), ErrorKind::TooLarge);
    // Where all are kept for one page, all count.
    for query in [
        "SELECT VALUE MAKELIST(c.s) FROM c GROUP BY c.g ORDER BY c.g",
        "SELECT DISTINCT VALUE MAKELIST(c.s) FROM c GROUP BY c.g",
        "SELECT VALUE MAKELIST(c.s) FROM c GROUP BY c.g OFFSET 5 LIMIT 1",
        "SELECT VALUE 1 FROM (SELECT VALUE MAKELIST(c.s) FROM c GROUP BY c.g) AS l",
    ] {
        assert_eq!(run(query, small(1)).unwrap_err().kind(), ErrorKind::TooLarge, "{query}");
    }
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
fn aggregates_that_are_too_long_for_a_continuation_are_tried_once() {
    let document = |n: u32| {
        let long = "x".repeat(if n == 3 { 2000 } else { 0 });
        format!(r#"{{"id":"{n:02}","pk":"p","s":"{n:02}{long}"}}"#)
    };
    let harness = Harness::new(&["/pk"], &(0..20).map(document).collect::<Vec<_>>());
    let limits = Limits { documents_max: 4, continuation_bytes_max: 1024, ..Limits::items(1) };
    // Later ones would be short enough, but to write the state before each further item to see
    // that it is still too long would take more time than the items do.
    let page = first_page(&harness, "SELECT VALUE MAX(c.s) FROM c", limits);
    assert_eq!((page.documents_visited, page.rows), (20, vec!["\"19\"".to_owned()]));
    let page = first_page(&harness, "SELECT VALUE MIN(c.s) FROM c", limits);
    assert_eq!((page.documents_visited, page.rows.len()), (4, 0));
}

#[test]
fn a_list_of_items_that_nest_as_deep_as_they_may_goes_on() {
    let deep = format!("{}1{}", "[".repeat(126), "]".repeat(126));
    let document = |n: u32| format!("{{\"id\":\"{n}\", \"pk\":\"p\",\"d\":{deep}}}");
    let documents: Vec<String> = (0..3).map(document).collect();
    let harness = Harness::new(&["/pk"], &documents);
    let limits = Limits { documents_max: 1, ..Limits::items(1) };
    let query = Query::parse("SELECT VALUE MAKELIST(c) FROM c").unwrap();
    assert!(harness.page(&query, &harness.request().with_limits(limits)).unwrap().rows.is_empty());
    let rows = harness.all(&query, &Parameters::default(), &Scope::all(), limits).unwrap();
    // Byte for byte.
    assert_eq!(rows, [format!("[{}]", documents.join(","))]);
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
