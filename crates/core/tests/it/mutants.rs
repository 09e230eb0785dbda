//! Mutants prove the suite: each known bug is planted in front of the memory store, and an
//! obligation must notice it.

mod documents;
mod feed;
mod store;

use std::panic::{AssertUnwindSafe, catch_unwind};

use millstream_core::conformance::{OBLIGATIONS, block_on};

use crate::mutants::store::Mutant;

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    BodyParsedAndWrittenAgain,
    UniqueKeysIgnored,
    HalfOfARefusedBatchCommitted,
    RefusalNamesNoOperation,
    ReadsOfABatchUnlimited,
    EtagUnchangedByReplace,
    IfMatchIgnored,
    IfNoneMatchIgnored,
    EverythingLostByReopening,
    ExpiredItemVisible,
    ReadFromAStaleCache,
    ScanSkipsAnItemBetweenPages,
    LastRangeNotListed,
    HandleFollowsTheName,
    ChildLosesThePositionOfItsParent,
    MergeRestartsNumbering,
    NumberReusedAfterDelete,
    PageCutsABatch,
    CommitAppearsLate,
    OldVersionsInLatestMode,
    NoPreviousImage,
    ExpiryNotMarked,
    NowPinnedAtTheFirstRead,
    StartTimeIgnored,
    ExpiredPositionReadSilently,
    ContinuationMovesWithItsReader,
    WaitNeverWakes,
    WaitNeverWaits,
    GuardIgnored,
    GuardGoesBack,
    SequenceGapAfterRefusal,
    SequenceRestartsWithEveryBatch,
}

/// Writes a test for each flaw that names the obligation which notices it.
macro_rules! noticed {
    ($($flaw:ident by $obligation:ident;)*) => {
        $(
            #[test]
            #[expect(non_snake_case, reason = "each test is called like the flaw it plants")]
            fn $flaw() {
                check(Flaw::$flaw, stringify!($obligation));
            }
        )*
    };
}

noticed! {
    BodyParsedAndWrittenAgain by obligation_01_bodies_come_back_byte_for_byte;
    UniqueKeysIgnored by obligation_01_unique_values_are_held_by_one_item_of_a_partition;
    HalfOfARefusedBatchCommitted by obligation_02_a_refused_batch_changes_nothing;
    RefusalNamesNoOperation by obligation_02_the_first_failing_operation_is_named;
    ReadsOfABatchUnlimited by obligation_02_what_a_batch_reads_is_limited;
    EtagUnchangedByReplace by obligation_03_every_write_gives_a_new_etag;
    IfMatchIgnored by obligation_03_if_match_lets_only_the_known_version_change;
    IfNoneMatchIgnored by obligation_03_if_none_match_lets_only_an_unknown_version_change;
    EverythingLostByReopening by obligation_04_an_acknowledged_commit_survives_reopening;
    ExpiredItemVisible by obligation_05_the_item_decides_before_the_container;
    ReadFromAStaleCache by obligation_06_a_read_sees_what_was_acknowledged;
    ScanSkipsAnItemBetweenPages by obligation_06_a_scan_returns_every_item_once_in_key_order;
    LastRangeNotListed by obligation_07_ranges_tile_the_key_space;
    HandleFollowsTheName by obligation_12_nothing_is_left_of_a_deleted_container;
    ChildLosesThePositionOfItsParent by obligation_08_positions_survive_splits_and_merges;
    MergeRestartsNumbering by obligation_08_numbers_go_on_through_splits_and_merges;
    NumberReusedAfterDelete by obligation_09_a_number_is_not_used_again_after_a_delete;
    PageCutsABatch by obligation_09_a_page_never_cuts_a_batch;
    CommitAppearsLate by obligation_10_no_number_appears_behind_a_reader;
    OldVersionsInLatestMode by obligation_11_latest_version_shows_each_live_item_once;
    NoPreviousImage by obligation_11_all_versions_show_everything_that_happened;
    ExpiryNotMarked by obligation_11_an_expiry_is_a_delete_marked_as_such;
    NowPinnedAtTheFirstRead by obligation_12_now_is_the_moment_of_asking;
    StartTimeIgnored by obligation_12_a_time_shows_what_was_committed_since;
    ExpiredPositionReadSilently by obligation_12_a_position_that_is_too_old_is_a_typed_error;
    ContinuationMovesWithItsReader by obligation_13_reading_twice_gives_the_same_changes_first;
    WaitNeverWakes by obligation_14_a_commit_wakes_a_waiting_reader;
    WaitNeverWaits by obligation_14_a_commit_wakes_a_waiting_reader;
    GuardIgnored by obligation_15_an_event_not_passed_stays_visible;
    GuardGoesBack by obligation_15_a_position_never_goes_back;
    SequenceGapAfterRefusal by obligation_16_a_refused_batch_leaves_no_gap;
    SequenceRestartsWithEveryBatch by obligation_16_events_are_numbered_from_1_per_partition_key;
}

/// A mutant without a flaw passes everything, so what the others fail on is their flaw.
#[test]
fn the_wrapper_itself_changes_nothing() {
    for (name, obligation) in OBLIGATIONS {
        let mut subject = Mutant::new(None);
        let kept = catch_unwind(AssertUnwindSafe(|| block_on(obligation(&mut subject))));
        assert!(kept.is_ok(), "{name} fails on a store without flaw");
    }
}

#[track_caller]
fn check(flaw: Flaw, name: &str) {
    let obligation = OBLIGATIONS.iter().find(|(it, _)| *it == name).expect("it is in the list").1;
    let mut subject = Mutant::new(Some(flaw));
    let kept = catch_unwind(AssertUnwindSafe(|| block_on(obligation(&mut subject))));
    assert!(kept.is_err(), "{name} did not notice {flaw:?}");
}
