//! Operations and results of a batch as they travel, and their JSON form.
//!
//! Their other form is in `hybrid_row`. What an operation means to the store is found out in
//! `batch`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use millstream_core::{Error, Result};
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// What an operation of a batch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationType {
    Create,
    Upsert,
    Replace,
    Patch,
    Delete,
    Read,
}

/// An operation of a batch as it was sent; nothing of it has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperationWire {
    pub(crate) kind: OperationType,
    pub(crate) id: Option<String>,
    /// The item, or the patch.
    pub(crate) body: Option<Bytes>,
    /// The JSON array of the partition key; only operations of a bulk request have their own.
    pub(crate) partition_key: Option<String>,
    pub(crate) if_match: Option<String>,
    pub(crate) if_none_match: Option<String>,
    /// Whether the item is to be left out of the result.
    pub(crate) is_minimal: bool,
}

/// The result of one operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResultWire {
    pub(crate) status: StatusCode,
    pub(crate) sub_status: Option<u32>,
    /// In quotes.
    pub(crate) etag: Option<String>,
    pub(crate) body: Option<Bytes>,
    /// What went wrong, as the body of a refusal. It has a place in HybridRow alone: the SDK for
    /// .NET looks for it where the item would be, and that for Java, which reads JSON, would take
    /// it for the item.
    pub(crate) refusal: Option<Bytes>,
    pub(crate) charge: f64,
    pub(crate) retry_after: Option<Duration>,
}

impl ResultWire {
    /// A result that has nothing but its status.
    pub(crate) fn status(status: StatusCode) -> Self {
        Self {
            status,
            sub_status: None,
            etag: None,
            body: None,
            refusal: None,
            charge: 0.0,
            retry_after: None,
        }
    }
}

/// Reads a JSON array of operations, but at most `operations_max` and one more.
///
/// Bodies share the memory of the request.
///
/// # Errors
///
/// `Invalid` if it is not an array of operations.
pub(crate) fn decode_json(body: &Bytes, operations_max: usize) -> Result<Vec<OperationWire>> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let read = (&mut deserializer).deserialize_seq(Operations { operations_max });
    let operations = read.and_then(|operations| deserializer.end().map(|()| operations));
    let operations = operations.map_err(|error| Error::invalid("read the batch", error))?;
    operations.into_iter().map(|operation| operation.into_wire(body)).collect()
}

/// Writes the JSON array of results.
pub(crate) fn encode_json(results: &[ResultWire]) -> Vec<u8> {
    let bodies: usize = results.iter().filter_map(|it| it.body.as_ref()).map(Bytes::len).sum();
    let mut text = Vec::with_capacity(bodies + results.len() * 128 + 2);
    text.push(b'[');
    for (index, result) in results.iter().enumerate() {
        if 0 < index {
            text.push(b',');
        }
        push_result(&mut text, result);
    }
    text.push(b']');
    text
}

fn push_result(text: &mut Vec<u8>, result: &ResultWire) {
    let status = result.status.as_u16();
    text.extend(format!("{{\"statusCode\":{status},\"requestCharge\":{}", result.charge).bytes());
    if let Some(sub_status) = result.sub_status {
        text.extend(format!(",\"subStatusCode\":{sub_status}").bytes());
    }
    if let Some(wait) = result.retry_after {
        text.extend(format!(",\"retryAfterMilliseconds\":{}", wait.as_millis()).bytes());
    }
    if let Some(etag) = &result.etag {
        let quoted = serde_json::to_string(etag).expect("every string has a JSON spelling");
        text.extend(format!(",\"eTag\":{quoted}").bytes());
    }
    if let Some(body) = &result.body {
        text.extend(b",\"resourceBody\":");
        text.extend(body);
    }
    text.push(b'}');
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct OperationJson<'a> {
    #[serde(borrow)]
    operation_type: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    resource_body: Option<&'a RawValue>,
    #[serde(borrow, default)]
    partition_key: Option<&'a RawValue>,
    #[serde(borrow, default)]
    if_match: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    if_none_match: Option<Cow<'a, str>>,
    #[serde(default)]
    minimal_return_preference: Option<bool>,
}

impl OperationJson<'_> {
    fn into_wire(self, body: &Bytes) -> Result<OperationWire> {
        let kind = match &*self.operation_type {
            "Create" => OperationType::Create,
            "Upsert" => OperationType::Upsert,
            "Replace" => OperationType::Replace,
            "Patch" => OperationType::Patch,
            "Delete" => OperationType::Delete,
            "Read" => OperationType::Read,
            other => {
                let shown: String = other.chars().take(32).collect();
                let reason = format!("a batch has no operations of type {shown:?}");
                return Err(Error::invalid("read the batch", reason));
            }
        };
        // Most SDKs send the array as a string, because it is also a header.
        let partition_key = self.partition_key.map(|raw| {
            let text: Option<String> = serde_json::from_str(raw.get()).ok();
            text.unwrap_or_else(|| raw.get().to_owned())
        });
        Ok(OperationWire {
            kind,
            id: self.id.map(Cow::into_owned),
            body: self.resource_body.map(|raw| body.slice_ref(raw.get().as_bytes())),
            partition_key,
            if_match: self.if_match.map(Cow::into_owned),
            if_none_match: self.if_none_match.map(Cow::into_owned),
            is_minimal: self.minimal_return_preference.unwrap_or(false),
        })
    }
}

/// Keeps the first elements and only looks at the others, so that a body of many small operations
/// does not take many times its size.
struct Operations {
    operations_max: usize,
}

impl<'de> Visitor<'de> for Operations {
    type Value = Vec<OperationJson<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of operations")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut operations = Vec::new();
        while operations.len() <= self.operations_max {
            match elements.next_element()? {
                Some(operation) => operations.push(operation),
                None => return Ok(operations),
            }
        }
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(operations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(kind: OperationType) -> OperationWire {
        OperationWire {
            kind,
            id: None,
            body: None,
            partition_key: None,
            if_match: None,
            if_none_match: None,
            is_minimal: false,
        }
    }

    #[track_caller]
    fn check(text: &'static str, expected: &[OperationWire]) {
        assert_eq!(decode_json(&Bytes::from_static(text.as_bytes()), 100).unwrap(), expected);
    }

    #[track_caller]
    fn check_refused(text: &'static str, reason: &str) {
        let error = decode_json(&Bytes::from_static(text.as_bytes()), 100).unwrap_err();
        let report = error.report();
        assert!(report.starts_with(&format!("could not read the batch: {reason}")), "{report}");
    }

    #[test]
    fn bodies_stay_as_they_were_written() {
        let body = Bytes::from_static(b"{\"id\": \"1\", \"n\": 1.50e+2}");
        let create = OperationWire { body: Some(body), ..operation(OperationType::Create) };
        check(
            r#"[{"operationType":"Create","resourceBody":{"id": "1", "n": 1.50e+2} }]"#,
            &[create],
        );
    }

    #[test]
    fn everything_an_operation_may_carry_is_read() {
        let replace = OperationWire {
            id: Some("ä/b".to_owned()),
            body: Some(Bytes::from_static(b"{}")),
            partition_key: Some("[\"a\"]".to_owned()),
            if_match: Some("\"7\"".to_owned()),
            if_none_match: Some("*".to_owned()),
            is_minimal: true,
            ..operation(OperationType::Replace)
        };
        check(
            r#"[{"operationType":"Replace","id":"\u00e4/b","resourceBody":{},"other":[1],
                 "partitionKey":"[\"a\"]","ifMatch":"\"7\"","ifNoneMatch":"*",
                 "minimalReturnPreference":true}]"#,
            &[replace],
        );
        let read = OperationWire {
            partition_key: Some("[1]".to_owned()),
            ..operation(OperationType::Read)
        };
        let text = r#"[{"operationType":"Read","partitionKey":[1],"id":null,"resourceBody":null}]"#;
        check(text, &[read]);
        check("[]", &[]);
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        check_refused("", "EOF");
        check_refused("{}", "invalid type: map, expected an array of operations");
        check_refused("[{}]", "missing field `operationType`");
        check_refused(r#"[{"operationType":"Query"}]"#, "a batch has no operations of type \"Q");
        check_refused("[] 1", "trailing characters");
    }

    #[test]
    fn operations_beyond_the_limit_are_not_kept() {
        let text = format!("[{}]", vec![r#"{"operationType":"Read"}"#; 500].join(","));
        assert_eq!(decode_json(&Bytes::from(text), 100).unwrap().len(), 101);
    }

    #[test]
    fn results_are_written_as_clients_read_them() {
        let created = ResultWire {
            sub_status: None,
            etag: Some("\"3\"".to_owned()),
            body: Some(Bytes::from_static(b"{\"id\": \"1\"}")),
            charge: 6.29,
            ..ResultWire::status(StatusCode::CREATED)
        };
        let throttled = ResultWire {
            sub_status: Some(3200),
            retry_after: Some(Duration::from_millis(40)),
            ..ResultWire::status(StatusCode::TOO_MANY_REQUESTS)
        };
        let text = String::from_utf8(encode_json(&[created, throttled])).unwrap();
        let expected = concat!(
            r#"[{"statusCode":201,"requestCharge":6.29,"eTag":"\"3\"","resourceBody":{"id": "1"}},"#,
            r#"{"statusCode":429,"requestCharge":0,"subStatusCode":3200,"#,
            r#""retryAfterMilliseconds":40}]"#,
        );
        assert_eq!(text, expected);
    }
}
