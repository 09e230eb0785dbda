//! Random expressions, patterns and filters.

use millstream_core::Message;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::filter::evaluate::truth;
use crate::filter::like::LikePattern;
use crate::filter::parser::parse;
use crate::{CorrelationFilter, Filter};

/// The plainest matcher there is; it may take exponential time.
fn naive(text: &[char], pattern: &[char], escape: Option<char>) -> bool {
    let Some((first, pattern_rest)) = pattern.split_first() else { return text.is_empty() };
    let rest = text.split_first();
    if Some(*first) == escape {
        let (literal, pattern_rest) = pattern_rest.split_first().unwrap();
        return rest.is_some_and(|(it, rest)| it == literal && naive(rest, pattern_rest, escape));
    }
    match first {
        '%' => {
            naive(text, pattern_rest, escape)
                || rest.is_some_and(|(_, rest)| naive(rest, pattern, escape))
        }
        '_' => rest.is_some_and(|(_, rest)| naive(rest, pattern_rest, escape)),
        literal => {
            rest.is_some_and(|(it, rest)| it == literal && naive(rest, pattern_rest, escape))
        }
    }
}

fn any_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[0-9]{1,20}",
        "[0-9]{1,3}\\.[0-9]{1,3}(e-?[0-9]{1,2})?",
        "'[a-c%_!]{0,4}('')?'",
        "(user\\.)?(a|b|c|d|absent|\\[a\\]|\"b \"\"\\]\")",
        "(SYS|sys)\\.(Label|subject|To|MessageId)",
        "(null|TRUE|false)",
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), "[-+*/%]", inner.clone())
                .prop_map(|(a, op, b)| format!("{a} {op} {b}")),
            inner.clone().prop_map(|a| format!("({a})")),
            ("[-+]", inner.clone()).prop_map(|(sign, a)| format!("{sign}{a}")),
            inner.prop_map(|a| format!("p({a})")),
        ]
    })
}

fn any_condition() -> impl Strategy<Value = String> {
    let not = || "( NOT)?";
    let leaf = prop_oneof![
        (any_value(), "(=|<>|!=|<|<=|>|>=)", any_value())
            .prop_map(|(a, op, b)| format!("{a}{op}{b}")),
        (any_value(), not(), prop::collection::vec(any_value(), 1..4))
            .prop_map(|(a, not, list)| format!("{a}{not} IN ({})", list.join(","))),
        (any_value(), not(), any_value(), "( ESCAPE '!')?")
            .prop_map(|(a, not, b, escape)| format!("{a}{not} LIKE {b}{escape}")),
        ("(a|p\\('a'\\)|sys\\.To)", not()).prop_map(|(a, not)| format!("{a} IS{not} NULL")),
        "(EXISTS\\(a\\)|a|TRUE)",
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), "(AND|OR)", inner.clone())
                .prop_map(|(a, op, b)| format!("{a} {op} {b}")),
            inner.clone().prop_map(|a| format!("({a})")),
            inner.prop_map(|a| format!("NOT {a}")),
        ]
    })
}

/// Pieces of expressions in any order.
fn any_soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "(a|b|sys|user|p|\\[x\\]|\"y\"|'t'|1|2\\.5|1e9|NULL|TRUE)",
        "(AND|OR|NOT|IN|LIKE|ESCAPE|IS|EXISTS)",
        "[-=<>!+*/%(),.'\\[\\]\"@]",
    ];
    (prop::collection::vec(piece, 0..24), "( )?").prop_map(|(pieces, space)| pieces.join(&space))
}

fn sample() -> Message {
    Message::new("m-1", "")
        .subject("abc")
        .property("a", "ab%")
        .property("b", 3_i64)
        .property("c", 2.5)
        .property("d", true)
        .property("b \"]", "b")
}

/// Shown and read again, an expression is the same and means the same.
fn check_shown(text: &str) -> Result<(), TestCaseError> {
    let Ok(expression) = parse(text) else { return Ok(()) };
    let shown = expression.to_string();
    let again = parse(&shown);
    prop_assert_eq!(again.as_ref(), Ok(&expression), "{} shown as {}", text, shown);
    let (before, after) = (truth(&expression, &sample()), truth(&again.unwrap(), &sample()));
    prop_assert_eq!(before, after);
    Ok(())
}

#[test]
fn most_random_conditions_are_expressions() {
    let mut runner = TestRunner::deterministic();
    let read = |_| parse(&any_condition().new_tree(&mut runner).unwrap().current()).is_ok();
    let count = (0..500).map(read).filter(|it| *it).count();
    assert!(250 < count, "{count} of 500");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        if let Ok(filter) = Filter::sql(&text) {
            let _ = filter.matches(&sample());
        }
        check_shown(&text)?;
    }

    #[test]
    fn any_pieces_are_read_or_refused(text in any_soup()) {
        check_shown(&text)?;
    }

    #[test]
    fn an_expression_shown_reads_the_same(text in any_condition()) {
        check_shown(&text)?;
    }

    #[test]
    fn like_is_what_the_plainest_matcher_says(
        text in "[ab_%!]{0,8}",
        pattern in "[ab_%!]{0,8}",
        has_escape: bool,
    ) {
        let escape = has_escape.then_some('!');
        let characters = |text: &str| text.chars().collect::<Vec<char>>();
        let Ok(compiled) = LikePattern::new(&pattern, escape) else {
            prop_assert!(pattern.ends_with('!') && has_escape);
            return Ok(());
        };
        let expected = naive(&characters(&text), &characters(&pattern), escape);
        prop_assert_eq!(compiled.matches(&text), expected);
    }

    #[test]
    fn a_long_pattern_crosses_words(
        text in "a{0,3}(ab){55,75}a{0,3}",
        pattern in "(%|a)?(ab|_b|a_){55,75}(%|a|_)?",
    ) {
        let characters = |text: &str| text.chars().collect::<Vec<char>>();
        let expected = naive(&characters(&text), &characters(&pattern), None);
        prop_assert_eq!(LikePattern::new(&pattern, None).unwrap().matches(&text), expected);
    }

    #[test]
    fn a_stored_filter_reads_the_same(
        text in any_condition(),
        subject in any::<Option<String>>(),
        name in any::<String>(),
        double in any::<f64>().prop_filter("NaN equals nothing", |it| !it.is_nan()),
    ) {
        let correlation = CorrelationFilter { subject, ..CorrelationFilter::default() };
        let mut filters = vec![Filter::from(correlation.property(name, double))];
        filters.extend(Filter::sql(&text));
        for filter in filters {
            let json = serde_json::to_string(&filter).unwrap();
            prop_assert_eq!(serde_json::from_str::<Filter>(&json).unwrap(), filter);
        }
    }
}
