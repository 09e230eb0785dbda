//! Whether two texts are the same JSON.

use serde_json::Value;

/// Whether two bodies say the same: a service may keep the order of properties, the spaces and the
/// spelling of numbers for itself, and gives back numbers as doubles.
///
/// ```
/// use millstream_core::says_the_same;
///
/// assert!(says_the_same(br#"{"id":"1","n":10.0}"#, br#"{ "n": 10, "id": "1" }"#));
/// assert!(!says_the_same(br#"{"id":"1"}"#, br#"{"id":"1","n":null}"#));
/// ```
#[must_use]
pub fn says_the_same(one: &[u8], other: &[u8]) -> bool {
    if one == other {
        return true;
    }
    let values = (serde_json::from_slice(one), serde_json::from_slice(other));
    matches!(values, (Ok(one), Ok(other)) if is_same(&one, &other))
}

fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, one)| other.get(name).is_some_and(|it| is_same(one, it)))
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(one: &str, other: &str, expected: bool) {
        assert_eq!(says_the_same(one.as_bytes(), other.as_bytes()), expected, "{one} {other}");
        assert_eq!(says_the_same(other.as_bytes(), one.as_bytes()), expected, "{other} {one}");
    }

    #[test]
    fn spelling_and_order_do_not_matter() {
        check(r#"{"a":[1.0,{"b":"\u00e9"}],"c":null}"#, r#"{"c":null, "a":[1,{"b":"é"}]}"#, true);
        check("[9007199254740993]", "[9007199254740992]", true);
        check("[-0.0]", "[0]", true);
    }

    #[test]
    fn what_differs_is_not_the_same() {
        check("[1,2]", "[2,1]", false);
        check("[1]", "[1,1]", false);
        check(r#"{"a":1}"#, r#"{"b":1}"#, false);
        check(r#"{"a":1}"#, r#"{"a":"1"}"#, false);
        check("[1e400]", "[1e400]", true);
        check("[1e400]", "[1e401]", false);
        check("[", "[1", false);
    }
}
