//! The documents a processor keeps: one control document, one lease per range of keys, one member
//! per instance.
//!
//! Every document says which version of this schema wrote it. Fields that this version does not
//! know are kept when a document is written again.

mod exact;
pub(crate) mod schema;
#[cfg(test)]
mod tests;

use millstream_core::{Continuation, FeedMode, KeyRange, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::stored::schema::{Document, Schema};

/// What all instances of a processor agree on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Control {
    /// The schema of this document.
    pub(crate) schema: Schema,
    /// Increases with every change by an operator.
    pub(crate) epoch: u64,
    /// The container whose feed is processed; a recreated one has another number.
    #[serde(with = "exact")]
    pub(crate) container: u64,
    /// The mode of the feed.
    pub(crate) mode: Mode,
    /// The start position that was asked for, as text.
    pub(crate) start: String,
    /// The ranges at the first start with the positions pinned then, or those of the last reset.
    /// Every lease descends from one.
    pub(crate) roots: Vec<Root>,
    /// Whether a lease for every root has been created.
    pub(crate) complete: bool,
    /// Whether the instances leave their leases alone.
    #[serde(default)]
    pub(crate) paused: bool,
    /// Increases with every request to redrive parked sequences.
    #[serde(default)]
    pub(crate) redrives: u64,
    /// Increases whenever an operator sets positions.
    #[serde(default)]
    pub(crate) resets: u64,
    /// Whether a change was ever put off; until then nobody needs to look for such.
    #[serde(default)]
    pub(crate) postpones: bool,
    /// What a later version added.
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

/// A range at the first start, or at the last reset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Root {
    /// The keys.
    pub(crate) keys: KeyRange,
    /// Where reading begins.
    pub(crate) position: String,
    /// The reset that chose the position; 0 is the first start. A lease below this number has not
    /// been brought to the position yet.
    #[serde(default)]
    pub(crate) resets: u64,
}

/// Which feed is processed, in documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Each live item at its newest version.
    LatestVersion,
    /// Every version, and deletes.
    AllVersions,
}

impl From<FeedMode> for Mode {
    fn from(mode: FeedMode) -> Self {
        match mode {
            FeedMode::LatestVersion => Self::LatestVersion,
            FeedMode::AllVersions => Self::AllVersions,
        }
    }
}

impl From<Mode> for FeedMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::LatestVersion => Self::LatestVersion,
            Mode::AllVersions => Self::AllVersions,
        }
    }
}

/// The right to process the changes of a range of keys, and how far that has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The schema of this document.
    pub schema: Schema,
    /// The container whose feed is processed.
    #[serde(with = "exact")]
    pub container: u64,
    /// The mode of the feed.
    pub mode: Mode,
    /// The keys.
    pub keys: KeyRange,
    /// Everything up to here has been handled.
    pub position: String,
    /// Increases whenever the lease gets another owner or is taken from one.
    pub epoch: u64,
    /// Who processes the range now.
    pub owner: Option<Owner>,
    /// Whether it is processed, being replaced, or replaced by narrower leases.
    pub state: LeaseState,
    /// The keys of the leases that replace this one, while and after it is replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<KeyRange>,
    /// The leases this one came from, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<KeyRange>,
    /// What the handler fails at now, with the attempts so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<Failing>,
    /// Changes per second, smoothed.
    #[serde(default)]
    pub load: f64,
    /// The newest handled change, for people and for the lag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled: Option<Handled>,
    /// Owners since the position last moved; a large number means that nobody gets anywhere.
    #[serde(default)]
    pub owners_since_checkpoint: u32,
    /// Increases when an operator sets the position.
    #[serde(default)]
    pub resets: u64,
    /// What a later version added.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// Whether a lease is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LeaseState {
    /// It is processed by its owner, or waits for one.
    Active,
    /// It is never read again; its children are being created from its position.
    Splitting,
    /// All its children exist. Kept so that nobody creates it or them again.
    Retired,
}

/// One run of one instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// The name of the instance.
    pub instance: String,
    /// Differs with every start of the instance.
    pub incarnation: Uuid,
}

/// The newest handled change of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handled {
    /// Its commit.
    pub lsn: u64,
    /// When it was committed, in milliseconds since 1970 by the clock of the store.
    pub committed_at: u64,
}

/// A change that the handler could not handle yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failing {
    /// The partition key of the first change that failed, as text.
    pub partition_key: String,
    /// Its id.
    pub id: String,
    /// Its commit.
    pub lsn: u64,
    /// How often it has been tried.
    pub attempts: u32,
    /// What the handler said last.
    pub error: String,
}

/// An instance that is running, or was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// The schema of this document.
    pub schema: Schema,
    /// The name of the instance.
    pub instance: String,
    /// Differs with every start.
    pub incarnation: Uuid,
    /// Increases with every heartbeat.
    pub counter: u64,
    /// Fewest leases it wants.
    pub leases_min: usize,
    /// Most leases it takes.
    pub leases_max: Option<usize>,
    /// Whether it takes leases; not while it stops.
    pub accepting: bool,
    /// Leases it held at the last heartbeat.
    #[serde(default)]
    pub leases: usize,
    /// Changes per second over all its leases, smoothed.
    #[serde(default)]
    pub load: f64,
    /// The newest control epoch it has acted upon.
    #[serde(default)]
    pub control_epoch: u64,
    /// The version of this crate.
    pub version: String,
    /// When it wrote this, by its own clock; for people only.
    pub written_at: u64,
    /// What a later version added.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Document for Control {
    const WHAT: &'static str = "control document";

    fn local_id(&self) -> String {
        Self::LOCAL_ID.to_owned()
    }

    fn unknown(&mut self) -> &mut Map<String, Value> {
        &mut self.unknown
    }

    fn declare_reader(&mut self) {
        self.schema.needs(exact::min_reader(self.container));
    }
}

impl Control {
    /// The only control document of a processor.
    pub(crate) const LOCAL_ID: &'static str = "control";

    /// Refuses the number of a container that a store has rounded: it looks like that of another
    /// container than `feed`, which would be told to begin anew.
    pub(crate) fn check_exact_for(&self, feed: u64) -> Result<()> {
        exact::check::<Self>(Self::LOCAL_ID, self.container, feed)
    }
}

impl Document for Lease {
    const WHAT: &'static str = "lease";

    fn local_id(&self) -> String {
        lease_id(self.container, &self.keys)
    }

    fn unknown(&mut self) -> &mut Map<String, Value> {
        &mut self.unknown
    }

    fn declare_reader(&mut self) {
        self.schema.needs(exact::min_reader(self.container));
    }

    fn check_exact(&self, id: &str) -> Result<()> {
        match container_in(id) {
            Some(written) => exact::check::<Self>(id, self.container, written),
            None => Ok(()),
        }
    }
}

impl Lease {
    /// An unowned lease that begins at `position`.
    pub(crate) fn new(container: u64, mode: Mode, keys: KeyRange, position: String) -> Self {
        Self {
            schema: Schema::default(),
            container,
            mode,
            keys,
            position,
            epoch: 0,
            owner: None,
            state: LeaseState::Active,
            children: Vec::new(),
            lineage: Vec::new(),
            failing: Vec::new(),
            load: 0.0,
            handled: None,
            owners_since_checkpoint: 0,
            resets: 0,
            unknown: Map::new(),
        }
    }

    /// A lease for part of the keys of this one, from the same position.
    pub(crate) fn child(&self, keys: KeyRange) -> Self {
        let mut lineage = self.lineage.clone();
        lineage.push(self.keys.clone());
        let held: Vec<Failing> = self.failing.clone();
        Self {
            lineage,
            failing: held,
            handled: self.handled,
            resets: self.resets,
            ..Self::new(self.container, self.mode, keys, self.position.clone())
        }
    }

    /// The position as the feed takes it.
    pub(crate) fn continuation(&self) -> Result<Continuation> {
        Continuation::new(self.position.as_str()).map_err(|error| {
            Error::store(format!("use the position of the lease {}", self.keys), error)
        })
    }
}

impl Handled {
    /// What is known of a change.
    pub(crate) fn of(change: &millstream_core::Change) -> Self {
        Self { lsn: change.lsn.as_u64(), committed_at: change.committed_at.as_millis() }
    }

    /// When it was committed, by the clock of the store.
    #[must_use]
    pub fn committed_at(&self) -> Timestamp {
        Timestamp::from_millis(self.committed_at)
    }
}

impl Document for Member {
    const WHAT: &'static str = "member";

    fn local_id(&self) -> String {
        member_id(&self.instance)
    }

    fn unknown(&mut self) -> &mut Map<String, Value> {
        &mut self.unknown
    }
}

impl Member {
    /// Which run of which instance it is.
    pub(crate) fn owner(&self) -> Owner {
        Owner { instance: self.instance.clone(), incarnation: self.incarnation }
    }
}

/// What the local ids of leases begin with.
pub(crate) const LEASE_PREFIX: &str = "lease:";
/// What the local ids of members begin with. It sorts after that of leases: a listing in the order
/// of ids shows the member of every owner it has shown.
pub(crate) const MEMBER_PREFIX: &str = "member:";

/// The local id of the lease of these keys.
pub(crate) fn lease_id(container: u64, keys: &KeyRange) -> String {
    format!("{LEASE_PREFIX}{container}:{}", lease_token(keys))
}

/// The number in the id of a lease.
fn container_in(id: &str) -> Option<u64> {
    let (rest, _) = id.rsplit_once(':')?;
    rest.rsplit_once(':')?.1.parse().ok()
}

/// The bounds of the keys as Cosmos DB's processors write them: `min-max`.
///
/// Zeros at the end of a bound mean nothing, so they are left out: the same keys always have the
/// same token.
pub(crate) fn lease_token(keys: &KeyRange) -> String {
    // Every round does this for every lease.
    let mut token = String::with_capacity(80);
    for (bound, end) in [(keys.min(), "-"), (keys.max(), "")] {
        for byte in bound.trimmed() {
            for digit in [byte >> 4, byte & 0x0F] {
                let digit = char::from_digit(u32::from(digit), 16);
                token.extend(digit.map(|it| it.to_ascii_uppercase()));
            }
        }
        token.push_str(end);
    }
    token
}

/// The local id of the member of this name.
pub(crate) fn member_id(instance: &str) -> String {
    format!("{MEMBER_PREFIX}{instance}")
}
