//! What the fuzz targets do with their input: whatever a client sends to be queried.
//!
//! A target panics if a parser or an evaluation panics, or if what was accepted does not come back
//! the same when it is written again. The bodies are plain functions, so that the tests run them on
//! any toolchain; `fuzz/` only hands them to the fuzzer.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use millstream_core::conformance::block_on;
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, ManualClock, Operation,
    PartitionKeyDefinition, Timestamp,
};

use crate::continuation::{Fingerprints, Token, fingerprint};
use crate::{Condition, Limits, Parameters, Query, Request, Specification};

/// What the continuations below are bound to.
const NO_QUERY: Fingerprints = Fingerprints { whole: 0, sorted: None };

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

/// Bodies of requests.
pub const REQUESTS: &[&str] = &[
    r#"{"query":"SELECT * FROM c WHERE c.a = @x","parameters":[{"name":"@x","value":[1,null]}]}"#,
    r#"{"query":"SELECT * FROM c ORDER BY c.a","resumeFilter":{"value":[1],"rid":"AAAA"}}"#,
    r#"[{"name":"@x","value":{"a":1.5e3}}]"#,
    "eyJ2IjoxLCJxIjoiMCIsIm4iOiI3In0",
];

/// Continuations, as they are before they are encoded.
pub const CONTINUATIONS: &[&str] = &[
    r#"{"v":1,"q":"0","n":"5","i":0,"s":"abc","d":["[\"a\"]","1"]}"#,
    r#"{"v":1,"q":"0","n":"2","i":0,"b":["[\"a\"]","2","1"]}"#,
    r#"{"v":1,"q":"0","n":"0","i":0,"a":[[1,"2"],{"n":3}]}"#,
    r#"{"v":1,"q":"0","n":"3","k":"[\"a\"]","o":[[1],[]],"p":["7","[\"a\"]","x","1"]}"#,
    r#"{"v":1,"q":"0","n":"1","r":["","FF"],"o":[["a"]],"p":["0","","00","0"]}"#,
    r#"{"v":1,"q":"0","n":"7"}"#,
];

/// One for each way a query goes on.
const PAGED: &[&str] = &[
    "SELECT VALUE t FROM c JOIN t IN c.tags",
    "SELECT * FROM c WHERE c.a = 'a' AND c.id IN ('1', '2')",
    "SELECT * FROM c ORDER BY c.n DESC",
    "SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n OFFSET 1 LIMIT 2",
    "SELECT DISTINCT VALUE c.n FROM c",
    "SELECT c.n, COUNT(1) AS m FROM c GROUP BY c.n",
    "SELECT SUM(c.n) AS s, AVG(c.n) AS a, MIN(c.n) AS i FROM c",
    "SELECT MAKELIST(c.n) AS l, MAKESET(c.a) AS s FROM c",
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
    let rows_again = again.evaluate(&documents, &parameters, &clock);
    // What chance decides may be too much another time.
    let is_repeatable = !printed.contains("RAND(");
    let Ok(rows_again) = rows_again else {
        assert!(!is_repeatable, "{printed} runs no more");
        return;
    };
    if is_repeatable {
        assert_eq!(rows, rows_again, "{printed}");
    }
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
    let _ = Token::read(text, &NO_QUERY);
}

/// Reads a continuation, which is text that is encoded; writes it and reads it again; goes on with
/// queries from there, whether they gave it out or not.
///
/// # Panics
///
/// If something is wrong.
pub fn continuation(data: &[u8]) {
    let Ok(token) = Token::read(&URL_SAFE_NO_PAD.encode(data), &NO_QUERY) else { return };
    let text = token.write();
    let again = Token::read(&text, &NO_QUERY);
    let again = again.unwrap_or_else(|error| panic!("{token:?}: {}", error.report()));
    assert_eq!(again.write(), text);

    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_770_635_257_302)));
    let definition = PartitionKeyDefinition::hash("/a").expect("it is a path");
    let container = container(&definition, Arc::clone(&clock));
    for text in PAGED {
        let query = Query::parse(text).expect("it is a query");
        let fingerprint = fingerprint(text, &Parameters::default(), None);
        let continuation = Token { fingerprint, ..token.clone() }.write();
        let scope = token.scope.clone();
        let limits = Limits { documents_max: 1, ..Limits::items(1) };
        let request = Request::new(&definition, &*clock)
            .with_scope(&scope)
            .with_limits(limits)
            .with_continuation(&continuation);
        // A page or a sentence why not.
        let _ = block_on(query.execute(&*container.documents, &request));
    }
}

fn container(definition: &PartitionKeyDefinition, clock: Arc<ManualClock>) -> Container {
    let store = Memory::new(clock);
    let name = ContainerName::new("app", "data").expect("it is a name");
    block_on(async {
        store.create_database("app").await?;
        store.create(&name, ContainerSettings::new(definition.clone())).await?;
        let container = store.open(&name).await?;
        for n in 0..3 {
            let body = format!(r#"{{"id":"{n}","a":"a","n":{n},"tags":[1,2]}}"#);
            container.documents.commit(Batch::new("a").with(Operation::create(body))).await?;
        }
        Ok::<_, millstream_core::Error>(container)
    })
    .expect("a store in memory takes three items")
}
