use serde_json::{Value, json};

use crate::world::{World, ada};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn the_trace_of_a_request_reaches_the_document_of_its_event() {
    let world = World::new().await;
    let headers = [("traceparent", PARENT), ("tracestate", "a=1"), ("baggage", "tenant=blue")];
    let created = world.post_with("/api/contacts", &headers, ada()).await;
    let path = created.header("location").to_owned();
    // The next caller has another trace, the one after has none.
    let other = PARENT.replace("4bf9", "aaaa");
    let body = json!({"description": null});
    let update = format!("{path}/update-description");
    world.post_with(&update, &[("traceparent", &other)], body).await;
    world.post(&format!("{path}/update-email"), json!({"email": null})).await;

    let events = world.events().await;
    let traces: Vec<_> = events.iter().map(|it| &it.trace).collect();
    assert_eq!(traces[0].traceparent(), Some(PARENT));
    assert_eq!(traces[0].tracestate(), Some("a=1"));
    assert_eq!(traces[0].baggage(), Some("tenant=blue"));
    assert_eq!((traces[1].traceparent(), traces[1].baggage()), (Some(other.as_str()), None));
    assert!(traces[2].is_empty());

    let items = world.items().await;
    let first = items.iter().find(|it| it.sequence == Some(1)).unwrap();
    let document: Value = serde_json::from_slice(&first.body).unwrap();
    assert_eq!(document["type"], "domainEvent");
    assert_eq!(document["traceparent"], PARENT);
    assert_eq!(document["data"]["contactId"], created.body["id"]);
    assert_eq!(document["data"]["contact"]["name"]["firstName"], "Ada");
}

#[tokio::test]
async fn a_trace_that_is_wrong_does_not_stop_the_request() {
    let world = World::new().await;
    let headers = [("traceparent", "nonsense"), ("baggage", "tenant=blue")];
    let answer = world.post_with("/api/contacts", &headers, ada()).await;
    assert_eq!(answer.status, 201);
    let trace = &world.events().await[0].trace;
    assert_eq!((trace.traceparent(), trace.baggage()), (None, Some("tenant=blue")));
}
