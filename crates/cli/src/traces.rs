//! Traces for whoever wants them: spans of commit, relay, publish and deliver, joined by the
//! `traceparent` that an event carries, sent to a collector with OTLP over HTTP in JSON.
//!
//! Written by hand, because four kinds of span with known parents need no framework of their own:
//! `span` is what is sent, `exporter` sends it, `ports` finds out what there is to tell.
//!
//! Nothing waits for a collector: spans wait in a queue of fixed length, and what does not fit or
//! cannot be sent is counted and dropped.

mod containers;
mod exporter;
mod ports;
mod span;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_core::{Clock, Container, Containers, IdSource, Subscriber, Timestamp};
use millstream_relay::RelayObserver;
use tokio::sync::mpsc;

use crate::config::TracesConfig;
use crate::failure::Result;
use crate::traces::containers::TracedContainers;
pub(crate) use crate::traces::exporter::{Exporter, check};
use crate::traces::ports::{ObservedRelay, TracedDocuments, TracedSubscriber};
use crate::traces::span::{Kind, Parent, Span};

/// Spans that wait for the exporter.
const QUEUE_SPANS_MAX: usize = 8192;

/// Takes spans. A cheap clone; without an endpoint it takes nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces {
    sink: Option<Sink>,
}

#[derive(Clone)]
struct Sink {
    queue: mpsc::Sender<Span>,
    dropped: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

/// When something began.
#[derive(Clone, Copy, Debug)]
struct Begun {
    at: Timestamp,
    monotonic: Duration,
}

/// What a span is about.
#[derive(Debug)]
struct About<'a> {
    name: String,
    kind: Kind,
    attributes: Vec<(&'static str, &'a str)>,
    /// Why it failed.
    error: Option<String>,
}

impl Traces {
    /// Traces as the configuration wants them, and what must run to send them.
    pub(crate) fn new(
        config: &TracesConfig,
        clock: &Arc<dyn Clock>,
        ids: &Arc<dyn IdSource>,
    ) -> Result<(Self, Option<Exporter>)> {
        let Some(endpoint) = &config.endpoint else { return Ok((Self::default(), None)) };
        let (queue, spans) = mpsc::channel(QUEUE_SPANS_MAX);
        let dropped: Arc<AtomicU64> = Arc::default();
        let (clock, ids) = (Arc::clone(clock), Arc::clone(ids));
        let exporter =
            Exporter::new(endpoint, config, spans, Arc::clone(&dropped), Arc::clone(&clock))?;
        Ok((Self { sink: Some(Sink { queue, dropped, clock, ids }) }, Some(exporter)))
    }

    /// The same store, with containers whose commits are traced.
    pub(crate) fn containers(&self, inner: Arc<dyn Containers>) -> Arc<dyn Containers> {
        match &self.sink {
            Some(_) => Arc::new(TracedContainers { inner, traces: self.clone() }),
            None => inner,
        }
    }

    /// The same container, whose commits are traced.
    pub(crate) fn container(&self, container: Container) -> Container {
        let Some(sink) = &self.sink else { return container };
        let name = container.info.name.to_string();
        let inner = Arc::clone(&container.documents);
        let documents = Arc::new(TracedDocuments { inner, sink: sink.clone(), name });
        Container { documents, ..container }
    }

    /// The same subscriber, whose messages are traced until they are settled.
    pub(crate) fn subscriber(
        &self,
        subscriber: Arc<dyn Subscriber>,
        path: &str,
    ) -> Arc<dyn Subscriber> {
        let Some(sink) = &self.sink else { return subscriber };
        let (sink, path) = (sink.clone(), path.to_owned());
        Arc::new(TracedSubscriber { inner: subscriber, sink, path })
    }

    /// What traces the messages of a relay.
    pub(crate) fn relay(&self, name: &str) -> Option<Arc<dyn RelayObserver>> {
        let sink = self.sink.clone()?;
        Some(Arc::new(ObservedRelay { sink, relay: name.to_owned() }))
    }

    /// Spans that nobody got, since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.sink.as_ref().map_or(0, |it| it.dropped.load(Ordering::Relaxed))
    }
}

impl Sink {
    fn begin(&self) -> Begun {
        Begun { at: self.clock.now(), monotonic: self.clock.monotonic() }
    }

    /// A span that ends now. Returns its id, so that others can be inside it.
    fn end(&self, parent: Parent, begun: Begun, about: About<'_>) -> [u8; 8] {
        let lasted = self.clock.monotonic().saturating_sub(begun.monotonic);
        self.span(parent, begun.at, lasted, about)
    }

    fn span(&self, parent: Parent, at: Timestamp, lasted: Duration, about: About<'_>) -> [u8; 8] {
        let id = self.ids.next_id().as_u64_pair().1.to_be_bytes();
        let span = Span::new(id, parent, at, lasted, about);
        if self.queue.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        id
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").field("dropped", &self.dropped).finish_non_exhaustive()
    }
}
