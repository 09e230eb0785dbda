use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::memory::state::{ContainerState, ItemKey};
use crate::{
    Error, ItemId, KeyRange, PageSize, PartitionKey, Result, ScanContinuation, ScanPage, ScanScope,
};

impl ContainerState {
    pub(super) fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        let scope = self.scope(scope)?;
        let after = after.map(|it| scope.parse(it)).transpose()?;
        let size = size.clamped();
        let (mut items, mut bytes, mut last) = (Vec::new(), 0, None);
        for (key, stored) in &self.items {
            if !scope.contains(key) || after.as_ref().is_some_and(|after| key <= after) {
                continue;
            }
            if size.items_max <= items.len() || size.bytes_max <= bytes {
                return Ok(ScanPage { items, continuation: last.map(|key| scope.format(key)) });
            }
            bytes += stored.item.body.len();
            items.push(self.shown(stored));
            last = Some(key);
        }
        Ok(ScanPage { items, continuation: None })
    }

    fn scope<'a>(&self, scope: &'a ScanScope) -> Result<Scope<'a>> {
        Ok(match scope {
            ScanScope::Keys(keys) => Scope { keys: keys.clone(), partition: None },
            ScanScope::Partition(key) => {
                self.effective(key)?;
                let keys = self.info.settings.partition_key.range_of(key)?;
                Scope { keys, partition: Some(key) }
            }
        })
    }
}

struct Scope<'a> {
    keys: KeyRange,
    partition: Option<&'a PartitionKey>,
}

impl Scope<'_> {
    fn contains(&self, key: &ItemKey) -> bool {
        let (effective, partition, _) = key;
        self.keys.contains(effective) && self.partition.is_none_or(|it| it == partition)
    }

    /// The last item of a page, in base64. A partition key is ASCII without line breaks, an id may
    /// be anything.
    fn format(&self, (effective, partition, id): &ItemKey) -> ScanContinuation {
        let text = format!("{}\n{effective}\n{partition}\n{id}", self.name());
        ScanContinuation::new(URL_SAFE_NO_PAD.encode(text))
    }

    fn parse(&self, text: &ScanContinuation) -> Result<ItemKey> {
        let refused = |reason: &str| Error::invalid("continue the scan", reason);
        let foreign = || refused("the continuation was not given out by a scan");
        let bytes = URL_SAFE_NO_PAD.decode(text.as_str()).map_err(|_| foreign())?;
        let text = String::from_utf8(bytes).map_err(|_| foreign())?;
        let parts: Vec<&str> = text.splitn(4, '\n').collect();
        let [name, effective, partition, id] = parts.as_slice() else {
            return Err(foreign());
        };
        if *name != self.name() {
            return Err(refused("the continuation belongs to another scan"));
        }
        Ok((effective.parse()?, partition.parse()?, ItemId::new(id)?))
    }

    fn name(&self) -> String {
        match self.partition {
            Some(partition) => partition.to_string(),
            None => self.keys.to_string(),
        }
    }
}
