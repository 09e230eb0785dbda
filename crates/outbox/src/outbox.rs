use std::fmt;
use std::sync::Arc;

use millstream_core::{
    BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, BoxFuture, Capabilities, Clock, Container, Documents,
    ITEM_BYTES_MAX, IdSource, TimeToLive,
};

use crate::document::Layout;
use crate::event::Stamps;
use crate::flaw::Flaw;
use crate::handler::Closure;
use crate::plan::Form;
use crate::{
    Changes, Error, EventHandler, HandlerError, RaisedEvent, Result, TraceSource, UnitOfWork,
};

/// A container that entities are committed to together with their events. Clones are cheap and
/// share everything; any number of tasks may use one.
#[derive(Clone)]
pub struct Outbox {
    pub(crate) documents: Arc<dyn Documents>,
    pub(crate) stamps: Arc<Stamps>,
    pub(crate) form: Arc<Form>,
    pub(crate) handlers: Arc<[Arc<dyn EventHandler>]>,
    pub(crate) flaw: Option<Flaw>,
}

/// How large a commit may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most documents.
    pub operations_max: usize,
    /// Most bytes of all documents.
    pub batch_bytes_max: usize,
    /// Most bytes of one document.
    pub item_bytes_max: usize,
}

/// Settings of an [`Outbox`].
#[derive(Clone)]
pub struct OutboxOptions {
    event_ttl: TimeToLive,
    limits: Limits,
    trace: Option<Arc<dyn TraceSource>>,
}

impl Outbox {
    /// An outbox with the default options; see [`Outbox::new_with`].
    ///
    /// # Errors
    ///
    /// As [`Outbox::new_with`].
    pub fn new(
        container: &Container,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self> {
        Self::new_with(container, clock, ids, OutboxOptions::default())
    }

    /// An outbox in a container, which says what its events are called and where the partition key
    /// stands.
    ///
    /// # Errors
    ///
    /// `Invalid` if the container has no event type, no TTL though events have one, or a partition
    /// key that is in the way of our documents.
    pub fn new_with(
        container: &Container,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        options: OutboxOptions,
    ) -> Result<Self> {
        let settings = &container.info.settings;
        let refused = |reason: &str| {
            let attempted = format!("use container \"{}\" as outbox", container.info.name);
            Err(Error::invalid(attempted, reason))
        };
        let Some(event_type) = settings.event_type.clone() else {
            return refused("it has no event type, so its events would have no numbers");
        };
        if settings.default_ttl.is_none() && options.event_ttl != TimeToLive::Never {
            return refused(
                "nothing in it expires, so its events would stay for ever; create it with the \
                 default TTL -1, or say event_ttl(TimeToLive::Never)",
            );
        }
        let layout = Layout::of(settings)?;
        let (event_ttl, limits) = (options.event_ttl, options.limits);
        Ok(Self {
            documents: Arc::clone(&container.documents),
            stamps: Arc::new(Stamps { clock, ids, trace: options.trace }),
            form: Arc::new(Form { layout, event_type, event_ttl, limits }),
            handlers: Arc::new([]),
            flaw: None,
        })
    }

    /// Plants a bug, so that a simulation can show that it would find it.
    #[cfg(feature = "planted-flaws")]
    #[must_use]
    pub fn flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// Adds a handler that hears of every event before it is committed; handlers are called in the
    /// order they were added. Default: none.
    #[must_use]
    pub fn on_event(mut self, handler: impl EventHandler + 'static) -> Self {
        let new: Arc<dyn EventHandler> = Arc::new(handler);
        self.handlers = self.handlers.iter().cloned().chain([new]).collect();
        self
    }

    /// Adds a closure as handler, as [`Outbox::on_event`] does:
    /// `|event, changes| Box::pin(async move { … })`.
    #[must_use]
    pub fn on_event_fn<F>(self, handler: F) -> Self
    where
        F: for<'a> Fn(&'a RaisedEvent, &'a mut Changes) -> BoxFuture<'a, Result<(), HandlerError>>
            + Send
            + Sync
            + 'static,
    {
        self.on_event(Closure(handler))
    }

    /// An empty unit of work.
    #[must_use]
    pub fn unit(&self) -> UnitOfWork {
        UnitOfWork::new(self.clone())
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handlers = self.handlers.len();
        f.debug_struct("Outbox")
            .field("form", &self.form)
            .field("handlers", &handlers)
            .finish_non_exhaustive()
    }
}

impl Default for Limits {
    /// Those of every backend: 100 documents, 2 MiB.
    fn default() -> Self {
        Self {
            operations_max: BATCH_OPERATIONS_MAX,
            batch_bytes_max: BATCH_BYTES_MAX,
            item_bytes_max: ITEM_BYTES_MAX,
        }
    }
}

impl From<&Capabilities> for Limits {
    fn from(capabilities: &Capabilities) -> Self {
        Self {
            operations_max: capabilities.batch_operations_max,
            batch_bytes_max: capabilities.batch_bytes_max,
            item_bytes_max: capabilities.item_bytes_max,
        }
    }
}

impl OutboxOptions {
    /// How long an event is kept after its commit, and after its delivery is due if it is held
    /// back.
    ///
    /// It must be longer than the longest outage of whatever reads the events. Default: 10 days.
    #[must_use]
    pub fn event_ttl(mut self, value: TimeToLive) -> Self {
        self.event_ttl = value;
        self
    }

    /// How large a commit may be, if the backend takes less than 100 documents and 2 MiB. Default:
    /// those.
    #[must_use]
    pub fn limits(mut self, value: Limits) -> Self {
        self.limits = value;
        self
    }

    /// Where the trace of an event comes from. Default: events have none.
    #[must_use]
    pub fn trace(mut self, source: impl TraceSource + 'static) -> Self {
        self.trace = Some(Arc::new(source));
        self
    }
}

impl Default for OutboxOptions {
    fn default() -> Self {
        let event_ttl = TimeToLive::Seconds(10 * 24 * 3600);
        Self { event_ttl, limits: Limits::default(), trace: None }
    }
}

impl fmt::Debug for OutboxOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxOptions")
            .field("event_ttl", &self.event_ttl)
            .field("limits", &self.limits)
            .field("trace", &self.trace.is_some())
            .finish()
    }
}
