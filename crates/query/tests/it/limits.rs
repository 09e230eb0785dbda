//! Work is counted by what it is about, so that no document keeps a thread for long.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use millstream_query::{ComputedProperties, ErrorKind, Limits, Parameters, Query, Result};

use crate::harness::Harness;

/// Documents with two equal objects of 2000 properties, written in opposite order.
fn large(documents: usize) -> Harness {
    let property = |number: usize| format!("\"k{number}\":{number}");
    let object = |numbers: &mut dyn Iterator<Item = usize>| {
        format!("{{{}}}", numbers.map(property).collect::<Vec<_>>().join(","))
    };
    let (o, p) = (object(&mut (0..2000)), object(&mut (0..2000).rev()));
    let document = |id: usize| {
        format!(r#"{{"id":"{id}","pk":"a","o":{o},"p":{p},"s":"{}"}}"#, "x".repeat(100_000))
    };
    let documents: Vec<String> = (0..documents).map(document).collect();
    Harness::new(&["/pk"], &documents)
}

fn run(harness: &Harness, query: &str, limits: Limits) -> Result<Vec<String>> {
    let list = format!("[{}]", ["0"; 100].join(","));
    let parameters = format!(r#"[{{"name":"@l","value":{list}}}]"#);
    let parameters = Parameters::from_json(parameters.as_bytes())?;
    let query = Query::parse(query)?;
    let request = harness.request().with_parameters(&parameters).with_limits(limits);
    Ok(harness.page(&query, &request)?.rows)
}

fn steps(document_steps_max: u64) -> Limits {
    Limits { document_steps_max, ..Limits::items(100) }
}

#[track_caller]
fn check_refused(harness: &Harness, query: &str, limits: Limits) {
    let error = run(harness, query, limits).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{query}");
    let expected = format!(
        "could not run the query: it takes more than {} steps for a single item, or to bring all \
         rows together; join less, or filter in a query within JOIN",
        limits.document_steps_max
    );
    assert_eq!(error.report(), expected, "{query}");
}

#[test]
fn comparing_large_values_counts() {
    let harness = large(1);
    for query in [
        "SELECT VALUE c.o = c.p FROM c",
        "SELECT VALUE c.o IN (c.p) FROM c",
        "SELECT VALUE ARRAY_CONTAINS([c.o], c.p) FROM c",
        "SELECT VALUE ARRAY_CONTAINS([c.o], c.p, true) FROM c",
    ] {
        check_refused(&harness, query, steps(1000));
        // In proportion to the size, and not to its square.
        assert_eq!(run(&harness, query, steps(30_000)).unwrap(), ["true"], "{query}");
    }
    check_refused(&harness, "SELECT VALUE 1 FROM c WHERE c.s < c.s", steps(200));
    check_refused(&harness, "SELECT VALUE 1 FROM c WHERE c.s = c.s", steps(200));
    check_refused(&harness, "SELECT VALUE c.id FROM c ORDER BY c.o", steps(1000));
    check_refused(&harness, "SELECT VALUE COUNT(1) FROM c GROUP BY c.o", steps(1000));
    check_refused(&harness, "SELECT VALUE MAX(c.s) FROM c", steps(200));
    check_refused(&harness, "SELECT VALUE ARRAY(SELECT VALUE c.o) FROM c", steps(100));
    check_refused(&harness, "SELECT VALUE MAKESET(c.o) FROM c", steps(1000));
    check_refused(&harness, "SELECT VALUE MAKELIST(c.o) FROM c", steps(100));
    check_refused(&harness, "SELECT VALUE c.s FROM c", steps(500));
}

#[test]
fn matching_a_pattern_counts_by_what_it_repeats() {
    let harness = large(1);
    for pattern in ["x{0,900}y", "(x{0,30}){0,28}y", "(?:x|x|x){0,200}y"] {
        let query = format!("SELECT VALUE REGEXMATCH(c.s, '{pattern}') FROM c");
        check_refused(&harness, &query, Limits::default());
    }
    let query = "SELECT VALUE REGEXMATCH(c.s, '^x+y$') FROM c";
    assert_eq!(run(&harness, query, steps(1_000_000)).unwrap(), ["false"]);
    // Only so many patterns are kept once they are compiled.
    let numbers: Vec<String> = (0..100).map(|it| it.to_string()).collect();
    let query = format!(
        "SELECT VALUE n FROM n IN [{}] WHERE REGEXMATCH('', CONCAT('x{{900}}', REPLICATE('y', n)))",
        numbers.join(",")
    );
    check_refused(&harness, &query, steps(500_000));
}

#[test]
fn what_one_character_is_compared_with_counts() {
    let harness = large(1);
    let set = "CONCAT('%[', REPLICATE('y', 10000), ']y')";
    check_refused(&harness, &format!("SELECT VALUE c.s LIKE {set} FROM c"), Limits::default());
    check_refused(&harness, "SELECT VALUE TRIM(c.s, 'xy') FROM c", steps(90_000));
    let query = "SELECT VALUE TRIM(c.s, 'xy') FROM c";
    assert_eq!(run(&harness, query, steps(120_000)).unwrap(), ["\"\""]);
}

#[test]
fn brackets_that_nothing_closes_are_read_once() {
    let many = format!("CONCAT({})", vec!["REPLICATE('[', 10000)"; 20].join(","));
    let query = format!("SELECT VALUE {many} LIKE {many}");
    assert_eq!(run(&large(1), &query, steps(1_000_000)).unwrap(), ["true"]);
}

#[test]
fn a_property_of_a_large_object_is_found_without_going_through_it() {
    let harness = large(1);
    let query = "SELECT VALUE c.o.k1999 - c.p.k1999 FROM c WHERE c.o.k1000 = 1000";
    assert_eq!(run(&harness, query, steps(30)).unwrap(), ["0"]);
    assert_eq!(run(&harness, "SELECT VALUE c.o.k2000 FROM c", steps(30)).unwrap(), [""; 0]);
}

#[test]
fn one_item_may_take_fewer_steps_than_a_page() {
    let harness = large(3);
    let joined = "SELECT VALUE 1 FROM c JOIN a IN @l JOIN b IN @l WHERE a + b < 0";
    assert_eq!(run(&harness, joined, steps(100_000)).unwrap(), [""; 0]);
    check_refused(&harness, joined, steps(50_000));
    // A query without items, and what is done with the rows of all of them, count as one.
    check_refused(&harness, "SELECT VALUE a FROM a IN @l JOIN b IN @l WHERE 0 < b", steps(30_000));
    let outer = "SELECT VALUE 1 FROM (SELECT DISTINCT VALUE c.id FROM c) x JOIN a IN @l \
                 JOIN b IN @l WHERE a + b < 0";
    check_refused(&harness, outer, steps(150_000));
    let page = Limits { steps_max: 150_000, ..steps(100_000) };
    let report = run(&harness, &format!("{joined} ORDER BY a"), page).unwrap_err().report();
    assert!(report.contains("a page of it takes more steps than are allowed"), "{report}");
}

#[test]
fn others_get_the_thread_between_items_that_take_many_steps() {
    let pauses = |document_steps_max: u64| {
        let harness = large(10);
        let query = "SELECT VALUE COUNT(1) FROM c WHERE c.o = c.p";
        let query = Query::parse(query).unwrap();
        let request = harness.request().with_limits(steps(document_steps_max));
        let mut page = pin!(query.execute(&*harness.documents, &request));
        let mut context = Context::from_waker(Waker::noop());
        for pauses in 0.. {
            if let Poll::Ready(page) = page.as_mut().poll(&mut context) {
                assert_eq!(page.unwrap().rows, ["10"]);
                return pauses;
            }
        }
        unreachable!("the query ends");
    };
    let few = pauses(20_000_000);
    assert!(few + 8 <= pauses(8000), "{few}");
}

#[test]
fn computed_properties_do_not_blow_a_query_up() {
    let long = format!("SELECT VALUE c.a{} FROM c", " + 1".repeat(1000));
    let computed = ComputedProperties::new([("long", long.as_str())]).unwrap();
    let query = |times: usize| format!("SELECT VALUE [{}] FROM c", vec!["c.long"; times].join(","));
    assert!(Query::parse_with(&query(100), &computed).is_ok());
    let error = Query::parse_with(&query(1000), &computed).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{}", error.report());
}

#[test]
fn aggregates_within_each_other_take_no_more_time_than_others() {
    let nested =
        |depth| format!("{}c.id{}", "(SELECT VALUE MAX(".repeat(depth), "))".repeat(depth));
    let query = format!("SELECT VALUE {} FROM c WHERE {} != ''", nested(40), nested(40));
    assert_eq!(run(&large(1), &query, steps(1000)).unwrap(), ["\"0\""]);
}

/// A source with one value of an item, which nests another in itself so often.
fn doubled(levels: usize, value: &str) -> String {
    let inner = (0..levels).fold(format!("SELECT VALUE {value} FROM c"), |inner, _| {
        format!("SELECT VALUE [x, x] FROM ({inner}) AS x")
    });
    format!("({inner}) AS x")
}

#[test]
fn a_row_has_a_limit_however_short_its_query_is() {
    let harness = large(1);
    let limits = |row_bytes_max| Limits { row_bytes_max, ..steps(20_000_000) };
    let check = |query: &str| {
        let error = run(&harness, query, limits(1_000_000)).unwrap_err();
        let expected = "could not run the query: it makes a value that has more than 1000000 bytes \
                        as JSON; select less, or repeat it less often";
        assert_eq!(error.report(), expected, "{query}");
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{query}");
    };
    // The string has 100 KB.
    let repeated = |times: usize| format!("[{}]", vec!["c.s"; times].join(","));
    let rows = |query: &str| run(&harness, query, limits(1_000_000)).unwrap();
    assert_eq!(rows(&format!("SELECT VALUE {} FROM c", repeated(9)))[0].len(), 900_028);
    check(&format!("SELECT VALUE {} FROM c", repeated(11)));
    check(&format!("SELECT {} AS s FROM c", repeated(11)));
    check(&format!("SELECT VALUE {} FROM c ORDER BY c.id", repeated(11)));
    check(&format!("SELECT DISTINCT VALUE {} FROM c", repeated(11)));
    check(&format!("SELECT VALUE {} FROM c GROUP BY c.s", repeated(11)));
    check(&format!("SELECT {} AS s, MAX(c.id) AS m FROM c GROUP BY c.s", repeated(11)));
    check(&format!("SELECT VALUE MAKELIST({}) FROM c", repeated(11)));
    check(&format!("SELECT VALUE [MAKELIST({0}), MAKELIST({0})] FROM c", repeated(6)));
    // What is not gone through may be as long as it likes.
    assert_eq!(rows(&format!("SELECT VALUE ARRAY_LENGTH({}) FROM c", repeated(11))), ["11"]);
    // What is escaped is longer than it is in memory.
    let escaped = vec!["REPLICATE('\\u0001', 10000)"; 20].join(",");
    check(&format!("SELECT VALUE [{escaped}] FROM c"));
}

#[test]
fn a_value_of_more_parts_than_can_be_counted_is_refused() {
    let harness = large(1);
    let from = doubled(60, "c.id");
    for query in [
        format!("SELECT VALUE x FROM {from}"),
        format!("SELECT x FROM {from}"),
        format!("SELECT VALUE x FROM {from} ORDER BY x"),
        format!("SELECT VALUE 1 FROM {from} ORDER BY x"),
        format!("SELECT DISTINCT VALUE x FROM {from}"),
        format!("SELECT VALUE COUNT(1) FROM {from} GROUP BY x"),
        format!("SELECT VALUE MAKESET(x) FROM {from}"),
        format!("SELECT VALUE ARRAY_CONTAINS(x, 1) FROM {from}"),
        format!("SELECT VALUE SetUnion(x, x) FROM {from}"),
        format!("SELECT VALUE TOSTRING(x) FROM {from}"),
        format!("SELECT VALUE ARRAY(SELECT VALUE x) FROM {from}"),
        format!("SELECT VALUE MAKELIST(x) FROM (SELECT VALUE MAKELIST(x) FROM {from}) AS x"),
    ] {
        let report = run(&harness, &query, steps(1_000_000)).unwrap_err().report();
        assert!(report.contains("it makes a value that has more than"), "{report}: {query}");
    }
    for empty in ["[]", "{}", "''"] {
        let query = format!("SELECT VALUE x FROM {}", doubled(60, empty));
        let report = run(&harness, &query, steps(1_000_000)).unwrap_err().report();
        assert!(report.contains("it makes a value that has more than"), "{report}: {query}");
    }
    check_refused(&harness, &format!("SELECT VALUE x = x FROM {from}"), steps(1_000_000));
    check_refused(&harness, &format!("SELECT VALUE x IN (x) FROM {from}"), steps(1_000_000));
}

#[test]
fn the_parts_of_a_value_count_however_short_its_text_is() {
    let harness = large(1);
    for part in ["1", "[]", "{}", "''"] {
        let from = doubled(14, part);
        check_refused(&harness, &format!("SELECT VALUE 1 FROM {from} ORDER BY x"), steps(5000));
        check_refused(&harness, &format!("SELECT VALUE MAKELIST(x) FROM {from}"), steps(5000));
    }
}
