mod render;

use std::fmt;
use std::sync::Arc;

use millstream_core::{Clock, Container, FeedMode, KeyRange, RangeInfo, SystemClock};
use serde_json::{Map, Value};

use crate::error::{ErrorKind, Result};
use crate::foreign::document::{ForeignPosition, ForeignScope, SEPARATOR};
use crate::foreign::export::render::Render;
use crate::foreign::foreign_store::{CALL_TIMEOUT, ForeignStore, Found, FoundLease, bounded};
use crate::foreign::form::ForeignForm;
use crate::foreign::layout::{coverage, order};
use crate::foreign::position::{NumberedPositions, PositionTranslator};
use crate::foreign::report::{Problem, refuse};
use crate::lease_store::{LeaseStore, Listing};
use crate::stored::{Control, Lease, LeaseState, lease_token};

/// Writes the positions of a processor into leases that a processor of .NET or Java goes on from.
///
/// Stop our instances first; what one of them handles after the export is handled again by the
/// other processor. Our leases stay as they are. Parked changes stay parked: they lie before the
/// positions.
#[derive(Clone)]
pub struct Export {
    feed: Container,
    leases: Container,
    processor: String,
    target: Container,
    prefix: String,
    form: ForeignForm,
    clock: Arc<dyn Clock>,
    positions: Arc<dyn PositionTranslator>,
}

/// What an export does or would do.
#[derive(Clone, Debug)]
pub struct ExportReport {
    /// Whether it was done.
    pub applied: bool,
    /// The leases of the other processor, in key order.
    pub leases: Vec<ExportedLease>,
    /// What an operator should know; the export is possible all the same.
    pub warnings: Vec<String>,
    /// Why nothing can be exported. Empty if it can.
    pub problems: Vec<Problem>,
}

/// A lease of the other processor with the position it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedLease {
    /// The id of its document.
    pub id: String,
    /// Its keys.
    pub keys: KeyRange,
    /// The etag the other processor goes on from, with quotes.
    pub etag: String,
    /// What happens to its document.
    pub write: TargetWrite,
}

/// What happens to a document of the other processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetWrite {
    /// It does not exist and is created.
    Create,
    /// It gets another position and loses its owner; all else is kept.
    Replace,
    /// It says the same already.
    Nothing,
}

/// A report with what is needed to act upon it.
struct Prepared {
    target: ForeignStore,
    found: Found,
    report: ExportReport,
    /// The new content of the documents in the report, in the same order.
    documents: Vec<Map<String, Value>>,
}

/// Everything that was read.
struct View {
    mode: FeedMode,
    leases: Vec<Lease>,
    ranges: Vec<RangeInfo>,
    found: Found,
}

impl Export {
    /// An export from the processor `processor`, whose leases are in `leases` and which reads the
    /// feed of `feed`, into documents of `form` in `target`. Their ids begin with `prefix`, which
    /// is everything before the two dots.
    #[must_use]
    pub fn new(
        feed: &Container,
        leases: &Container,
        processor: &str,
        target: &Container,
        prefix: &str,
        form: ForeignForm,
    ) -> Self {
        Self {
            feed: feed.clone(),
            leases: leases.clone(),
            processor: processor.to_owned(),
            target: target.clone(),
            prefix: prefix.to_owned(),
            form,
            clock: Arc::new(SystemClock::default()),
            positions: Arc::new(NumberedPositions::new(&feed.info)),
        }
    }

    /// Takes the time from another clock. Default: that of the machine.
    #[must_use]
    pub fn clock(mut self, value: Arc<dyn Clock>) -> Self {
        self.clock = value;
        self
    }

    /// Translates positions for a feed that does not number them as [`NumberedPositions`] says.
    #[must_use]
    pub fn positions(mut self, value: Arc<dyn PositionTranslator>) -> Self {
        self.positions = value;
        self
    }

    /// Says what [`Export::apply`] would do, and what is in its way. Writes nothing.
    ///
    /// # Errors
    ///
    /// Those of the containers. What is wrong with the leases is in the report.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn dry_run(&self) -> Result<ExportReport> {
        Ok(self.prepare().await?.report)
    }

    /// Creates the leases of the other processor, or gives those that exist our positions; then
    /// marks them as complete.
    ///
    /// # Errors
    ///
    /// The kind of the first problem if there is one in the report of [`Export::dry_run`], and
    /// nothing was written. `Conflict` if a host of the other processor writes its leases at the
    /// same time: stop it. Those of the containers otherwise.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave some leases written; apply it again.
    pub async fn apply(&self) -> Result<ExportReport> {
        let Prepared { target, found, mut report, documents } = self.prepare().await?;
        let attempted = format!("export the leases of the processor \"{}\"", self.processor);
        refuse(attempted, &report.problems)?;
        for (lease, fields) in report.leases.iter().zip(documents) {
            match found.leases.iter().find(|it| it.lease.id == lease.id) {
                _ if lease.write == TargetWrite::Nothing => (),
                Some(old) => target.replace(&old.item, &fields).await?,
                None => target.create(&lease.id, fields).await?,
            }
        }
        if !found.is_initialised {
            let marker = format!("{}.info", self.prefix);
            match target.create(&marker, Map::new()).await {
                Err(error) if *error.kind() != ErrorKind::Conflict => return Err(error),
                Ok(()) | Err(_) => (),
            }
        }
        report.applied = true;
        Ok(report)
    }

    async fn prepare(&self) -> Result<Prepared> {
        let clock = Arc::clone(&self.clock);
        let store = LeaseStore::new(&self.leases, &self.processor, clock, CALL_TIMEOUT)?;
        let target = ForeignStore::new(&self.target, &self.prefix, Arc::clone(&self.clock))?;
        let mut report = ExportReport {
            applied: false,
            leases: Vec::new(),
            warnings: Vec::new(),
            problems: Vec::new(),
        };
        if self.form.is_java() && !target.is_by_id() {
            let text = "the Java SDK only takes a container that is partitioned by /id";
            report.problems.push(Problem::invalid(text));
        }
        let mut listing = store.list().await?;
        let ranges = bounded(&*self.clock, "list the ranges", self.feed.feed.ranges()).await?;
        let mut found = target.list().await?;
        report.problems.append(&mut found.problems);
        let control = listing.control.take().map(|it| it.document);
        let Some(control) = self.usable(control, &mut report) else {
            return Ok(Prepared { target, found, report, documents: Vec::new() });
        };
        let leases = active(&control, listing, &mut report);
        let view = View { mode: control.mode.into(), leases, ranges, found };
        self.check_target(&view, &mut report);
        let documents = self.plan(&view, &mut report);
        Ok(Prepared { target, found: view.found, report, documents })
    }

    /// The control document, if the leases can be exported at all.
    fn usable(&self, control: Option<Control>, report: &mut ExportReport) -> Option<Control> {
        let problem = match control {
            None => Problem::new(
                ErrorKind::NotFound,
                format!("there is no processor \"{}\"", self.processor),
            ),
            Some(it) if it.container != self.feed.info.resource_id.incarnation() => Problem::new(
                ErrorKind::ContainerRecreated,
                "the leases were made for an earlier container of this name",
            ),
            Some(it) if !it.complete => Problem::invalid(
                "not all leases were created yet: start an instance, or apply the import again",
            ),
            Some(it) if !self.form.supports(it.mode.into()) => Problem::new(
                ErrorKind::ModeMismatch,
                format!("processors of the form {} cannot read all versions", self.form),
            ),
            Some(control) => return Some(control),
        };
        report.problems.push(problem);
        None
    }

    /// What is there already must be of the same SDK and mode, and is named if it stays.
    fn check_target(&self, view: &View, report: &mut ExportReport) {
        for lease in view.found.leases.iter().map(|it| &it.lease) {
            if !is_readable_by(lease.form, self.form) {
                let text = format!(
                    "the lease \"{}\" of the form {} is in the way of leases of the form {}",
                    lease.id, lease.form, self.form
                );
                report.problems.push(Problem::invalid(text));
            }
            if lease.mode.is_some_and(|it| it != view.mode) {
                let text = format!("the lease \"{}\" is of the other mode", lease.id);
                report.problems.push(Problem::new(ErrorKind::ModeMismatch, text));
            }
            if let Some(owner) = &lease.owner {
                report.warnings.push(format!(
                    "the lease \"{}\" is still owned by host {owner:?}; stop it first",
                    lease.id
                ));
            }
        }
        if view.found.is_locked {
            let text = "somebody creates or migrates the leases now, or crashed while doing so; a \
                        processor may wait for that for ever";
            report.warnings.push(text.to_owned());
        }
    }

    fn plan(&self, view: &View, report: &mut ExportReport) -> Vec<Map<String, Value>> {
        let mut documents = Vec::new();
        let mut used = Vec::new();
        for lease in &view.leases {
            let existing = view.found.leases.iter().find(|it| view.holds(it, &lease.keys));
            used.extend(existing.map(|it| it.lease.id.as_str()));
            match self.one(view, lease, existing) {
                Ok((exported, fields)) => {
                    report.leases.push(exported);
                    documents.push(fields);
                }
                Err(problem) => report.problems.push(problem),
            }
        }
        for left in view.found.leases.iter().filter(|it| !used.contains(&it.lease.id.as_str())) {
            report.warnings.push(format!(
                "the lease \"{}\" is for other keys than any of ours and stays as it is; delete it \
                 if its partition still exists, or its changes are handled twice",
                left.lease.id
            ));
        }
        documents
    }

    /// The document of the other processor for one of our leases.
    fn one(
        &self,
        view: &View,
        lease: &Lease,
        existing: Option<&FoundLease>,
    ) -> Result<(ExportedLease, Map<String, Value>), Problem> {
        let name = lease_token(&lease.keys);
        let named = |kind: &ErrorKind, reason: String| {
            Problem::new(kind.clone(), format!("the lease \"{name}\": {reason}"))
        };
        let etag = lease.continuation().and_then(|it| self.positions.to_etag(&it));
        let etag = etag.map_err(|error| named(error.kind(), error.report()))?;
        let (form, token) = match (existing, view.partition_of(&lease.keys)) {
            (Some(found), _) => (found.lease.form, String::new()),
            (None, Some(range)) if self.form.is_by_partition() => (self.form, range.id.to_string()),
            (None, None) if self.form.is_by_partition() => {
                let reason = format!(
                    "its keys {} are not those of one physical partition, and leases of the form \
                     {} are for whole partitions",
                    lease.keys, self.form
                );
                return Err(named(&ErrorKind::Invalid, reason));
            }
            (None, _) => (self.form, format!("{}-{}", lease.keys.min(), lease.keys.max())),
        };
        let id = match existing {
            Some(found) => found.lease.id.clone(),
            None => format!("{}{SEPARATOR}{token}", self.prefix),
        };
        let (mode, keys, etag, container) =
            (view.mode, &lease.keys, etag.as_str(), &self.feed.info.name);
        let render = Render { form, mode, keys, etag, container, now: self.clock.now() };
        let (fields, write) = match existing {
            Some(found) if says(found, etag) => (found.fields.clone(), TargetWrite::Nothing),
            Some(found) => (render.again(&found.fields), TargetWrite::Replace),
            None => (render.first(&token), TargetWrite::Create),
        };
        let exported = ExportedLease { id, keys: lease.keys.clone(), etag: etag.to_owned(), write };
        Ok((exported, fields))
    }
}

impl View {
    /// Whether a lease of the target is for exactly these keys.
    fn holds(&self, found: &FoundLease, keys: &KeyRange) -> bool {
        match &found.lease.scope {
            ForeignScope::Keys(its) => its == keys,
            ForeignScope::Partition { id, .. } => {
                self.partition_of(keys).is_some_and(|it| it.id == *id)
            }
        }
    }

    /// The physical partition that holds exactly these keys.
    fn partition_of(&self, keys: &KeyRange) -> Option<&RangeInfo> {
        self.ranges.iter().find(|it| it.keys == *keys)
    }
}

/// Our leases that are processed now, in key order, which must be all keys once.
fn active(control: &Control, listing: Listing, report: &mut ExportReport) -> Vec<Lease> {
    let leases = listing.leases.into_iter().map(|it| it.document);
    let mut leases: Vec<Lease> = leases
        .filter(|it| it.container == control.container && it.state != LeaseState::Retired)
        .collect();
    leases.sort_by(|left, right| order(&left.keys, &right.keys));
    let before = report.problems.len();
    for lease in &leases {
        let name = lease_token(&lease.keys);
        if lease.state == LeaseState::Splitting {
            let text = format!("the lease \"{name}\": finish the split first: start an instance");
            report.problems.push(Problem::invalid(text));
        }
        if let Some(owner) = &lease.owner {
            report.warnings.push(format!(
                "the lease \"{name}\" is still owned by instance \"{}\"; stop it first",
                owner.instance
            ));
        }
    }
    if report.problems.len() == before {
        let names: Vec<String> = leases.iter().map(|it| lease_token(&it.keys)).collect();
        let named = names.iter().zip(&leases).map(|(name, it)| (name.as_str(), &it.keys));
        report.problems.extend(coverage(named).problems);
    }
    leases
}

/// Whether a lease says already what is to be written.
fn says(found: &FoundLease, etag: &str) -> bool {
    let is_there = matches!(&found.lease.position, ForeignPosition::Etag(it) if it == etag);
    is_there && found.lease.owner.is_none()
}

/// Whether processors of one form go on with leases of the other.
fn is_readable_by(lease: ForeignForm, processor: ForeignForm) -> bool {
    match processor {
        ForeignForm::JavaPk | ForeignForm::JavaEpk | ForeignForm::DotnetLibrary => {
            lease == processor
        }
        ForeignForm::DotnetPk | ForeignForm::DotnetEpk => !lease.is_java(),
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export")
            .field("processor", &self.processor)
            .field("prefix", &self.prefix)
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}
