/// A bug that can be planted to prove that the simulation would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "planted-flaws"),
    expect(unreachable_pub, reason = "only simulations plant them")
)]
#[non_exhaustive]
pub enum Flaw {
    /// Events count as published before the publisher has answered.
    AcknowledgeBeforePublished,
    /// Each attempt to publish an event has a message id of its own.
    IdPerAttempt,
    /// A failure that may have had its effect counts as success.
    UnknownIsPublished,
    /// Events are published before their time where the publisher cannot hold them back.
    NotHeldBack,
    /// Events that could not be kept until their time count as kept.
    HeldBackWithoutKeeping,
    /// Events after one that was refused are published, those of its key too.
    RefusedIsOvertaken,
}
