//! The items of a container.

use std::fmt::Write;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use millstream_core::{
    Batch, BatchOutcome, ContainerSettings, Documents, EffectiveKey, Error, ErrorKind, Item,
    ItemId, PageSize, PartitionKey, Result, ScanContinuation, ScanPage, ScanScope, Timestamp,
};

use crate::commit::{self, decode_item};
use crate::engine::Engine;
use crate::keys::{self, Place};
use crate::records::FeedRecord;
use crate::state::ContainerState;
use crate::store::Store;
use crate::tables::Table;
use crate::view::Section;

#[derive(Debug)]
pub(crate) struct ContainerDocuments {
    pub(crate) engine: Arc<Engine>,
    pub(crate) container: Arc<ContainerState>,
    /// Keeps the store open.
    pub(crate) _open: Store,
}

#[async_trait]
impl Documents for ContainerDocuments {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>> {
        self.container.check_exists()?;
        let info = self.container.info();
        let effective = info.settings.partition_key.effective(key)?;
        let item_key = keys::item(self.container.id, &effective, key, id);
        Ok(match self.newest_version(&info.settings, &item_key)? {
            Version::Live(item) => Some(item),
            Version::Gone | Version::Expired => None,
        })
    }

    async fn commit(&self, batch: Batch) -> Result<BatchOutcome> {
        commit::commit(&self.engine, &self.container, batch).await
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        self.container.check_exists()?;
        let ScanScope::Partition(key) = scope else {
            return Ok(self.look(scope, after, size.clamped(), &mut { RECENT_EXTRA })?.page);
        };
        // Of the partition a batch is on the page whole or not at all, unless others write to it
        // faster than it can be read.
        let info = self.container.info();
        let effective = info.settings.partition_key.effective(key)?;
        let mut recent_extra = RECENT_EXTRA;
        for _ in 1..LOOKS_MAX {
            let newest = self.container.range_of(&effective).newest();
            let look = self.look(scope, after, size.clamped(), &mut recent_extra)?;
            if !look.is_overtaken && look.page.items.iter().all(|it| it.lsn <= newest) {
                return Ok(look.page);
            }
        }
        Ok(self.look(scope, after, size.clamped(), &mut recent_extra)?.page)
    }
}

/// What an item is now.
enum Version {
    Live(Item),
    /// It is still in the index.
    Expired,
    Gone,
}

/// What a scan found.
struct Look {
    page: ScanPage,
    /// Whether an item was removed between the look at the index and that at the item.
    is_overtaken: bool,
}

impl ContainerDocuments {
    /// `recent_extra` is how much more of what was written lately is looked at than fits on the
    /// page; of a partition it grows until something is found.
    fn look(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
        recent_extra: &mut usize,
    ) -> Result<Look> {
        let info = self.container.info();
        let (mut from, to) = self.bounds(scope)?;
        if let Some(after) = after {
            from = self.position(after, &from, &to)?;
        }
        let page = ScanPage { items: Vec::new(), continuation: None };
        let mut look = Look { page, is_overtaken: false };
        let mut bytes = 0;
        loop {
            let section = Section { table: Table::Items, from: from.clone(), to: to.clone() };
            let view = self.engine.view(vec![section], |_| size.items_max + *recent_extra);
            for entry in view.entries(0) {
                let (key, _) = entry?;
                if size.items_max <= look.page.items.len() || size.bytes_max <= bytes {
                    look.page.continuation = Some(continuation_before(&key));
                    return Ok(look);
                }
                match self.newest_version(&info.settings, &key)? {
                    Version::Live(item) => {
                        bytes += item.body.len();
                        look.page.items.push(item);
                    }
                    Version::Gone => look.is_overtaken = true,
                    Version::Expired => (),
                }
            }
            // A section ends early where much was written lately.
            let Some(cut) = view.cut_at(0) else { return Ok(look) };
            match scope {
                ScanScope::Keys(_) => from = cut.to_vec(),
                // Two sections are of two moments, and an empty page would look like the last one.
                ScanScope::Partition(_) if look.page.items.is_empty() => *recent_extra *= 2,
                ScanScope::Partition(_) => {
                    look.page.continuation = Some(continuation_before(cut));
                    return Ok(look);
                }
            }
        }
    }

    fn newest_version(&self, settings: &ContainerSettings, item_key: &[u8]) -> Result<Version> {
        // The version may be replaced between the look at the index and that at the feed; then the
        // index knows a newer one.
        for _ in 0..RACES_MAX {
            let Some(bytes) = self.engine.get(Table::Items, item_key)? else {
                return Ok(Version::Gone);
            };
            let record = decode_item(&bytes)?;
            let Some(bytes) = self.engine.get(Table::Feed, record.place().key())? else { continue };
            let now = self.engine.options().clock.now();
            let item = item_of(&self.container, settings, record.place(), &bytes, now)?;
            return Ok(item.map_or(Version::Expired, Version::Live));
        }
        Err(Error::new(ErrorKind::Corrupt, "read an item")
            .because("the feed does not have the version that the index names"))
    }

    fn bounds(&self, scope: &ScanScope) -> Result<(Vec<u8>, Vec<u8>)> {
        Ok(match scope {
            ScanScope::Keys(keys) => keys::items_in(self.container.id, keys),
            ScanScope::Partition(key) => {
                let effective = self.container.info().settings.partition_key.effective(key)?;
                let prefix = keys::partition(self.container.id, &effective, key);
                let end = keys::successor(&prefix);
                (prefix, end)
            }
        })
    }

    fn position(&self, after: &ScanContinuation, from: &[u8], to: &[u8]) -> Result<Vec<u8>> {
        let refused = |reason: &str| Error::invalid("continue the scan", reason.to_owned());
        let key = decode_continuation(self.container.id, after.as_str())
            .ok_or_else(|| refused("its continuation is not one of ours"))?;
        if key.as_slice() < from || to <= key.as_slice() {
            return Err(refused("its continuation belongs to another scan"));
        }
        Ok(key)
    }
}

/// The item a feed entry holds; none if it has expired.
pub(crate) fn item_of(
    container: &ContainerState,
    settings: &ContainerSettings,
    place: Place,
    bytes: &[u8],
    now: Timestamp,
) -> Result<Option<Item>> {
    let unreadable =
        || Error::new(ErrorKind::Corrupt, format!("read commit {} of the feed", place.lsn));
    let record = FeedRecord::decode(bytes).ok_or_else(unreadable)?;
    let stamp = record.stamp(place);
    if stamp.expiry(settings.default_ttl).is_some() || !container.past_ttls().is_empty() {
        let effective = EffectiveKey::from_bytes(record.effective)?;
        if container.is_expired(settings, &stamp, &effective, now) {
            return Ok(None);
        }
    }
    let body = Bytes::copy_from_slice(record.body);
    Ok(Some(stamp.item(settings.default_ttl, record.partition_key, record.id, body)))
}

/// Names the first key that is not on the page, without the number of the container, with a
/// checksum that tells it from text that was never given out.
fn continuation_before(key: &[u8]) -> ScanContinuation {
    let mut text = format!("{:08x}", check_of(key));
    for byte in &key[4..] {
        let _ = write!(text, "{byte:02x}");
    }
    ScanContinuation::new(text)
}

fn decode_continuation(container: u32, text: &str) -> Option<Vec<u8>> {
    if CONTINUATION_BYTES_MAX < text.len() || !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let (check, digits) = text.split_at_checked(8)?;
    let mut key = container.to_be_bytes().to_vec();
    for pair in digits.as_bytes().chunks(2) {
        key.push(u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?);
    }
    (u32::from_str_radix(check, 16).ok()? == check_of(&key)).then_some(key)
}

fn check_of(key: &[u8]) -> u32 {
    let hash = xxhash_rust::xxh3::xxh3_64(key).to_le_bytes();
    u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]])
}

/// Recent entries a section may have beyond the page: removed items count too.
const RECENT_EXTRA: usize = 1024;
const RACES_MAX: usize = 1000;
/// Looks at a page until it is of one moment.
const LOOKS_MAX: usize = 16;
const CONTINUATION_BYTES_MAX: usize = 16 * 1024;
