//! What is not imported, and that nothing is written then.

use millstream_core::conformance::block_on;
use millstream_core::{Containers, EffectiveKey, FeedMode, KeyRange};
use serde_json::{Value, json};

use crate::error::ErrorKind;
use crate::foreign::tests::harness::{
    PREFIX, PROCESSOR, Scene, all_items, dotnet_epk, dotnet_pk, etag, info, java_base64, java_epk,
    java_pk, java_state, name_of,
};
use crate::foreign::{Import, ImportReport};
use crate::stored::{Lease, Mode};

fn quoted(number: u64) -> Value {
    Value::from(etag(number))
}

fn range(min: &str, max: &str) -> KeyRange {
    let key = |text: &str| text.parse::<EffectiveKey>().unwrap();
    KeyRange::new(key(min), key(max)).unwrap()
}

/// Checks that the import is refused with a sentence, and that nothing was written.
#[track_caller]
fn check_refused(scene: &Scene, import: &Import, kind: &ErrorKind, reason: &str) -> ImportReport {
    let before = (all_items(&scene.old), all_items(&scene.ours));
    let report = block_on(import.dry_run()).unwrap();
    let problems = &report.problems;
    let problem = problems.iter().find(|it| it.text.contains(reason));
    let problem = problem.unwrap_or_else(|| panic!("{reason:?} is not in {problems:?}"));
    assert_eq!(problem.kind, *kind);
    let error = block_on(import.apply()).unwrap_err();
    assert_eq!(*error.kind(), problems[0].kind);
    assert!(error.report().contains(reason), "{}", error.report());
    assert_eq!((all_items(&scene.old), all_items(&scene.ours)), before, "something was written");
    report
}

#[track_caller]
fn check_invalid(scene: &Scene, reason: &str) -> ImportReport {
    check_refused(scene, &scene.import(), &ErrorKind::Invalid, reason)
}

fn scene(ranges: u32, documents: &[Value]) -> Scene {
    let scene = Scene::new(ranges);
    scene.write_orders(0..20);
    scene.put_old(&[info()]);
    scene.put_old(documents);
    scene
}

#[test]
fn a_source_without_leases_is_refused() {
    let scene = scene(1, &[]);
    check_refused(&scene, &scene.import(), &ErrorKind::NotFound, "there are no leases");
}

#[test]
fn holes_are_refused_with_their_ranges() {
    let scene = scene(2, &[java_pk(1, &quoted(1))]);
    let report = check_invalid(&scene, "no lease holds [,1FFF");
    assert_eq!(report.holes, [scene.ranges()[0].keys.clone()]);
}

#[test]
fn overlaps_are_refused_with_their_ranges() {
    let all = KeyRange::all();
    let scene = scene(2, &[dotnet_epk(&all, &quoted(1)), dotnet_pk(1, &quoted(1))]);
    let report = check_invalid(&scene, "both hold");
    assert_eq!(report.overlaps, [scene.ranges()[1].keys.clone()]);
    assert_eq!(report.holes, []);
}

#[test]
fn holes_and_overlaps_inside_one_partition_are_found() {
    let (first, second) = (range("", "10"), range("08", "20"));
    let scene = scene(1, &[dotnet_epk(&first, &quoted(1)), dotnet_epk(&second, &quoted(1))]);
    let report = check_invalid(&scene, "no lease holds [20,FF)");
    assert_eq!(report.overlaps, [range("08", "10")]);
    assert_eq!(report.holes, [range("20", "FF")]);
}

#[test]
fn a_parent_left_beside_its_children_is_refused() {
    let scene = scene(1, &[java_pk(0, &quoted(1))]);
    scene.split(0);
    scene.put_old(&[java_pk(1, &quoted(2)), java_pk(2, &quoted(2))]);
    check_invalid(&scene, "both hold");
}

#[test]
fn an_unknown_partition_is_refused() {
    let scene = scene(1, &[java_pk(0, &quoted(1)), java_pk(17, &quoted(1))]);
    check_invalid(&scene, "..17\" cannot be placed: the container has no partition 17");
}

#[test]
fn a_merged_partition_without_keys_is_refused() {
    let scene = scene(2, &[java_pk(0, &quoted(1)), java_pk(1, &quoted(2))]);
    scene.merge(0);
    check_invalid(&scene, "partition 0 was merged with others into partition 2");
    check_invalid(&scene, "partition 1 was merged with others into partition 2");
    // Also when only one of the two has a lease, and after a split of what was merged.
    let scene = self::scene(2, &[java_pk(0, &quoted(1))]);
    scene.merge(0);
    check_invalid(&scene, "partition 0 was merged");
    scene.split(0);
    check_invalid(&scene, "partition 0 was merged");
}

#[test]
fn a_part_that_was_merged_with_strangers_is_refused() {
    let scene = scene(2, &[java_pk(0, &quoted(1)), java_pk(1, &quoted(2))]);
    scene.split(0);
    // The upper part of partition 0 and all of partition 1.
    let merged = scene.merge(1);
    let reason = format!("partition 0 was merged with others into partition {}", merged.id);
    check_invalid(&scene, &reason);
}

#[test]
fn a_split_after_a_merge_is_no_obstacle() {
    let scene = scene(2, &[]);
    let merged = scene.merge(0);
    scene.put_old(&[java_pk(merged.id.0, &quoted(3))]);
    scene.split(0);
    scene.split(1);
    let report = block_on(scene.import().dry_run()).unwrap();
    assert_eq!(report.problems, []);
    assert_eq!(report.leases.len(), 3);
}

#[test]
fn keys_that_are_not_those_of_the_partition_are_refused() {
    let scene = scene(2, &[]);
    let mut lease = dotnet_pk(0, &quoted(1));
    lease["FeedRange"] = json!({ "Range": { "min": "", "max": "FF" } });
    scene.put_old(&[lease.clone(), dotnet_pk(1, &quoted(1))]);
    check_invalid(&scene, "belongs to another container");
    scene.split(0);
    check_invalid(&scene, "are not those that came from partition 0");
}

#[test]
fn leases_of_two_modes_are_refused() {
    let mut other = dotnet_pk(1, &quoted(1));
    other["Mode"] = json!("Full-Fidelity Feed");
    let scene = scene(2, &[dotnet_pk(0, &quoted(1)), other]);
    let kind = ErrorKind::ModeMismatch;
    check_refused(&scene, &scene.import(), &kind, "differ in their mode");
    let scene = self::scene(1, &[dotnet_pk(0, &quoted(1))]);
    let import = scene.import().mode(FeedMode::AllVersions);
    check_refused(&scene, &import, &kind, "of the other mode than was asked for");
    let scene = self::scene(1, &[java_epk(&KeyRange::all(), &Value::Null)]);
    check_invalid(&scene, "no lease says which mode");
}

#[test]
fn leases_of_two_sdks_are_refused() {
    let scene = scene(2, &[]);
    let (low, high) = (&scene.ranges()[0].keys, &scene.ranges()[1].keys);
    let state = java_state(low, &json!({ "Type": "NOW" }), &["\"1\""]);
    scene.put_old(&[java_epk(low, &state), dotnet_epk(high, &quoted(1))]);
    check_invalid(&scene, "do not understand each other");
}

#[test]
fn what_cannot_be_read_is_refused() {
    let mut newer = dotnet_pk(1, &quoted(1));
    newer["version"] = json!(2);
    let scene = scene(2, &[dotnet_pk(0, &quoted(1)), newer]);
    let report = check_refused(&scene, &scene.import(), &ErrorKind::NewerSchema, "version 2");
    assert_eq!(report.problems.len(), 1, "the hole it leaves is reported too: {report:?}");
    let state = java_base64(&json!({ "V": 2 }));
    let scene = self::scene(1, &[java_epk(&KeyRange::all(), &state)]);
    check_refused(&scene, &scene.import(), &ErrorKind::NewerSchema, "V 2");
    let scene = self::scene(1, &[json!({ "id": format!("{PREFIX}..0"), "surprise": true })]);
    check_invalid(&scene, "is not a lease");
    let scene = self::scene(1, &[dotnet_pk(0, &json!("\"five\""))]);
    check_invalid(&scene, "it is not the etag of a commit");
}

#[test]
fn a_lease_that_exists_twice_is_refused() {
    let scene = Scene::with_leases_by(1, "/partitionKey");
    scene.write_orders(0..20);
    for key in ["3f2a", "9c41"] {
        let mut lease = dotnet_pk(0, &quoted(1));
        lease["partitionKey"] = json!(key);
        scene.put_old(&[lease]);
    }
    check_invalid(&scene, "there are two documents with the id");
}

#[test]
fn a_container_that_was_recreated_is_refused() {
    let kind = ErrorKind::ContainerRecreated;
    let scene = scene(1, &[dotnet_pk(0, &quoted(1))]);
    let import = scene.import().expected_rid("bf8uAOtherE=");
    check_refused(&scene, &import, &kind, "made for another container");
    // By name nobody can tell, but a number that the container has not reached gives it away.
    let scene = self::scene(1, &[java_pk(0, &quoted(21))]);
    check_refused(&scene, &scene.import(), &kind, "comes from another container");
}

#[test]
fn a_position_that_expired_is_refused() {
    let mut lease = dotnet_pk(0, &quoted(1));
    lease["Mode"] = json!("Full-Fidelity Feed");
    let scene = scene(1, &[lease]);
    scene.clock.advance(std::time::Duration::from_secs(7_200));
    scene.write_orders(0..1);
    let keys = Box::new(KeyRange::all());
    let kind = ErrorKind::PositionExpired { keys };
    check_refused(&scene, &scene.import(), &kind, "no longer kept");
}

#[test]
fn a_processor_with_leases_of_its_own_is_refused() {
    let scene = scene(1, &[dotnet_pk(0, &quoted(1))]);
    let container = scene.feed.info.resource_id.incarnation();
    let position = format!("1.{container}.l.0");
    let stray = Lease::new(container, Mode::LatestVersion, KeyRange::all(), position);
    let stray = block_on(scene.our_store().create(stray)).unwrap();
    check_invalid(&scene, "has leases but no control document");
    block_on(scene.our_store().delete(&stray)).unwrap();

    block_on(scene.import().apply()).unwrap();
    let other = "otherexample.documents.azure.com_bf8uAA==_bf8uALgoqxk=";
    let import = Import::new(&scene.old, &scene.feed, &scene.ours, PROCESSOR, other);
    check_refused(&scene, &import, &ErrorKind::Invalid, "has leases already");

    // The same import into a container that was recreated since.
    block_on(scene.store.delete(&name_of("orders"))).unwrap();
    let settings = scene.feed.info.settings.clone();
    block_on(scene.store.create(&name_of("orders"), settings)).unwrap();
    let feed = block_on(scene.store.open(&name_of("orders"))).unwrap();
    let import = Import::new(&scene.old, &feed, &scene.ours, PROCESSOR, PREFIX);
    let kind = ErrorKind::ContainerRecreated;
    check_refused(&scene, &import, &kind, "for an earlier container");
}

#[test]
fn names_that_cannot_be_used_are_refused() {
    let scene = scene(1, &[dotnet_pk(0, &quoted(1))]);
    for (processor, prefix) in [("", PREFIX), ("a:b", PREFIX), (PROCESSOR, "")] {
        let import = Import::new(&scene.old, &scene.feed, &scene.ours, processor, prefix);
        assert_eq!(*block_on(import.dry_run()).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
