use proptest::prelude::*;

use crate::functions;
use crate::fuzzing::{CONTINUATIONS, NO_QUERY, QUERIES, continuation, query, request};

/// Pieces that queries are made of, and some that they are not.
const PIECES: &[&str] = &[
    "SELECT",
    "DISTINCT",
    "TOP 3",
    "VALUE",
    "*",
    "FROM",
    "c",
    "c.a",
    "c.tags",
    "c['b']",
    "JOIN",
    "t",
    "t IN c.tags",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "DESC",
    "OFFSET 1 LIMIT 2",
    "AS x",
    ",",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "a:",
    "=",
    "!=",
    "<",
    ">=",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "LIKE",
    "ESCAPE",
    "??",
    "?",
    ":",
    "+",
    "-",
    "*",
    "/",
    "%",
    "||",
    "|",
    "&",
    "^",
    "~",
    "<<",
    ">>>",
    "1",
    "1e400",
    "0.5",
    "'a'",
    "\"b\"",
    "@x",
    "null",
    "true",
    "undefined",
    "EXISTS(",
    "ARRAY(",
    "(SELECT",
    "COUNT(1)",
    "SUM(c.a)",
    "AVG(",
    "'%a_'",
    "'!'",
    "'2020-01-31'",
    "'mm'",
    "-1",
    "--",
    "/*",
    "*/",
    "'",
    "ä",
    "\u{0}",
];

#[test]
fn the_seeds_are_accepted() {
    for text in QUERIES {
        assert!(crate::Query::parse(text).is_ok(), "{text}");
        query(text.as_bytes());
    }
}

/// Printed with more parentheses than needed, what was just allowed nested too deep.
#[test]
fn what_is_nested_as_deep_as_allowed_is_read_again() {
    for sign in ["+", "- ", "NOT ", "1 + 2 * "] {
        query(format!("SELECT VALUE c.a FROM c WHERE {}1", sign.repeat(101)).as_bytes());
    }
    for (open, close) in [
        ("(", " = 1 AND c.a OR c.b)"),
        ("(", " * 2 + 1)"),
        ("(", ").a"),
        ("(", " IN (1)) ? 1 : 2"),
        ("(1 - ", ")"),
        ("(c.a OR NOT ", ")"),
        ("(SELECT VALUE ", " FROM x IN c.tags)"),
    ] {
        for depth in 30..260 {
            let (open, close) = (open.repeat(depth), close.repeat(depth));
            query(format!("SELECT VALUE c.a FROM c WHERE {open}1{close}").as_bytes());
        }
    }
    let operators = "SELECT VALUE (((1 + 2) * 3 = 4) IN (1)) \
                     ?? - -(c.a ? 1 : 2 OR NOT (NOT c.b AND c.c)) FROM c";
    query(operators.as_bytes());
}

#[test]
fn every_function_takes_any_values() {
    let values = [
        "c.x",
        "null",
        "true",
        "0",
        "-1",
        "1.5",
        "1e400",
        "9e15",
        "''",
        "'abc'",
        "'2020-01-31'",
        "'mm'",
        "[]",
        "[1, 'a', {k: 'a', v: 1}]",
        "{}",
        "{a: [1]}",
        "'('",
        "'ä😀'",
    ];
    for function in functions::functions() {
        for count in 0..=4 {
            if !function.takes(count) {
                continue;
            }
            for shift in 0..values.len() {
                for stride in [0, 1, 5] {
                    let argument = |it: usize| values[(shift + it * stride) % values.len()];
                    let arguments: Vec<&str> = (0..count).map(argument).collect();
                    let text =
                        format!("SELECT VALUE {}({}) FROM c", function.name, arguments.join(", "));
                    query(text.as_bytes());
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,60}") {
        query(text.as_bytes());
        request(text.as_bytes());
    }

    #[test]
    fn no_mix_of_words_makes_anything_panic(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..25),
    ) {
        query(pieces.join(" ").as_bytes());
        query(format!("SELECT VALUE {} FROM c", pieces.join(" ")).as_bytes());
        query(format!("SELECT c.a FROM c WHERE {}", pieces.join(" ")).as_bytes());
    }

    #[test]
    fn no_change_of_a_query_makes_anything_panic(
        seed in prop::sample::select(QUERIES),
        at in any::<prop::sample::Index>(),
        length in 0..6_usize,
        piece in prop::sample::select(PIECES),
    ) {
        let places: Vec<usize> = seed.char_indices().map(|(at, _)| at).collect();
        let start = *at.get(&places);
        let end = (start + length).min(seed.len());
        query(format!("{}{piece}{}", &seed[..start], &seed[end..]).as_bytes());
        query(format!("{} {piece} {}", &seed[..start], &seed[end..]).as_bytes());
    }

    #[test]
    fn no_bytes_make_a_request_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        query(&bytes);
        request(&bytes);
    }
    #[test]
    fn no_change_of_a_continuation_makes_anything_panic(
        seed in prop::sample::select(CONTINUATIONS),
        at in any::<prop::sample::Index>(),
        length in 0..4_usize,
        piece in prop::sample::select(
            &["", "0", "[", "]", "\"", ",", "null", "-1", "1e99", "{}"][..]
        ),
    ) {
        let start = at.index(seed.len());
        let end = (start + length).min(seed.len());
        continuation(format!("{}{piece}{}", &seed[..start], &seed[end..]).as_bytes());
    }
}

#[test]
fn continuations_to_start_from_are_read() {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    for seed in CONTINUATIONS {
        let read = crate::continuation::Token::read(&URL_SAFE_NO_PAD.encode(seed), &NO_QUERY);
        assert!(read.is_ok(), "{seed}: {read:?}");
        continuation(seed.as_bytes());
    }
}
