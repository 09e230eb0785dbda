//! Proves that a broker keeps what [`Publisher`] and [`Subscriber`] promise: one function per
//! promise, or several where it has several sides, each named after its port and number.

mod failing;
mod harness;
mod publishing;
mod receiving;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::{BoxFuture, Publisher, Subscriber};

/// A queue, or a topic with one subscription, with sessions and duplicate detection, to be
/// examined. It is empty, and time is real: short durations make a short examination.
#[async_trait]
pub trait MessageSubject: Send + Sync {
    /// Sends to it.
    ///
    /// # Cancel safety
    ///
    /// The suite does not cancel it.
    async fn publisher(&self) -> Arc<dyn Publisher>;

    /// Receives from it. Each call stands for another process.
    ///
    /// # Cancel safety
    ///
    /// The suite does not cancel it.
    async fn subscriber(&self) -> Arc<dyn Subscriber>;

    /// Ends whatever works for the subscribers so far, as the death of their processes would; what
    /// they had comes again by itself, to later subscribers.
    ///
    /// # Cancel safety
    ///
    /// The suite does not cancel it.
    async fn crash(&self);

    /// How long a session stays with its receiver.
    fn lock_duration(&self) -> Duration;

    /// After so many failed deliveries a message is a dead letter.
    fn delivery_count_max(&self) -> u32;

    /// The longest time until a message that can be received is; also after a crash.
    fn patience(&self) -> Duration;

    /// Ids and reasons of the dead letters, in the order of the messages.
    ///
    /// # Cancel safety
    ///
    /// The suite does not cancel it.
    async fn dead_letters(&self) -> Vec<(String, String)>;
}

/// A function of the suite: it panics with a sentence if the broker breaks the promise it is named
/// after.
pub type MessageObligation = for<'a> fn(&'a dyn MessageSubject) -> BoxFuture<'a, ()>;

/// Writes one `#[test]` for every promise of the ports for messages.
///
/// The first argument is an async function that gives a new
/// [`MessageSubject`](crate::conformance::MessageSubject), the second a function that runs a future
/// to its end.
#[macro_export]
macro_rules! message_conformance_tests {
    ($make:expr, $block_on:expr $(,)?) => {
        $crate::each_message_obligation!($crate::message_conformance_test, $make, $block_on);
    };
}

/// The part of [`message_conformance_tests!`] that is repeated.
#[doc(hidden)]
#[macro_export]
macro_rules! message_conformance_test {
    ($make:expr, $block_on:expr; $($module:ident $name:ident;)*) => {
        $(
            #[test]
            fn $name() {
                let obligation = $crate::conformance::MESSAGE_OBLIGATIONS
                    .iter()
                    .find(|(name, _)| *name == stringify!($name))
                    .expect("the list and the tests come from the same macro")
                    .1;
                $block_on(async {
                    let subject = $make().await;
                    obligation(&subject).await;
                });
            }
        )*
    };
}

macro_rules! list {
    (; $($module:ident $name:ident;)*) => {
        /// Every function of the suite for messages with its name.
        pub const MESSAGE_OBLIGATIONS: &[(&str, MessageObligation)] =
            &[$((stringify!($name), |subject| Box::pin($module::$name(subject)))),*];
    };
}

/// Every function of the suite for messages, handed to another macro: the one place where they are
/// listed.
#[doc(hidden)]
#[macro_export]
macro_rules! each_message_obligation {
    ($callback:path $(, $argument:expr)*) => {
        $callback! { $($argument),*;
            publishing publisher_1_a_message_comes_as_it_was_sent;
            publishing publisher_2_a_session_keeps_the_order_of_calls;
            publishing publisher_2_calls_at_the_same_time_keep_their_order;
            publishing publisher_3_the_same_ids_again_are_offered_once;
            publishing publisher_4_what_cannot_be_kept_is_named;
            receiving subscriber_1_a_session_has_one_receiver;
            receiving subscriber_1_subscribers_share_without_breaking_the_order;
            receiving subscriber_1_a_receiver_waits_for_messages;
            receiving subscriber_2_an_abandoned_message_comes_again_first;
            receiving subscriber_2_a_closed_session_goes_on_where_it_was;
            receiving subscriber_2_a_deferred_message_steps_aside;
            receiving subscriber_3_a_completed_message_does_not_come_again;
            failing subscriber_4_a_lock_that_is_not_renewed_ends;
            failing subscriber_4_a_renewed_lock_stays;
            failing subscriber_4_what_a_dead_receiver_had_comes_again_in_order;
            failing subscriber_4_a_late_settlement_is_refused;
            failing subscriber_5_a_dead_letter_keeps_its_reason;
            failing subscriber_5_what_fails_too_often_is_a_dead_letter;
        }
    };
}

each_message_obligation!(list);
