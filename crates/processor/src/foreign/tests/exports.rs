//! Our positions become leases of every form again.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use millstream_core::conformance::block_on;
use millstream_core::{FeedMode, KeyRange, RangeInfo};
use serde_json::{Value, json};

use crate::error::ErrorKind;
use crate::foreign::tests::harness::{
    Failing, PREFIX, PROCESSOR, Scene, all_items, dotnet_epk, dotnet_pk, etag, info, java_epk,
    java_pk, java_state, library,
};
use crate::foreign::{Export, ForeignDocument, ForeignForm, ForeignPosition, Import, TargetWrite};
use crate::stored::{LeaseState, Mode};

const FORMS: [ForeignForm; 5] = [
    ForeignForm::DotnetPk,
    ForeignForm::DotnetEpk,
    ForeignForm::JavaPk,
    ForeignForm::JavaEpk,
    ForeignForm::DotnetLibrary,
];

fn quoted(number: u64) -> Value {
    Value::from(etag(number))
}

/// A lease of the form for a whole range.
fn lease_of(form: ForeignForm, range: &RangeInfo, number: u64) -> Value {
    let (id, keys) = (range.id.0, &range.keys);
    match form {
        ForeignForm::DotnetPk => dotnet_pk(id, &quoted(number)),
        ForeignForm::DotnetEpk => dotnet_epk(keys, &quoted(number)),
        ForeignForm::JavaPk => java_pk(id, &quoted(number)),
        ForeignForm::JavaEpk => {
            let start = json!({ "Type": "POINT_IN_TIME", "PointInTimeMs": 7 });
            java_epk(keys, &java_state(keys, &start, &[&etag(number)]))
        }
        ForeignForm::DotnetLibrary => library(id, &quoted(number)),
    }
}

/// A scene of two ranges whose leases were imported.
fn imported(form: ForeignForm) -> Scene {
    let scene = Scene::new(2);
    scene.write_orders(0..20);
    let ranges = scene.ranges();
    scene.put_old(&[info(), lease_of(form, &ranges[0], 3), lease_of(form, &ranges[1], 4)]);
    block_on(scene.import().apply()).unwrap();
    scene
}

/// The positions in the container of the foreign leases.
fn positions(scene: &Scene) -> Vec<(String, ForeignPosition)> {
    let parsed = scene.old_documents().into_iter().filter_map(|it| {
        match ForeignDocument::parse(it.to_string().as_bytes()).unwrap() {
            Some(ForeignDocument::Lease(lease)) => Some((lease.id, lease.position)),
            _ => None,
        }
    });
    parsed.collect()
}

#[track_caller]
fn check_refused(scene: &Scene, export: &Export, kind: &ErrorKind, reason: &str) {
    let before = (all_items(&scene.old), all_items(&scene.ours));
    let report = block_on(export.dry_run()).unwrap();
    let problems = &report.problems;
    let problem = problems.iter().find(|it| it.text.contains(reason));
    let problem = problem.unwrap_or_else(|| panic!("{reason:?} is not in {problems:?}"));
    assert_eq!(problem.kind, *kind);
    assert_eq!(*block_on(export.apply()).unwrap_err().kind(), problems[0].kind);
    assert_eq!((all_items(&scene.old), all_items(&scene.ours)), before, "something was written");
}

#[test]
fn import_and_export_give_the_same_positions_in_every_form() {
    for form in FORMS {
        let scene = imported(form);
        let before = scene.old_documents();
        let report = block_on(scene.export(form).apply()).unwrap();
        assert!(report.leases.iter().all(|it| it.write == TargetWrite::Nothing), "{report:?}");
        assert_eq!(scene.old_documents(), before, "{form}");
    }
}

#[test]
fn leases_that_exist_get_the_new_position_and_keep_the_rest() {
    for form in FORMS {
        let scene = imported(form);
        let mut owned = lease_of(form, &scene.ranges()[0], 3);
        owned["Owner"] = json!("host");
        scene.put_old(&[owned]);
        let before = scene.old_documents();
        scene.process();
        let expected: Vec<u64> = scene.ranges().iter().map(|it| scene.newest(&it.keys)).collect();
        let report = block_on(scene.export(form).apply()).unwrap();
        assert!(report.applied);
        assert!(report.leases.iter().all(|it| it.write == TargetWrite::Replace));
        assert!(report.warnings.iter().any(|it| it.contains("host \"host\"")), "{report:?}");
        let found: Vec<ForeignPosition> = positions(&scene).into_iter().map(|it| it.1).collect();
        let expected: Vec<ForeignPosition> =
            expected.into_iter().map(|it| ForeignPosition::Etag(etag(it))).collect();
        assert_eq!(found, expected, "{form}");
        for (mut old, mut new) in before.into_iter().zip(scene.old_documents()) {
            let is_lease = new.get("LeaseToken").or(new.get("PartitionId")).is_some();
            assert_eq!(new["Owner"], Value::Null);
            assert!(!is_lease || new["timestamp"] == "2026-08-07T10:00:00.000Z");
            for name in ["ContinuationToken", "Owner", "timestamp"] {
                (old[name], new[name]) = (Value::Null, Value::Null);
            }
            assert_eq!(new, old, "{form}");
        }
    }
}

#[test]
fn the_start_of_a_java_lease_is_kept() {
    let scene = imported(ForeignForm::JavaEpk);
    scene.process();
    block_on(scene.export(ForeignForm::JavaEpk).apply()).unwrap();
    let keys = scene.ranges()[0].keys.clone();
    let document = scene.old_document(&format!("..{}-{}", keys.min(), keys.max()));
    let token = document["ContinuationToken"].as_str().unwrap();
    let state = URL_SAFE.decode(token).unwrap();
    let state: Value = serde_json::from_slice(&state).unwrap();
    assert_eq!(state["StartFrom"], json!({ "Type": "POINT_IN_TIME", "PointInTimeMs": 7 }));
    assert_eq!(state["Rid"], state["Continuation"]["Rid"]);
    assert_eq!(state["Continuation"]["Range"]["isMinInclusive"], true);
}

#[test]
fn leases_that_do_not_exist_are_created_in_every_form_and_marked() {
    for (form, path) in [
        (ForeignForm::DotnetPk, "/partitionKey"),
        (ForeignForm::DotnetEpk, "/id"),
        (ForeignForm::JavaPk, "/id"),
        (ForeignForm::JavaEpk, "/id"),
        (ForeignForm::DotnetLibrary, "/id"),
    ] {
        // Imported from one form, exported under a prefix where nothing is yet.
        let scene = imported(ForeignForm::DotnetPk);
        let target = Scene::with_leases_by(1, path).old;
        let export = Export::new(&scene.feed, &scene.ours, PROCESSOR, &target, PREFIX, form);
        let report = block_on(export.apply()).unwrap();
        assert!(report.leases.iter().all(|it| it.write == TargetWrite::Create));
        let items = all_items(&target);
        let marker = items.iter().find(|it| it.id.as_str() == format!("{PREFIX}.info"));
        assert!(marker.is_some(), "there is no marker");
        let leases: Vec<_> = items
            .iter()
            .filter_map(|it| match ForeignDocument::parse(&it.body).unwrap() {
                Some(ForeignDocument::Lease(lease)) => Some(*lease),
                _ => None,
            })
            .collect();
        assert_eq!(leases.len(), 2);
        assert!(leases.iter().all(|it| it.form == form && it.owner.is_none()), "{leases:?}");
        // And imported again under another name, which gives what was imported first.
        let again = Import::new(&target, &scene.feed, &scene.ours, "again", PREFIX);
        let again = block_on(again.apply()).unwrap();
        let positions: Vec<&str> = again.leases.iter().map(|it| it.position.as_str()).collect();
        let (container, control) =
            (scene.feed.info.resource_id.incarnation(), scene.our_documents().control.unwrap());
        assert_eq!(positions, [format!("1.{container}.l.3"), format!("1.{container}.l.4")]);
        assert_eq!(control.document.container, container);
    }
}

#[test]
fn a_new_dotnet_lease_says_everything() {
    let scene = imported(ForeignForm::JavaPk);
    let target = Scene::with_leases_by(1, "/partitionKey");
    let form = ForeignForm::DotnetEpk;
    let export = Export::new(&scene.feed, &scene.ours, PROCESSOR, &target.old, "p", form)
        .clock(scene.clock.clone());
    block_on(export.apply()).unwrap();
    let keys = scene.ranges()[0].keys.clone();
    let (min, max) = (keys.min(), keys.max());
    let id = format!("p..{min}-{max}");
    let expected = json!({
        "id": id, "partitionKey": id, "version": 1, "LeaseToken": format!("{min}-{max}"),
        "FeedRange": { "Range": { "min": min, "max": max } }, "Owner": null,
        "ContinuationToken": "\"3\"", "properties": {}, "timestamp": "2026-08-07T10:00:00.000Z",
        "Mode": "Incremental Feed",
    });
    assert!(target.old_documents().contains(&expected), "{:?}", target.old_documents());
    let marker = json!({ "id": "p.info", "partitionKey": "p.info" });
    assert!(target.old_documents().contains(&marker));
}

#[test]
fn leases_of_dotnet_after_a_merge_are_updated_as_they_are() {
    let scene = Scene::new(3);
    scene.write_orders(0..30);
    let before = scene.ranges();
    scene.merge(1);
    scene.put_old(&[
        info(),
        dotnet_pk(0, &quoted(3)),
        dotnet_epk(&before[1].keys, &quoted(4)),
        dotnet_epk(&before[2].keys, &quoted(5)),
    ]);
    block_on(scene.import().apply()).unwrap();
    scene.process();
    let report = block_on(scene.export(ForeignForm::DotnetPk).apply()).unwrap();
    assert!(report.leases.iter().all(|it| it.write == TargetWrite::Replace), "{report:?}");
    assert_eq!(scene.old_document("..0")["version"], 0);
}

#[test]
fn an_export_that_broke_off_is_completed_by_applying_it_again() {
    // Two leases and the marker.
    for (writes, is_reply_lost) in (0..3).flat_map(|it| [(it, false), (it, true)]) {
        let scene = imported(ForeignForm::JavaPk);
        let target = Scene::new(1).old;
        let broken = Failing::after(writes, is_reply_lost, &target);
        let form = ForeignForm::JavaEpk;
        let export =
            |target| Export::new(&scene.feed, &scene.ours, PROCESSOR, target, PREFIX, form);
        let outcome = block_on(export(&broken).apply());
        assert!(outcome.is_err(), "{writes}");
        let report = block_on(export(&target).apply()).unwrap();
        assert_eq!(report.leases.len(), 2);
        assert_eq!(all_items(&target).len(), 3);
    }
}

#[test]
fn a_dry_run_writes_nothing() {
    let scene = imported(ForeignForm::JavaPk);
    scene.process();
    let before = scene.old_documents();
    let report = block_on(scene.export(ForeignForm::JavaPk).dry_run()).unwrap();
    assert!(!report.applied && report.problems.is_empty());
    assert_eq!(scene.old_documents(), before);
}

#[test]
fn a_split_that_is_not_finished_is_refused() {
    let scene = imported(ForeignForm::JavaPk);
    let store = scene.our_store();
    let mut stored = scene.our_documents().leases.remove(0);
    stored.document.state = LeaseState::Splitting;
    block_on(store.replace(stored.document, &stored.etag)).unwrap();
    let reason = "finish the split first: start an instance";
    check_refused(&scene, &scene.export(ForeignForm::JavaPk), &ErrorKind::Invalid, reason);
}

#[test]
fn leases_that_are_not_whole_partitions_are_refused_by_name() {
    let scene = imported(ForeignForm::JavaPk);
    scene.split(0);
    let export = scene.export(ForeignForm::JavaPk);
    let reason = "the lease \"-1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF\": its keys";
    check_refused(&scene, &export, &ErrorKind::Invalid, reason);
}

#[test]
fn leases_of_another_sdk_or_mode_in_the_target_are_refused() {
    let scene = imported(ForeignForm::JavaPk);
    let reason = "is in the way";
    check_refused(&scene, &scene.export(ForeignForm::JavaEpk), &ErrorKind::Invalid, reason);
    check_refused(&scene, &scene.export(ForeignForm::DotnetPk), &ErrorKind::Invalid, reason);
    let scene = imported(ForeignForm::DotnetPk);
    let mut other = dotnet_pk(0, &quoted(3));
    other["Mode"] = json!("Full-Fidelity Feed");
    scene.put_old(&[other]);
    let kind = ErrorKind::ModeMismatch;
    check_refused(&scene, &scene.export(ForeignForm::DotnetPk), &kind, "is of the other mode");
}

#[test]
fn all_versions_are_not_exported_to_processors_that_cannot_read_them() {
    let scene = Scene::new(1);
    scene.write_orders(0..5);
    scene.put_old(&[info(), java_epk(&KeyRange::all(), &Value::Null)]);
    block_on(scene.import().mode(FeedMode::AllVersions).apply()).unwrap();
    let kind = ErrorKind::ModeMismatch;
    check_refused(&scene, &scene.export(ForeignForm::JavaPk), &kind, "cannot read all versions");
    let report = block_on(scene.export(ForeignForm::JavaEpk).apply()).unwrap();
    assert_eq!(report.leases[0].write, TargetWrite::Replace);
}

#[test]
fn java_needs_a_container_by_id() {
    let scene = Scene::with_leases_by(1, "/partitionKey");
    scene.write_orders(0..5);
    let mut lease = dotnet_pk(0, &quoted(3));
    lease["partitionKey"] = json!("a");
    scene.put_old(&[lease]);
    block_on(scene.import().apply()).unwrap();
    let export = scene.export(ForeignForm::JavaPk);
    check_refused(&scene, &export, &ErrorKind::Invalid, "partitioned by /id");
}

#[test]
fn a_processor_that_is_not_ready_is_refused() {
    let scene = Scene::new(1);
    let export = scene.export(ForeignForm::JavaPk);
    check_refused(&scene, &export, &ErrorKind::NotFound, "there is no processor \"billing\"");
    let scene = imported(ForeignForm::JavaPk);
    let store = scene.our_store();
    let change = |edit: &dyn Fn(&mut crate::stored::Control)| {
        let mut control = scene.our_documents().control.unwrap();
        edit(&mut control.document);
        block_on(store.replace(control.document, &control.etag)).unwrap();
    };
    let export = scene.export(ForeignForm::JavaPk);
    change(&|it| it.complete = false);
    check_refused(&scene, &export, &ErrorKind::Invalid, "not all leases were created");
    change(&|it| it.container += 1);
    check_refused(&scene, &export, &ErrorKind::ContainerRecreated, "an earlier container");
    change(&|it| {
        it.container -= 1;
        it.complete = true;
        assert_eq!(it.mode, Mode::LatestVersion);
    });
    let lease = scene.our_documents().leases.remove(0);
    block_on(store.delete(&lease)).unwrap();
    check_refused(&scene, &export, &ErrorKind::Invalid, "no lease holds");
}
