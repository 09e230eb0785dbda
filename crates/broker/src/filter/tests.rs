mod random;

use bytes::Bytes;
use millstream_core::{ErrorKind, Message, PropertyValue, Timestamp};

use crate::filter::evaluate::truth;
use crate::filter::parser::parse;
use crate::{CorrelationFilter, Filter, SqlFilter};

/// `"color=red weight=5 sys.To=a"` has those properties; numbers, `true` and `false` have their
/// types, `@17` is a time, `0x` is binary, everything else is text.
fn message(text: &str) -> Message {
    let mut message = Message::new("m-1", "");
    for word in text.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap();
        let some = Some(value.to_owned());
        match name {
            "sys.To" => message.to = some,
            "sys.ReplyTo" => message.reply_to = some,
            "sys.CorrelationId" => message.correlation_id = some,
            "sys.ReplyToSessionId" => message.reply_to_session_id = some,
            "sys.ContentType" => message.content_type = some,
            "sys.Label" => message = message.subject(value),
            "sys.SessionId" => message = message.session(value),
            "sys.Scheduled" => message.scheduled_at = Some(time(value)),
            _ => {
                message.properties.insert(name.to_owned().into(), property(value));
            }
        }
    }
    message
}

fn time(text: &str) -> Timestamp {
    Timestamp::from_millis(text.trim_start_matches('@').parse().unwrap())
}

fn property(text: &str) -> PropertyValue {
    if text.starts_with('@') {
        return time(text).into();
    }
    if let Some(bytes) = text.strip_prefix("0x") {
        return PropertyValue::Binary(Bytes::copy_from_slice(bytes.as_bytes()));
    }
    if let Ok(value) = text.parse::<bool>() {
        return value.into();
    }
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    if let Ok(number) = text.parse::<f64>() {
        return number.into();
    }
    text.into()
}

/// `expected` is `true`, `false` or `unknown`.
#[track_caller]
fn check(expression: &str, properties: &str, expected: &str) {
    let message = message(properties);
    let filter = Filter::sql(expression).map_err(|error| error.report()).unwrap();
    let truth = truth(&parse(expression).unwrap(), &message);
    let found = truth.map_or("unknown".to_owned(), |truth| truth.to_string());
    assert_eq!(found, expected, "{expression} with {properties}");
    assert_eq!(filter.matches(&message), expected == "true", "{expression} with {properties}");
}

#[track_caller]
fn check_error(expression: &str, expected: &str) {
    let error = Filter::sql(expression).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.report(), format!("could not read the filter \"{expression}\": {expected}"));
}

/// What the expression is understood as.
#[track_caller]
fn check_shown(expression: &str, expected: &str) {
    assert_eq!(SqlFilter::new(expression).unwrap().to_string(), expected);
    assert_eq!(SqlFilter::new(expected).unwrap().to_string(), expected);
}

#[test]
fn comparisons_follow_the_types() {
    check("1 = 1", "", "true");
    check("color = 'red'", "color=red", "true");
    check("color = 'Red'", "color=red", "false");
    check("color <> 'blue' AND color != 'blue'", "color=red", "true");
    check("'a' < 'b' AND 'B' < 'a' AND 'z' < 'ä'", "", "true");
    check("n >= 5 AND n <= 5 AND NOT n < 5 AND NOT n > 5", "n=5", "true");
    check("n = 5.0 AND n < 5.5 AND 4.9 < n", "n=5", "true");
    check("n = 2.5E-3", "n=0.0025", "true");
    check("big = 9223372036854775807", "big=9223372036854775806", "false");
    check("big = -9223372036854775808", "big=-9223372036854775808", "true");
    check("fragile = TRUE", "fragile=true", "true");
    check("fragile <> true", "fragile=false", "true");
    check("a = b", "a=@17 b=@17", "true");
    check("a < b", "a=@17 b=@18", "true");
    check("a = b", "a=0xab b=0xab", "true");
}

#[test]
fn values_that_do_not_compare_are_unknown() {
    check("n = '5'", "n=5", "unknown");
    check("n <> '5'", "n=5", "unknown");
    check("NOT n = '5'", "n=5", "unknown");
    check("n = TRUE", "n=1", "unknown");
    check("a < b", "a=true b=false", "unknown");
    check("a < b", "a=0xab b=0xac", "unknown");
    check("a = 17", "a=@17", "unknown");
    check("a = a", "a=NaN", "unknown");
    check("a = NULL", "a=1", "unknown");
    check("NULL = NULL", "", "unknown");
    check("absent = 1", "", "unknown");
    check("absent <> 1", "", "unknown");
    check("color", "color=red", "unknown");
}

#[test]
fn arithmetic_binds_and_counts_as_usual() {
    check("1 + 2 * 3 = 7 AND (1 + 2) * 3 = 9", "", "true");
    check("10 - 3 - 2 = 5 AND 100 / 10 / 2 = 5", "", "true");
    check("7 / 2 = 3 AND 7 % 3 = 1 AND -7 / 2 = -3 AND -7 % 3 = -1", "", "true");
    check("7 / 2.0 = 3.5 AND 7.5 % 2 = 1.5", "", "true");
    check("-n = -5 AND - -n = 5 AND +n = 5 AND 3-n = -2", "n=5", "true");
    check("-(n) = -2.5", "n=2.5", "true");
    check("color + '-' + shape = 'red-round'", "color=red shape=round", "true");
    check("n / 0 = 1", "n=5", "unknown");
    check("n % 0 = 1", "n=5", "unknown");
    check("n / 0.0 = 1", "n=5", "unknown");
    check("n + 1 > 0", "n=9223372036854775807", "unknown");
    check("n * 2 > 0", "n=9223372036854775807", "unknown");
    check("n - 1 < 0", "n=-9223372036854775808", "unknown");
    check("-n > 0", "n=-9223372036854775808", "unknown");
    check("n / -1 > 0", "n=-9223372036854775808", "unknown");
    check("n % -1 = 0", "n=-9223372036854775808", "unknown");
    check("color + 1 = 'red1'", "color=red", "unknown");
    check("color - 'd' = 're'", "color=red", "unknown");
    check("-color = 'red'", "color=red", "unknown");
    check("absent + 1 = 1 OR TRUE", "", "true");
}

#[test]
fn joined_text_is_bounded() {
    let message = Message::new("m-1", "").property("a", "x".repeat(32 * 1024));
    assert!(Filter::sql("a + a LIKE 'x%'").unwrap().matches(&message));
    assert!(!Filter::sql("a + a + 'x' LIKE 'x%'").unwrap().matches(&message));
}

#[test]
fn logic_has_three_values() {
    let words = [("TRUE", "true"), ("FALSE", "false"), ("absent", "unknown")];
    let and = [
        ["true", "false", "unknown"],
        ["false", "false", "false"],
        ["unknown", "false", "unknown"],
    ];
    let or =
        [["true", "true", "true"], ["true", "false", "unknown"], ["true", "unknown", "unknown"]];
    for (row, (left, _)) in words.iter().enumerate() {
        for (column, (right, _)) in words.iter().enumerate() {
            check(&format!("{left} AND {right}"), "", and[row][column]);
            check(&format!("{left} OR {right}"), "", or[row][column]);
            // The order of three does not matter, nor that one is decided early.
            check(&format!("{left} AND {right} AND {left}"), "", and[row][column]);
            check(&format!("{left} OR {right} OR {left}"), "", or[row][column]);
        }
    }
    for ((word, _), expected) in words.iter().zip(["false", "true", "unknown"]) {
        check(&format!("NOT {word}"), "", expected);
        check(&format!("NOT NOT {word}"), "", words.iter().find(|it| it.0 == *word).unwrap().1);
    }
    check("TRUE OR TRUE AND FALSE", "", "true");
    check("(TRUE OR TRUE) AND FALSE", "", "false");
    check("NOT FALSE AND FALSE", "", "false");
    check("NOT (FALSE AND FALSE)", "", "true");
}

#[test]
fn absence_is_null() {
    check("color IS NULL", "", "true");
    check("color IS NULL", "color=red", "false");
    check("color IS NOT NULL", "color=red", "true");
    check("NOT color IS NULL", "", "false");
    check("p('color') IS NULL AND (color) IS NULL", "", "true");
    check("EXISTS(color)", "color=red", "true");
    check("NOT EXISTS ( color )", "", "true");
    check("EXISTS(sys.SessionId)", "sys.SessionId=s", "true");
    check("sys.SessionId IS NULL", "", "true");
}

#[test]
fn lists_follow_three_valued_logic() {
    check("color IN ('red', 'blue')", "color=red", "true");
    check("color IN ('green')", "color=red", "false");
    check("color NOT IN ('green', 'blue')", "color=red", "true");
    check("color NOT IN ('red')", "color=red", "false");
    check("n IN (1 + 1, other, 7.0)", "n=7", "true");
    check("n IN (1, other)", "n=7 other=7", "true");
    check("n IN (1, absent)", "n=7", "unknown");
    check("n NOT IN (1, absent)", "n=7", "unknown");
    check("n NOT IN (7, absent)", "n=7", "false");
    check("absent IN (1, 2)", "", "unknown");
    check("absent NOT IN (1, 2)", "", "unknown");
    check("n IN ('7')", "n=7", "unknown");
}

#[test]
fn patterns_match_whole_texts() {
    let like = |text: &str, pattern: &str, expected: &str| {
        let message = Message::new("m-1", "").property("a", text).property("pattern", pattern);
        for expression in [format!("a LIKE '{pattern}'"), "a LIKE pattern".to_owned()] {
            let truth = truth(&parse(&expression).unwrap(), &message).unwrap();
            assert_eq!(truth.to_string(), expected, "{text} {expression}");
        }
    };
    like("", "", "true");
    like("", "%", "true");
    like("", "%%", "true");
    like("", "_", "false");
    like("a", "", "false");
    like("abc", "abc", "true");
    like("abc", "ab", "false");
    like("abc", "abcd", "false");
    like("abc", "ABC", "false");
    like("abc", "a%", "true");
    like("abc", "%c", "true");
    like("abc", "%b%", "true");
    like("abc", "a%c%", "true");
    like("abc", "_b_", "true");
    like("abc", "____", "false");
    like("abc", "%_%_%_%", "true");
    like("aab", "%ab", "true");
    like("abab", "%ab", "true");
    like("mississippi", "%iss%ip%", "true");
    like("mississippi", "%iss%iss%iss%", "false");
    like("käse", "k_se", "true");
    like("a*b", "a*b", "true");
    like("a\nb", "a_b", "true");
    like(&"a".repeat(64), &"a".repeat(64), "true");
    like(&"a".repeat(63), &"a".repeat(64), "false");
    like(&"ab".repeat(100), &format!("{}%", "_".repeat(200)), "true");
    like(&"ab".repeat(100), &format!("{}%", "_".repeat(201)), "false");
}

#[test]
fn an_escape_takes_the_meaning_from_a_wildcard() {
    check("a LIKE 'ABC\\%' ESCAPE '\\'", "a=ABC%", "true");
    check("a LIKE 'ABC\\%' ESCAPE '\\'", "a=ABCD", "false");
    check("a LIKE '5!_!!%' ESCAPE '!'", "a=5_!x", "true");
    check("a LIKE '!x%' ESCAPE '!'", "a=xy", "true");
}

#[test]
fn like_of_other_things_is_unknown() {
    check("n LIKE '5'", "n=5", "unknown");
    check("a LIKE 5", "a=x", "unknown");
    check("absent LIKE '%'", "", "unknown");
    check("absent NOT LIKE '%'", "", "unknown");
    check("a LIKE absent", "a=x", "unknown");
    check("a LIKE 'x' ESCAPE absent", "a=x", "unknown");
    check("a LIKE 'x' ESCAPE b", "a=x b=yy", "unknown");
    check("a LIKE b ESCAPE '!'", "a=x b=x!", "unknown");
    check("a NOT LIKE 'y%'", "a=x", "true");
    check("a LIKE b + '%'", "a=xyz b=xy", "true");
}

#[test]
fn a_hostile_pattern_takes_little_time() {
    let message = Message::new("m-1", "").property("a", "a".repeat(1_000_000));
    let expression = format!("a LIKE '{}b'", "%a_".repeat(330));
    assert!(!Filter::sql(&expression).unwrap().matches(&message));
}

#[test]
fn properties_are_found_by_scope_and_name() {
    let all = "sys.To=t sys.ReplyTo=r sys.CorrelationId=c sys.ReplyToSessionId=rs \
               sys.ContentType=ct sys.Label=l sys.SessionId=s sys.Scheduled=@17 when=@17";
    check("sys.To = 't' AND sys.ReplyTo = 'r' AND sys.CorrelationId = 'c'", all, "true");
    check("sys.ReplyToSessionId = 'rs' AND sys.ContentType = 'ct'", all, "true");
    check("sys.Label = 'l' AND sys.Subject = 'l' AND SYS.label = 'l'", all, "true");
    check("sys.SessionId = 's' AND sys.PartitionKey = 's' AND sys.MessageId = 'm-1'", all, "true");
    check("sys.ScheduledEnqueueTimeUtc = when", all, "true");
    check("sys.[To] = 't' AND sys.\"to\" = 't'", all, "true");
    check("Color = 'red' AND user.COLOR = 'red' AND USER.color = 'red'", "color=red", "true");
    check("color = 'red'", "color=red Color=blue", "true");
    check("GRÖSSE = 5", "größe=5", "unknown");
    check("GRÖßE = 5", "größe=5", "true");
    check("[cloudEvents:type] = 'x' AND \"cloudEvents:type\" = 'x'", "cloudEvents:type=x", "true");
    check("[a]]b] = 1", "a]b=1", "true");
    check("\"a\"\"b\" = 1", "a\"b=1", "true");
    check("user.[in] = 1 AND [IN] = 1", "in=1", "true");
    check("To = 't'", "sys.To=t", "unknown");
    check("sys = 1 AND user = 2 AND p = 3", "sys=1 user=2 p=3", "true");
    check("p('color') = 'red' AND property('COLOR') = 'red'", "color=red", "true");
    check("P(name) = 'red' AND p(name + '') = 'red'", "name=color color=red", "true");
    check("p(absent) = 1", "", "unknown");
    check("p(5) = 1", "", "unknown");
    check("_x1 = 1", "_x1=1", "true");
    check("a = 'it''s' OR a = ''''", "a=it's", "true");
}

#[test]
fn errors_say_what_and_where() {
    check_error("", "expected a value at column 1, found the end");
    check_error("color = = 'red'", "expected a value at column 9, found \"=\"");
    check_error("color = 'red' x", "expected an operator or the end at column 15, found \"x\"");
    check_error("color = 'red", "expected ' to end what begins at column 9, found the end");
    check_error("[color = 1", "expected ] to end what begins at column 1, found the end");
    check_error("[] = 1", "expected the name of a property at column 1, found none");
    check_error("a = 1 AND", "expected a value at column 10, found the end");
    check_error("a < b < c", "expected an operator or the end at column 7, found \"<\"");
    check_error("(a = 1", "expected \")\" at column 7, found the end");
    check_error("a IN 1", "expected \"(\" at column 6, found 1");
    check_error("a IN ()", "expected a value at column 7, found \")\"");
    check_error("a IN (1 2)", "expected \",\" or \")\" at column 9, found 2");
    check_error("a NOT 1", "expected IN or LIKE at column 7, found 1");
    check_error("a IS 1", "expected NULL or NOT NULL at column 6, found 1");
    check_error("a IS NOT 1.5", "expected NULL at column 10, found 1.5");
    check_error("1 IS NULL", "expected a property before IS at column 1");
    check_error("EXISTS(1)", "expected a property at column 8, found 1");
    check_error("'red'", "expected a condition at column 1, found a value");
    check_error("a = 1 AND 2", "expected a condition at column 11, found a value");
    check_error("NOT 2", "expected a condition at column 5, found a value");
    check_error("(a = 1) + 2 = 3", "expected a value at column 1, found a condition");
    check_error("b = (a = 1)", "expected a value at column 5, found a condition");
    check_error(
        "sys.Colour = 1",
        "expected a property of the system at column 5, found \"Colour\"",
    );
    check_error("me.a = 1", "expected sys or user at column 1, found \"me\"");
    check_error(
        "newid() = 1",
        "expected one of the functions p and property at column 1, found \"newid\"",
    );
    check_error("a = @x", "parameters are not supported, see column 5");
    check_error("a # 1", "expected a word, number, text or operator at column 3, found '#'");
    check_error("a = 9223372036854775808", "the number at column 5 is too large");
    check_error("a = -9223372036854775809", "the number at column 6 is too large");
    check_error("a = 1e999", "the number at column 5 is too large");
    check_error(
        "a LIKE 'x!' ESCAPE '!'",
        "expected a pattern that does not end in its escape at column 8",
    );
    check_error("a LIKE 'x' ESCAPE '!!'", "expected one character at column 19");
    check_error("ä = 1 ; b", "expected an operator or the end at column 7, found \";\"");
    check_error(
        "a = 1 AND in = 2",
        "expected a property (write [in] for the one with this name) at column 11, found \"in\"",
    );
}

#[test]
fn limits_are_errors_and_not_less() {
    let most = format!("a = '{}'", "ä".repeat(1018));
    assert_eq!(most.chars().count(), 1024);
    assert!(Filter::sql(&most).is_ok());
    let report = Filter::sql(&format!("{most} ")).unwrap_err().report();
    assert!(report.ends_with("…\": it has more than 1024 characters"), "{report}");

    let deep = |depth: usize| format!("{}a = 1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Filter::sql(&deep(32)).is_ok());
    let unfinished = format!("{}a = 1", "(".repeat(33));
    check_error(&unfinished, "it is nested more than 32 deep at column 34");
    assert!(Filter::sql(&format!("{}TRUE", "NOT ".repeat(33))).is_err());
    assert!(Filter::sql(&format!("a = {}b", "-".repeat(33))).is_err());
    assert!(Filter::sql(&format!("a = {}b", "+".repeat(900))).is_err());

    let list = |count: usize| format!("a IN ({}1)", "1,".repeat(count - 1));
    assert!(Filter::sql(&list(256)).is_ok());
    let report = Filter::sql(&list(257)).unwrap_err().report();
    assert!(report.ends_with("the list has more than 256 values at column 519"), "{report}");

    // What is only long is not deep.
    check(&format!("a = {}1", "1+".repeat(500)), "a=501", "true");
    check(&format!("{}a", "a OR ".repeat(200)), "a=true", "true");
}

#[test]
fn an_expression_is_shown_as_it_was_understood() {
    check_shown("a=1 or b<>2 and not c!=3", "a = 1 OR b <> 2 AND NOT c <> 3");
    check_shown("((a=1 or b=2)) and (c=3)", "(a = 1 OR b = 2) AND c = 3");
    check_shown("(a and b) and c", "(a AND b) AND c");
    check_shown("not (a and b)", "NOT (a AND b)");
    check_shown("a-(b-c)-d*(e+f) > -5", "a - (b - c) - d * (e + f) > -5");
    check_shown("a = -(-b) and c = - - 5 and d = +1.50", "a = --b AND c = 5 AND d = 1.5");
    check_shown("a = - -9223372036854775808", "a = --9223372036854775808");
    check_shown("a not in(1,'it''s',null)", "a NOT IN (1, 'it''s', NULL)");
    check_shown("[a] like 'x' escape '!'", "a LIKE 'x' ESCAPE '!'");
    check_shown("user.[in]=1 and \"b ]\" is not null", "[in] = 1 AND [b ]]] IS NOT NULL");
    check_shown("exists(sys.subject) and property(a)=true", "EXISTS(sys.Label) AND p(a) = TRUE");
    assert_eq!(SqlFilter::new(" a=1").unwrap().text(), " a=1");
}

#[test]
fn a_correlation_filter_wants_all_its_values() {
    let all = "sys.To=t sys.ReplyTo=r sys.CorrelationId=c sys.ReplyToSessionId=rs \
               sys.ContentType=ct sys.Label=l sys.SessionId=s color=red n=5";
    let filter = CorrelationFilter::default()
        .to("t")
        .reply_to("r")
        .correlation_id("c")
        .reply_to_session_id("rs")
        .content_type("ct")
        .subject("l")
        .session_id("s")
        .message_id("m-1")
        .property("color", "red")
        .property("n", 5_i64);
    assert!(Filter::from(filter.clone()).matches(&message(all)));
    for word in all.split_whitespace() {
        let without: Vec<&str> = all.split_whitespace().filter(|it| *it != word).collect();
        assert!(!filter.matches(&message(&without.join(" "))), "without {word}");
        let other = all.replace(word, &format!("{word}1"));
        assert!(!filter.matches(&message(&other)), "{other}");
    }
    assert!(!filter.message_id("m-2").matches(&message(all)));
    assert!(CorrelationFilter::default().matches(&message(all)));
}

#[test]
fn values_of_a_correlation_filter_have_types() {
    let check = |wanted: &str, actual: &str, expected: bool| {
        let filter = CorrelationFilter::default().property("a", property(wanted));
        let message = Message::new("m-1", "").property("A", property(actual));
        assert_eq!(filter.matches(&message), expected, "{wanted} {actual}");
    };
    check("red", "red", true);
    check("red", "Red", false);
    check("5", "5.0", true);
    check("5.5", "5", false);
    check("true", "true", true);
    check("true", "1", false);
    check("@17", "@17", true);
    check("@17", "17", false);
    check("0xab", "0xab", true);
    check("0xab", "ab", false);
    check("NaN", "NaN", false);
    let text = CorrelationFilter::default().property("a", "5");
    assert!(!text.matches(&message("a=5")));
}

#[test]
fn a_correlation_filter_is_checked() {
    let check = |filter: CorrelationFilter, expected: &str| {
        let report = Filter::from(filter).check().err().map_or(String::new(), |it| it.report());
        assert!(report.ends_with(expected), "{report}");
    };
    check(CorrelationFilter::default().to("t"), "");
    check(CorrelationFilter::default(), "use the filter true for every message");
    check(CorrelationFilter::default().property("", "x"), "a property has no name");
    let many = |count: usize| {
        (0..count)
            .fold(CorrelationFilter::default(), |filter, n| filter.property(format!("p{n}"), "x"))
    };
    check(many(256), "");
    check(many(257), "it has more than 256 properties");
    assert!(Filter::sql("1 = 1").unwrap().check().is_ok());
}

#[test]
fn the_stored_form_does_not_change() {
    let check = |filter: Filter, expected: &str| {
        assert_eq!(serde_json::to_string(&filter).unwrap(), expected);
        assert_eq!(serde_json::from_str::<Filter>(expected).unwrap(), filter);
    };
    check(Filter::True, r#"{"kind":"true"}"#);
    check(Filter::False, r#"{"kind":"false"}"#);
    check(Filter::sql(" a=1").unwrap(), r#"{"kind":"sql","expression":" a=1"}"#);
    let filter = CorrelationFilter::default().reply_to_session_id("rs").message_id("m");
    check(filter.into(), r#"{"kind":"correlation","messageId":"m","replyToSessionId":"rs"}"#);
    let filter = CorrelationFilter::default()
        .property("binary", property("0xab"))
        .property("bool", true)
        .property("double", 0.1)
        .property("infinite", f64::INFINITY)
        .property("integer", i64::MIN)
        .property("text", "17")
        .property("time", Timestamp::from_millis(17));
    check(
        filter.into(),
        concat!(
            r#"{"kind":"correlation","properties":{"binary":{"binary":"YWI="},"bool":true,"#,
            r#""double":{"double":"0.1"},"infinite":{"double":"inf"},"#,
            r#""integer":-9223372036854775808,"text":"17","time":{"timestamp":17}}}"#,
        ),
    );
    let read: Filter =
        serde_json::from_str(r#"{"kind":"correlation","label":"l","properties":{"a":0.5}}"#)
            .unwrap();
    let plain = CorrelationFilter::default().subject("l").property("a", 0.5);
    assert_eq!(read, plain.into());
}

#[test]
fn a_wrong_stored_form_is_refused() {
    let check = |json: &str, expected: &str| {
        let error = serde_json::from_str::<Filter>(json).unwrap_err().to_string();
        assert!(error.contains(expected), "{json}: {error}");
    };
    check(r#"{"kind":"sql","expression":"a ="}"#, "expected a value at column 4, found the end");
    check(r#"{"kind":"sql"}"#, "expression");
    check(r#"{"kind":"other"}"#, "other");
    check(r#"{"kind":"correlation","sesionId":"s"}"#, "sesionId");
    check(r#"{"kind":"correlation","properties":{"a":{"binary":"?"}}}"#, "property \"a\"");
    check(r#"{"kind":"correlation","properties":{"a":null}}"#, "");
}
