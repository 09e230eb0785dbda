//! What is stored of a subscription.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Raised when what is stored changes its meaning; a record of a later version is refused.
pub(crate) const RECORD_VERSION: u32 = 1;
/// Most ranges in a record; an owner reads no further before there are fewer.
pub(crate) const RANGES_MAX: usize = 4096;

/// What a subscription has done with a lane, and who may do more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LaneRecord {
    pub(crate) version: u32,
    /// Who has the lane; nobody if none.
    #[serde(default)]
    pub(crate) owner: Option<String>,
    /// Counts the owners.
    pub(crate) epoch: u64,
    /// Counts the writes of an owner, so that no two of them are the same.
    pub(crate) beat: u64,
    /// How long the owner may be silent before somebody else takes the lane.
    pub(crate) lease_millis: u64,
    /// Everything up to here is done.
    pub(crate) floor: u64,
    /// What is done above it.
    #[serde(default)]
    pub(crate) done: Vec<(u64, u64)>,
    /// How often messages that are not done were given out.
    #[serde(default)]
    pub(crate) tries: BTreeMap<u64, u32>,
}

/// What a subscription is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct About {
    pub(crate) version: u32,
    pub(crate) name: String,
    /// Messages up to this number are not for it.
    pub(crate) after: u64,
}

impl LaneRecord {
    /// The record of a lane that nobody had yet.
    pub(crate) fn new(after: u64) -> Self {
        Self {
            version: RECORD_VERSION,
            owner: None,
            epoch: 0,
            beat: 0,
            lease_millis: 0,
            floor: after,
            done: Vec::new(),
            tries: BTreeMap::new(),
        }
    }

    /// The record after `owner` has taken the lane.
    pub(crate) fn taken(mut self, owner: &str, lease: Duration) -> Self {
        self.owner = Some(owner.to_owned());
        self.epoch += 1;
        self.beat = 0;
        self.lease_millis = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        self
    }

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_millis)
    }

    /// Whether both are the same write.
    pub(crate) fn is_same_write(&self, other: &Self) -> bool {
        (&self.owner, self.epoch, self.beat) == (&other.owner, other.epoch, other.beat)
    }
}

/// Reads what is stored.
pub(crate) fn read<T: for<'a> Deserialize<'a>>(what: &str, bytes: &[u8]) -> Result<T> {
    let attempted = || format!("read the {what} of a subscription");
    let version: Version = serde_json::from_slice(bytes)
        .map_err(|error| Error::new(ErrorKind::Corrupt, attempted()).because(error))?;
    if RECORD_VERSION < version.version {
        let error = Error::new(ErrorKind::Unsupported, attempted());
        return Err(error.because("it was written by a later version of this program"));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Error::new(ErrorKind::Corrupt, attempted()).because(error))
}

/// The bytes to store.
pub(crate) fn write<T: Serialize>(what: &str, value: &T) -> Result<Vec<u8>> {
    let attempted = || format!("write the {what} of a subscription");
    serde_json::to_vec(value).map_err(|error| Error::invalid(attempted(), error))
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = LaneRecord::new(7).taken("me", Duration::from_secs(6));
        record.done.push((9, 12));
        record.tries.insert(8, 3);
        let bytes = write("record", &record).unwrap();
        assert_eq!(read::<LaneRecord>("record", &bytes).unwrap(), record);
        // What version 1 wrote; it must be understood for ever.
        let text = r#"{"version":1,"owner":"me","epoch":1,"beat":0,"leaseMillis":6000,"floor":7,
            "done":[[9,12]],"tries":{"8":3}}"#;
        assert_eq!(read::<LaneRecord>("record", text.as_bytes()).unwrap(), record);
    }

    #[test]
    fn what_a_later_version_wrote_is_refused() {
        let error = read::<LaneRecord>("record", br#"{"version":2}"#).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(read::<About>("text", b"{").unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
