use std::sync::Arc;

use millstream_core::conformance::block_on;
use millstream_core::{Clock, Continuation, FeedMode, KeyRange, StartFrom};

use crate::error::{ErrorKind, Result};
use crate::lease_store::Stored;
use crate::operations::{Operations, Snapshot};
use crate::options::StartPosition;
use crate::stored::{Failing, Handled, Lease, LeaseState, Mode};
use crate::test_world::{Fault, PROCESSOR, RETENTION, World};

const PATHS: [&str; 2] = ["/id", "/partitionKey"];

fn operations(world: &World) -> Operations {
    Operations::new_with(&world.feed, &world.leases, PROCESSOR, world.clock.clone()).unwrap()
}

fn failing(world: &World, good_commits: usize, fault: Fault) -> Operations {
    let leases = world.failing_leases(good_commits, fault);
    Operations::new_with(&world.feed, &leases, PROCESSOR, world.clock.clone()).unwrap()
}

fn positions(world: &World) -> Vec<String> {
    world.leases().iter().map(|it| it.document.position.clone()).collect()
}

fn start(world: &World, keys: &KeyRange, from: StartFrom) -> String {
    let mode: FeedMode = world.control().document.mode.into();
    block_on(world.feed.feed.start(keys, from, mode)).unwrap().as_str().to_owned()
}

#[track_caller]
fn check_refused<T: std::fmt::Debug>(outcome: Result<T>, kind: &ErrorKind, report: &str) {
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.report().as_str()), (kind, report));
}

/// Two leases that are owned, fail at something and have gone different ways.
fn busy(path: &str) -> World {
    let world = World::started(path, 2);
    let (low, high) = (world.key_in(0), world.key_in(1));
    world.write(&[&low, &low, &high, &high, &high]);
    for (lease, instance) in world.leases().iter().zip(["a", "b"]) {
        let lease = world.acquire(lease, instance);
        let lease = world.advance_lease(&lease, 1);
        let handled = Some(Handled { lsn: 1, committed_at: 1 });
        let failing = vec![Failing {
            partition_key: "\"a\"".to_owned(),
            id: "1".to_owned(),
            lsn: 2,
            attempts: 3,
            error: "no".to_owned(),
        }];
        let document = lease.document.clone();
        world.replace(&lease, Lease { handled, failing, owners_since_checkpoint: 2, ..document });
    }
    world
}

#[test]
fn pausing_and_resuming_are_idempotent_and_acknowledged_by_every_member() {
    for path in PATHS {
        let world = World::started(path, 2);
        let operations = operations(&world);
        assert!(block_on(operations.acknowledged()).unwrap());
        let member = world.join("a", 1);
        world.join("b", 2);
        assert!(block_on(operations.acknowledged()).unwrap());

        block_on(operations.pause()).unwrap();
        let paused = world.control();
        assert_eq!((paused.document.paused, paused.document.epoch), (true, 2));
        block_on(operations.pause()).unwrap();
        assert_eq!(world.control().etag, paused.etag);
        assert_eq!(block_on(operations.unacknowledged()).unwrap(), ["a"]);
        assert!(!block_on(operations.acknowledged()).unwrap());

        let mut seen = member.document.clone();
        seen.control_epoch = 2;
        block_on(world.store.replace(seen, &member.etag)).unwrap();
        assert!(block_on(operations.acknowledged()).unwrap());

        for _ in 0..2 {
            block_on(operations.resume()).unwrap();
            let control = world.control().document;
            assert_eq!((control.paused, control.epoch), (false, 3));
        }
        block_on(operations.store.bump_redrives()).unwrap();
        assert_eq!(world.control().document.redrives, 1);
        assert_eq!(world.control().document.epoch, 4);
    }
}

#[test]
fn a_lost_reply_to_pausing_is_cured_by_pausing_again() {
    for fault in [Fault::RequestLost, Fault::ReplyLost] {
        let world = World::started("/id", 1);
        block_on(failing(&world, 0, fault).pause()).unwrap_err();
        block_on(operations(&world).pause()).unwrap();
        let control = world.control().document;
        assert_eq!((control.paused, control.epoch), (true, 2));
    }
}

#[test]
fn what_was_never_started_cannot_be_operated() {
    let world = World::new("/id", 1);
    let operations = operations(&world);
    let reason = "could not find the processor \"orders\": it has no control document in this \
                  container; start an instance of it first";
    check_refused(block_on(operations.pause()), &ErrorKind::NotFound, reason);
    check_refused(block_on(operations.status()), &ErrorKind::NotFound, reason);
    check_refused(block_on(operations.snapshot()), &ErrorKind::NotFound, reason);
    let reset = block_on(operations.reset(StartPosition::Now));
    check_refused(reset, &ErrorKind::NotFound, reason);
    check_refused(block_on(operations.acknowledged()), &ErrorKind::NotFound, reason);
    check_refused(block_on(operations.finish_reset()), &ErrorKind::NotFound, reason);
}

#[test]
fn a_reset_moves_every_lease_and_its_root_and_takes_them_from_their_owners() {
    for path in PATHS {
        for (to, from) in
            [(StartPosition::Beginning, StartFrom::Beginning), (StartPosition::Now, StartFrom::Now)]
        {
            let world = busy(path);
            let before = world.leases();
            block_on(operations(&world).reset(to.clone())).unwrap();
            let control = world.control().document;
            assert_eq!((control.epoch, control.resets), (2, 1));
            assert_eq!(control.start, to.to_string());
            for (place, Stored { document, .. }) in world.leases().iter().enumerate() {
                assert_eq!(document.position, start(&world, &document.keys, from));
                assert_eq!(document.epoch, before[place].document.epoch + 1);
                assert_eq!((&document.owner, document.resets), (&None, 1));
                assert_eq!((document.failing.len(), document.handled), (0, None));
                assert_eq!(document.owners_since_checkpoint, 0);
                let root = &control.roots[place];
                assert_eq!((&root.keys, &root.position), (&document.keys, &document.position));
                assert_eq!(root.resets, 1);
            }
            assert!(!block_on(operations(&world).status()).unwrap().reset_unfinished);
        }
    }
}

#[test]
fn a_reset_to_a_time_delivers_what_was_committed_since() {
    let world = World::started("/id", 1);
    world.write(&["a"]);
    world.advance(10);
    let time = world.clock.now();
    world.write(&["b"]);
    world.catch_up(&world.leases()[0]);
    block_on(operations(&world).reset(StartPosition::Time(time))).unwrap();
    let lease = world.leases().remove(0).document;
    let after = lease.continuation().unwrap();
    let read = world.feed.feed.read(&lease.keys, &after, millstream_core::PageSize::default());
    let ids: Vec<_> = block_on(read).unwrap().changes.into_iter().map(|it| it.id).collect();
    assert_eq!(ids.iter().map(|it| it.as_str()).collect::<Vec<_>>(), ["1"]);
}

#[test]
fn an_owner_cannot_checkpoint_after_a_reset() {
    for path in PATHS {
        let world = busy(path);
        let held = world.leases();
        block_on(operations(&world).reset(StartPosition::Beginning)).unwrap();
        for mut lease in held {
            let reset = positions(&world);
            lease.document.position = "1.1.l.99".to_owned();
            let checkpoint = block_on(world.store.replace(lease.document, &lease.etag));
            assert_eq!(*checkpoint.unwrap_err().kind(), ErrorKind::Conflict);
            assert_eq!(positions(&world), reset);
        }
    }
}

#[test]
fn a_reset_that_died_at_any_write_is_completed_by_the_next_call() {
    for path in PATHS {
        for fault in [Fault::RequestLost, Fault::ReplyLost] {
            for good_commits in 0..3 {
                let world = busy(path);
                let now = StartPosition::Now;
                let died = block_on(failing(&world, good_commits, fault).reset(now));
                assert!(died.is_err());
                let begun = world.control().document;
                let reset = |it: &Stored<Lease>| it.document.resets == begun.resets;
                let unfinished = !world.leases().iter().all(reset);
                let operations = operations(&world);
                let status = block_on(operations.status()).unwrap();
                assert_eq!(status.reset_unfinished, unfinished, "{fault:?} {good_commits}");

                // What is committed in between is after the position that was pinned first.
                world.write(&["later"]);
                block_on(operations.finish_reset()).unwrap();
                assert!(!block_on(operations.status()).unwrap().reset_unfinished);
                let roots = world.control().document.roots;
                let wanted: Vec<_> = roots.iter().map(|it| it.position.clone()).collect();
                if 0 < begun.resets {
                    assert_eq!(positions(&world), wanted);
                }
                let done = world.leases();
                block_on(operations.finish_reset()).unwrap();
                let etags =
                    |it: &[Stored<Lease>]| it.iter().map(|it| it.etag.clone()).collect::<Vec<_>>();
                assert_eq!(etags(&done), etags(&world.leases()));

                block_on(operations.reset(StartPosition::Beginning)).unwrap();
                for lease in world.leases() {
                    let keys = &lease.document.keys;
                    assert_eq!(lease.document.position, start(&world, keys, StartFrom::Beginning));
                }
            }
        }
    }
}

#[test]
fn a_reset_completes_a_split_first() {
    for path in PATHS {
        for children in 0..=2 {
            let world = World::started(path, 1);
            world.write(&["a", "b", "c", "d"]);
            world.split_range(0);
            let parent = world.begin_split(&world.leases()[0]);
            for keys in parent.document.children.iter().take(children) {
                block_on(world.store.create(parent.document.child(keys.clone()))).unwrap();
            }
            block_on(operations(&world).reset(StartPosition::Now)).unwrap();
            let leases = world.leases();
            assert_eq!(leases.len(), 2);
            for (lease, range) in leases.iter().zip(world.ranges()) {
                assert_eq!((lease.document.state, lease.document.resets), (LeaseState::Active, 1));
                assert_eq!(lease.document.position, start(&world, &range.keys, StartFrom::Now));
            }
            // The next split descends from the new roots.
            world.split_range(0);
            world.begin_split(&leases[0]);
            assert_eq!(block_on(operations(&world).snapshot()).unwrap().positions.len(), 3);
        }
    }
}

#[test]
fn a_split_that_begins_in_the_middle_of_a_reset_does_not_escape_it() {
    let world = World::started("/partitionKey", 1);
    world.write(&["a", "b", "c"]);
    block_on(failing(&world, 1, Fault::RequestLost).reset(StartPosition::Now)).unwrap_err();
    let pinned = world.control().document.roots[0].position.clone();
    world.split_range(0);
    world.begin_split(&world.leases()[0]);
    block_on(operations(&world).finish_reset()).unwrap();
    assert_eq!(positions(&world), [pinned.clone(), pinned]);
    assert!(world.leases().iter().all(|it| it.document.resets == 1));
}

#[test]
fn a_split_that_no_instance_has_noticed_refuses_a_reset() {
    let world = World::started("/id", 1);
    world.split_range(0);
    check_refused(
        block_on(operations(&world).reset(StartPosition::Now)),
        &ErrorKind::Conflict,
        "could not choose a position for the lease [,FF): a split is in progress; try again once a \
         running instance has noticed it",
    );
    assert_eq!(world.control().document.resets, 0);
}

#[test]
fn a_lease_that_somebody_deleted_is_created_again_by_a_reset() {
    let world = World::started("/id", 2);
    block_on(world.store.delete(&world.leases()[0])).unwrap();
    block_on(operations(&world).reset(StartPosition::Now)).unwrap();
    assert_eq!(world.leases().len(), 2);
}

#[test]
fn only_the_leases_inside_a_range_are_reset() {
    for path in PATHS {
        let world = busy(path);
        let before = world.leases();
        let keys = before[1].document.keys.clone();
        let operations = operations(&world);
        block_on(operations.reset_range(&keys, StartPosition::Beginning)).unwrap();
        let after = world.leases();
        assert_eq!(after[0].etag, before[0].etag);
        assert_eq!(after[1].document.position, start(&world, &keys, StartFrom::Beginning));
        let control = world.control().document;
        assert_eq!((control.start.as_str(), control.resets), ("beginning", 1));
        assert_eq!([control.roots[0].resets, control.roots[1].resets], [0, 1]);

        let part = keys.split_at(&keys.middle().unwrap()).unwrap().0;
        let refused = block_on(operations.reset_range(&part, StartPosition::Now));
        let reason =
            format!("could not reset the keys {part}: the lease {keys} lies only partly in them");
        check_refused(refused, &ErrorKind::Invalid, &reason);
    }
}

#[test]
fn a_continuation_is_tried_before_anything_is_changed() {
    let world = World::new("/id", 1);
    world.start(FeedMode::AllVersions, StartFrom::Now);
    let operations = operations(&world);
    let old = Continuation::new(positions(&world).remove(0)).unwrap();
    world.write(&["a"]);
    world.catch_up(&world.leases()[0]);
    block_on(operations.reset(StartPosition::Continuation(old.clone()))).unwrap();
    assert_eq!(positions(&world), [old.as_str()]);

    world.advance(RETENTION.as_secs() + 1);
    let refused = |text: &str| {
        let to = StartPosition::Continuation(Continuation::new(text).unwrap());
        block_on(operations.reset(to)).unwrap_err().kind().clone()
    };
    assert_eq!(
        refused(old.as_str()),
        ErrorKind::PositionExpired { keys: Box::new(KeyRange::all()) }
    );
    assert_eq!(refused("nonsense"), ErrorKind::Invalid);
    assert_eq!(refused("1.77.a.0"), ErrorKind::ContainerRecreated);
    assert_eq!(world.control().document.resets, 1);
}

#[test]
fn a_snapshot_brings_positions_back_after_a_reset_and_a_split() {
    for path in PATHS {
        let world = busy(path);
        let operations = operations(&world);
        let before = positions(&world);
        let snapshot = block_on(operations.snapshot()).unwrap();
        assert_eq!((snapshot.processor.as_str(), snapshot.mode), (PROCESSOR, Mode::LatestVersion));
        assert_eq!(snapshot.taken_at, world.clock.now().as_millis());
        let text = serde_json::to_string(&snapshot).unwrap();
        let snapshot: Snapshot = serde_json::from_str(&text).unwrap();

        block_on(operations.reset(StartPosition::Now)).unwrap();
        assert_ne!(positions(&world), before);
        block_on(operations.restore(&snapshot)).unwrap();
        assert_eq!(positions(&world), before);
        assert_eq!(world.control().document.start, format!("snapshot {}", snapshot.taken_at));

        world.split_range(0);
        world.begin_split(&world.leases()[0]);
        block_on(operations.reset(StartPosition::Now)).unwrap();
        block_on(operations.restore(&snapshot)).unwrap();
        let expected = [before[0].clone(), before[0].clone(), before[1].clone()];
        assert_eq!(positions(&world), expected);
    }
}

#[test]
fn a_snapshot_that_does_not_fit_is_refused_and_nothing_changes() {
    let world = busy("/partitionKey");
    let operations = operations(&world);
    let good = block_on(operations.snapshot()).unwrap();
    let check = |change: &dyn Fn(&mut Snapshot), kind: &ErrorKind, reason: &str| {
        let mut snapshot = good.clone();
        change(&mut snapshot);
        let error = block_on(operations.restore(&snapshot)).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.report().ends_with(reason), "{}", error.report());
    };
    let high = good.positions[1].keys.clone();
    let missing = format!("the lease {high} in the snapshot: the snapshot has no position for it");
    check(&|it| it.positions.truncate(1), &ErrorKind::Invalid, &missing);
    let part = high.split_at(&high.middle().unwrap()).unwrap();
    let narrow = |it: &mut Snapshot| it.positions[1].keys = part.0.clone();
    check(&narrow, &ErrorKind::Invalid, "the snapshot has a part of it only");
    let twice = |it: &mut Snapshot| it.positions[0].keys = KeyRange::all();
    check(&twice, &ErrorKind::Invalid, "it lies in several ranges of the snapshot");
    let long = |it: &mut Snapshot| it.positions[0].position = "x".repeat(2_000);
    check(&long, &ErrorKind::Invalid, "it is longer than 1024 bytes");
    let other = |it: &mut Snapshot| it.container += 1;
    check(&other, &ErrorKind::ContainerRecreated, "its positions belong to another container");
    let versions = |it: &mut Snapshot| it.mode = Mode::AllVersions;
    check(&versions, &ErrorKind::ModeMismatch, "it was taken in the other feed mode");
    let newer = |it: &mut Snapshot| it.schema.min_reader = 99;
    check(&newer, &ErrorKind::NewerSchema, "a newer version took it; update this one");
    assert_eq!(block_on(operations.snapshot()).unwrap(), good);
    assert_eq!(world.control().document.resets, 0);
}

#[test]
fn a_recreated_container_refuses_to_take_positions() {
    let world = busy("/id");
    let feed = world.recreated_feed();
    let operations =
        Operations::new_with(&feed, &world.leases, PROCESSOR, world.clock.clone()).unwrap();
    let kind = |outcome: Result<()>| outcome.unwrap_err().kind().clone();
    let reset = block_on(operations.reset(StartPosition::Now));
    assert_eq!(kind(reset), ErrorKind::ContainerRecreated);
    let snapshot = block_on(operations.snapshot());
    assert_eq!(kind(snapshot.map(|_| ())), ErrorKind::ContainerRecreated);
}

/// Resets to now while `rival` does something before each commit of the reset.
fn reset_against(
    path: &str,
    rival: impl Fn(&World, usize) + Send + Sync + 'static,
) -> (Arc<World>, Result<()>) {
    let world = Arc::new(busy(path));
    let seen = Arc::clone(&world);
    let leases = world.rivalled_leases(move |commit| rival(&seen, commit));
    let operations =
        Operations::new_with(&world.feed, &leases, PROCESSOR, world.clock.clone()).unwrap();
    let outcome = block_on(operations.reset(StartPosition::Now));
    (world, outcome)
}

#[track_caller]
fn check_reset(world: &World) {
    let control = world.control().document;
    for lease in world.leases() {
        let root = control.roots.iter().find(|it| it.keys.covers(&lease.document.keys)).unwrap();
        assert_eq!(
            (&lease.document.position, lease.document.resets),
            (&root.position, root.resets)
        );
        assert_eq!(lease.document.owner, None);
    }
}

#[test]
fn another_operator_in_between_loses_nothing_and_is_not_lost() {
    for path in PATHS {
        let (world, outcome) = reset_against(path, |world, commit| {
            if commit == 0 {
                block_on(operations(world).pause()).unwrap();
            }
        });
        outcome.unwrap();
        check_reset(&world);
        let control = world.control().document;
        assert_eq!((control.paused, control.resets, control.epoch), (true, 1, 3));
    }
    // The reset of the other is complete when the first lease is about to be written.
    let (world, outcome) = reset_against("/id", |world, commit| {
        if commit == 1 {
            block_on(operations(world).reset(StartPosition::Beginning)).unwrap();
        }
    });
    outcome.unwrap();
    check_reset(&world);
    assert_eq!(world.control().document.resets, 2);
    for lease in world.leases() {
        let keys = &lease.document.keys;
        assert_eq!(lease.document.position, start(&world, keys, StartFrom::Beginning));
    }
}

#[test]
fn an_owner_that_checkpoints_or_splits_in_between_does_not_escape_a_reset() {
    for path in PATHS {
        let (world, outcome) = reset_against(path, |world, commit| {
            for lease in world.leases().iter().filter(|it| 0 < commit && it.document.resets == 0) {
                world.advance_lease(lease, 1);
            }
        });
        // The owner is always faster, until there are no tries left.
        assert_eq!(*outcome.unwrap_err().kind(), ErrorKind::Conflict);
        block_on(operations(&world).finish_reset()).unwrap();
        check_reset(&world);

        let (world, outcome) = reset_against(path, |world, commit| {
            for lease in world.leases().iter().filter(|_| commit == 1) {
                world.advance_lease(lease, 1);
            }
        });
        outcome.unwrap();
        check_reset(&world);

        let (world, outcome) = reset_against(path, |world, commit| {
            if commit == 1 {
                world.split_range(0);
                world.begin_split(&world.leases()[0]);
            }
        });
        outcome.unwrap();
        assert_eq!(world.leases().len(), 3);
        check_reset(&world);
    }
}

#[test]
fn a_control_document_that_others_keep_writing_ends_in_a_conflict() {
    let (world, outcome) = reset_against("/partitionKey", |world, _| {
        block_on(operations(world).store.bump_redrives()).unwrap();
    });
    check_refused(
        outcome,
        &ErrorKind::Conflict,
        "could not write the control document of the processor \"orders\": others keep writing it; \
         try again",
    );
    assert_eq!(world.control().document.resets, 0);
}

#[test]
fn the_status_shows_members_and_leases() {
    for path in PATHS {
        let world = busy(path);
        world.join("a", 1);
        let status = block_on(operations(&world).status()).unwrap();
        assert_eq!((status.paused, status.control_epoch), (false, 1));
        assert_eq!(status.mode, Mode::LatestVersion);
        let [member] = status.members.as_slice() else { panic!("one member") };
        assert_eq!((member.name.as_str(), member.leases), ("a", 2));
        assert_eq!((member.accepting, member.version.as_str()), (true, "1.0.0"));
        let owners: Vec<_> = status.leases.iter().map(|it| it.owner.as_deref()).collect();
        assert_eq!(owners, [Some("a"), Some("b")]);
        assert_eq!(status.leases[0].failing[0].attempts, 3);
        assert_eq!(status.leases[0].handled, Some(Handled { lsn: 1, committed_at: 1 }));
        assert_eq!((status.leases[0].epoch, status.leases[0].state), (1, LeaseState::Active));
    }
}

#[test]
fn keys_without_a_lease_are_found() {
    for path in PATHS {
        let world = World::started(path, 2);
        let coverage = block_on(operations(&world).coverage()).unwrap();
        assert!(coverage.is_whole(), "{coverage:?}");
        let lease = world.leases().remove(1);
        let (keys, document) = (lease.document.keys.clone(), lease.document.clone());
        world.replace(&lease, Lease { state: LeaseState::Retired, ..document });
        let coverage = block_on(operations(&world).coverage()).unwrap();
        assert_eq!((coverage.holes, coverage.overlaps.len()), (vec![keys], 0));
    }
}

#[test]
fn the_futures_can_move_between_threads() {
    fn check<T: Send>(_: T) {}
    let world = World::started("/id", 1);
    let operations = operations(&world);
    let snapshot = block_on(operations.snapshot()).unwrap();
    check(operations.reset(StartPosition::Now));
    check(operations.restore(&snapshot));
    check(operations.status());
    check(operations.pause());
}
