use millstream_core::conformance::block_on;

use crate::error::{Error, ErrorKind};
use crate::lease_store::Stored;
use crate::split::complete_split;
use crate::stored::{Lease, LeaseState};
use crate::test_world::{Fault, World, store_of};

/// A lease with a position that is being replaced by two others.
fn splitting(path: &str) -> (World, Stored<Lease>) {
    let world = World::started(path, 1);
    world.write(&["a", "b", "c"]);
    let lease = world.advance_lease(&world.leases()[0], 1);
    world.split_range(0);
    let parent = world.begin_split(&lease);
    (world, parent)
}

#[track_caller]
fn check_complete(world: &World, parent: &Stored<Lease>) {
    let leases = world.leases();
    let keys: Vec<_> = leases.iter().map(|it| it.document.keys.clone()).collect();
    assert_eq!(keys, parent.document.children);
    for lease in &leases {
        assert_eq!(lease.document, parent.document.child(lease.document.keys.clone()));
        assert_eq!(lease.document.lineage.as_slice(), std::slice::from_ref(&parent.document.keys));
    }
    assert_eq!(reread(world, parent).document.state, LeaseState::Retired);
}

fn reread(world: &World, lease: &Stored<Lease>) -> Stored<Lease> {
    let (container, keys) = (lease.document.container, &lease.document.keys);
    block_on(world.store.read_lease(container, keys)).unwrap().unwrap()
}

#[test]
fn children_begin_at_the_position_of_their_parent_and_a_second_call_changes_nothing() {
    for path in ["/id", "/partitionKey"] {
        let (world, parent) = splitting(path);
        block_on(complete_split(&world.store, &parent)).unwrap();
        check_complete(&world, &parent);
        let child = world.acquire(&world.leases()[0], "a");
        for parent in [&parent, &reread(&world, &parent)] {
            block_on(complete_split(&world.store, parent)).unwrap();
        }
        assert_eq!(reread(&world, &child).etag, child.etag);
    }
}

#[test]
fn a_crash_at_any_write_is_completed_by_the_next_call() {
    for path in ["/id", "/partitionKey"] {
        for fault in [Fault::RequestLost, Fault::ReplyLost] {
            for good_commits in 0..3 {
                let (world, parent) = splitting(path);
                let store = store_of(&world.failing_leases(good_commits, fault), &world.clock);
                block_on(complete_split(&store, &parent)).unwrap_err();
                let retired = reread(&world, &parent).document.state == LeaseState::Retired;
                let lost_last = good_commits == 2 && matches!(fault, Fault::ReplyLost);
                assert_eq!(retired, lost_last, "{fault:?} at {good_commits}");
                block_on(complete_split(&world.store, &parent)).unwrap();
                check_complete(&world, &parent);
            }
        }
    }
}

#[test]
fn a_parent_that_somebody_has_written_meanwhile_is_read_again() {
    let (world, parent) = splitting("/id");
    world.replace(&parent, Lease { load: 2.0, ..parent.document.clone() });
    block_on(complete_split(&world.store, &parent)).unwrap();
    let retired = reread(&world, &parent).document;
    assert_eq!((retired.state, retired.owner), (LeaseState::Retired, None));
    assert!(1.0 < retired.load);
}

#[test]
fn a_lease_that_is_not_being_replaced_is_left_alone() {
    let world = World::started("/id", 1);
    let kind = |error: Error| error.kind().clone();
    let lease = world.leases().remove(0);
    let error = block_on(complete_split(&world.store, &lease)).unwrap_err();
    assert_eq!(kind(error), ErrorKind::Conflict);

    let (world, parent) = splitting("/id");
    block_on(world.store.delete(&parent)).unwrap();
    let error = block_on(complete_split(&world.store, &parent)).unwrap_err();
    assert_eq!(kind(error), ErrorKind::NotFound);
}
