//! The documents in the container of the leases, as an onlooker sees them.

use std::collections::BTreeMap;

use futures_lite::future::block_on;
use millstream_core::{Batch, ItemId, KeyRange, Operation, PageSize, PartitionKey, ScanScope};
use millstream_processor::LeaseState;
use serde_json::Value;

use crate::harness::World;

/// A lease of [`World::PROCESSOR`].
#[derive(Clone, Debug)]
pub(crate) struct LeaseSeen {
    /// The id of its document.
    pub(crate) id: String,
    pub(crate) keys: KeyRange,
    /// The name of the instance.
    pub(crate) owner: Option<String>,
    pub(crate) epoch: u64,
    pub(crate) position: String,
    pub(crate) state: LeaseState,
    /// The whole document.
    pub(crate) body: Value,
}

impl World {
    /// All documents in the container of the leases by id.
    pub(crate) fn documents(&self) -> BTreeMap<String, Value> {
        let documents = &self.raw_leases().documents;
        let scope = ScanScope::Keys(KeyRange::all());
        let mut found = BTreeMap::new();
        let mut after = None;
        loop {
            let page = block_on(documents.scan(&scope, after.as_ref(), PageSize::items(1000)));
            let page = page.expect("the container is there");
            for item in page.items {
                let body = serde_json::from_slice(&item.body).expect("documents are JSON");
                found.insert(item.id.to_string(), body);
            }
            after = page.continuation;
            if after.is_none() {
                return found;
            }
        }
    }

    /// The leases of the processor in the order of their ids, also retired ones.
    pub(crate) fn all_leases(&self) -> Vec<LeaseSeen> {
        let prefix = format!("{}:lease:", Self::PROCESSOR);
        let documents = self.documents().into_iter().filter(|(id, _)| id.starts_with(&prefix));
        documents.map(|(id, body)| LeaseSeen::read(id, body)).collect()
    }

    /// The leases that are processed or wait to be.
    pub(crate) fn leases(&self) -> Vec<LeaseSeen> {
        let leases = self.all_leases().into_iter();
        leases.filter(|it| it.state == LeaseState::Active).collect()
    }

    /// How many leases each instance has; those without an owner under "".
    pub(crate) fn owners(&self) -> BTreeMap<String, usize> {
        let mut owners = BTreeMap::new();
        for lease in self.leases() {
            *owners.entry(lease.owner.unwrap_or_default()).or_default() += 1;
        }
        owners
    }

    /// The control document; none before the first start.
    pub(crate) fn control(&self) -> Option<Value> {
        self.documents().remove(&format!("{}:control", Self::PROCESSOR))
    }

    /// The names of the members.
    pub(crate) fn members(&self) -> Vec<String> {
        let prefix = format!("{}:member:", Self::PROCESSOR);
        let documents = self.documents().into_keys();
        documents.filter_map(|id| Some(id.strip_prefix(&prefix)?.to_owned())).collect()
    }

    /// Whether the active leases cover every key once.
    pub(crate) fn leases_are_whole(&self) -> bool {
        let mut keys: Vec<KeyRange> = self.leases().into_iter().map(|it| it.keys).collect();
        keys.sort_by(|one, other| one.min().trimmed().cmp(other.min().trimmed()));
        let mut at = KeyRange::all().min().clone();
        for range in keys {
            if range.min().trimmed() != at.trimmed() {
                return false;
            }
            at = range.max().clone();
        }
        at.trimmed() == KeyRange::all().max().trimmed()
    }

    /// Writes a document into the container of the leases, as somebody else would.
    pub(crate) fn put_document(&self, body: &Value) {
        let key = self.document_key(body);
        let operation = Operation::upsert(body.to_string());
        let commit = self.raw_leases().documents.commit(Batch::new(key).with(operation));
        block_on(commit).unwrap_or_else(|error| panic!("{}", error.report()));
    }

    /// Removes a document by hand.
    pub(crate) fn remove_document(&self, id: &str) {
        let body = self.documents().remove(id).expect("it exists");
        let operation = Operation::delete(ItemId::new(id).expect("an id"));
        let batch = Batch::new(self.document_key(&body)).with(operation);
        block_on(self.raw_leases().documents.commit(batch)).expect("it exists");
    }

    fn document_key(&self, body: &Value) -> PartitionKey {
        let settings = &self.raw_leases().info.settings;
        settings.partition_key.extract(body.to_string().as_bytes()).expect("it has one")
    }
}

impl LeaseSeen {
    fn read(id: String, body: Value) -> Self {
        let text = |name: &str| body[name].as_str().map(str::to_owned);
        Self {
            id,
            keys: serde_json::from_value(body["keys"].clone()).expect("a lease has keys"),
            owner: body["owner"]["instance"].as_str().map(str::to_owned),
            epoch: body["epoch"].as_u64().expect("a lease has an epoch"),
            position: text("position").expect("a lease has a position"),
            state: serde_json::from_value(body["state"].clone()).expect("a lease has a state"),
            body,
        }
    }
}
