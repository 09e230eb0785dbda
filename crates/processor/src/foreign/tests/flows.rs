//! The flows of the design of Java's processor, by name: bootstrap, migration, rolling back.

use std::sync::Arc;
use std::sync::Mutex;

use async_trait::async_trait;
use millstream_core::conformance::block_on;
use millstream_core::{
    Batch, BatchOutcome, Container, Containers, Documents, Item, ItemId, OperationKind, PageSize,
    PartitionKey, ScanContinuation, ScanPage, ScanScope,
};
use serde_json::{Value, json};

use crate::error::ErrorKind;
use crate::foreign::tests::harness::{
    PREFIX, PROCESSOR, Scene, all_items, etag, info, java_pk, name_of,
};
use crate::foreign::{
    Export, ForeignDocument, ForeignForm, ForeignPosition, Import, ImportState, TargetWrite,
};

/// The prefix of Java's epk leases, which names resource ids and not names.
const EPK_PREFIX: &str = "billingexample.documents.azure.com_bf8uAA==_epk=";

fn quoted(number: u64) -> Value {
    Value::from(etag(number))
}

/// Two ranges with leases of Java's pk form, somewhere in the middle.
fn migrating() -> Scene {
    let scene = Scene::new(2);
    scene.write_orders(0..20);
    scene.put_old(&[info(), java_pk(0, &quoted(3)), java_pk(1, &quoted(4))]);
    scene
}

/// Notes what is written, in order.
struct Recorder {
    inner: Arc<dyn Documents>,
    written: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn around(container: &Container, written: &Arc<Mutex<Vec<String>>>) -> Container {
        let inner = Arc::clone(&container.documents);
        let documents = Arc::new(Self { inner, written: Arc::clone(written) });
        Container { documents, ..container.clone() }
    }
}

#[async_trait]
impl Documents for Recorder {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> millstream_core::Result<Option<Item>> {
        self.inner.read(key, id).await
    }

    async fn commit(&self, batch: Batch) -> millstream_core::Result<BatchOutcome> {
        let kinds: Vec<bool> = batch
            .operations
            .iter()
            .map(|it| matches!(it.kind, OperationKind::Create { .. }))
            .collect();
        let outcome = self.inner.commit(batch).await?;
        for (result, is_create) in outcome.results.iter().zip(kinds) {
            let id = result.item().map(|it| it.id.to_string()).unwrap_or_default();
            let verb = if is_create { "create" } else { "write" };
            self.written.lock().unwrap().push(format!("{verb} {id}"));
        }
        Ok(outcome)
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> millstream_core::Result<ScanPage> {
        self.inner.scan(scope, after, size).await
    }
}

#[test]
fn bootstrap_initialised_store_finishes_at_once() {
    let scene = migrating();
    block_on(scene.import().apply()).unwrap();
    // A running processor has moved on since.
    scene.process();
    let before = (all_items(&scene.old), all_items(&scene.ours));
    let report = block_on(scene.import().apply()).unwrap();
    assert_eq!(report.state, ImportState::Applied);
    assert_eq!((all_items(&scene.old), all_items(&scene.ours)), before);
}

#[test]
fn bootstrap_uninitialised_store_creates_all_leases_then_marks_it() {
    let scene = migrating();
    let written = Arc::default();
    let (old, ours) =
        (Recorder::around(&scene.old, &written), Recorder::around(&scene.ours, &written));
    block_on(Import::new(&old, &scene.feed, &ours, PROCESSOR, PREFIX).apply()).unwrap();
    let lease = |it: &millstream_core::RangeInfo| {
        let container = scene.feed.info.resource_id.incarnation();
        let token = crate::stored::lease_token(&it.keys);
        format!("create billing:lease:{container}:{token}")
    };
    let ranges = scene.ranges();
    let expected = [
        "create billing:control".to_owned(),
        lease(&ranges[0]),
        lease(&ranges[1]),
        "write billing:control".to_owned(),
        format!("create {PREFIX}.imported"),
    ];
    assert_eq!(*written.lock().unwrap(), expected);
}

#[test]
fn bootstrap_of_the_other_processor_finds_an_initialised_store_after_an_export() {
    let scene = migrating();
    block_on(scene.import().apply()).unwrap();
    let written = Arc::default();
    let target = Recorder::around(&Scene::new(1).old, &written);
    let form = ForeignForm::JavaPk;
    let export = Export::new(&scene.feed, &scene.ours, PROCESSOR, &target, PREFIX, form);
    block_on(export.apply()).unwrap();
    let expected = ["..0", "..1", ".info"].map(|suffix| format!("create {PREFIX}{suffix}"));
    assert_eq!(*written.lock().unwrap(), expected);
}

/// From Java's pk leases over ours to its epk leases.
fn migrate(scene: &Scene) -> Vec<crate::foreign::ForeignLease> {
    block_on(scene.import().apply()).unwrap();
    let form = ForeignForm::JavaEpk;
    let export = Export::new(&scene.feed, &scene.ours, PROCESSOR, &scene.old, EPK_PREFIX, form);
    block_on(export.apply()).unwrap();
    let documents =
        scene.old_documents().into_iter().filter_map(|it| {
            match ForeignDocument::parse(it.to_string().as_bytes()).unwrap() {
                Some(ForeignDocument::Lease(lease)) if lease.prefix == EPK_PREFIX => Some(*lease),
                _ => None,
            }
        });
    documents.collect()
}

#[test]
fn migration_creates_epk_leases_from_pk_leases() {
    let scene = migrating();
    let leases = migrate(&scene);
    let positions: Vec<&ForeignPosition> = leases.iter().map(|it| &it.position).collect();
    let expected = [3, 4].map(|it| ForeignPosition::Etag(etag(it)));
    assert_eq!(positions, [&expected[0], &expected[1]]);
    assert!(leases.iter().all(|it| it.form == ForeignForm::JavaEpk));
    let marker = format!("{EPK_PREFIX}.info");
    assert!(scene.old_documents().iter().any(|it| it["id"] == marker.as_str()));
}

#[test]
fn migration_keeps_the_pk_leases() {
    let scene = migrating();
    let before = scene.old_documents();
    migrate(&scene);
    let after = scene.old_documents();
    assert!(before.iter().all(|it| after.contains(it)), "{after:?}");
}

#[test]
fn migration_after_a_split_gives_each_child_the_position_of_its_parent() {
    let scene = migrating();
    scene.split(1);
    let positions: Vec<ForeignPosition> =
        migrate(&scene).into_iter().map(|it| it.position).collect();
    assert_eq!(positions, [3, 4, 4].map(|it| ForeignPosition::Etag(etag(it))));
}

#[test]
fn migration_without_pk_leases_is_refused() {
    let scene = Scene::new(2);
    let error = block_on(scene.import().apply()).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound);
}

#[test]
fn migration_of_a_recreated_container_is_refused() {
    let scene = migrating();
    // The leases are by name, so they look as if they were made for the new container.
    block_on(scene.store.delete(&name_of("orders"))).unwrap();
    let settings = scene.feed.info.settings.clone();
    block_on(scene.store.create(&name_of("orders"), settings)).unwrap();
    let feed = block_on(scene.store.open(&name_of("orders"))).unwrap();
    let import = Import::new(&scene.old, &feed, &scene.ours, PROCESSOR, PREFIX);
    let error = block_on(import.apply()).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::ContainerRecreated);
    assert_eq!(all_items(&scene.ours).len(), 0);
}

#[test]
fn migration_by_name_warns_that_the_container_was_not_verified() {
    let scene = migrating();
    let report = block_on(scene.import().dry_run()).unwrap();
    assert!(report.warnings.iter().any(|it| it.contains("it was not verified")), "{report:?}");
}

#[test]
fn migration_while_old_hosts_checkpoint_causes_duplicates_not_loss() {
    let scene = migrating();
    let report = block_on(scene.import().apply()).unwrap();
    // An old host goes on for a while, and then more is written.
    let handled_by_old: Vec<String> = {
        let low = &report.leases[0];
        scene.read(&low.keys, &low.position)
    };
    scene.put_old(&[java_pk(0, &quoted(scene.newest(&report.leases[0].keys)))]);
    scene.write_orders(20..40);
    let mut ours = Vec::new();
    for stored in scene.our_documents().leases {
        let position = stored.document.continuation().unwrap();
        ours.extend(scene.read(&stored.document.keys, &position));
    }
    assert!(handled_by_old.iter().all(|it| ours.contains(it)), "no duplicates");
    for customer in 20..40 {
        let name = PartitionKey::from(format!("customer-{customer}")).to_string();
        assert!(ours.contains(&name), "{name} was lost");
    }
    assert!(!handled_by_old.is_empty());
    assert_eq!(ours.len(), 20 - 3 - 4 + 20, "more is repeated than was behind the positions");
}

#[test]
fn rollback_exports_back_to_pk() {
    let scene = migrating();
    block_on(scene.import().apply()).unwrap();
    scene.process();
    let newest: Vec<u64> = scene.ranges().iter().map(|it| scene.newest(&it.keys)).collect();
    let report = block_on(scene.export(ForeignForm::JavaPk).apply()).unwrap();
    assert!(report.leases.iter().all(|it| it.write == TargetWrite::Replace));
    for (partition, number) in newest.into_iter().enumerate() {
        let lease = scene.old_document(&format!("..{partition}"));
        assert_eq!(lease["ContinuationToken"], etag(number));
        assert_eq!(lease["Owner"], Value::Null);
    }
}

#[test]
fn rollback_after_a_split_leaves_the_parent_and_says_so() {
    let scene = migrating();
    scene.split(0);
    block_on(scene.import().apply()).unwrap();
    let report = block_on(scene.export(ForeignForm::JavaPk).apply()).unwrap();
    let parent = format!("the lease \"{PREFIX}..0\" is for other keys");
    assert!(report.warnings.iter().any(|it| it.starts_with(&parent)), "{report:?}");
    for id in ["..1", "..2", "..3"] {
        scene.old_document(id);
    }
    assert_eq!(scene.old_document("..0"), java_pk(0, &quoted(3)));
}

#[test]
fn rollback_after_a_merge_is_refused_with_the_lease_named() {
    let scene = migrating();
    block_on(scene.import().apply()).unwrap();
    scene.merge(0);
    let before = scene.old_documents();
    let error = block_on(scene.export(ForeignForm::JavaPk).apply()).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Invalid);
    let report = error.report();
    for token in ["-1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF-FF"] {
        assert!(report.contains(&format!("the lease \"{token}\": its keys")), "{report}");
    }
    assert_eq!(scene.old_documents(), before);
    // The epk form takes them.
    let form = ForeignForm::JavaEpk;
    let export = Export::new(&scene.feed, &scene.ours, PROCESSOR, &scene.old, EPK_PREFIX, form);
    assert_eq!(block_on(export.apply()).unwrap().leases.len(), 2);
}

#[test]
fn rollback_meets_a_host_that_still_writes() {
    let scene = migrating();
    block_on(scene.import().apply()).unwrap();
    scene.process();
    let mut owned = java_pk(0, &quoted(3));
    owned["Owner"] = json!("ZKNjph");
    scene.put_old(&[owned]);
    let report = block_on(scene.export(ForeignForm::JavaPk).dry_run()).unwrap();
    assert!(report.problems.is_empty());
    assert!(report.warnings.iter().any(|it| it.contains("still owned by host \"ZKNjph\"")));
}
