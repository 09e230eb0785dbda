//! What the fuzz targets do with their input: whatever a client sends to be queried.
//!
//! A target panics if a parser or an evaluation panics, or if what was accepted does not come back
//! the same when it is written again. The bodies are plain functions, so that the tests run them on
//! any toolchain; `fuzz/` only hands them to the fuzzer.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use millstream_core::{ManualClock, PartitionKeyDefinition, Timestamp};

use crate::{Condition, Parameters, Query, Specification, continuation};

/// Input that is accepted, to start from.
pub const QUERIES: &[&str] = &[
    "SELECT * FROM c",
    "SELECT DISTINCT TOP 3 c.a, c['b'] AS d FROM c WHERE c.a = 1 AND NOT (c.b < @x OR c.x IN (1))",
    "SELECT VALUE {a: [1, 'x', null], \"b\": c.a ?? 2} FROM c JOIN t IN c.tags ORDER BY c.a DESC",
    "SELECT c.a, COUNT(1) AS n, AVG(c.b) FROM c GROUP BY c.a OFFSET 1 LIMIT @x",
    "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.a FROM c)",
    "SELECT ARRAY(SELECT VALUE t FROM t IN c.tags WHERE t LIKE '%a_[b-d]' ESCAPE '!') AS x FROM c",
    "SELECT VALUE EXISTS(SELECT 1 FROM t IN c.tags WHERE t BETWEEN 'a' AND 'b') ? 1 : 2 FROM c",
    "SELECT VALUE REPLACE(CONCAT(c.a, 'x'), 'a', 'b') || RegexMatch(c.a, '^a.*', 'i') FROM c",
    "SELECT VALUE DateTimeAdd('mm', -1, '2020-01-31') FROM c WHERE -1 + 2 * 3 % 4 / 5 << 2 | 7 > 1",
];

/// Reads a query; writes it and reads it again; plans it; runs it over a few documents.
///
/// # Panics
///
/// If something is wrong.
pub fn query(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = Condition::parse(text);
    let Ok(query) = Query::parse(text) else { return };
    let printed = query.printed();
    let again = Query::parse(&printed);
    let again = again.unwrap_or_else(|error| panic!("{printed}: {}", error.report()));
    assert_eq!(again.printed(), printed);

    let parameters = Parameters::from_json(br#"[{"name": "@x", "value": 1}]"#);
    let parameters = parameters.unwrap_or_default();
    let definition = PartitionKeyDefinition::hash("/a").expect("it is a path");
    let _ = query.plan(&definition, &parameters);
    let documents = [
        Bytes::from_static(br#"{"id": "1", "a": 1, "tags": ["a", "b", {"c": [1e400]}]}"#),
        Bytes::from_static(br#"{"id": "2", "a": "x", "b": {"c": null}, "tags": []}"#),
        Bytes::from_static(br#"{"id": "3"}"#),
    ];
    let clock = ManualClock::starting_at(Timestamp::from_millis(1_770_635_257_302));
    let Ok(rows) = query.evaluate(&documents, &parameters, &clock) else { return };
    let Ok(rows_again) = again.evaluate(&documents, &parameters, &clock) else {
        panic!("{printed} runs no more")
    };
    assert_eq!(rows, rows_again, "{printed}");
    for row in rows {
        let value: Result<&serde_json::value::RawValue, _> = serde_json::from_str(&row);
        assert!(value.is_ok(), "{row} is not JSON");
    }
}

/// Reads the body of a request and a continuation.
///
/// # Panics
///
/// If something is wrong.
pub fn request(data: &[u8]) {
    let _ = Specification::from_json(data);
    let _ = Parameters::from_json(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = continuation::Token::read(text, 0);
}
