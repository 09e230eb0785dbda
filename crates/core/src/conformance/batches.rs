//! Obligation 2: a batch commits whole or not at all. Obligation 4: what was acknowledged survives.

use bytes::Bytes;

use crate::conformance::Subject;
use crate::conformance::harness::{
    ALL, LATEST, Scene, body, extended, item_id, must, settings, versions,
};
use crate::{
    BATCH_RESULT_BYTES_MAX, Batch, ErrorKind, IfNoneMatch, KeyRange, Operation, OperationResult,
    PageSize, Patch, PatchCondition, PatchOperation, StartFrom,
};

pub(super) async fn obligation_02_each_operation_does_what_it_says(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let mut existing = Batch::new("k");
    for id in ["upserted", "replaced", "patched", "deleted", "read"] {
        existing = existing.with(Operation::create(body("k", id, 1)));
    }
    scene.commit(existing).await;
    let read = scene.existing("k", "read").await;
    let outcome = scene
        .commit(
            Batch::new("k")
                .with(Operation::create(body("k", "created", 2)))
                .with(Operation::upsert(body("k", "new", 2)))
                .with(Operation::upsert(body("k", "upserted", 2)))
                .with(Operation::replace(item_id("replaced"), body("k", "replaced", 2)))
                .with(Operation::patch(item_id("patched"), increment(1)))
                .with(Operation::delete(item_id("deleted")))
                .with(Operation::read(item_id("read"))),
        )
        .await;
    let kinds: Vec<_> = outcome.results.iter().map(kind).collect();
    assert_eq!(
        kinds,
        ["created", "created", "replaced", "replaced", "replaced", "deleted", "read"],
        "operations did something else than they say",
    );
    for id in ["created", "new", "upserted", "replaced", "patched"] {
        let item = scene.existing("k", id).await;
        assert_eq!(item.body, body("k", id, 2), "item {id:?} has another body");
        assert_eq!(item.lsn, outcome.lsn, "item {id:?} does not have the number of its batch");
        let result = outcome.results.iter().filter_map(OperationResult::item);
        assert!(result.into_iter().any(|it| *it == item), "item {id:?} was returned differently");
    }
    assert!(!scene.is_there("k", "deleted").await, "a deleted item is still there");
    assert_eq!(outcome.results[6], OperationResult::Read(read), "a read returned another item");
}

pub(super) async fn obligation_02_steps_see_what_earlier_steps_did(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let outcome = scene
        .commit(
            Batch::new("k")
                .with(Operation::create(body("k", "1", 0)))
                .with(Operation::replace(item_id("1"), body("k", "1", 10)))
                .with(Operation::patch(item_id("1"), increment(5)))
                .with(Operation::read(item_id("1")))
                .with(Operation::delete(item_id("1")))
                .with(Operation::create(body("k", "1", 20)))
                .with(Operation::patch(item_id("1"), increment(1)))
                .with(Operation::upsert(body("k", "2", 0)))
                .with(Operation::delete(item_id("2"))),
        )
        .await;
    let results = &outcome.results;
    let kinds: Vec<_> = results.iter().map(kind).collect();
    assert_eq!(
        kinds,
        [
            "created", "replaced", "replaced", "read", "deleted", "created", "replaced", "created",
            "deleted",
        ],
    );
    assert_eq!(results[3].item(), results[2].item(), "a read missed the step before it");
    assert_eq!(results[2].item().map(|it| &it.body), Some(&body("k", "1", 15)));
    let item = scene.existing("k", "1").await;
    assert_eq!(Some(&item), results[6].item(), "the last step did not win");
    assert_eq!(item.body, body("k", "1", 21));
    assert!(!scene.is_there("k", "2").await, "an item deleted by its own batch is there");
    let changes = scene.changes(StartFrom::Beginning, LATEST).await;
    assert_eq!(versions(&changes), [crate::conformance::harness::version_of(&item)]);
    // What a batch deletes it can not use any more.
    let gone = || Batch::new("k").with(Operation::delete(item_id("1")));
    for late in [Operation::read(item_id("1")), Operation::delete(item_id("1"))] {
        scene.refused(gone().with(late), ErrorKind::NotFound, Some(1)).await;
    }
    let twice = Batch::new("k")
        .with(Operation::create(body("k", "3", 0)))
        .with(Operation::create(body("k", "3", 0)));
    scene.refused(twice, ErrorKind::AlreadyExists, Some(1)).await;
    assert_eq!(scene.scan_all().await, [item]);
}

pub(super) async fn obligation_02_a_patch_changes_what_it_names_and_nothing_else(
    subject: &mut dyn Subject,
) {
    let scene = Scene::plain(subject).await;
    let odd = r#", "big":1e400 , "n":1, "list":[1, 2]"#;
    scene.commit_one("k", Operation::create(extended("k", "1", odd))).await;
    let patch = Patch::new(vec![
        must(PatchOperation::increment("/n", 41)),
        must(PatchOperation::add("/list/-", &3)),
    ]);
    scene.commit_one("k", Operation::patch(item_id("1"), must(patch))).await;
    let patched = scene.existing("k", "1").await;
    let value = String::from_utf8_lossy(&patched.body).into_owned();
    assert!(value.contains(r#""big":1e400 "#), "a patch rewrote another property: {value}");
    assert!(value.contains(r#""n":42"#), "a patch did not increment: {value}");
    let condition = |text: &'static str| {
        PatchCondition::new(text, move |body| Ok(String::from_utf8_lossy(body).contains(text)))
    };
    let only_if = |text| increment(1).with_condition(condition(text));
    let refused = Batch::new("k").with(Operation::patch(item_id("1"), only_if(r#""n":41"#)));
    scene.refused(refused, ErrorKind::PreconditionFailed, Some(0)).await;
    assert_eq!(scene.existing("k", "1").await, patched);
    scene.commit_one("k", Operation::patch(item_id("1"), only_if(r#""n":42"#))).await;
    let value = scene.existing("k", "1").await.body;
    assert!(String::from_utf8_lossy(&value).contains(r#""n":43"#), "{value:?}");
}

pub(super) async fn obligation_02_a_batch_has_1_to_100_operations(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let limit = scene.store.capabilities().batch_operations_max;
    let batch = |count: usize, prefix: &str| {
        let ids = (0..count).map(|it| format!("{prefix}-{it}"));
        ids.fold(Batch::new("k"), |batch, id| batch.with(Operation::create(body("k", &id, 0))))
    };
    scene.refused(batch(0, "none"), ErrorKind::Invalid, None).await;
    scene.refused(batch(limit + 1, "many"), ErrorKind::Invalid, None).await;
    assert_eq!(scene.scan_all().await, [], "a batch out of bounds was committed");
    let outcome = scene.commit(batch(limit, "most")).await;
    assert_eq!(outcome.results.len(), limit);
    let changes = scene.changes(StartFrom::Beginning, LATEST).await;
    assert_eq!(changes.len(), limit, "the largest batch is not whole in the feed");
    assert!(changes.iter().all(|it| it.lsn == outcome.lsn));
    let ids = changes.iter().map(|it| it.id.to_string());
    let expected = (0..limit).map(|it| format!("most-{it}"));
    assert!(ids.eq(expected), "the feed shows the items of a batch in another order");
}

pub(super) async fn obligation_02_sizes_are_limited(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let capabilities = scene.store.capabilities();
    let filled = |id: &str, bytes: usize| -> Bytes {
        let empty = extended("k", id, r#","text":"""#).len();
        extended("k", id, &format!(r#","text":"{}""#, "x".repeat(bytes - empty)))
    };
    let largest = capabilities.item_bytes_max.min(capabilities.batch_bytes_max);
    let item = scene.commit_one("k", Operation::create(filled("large", largest))).await;
    assert_eq!(scene.existing("k", "large").await, item, "the largest item came back differently");
    let grow = must(Patch::new(vec![must(PatchOperation::set("/more", &1))]));
    let grow = Batch::new("k").with(Operation::patch(item_id("large"), grow));
    scene.refused(grow, ErrorKind::TooLarge, Some(0)).await;
    assert_eq!(scene.existing("k", "large").await, item);

    let too_large = Batch::new("k").with(Operation::create(filled("larger", largest + 1)));
    let error = scene.container.documents.commit(too_large).await.err();
    let error = error.unwrap_or_else(|| panic!("an item beyond the limit was stored"));
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{}", error.report());

    let half = capabilities.batch_bytes_max / 2;
    let two = |second: usize| {
        Batch::new("k")
            .with(Operation::create(filled("one", half)))
            .with(Operation::create(filled("two", second)))
    };
    let over = capabilities.batch_bytes_max - half + 1;
    scene.refused(two(over), ErrorKind::TooLarge, None).await;
    assert!(!scene.is_there("k", "one").await, "part of a batch beyond the limit was stored");
    scene.commit(two(over - 1)).await;
    assert_eq!(scene.existing("k", "two").await.body.len(), over - 1);
}

pub(super) async fn obligation_02_what_a_batch_reads_is_limited(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let capabilities = scene.store.capabilities();
    let bytes = capabilities.item_bytes_max.min(capabilities.batch_bytes_max);
    let fit = BATCH_RESULT_BYTES_MAX / bytes;
    let filled = |id: &str| -> Bytes {
        let empty = extended("k", id, r#","text":"""#).len();
        extended("k", id, &format!(r#","text":"{}""#, "x".repeat(bytes - empty)))
    };
    let item = scene.commit_one("k", Operation::create(filled("1"))).await;
    let read = |batch: Batch, id: &str, count: usize| {
        (0..count).fold(batch, |batch, _| batch.with(Operation::read(item_id(id))))
    };
    let outcome = scene.commit(read(Batch::new("k"), "1", fit)).await;
    assert_eq!(outcome.results, vec![OperationResult::Read(item); fit]);
    let too_many = read(Batch::new("k"), "1", fit + 1);
    scene.refused(too_many, ErrorKind::TooLarge, Some(fit)).await;

    // What is written counts, and so does reading it again.
    let create = || Batch::new("k").with(Operation::create(filled("2")));
    for id in ["1", "2"] {
        scene.refused(read(create(), id, fit), ErrorKind::TooLarge, Some(fit)).await;
        assert!(!scene.is_there("k", "2").await, "a batch beyond the limit was stored");
    }
    let outcome = scene.commit(read(create(), "2", fit - 1)).await;
    assert_eq!(outcome.results.len(), fit);

    // What is read only if it is not there gives nothing back.
    let looking = |batch: Batch, id: &str| {
        let look = Operation::read(item_id(id)).if_none_match(IfNoneMatch::Any);
        (0..=fit).fold(batch, |batch, _| batch.with(look.clone()))
    };
    let outcome = scene.commit(looking(Batch::new("k"), "1")).await;
    assert_eq!(outcome.results, vec![OperationResult::NotModified; fit + 1]);
    let write = Batch::new("k").with(Operation::upsert(filled("3")));
    let outcome = scene.commit(looking(write, "3")).await;
    assert_eq!(outcome.results[1..], vec![OperationResult::NotModified; fit + 1]);
}

pub(super) async fn obligation_02_a_batch_that_only_reads_leaves_no_trace(
    subject: &mut dyn Subject,
) {
    let scene = Scene::plain(subject).await;
    let item = scene.create("k", "1").await;
    let keys = KeyRange::all();
    let now = scene.start(&keys, StartFrom::Now, LATEST).await;
    let read = Batch::new("k").with(Operation::read(item_id("1")));
    for _ in 0..3 {
        let outcome = scene.commit(read.clone()).await;
        assert_eq!(outcome.lsn, item.lsn, "a batch of reads did not say the newest number");
        assert_eq!(outcome.results, [OperationResult::Read(item.clone())]);
    }
    let (changes, _) = scene.drain_from(&keys, &now, PageSize::default()).await;
    assert_eq!(versions(&changes), Vec::<String>::new(), "reading wrote to the feed");
    assert_eq!(scene.existing("k", "1").await, item, "reading changed the item");
}

pub(super) async fn obligation_04_an_acknowledged_commit_survives_reopening(
    subject: &mut dyn Subject,
) {
    let Some(mut scene) = Scene::all_versions(subject, settings()).await else {
        return;
    };
    let mut number = 0;
    for round in 0..3 {
        for key in ["a", "b", "c"] {
            let batch = Batch::new(key)
                .with(Operation::upsert(body(key, "entity", number)))
                .with(Operation::create(body(key, &format!("event-{round}"), number)));
            scene.commit(batch).await;
            number += 1;
        }
        scene.delete("c", &format!("event-{round}")).await;
        let items = scene.scan_all().await;
        let latest = scene.changes(StartFrom::Beginning, LATEST).await;
        let all = scene.changes(StartFrom::Beginning, ALL).await;
        scene = scene.reopened(subject).await;
        assert_eq!(scene.scan_all().await, items, "items changed when the store was reopened");
        let found = scene.changes(StartFrom::Beginning, LATEST).await;
        assert_eq!(found, latest, "the feed changed when the store was reopened");
        let found = scene.changes(StartFrom::Beginning, ALL).await;
        assert_eq!(found, all, "the history changed when the store was reopened");
    }
}

fn increment(by: i64) -> Patch {
    must(Patch::new(vec![must(PatchOperation::increment("/n", by))]))
}

fn kind(result: &OperationResult) -> &'static str {
    match result {
        OperationResult::Created(_) => "created",
        OperationResult::Replaced(_) => "replaced",
        OperationResult::Deleted => "deleted",
        OperationResult::Read(_) => "read",
        OperationResult::NotModified => "not modified",
    }
}
