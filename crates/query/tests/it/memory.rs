//! What is kept while a page is made has a limit, and what the page does not need is not kept.

use millstream_query::{ErrorKind, Limits, Page, Parameters, Query, Result, Scope};

use crate::harness::Harness;

fn page(harness: &Harness, query: &str, limits: Limits) -> Result<Page> {
    harness.page(&Query::parse(query).unwrap(), &harness.request().with_limits(limits))
}

/// The rows of all pages.
fn all(harness: &Harness, query: &str, limits: Limits) -> Result<Vec<String>> {
    let query = Query::parse(query).unwrap();
    harness.all(&query, &Parameters::default(), &Scope::all(), limits)
}

#[track_caller]
fn check_too_much(harness: &Harness, query: &str, limits: Limits) {
    let error = page(harness, query, limits).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{query}");
    let expected = format!(
        "could not run the query: what it keeps of rows, and makes of an item, takes up more than \
         {} bytes; filter more, order and group less, or make shorter arrays and strings",
        limits.held_bytes_max
    );
    assert_eq!(error.report(), expected, "{query}");
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
        assert_eq!(all(&harness, query, limits).unwrap().len(), rows, "{query}");
    };
    check("SELECT * FROM c ORDER BY c.n DESC", 1000);
    check("SELECT DISTINCT c.k, c.s FROM c ORDER BY c.k", 500);
    check("SELECT DISTINCT c.k, c.s FROM c", 500);
    check("SELECT c.k, c.s, COUNT(1) AS n FROM c GROUP BY c.k, c.s", 500);
    // Here the rows of a value may lie apart, so that all have to be kept.
    check_too_much(&harness, "SELECT DISTINCT c.k, c.s FROM c ORDER BY c.n", limits);
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
        "SELECT VALUE c.n FROM c GROUP BY c.n, c.v ORDER BY c.v",
        "SELECT VALUE v[0] FROM (SELECT VALUE c.v FROM c ORDER BY c.n) AS v",
    ] {
        check_too_much(&harness, query, limits);
    }
}

#[test]
fn rows_count_the_ids_and_partition_keys_of_their_items() {
    let long = "x".repeat(900);
    let document = |n: u32| format!(r#"{{"id":"{n}{long}","pk":"{long}","n":{n}}}"#);
    let harness = Harness::new(&["/pk"], &(0..100).map(document).collect::<Vec<_>>());
    let limits = Limits { held_bytes_max: 60_000, ..Limits::items(1) };
    // Nothing else of them is kept, but that of all items.
    check_too_much(&harness, "SELECT DISTINCT VALUE c.n FROM c ORDER BY -c.n", limits);
    // The rows of one item share them.
    let list: Vec<u32> = (0..100).collect();
    let document = format!(r#"{{"id":"{long}","pk":"{long}","l":{list:?}}}"#);
    let harness = Harness::new(&["/pk"], &[document]);
    let rows = all(&harness, "SELECT DISTINCT VALUE t FROM t IN c.l ORDER BY -t", limits).unwrap();
    assert_eq!(rows.len(), 100);
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
        let mut rows = all(&harness, query, limits).unwrap();
        rows.sort();
        assert_eq!(rows, (0..10).map(row).collect::<Vec<_>>(), "{query}");
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
    // The text of all arrays has 600 KB; the others come with the next page.
    let by_array = "SELECT VALUE COUNT(1) FROM c GROUP BY c.v";
    let first = page(&harness, by_array, limits).unwrap();
    assert!((2..15).contains(&first.rows.len()) && first.continuation.is_some());
    assert_eq!(all(&harness, by_array, limits).unwrap(), ["1"; 30]);
    // Where all are kept for one page, all count. What is grouped by may be in no item.
    for key in [
        "c.v",
        "ARRAY(SELECT VALUE CONCAT(c.id, REPLICATE('x', 10000)) FROM i IN c.w)",
        "[ARRAY(SELECT VALUE CONCAT(c.id, REPLICATE('x', 10000)) FROM i IN c.w)][0]",
    ] {
        let query = format!("SELECT VALUE COUNT(1) FROM c GROUP BY {key} ORDER BY {key}");
        check_too_much(&harness, &query, limits);
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
    let run = |query: &str| all(&harness, query, limits);
    // The rows themselves are short.
    let longest = "SELECT VALUE LENGTH(MAX(c.s)) FROM c GROUP BY c.g";
    check_too_much(&harness, &format!("{longest} ORDER BY MAX(c.s)"), limits);
    let first = page(&harness, longest, limits).unwrap();
    assert!((2..10).contains(&first.rows.len()), "{}", first.rows.len());
    assert_eq!(run(longest).unwrap(), ["10004"; 50]);
    // Their least ones are short.
    assert_eq!(run("SELECT VALUE MIN(c.s) FROM c GROUP BY c.g").unwrap().len(), 50);
    // What was the greatest takes up nothing any more.
    assert_eq!(run("SELECT VALUE MAX(c.s) FROM c").unwrap().len(), 1);
    let small = Limits { held_bytes_max: 5000, documents_max: 7, ..limits };
    for query in ["SELECT VALUE MAX(c.s) FROM c", "SELECT VALUE LENGTH(MAX(c.s)) FROM c"] {
        check_too_much(&harness, query, small);
    }
}

#[test]
fn lists_and_sets_take_up_no_more_than_is_allowed() {
    let filler = "x".repeat(90);
    let document = |n: u32| {
        format!(r#"{{"id":"{n:04}","pk":"p","n":{n},"g":{},"s":"{filler}{}"}}"#, n / 100, n % 9)
    };
    let harness = Harness::new(&["/pk"], &(0..1000).map(document).collect::<Vec<_>>());
    // All strings have 93 KB, those of a group 9 KB, those of a set less than 1 KB.
    let small = |items_max| Limits { held_bytes_max: 40_000, ..Limits::items(items_max) };
    for query in [
        "SELECT VALUE MAKELIST(c.s) FROM c",
        "SELECT VALUE MAKESET(CONCAT(c.s, c.id)) FROM c",
        "SELECT VALUE ARRAY_LENGTH(l) FROM (SELECT VALUE MAKELIST(c.s) FROM c) AS l",
    ] {
        check_too_much(&harness, query, small(100));
    }
    let sets = "SELECT VALUE ARRAY_LENGTH(MAKESET(c.s)) FROM c";
    assert_eq!(all(&harness, sets, small(1)).unwrap(), ["9"]);
    // Where not all groups of a page fit, it has fewer.
    let grouped = "SELECT VALUE MAKELIST(c.s) FROM c GROUP BY c.g";
    let rows = all(&harness, grouped, Limits::items(10)).unwrap();
    for items_max in [1, 2, 3, 9, 10] {
        assert_eq!(all(&harness, grouped, small(items_max)).unwrap(), rows, "{items_max}");
        let behind = all(&harness, &format!("{grouped} OFFSET 6 LIMIT 3"), small(items_max));
        assert_eq!(behind.unwrap(), rows[6..9], "{items_max}");
    }
    // A list of a group is never divided.
    check_too_much(&harness, grouped, Limits { held_bytes_max: 9000, ..small(1) });
    // Where all are kept for one page, all count.
    for query in [
        "SELECT VALUE MAKELIST(c.s) FROM c GROUP BY c.g ORDER BY c.g",
        "SELECT DISTINCT VALUE MAKELIST(c.s) FROM c GROUP BY c.g",
        "SELECT VALUE 1 FROM (SELECT VALUE MAKELIST(c.s) FROM c GROUP BY c.g) AS l",
    ] {
        check_too_much(&harness, query, small(1));
    }
}

#[test]
fn of_a_group_only_what_it_is_grouped_by_is_kept() {
    let filler = "x".repeat(10_000);
    let document = |n: u32| {
        let tags = format!(r#"["a{n}","b{n}","even"]"#);
        let address = format!(r#"{{"city":"C{}","notes":"{filler}"}}"#, n % 50);
        format!(r#"{{"id":"{n:03}","pk":"p","tags":{tags},"address":{address}}}"#)
    };
    let harness = Harness::new(&["/pk"], &(0..100).map(document).collect::<Vec<_>>());
    // All items have 1 MB, twice that in memory.
    let limits = Limits { held_bytes_max: 100_000, ..Limits::items(1000) };
    let check = |query: &str, groups: usize, first: &str| {
        let rows = all(&harness, query, limits).unwrap();
        assert_eq!((rows.len(), &*rows[0]), (groups, first), "{query}");
    };
    check(
        "SELECT t, COUNT(1) AS n FROM c JOIN t IN c.tags GROUP BY t ORDER BY COUNT(1) DESC",
        201,
        r#"{"t":"even","n":100}"#,
    );
    check(
        "SELECT COUNT(1) AS n, c.address.city FROM c GROUP BY c.address.city ORDER BY \
         c.address.city DESC",
        50,
        r#"{"n":2,"city":"C9"}"#,
    );
    check(
        "SELECT DISTINCT VALUE CONCAT(LOWER(c.address.city), '!') FROM c GROUP BY \
         LOWER(c.address.city)",
        50,
        r#""c0!""#,
    );
    check(
        "SELECT VALUE x.n FROM (SELECT c.id, COUNT(1) AS n FROM c JOIN t IN c.tags GROUP BY c.id) \
         AS x",
        100,
        "3",
    );
    // A query of its own may look at whatever is in the first row of the group.
    let within = "SELECT c.id, ARRAY(SELECT VALUE t FROM t IN c.tags WHERE t != 'even') AS t \
                  FROM c GROUP BY c.id";
    let rows = all(&harness, within, Limits::items(1000)).unwrap();
    assert_eq!((rows.len(), &*rows[7]), (100, r#"{"id":"007","t":["a7","b7"]}"#));
    check_too_much(&harness, &format!("{within} ORDER BY c.id"), limits);
}

#[test]
fn rows_within_an_item_may_share_what_it_has() {
    let filler = "x".repeat(10_000);
    let tags: Vec<u32> = (0..100).collect();
    let document =
        format!(r#"{{"id":"1","pk":"p","s":"{filler}","o":{{"s":[0]}},"tags":{tags:?}}}"#);
    let harness = Harness::new(&["/pk"], &[document]);
    let limits = Limits { held_bytes_max: 50_000, ..Limits::default() };
    for rows in [
        "SELECT t, c FROM t IN c.tags",
        "SELECT VALUE [t, c.s, {a: c.o}] FROM t IN c.tags",
        "SELECT VALUE [[c.s], t] FROM t IN c.tags WHERE t < 200",
    ] {
        let query = format!("SELECT VALUE ARRAY_LENGTH(ARRAY({rows})) FROM c");
        assert_eq!(all(&harness, &query, limits).unwrap(), ["100"], "{query}");
        let query = format!("SELECT VALUE COUNT(1) FROM c JOIN x IN ({rows})");
        assert_eq!(all(&harness, &query, limits).unwrap().len(), 1, "{query}");
    }
    // To look for what is shared counts as work.
    let parts = vec!["\"\""; 5000].join(",");
    let document = format!(r#"{{"id":"1","pk":"p","v":[{parts}],"tags":{tags:?}}}"#);
    let large = Harness::new(&["/pk"], &[document]);
    let rows = "SELECT c.v, t FROM t IN [1, 2]";
    let lengths = format!("SELECT VALUE ARRAY_LENGTH(ARRAY({rows})) FROM u IN c.tags");
    let query = format!("SELECT VALUE ARRAY_LENGTH(ARRAY({lengths})) FROM c");
    let few = Limits { held_bytes_max: 200_000, document_steps_max: 1_000_000, ..limits };
    let error = all(&large, &query, few).unwrap_err();
    assert!(error.report().contains("more than 1000000 steps"), "{}", error.report());
    let enough = Limits { document_steps_max: 10_000_000, ..few };
    assert_eq!(all(&large, &query, enough).unwrap(), ["100"]);
    // These are made anew for every row.
    let made = "SELECT VALUE CONCAT(c.s, 'y') FROM t IN c.tags";
    check_too_much(&harness, &format!("SELECT VALUE ARRAY_LENGTH(ARRAY({made})) FROM c"), limits);
}

#[test]
fn rows_in_order_that_take_up_too_much_come_with_the_next_page() {
    let zeros = vec!["0"; 1000].join(",");
    let document =
        |n: u32| format!(r#"{{"id":"{n:03}","pk":"p","n":{n},"v":[{},{zeros}]}}"#, n / 2);
    let harness = Harness::new(&["/pk"], &(0..120).rev().map(document).collect::<Vec<_>>());
    let large = Limits::items(1000);
    // The array of an item takes up 16 KB, the continuation behind it 3 KB.
    for (items_max, continuation_bytes_max) in [(1000, 8192), (1000, 100), (7, 8192), (7, 100)] {
        let limits = |held_bytes_max| Limits {
            items_max,
            continuation_bytes_max,
            held_bytes_max,
            ..Limits::default()
        };
        for query in [
            "SELECT VALUE c.n FROM c ORDER BY c.v",
            "SELECT VALUE c.n FROM c ORDER BY c.v DESC, c.n",
            "SELECT VALUE c.n FROM c ORDER BY c.v OFFSET 50 LIMIT 40",
            "SELECT TOP 70 VALUE c.n FROM c ORDER BY c.v DESC",
            "SELECT DISTINCT VALUE c.v FROM c ORDER BY c.v",
            "SELECT VALUE t + c.n FROM c JOIN t IN [1, 2] ORDER BY c.v",
        ] {
            let expected = all(&harness, query, large).unwrap();
            let first = page(&harness, query, limits(400_000)).unwrap();
            assert!(first.rows.len() < items_max.min(30) + 1, "{query}");
            assert!(first.continuation.is_some(), "{query}");
            assert_eq!(all(&harness, query, limits(400_000)).unwrap(), expected, "{query}");
        }
        // Where rows have to be counted on the next page, too, all of them are kept.
        check_too_much(&harness, "SELECT DISTINCT VALUE c.n FROM c ORDER BY c.v", limits(400_000));
        // One row has to fit, and the next to see that there is one.
        check_too_much(&harness, "SELECT VALUE c.n FROM c ORDER BY c.v", limits(20_000));
    }
}

#[test]
fn rows_of_queries_beside_and_within_each_other_count_together() {
    let list: Vec<u32> = (0..60).collect();
    let document = format!(r#"{{"id":"1","pk":"p","l":{list:?},"s":"{}"}}"#, "x".repeat(100));
    let harness = Harness::new(&["/pk"], &[document]);
    // Each of these takes up about 12 KB.
    let rows = "SELECT VALUE CONCAT(c.s, 'y') FROM i IN c.l";
    let limits = Limits { held_bytes_max: 50_000, ..Limits::default() };
    let sources = |count: usize| {
        let sources = (0..count).map(|it| {
            format!(
                "JOIN s{it} IN (SELECT TOP 1 VALUE a FROM a IN \
                                                   ARRAY({rows}))"
            )
        });
        format!("SELECT VALUE COUNT(1) FROM c {}", sources.collect::<Vec<_>>().join(" "))
    };
    assert_eq!(all(&harness, &sources(10), limits).unwrap(), ["1"]);
    let joins = |count: usize| {
        let first = (1..count).map(|it| {
            format!(
                "JOIN s{it} IN (SELECT TOP 60 VALUE a FROM a IN \
                                                 ({rows})) "
            )
        });
        format!("SELECT TOP 1 VALUE 1 FROM c {}", first.collect::<String>())
    };
    assert_eq!(all(&harness, &joins(3), limits).unwrap(), ["1"]);
    check_too_much(&harness, &joins(7), limits);
    let arrays = |count: usize| {
        let arrays = vec![format!("ARRAY_LENGTH(ARRAY({rows}))"); count].join(" + ");
        format!("SELECT VALUE {arrays} FROM c")
    };
    assert_eq!(all(&harness, &arrays(3), limits).unwrap(), ["180"]);
    let lists = vec![format!("ARRAY({rows})"); 7].join(", ");
    check_too_much(&harness, &format!("SELECT VALUE ARRAY_LENGTH([{lists}]) FROM c"), limits);
    let lists = vec![
        format!(
            "({})",
            rows.replace(
                "VALUE CONCAT(c.s, 'y')",
                "VALUE \
                     MAKELIST(CONCAT(c.s, 'y'))"
            )
        );
        7
    ]
    .join(", ");
    check_too_much(&harness, &format!("SELECT VALUE ARRAY_LENGTH([{lists}]) FROM c"), limits);
    let lists = vec![format!("ARRAY({rows} GROUP BY i)"); 7].join(", ").replace("c.s", "'{s}'");
    let lists = lists.replace("{s}", &"x".repeat(100));
    check_too_much(&harness, &format!("SELECT VALUE ARRAY_LENGTH([{lists}]) FROM c"), limits);
    let exists = vec![format!("EXISTS(SELECT TOP 90 VALUE t FROM t IN ({rows}))"); 7];
    let query = format!("SELECT VALUE [{}] FROM c", exists.join(", "));
    assert_eq!(all(&harness, &query, limits).unwrap().len(), 1);
    // Sources that only tell whether there are rows are gone after that.
    for exists in [
        "SELECT VALUE a.nope FROM a IN (SELECT VALUE i FROM i IN c.l)",
        "SELECT VALUE b.nope FROM a IN c.l JOIN b IN (SELECT VALUE i FROM i IN c.l)",
    ] {
        let query = format!("SELECT VALUE EXISTS({exists}) FROM c");
        assert_eq!(all(&harness, &query, limits).unwrap(), ["false"], "{query}");
    }
    // What one row needs is not kept for the next.
    let each = format!("SELECT VALUE ARRAY_LENGTH(ARRAY({rows})) FROM c JOIN t IN c.l");
    assert_eq!(all(&harness, &each, limits).unwrap().len(), 60);
    let filter = format!("WHERE ARRAY_LENGTH(ARRAY({rows})) = 60");
    let filtered = format!("SELECT VALUE t FROM c JOIN t IN c.l {filter}");
    assert_eq!(all(&harness, &filtered, limits).unwrap().len(), 60);
    let filtered = format!("SELECT VALUE t FROM t IN c.l {filter}");
    let within = format!("SELECT VALUE ARRAY_LENGTH(ARRAY({filtered})) FROM c");
    assert_eq!(all(&harness, &within, limits).unwrap(), ["60"]);
}

/// An item whose array takes up 64 KB.
fn with_parts() -> Harness {
    let zeros = vec!["0"; 2000].join(",");
    let properties: Vec<String> = (0..500).map(|it| format!(r#""k{it}":0"#)).collect();
    let properties = properties.join(",");
    let pairs: Vec<String> = (0..500).map(|it| format!(r#"{{"k":"k{it}","v":0}}"#)).collect();
    let pairs = pairs.join(",");
    let document = format!(
        r#"{{"id":"1","pk":"p","l":[{zeros}],"o":{{{properties}}},"p":[{pairs}],"s":"{zeros}"}}"#
    );
    Harness::new(&["/pk"], &[document])
}

#[test]
fn what_functions_make_of_an_item_counts_together() {
    let harness = with_parts();
    let limits = Limits { held_bytes_max: 300_000, ..Limits::default() };
    for (made, fitting) in [
        ("ARRAY_CONCAT(c.l, [1])", 4),
        ("ARRAY_SLICE(c.l, 0)", 4),
        ("ARRAY_CONCAT(ObjectToArray(c.o), [])", 2),
        ("ObjectToArray(c.o)", 2),
        ("ArrayToObject(c.p)", 4),
        ("StringSplit(c.s, ',')", 2),
        ("StringToArray(CONCAT('[', c.s, ']'))", 3),
        ("StringToObject(ToString(c.o))", 4),
        ("CONCAT(c.s, 'x')", 50),
        ("UPPER(c.s)", 50),
        ("StringJoin(StringSplit('a,b', ','), c.s)", 50),
        ("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]", 300),
        ("{a: 1, b: 2, c: 3, d: 4, e: 5, f: 6, g: 7, h: 8, i: 9, j: 10}", 300),
    ] {
        let all_of = |times: usize| {
            let made = vec![made; times].join(", ");
            format!("SELECT VALUE ARRAY_LENGTH([{made}]) FROM c")
        };
        let fits = all(&harness, &all_of(fitting), limits);
        assert_eq!(fits.unwrap(), [fitting.to_string()], "{made}");
        check_too_much(&harness, &all_of(fitting * 3), limits);
    }
    // Of the values of sources no two are there at once, but those of several sources are.
    let sources = |times: usize| {
        let join = |it| format!(" JOIN s{it} IN ARRAY_SLICE(c.l, 1, 1999)");
        let joins: String = (0..times).map(join).collect();
        format!("SELECT TOP 1 VALUE 1 FROM c{joins}")
    };
    assert_eq!(all(&harness, &sources(4), limits).unwrap(), ["1"]);
    check_too_much(&harness, &sources(5), limits);
}

#[test]
fn what_is_too_large_to_be_made_is_refused_before() {
    let harness = with_parts();
    let limits = Limits { held_bytes_max: 50_000, ..Limits::default() };
    for made in [
        "ARRAY_LENGTH(ARRAY_CONCAT(c.l, []))",
        "ARRAY_LENGTH(ARRAY_SLICE(c.l, 1))",
        "ARRAY_LENGTH(SetUnion(c.l, c.l))",
        "ARRAY_LENGTH(SetIntersect(c.l, c.l))",
        "SetEqual(c.l, c.l)",
        "ARRAY_LENGTH(ObjectToArray(c.o))",
        "ArrayToObject(c.p).k1",
        "ARRAY_LENGTH(StringSplit(c.s, ','))",
        "ARRAY_LENGTH(StringToArray(CONCAT('[', c.s, ']')))",
        "StringToNumber(CONCAT('[', c.s, ']'))",
        "StringToObject(ToString(c.o)).k1",
        "'a' LIKE c.s",
    ] {
        check_too_much(&harness, &format!("SELECT VALUE {made} FROM c"), limits);
    }
}

#[test]
fn what_is_gone_again_counts_no_more() {
    let harness = with_parts();
    let limits = Limits { held_bytes_max: 300_000, ..Limits::default() };
    let length = "ARRAY_LENGTH(ARRAY_CONCAT(c.l, c.l))";
    let lengths = |between: &str| vec![length; 20].join(between);
    for (query, expected) in [
        (format!("SELECT VALUE {} FROM c", lengths(" + ")), vec!["80000"]),
        (format!("SELECT VALUE ARRAY_LENGTH([{}]) FROM c", lengths(", ")), vec!["20"]),
        (format!("SELECT VALUE 5 IN ({}) FROM c", lengths(", ")), vec!["false"]),
        (format!("SELECT VALUE t FROM c JOIN t IN [1, 2, 3, 4, 5] WHERE {length} = t"), vec![]),
        (format!("SELECT VALUE {length} - t FROM c JOIN t IN [1, 2]"), vec!["3999", "3998"]),
        (format!("SELECT VALUE COUNT({length}) FROM c JOIN t IN c.l"), vec!["2000"]),
        (format!("SELECT VALUE LENGTH(c.s{}) FROM c", " || c.s".repeat(30)), vec!["123969"]),
        (
            "SELECT VALUE t FROM c JOIN t IN [[1], [2]] WHERE ARRAY_CONCAT(c.l, t) != t".to_owned(),
            vec!["[1]", "[2]"],
        ),
    ] {
        assert_eq!(all(&harness, &query, limits).unwrap(), expected, "{query}");
    }
}
