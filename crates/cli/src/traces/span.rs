//! A span, and how OTLP writes it in JSON.

use std::time::Duration;

use millstream_core::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::traces::About;

/// The side of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Internal,
    Producer,
    Consumer,
}

/// The trace and the span that something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parent {
    pub(super) trace: u128,
    pub(super) span: u64,
}

impl Parent {
    /// Reads a `traceparent`; none if it is not one, or if its caller did not want this trace kept.
    pub(super) fn sampled(traceparent: &str) -> Option<Self> {
        const SAMPLED: u8 = 1;
        let mut parts = traceparent.split('-');
        let (version, trace) = (parts.next()?, parts.next()?);
        let (span, flags) = (parts.next()?, parts.next()?);
        if version.len() != 2 || trace.len() != 32 || span.len() != 16 || flags.len() != 2 {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let trace = u128::from_str_radix(trace, 16).ok().filter(|it| *it != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|it| *it != 0)?;
        (flags & SAMPLED != 0).then_some(Self { trace, span })
    }

    /// The same trace, inside another span.
    pub(super) fn inside(self, span: [u8; 8]) -> Self {
        Self { span: u64::from_be_bytes(span), ..self }
    }
}

/// A span as OTLP has it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span {
    trace_id: String,
    span_id: String,
    parent_span_id: String,
    name: String,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
}

impl Span {
    pub(super) fn new(
        id: [u8; 8],
        parent: Parent,
        at: Timestamp,
        lasted: Duration,
        about: About<'_>,
    ) -> Self {
        let start = u128::from(at.as_millis()) * 1_000_000;
        let attributes = about.attributes.into_iter().map(|(key, value)| attribute(key, value));
        Self {
            trace_id: format!("{:032x}", parent.trace),
            span_id: format!("{:016x}", u64::from_be_bytes(id)),
            parent_span_id: format!("{:016x}", parent.span),
            name: about.name,
            kind: match about.kind {
                Kind::Internal => 1,
                Kind::Producer => 4,
                Kind::Consumer => 5,
            },
            start_time_unix_nano: start.to_string(),
            end_time_unix_nano: (start + lasted.as_nanos()).to_string(),
            attributes: attributes.collect(),
            status: about.error.map(|message| json!({ "code": 2, "message": message })),
        }
    }
}

/// The body of a request that has these spans.
pub(super) fn request(service: &str, spans: &[Span]) -> Vec<u8> {
    let body = json!({ "resourceSpans": [{
        "resource": { "attributes": [attribute("service.name", service)] },
        "scopeSpans": [{
            "scope": { "name": "millstream", "version": env!("CARGO_PKG_VERSION") },
            "spans": spans,
        }],
    }]});
    body.to_string().into_bytes()
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(traceparent: &str, expected: Option<(u128, u64)>) {
        let found = Parent::sampled(traceparent).map(|it| (it.trace, it.span));
        assert_eq!(found, expected, "{traceparent}");
    }

    #[test]
    fn a_trace_is_taken_up_if_its_caller_wants_it_kept() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let number = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
        let span = Some((number, 0xb7ad_6b71_6920_3331));
        check(&format!("00-{trace}-b7ad6b7169203331-01"), span);
        check(&format!("cc-{trace}-b7ad6b7169203331-03-more"), span);
        check(&format!("00-{trace}-b7ad6b7169203331-00"), None);
        check(&format!("00-{trace}-0000000000000000-01"), None);
        check(&format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)), None);
        check("00-0af-b7ad6b7169203331-01", None);
        check("", None);
    }

    #[test]
    fn a_span_is_written_as_the_protocol_has_it() {
        let about = About {
            name: "publish events".to_owned(),
            kind: Kind::Producer,
            attributes: vec![("messaging.system", "millstream")],
            error: Some("it is down".to_owned()),
        };
        let parent = Parent { trace: 0xabc, span: 2 };
        let (at, lasted) = (Timestamp::from_millis(5), Duration::from_nanos(7));
        let span = Span::new([0, 0, 0, 0, 0, 0, 0, 9], parent, at, lasted, about);
        let body: Value = serde_json::from_slice(&request("shop", &[span])).unwrap();
        let resource = &body["resourceSpans"][0];
        assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "shop");
        let expected = json!({
            "traceId": format!("{:032x}", 0xabc),
            "spanId": "0000000000000009",
            "parentSpanId": "0000000000000002",
            "name": "publish events",
            "kind": 4,
            "startTimeUnixNano": "5000000",
            "endTimeUnixNano": "5000007",
            "attributes": [{
                "key": "messaging.system", "value": { "stringValue": "millstream" }
            }],
            "status": { "code": 2, "message": "it is down" },
        });
        assert_eq!(resource["scopeSpans"][0]["spans"][0], expected);
    }
}
