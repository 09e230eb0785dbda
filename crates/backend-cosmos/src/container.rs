//! An open container: what its items and its feed have in common.

use std::sync::Arc;

use azure_data_cosmos_driver::models::{
    ContainerReference, EffectivePartitionKey, FeedRange, PartitionKey as DriverKey,
    PartitionKeyValue,
};
use millstream_core::{
    ContainerInfo, ContainerSettings, Error, Item, KeyRange, Lsn, PartitionKey,
    PartitionKeyComponent, Result, TimeToLive, Timestamp,
};

use crate::account::Account;
use crate::body::take_apart;
use crate::failure::{Access, failure, unreadable};

/// A container, bound to its resource id.
pub(crate) struct OpenContainer {
    pub(crate) account: Arc<Account>,
    pub(crate) reference: ContainerReference,
    pub(crate) info: ContainerInfo,
}

impl OpenContainer {
    pub(crate) fn new(
        account: Arc<Account>,
        reference: ContainerReference,
        info: ContainerInfo,
    ) -> Self {
        Self { account, reference, info }
    }

    pub(crate) fn settings(&self) -> &ContainerSettings {
        &self.info.settings
    }

    /// An item from what the service shows of it.
    ///
    /// `lsn` is used where the text does not have the number itself.
    pub(crate) fn item(&self, text: &str, lsn: Lsn, attempted: &str) -> Result<Item> {
        let strange = |reason: &str| unreadable(attempted, reason.to_owned(), Access::Read);
        let shown = take_apart(text).map_err(|error| unreadable(attempted, error, Access::Read))?;
        let written_at = shown.written_at.ok_or_else(|| strange("an item has no _ts"))?;
        Ok(Item {
            partition_key: self.settings().partition_key.extract(&shown.body)?,
            etag: shown.etag.ok_or_else(|| strange("an item has no _etag"))?,
            lsn: shown.lsn.unwrap_or(lsn),
            written_at,
            expires_at: self.expires_at(shown.ttl, written_at),
            sequence: None,
            id: shown.id.ok_or_else(|| strange("an item has no id"))?,
            body: shown.body,
        })
    }

    fn expires_at(&self, ttl: Option<TimeToLive>, written_at: Timestamp) -> Option<Timestamp> {
        TimeToLive::expiry(self.settings().default_ttl, ttl, written_at)
    }

    /// All items of one partition key.
    pub(crate) fn partition(&self, key: &PartitionKey) -> Result<FeedRange> {
        let definition = self.reference.partition_key_definition();
        Ok(FeedRange::for_partition(driver_key(key)?, definition))
    }
}

/// The range in the words of the SDK.
pub(crate) fn feed_range(keys: &KeyRange) -> Result<FeedRange> {
    let attempted = "use the range of keys";
    let failed = |error| failure(&error, attempted, Access::Read);
    let bound = |text: String| EffectivePartitionKey::try_from(text).map_err(failed);
    let (min, max) = (bound(keys.min().to_string())?, bound(keys.max().to_string())?);
    FeedRange::new(min, max).map_err(failed)
}

/// The partition key in the words of the SDK.
pub(crate) fn driver_key(key: &PartitionKey) -> Result<DriverKey> {
    let refused = |error| {
        let reason = failure(&error, "use the key", Access::Read).report();
        Error::invalid(format!("use the partition key {key}"), reason)
    };
    let values = key.components().iter().map(|component| match component {
        PartitionKeyComponent::Undefined => Ok(PartitionKeyValue::UNDEFINED),
        PartitionKeyComponent::Null => Ok(PartitionKeyValue::NULL),
        PartitionKeyComponent::Bool(value) => Ok(PartitionKeyValue::from(*value)),
        PartitionKeyComponent::Number(number) => PartitionKeyValue::try_from(*number),
        PartitionKeyComponent::String(text) => Ok(PartitionKeyValue::from(text.clone())),
    });
    let values: Vec<_> = values.collect::<std::result::Result<_, _>>().map_err(refused)?;
    DriverKey::try_from(values).map_err(refused)
}
