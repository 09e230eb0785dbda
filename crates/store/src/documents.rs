//! The items of a container.

use std::fmt::Write;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use millstream_core::{
    Batch, BatchOutcome, ContainerSettings, Documents, EffectiveKey, Error, ErrorKind, Item,
    ItemId, Lsn, PageSize, PartitionKey, Result, ScanContinuation, ScanPage, ScanScope, Timestamp,
};

use crate::commit::{self, decode_item};
use crate::engine::Engine;
use crate::keys::{self, Place};
use crate::records::FeedRecord;
use crate::state::ContainerState;
use crate::store::Store;
use crate::tables::Table;
use crate::view::{Section, View};

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
        match scope {
            ScanScope::Keys(_) => self.scan_keys(scope, after, size.clamped()),
            ScanScope::Partition(key) => self.scan_partition(scope, key, after, size.clamped()),
        }
    }
}

/// What an item is now.
enum Version {
    Live(Item),
    /// It is still in the index.
    Expired,
    Gone,
}

/// A page that is being filled.
struct Filling {
    page: ScanPage,
    bytes: usize,
    size: PageSize,
    /// The newest commit when it was begun, if nothing later may be on it.
    newest: Option<Lsn>,
}

/// How filling a page has ended.
enum Filled {
    All,
    /// There is no room for more.
    Full,
    /// Others have written in the meantime what may not be on it.
    Overtaken,
}

impl Filling {
    fn new(size: PageSize, newest: Option<Lsn>) -> Self {
        let page = ScanPage { items: Vec::new(), continuation: None };
        Self { page, bytes: 0, size, newest }
    }

    /// The page, if what comes next is that key.
    fn before(mut self, key: &[u8]) -> ScanPage {
        self.page.continuation = Some(continuation_before(key));
        self.page
    }
}

impl ContainerDocuments {
    /// Items one by one, each as it is when it is looked at.
    fn scan_keys(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        let (mut from, to) = self.bounds(scope, after)?;
        let mut filling = Filling::new(size, None);
        loop {
            let view = self.items(&from, &to, size.items_max + RECENT_EXTRA);
            if let Filled::Full = self.fill(&mut filling, &view)? {
                return Ok(filling.page);
            }
            // A section ends early where much was written lately.
            match view.cut_at(0) {
                Some(cut) => from = cut.to_vec(),
                None => return Ok(filling.page),
            }
        }
    }

    /// A page on which each batch is whole or not at all, unless others write to the partition
    /// faster than it can be read.
    fn scan_partition(
        &self,
        scope: &ScanScope,
        key: &PartitionKey,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        let effective = self.container.info().settings.partition_key.effective(key)?;
        let (first, to) = self.bounds(scope, after)?;
        let mut recent_extra = RECENT_EXTRA;
        let mut looks = 0;
        loop {
            looks += 1;
            let range = self.container.range_of(&effective);
            let begun = Some(range.newest()).filter(|_| looks < LOOKS_MAX);
            let mut filling = Filling::new(size, begun);
            let (mut from, mut is_of_one_moment) = (first.clone(), true);
            let page = loop {
                let view = self.items(&from, &to, size.items_max + recent_extra);
                match (self.fill(&mut filling, &view)?, view.cut_at(0)) {
                    (Filled::Overtaken, _) => break None,
                    (Filled::Full, _) | (Filled::All, None) => break Some(filling.page),
                    (Filled::All, Some(cut)) if !filling.page.items.is_empty() => {
                        break Some(filling.before(cut));
                    }
                    // An empty page would look like the last one. Everything is looked at at once,
                    // as far as it may be; beyond, in sections, which are of one moment only if
                    // nobody writes.
                    (Filled::All, Some(_)) if recent_extra < RECENT_EXTRA_MAX => recent_extra *= 2,
                    (Filled::All, Some(cut)) => {
                        (from, is_of_one_moment) = (cut.to_vec(), false);
                        // That takes long, so that it is not done as often.
                        looks = looks.max(LOOKS_MAX - LONG_LOOKS_MAX + 1);
                    }
                }
            };
            let is_calm = || {
                let is_same = Arc::ptr_eq(&range, &self.container.range_of(&effective));
                begun.is_none_or(|it| is_same && range.has_nothing_after(it))
            };
            if let Some(page) = page.filter(|_| is_of_one_moment || is_calm()) {
                return Ok(page);
            }
        }
    }

    /// The index of items between two keys, with so many entries of what was written lately.
    fn items(&self, from: &[u8], to: &[u8], recent_max: usize) -> View<'_> {
        let section = Section { table: Table::Items, from: from.to_vec(), to: to.to_vec() };
        self.engine.view(vec![section], |_| recent_max)
    }

    /// Puts the items of a view on the page, and where the next one begins if it is full.
    fn fill(&self, filling: &mut Filling, view: &View<'_>) -> Result<Filled> {
        let info = self.container.info();
        let Filling { page, bytes, size, newest } = filling;
        for entry in view.entries(0) {
            let (key, _) = entry?;
            if size.items_max <= page.items.len() || size.bytes_max <= *bytes {
                page.continuation = Some(continuation_before(&key));
                return Ok(Filled::Full);
            }
            match self.newest_version(&info.settings, &key)? {
                Version::Live(item) if newest.is_none_or(|it| item.lsn <= it) => {
                    *bytes += item.body.len();
                    page.items.push(item);
                }
                // It was removed after the index was looked at.
                Version::Gone if newest.is_none() => (),
                Version::Expired => (),
                Version::Live(_) | Version::Gone => return Ok(Filled::Overtaken),
            }
        }
        Ok(Filled::All)
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

    /// The first key to look at, and the one behind the last.
    fn bounds(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
    ) -> Result<(Vec<u8>, Vec<u8>)> {
        let (from, to) = match scope {
            ScanScope::Keys(keys) => keys::items_in(self.container.id, keys),
            ScanScope::Partition(key) => {
                let effective = self.container.info().settings.partition_key.effective(key)?;
                let prefix = keys::partition(self.container.id, &effective, key);
                let end = keys::successor(&prefix);
                (prefix, end)
            }
        };
        Ok(match after {
            Some(after) => (self.position(after, &from, &to)?, to),
            None => (from, to),
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
/// The most there may be: they are copied while nobody can commit.
const RECENT_EXTRA_MAX: usize = 16 * RECENT_EXTRA;
const RACES_MAX: usize = 1000;
/// Looks at a page until it is of one moment.
const LOOKS_MAX: usize = 16;
/// The same, where each takes long.
const LONG_LOOKS_MAX: usize = 4;
const CONTINUATION_BYTES_MAX: usize = 16 * 1024;
