//! Proves that a backend keeps the contract: one function per obligation, or several where it has
//! several sides.
//!
//! A backend implements [`Subject`] and writes one line; each obligation becomes a test of the same
//! name:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use millstream_core::conformance::{Subject, block_on};
//! use millstream_core::memory::Memory;
//! use millstream_core::{BoxFuture, Containers, ManualClock, Timestamp};
//!
//! struct InMemory(Memory, Arc<ManualClock>);
//!
//! #[async_trait::async_trait]
//! impl Subject for InMemory {
//!     fn containers(&self) -> Arc<dyn Containers> {
//!         Arc::new(self.0.clone())
//!     }
//!     fn advance(&self, by: Duration) {
//!         self.1.advance(by);
//!     }
//!     async fn settle(&self) {}
//!     async fn reopen(&mut self) -> bool {
//!         false
//!     }
//! }
//!
//! fn make() -> InMemory {
//!     let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
//!     InMemory(Memory::new(clock.clone()), clock)
//! }
//!
//! millstream_core::conformance_tests!(make(), block_on);
//! ```
//!
//! Nothing here knows a backend: numbers, etags and continuations are compared, never looked into.
//! A backend that says in its [`Capabilities`](crate::Capabilities) that it cannot do something is
//! asked to refuse it instead.

mod batches;
mod concurrency;
mod containers;
mod etags;
mod events;
mod feed;
mod follower;
mod guards;
mod harness;
mod items;
mod messages;
mod moves;
mod ranges;
mod refusals;
mod scans;
mod starts;
mod ttl;
mod unique_keys;
mod versions;
mod waiting;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use async_trait::async_trait;

pub use crate::conformance::messages::{MESSAGE_OBLIGATIONS, MessageObligation, MessageSubject};
use crate::{BoxFuture, Containers};

/// An empty store to be examined.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The store. Asked again after [`Subject::reopen`].
    fn containers(&self) -> Arc<dyn Containers>;

    /// Moves the clock the store uses.
    fn advance(&self, by: Duration);

    /// Returns when work in the background, such as purging what has expired, is done for now.
    ///
    /// # Cancel safety
    ///
    /// The suite does not cancel it.
    async fn settle(&self);

    /// Closes the store and opens it again with what survived; false if the backend has nothing to
    /// close.
    ///
    /// # Cancel safety
    ///
    /// The suite does not cancel it.
    async fn reopen(&mut self) -> bool;
}

/// A function of the suite: it panics with a sentence if the store breaks the obligation it is
/// named after.
pub type Obligation = for<'a> fn(&'a mut dyn Subject) -> BoxFuture<'a, ()>;

/// Runs a future on this thread, for backends that need no runtime.
///
/// ```
/// assert_eq!(millstream_core::conformance::block_on(async { 1 + 1 }), 2);
/// ```
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Writes one `#[test]` for every obligation.
///
/// The first argument is an expression that gives a new [`Subject`](crate::conformance::Subject)
/// every time it is evaluated, the second a function that runs a future to its end, such as
/// [`block_on`](crate::conformance::block_on).
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr, $block_on:expr $(,)?) => {
        $crate::each_obligation!($crate::conformance_test, $make, $block_on);
    };
}

/// The part of [`conformance_tests!`] that is repeated.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test {
    ($make:expr, $block_on:expr; $($module:ident $name:ident;)*) => {
        $(
            #[test]
            fn $name() {
                let obligation = $crate::conformance::OBLIGATIONS
                    .iter()
                    .find(|(name, _)| *name == stringify!($name))
                    .expect("the list and the tests come from the same macro")
                    .1;
                let mut subject = $make;
                $block_on(obligation(&mut subject));
            }
        )*
    };
}

macro_rules! list {
    (; $($module:ident $name:ident;)*) => {
        /// Every function of the suite with its name.
        pub const OBLIGATIONS: &[(&str, Obligation)] =
            &[$((stringify!($name), |subject| Box::pin($module::$name(subject)))),*];
    };
}

/// Every function of the suite, handed to another macro: the one place where they are listed.
#[doc(hidden)]
#[macro_export]
macro_rules! each_obligation {
    ($callback:path $(, $argument:expr)*) => {
        $callback! { $($argument),*;
            items obligation_01_bodies_come_back_byte_for_byte;
            items obligation_01_ids_may_hold_any_character_but_two;
            items obligation_01_an_id_is_unique_within_its_partition_only;
            items obligation_01_every_kind_of_partition_key_has_its_own_partition;
            items obligation_01_an_object_at_the_path_of_the_key_counts_as_no_value;
            items obligation_01_a_hierarchical_key_has_one_to_three_levels;
            items obligation_01_what_is_no_item_is_refused;
            unique_keys obligation_01_unique_values_are_held_by_one_item_of_a_partition;
            unique_keys obligation_01_what_is_missing_is_unique_too;
            unique_keys obligation_01_unique_keys_hold_from_step_to_step;
            unique_keys obligation_01_an_expired_item_gives_its_unique_values_back;
            unique_keys obligation_01_what_lost_its_unique_values_does_not_come_back;
            unique_keys obligation_01_unique_values_stay_held_by_all_means;
            unique_keys obligation_01_one_of_many_claimers_wins;
            batches obligation_02_each_operation_does_what_it_says;
            batches obligation_02_steps_see_what_earlier_steps_did;
            batches obligation_02_a_patch_changes_what_it_names_and_nothing_else;
            batches obligation_02_a_batch_has_1_to_100_operations;
            batches obligation_02_sizes_are_limited;
            batches obligation_02_what_a_batch_reads_is_limited;
            batches obligation_02_a_batch_that_only_reads_leaves_no_trace;
            refusals obligation_02_a_refused_batch_changes_nothing;
            refusals obligation_02_a_refused_batch_leaves_no_version;
            refusals obligation_02_the_first_failing_operation_is_named;
            concurrency obligation_02_one_of_many_creators_wins;
            etags obligation_03_every_write_gives_a_new_etag;
            etags obligation_03_an_etag_survives_reopening;
            etags obligation_03_if_match_lets_only_the_known_version_change;
            etags obligation_03_if_none_match_lets_only_an_unknown_version_change;
            etags obligation_03_a_reader_that_knows_the_version_gets_no_body;
            etags obligation_03_no_etag_matches_what_the_same_batch_wrote;
            concurrency obligation_03_no_update_is_lost_between_writers;
            batches obligation_04_an_acknowledged_commit_survives_reopening;
            ttl obligation_05_the_item_decides_before_the_container;
            ttl obligation_05_an_expired_item_is_gone_for_every_operation;
            ttl obligation_05_every_write_starts_the_time_anew;
            ttl obligation_05_a_new_default_counts_for_old_items;
            ttl obligation_05_expiry_goes_on_after_reopening;
            items obligation_06_a_read_sees_what_was_acknowledged;
            scans obligation_06_a_scan_returns_every_item_once_in_key_order;
            scans obligation_06_a_scan_keeps_to_its_partition_or_keys;
            scans obligation_06_a_scan_goes_on_while_items_come_and_go;
            scans obligation_06_a_foreign_scan_continuation_is_refused;
            scans obligation_06_a_scan_goes_on_after_reopening;
            containers obligation_07_databases_come_and_go;
            containers obligation_07_containers_come_and_go;
            containers obligation_07_settings_are_checked_and_replaced;
            ranges obligation_07_ranges_tile_the_key_space;
            ranges obligation_07_a_key_lies_where_cosmos_db_puts_it;
            ranges obligation_07_keys_across_ranges_are_refused;
            ranges obligation_08_a_split_makes_two_ranges_of_one;
            ranges obligation_08_a_split_divides_the_keys_of_every_kind;
            ranges obligation_08_a_merge_makes_one_range_of_two;
            moves obligation_08_positions_survive_splits_and_merges;
            moves obligation_08_positions_in_all_versions_survive_them_too;
            moves obligation_08_numbers_go_on_through_splits_and_merges;
            moves obligation_08_a_merge_forgets_no_position_of_the_younger_part;
            concurrency obligation_08_nothing_is_lost_while_ranges_move;
            feed obligation_09_numbers_of_a_range_strictly_increase;
            feed obligation_09_a_number_is_not_used_again_after_a_delete;
            feed obligation_09_a_page_never_cuts_a_batch;
            feed obligation_09_a_page_of_all_versions_never_cuts_a_batch;
            feed obligation_09_the_newest_number_tells_the_lag;
            concurrency obligation_10_no_number_appears_behind_a_reader;
            concurrency obligation_10_no_version_appears_behind_a_reader;
            concurrency obligation_10_the_last_version_reaches_every_reader;
            ttl obligation_11_an_expiry_is_a_delete_marked_as_such;
            versions obligation_11_latest_version_shows_each_live_item_once;
            versions obligation_11_a_reader_of_latest_versions_sees_an_item_move;
            versions obligation_11_all_versions_show_everything_that_happened;
            versions obligation_11_all_versions_show_every_step_of_a_batch;
            versions obligation_11_all_versions_need_a_retention;
            containers obligation_12_nothing_is_left_of_a_deleted_container;
            starts obligation_12_the_beginning_shows_everything;
            starts obligation_12_now_is_the_moment_of_asking;
            starts obligation_12_now_in_all_versions_is_the_moment_of_asking;
            starts obligation_12_a_time_shows_what_was_committed_since;
            starts obligation_12_a_time_works_in_all_versions_too;
            starts obligation_12_a_position_that_is_too_old_is_a_typed_error;
            starts obligation_12_time_in_a_range_never_goes_back;
            feed obligation_13_reading_twice_gives_the_same_changes_first;
            feed obligation_13_a_foreign_continuation_is_refused;
            waiting obligation_14_a_commit_wakes_a_waiting_reader;
            waiting obligation_14_a_reader_that_is_behind_does_not_wait;
            waiting obligation_14_every_waiting_reader_is_woken;
            waiting obligation_14_no_commit_falls_between_reading_and_waiting;
            waiting obligation_14_a_split_wakes_a_waiting_reader;
            waiting obligation_14_deleting_the_container_wakes_a_waiting_reader;
            guards obligation_15_an_event_not_passed_stays_visible;
            guards obligation_15_every_reader_counts;
            guards obligation_15_a_position_never_goes_back;
            guards obligation_15_where_nothing_was_said_nothing_is_passed;
            guards obligation_15_guards_survive_splits_merges_and_reopening;
            guards obligation_15_a_foreign_position_is_refused;
            concurrency obligation_16_many_writers_leave_no_gap;
            events obligation_16_events_are_numbered_from_1_per_partition_key;
            events obligation_16_a_refused_batch_leaves_no_gap;
            events obligation_16_a_number_stays_with_its_event;
            events obligation_16_the_container_says_what_an_event_is;
            events obligation_16_numbers_go_on_through_splits_and_merges;
        }
    };
}

each_obligation!(list);
