//! Obligation 3: every write gives a new etag, and a condition that does not hold refuses the
//! operation.

use crate::conformance::Subject;
use crate::conformance::harness::{Scene, body, item_id, must, settings};
use crate::{
    Batch, ErrorKind, Etag, IfNoneMatch, Operation, OperationKind, OperationResult, Patch,
    PatchOperation,
};

pub(super) async fn obligation_03_every_write_gives_a_new_etag(subject: &mut dyn Subject) {
    let scene = Scene::new(subject, settings()).await;
    let mut etags: Vec<Etag> = Vec::new();
    let mut note = |etag: &Etag| {
        assert!(!etags.contains(etag), "two writes of an item gave it the etag {etag}");
        etags.push(etag.clone());
    };
    let same = body("k", "1", 0);
    note(&scene.create("k", "1").await.etag);
    for _ in 0..3 {
        // The same bytes again are a write all the same.
        note(&scene.commit_one("k", Operation::upsert(same.clone())).await.etag);
        let replace = Operation::replace(item_id("1"), same.clone());
        note(&scene.commit_one("k", replace).await.etag);
        note(&scene.commit_one("k", Operation::patch(item_id("1"), set_n(0))).await.etag);
        let steps = Batch::new("k")
            .with(Operation::upsert(same.clone()))
            .with(Operation::upsert(same.clone()));
        let outcome = scene.commit(steps).await;
        outcome.results.iter().filter_map(OperationResult::item).for_each(|it| note(&it.etag));
        scene.delete("k", "1").await;
        note(&scene.create("k", "1").await.etag);
    }
    let kept = scene.existing("k", "1").await.etag;
    scene.create("k", "2").await;
    assert_eq!(scene.existing("k", "1").await.etag, kept, "a write to one item changed another");
}

pub(super) async fn obligation_03_an_etag_survives_reopening(subject: &mut dyn Subject) {
    let scene = Scene::new(subject, settings()).await;
    let written = scene.create("k", "1").await;
    let scene = scene.reopened(subject).await;
    assert_eq!(scene.existing("k", "1").await.etag, written.etag);
    let replaced = Operation::upsert(body("k", "1", 1)).if_match(written.etag.clone());
    let replaced = scene.commit_one("k", replaced).await;
    assert_ne!(replaced.etag, written.etag);
    let stale = Batch::new("k").with(Operation::delete(item_id("1")).if_match(written.etag));
    scene.refused(stale, ErrorKind::PreconditionFailed, Some(0)).await;
}

pub(super) async fn obligation_03_if_match_lets_only_the_known_version_change(
    subject: &mut dyn Subject,
) {
    let scene = Scene::new(subject, settings()).await;
    for make in writes() {
        let old = scene.upsert("k", "1", 0).await.etag;
        let current = scene.upsert("k", "1", 1).await;
        for wrong in [old, Etag::new("no such etag"), Etag::new("")] {
            let batch = Batch::new("k").with(make().if_match(wrong));
            scene.refused(batch, ErrorKind::PreconditionFailed, Some(0)).await;
            assert_eq!(scene.existing("k", "1").await, current, "a refused write changed the item");
        }
        let batch = Batch::new("k").with(make().if_match(current.etag.clone()));
        scene.commit(batch.clone()).await;
        let deletes = matches!(make().kind, OperationKind::Delete(_));
        let kind = if deletes { ErrorKind::NotFound } else { ErrorKind::PreconditionFailed };
        scene.refused(batch, kind, Some(0)).await;
    }
}

pub(super) async fn obligation_03_if_none_match_lets_only_an_unknown_version_change(
    subject: &mut dyn Subject,
) {
    let scene = Scene::new(subject, settings()).await;
    for make in writes() {
        let old = scene.upsert("k", "1", 0).await.etag;
        let current = scene.upsert("k", "1", 1).await;
        for condition in [IfNoneMatch::Any, IfNoneMatch::Etag(current.etag.clone())] {
            let batch = Batch::new("k").with(make().if_none_match(condition));
            scene.refused(batch, ErrorKind::PreconditionFailed, Some(0)).await;
            assert_eq!(scene.existing("k", "1").await, current, "a refused write changed the item");
        }
        scene.commit(Batch::new("k").with(make().if_none_match(IfNoneMatch::Etag(old)))).await;
    }
    // Where there is no item, "any" holds: this is how to create with an upsert.
    let upsert = || Operation::upsert(body("k", "new", 0)).if_none_match(IfNoneMatch::Any);
    scene.commit(Batch::new("k").with(upsert())).await;
    scene.refused(Batch::new("k").with(upsert()), ErrorKind::PreconditionFailed, Some(0)).await;
}

pub(super) async fn obligation_03_a_reader_that_knows_the_version_gets_no_body(
    subject: &mut dyn Subject,
) {
    let scene = Scene::new(subject, settings()).await;
    let old = scene.upsert("k", "1", 0).await.etag;
    let current = scene.upsert("k", "1", 1).await;
    let read = |etag: &Etag| {
        let condition = IfNoneMatch::Etag(etag.clone());
        Batch::new("k").with(Operation::read(item_id("1")).if_none_match(condition))
    };
    let known = scene.commit(read(&current.etag)).await.results;
    assert_eq!(known, [OperationResult::NotModified]);
    let unknown = scene.commit(read(&old)).await.results;
    assert_eq!(unknown, [OperationResult::Read(current)]);
}

pub(super) async fn obligation_03_no_etag_matches_what_the_same_batch_wrote(
    subject: &mut dyn Subject,
) {
    let scene = Scene::new(subject, settings()).await;
    let before = scene.upsert("k", "1", 0).await;
    let batch = Batch::new("k")
        .with(Operation::upsert(body("k", "1", 1)).if_match(before.etag.clone()))
        .with(Operation::upsert(body("k", "1", 2)).if_match(before.etag.clone()));
    scene.refused(batch, ErrorKind::PreconditionFailed, Some(1)).await;
    assert_eq!(scene.existing("k", "1").await, before, "half of a refused batch was committed");
}

/// Every way to change an item that exists.
fn writes() -> [fn() -> Operation; 4] {
    [
        || Operation::upsert(body("k", "1", 2)),
        || Operation::replace(item_id("1"), body("k", "1", 3)),
        || Operation::patch(item_id("1"), set_n(4)),
        || Operation::delete(item_id("1")),
    ]
}

fn set_n(number: u32) -> Patch {
    must(Patch::new(vec![must(PatchOperation::set("/n", &number))]))
}
