use bytes::Bytes;
use millstream_core::{Clock, Item, KeyRange, PartitionKey, PartitionKeyDefinition};

use crate::{Parameters, ResumeFilter};

/// What one page of a query is asked of.
///
/// Required things are arguments of [`Request::new`]; the rest has defaults.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub(crate) definition: &'a PartitionKeyDefinition,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) scope: Option<&'a Scope>,
    pub(crate) parameters: Option<&'a Parameters>,
    pub(crate) resume: Option<&'a ResumeFilter>,
    pub(crate) limits: Limits,
    pub(crate) continuation: Option<&'a str>,
    pub(crate) container: Option<&'a str>,
    pub(crate) present: Option<&'a (dyn Fn(&Item) -> Bytes + Sync)>,
}

/// Which items of the container a query may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Only items of this logical partition, or whose key begins with these components.
    pub partition: Option<PartitionKey>,
    /// Only items whose effective partition key lies in here.
    pub keys: KeyRange,
}

/// How much one page may hold and cost.
///
/// A page ends, with a continuation, at the first of the limits it reaches. A query whose first row
/// needs a look at everything (ORDER BY, GROUP BY) cannot stop in between: for each page it goes on
/// to `pass_documents_max` and is refused beyond. DISTINCT stops when its page is full, and looks
/// again at what lies before for the next one. What is kept of it all is little more than the rows
/// of the page, and those that OFFSET leaves out before them. ORDER BY or DISTINCT together with
/// GROUP BY, DISTINCT with ORDER BY by what is not selected, and queries over such queries keep
/// everything, up to `held_bytes_max`. What aggregates have in all groups that are kept counts as
/// well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows after which the page ends; at least 1. Default: 100.
    pub items_max: usize,
    /// Bytes of rows after which the page ends; one row is always returned. Default: 4 MiB.
    pub bytes_max: usize,
    /// Documents after which the page ends, even if it is empty. Default: 20 000.
    pub documents_max: u64,
    /// Documents a query that needs a look at everything may visit for a page. Default: 1 000 000.
    pub pass_documents_max: u64,
    /// Steps of evaluation for one page; more is refused. Guards against joins of large arrays.
    /// A page that can end anywhere ends after a sixteenth of them. Default: 400 million, which
    /// take seconds.
    pub steps_max: u64,
    /// Steps of evaluation for one document, and for what is done once after the last one; more is
    /// refused, since nobody else gets the thread in between. Default: 20 million, which take less
    /// than a second.
    pub document_steps_max: u64,
    /// Bytes of memory that rows of a query which sorts or groups, and what its aggregates have,
    /// may take up, and that what it makes of one item may: the arrays, objects and strings of its
    /// functions, and the rows of queries within the item. A page of rows in order, or of groups,
    /// ends earlier if it needs more; other queries are refused. Default: 64 MiB.
    pub held_bytes_max: usize,
    /// Bytes that one row may have as JSON; more is refused, and so is a value of more bytes that
    /// is compared, told from others or kept. A row may be longer than `bytes_max`; this guards
    /// against one that repeats a value very often. Default: 64 MiB.
    pub row_bytes_max: usize,
    /// Bytes a continuation should have at most; SDKs of JavaScript ask for 1024. It may be longer
    /// if ids and keys are. Default: 8192.
    pub continuation_bytes_max: usize,
}

/// A page of results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The rows, each as JSON.
    pub rows: Vec<String>,
    /// Where to go on; none at the end. A page may be empty although more will come.
    pub continuation: Option<String>,
    /// How many documents were looked at, for the charge of the request.
    pub documents_visited: u64,
    /// How many of these had to be read; counting documents needs none of them.
    pub documents_read: u64,
    /// How many bytes the bodies of those had.
    pub bytes_visited: u64,
}

impl<'a> Request<'a> {
    /// The first page of a query without parameters over the whole container.
    #[must_use]
    pub fn new(definition: &'a PartitionKeyDefinition, clock: &'a dyn Clock) -> Self {
        Self {
            definition,
            clock,
            scope: None,
            parameters: None,
            resume: None,
            limits: Limits::default(),
            continuation: None,
            container: None,
            present: None,
        }
    }

    /// Restricts the query to some of the items. Default: all.
    #[must_use]
    pub fn with_scope(mut self, scope: &'a Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// The values of `@names` in the query. Default: none.
    #[must_use]
    pub fn with_parameters(mut self, parameters: &'a Parameters) -> Self {
        self.parameters = Some(parameters);
        self
    }

    /// Where an ORDER BY query goes on, as SDKs say it beside the query. Default: at the start.
    #[must_use]
    pub fn with_resume_filter(mut self, resume: &'a ResumeFilter) -> Self {
        self.resume = Some(resume);
        self
    }

    /// The size of the page.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The continuation of the page before. Default: the first page.
    #[must_use]
    pub fn with_continuation(mut self, continuation: &'a str) -> Self {
        self.continuation = Some(continuation);
        self
    }

    /// Names the container, for example by its resource id. Continuations are bound to it, so that
    /// one of another container is refused. Default: they fit any container.
    #[must_use]
    pub fn with_container(mut self, container: &'a str) -> Self {
        self.container = Some(container);
        self
    }

    /// Makes the JSON object that queries see of an item, for example its body with `_ts` and
    /// `_etag`. Default: the body.
    #[must_use]
    pub fn with_presentation(mut self, present: &'a (dyn Fn(&Item) -> Bytes + Sync)) -> Self {
        self.present = Some(present);
        self
    }
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("scope", &self.scope)
            .field("limits", &self.limits)
            .field("continuation", &self.continuation)
            .finish_non_exhaustive()
    }
}

impl Scope {
    /// The whole container.
    #[must_use]
    pub fn all() -> Self {
        Self { partition: None, keys: KeyRange::all() }
    }

    /// A logical partition, or all that begin with this key.
    #[must_use]
    pub fn partition(key: PartitionKey) -> Self {
        Self { partition: Some(key), keys: KeyRange::all() }
    }

    /// A range of the effective partition key space.
    #[must_use]
    pub fn keys(keys: KeyRange) -> Self {
        Self { partition: None, keys }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            items_max: 100,
            bytes_max: 4 * 1024 * 1024,
            documents_max: 20_000,
            pass_documents_max: 1_000_000,
            steps_max: 400_000_000,
            document_steps_max: 20_000_000,
            held_bytes_max: 64 * 1024 * 1024,
            row_bytes_max: 64 * 1024 * 1024,
            continuation_bytes_max: 8192,
        }
    }
}

impl Limits {
    /// Pages of that many rows.
    #[must_use]
    pub fn items(items_max: usize) -> Self {
        Self { items_max, ..Self::default() }
    }
}
