//! What a document of another processor says.

use millstream_core::{FeedMode, KeyRange, RangeId, StartFrom};
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};
use crate::foreign::feed_state;
use crate::foreign::form::{ForeignForm, mode_of};

/// What stands between the prefix and the token of a lease in its id.
pub(crate) const SEPARATOR: &str = "..";
/// Longest document that is looked at; a lease has below 2 KiB.
const DOCUMENT_BYTES_MAX: usize = 64 * 1024;
/// The newest version of lease documents that is understood.
const VERSION_MAX: u64 = 1;

/// A document of another processor.
#[derive(Clone, Debug, PartialEq)]
pub enum ForeignDocument {
    /// How far a range or physical partition has been processed.
    Lease(Box<ForeignLease>),
    /// `.info`: all leases of this prefix were created once.
    Marker {
        /// What the ids of the leases begin with.
        prefix: String,
    },
    /// `.lock`: somebody creates the leases of this prefix, or crashed while doing so.
    Lock {
        /// What the ids of the leases begin with.
        prefix: String,
    },
    /// `.imported`: an [`Import`](crate::foreign::Import) has taken over the leases of this prefix.
    Imported {
        /// What the ids of the leases begin with.
        prefix: String,
        /// The processor that goes on from them.
        processor: String,
    },
}

/// A lease of another processor.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignLease {
    /// The id of the document.
    pub id: String,
    /// What the ids of all leases of that processor begin with.
    pub prefix: String,
    /// Who writes such leases.
    pub form: ForeignForm,
    /// What it covers.
    pub scope: ForeignScope,
    /// How far that has come.
    pub position: ForeignPosition,
    /// The mode of the feed, where the lease says.
    pub mode: Option<FeedMode>,
    /// The host that processes it, or did.
    pub owner: Option<String>,
    /// When it was written, by the clock of the host, as it stands there.
    pub timestamp: Option<String>,
}

/// What a lease covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignScope {
    /// A physical partition.
    Partition {
        /// Its number.
        id: RangeId,
        /// Its keys when the lease was written, where the lease says.
        keys: Option<KeyRange>,
    },
    /// A range of keys.
    Keys(KeyRange),
}

/// How far a lease has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignPosition {
    /// Nothing was checkpointed; the lease does not say where its processor starts.
    NotStarted,
    /// Nothing was checkpointed, and the processor starts here.
    Start(StartFrom),
    /// Everything up to this etag of the feed was handled.
    Etag(String),
}

impl ForeignDocument {
    /// Reads a document from a container of leases; none if it is of another kind.
    ///
    /// # Errors
    ///
    /// `NewerSchema` if it was written by a version that is not known here, and `Invalid` if it is
    /// too long, is no JSON object, or contradicts itself.
    pub fn parse(body: &[u8]) -> Result<Option<Self>> {
        if DOCUMENT_BYTES_MAX < body.len() {
            let reason =
                format!("it has {} bytes, more than any lease: {DOCUMENT_BYTES_MAX}", body.len());
            return Err(Error::invalid("read a lease of another processor", reason));
        }
        let fields: Map<String, Value> = serde_json::from_slice(body)
            .map_err(|error| Error::invalid("read a lease of another processor", error))?;
        Self::from_fields(&fields)
    }

    /// Reads a document that is JSON already.
    pub(crate) fn from_fields(fields: &Map<String, Value>) -> Result<Option<Self>> {
        let Some(id) = fields.get("id").and_then(Value::as_str) else { return Ok(None) };
        let prefix = |suffix: &str| id.strip_suffix(suffix).map(str::to_owned);
        if let Some((prefix, token)) = id.rsplit_once(SEPARATOR) {
            if !["LeaseToken", "PartitionId"].iter().any(|it| fields.contains_key(*it)) {
                return Ok(None);
            }
            let lease = LeaseFields { id, prefix, token, fields }.read()?;
            return Ok(Some(Self::Lease(Box::new(lease))));
        }
        if let Some(prefix) = prefix(".info") {
            return Ok(Some(Self::Marker { prefix }));
        }
        if let Some(prefix) = prefix(".lock") {
            return Ok(Some(Self::Lock { prefix }));
        }
        let Some(prefix) = prefix(".imported") else { return Ok(None) };
        let processor = fields.get("processor").and_then(Value::as_str).unwrap_or_default();
        Ok(Some(Self::Imported { prefix, processor: processor.to_owned() }))
    }
}

/// A document whose id is that of a lease.
struct LeaseFields<'a> {
    id: &'a str,
    prefix: &'a str,
    token: &'a str,
    fields: &'a Map<String, Value>,
}

impl LeaseFields<'_> {
    fn read(&self) -> Result<ForeignLease> {
        let form = self.form()?;
        self.check_token()?;
        let (dotnet_range, java_range) = (self.range("FeedRange")?, self.range("feedRange")?);
        let keys = match (dotnet_range, java_range) {
            (Some(dotnet), Some(java)) if dotnet != java => {
                return Err(self.refused("FeedRange and feedRange differ"));
            }
            (dotnet, java) => dotnet.or(java),
        };
        let scope = self.scope(form, keys)?;
        let (position, said) = self.position(form, &scope)?;
        let mode = match (self.mode()?, said) {
            (Some(lease), Some(state)) if lease != state => {
                return Err(self.refused("the lease and its continuation name different modes"));
            }
            (lease, state) => lease.or(state),
        };
        // What could not read all versions says nothing; of the others, only Java's epk lease that
        // never ran may have been meant for either.
        let mode = mode.or((form != ForeignForm::JavaEpk).then_some(FeedMode::LatestVersion));
        Ok(ForeignLease {
            id: self.id.to_owned(),
            prefix: self.prefix.to_owned(),
            form,
            scope,
            position,
            mode,
            owner: self.text("Owner")?.filter(|it| !it.is_empty()).map(str::to_owned),
            timestamp: self.text("timestamp")?.map(str::to_owned),
        })
    }

    fn form(&self) -> Result<ForeignForm> {
        let has = |name: &str| self.fields.contains_key(name);
        let version = match self.fields.get("version") {
            None | Some(Value::Null) => None,
            Some(value) => match value.as_u64() {
                Some(version) if version <= VERSION_MAX => Some(version),
                Some(version) => return Err(self.newer(version)),
                None => return Err(self.refused(format!("its version is {value}"))),
            },
        };
        Ok(match version {
            Some(1) if has("feedRange") => ForeignForm::JavaEpk,
            Some(1) => ForeignForm::DotnetEpk,
            Some(_) => ForeignForm::DotnetPk,
            None if has("PartitionId") => ForeignForm::DotnetLibrary,
            None if has("properties") || has("FeedRange") || has("Mode") => ForeignForm::DotnetPk,
            None => ForeignForm::JavaPk,
        })
    }

    /// The id, the lease token and the partition id say the same thing three times.
    fn check_token(&self) -> Result<()> {
        for name in ["LeaseToken", "PartitionId"] {
            if let Some(said) = self.text(name)?
                && said != self.token
            {
                return Err(self.refused(format!("its {name} is {:?}", excerpt(said))));
            }
        }
        Ok(())
    }

    fn scope(&self, form: ForeignForm, keys: Option<KeyRange>) -> Result<ForeignScope> {
        if form.is_by_partition() {
            let id = self
                .token
                .parse::<RangeId>()
                .map_err(|_| self.refused("its token is not the number of a physical partition"))?;
            return Ok(ForeignScope::Partition { id, keys });
        }
        let Some(keys) = keys else { return Err(self.refused("it has no feed range")) };
        let said = self.token.split_once('-').and_then(|(min, max)| {
            let (min, max) = (min.parse().ok()?, max.parse().ok()?);
            KeyRange::new(min, max).ok()
        });
        if said.as_ref() != Some(&keys) {
            return Err(self.refused(format!("its token and its feed range {keys} differ")));
        }
        Ok(ForeignScope::Keys(keys))
    }

    fn position(
        &self,
        form: ForeignForm,
        scope: &ForeignScope,
    ) -> Result<(ForeignPosition, Option<FeedMode>)> {
        let Some(token) = self.text("ContinuationToken")?.filter(|it| !it.is_empty()) else {
            return Ok((ForeignPosition::NotStarted, None));
        };
        match scope {
            ForeignScope::Keys(keys) if form == ForeignForm::JavaEpk => {
                let state = feed_state::parse(token, keys).map_err(|fault| {
                    Error::new(fault.kind, self.attempted()).because(fault.text)
                })?;
                Ok((state.position, Some(state.mode)))
            }
            ForeignScope::Keys(_) | ForeignScope::Partition { .. } => {
                Ok((ForeignPosition::Etag(token.to_owned()), None))
            }
        }
    }

    fn mode(&self) -> Result<Option<FeedMode>> {
        let Some(text) = self.text("Mode")? else { return Ok(None) };
        let unknown = || self.refused(format!("its mode {:?} is not known", excerpt(text)));
        mode_of(text).map(Some).ok_or_else(unknown)
    }

    /// A feed range: an object, its JSON, or that in base64.
    fn range(&self, name: &str) -> Result<Option<KeyRange>> {
        let read = match self.fields.get(name) {
            None | Some(Value::Null) => return Ok(None),
            // This spelling names the physical partition once more.
            Some(Value::Object(range)) if range.contains_key("PKRangeId") => return Ok(None),
            Some(Value::String(text)) if text.starts_with('{') => KeyRange::from_json(text),
            Some(Value::String(text)) => KeyRange::from_base64(text),
            Some(value) => KeyRange::from_json(&value.to_string()),
        };
        read.map(Some).map_err(|error| self.refused(format!("{name}: {}", error.report())))
    }

    fn text(&self, name: &str) -> Result<Option<&str>> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.refused(format!("{name} is not a string"))),
        }
    }

    fn newer(&self, version: u64) -> Error {
        let reason =
            format!("it was written by a newer SDK (version {version}); update this program");
        Error::new(ErrorKind::NewerSchema, self.attempted()).because(reason)
    }

    fn refused(&self, reason: impl Into<String>) -> Error {
        Error::invalid(self.attempted(), reason.into())
    }

    fn attempted(&self) -> String {
        format!("read the lease {:?} of another processor", excerpt(self.id))
    }
}

/// The beginning of a text, for messages.
pub(crate) fn excerpt(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    text.chars().take(CHARACTERS_MAX).collect()
}
