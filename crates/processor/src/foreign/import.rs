mod survey;

use std::fmt;
use std::sync::Arc;

use millstream_core::{
    Clock, Container, Continuation, FeedMode, KeyRange, PageSize, StartFrom, SystemClock,
};
use serde_json::{Map, Value, json};

use crate::error::{Error, ErrorKind, Result};
use crate::foreign::document::{ForeignLease, ForeignPosition};
use crate::foreign::foreign_store::{CALL_TIMEOUT, ForeignStore, bounded};
use crate::foreign::import::survey::Survey;
use crate::foreign::layout::{Layout, Piece, lay_out};
use crate::foreign::position::{NumberedPositions, PositionTranslator, refusal};
use crate::foreign::report::{Problem, refuse};
use crate::lease_store::{LeaseStore, Stored};
use crate::stored::schema::Schema;
use crate::stored::{Control, Lease, Root};

/// The start position in the control document of a processor that was imported.
const START: &str = "import";
/// The field of the control document that holds the prefix of the imported leases.
const IMPORTED_FROM: &str = "importedFrom";

/// Makes leases of a processor from those that a processor of .NET or Java has kept.
///
/// Stop the old hosts first. What one of them handles after the import is handled again; nothing is
/// lost. The old leases stay as they are, so that the old processor can go on with them, from where
/// it stopped or from where [`Export`](crate::foreign::Export) puts it.
///
/// ```
/// # use std::sync::Arc;
/// # use millstream_core::*;
/// # use millstream_core::conformance::block_on;
/// use millstream_processor::foreign::Import;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = memory::Memory::new(Arc::new(SystemClock::default()));
/// # block_on(async {
/// # store.create_database("app").await?;
/// # let by = |path| PartitionKeyDefinition::hash(path).map(ContainerSettings::new);
/// # for (name, path) in [("orders", "/customer"), ("old", "/id"), ("leases", "/id")] {
/// #     store.create(&ContainerName::new("app", name)?, by(path)?).await?;
/// # }
/// # let orders = store.open(&ContainerName::new("app", "orders")?).await?;
/// # let old = store.open(&ContainerName::new("app", "old")?).await?;
/// # let leases = store.open(&ContainerName::new("app", "leases")?).await?;
/// let prefix = "billingexample.documents.azure.com_app_orders";
/// let lease = format!(r#"{{"id":"{prefix}..0","LeaseToken":"0","ContinuationToken":"\"0\""}}"#);
/// old.documents.commit(Batch::new(format!("{prefix}..0")).with(Operation::create(lease))).await?;
///
/// let import = Import::new(&old, &orders, &leases, "billing", prefix);
/// let report = import.dry_run().await?;
/// assert!(report.problems.is_empty(), "{:?}", report.problems);
/// import.apply().await?;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
pub struct Import {
    source: Container,
    feed: Container,
    leases: Container,
    processor: String,
    prefix: String,
    clock: Arc<dyn Clock>,
    positions: Arc<dyn PositionTranslator>,
    expected_rid: Option<String>,
    mode: Option<FeedMode>,
    unstarted: StartFrom,
}

/// What an import does or would do.
#[derive(Clone, Debug)]
pub struct ImportReport {
    /// How far the import is.
    pub state: ImportState,
    /// The mode of the feed, if it is known.
    pub mode: Option<FeedMode>,
    /// The leases of our processor, in key order.
    pub leases: Vec<ImportedLease>,
    /// Keys that no lease of the source holds.
    pub holes: Vec<KeyRange>,
    /// Keys that several leases of the source hold.
    pub overlaps: Vec<KeyRange>,
    /// What an operator should know; the import is possible all the same.
    pub warnings: Vec<String>,
    /// Why nothing can be imported. Empty if it can.
    pub problems: Vec<Problem>,
}

/// How far an import is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportState {
    /// Nothing was written.
    Planned,
    /// The positions are fixed, but not all leases were created; apply again.
    Interrupted,
    /// The processor has its leases.
    Applied,
}

/// A lease of ours with the position it begins at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedLease {
    /// The id of the lease it comes from; none once the positions are fixed in our own documents.
    pub source: Option<String>,
    /// Its keys.
    pub keys: KeyRange,
    /// Where processing goes on.
    pub position: Continuation,
}

/// A report with what is needed to act upon it.
struct Prepared {
    store: LeaseStore,
    source: ForeignStore,
    control: Option<Stored<Control>>,
    report: ImportReport,
}

impl Import {
    /// An import into the processor `processor`, whose leases are in `leases` and which reads the
    /// feed of `feed`. It takes the leases in `source` whose ids begin with `prefix`, which is
    /// everything before the two dots.
    #[must_use]
    pub fn new(
        source: &Container,
        feed: &Container,
        leases: &Container,
        processor: &str,
        prefix: &str,
    ) -> Self {
        Self {
            source: source.clone(),
            feed: feed.clone(),
            leases: leases.clone(),
            processor: processor.to_owned(),
            prefix: prefix.to_owned(),
            clock: Arc::new(SystemClock::default()),
            positions: Arc::new(NumberedPositions::new(&feed.info)),
            expected_rid: None,
            mode: None,
            unstarted: StartFrom::Beginning,
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

    /// Refuses leases that were made for a container with another resource id, such as an earlier
    /// one of the same name. Default: not checked, which the report warns of.
    #[must_use]
    pub fn expected_rid(mut self, value: impl Into<String>) -> Self {
        self.expected_rid = Some(value.into());
        self
    }

    /// Refuses leases of another mode. Only needed where no lease says its mode. Default: what the
    /// leases say.
    #[must_use]
    pub fn mode(mut self, value: FeedMode) -> Self {
        self.mode = Some(value);
        self
    }

    /// Where leases begin that never handled anything and do not say. Default: at the beginning,
    /// which may repeat changes and loses none.
    #[must_use]
    pub fn unstarted(mut self, value: StartFrom) -> Self {
        self.unstarted = value;
        self
    }

    /// Says what [`Import::apply`] would do, and what is in its way. Writes nothing.
    ///
    /// # Errors
    ///
    /// Those of the containers. What is wrong with the leases is in the report.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn dry_run(&self) -> Result<ImportReport> {
        Ok(self.prepare().await?.report)
    }

    /// Creates our leases and notes the import in the source. Applied again it completes what a
    /// crash left undone, and otherwise changes nothing.
    ///
    /// # Errors
    ///
    /// The kind of the first problem if there is one in the report of [`Import::dry_run`], and
    /// nothing was written; those of the containers otherwise.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the import undone, interrupted or done; apply it again.
    pub async fn apply(&self) -> Result<ImportReport> {
        let Prepared { store, source, control, mut report } = self.prepare().await?;
        let attempted = format!("import the leases \"{}\"", self.prefix);
        refuse(attempted, &report.problems)?;
        let control = match control {
            Some(control) => control,
            None => store.create(self.new_control(&report)).await?,
        };
        complete(&store, control).await?;
        self.note(&source, report.leases.len()).await?;
        report.state = ImportState::Applied;
        Ok(report)
    }

    async fn prepare(&self) -> Result<Prepared> {
        let clock = Arc::clone(&self.clock);
        let store = LeaseStore::new(&self.leases, &self.processor, clock, CALL_TIMEOUT)?;
        let source = ForeignStore::new(&self.source, &self.prefix, Arc::clone(&self.clock))?;
        let listing = store.list().await?;
        let (control, report) = match listing.control {
            Some(control) => {
                let report = self.earlier(&control.document);
                (Some(control), report)
            }
            None => {
                let mut report = self.plan(&source).await?;
                if !listing.leases.is_empty() {
                    let text = format!(
                        "the processor \"{}\" has leases but no control document; choose another \
                         name",
                        self.processor
                    );
                    report.problems.push(Problem::invalid(text));
                }
                (None, report)
            }
        };
        Ok(Prepared { store, source, control, report })
    }

    /// What an import that was begun before has fixed.
    fn earlier(&self, control: &Control) -> ImportReport {
        let mut report = ImportReport::empty();
        let imported_from = control.unknown.get(IMPORTED_FROM).and_then(Value::as_str);
        if control.start != START || imported_from != Some(&self.prefix) {
            let text = format!(
                "the processor \"{}\" has leases already, and not from this import; choose another \
                 name",
                self.processor
            );
            report.problems.push(Problem::invalid(text));
            return report;
        }
        if control.container != self.feed.info.resource_id.incarnation() {
            let text = "the leases were imported for an earlier container of this name";
            report.problems.push(Problem::new(ErrorKind::ContainerRecreated, text));
        }
        report.state = match control.complete {
            true => ImportState::Applied,
            false => ImportState::Interrupted,
        };
        report.mode = Some(control.mode.into());
        for root in &control.roots {
            match Continuation::new(root.position.as_str()) {
                Ok(position) => {
                    report.leases.push(ImportedLease {
                        source: None,
                        keys: root.keys.clone(),
                        position,
                    });
                }
                Err(error) => report.problems.push(Problem::invalid(error.report())),
            }
        }
        report
    }

    /// What the leases of the source mean for the ranges of the feed.
    async fn plan(&self, source: &ForeignStore) -> Result<ImportReport> {
        let mut found = source.list().await?;
        // The ranges are read after the leases: a range that is split in between is then one that
        // is known to be split.
        let ranges = bounded(&*self.clock, "list the ranges", self.feed.feed.ranges()).await?;
        let mut report = ImportReport::empty();
        let expected = self.expected_rid.as_deref();
        Survey { prefix: &self.prefix, expected_rid: expected, asked: self.mode }
            .look(&found, &mut report);
        let leases: Vec<ForeignLease> = found.leases.into_iter().map(|it| it.lease).collect();
        if leases.is_empty() {
            report.problems.append(&mut found.problems);
            return Ok(report);
        }
        let Layout { pieces, coverage, problems } = lay_out(&leases, &ranges);
        report.holes = coverage.holes;
        report.overlaps = coverage.overlaps;
        // Leases that were not understood leave holes that are none.
        if found.problems.is_empty() && problems.is_empty() {
            report.problems.extend(coverage.problems);
        }
        report.problems.append(&mut found.problems);
        report.problems.extend(problems);
        let Some(mode) = report.mode else { return Ok(report) };
        for piece in pieces {
            self.locate(&leases[piece.lease], piece, mode, &mut report).await?;
        }
        Ok(report)
    }

    /// Finds the position of a piece, and asks the feed whether it can go on from there.
    async fn locate(
        &self,
        lease: &ForeignLease,
        piece: Piece,
        mode: FeedMode,
        report: &mut ImportReport,
    ) -> Result<()> {
        let keys = piece.keys;
        let outcome = match &lease.position {
            ForeignPosition::Etag(etag) => self.resume(&keys, etag, mode).await,
            ForeignPosition::Start(from) => self.pin(&keys, *from, mode).await,
            ForeignPosition::NotStarted => {
                report.warnings.push(format!(
                    "the lease \"{}\" has no position; {keys} starts from {}",
                    lease.id,
                    start_text(self.unstarted)
                ));
                self.pin(&keys, self.unstarted, mode).await
            }
        };
        let error = match outcome {
            Ok(position) => {
                let source = Some(lease.id.clone());
                report.leases.push(ImportedLease { source, keys, position });
                return Ok(());
            }
            Err(error) => error,
        };
        let Some(kind) = refusal(&keys, error.kind()) else { return Err(error) };
        let text = format!("the lease \"{}\": {}", lease.id, error.report());
        report.problems.push(Problem::new(kind, text));
        Ok(())
    }

    async fn resume(&self, keys: &KeyRange, etag: &str, mode: FeedMode) -> Result<Continuation> {
        let position = self.positions.from_etag(keys, etag, mode)?;
        let what = format!("read {keys} from {etag}");
        let read = self.feed.feed.read(keys, &position, PageSize::items(1));
        let page = bounded(&*self.clock, &what, read).await?;
        if self.positions.is_beyond(&position, page.newest) {
            let reason = format!(
                "the newest commit is {}: the position comes from another container",
                page.newest
            );
            return Err(Error::new(ErrorKind::ContainerRecreated, what).because(reason));
        }
        Ok(position)
    }

    async fn pin(&self, keys: &KeyRange, from: StartFrom, mode: FeedMode) -> Result<Continuation> {
        let what = format!("start reading {keys}");
        bounded(&*self.clock, &what, self.feed.feed.start(keys, from, mode)).await
    }

    fn new_control(&self, report: &ImportReport) -> Control {
        let root = |it: &ImportedLease| Root {
            keys: it.keys.clone(),
            position: it.position.to_string(),
            resets: 0,
        };
        let mut unknown = Map::new();
        unknown.insert(IMPORTED_FROM.to_owned(), Value::from(self.prefix.as_str()));
        let mode = report.mode.expect("a report without problems has a mode");
        Control {
            schema: Schema::default(),
            epoch: 0,
            container: self.feed.info.resource_id.incarnation(),
            mode: mode.into(),
            start: START.to_owned(),
            roots: report.leases.iter().map(root).collect(),
            complete: false,
            paused: false,
            redrives: 0,
            resets: 0,
            postpones: false,
            unknown,
        }
    }

    /// Leaves a note beside the leases that were imported.
    async fn note(&self, source: &ForeignStore, leases: usize) -> Result<()> {
        let mut fields = Map::new();
        fields.insert("importedAt".to_owned(), json!(self.clock.now().to_rfc3339()));
        fields.insert("processor".to_owned(), json!(self.processor));
        fields.insert("leases".to_owned(), json!(leases));
        let id = format!("{}.imported", self.prefix);
        match source.create(&id, fields.clone()).await {
            Err(error) if *error.kind() == ErrorKind::Conflict => {
                // An import repeated is the same import; another processor is another one.
                let found = source.list().await?;
                if found.imported_by.as_ref() == Some(&self.processor) {
                    return Ok(());
                }
                source.put(&id, fields).await
            }
            outcome => outcome,
        }
    }
}

/// Creates the leases of all roots, then says so in the control document.
///
/// The control document has the positions, so this can be done again, and by an instance of the
/// processor too.
async fn complete(store: &LeaseStore, mut control: Stored<Control>) -> Result<()> {
    const ATTEMPTS_MAX: usize = 5;
    for _ in 0..ATTEMPTS_MAX {
        if control.document.complete {
            return Ok(());
        }
        let Control { container, mode, ref roots, .. } = control.document;
        for root in roots {
            let lease = Lease::new(container, mode, root.keys.clone(), root.position.clone());
            match store.create(lease).await {
                Err(error) if *error.kind() != ErrorKind::Conflict => return Err(error),
                Ok(_) | Err(_) => (),
            }
        }
        let completed = Control { complete: true, ..control.document };
        match store.replace(completed, &control.etag).await {
            Err(error) if *error.kind() == ErrorKind::Conflict => (),
            outcome => return outcome.map(|_| ()),
        }
        control = store.read_control().await?.ok_or_else(|| {
            Error::new(ErrorKind::Conflict, "complete the import")
                .because("the control document was removed")
        })?;
    }
    Err(Error::new(ErrorKind::Conflict, "complete the import")
        .because("the control document changes all the time"))
}

fn start_text(from: StartFrom) -> String {
    match from {
        StartFrom::Beginning => "the beginning".to_owned(),
        StartFrom::Now => "now".to_owned(),
        StartFrom::Time(time) => time.to_rfc3339(),
    }
}

impl ImportReport {
    fn empty() -> Self {
        Self {
            state: ImportState::Planned,
            mode: None,
            leases: Vec::new(),
            holes: Vec::new(),
            overlaps: Vec::new(),
            warnings: Vec::new(),
            problems: Vec::new(),
        }
    }
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import")
            .field("processor", &self.processor)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
