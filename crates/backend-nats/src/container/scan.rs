//! Listing items in key order.
//!
//! A stream is in the order of time. Its subjects begin with digits of the effective key, so the
//! server can list those of a small part of the key space; they are sorted here. How many digits
//! are fixed depends on how many items there are.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::{StreamExt, TryStreamExt, stream};
use millstream_core::{
    BoxFuture, ContainerSettings, EffectiveKey, Error, HashKind, Item, KeyRange, PageSize,
    PartitionKey, Result, ScanContinuation, ScanPage, ScanScope,
};

use crate::container::{Range, Shared};
use crate::record::ItemRecord;
use crate::subject::{BUCKET_DIGITS, ItemPlace, PartitionNames, bucket};

/// Subjects that one listing should hold, more or less.
const LISTED_GOAL: u64 = 2000;
/// Items that are read side by side.
const LOOKS_AT_ONCE: usize = 16;

/// Where an item stands in a scan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    effective: EffectiveKey,
    /// The token of the partition key tells keys with the same effective key apart.
    key_token: String,
    id_begins: Vec<u8>,
    id_token: String,
}

struct Scope<'a> {
    keys: KeyRange,
    partition: Option<&'a PartitionKey>,
    settings: &'a ContainerSettings,
}

impl Shared {
    pub(super) async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        let settings = self.fresh_settings().await?;
        let scope = match scope {
            ScanScope::Keys(keys) => {
                Scope { keys: keys.clone(), partition: None, settings: &settings }
            }
            ScanScope::Partition(key) => {
                settings.partition_key.effective(key)?;
                let keys = settings.partition_key.range_of(key)?;
                Scope { keys, partition: Some(key), settings: &settings }
            }
        };
        let after = after.map(|it| scope.parse(it)).transpose()?;
        let mut page = Page { size: size.clamped(), items: Vec::new(), bytes: 0, last: None };
        for range in &self.ranges {
            let Some(keys) = range.info.keys.intersect(&scope.keys) else { continue };
            if after.as_ref().is_some_and(|it| *keys.max() <= it.effective) {
                continue;
            }
            let begins = after.as_ref().map_or(keys.min(), |it| keys.min().max(&it.effective));
            for filter in self.filters(range, &scope, begins, &keys).await? {
                if self.scan_part(range, &scope, &filter, after.as_ref(), &mut page).await? {
                    let continuation = page.last.as_ref().map(|it| scope.format(it));
                    return Ok(ScanPage { items: page.items, continuation });
                }
            }
        }
        Ok(ScanPage { items: page.items, continuation: None })
    }

    /// Which parts of the stream to list, in key order.
    async fn filters(
        &self,
        range: &Range,
        scope: &Scope<'_>,
        begins: &EffectiveKey,
        keys: &KeyRange,
    ) -> Result<Vec<String>> {
        if let Some(key) = scope.partition {
            let effective = scope.settings.partition_key.effective(key)?;
            return Ok(vec![PartitionNames::new(&range.names, &effective, key).all()]);
        }
        let mut parts = range.wire.subject_count().await? / LISTED_GOAL;
        let mut digits = 0;
        while 0 < parts && digits < BUCKET_DIGITS {
            digits += 1;
            parts /= 16;
        }
        let first: String = bucket(begins).chars().take(digits).collect();
        let last: String = bucket(keys.max()).chars().take(digits).collect();
        // All but the oldest hash leave the two upper bits of a key clear.
        let is_narrow = scope.settings.partition_key.kind() != HashKind::V1;
        let all = 16_usize.pow(u32::try_from(digits).unwrap_or(0));
        let count = if is_narrow && 0 < digits { all / 4 } else { all };
        let names = (0..count).map(|number| format!("{number:0digits$X}"));
        let names = names.map(|it| if digits == 0 { String::new() } else { it });
        let wanted = names.filter(|it| first <= *it && (*it <= last || last.is_empty()));
        Ok(wanted.map(|it| range.names.bucket(&it)).collect())
    }

    /// Adds the items of one part. True if the page is full and something is left.
    async fn scan_part(
        &self,
        range: &Range,
        scope: &Scope<'_>,
        filter: &str,
        after: Option<&Place>,
        page: &mut Page,
    ) -> Result<bool> {
        let subjects = range.wire.subjects(filter).await?;
        let mut places = Vec::with_capacity(subjects.len());
        for subject in subjects {
            let Some(place) = scope.place(&subject)? else { continue };
            if after.is_none_or(|after| *after < place) {
                places.push((place, subject));
            }
        }
        places.sort();
        let mut rest = places.into_iter().peekable();
        while rest.peek().is_some() {
            if page.is_full() {
                return Ok(true);
            }
            let count = page.size.items_max - page.items.len();
            let chunk: Vec<_> = rest.by_ref().take(count.min(LOOKS_AT_ONCE)).collect();
            let look = |(place, subject): (Place, String)| -> BoxFuture<'_, _> {
                Box::pin(async move {
                    Ok::<_, Error>((place, self.live(range, scope, &subject).await?))
                })
            };
            let looks: Vec<_> = chunk.into_iter().map(look).collect();
            let mut looks = stream::iter(looks).buffered(LOOKS_AT_ONCE);
            while let Some((place, item)) = looks.try_next().await? {
                if page.is_full() {
                    return Ok(true);
                }
                page.last = Some(place);
                page.bytes += item.as_ref().map_or(0, |it| it.body.len());
                page.items.extend(item);
            }
        }
        Ok(false)
    }

    /// The item of a subject, unless it was deleted or its time is over.
    async fn live(&self, range: &Range, scope: &Scope<'_>, subject: &str) -> Result<Option<Item>> {
        let Some(message) = range.wire.last(subject).await? else { return Ok(None) };
        let record = ItemRecord::read(&message)?;
        let ItemRecord { partition_key, id, version, sequence, .. } = record;
        let known = crate::plan::Known { sequence, version, is_over: false };
        let effective = scope.settings.partition_key.effective(&partition_key)?;
        if self.is_over(&known, &effective, scope.settings).await? {
            return Ok(None);
        }
        let default = scope.settings.default_ttl;
        Ok(known.version.map(|it| it.item(range.number(), sequence, &partition_key, &id, default)))
    }
}

struct Page {
    size: PageSize,
    items: Vec<Item>,
    bytes: usize,
    /// The last place that was looked at.
    last: Option<Place>,
}

impl Page {
    fn is_full(&self) -> bool {
        self.size.items_max <= self.items.len() || self.size.bytes_max <= self.bytes
    }
}

impl Scope<'_> {
    /// Where the item of a subject stands; none if it is not in the scope.
    fn place(&self, subject: &str) -> Result<Option<Place>> {
        let Some(ItemPlace { effective, partition_key, id_begins, tokens, .. }) =
            ItemPlace::parse(subject)
        else {
            return Ok(None);
        };
        let effective = match (effective, partition_key) {
            (Some(effective), _) => effective,
            (None, Some(key)) => self.settings.partition_key.effective(&key)?,
            (None, None) => return Ok(None),
        };
        let Some((key_token, id_token)) = tokens.split_once('.') else { return Ok(None) };
        let (key_token, id_token) = (key_token.to_owned(), id_token.to_owned());
        let place = Place { effective, key_token, id_begins, id_token };
        Ok(Some(place).filter(|it| self.keys.contains(&it.effective)))
    }

    fn format(&self, place: &Place) -> ScanContinuation {
        let Place { key_token, id_token, .. } = place;
        let text = format!("{}\n{}\n{key_token}.{id_token}", self.name(), place.effective);
        ScanContinuation::new(URL_SAFE_NO_PAD.encode(text))
    }

    fn parse(&self, text: &ScanContinuation) -> Result<Place> {
        let refused = |reason: &str| Error::invalid("continue the scan", reason);
        let foreign = || refused("the continuation was not given out by a scan");
        let bytes = URL_SAFE_NO_PAD.decode(text.as_str()).map_err(|_| foreign())?;
        let text = String::from_utf8(bytes).map_err(|_| foreign())?;
        let parts: Vec<&str> = text.split('\n').collect();
        let [name, effective, tokens] = parts.as_slice() else {
            return Err(foreign());
        };
        if *name != self.name() {
            return Err(refused("the continuation belongs to another scan"));
        }
        let effective = effective.parse()?;
        let ItemPlace { id_begins, .. } = ItemPlace::parse(tokens).ok_or_else(foreign)?;
        let (key_token, id_token) = tokens.split_once('.').ok_or_else(foreign)?;
        let (key_token, id_token) = (key_token.to_owned(), id_token.to_owned());
        Ok(Place { effective, key_token, id_begins, id_token })
    }

    fn name(&self) -> String {
        match self.partition {
            Some(partition) => partition.to_string(),
            None => self.keys.to_string(),
        }
    }
}
