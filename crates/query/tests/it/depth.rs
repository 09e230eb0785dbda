//! What nests as deep as is allowed is answered on a small stack, however it nests; what SDKs write
//! with many parentheses does not nest.

use std::thread;

use millstream_core::PartitionKeyDefinition;
use millstream_query::{ErrorKind, Limits, Parameters, Query, Scope};

use crate::harness::Harness;

/// Half of what a thread of the server has.
const STACK_BYTES: usize = 1024 * 1024;

/// What stands before and behind an expression within itself.
const SHAPES: &[(&str, &str)] = &[
    ("[", "]"),
    ("{a: ", "}"),
    ("NOT ", ""),
    ("- ", ""),
    ("1 + (2 * (", "))"),
    ("true OR (false AND (", "))"),
    ("true OR (", " IN (1) IN (1) IN (1) IN (1) ?? 1 = 1 || 'a' | 1 ^ 1)"),
    ("(", " = 1 AND true OR 1 = 1)"),
    ("(", " * 2 + 1 << 1 & 1 ^ 1 | 1 || 'a' = 1 ?? true AND true OR false)"),
    ("(", ").a[0]"),
    ("(", ") ? true : 1"),
    ("ABS(", ")"),
    ("CONCAT('a', ", ")"),
    ("true ? 1 : ", ""),
    ("1 IN (", ")"),
    ("1 BETWEEN 0 AND (", ")"),
    ("'a' LIKE (", ")"),
    ("[1][", "]"),
    ("(SELECT VALUE ", ")"),
    ("(SELECT VALUE MAX(", "))"),
    ("ARRAY(SELECT VALUE ", " FROM x IN [1])"),
    ("ARRAY(SELECT VALUE x FROM x IN ", ")"),
    ("ARRAY(SELECT VALUE x FROM (SELECT VALUE ", ") x)"),
    ("ARRAY(SELECT DISTINCT VALUE ", " FROM x IN [1])"),
    ("ARRAY(SELECT VALUE x FROM x IN [1] ORDER BY ", ")"),
    ("ARRAY(SELECT VALUE COUNT(1) FROM x IN [1] GROUP BY ", ")"),
    ("ARRAY(SELECT VALUE a FROM a IN [1]{joins} JOIN q IN ", ")"),
    ("ARRAY(SELECT VALUE a FROM a IN [1]{joins} JOIN q IN (SELECT VALUE ", "))"),
    ("EXISTS(SELECT VALUE ", ")"),
];

/// What stands before and behind a query within the FROM of another.
const SOURCES: &[(&str, &str)] = &[
    ("SELECT VALUE a FROM a IN [1]{joins} JOIN q IN (", ")"),
    ("SELECT VALUE x FROM (", ") x"),
    ("SELECT DISTINCT VALUE x FROM (", ") x"),
    ("SELECT VALUE COUNT(x) FROM (", ") x"),
    ("SELECT VALUE x FROM (", ") x ORDER BY x OFFSET 0 LIMIT 9"),
];

/// As many levels as are allowed.
fn deepest(text: impl Fn(usize) -> String) -> (usize, String) {
    let (mut read, mut refused) = (1, 1000);
    while read + 1 < refused {
        let middle = usize::midpoint(read, refused);
        match Query::parse(&text(middle)) {
            Ok(_) => read = middle,
            Err(error) => {
                assert!(error.report().contains("it nests more than 256 levels"));
                refused = middle;
            }
        }
    }
    assert!(read + 1 < 1000, "{} has no end", text(1));
    (read, text(read))
}

/// Goes through the tree in every way there is.
fn use_up(text: &str) {
    let query = Query::parse(text).unwrap_or_else(|it| panic!("{text}: {}", it.report()));
    let none = Parameters::default();
    // Some of it cannot be divided, or means nothing; it must not take more of the stack.
    let _ = query.plan(&PartitionKeyDefinition::hash("/pk").unwrap(), &none);
    let harness = Harness::new(&["/pk"], &[r#"{"id": "1", "pk": "a"}"#.to_owned()]);
    let _ = harness.all(&query, &none, &Scope::all(), Limits::items(1));
    let _ = query.evaluate(&harness.texts, &none, &harness.clock);
}

fn on_small_stack(part: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(part).unwrap();
    thread.join().unwrap();
}

/// Names of sources, to have as many as one FROM can have.
fn with_joins(text: &str) -> String {
    let joins: String = ('b'..='o').map(|name| format!(" JOIN {name}{name} IN [1]")).collect();
    text.replace("{joins}", &joins)
}

#[test]
fn an_expression_as_deep_as_allowed_runs() {
    on_small_stack(|| {
        for (open, close) in SHAPES {
            let open = with_joins(open);
            let nested = |depth| format!("{}1{}", open.repeat(depth), close.repeat(depth));
            for (before, behind) in [
                ("SELECT VALUE ", " FROM c"),
                ("SELECT c.id FROM c WHERE ", " ORDER BY c.id"),
                ("SELECT c.id, ", " AS x, COUNT(1) AS n FROM c GROUP BY c.id"),
            ] {
                let (depth, text) = deepest(|it| format!("{before}{}{behind}", nested(it)));
                assert!(20 <= depth, "{open}");
                use_up(&text);
            }
        }
    });
}

#[test]
fn queries_in_from_as_deep_as_allowed_run() {
    on_small_stack(|| {
        for (open, close) in SOURCES {
            let open = with_joins(open);
            let nested =
                |depth| format!("{}SELECT VALUE 1{}", open.repeat(depth), close.repeat(depth));
            let (depth, text) = deepest(nested);
            assert!(80 <= depth, "{open}");
            use_up(&text);
        }
    });
}

/// The SDK for .NET writes every operator with parentheses of its own.
#[test]
fn a_condition_of_a_thousand_terms_in_parentheses_is_answered() {
    on_small_stack(|| {
        let documents: Vec<String> =
            (0..3).map(|n| format!(r#"{{"id": "{n}", "pk": "a", "n": {n}}}"#)).collect();
        let harness = Harness::new(&["/pk"], &documents);
        let check = |operator: &str, term: fn(usize) -> String, expected: &[&str]| {
            let mut condition = term(0);
            for n in 1..1000 {
                condition = format!("({condition} {operator} {})", term(n));
            }
            let text = format!("SELECT VALUE root.id FROM root WHERE {condition} ORDER BY root.id");
            let query = Query::parse(&text).unwrap();
            let none = Parameters::default();
            let rows = harness.all(&query, &none, &Scope::all(), Limits::items(10)).unwrap();
            assert_eq!(rows, expected, "{operator}");
            // What the SDK sends to each range is read as well.
            let plan = query.plan(&harness.definition, &none).unwrap();
            let plan = serde_json::to_value(plan).unwrap();
            Query::parse(plan["queryInfo"]["rewrittenQuery"].as_str().unwrap()).unwrap();
        };
        check("OR", |n| format!("(root[\"n\"] = {})", n + 1), &["\"1\"", "\"2\""]);
        check("AND", |n| format!("(root[\"n\"] != {})", n + 1), &["\"0\""]);
        check(
            "OR",
            |n| format!("((root.pk = \"a\") AND (root.id = \"{n}\"))"),
            &["\"0\"", "\"1\"", "\"2\""],
        );
        check("+", |_| "1".to_owned(), &[]);
        check("=", |_| "true".to_owned(), &["\"0\"", "\"1\"", "\"2\""]);
        check("??", |_| "true".to_owned(), &["\"0\"", "\"1\"", "\"2\""]);
    });
}

#[test]
fn terms_in_parentheses_are_put_together_in_their_order() {
    let harness = Harness::new(&["/pk"], &[]);
    let check = |text: &str, expected: &str| {
        let query = Query::parse(&format!("SELECT VALUE {text}")).unwrap();
        let rows = query.evaluate(&[], &Parameters::default(), &harness.clock).unwrap();
        assert_eq!(rows, [expected], "{text}");
    };
    check("((((8 - 4)) - 2) - 1)", "1");
    check("(8 - (4 - (2 - 1)))", "5");
    check("(((1 + 2) * 3 + 4) * 5)", "65");
    check("((((1 = 1) AND true) OR false) AND false)", "false");
    check("(((true OR false) AND false) OR (false OR (false OR true)))", "true");
    check("((({a: [1, 2]}).a)[1])", "2");
    check("(((((1)) IN (1, 2)) ? ('a') : 'b') || 'c')", "\"ac\"");
    check("((((SELECT VALUE 1)) + 1) * ((SELECT VALUE 2)))", "4");
    check("(((NOT (true)) OR (NOT ((false)))))", "true");
    check("((-(1)) - (-(2)))", "1");
    check("((undefined OR false) OR true)", "true");
    check("IS_DEFINED(((undefined OR false) OR false))", "false");
}

#[test]
fn many_calls_and_operators_within_each_other_are_answered() {
    let concat = format!("SELECT VALUE {}'a'{}", "CONCAT(".repeat(200), ", 'b')".repeat(200));
    use_up(&concat);
    use_up(&format!("SELECT VALUE {}1{}", "(".repeat(10_000), ")".repeat(10_000)));
    // From the left, in turns.
    use_up(&format!("SELECT VALUE {}1{}", "(".repeat(120), " + 1) * 2".repeat(120)));
}

#[test]
fn what_is_too_deep_is_refused() {
    for (open, close) in [
        ("[", "]"),
        ("{a: ", "}"),
        ("NOT ", ""),
        ("- ", ""),
        ("ABS(", ")"),
        ("(1 + ", ")"),
        ("(", " AND 1 OR 2)"),
        ("(", ").a"),
        ("(", ") ? 1 : 2"),
        ("(", ") IN (1)"),
        ("(SELECT VALUE ", ")"),
    ] {
        let text = format!("SELECT VALUE {}1{}", open.repeat(5000), close.repeat(5000));
        let Err(error) = Query::parse(&text) else { panic!("{open}") };
        assert_eq!(error.kind(), ErrorKind::Syntax);
        assert!(error.report().contains("it nests more than 256 levels at line 1"), "{open}");
    }
}

/// A value within so many arrays.
fn nested(depth: usize, value: &str) -> String {
    format!("{}{value}{}", "[".repeat(depth), "]".repeat(depth))
}

/// FROM with sources that each put the one before into so many arrays, the first one `c`.
fn chained(name: &str, c: &str, sources: usize, depth: usize) -> String {
    let source = |n: usize| {
        let before = if n == 0 { c.to_owned() } else { format!("{name}{}", n - 1) };
        format!("{name}{n} IN (SELECT VALUE {})", nested(depth, &before))
    };
    (0..sources).map(source).collect::<Vec<_>>().join(" JOIN ")
}

/// Queries within the FROM of each other that do the same.
fn stages(stages: usize, depth: usize) -> String {
    (0..stages).fold("SELECT VALUE c FROM c".to_owned(), |inner, _| {
        format!("SELECT VALUE {} FROM ({inner}) AS x", nested(depth, "x"))
    })
}

#[test]
fn a_value_that_would_nest_too_deep_is_refused() {
    on_small_stack(|| {
        for text in [
            format!("SELECT VALUE x3 FROM c JOIN {}", chained("x", "c", 4, 200)),
            format!(
                "SELECT DISTINCT VALUE x3 FROM c JOIN {} ORDER BY x3",
                chained("x", "c", 4, 200)
            ),
            stages(6, 100),
        ] {
            use_up(&text);
        }
        // Of a short query, and its value would have 10,000 levels.
        let inner = |n: usize| {
            let before = if n == 0 { "c".to_owned() } else { format!("x{}", n - 1) };
            format!(" JOIN x{n} IN (SELECT VALUE y14 FROM {})", chained("y", &before, 15, 220))
        };
        let tree = format!("SELECT VALUE x2 FROM c{}", (0..3).map(inner).collect::<String>());
        assert!(tree.len() < 30_000);
        let from = |sources| format!("FROM c JOIN {}", chained("x", "c", sources, 200));
        let joined = format!("SELECT VALUE x4 {}", from(5));
        let filter = format!("SELECT VALUE 1 {} WHERE {} = x3", from(4), nested(100, "x3"));
        let list = format!("SELECT VALUE MAKELIST({}) {}", nested(100, "x3"), from(4));
        for text in [tree, joined, filter, list, stages(9, 100), stages(50, 70)] {
            let Err(error) = Query::parse(&text) else { panic!("{text}") };
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let report = error.report();
            assert!(report.contains("its values nest deeper than 1024 levels"), "{report}");
        }
    });
}

#[test]
fn values_of_sources_that_are_made_of_each_other_go_on() {
    on_small_stack(|| {
        let deep = nested(100, "1");
        let document = |n: u32| format!("{{\"id\":\"{n}\", \"pk\":\"p\",\"d\":{deep}}}");
        let harness = Harness::new(&["/pk"], &(0..3).map(document).collect::<Vec<_>>());
        let from = format!("FROM c JOIN {}", chained("x", "{a: c.d, b: c.id}", 4, 200));
        let limits = Limits { documents_max: 1, ..Limits::items(1) };
        let rows = |query: &str| {
            let query = Query::parse(query).unwrap();
            harness.all(&query, &Parameters::default(), &Scope::all(), limits).unwrap()
        };
        assert_eq!(rows(&format!("SELECT VALUE c.id {from} ORDER BY x3, c.id")).len(), 3);
        assert_eq!(rows(&format!("SELECT VALUE COUNT(1) {from} GROUP BY x3")), ["1"; 3]);
        assert_eq!(rows(&format!("SELECT VALUE ARRAY_LENGTH(MAKELIST(x3)) {from}")), ["3"]);
    });
}
