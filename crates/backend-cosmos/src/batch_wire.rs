//! A batch as it travels: an array of operations, answered by an array of results.
//!
//! Bodies are copied as they are, so numbers and the order of properties survive.

use std::time::Duration;

use millstream_core::{Action, CheckedBatch, CheckedOperation, IfNoneMatch};
use serde::Deserialize;
use serde_json::value::RawValue;

/// What the service says about one operation.
#[derive(Debug, Deserialize)]
pub(crate) struct ResultWire {
    #[serde(rename = "statusCode")]
    pub(crate) status: u16,
    #[serde(rename = "subStatusCode", alias = "substatusCode", default)]
    pub(crate) sub_status: u16,
    #[serde(rename = "resourceBody")]
    pub(crate) body: Option<Box<RawValue>>,
    #[serde(rename = "retryAfterMilliseconds")]
    retry_after: Option<u64>,
}

/// Another operation of the batch is why this one was not done.
pub(crate) const FAILED_DEPENDENCY: u16 = 424;

impl ResultWire {
    pub(crate) fn is_refused(&self) -> bool {
        400 <= self.status
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from_millis)
    }
}

/// The text of a batch.
pub(crate) fn encode(batch: &CheckedBatch) -> Vec<u8> {
    let mut text = vec![b'['];
    for (index, operation) in batch.operations.iter().enumerate() {
        if 0 < index {
            text.push(b',');
        }
        encode_operation(&mut text, operation);
    }
    text.push(b']');
    text
}

/// What the operation is called in messages.
pub(crate) fn verb(action: &Action) -> &'static str {
    match action {
        Action::Create(_) => "create",
        Action::Upsert(_) => "upsert",
        Action::Replace(_) => "replace",
        Action::Patch(_) => "patch",
        Action::Delete => "delete",
        Action::Read => "read",
    }
}

fn encode_operation(text: &mut Vec<u8>, operation: &CheckedOperation) {
    let patch;
    let (kind, body): (&str, Option<&[u8]>) = match &operation.action {
        Action::Create(body) => ("Create", Some(&body.bytes)),
        Action::Upsert(body) => ("Upsert", Some(&body.bytes)),
        Action::Replace(body) => ("Replace", Some(&body.bytes)),
        Action::Patch(it) => {
            patch = it.to_json();
            ("Patch", Some(&patch))
        }
        Action::Delete => ("Delete", None),
        Action::Read => ("Read", None),
    };
    text.extend(format!("{{\"operationType\":\"{kind}\"").bytes());
    // Create and upsert take the id from the body.
    if !matches!(operation.action, Action::Create(_) | Action::Upsert(_)) {
        property(text, "id", operation.id.as_str());
    }
    if let Some(etag) = &operation.if_match {
        property(text, "ifMatch", etag.as_str());
    }
    match &operation.if_none_match {
        Some(IfNoneMatch::Any) => property(text, "ifNoneMatch", "*"),
        Some(IfNoneMatch::Etag(etag)) => property(text, "ifNoneMatch", etag.as_str()),
        None => {}
    }
    if let Some(body) = body {
        text.extend(b",\"resourceBody\":");
        text.extend(body);
    }
    text.push(b'}');
}

fn property(text: &mut Vec<u8>, name: &str, value: &str) {
    let value = serde_json::to_string(value).expect("every string has a JSON spelling");
    text.extend(format!(",\"{name}\":{value}").bytes());
}

#[cfg(test)]
mod tests {
    use millstream_core::{
        Batch, ContainerSettings, Etag, ItemId, Operation, PartitionKeyDefinition, Patch,
        PatchOperation,
    };

    use super::*;

    fn id(text: &str) -> ItemId {
        ItemId::new(text).unwrap()
    }

    #[track_caller]
    fn check(operation: Operation, expected: &str) {
        let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap());
        let batch = Batch::new("k").with(operation).check(&settings).unwrap();
        assert_eq!(String::from_utf8(encode(&batch)).unwrap(), expected);
    }

    #[test]
    fn operations_are_written_and_bodies_copied() {
        let body = r#"{ "id":"1","pk":"k","n":1e400}"#;
        check(
            Operation::create(body),
            r#"[{"operationType":"Create","resourceBody":{ "id":"1","pk":"k","n":1e400}}]"#,
        );
        check(
            Operation::upsert(body).if_none_match(IfNoneMatch::Any),
            concat!(
                r#"[{"operationType":"Upsert","ifNoneMatch":"*","#,
                r#""resourceBody":{ "id":"1","pk":"k","n":1e400}}]"#
            ),
        );
        check(
            Operation::delete(id("\"")).if_match(Etag::new("\"7\"")),
            r#"[{"operationType":"Delete","id":"\"","ifMatch":"\"7\""}]"#,
        );
        let patch = Patch::new(vec![PatchOperation::set("/a", &1).unwrap()]).unwrap();
        check(
            Operation::patch(id("1"), patch),
            concat!(
                r#"[{"operationType":"Patch","id":"1","#,
                r#""resourceBody":{"operations":[{"op":"set","path":"/a","value":1}]}}]"#
            ),
        );
    }

    #[test]
    fn results_are_read() {
        let text = r#"[{"statusCode":201,"requestCharge":6.2,"eTag":"\"1\"","resourceBody":{"a": 1}},
            {"statusCode":429,"subStatusCode":3200,"retryAfterMilliseconds":7}]"#;
        let results: Vec<ResultWire> = serde_json::from_str(text).unwrap();
        assert_eq!(results[0].body.as_ref().unwrap().get(), r#"{"a": 1}"#);
        assert!(results[1].is_refused() && !results[0].is_refused());
        assert_eq!(results[1].retry_after(), Some(Duration::from_millis(7)));
    }
}
