//! Leases of every form become ours.

use millstream_core::conformance::block_on;
use millstream_core::{FeedMode, KeyRange, StartFrom};
use serde_json::{Value, json};

use crate::foreign::tests::harness::{
    Failing, PREFIX, PROCESSOR, Scene, all_items, dotnet_epk, dotnet_pk, etag, info, java_base64,
    java_epk, java_pk, java_state, library,
};
use crate::foreign::{Import, ImportState};
use crate::stored::LeaseState;

fn quoted(number: u64) -> Value {
    Value::from(etag(number))
}

/// Imports, and checks that each lease of ours is at the number next to its range.
#[track_caller]
fn check_imported(scene: &Scene, expected: &[(&KeyRange, u64)]) {
    let report = block_on(scene.import().apply()).unwrap();
    assert_eq!(report.state, ImportState::Applied);
    let listing = scene.our_documents();
    let container = scene.feed.info.resource_id.incarnation();
    let mut found: Vec<(KeyRange, String)> =
        listing.leases.into_iter().map(|it| (it.document.keys, it.document.position)).collect();
    found.sort_by(|left, right| left.0.min().trimmed().cmp(right.0.min().trimmed()));
    let expected: Vec<(KeyRange, String)> = expected
        .iter()
        .map(|(keys, number)| ((*keys).clone(), format!("1.{container}.l.{number}")))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn every_form_is_imported() {
    for form in 0..5 {
        let scene = Scene::new(2);
        scene.write_orders(0..20);
        let ranges = scene.ranges();
        let (low, high) = (&ranges[0].keys, &ranges[1].keys);
        let start = json!({ "Type": "BEGINNING" });
        scene.put_old(&[info()]);
        scene.put_old(&match form {
            0 => [dotnet_pk(0, &quoted(3)), dotnet_pk(1, &quoted(4))],
            1 => [dotnet_epk(low, &quoted(3)), dotnet_epk(high, &quoted(4))],
            2 => [java_pk(0, &quoted(3)), java_pk(1, &quoted(4))],
            3 => [
                java_epk(low, &java_state(low, &start, &["\"3\""])),
                java_epk(high, &java_state(high, &start, &["\"4\""])),
            ],
            _ => [library(0, &quoted(3)), library(1, &quoted(4))],
        });
        check_imported(&scene, &[(low, 3), (high, 4)]);
        let control = scene.our_documents().control.unwrap().document;
        assert!(control.complete);
        assert_eq!((control.start.as_str(), control.roots.len()), ("import", 2));
        assert!(
            scene.our_documents().leases.iter().all(|it| {
                it.document.state == LeaseState::Active && it.document.owner.is_none()
            })
        );
    }
}

#[test]
fn leases_of_dotnet_before_and_after_a_merge_are_imported_together() {
    let scene = Scene::new(3);
    scene.write_orders(0..30);
    let before = scene.ranges();
    scene.merge(1);
    let [low, middle, high] = [&before[0].keys, &before[1].keys, &before[2].keys];
    scene.put_old(&[
        info(),
        dotnet_pk(0, &quoted(3)),
        dotnet_epk(middle, &quoted(4)),
        dotnet_epk(high, &quoted(5)),
    ]);
    check_imported(&scene, &[(low, 3), (middle, 4), (high, 5)]);
}

#[test]
fn a_partition_that_was_split_hands_its_position_to_each_part() {
    let scene = Scene::new(2);
    scene.write_orders(0..20);
    scene.put_old(&[info(), java_pk(0, &quoted(3)), java_pk(1, &quoted(4))]);
    scene.split(0);
    scene.split(1);
    let ranges = scene.ranges();
    let keys: Vec<&KeyRange> = ranges.iter().map(|it| &it.keys).collect();
    check_imported(&scene, &[(keys[0], 3), (keys[1], 3), (keys[2], 3), (keys[3], 4)]);
}

#[test]
fn a_range_that_was_split_is_cut_where_partitions_end() {
    let scene = Scene::new(1);
    scene.write_orders(0..20);
    scene.put_old(&[info(), dotnet_epk(&KeyRange::all(), &quoted(7))]);
    scene.split(0);
    let ranges = scene.ranges();
    check_imported(&scene, &[(&ranges[0].keys, 7), (&ranges[1].keys, 7)]);
}

#[test]
fn a_merged_partition_is_imported_by_the_keys_its_leases_name() {
    let scene = Scene::new(2);
    scene.write_orders(0..20);
    let before = scene.ranges();
    scene.merge(0);
    let with_keys = |partition: u32, number| {
        let mut document = dotnet_pk(partition, &quoted(number));
        let keys = &before[usize::try_from(partition).unwrap()].keys;
        document["FeedRange"] = json!({ "Range": { "min": keys.min(), "max": keys.max() } });
        document
    };
    scene.put_old(&[info(), with_keys(0, 3), with_keys(1, 4)]);
    check_imported(&scene, &[(&before[0].keys, 3), (&before[1].keys, 4)]);
}

#[test]
fn a_start_position_is_pinned_when_it_is_imported() {
    let scene = Scene::new(1);
    scene.write_orders(0..5);
    let keys = KeyRange::all();
    for (start, expected) in [
        (json!({ "Type": "NOW" }), "l.5"),
        (json!({ "Type": "BEGINNING" }), "l.0"),
        (json!({ "Type": "POINT_IN_TIME", "PointInTimeMs": 1_000 }), "l.0.1000"),
    ] {
        let state = java_base64(&json!({ "V": 1, "Mode": "INCREMENTAL", "StartFrom": start }));
        scene.put_old(&[info(), java_epk(&keys, &state)]);
        let report = block_on(scene.import().dry_run()).unwrap();
        assert_eq!(report.problems, []);
        assert!(report.leases[0].position.as_str().ends_with(expected), "{report:?}");
    }
}

#[test]
fn a_lease_that_never_started_begins_where_it_is_told() {
    let scene = Scene::new(1);
    scene.write_orders(0..5);
    scene.put_old(&[info(), dotnet_pk(0, &Value::Null)]);
    let report = block_on(scene.import().dry_run()).unwrap();
    assert!(report.leases[0].position.as_str().ends_with("l.0"), "{report:?}");
    assert!(report.warnings.iter().any(|it| it.contains("starts from the beginning")));
    let report = block_on(scene.import().unstarted(StartFrom::Now).dry_run()).unwrap();
    assert!(report.leases[0].position.as_str().ends_with("l.5"), "{report:?}");
}

#[test]
fn leases_of_all_versions_stay_of_all_versions() {
    let scene = Scene::new(1);
    scene.write_orders(0..5);
    let mut document = dotnet_pk(0, &quoted(2));
    document["Mode"] = json!("Full-Fidelity Feed");
    scene.put_old(&[info(), document]);
    let report = block_on(scene.import().apply()).unwrap();
    assert_eq!(report.mode, Some(FeedMode::AllVersions));
    assert!(report.leases[0].position.as_str().ends_with("a.2"));
    // A lease of Java that never ran does not say.
    let scene = Scene::new(1);
    scene.put_old(&[info(), java_epk(&KeyRange::all(), &Value::Null)]);
    let report = block_on(scene.import().mode(FeedMode::AllVersions).apply()).unwrap();
    assert_eq!(report.mode, Some(FeedMode::AllVersions));
}

#[test]
fn a_dry_run_writes_nothing() {
    let scene = Scene::new(1);
    scene.write_orders(0..5);
    scene.put_old(&[info(), dotnet_pk(0, &quoted(2))]);
    let before = scene.old_documents();
    let report = block_on(scene.import().dry_run()).unwrap();
    assert_eq!(report.state, ImportState::Planned);
    assert_eq!(report.leases.len(), 1);
    assert_eq!(report.leases[0].source.as_deref(), Some(&*format!("{PREFIX}..0")));
    assert_eq!(scene.old_documents(), before);
    assert_eq!(all_items(&scene.ours).len(), 0);
}

#[test]
fn the_source_keeps_its_leases_and_gets_a_note() {
    for (path, key) in [("/id", None), ("/partitionKey", Some("partitionKey"))] {
        let scene = Scene::with_leases_by(1, path);
        scene.write_orders(0..5);
        let mut documents = [info(), dotnet_pk(0, &quoted(2))];
        for document in &mut documents {
            document["partitionKey"] = json!("f3b0c1d2");
        }
        scene.put_old(&documents);
        block_on(scene.import().apply()).unwrap();
        let after = scene.old_documents();
        assert!(documents.iter().all(|it| after.contains(it)), "{after:?}");
        let id = format!("{PREFIX}.imported");
        let mut note = json!({
            "id": id, "importedAt": "2026-08-07T10:00:00.000Z", "processor": PROCESSOR,
            "leases": 1,
        });
        if let Some(key) = key {
            note[key] = json!(id);
        }
        assert_eq!(scene.old_document(".imported"), note);
    }
}

#[test]
fn documents_of_other_processors_are_left_alone() {
    let scene = Scene::new(1);
    scene.write_orders(0..5);
    scene.put_old(&[
        info(),
        dotnet_pk(0, &quoted(2)),
        json!({ "id": format!("other{PREFIX}..0"), "LeaseToken": "9", "version": 7 }),
        json!({ "id": format!("{PREFIX}2..0"), "LeaseToken": "0", "version": 7 }),
        json!({ "id": "unrelated" }),
    ]);
    let report = block_on(scene.import().apply()).unwrap();
    assert_eq!(report.leases.len(), 1);
}

#[test]
fn an_import_that_broke_off_is_completed_by_applying_it_again() {
    // Control document, two leases, control document.
    for (writes, is_reply_lost) in (0..4).flat_map(|it| [(it, false), (it, true)]) {
        let scene = Scene::new(2);
        scene.write_orders(0..20);
        scene.put_old(&[info(), java_pk(0, &quoted(3)), java_pk(1, &quoted(4))]);
        let failing = Failing::after(writes, is_reply_lost, &scene.ours);
        let broken = Import::new(&scene.old, &scene.feed, &failing, PROCESSOR, PREFIX);
        block_on(broken.apply()).unwrap_err();
        // The old hosts go on meanwhile; the positions stay those that were fixed first.
        if (0, false) < (writes, is_reply_lost) {
            scene.put_old(&[java_pk(0, &quoted(5))]);
            let report = block_on(scene.import().dry_run()).unwrap();
            let is_done = (2, true) < (writes, is_reply_lost) && is_reply_lost;
            let state = if is_done { ImportState::Applied } else { ImportState::Interrupted };
            assert_eq!(report.state, state, "{writes} {is_reply_lost}");
        }
        let ranges = scene.ranges();
        check_imported(&scene, &[(&ranges[0].keys, 3), (&ranges[1].keys, 4)]);
        scene.old_document(".imported");
    }
}

#[test]
fn a_note_that_could_not_be_written_is_written_by_applying_again() {
    let scene = Scene::new(1);
    scene.write_orders(0..5);
    scene.put_old(&[info(), java_pk(0, &quoted(3))]);
    let failing = Failing::after(0, false, &scene.old);
    let broken = Import::new(&failing, &scene.feed, &scene.ours, PROCESSOR, PREFIX);
    block_on(broken.apply()).unwrap_err();
    block_on(scene.import().apply()).unwrap();
    assert_eq!(scene.old_document(".imported")["processor"], PROCESSOR);
}

#[test]
fn what_an_operator_should_know_is_in_the_warnings() {
    let scene = Scene::new(1);
    scene.write_orders(0..5);
    let mut owned = java_pk(0, &quoted(3));
    owned["Owner"] = json!("ZKNjph");
    scene.put_old(&[owned, json!({ "id": format!("{PREFIX}.lock"), "ttl": 30 })]);
    let report = block_on(scene.import().dry_run()).unwrap();
    assert_eq!(report.problems, []);
    for text in [
        "is still owned by host \"ZKNjph\"; stop it first",
        "crashed while doing so",
        "never marked as complete",
        "it was not verified",
    ] {
        assert!(report.warnings.iter().any(|it| it.contains(text)), "{text}: {report:?}");
    }
    let fine = Scene::new(1);
    fine.write_orders(0..5);
    fine.put_old(&[info(), dotnet_pk(0, &quoted(3))]);
    assert_eq!(block_on(fine.import().dry_run()).unwrap().warnings, [""; 0]);
}
