//! Obligation 2, the other side: a refused batch names the operation that failed and leaves nothing
//! behind.

use crate::conformance::Subject;
use crate::conformance::harness::{
    ALL, LATEST, Scene, body, event, extended, item_id, must, settings, versions,
};
use crate::{
    Batch, ContainerSettings, ErrorKind, Etag, IfNoneMatch, KeyRange, Operation, PageSize, Patch,
    PatchOperation, StartFrom,
};

/// Every reason to refuse an operation; item "old" exists, item "none" does not.
fn reasons() -> Vec<(Operation, ErrorKind)> {
    let stale = || Etag::new("stale");
    let set = |path: &str| must(Patch::new(vec![must(PatchOperation::set(path, &1))]));
    let remove = |path: &str| must(Patch::new(vec![must(PatchOperation::remove(path))]));
    let old = || item_id("old");
    let none = || item_id("none");
    vec![
        (Operation::create(body("k", "old", 1)), ErrorKind::AlreadyExists),
        (Operation::create(body("k", "first", 1)), ErrorKind::AlreadyExists),
        (Operation::replace(none(), body("k", "none", 1)), ErrorKind::NotFound),
        (Operation::patch(none(), set("/n")), ErrorKind::NotFound),
        (Operation::delete(none()), ErrorKind::NotFound),
        (Operation::read(none()), ErrorKind::NotFound),
        (Operation::replace(none(), body("k", "none", 1)).if_match(stale()), ErrorKind::NotFound),
        (Operation::delete(none()).if_match(stale()), ErrorKind::NotFound),
        (Operation::upsert(body("k", "old", 1)).if_match(stale()), ErrorKind::PreconditionFailed),
        (
            Operation::upsert(body("k", "old", 1)).if_none_match(IfNoneMatch::Any),
            ErrorKind::PreconditionFailed,
        ),
        (
            Operation::replace(old(), body("k", "old", 1)).if_match(stale()),
            ErrorKind::PreconditionFailed,
        ),
        (Operation::patch(old(), set("/n")).if_match(stale()), ErrorKind::PreconditionFailed),
        (Operation::delete(old()).if_match(stale()), ErrorKind::PreconditionFailed),
        (Operation::patch(old(), remove("/missing")), ErrorKind::Invalid),
        (Operation::patch(old(), set("/missing/below")), ErrorKind::Invalid),
        (Operation::patch(old(), set("/pk")), ErrorKind::Invalid),
        (Operation::replace(old(), body("k", "other", 1)), ErrorKind::Invalid),
        (Operation::create(body("other", "new", 1)), ErrorKind::Invalid),
        (Operation::upsert(body("other", "old", 1)), ErrorKind::Invalid),
        (Operation::create("{"), ErrorKind::Invalid),
        (Operation::create(extended("k", "new", r#","ttl":0"#)), ErrorKind::Invalid),
    ]
}

pub(super) async fn obligation_02_a_refused_batch_changes_nothing(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    check_refusals(&scene, &[LATEST]).await;
}

pub(super) async fn obligation_02_a_refused_batch_leaves_no_version(subject: &mut dyn Subject) {
    let settings = ContainerSettings { event_type: None, ..settings() };
    if let Some(scene) = Scene::all_versions(subject, settings).await {
        check_refusals(&scene, &[LATEST, ALL]).await;
    }
}

async fn check_refusals(scene: &Scene, modes: &[crate::FeedMode]) {
    let keys = KeyRange::all();
    scene.create("k", "old").await;
    let items = scene.scan_all().await;
    let mut starts = Vec::new();
    for mode in modes {
        starts.push(scene.start(&keys, StartFrom::Now, *mode).await);
    }
    for (operation, kind) in reasons() {
        // The refused operation stands behind writes and before others.
        let batch = Batch::new("k")
            .with(Operation::create(body("k", "first", 0)))
            .with(Operation::upsert(event("k", "second", None)))
            .with(operation.clone())
            .with(Operation::create(body("k", "last", 0)))
            .with(Operation::create(body("k", "old", 0)));
        scene.refused(batch, kind, Some(2)).await;
        assert_eq!(scene.scan_all().await, items, "after {operation:?} was refused");
        for start in &starts {
            let (changes, _) = scene.drain_from(&keys, start, PageSize::default()).await;
            let none: [String; 0] = [];
            assert_eq!(versions(&changes), none, "after {operation:?} was refused");
        }
    }
    // The same items can be written afterwards, and their commits are seen.
    let batch = Batch::new("k")
        .with(Operation::create(body("k", "first", 0)))
        .with(Operation::create(body("k", "last", 0)));
    let outcome = scene.commit(batch).await;
    for start in &starts {
        let (changes, _) = scene.drain_from(&keys, start, PageSize::default()).await;
        assert_eq!(changes.len(), 2, "the batch after refused ones is not whole in the feed");
        assert!(changes.iter().all(|it| it.lsn == outcome.lsn));
    }
}

pub(super) async fn obligation_02_the_first_failing_operation_is_named(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    scene.create("k", "old").await;
    for place in [0, 1, 50, 99] {
        let mut batch = Batch::new("k");
        for index in 0..100 {
            let id = if index < place { format!("new-{index}") } else { "old".to_owned() };
            batch = batch.with(Operation::create(body("k", &id, 0)));
        }
        scene.refused(batch, ErrorKind::AlreadyExists, Some(place)).await;
    }
    assert_eq!(scene.scan_all().await.len(), 1, "part of a refused batch was committed");
    let wrong_key = Batch::new("other").with(Operation::read(item_id("old")));
    scene.refused(wrong_key, ErrorKind::NotFound, Some(0)).await;
}
