//! Whether two texts are the same JSON.
//!
//! Texts are read by our own scanner and numbers by the standard library: which features another
//! crate switches on in `serde_json` changes nothing here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::json::cursor::Fault;
use crate::json::decimal::Decimal;
use crate::json::scanner::Scanner;

/// How closely numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// To the last digit: for bodies that are kept as they were written.
    Exact,
    /// As doubles: for what was read back from a service that keeps no more of a number, such as
    /// Azure Cosmos DB. Numbers that no double can hold (`1e400`) are compared to the last digit.
    AsDoubles,
}

/// Whether two bodies say the same, however they are spelled: a service may choose the order of
/// properties, the spaces and the spelling of strings and numbers for itself.
///
/// Of a repeated property the last one counts. What an item may not be (other than JSON in UTF-8,
/// or nested deeper than [`JSON_DEPTH_MAX`](crate::JSON_DEPTH_MAX)) is the same byte for byte only,
/// and so is a number with an exponent of more than 18 digits.
///
/// ```
/// use millstream_core::{Numbers, says_the_same};
///
/// let (one, other) = (br#"{"id":"1","n":10.0}"#, br#"{ "n": 10, "id": "1" }"#);
/// assert!(says_the_same(one, other, Numbers::Exact));
/// let (written, read) = (br#"{"n":9007199254740993}"#, br#"{"n":9007199254740992}"#);
/// assert!(!says_the_same(written, read, Numbers::Exact));
/// assert!(says_the_same(written, read, Numbers::AsDoubles));
/// ```
#[must_use]
pub fn says_the_same(one: &[u8], other: &[u8], numbers: Numbers) -> bool {
    if one == other {
        return true;
    }
    let values = (Value::parse(one), Value::parse(other));
    matches!(values, (Some(one), Some(other)) if one.is(&other, numbers))
}

/// A value that borrows from its text. The scanner reads no more than `JSON_DEPTH_MAX` levels, so
/// that whatever recurses over one has an end.
enum Value<'a> {
    /// `true`, `false` or `null`.
    Word(&'a str),
    Number(&'a str),
    Text(Cow<'a, str>),
    Array(Vec<Self>),
    Object(BTreeMap<Cow<'a, str>, Self>),
}

impl<'a> Value<'a> {
    fn parse(body: &'a [u8]) -> Option<Self> {
        let mut scanner = Scanner::new(std::str::from_utf8(body).ok()?);
        scanner.space();
        let value = Self::read(&mut scanner).ok()?;
        scanner.end().ok().map(|()| value)
    }

    fn read(scanner: &mut Scanner<'a>) -> Result<Self, Fault> {
        match scanner.peek() {
            b'{' => {
                let mut properties = BTreeMap::new();
                scanner.object(|scanner, name, _| {
                    properties.insert(name.decoded(), Self::read(scanner)?);
                    Ok(())
                })?;
                Ok(Self::Object(properties))
            }
            b'[' => {
                let mut items = Vec::new();
                scanner.array(|scanner, _| {
                    items.push(Self::read(scanner)?);
                    Ok(())
                })?;
                Ok(Self::Array(items))
            }
            first => {
                let start = scanner.position();
                if first == b'"' {
                    return scanner.string().map(|it| Self::Text(it.decoded()));
                }
                scanner.value()?;
                let text = scanner.since(start);
                Ok(if first.is_ascii_alphabetic() { Self::Word(text) } else { Self::Number(text) })
            }
        }
    }

    fn is(&self, other: &Self, numbers: Numbers) -> bool {
        match (self, other) {
            (Self::Word(one), Self::Word(other)) => one == other,
            (Self::Number(one), Self::Number(other)) => is_same_number(one, other, numbers),
            (Self::Text(one), Self::Text(other)) => one == other,
            (Self::Array(one), Self::Array(other)) => {
                one.len() == other.len()
                    && one.iter().zip(other).all(|(one, other)| one.is(other, numbers))
            }
            (Self::Object(one), Self::Object(other)) => {
                // Both are in the order of names.
                one.len() == other.len()
                    && one.iter().zip(other).all(|((one_name, one), (other_name, other))| {
                        one_name == other_name && one.is(other, numbers)
                    })
            }
            _ => false,
        }
    }
}

fn is_same_number(one: &str, other: &str, numbers: Numbers) -> bool {
    if one == other {
        return true;
    }
    let decimals = (Decimal::new(one), Decimal::new(other));
    if matches!(decimals, (Some(one), Some(other)) if one == other) {
        return true;
    }
    let double = |text: &str| text.parse::<f64>().ok().filter(|it| it.is_finite());
    match numbers {
        Numbers::Exact => false,
        Numbers::AsDoubles => double(one).is_some_and(|it| double(other) == Some(it)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JSON_DEPTH_MAX;

    #[track_caller]
    fn check_with(one: &str, other: &str, numbers: Numbers, expected: bool) {
        for (one, other) in [(one, other), (other, one)] {
            let found = says_the_same(one.as_bytes(), other.as_bytes(), numbers);
            assert_eq!(found, expected, "{one:.80} {other:.80} {numbers:?}");
        }
    }

    #[track_caller]
    fn check(one: &str, other: &str, expected: bool) {
        check_with(one, other, Numbers::Exact, expected);
        check_with(one, other, Numbers::AsDoubles, expected);
    }

    /// Numbers that are the same to a double only.
    #[track_caller]
    fn check_rounded(one: &str, other: &str) {
        check_with(one, other, Numbers::Exact, false);
        check_with(one, other, Numbers::AsDoubles, true);
    }

    #[test]
    fn spelling_and_order_do_not_matter() {
        check(r#"{"a":[1.0,{"b":"\u00e9"}],"c":null}"#, r#"{"c":null, "a":[1,{"b":"é"}]}"#, true);
        check(r#"{"\u0061":true}"#, r#" { "a" : true } "#, true);
        check("[-0.0]", "[0]", true);
        check("[12.5e1]", "[125]", true);
        check("[]", "[ ]", true);
    }

    #[test]
    fn what_differs_is_not_the_same() {
        check("[1,2]", "[2,1]", false);
        check("[1]", "[1,1]", false);
        check("[1]", "[-1]", false);
        check("[]", "{}", false);
        check("[true]", "[false]", false);
        check("[null]", r#"["null"]"#, false);
        check(r#"{"a":1}"#, r#"{"b":1}"#, false);
        check(r#"{"a":1}"#, r#"{"a":1,"b":1}"#, false);
        check(r#"{"a":1}"#, r#"{"a":"1"}"#, false);
        check("[", "[1", false);
        check("1", "1 1", false);
    }

    #[test]
    fn of_a_repeated_property_the_last_one_counts() {
        check(r#"{"a":1,"b":2,"a":3}"#, r#"{"a":3,"b":2}"#, true);
        check(r#"{"a":1,"a":3}"#, r#"{"a":1}"#, false);
    }

    #[test]
    fn what_a_double_cannot_hold_differs_unless_it_may_have_been_rounded() {
        check_rounded("[9007199254740993]", "[9007199254740992]");
        check_rounded("[9223372036854775807]", "[9223372036854775806]");
        check_rounded("[-9223372036854775808]", "[-9223372036854775809]");
        check_rounded("[18446744073709551615]", "[1.8446744073709552E+19]");
        check_rounded("[0.1]", "[0.1000000000000000055511151231257827]");
        check_rounded("[1e-400]", "[0]");
        check("[9007199254740993]", "[9007199254740994]", false);
        check("[0.1]", "[0.10000000000000002]", false);
    }

    #[test]
    fn numbers_beyond_doubles_are_compared_to_the_last_digit() {
        check("[1e400 ]", "[1e400]", true);
        check("[1e400]", "[10e399]", true);
        check("[1e400]", "[1e401]", false);
        check("[1e400]", "[-1e400]", false);
        check("[1e99999999999999999999 ]", "[1e99999999999999999999]", true);
        check("[1e99999999999999999999]", "[1e99999999999999999998]", false);
    }

    #[test]
    fn bodies_of_all_levels_that_are_allowed_are_compared() {
        let nested = |levels: u32, inner: &str| {
            let levels = usize::try_from(levels).unwrap() / 2;
            format!("{}{inner}{}", r#"{"a":["#.repeat(levels), "]}".repeat(levels))
        };
        check(&nested(JSON_DEPTH_MAX, "1.0"), &nested(JSON_DEPTH_MAX, " 1"), true);
        check(&nested(JSON_DEPTH_MAX, "1"), &nested(JSON_DEPTH_MAX, "2"), false);
        // Deeper ones are no items; they cost no stack.
        check(&nested(1_000_000, "1"), &nested(1_000_000, " 1"), false);
        check(&nested(JSON_DEPTH_MAX + 2, "1"), &nested(JSON_DEPTH_MAX + 2, "1"), true);
    }
}
