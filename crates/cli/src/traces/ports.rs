//! Ports that tell of what goes through them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use millstream_core::{
    Batch, BatchOutcome, BoxFuture, Delivery, Documents, Item, ItemId, Message, Operation,
    OperationKind, PageSize, PartitionKey, PropertyValue, Result, ScanContinuation, ScanPage,
    ScanScope, SessionReceiver, Settlement, Subscriber,
};
use millstream_relay::{Published, RelayObserver};
use serde::Deserialize;

use crate::traces::{About, Begun, Kind, Parent, Sink};

/// The property of a message that has the trace of its event.
const TRACEPARENT: &str = "traceparent";
/// Most messages of a session that are traced at once; more are not settled at once anywhere.
const OPEN_MAX: usize = 4096;

/// Documents whose commits of events are spans, one for each trace in a batch.
pub(super) struct TracedDocuments {
    pub(super) inner: Arc<dyn Documents>,
    pub(super) sink: Sink,
    pub(super) name: String,
}

#[async_trait]
impl Documents for TracedDocuments {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>> {
        self.inner.read(key, id).await
    }

    async fn commit(&self, batch: Batch) -> Result<BatchOutcome> {
        let parents: BTreeSet<Parent> = batch.operations.iter().filter_map(trace_of).collect();
        let begun = self.sink.begin();
        let outcome = self.inner.commit(batch).await;
        for parent in parents {
            let about = About {
                name: format!("commit {}", self.name),
                kind: Kind::Internal,
                attributes: vec![
                    ("db.system.name", "millstream"),
                    ("db.collection.name", &self.name),
                ],
                error: outcome.as_ref().err().map(|it| it.report()),
            };
            self.sink.end(parent, begun, about);
        }
        outcome
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        self.inner.scan(scope, after, size).await
    }
}

/// What of a document is looked at.
#[derive(Deserialize)]
struct Traced<'a> {
    #[serde(borrow, default)]
    traceparent: Option<Cow<'a, str>>,
}

fn trace_of(operation: &Operation) -> Option<Parent> {
    let body = match &operation.kind {
        OperationKind::Create(body)
        | OperationKind::Upsert(body)
        | OperationKind::Replace(_, body) => body,
        OperationKind::Patch(..) | OperationKind::Delete(_) | OperationKind::Read(_) => {
            return None;
        }
    };
    let traced: Traced<'_> = serde_json::from_slice(body).ok()?;
    Parent::sampled(&traced.traceparent?)
}

/// Messages of a relay: one span from the commit to the acknowledgement, one for the call.
pub(super) struct ObservedRelay {
    pub(super) sink: Sink,
    pub(super) relay: String,
}

impl RelayObserver for ObservedRelay {
    fn published(&self, published: &Published<'_>) {
        let Published { message, committed_at, begun_at, lasted } = published;
        let Some(parent) = parent_of(message) else { return };
        let about = |verb: &str, kind| About {
            name: format!("{verb} {}", self.relay),
            kind,
            attributes: attributes(message, &self.relay),
            error: None,
        };
        let whole = begun_at.since(*committed_at) + *lasted;
        let relay = self.sink.span(parent, *committed_at, whole, about("relay", Kind::Internal));
        let inside = parent.inside(relay);
        self.sink.span(inside, *begun_at, *lasted, about("publish", Kind::Producer));
    }
}

/// A subscriber whose messages are spans from the moment they are received to their settlement.
pub(super) struct TracedSubscriber {
    pub(super) inner: Arc<dyn Subscriber>,
    pub(super) sink: Sink,
    pub(super) path: String,
}

#[async_trait]
impl Subscriber for TracedSubscriber {
    async fn accept_session(&self, wait: Duration) -> Result<Option<Box<dyn SessionReceiver>>> {
        let Some(inner) = self.inner.accept_session(wait).await? else { return Ok(None) };
        let (sink, path) = (self.sink.clone(), self.path.clone());
        Ok(Some(Box::new(TracedSession { inner, sink, path, open: Mutex::default() })))
    }
}

struct TracedSession {
    inner: Box<dyn SessionReceiver>,
    sink: Sink,
    path: String,
    /// When the messages were received that are not settled yet, by lock token.
    open: Mutex<BTreeMap<String, Begun>>,
}

impl TracedSession {
    fn received(&self, deliveries: &[Delivery]) {
        let begun = self.sink.begin();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for delivery in deliveries.iter().filter(|it| parent_of(&it.message).is_some()) {
            if OPEN_MAX <= open.len() {
                return;
            }
            open.insert(delivery.lock_token.clone(), begun);
        }
    }

    fn settled(&self, deliveries: &[Delivery], settlement: &Settlement, outcome: &Result<()>) {
        let how = match settlement {
            Settlement::Complete => "complete",
            Settlement::Abandon => "abandon",
            Settlement::Defer => "defer",
            Settlement::DeadLetter { .. } => "dead-letter",
        };
        for delivery in deliveries {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let begun = open.remove(&delivery.lock_token);
            drop(open);
            let Some((begun, parent)) = begun.zip(parent_of(&delivery.message)) else { continue };
            let mut attributes = attributes(&delivery.message, &self.path);
            attributes.push(("messaging.millstream.settlement", how));
            let about = About {
                name: format!("deliver {}", self.path),
                kind: Kind::Consumer,
                attributes,
                error: outcome.as_ref().err().map(|it| it.report()),
            };
            self.sink.end(parent, begun, about);
        }
    }
}

impl SessionReceiver for TracedSession {
    fn session_id(&self) -> &str {
        self.inner.session_id()
    }

    fn receive(&self, messages_max: usize, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let deliveries = self.inner.receive(messages_max, wait).await?;
            self.received(&deliveries);
            Ok(deliveries)
        })
    }

    fn settle<'a>(
        &'a self,
        deliveries: &'a [Delivery],
        settlement: Settlement,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let outcome = self.inner.settle(deliveries, settlement.clone()).await;
            self.settled(deliveries, &settlement, &outcome);
            outcome
        })
    }

    fn renew(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.renew()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }
}

fn parent_of(message: &Message) -> Option<Parent> {
    match message.properties.get(TRACEPARENT)? {
        PropertyValue::String(text) => Parent::sampled(text),
        PropertyValue::Bool(_)
        | PropertyValue::Integer(_)
        | PropertyValue::Double(_)
        | PropertyValue::Timestamp(_)
        | PropertyValue::Binary(_) => None,
    }
}

/// What a span says of its message; never its body.
fn attributes<'a>(message: &'a Message, destination: &'a str) -> Vec<(&'static str, &'a str)> {
    let mut attributes = vec![
        ("messaging.system", "millstream"),
        ("messaging.destination.name", destination),
        ("messaging.message.id", message.id.as_str()),
    ];
    attributes.extend(message.subject.as_deref().map(|it| ("messaging.millstream.subject", it)));
    attributes
}
