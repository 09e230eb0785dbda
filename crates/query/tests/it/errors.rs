//! What is no query gets a sentence that says where and what was expected.

use millstream_query::{ErrorKind, QUERY_BYTES_MAX, Query, Specification};

#[track_caller]
fn check(query: &str, expected: &str) {
    let error = Query::parse(query).unwrap_err();
    assert_eq!(error.report(), format!("could not read the query: {expected}"), "{query}");
}

#[test]
fn a_clause_that_is_not_finished_is_found() {
    check("", "expected SELECT, found the end at line 1, column 1");
    check("SELECT", "expected an expression, found the end at line 1, column 7");
    check(
        "SELECT *",
        "SELECT * needs exactly one source, name what to select; at line 1, column 1",
    );
    check("SELECT * FROM", "expected an expression, found the end at line 1, column 14");
    check("SELECT * FROM c WHERE", "expected an expression, found the end at line 1, column 22");
    check("SELECT * FROM c\nORDER", "expected BY, found the end at line 2, column 6");
    check("SELECT * FROM c ORDER BY", "expected an expression, found the end at line 1, column 25");
    check("SELECT * FROM c OFFSET 1", "expected LIMIT, found the end at line 1, column 25");
    check(
        "SELECT * FROM c OFFSET x LIMIT 1",
        "expected a number of rows or a parameter after OFFSET, found \"x\" at line 1, column 24",
    );
    check(
        "SELECT TOP -1 * FROM c",
        "expected a number of rows or a parameter after TOP, found \"-\" at line 1, column 12",
    );
    check(
        "SELECT a AS FROM c",
        "expected FROM, WHERE, GROUP, ORDER, OFFSET or end of query, found \"c\" at line 1, \
         column 18",
    );
    check("SELECT a AS 1 FROM c", "expected a name after AS, found \"1\" at line 1, column 13");
}

#[test]
fn a_word_in_the_wrong_place_is_found() {
    check(
        "SELECT * FORM c",
        "expected FROM, WHERE, GROUP, ORDER, OFFSET or end of query, found \"FORM\" at line 1, \
         column 10",
    );
    check(
        "SELECT * FROM c WERE c.a = 1",
        "expected JOIN, WHERE, GROUP, ORDER, OFFSET or end of query, found \"c\" at line 1, \
         column 22",
    );
    check("DELETE FROM c", "expected SELECT, found \"DELETE\" at line 1, column 1");
    check(
        "SELECT * FROM c WHERE c.a = 1 ORDER BY c.a LIMIT 5",
        "expected DESC, ASC, OFFSET or end of query, found \"LIMIT\" at line 1, column 44",
    );
    check("SELECT c.a FROM c GROUP c.a", "expected BY, found \"c\" at line 1, column 25");
}

#[test]
fn an_expression_that_is_not_finished_is_found() {
    check("SELECT VALUE 1 +", "expected an expression, found the end at line 1, column 17");
    check("SELECT VALUE (1", "expected \")\", found the end at line 1, column 16");
    check("SELECT VALUE [1, 2", "expected \",\" or \"]\", found the end at line 1, column 19");
    check("SELECT VALUE {a 1}", "expected \":\", found \"1\" at line 1, column 17");
    check("SELECT VALUE {1: 1}", "expected a property name, found \"1\" at line 1, column 15");
    check(
        "SELECT VALUE c. = 1",
        "expected a property name after \".\", found \"=\" at line 1, column 17",
    );
    check(
        "SELECT VALUE c.(1)",
        "expected a property name after \".\", found \"(\" at line 1, column 16",
    );
    check(
        "SELECT VALUE c.(1)",
        "expected a property name after \".\", found \"(\" at line 1, column 16",
    );
    check("SELECT VALUE 1 IN 2", "expected \"(\", found \"2\" at line 1, column 19");
    check("SELECT VALUE 1 BETWEEN 2", "expected AND, found the end at line 1, column 25");
    check("SELECT VALUE true ? 1", "expected \":\", found the end at line 1, column 22");
    check("SELECT VALUE ABS(1", "expected \",\" or \")\", found the end at line 1, column 19");
    check("SELECT VALUE EXISTS(1)", "expected SELECT, found \"1\" at line 1, column 21");
    check("SELECT VALUE NOT", "expected an expression, found the end at line 1, column 17");
}

#[test]
fn a_text_that_cannot_be_divided_into_words_is_found() {
    check("SELECT 'abc", "expected the end of the string begun at line 1, column 8");
    check("SELECT \"a\\q\"", "expected an escape as in JSON at line 1, column 10");
    check("SELECT '\\ud800x'", "expected an escape as in JSON at line 1, column 9");
    check("SELECT 12ab", "expected the number to end at line 1, column 10");
    check("SELECT @ FROM c", "expected a name after \"@\" at line 1, column 8");
    check("SELECT 1 # 2", "'#' means nothing here at line 1, column 10");
    check("SELECT 1; SELECT 2", "';' means nothing here at line 1, column 9");
    check("SELECT /* 1", "expected the end of the comment begun at line 1, column 8");
    check(
        "SELECT *\n  FROM ä ?",
        "expected AS, JOIN, WHERE, GROUP, ORDER, OFFSET or end of query, found \"?\" at line 2, \
         column 10",
    );
}

#[test]
fn what_is_too_long_is_refused() {
    let chain = format!("SELECT VALUE 1{}", " IN (1)".repeat(5000));
    assert!(Query::parse(&chain).is_err());
    let joins = format!("SELECT VALUE 1 FROM c{}", " JOIN x IN c.x".repeat(100));
    assert!(Query::parse(&joins).is_err());
    let long = format!("SELECT VALUE '{}'", "x".repeat(QUERY_BYTES_MAX));
    assert_eq!(Query::parse(&long).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn what_is_long_but_not_deep_is_accepted() {
    let many = |operator: &str| {
        format!(
            "SELECT VALUE 1 FROM c WHERE c.a = 1{}",
            format!(" {operator} c.a = 2").repeat(5000)
        )
    };
    for operator in ["OR", "AND"] {
        assert!(Query::parse(&many(operator)).is_ok(), "{operator}");
    }
    let sum = format!("SELECT VALUE 1{}", " + 1".repeat(10_000));
    assert!(Query::parse(&sum).is_ok());
    let list = format!("SELECT VALUE 1 IN (1{})", ", 1".repeat(10_000));
    assert!(Query::parse(&list).is_ok());
}

#[test]
fn chance_neither_sorts_nor_tells_rows_apart() {
    for query in [
        "SELECT * FROM c ORDER BY RAND()",
        "SELECT DISTINCT VALUE RAND() FROM c",
        "SELECT DISTINCT c.a FROM c WHERE RAND() < 0.5",
        "SELECT COUNT(1) AS n FROM c WHERE RAND() < 0.5 GROUP BY c.a",
        "SELECT COUNT(1) AS n FROM c GROUP BY FLOOR(rand() * 2)",
        "SELECT * FROM (SELECT RAND() AS r FROM c) x ORDER BY x.r",
        "SELECT r FROM c JOIN r IN [RAND()] ORDER BY r",
    ] {
        check(
            query,
            "RAND cannot stand beside DISTINCT or GROUP BY, nor in what ORDER BY sorts by; at \
             line 1, column 1",
        );
    }
}

#[test]
fn the_kind_of_an_error_says_whose_fault_it_is() {
    let kind = |query: &str| Query::parse(query).unwrap_err().kind();
    assert_eq!(kind("SELECT"), ErrorKind::Syntax);
    assert_eq!(kind("SELECT x.y FROM c"), ErrorKind::Invalid);
    assert_eq!(kind("SELECT NOSUCH(1)"), ErrorKind::Unsupported);
    assert_eq!(kind("SELECT ABS(1, 2)"), ErrorKind::Invalid);
}

#[test]
fn a_request_that_is_no_request_is_refused() {
    let check = |body: &str, expected: &str| {
        let report = Specification::from_json(body.as_bytes()).unwrap_err().report();
        assert_eq!(report, format!("could not read the query request: {expected}"));
    };
    check("", "expected a value at byte 0");
    check("[]", "it has no string \"query\"");
    check(r#"{"query": 1}"#, "it has no string \"query\"");
    check(r#"{"query": "SELECT 1", "parameters": 1}"#, "its \"parameters\" are not an array");
    check(
        r#"{"query": "SELECT 1", "parameters": [{"value": 1}]}"#,
        "a parameter has no string \"name\"",
    );
    check(
        r#"{"query": "SELECT 1", "parameters": [{"name": "@a"}, {"name": "@a", "value": 1}]}"#,
        "parameter \"@a\" is given twice",
    );
    assert!(Specification::from_json(br#"{"query": "SELECT 1", "parameters": null}"#).is_ok());
}
