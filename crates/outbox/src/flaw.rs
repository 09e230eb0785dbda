/// A bug that can be planted to prove that the simulation would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "planted-flaws"),
    expect(unreachable_pub, reason = "only simulations plant them")
)]
#[non_exhaustive]
pub enum Flaw {
    /// An inbox commits the id of a message after its effect, in a batch of its own.
    RecordAfterEffect,
    /// An inbox records an id although somebody else has done so since it looked.
    RecordOverwritten,
    /// A unit of work commits its entities first and its events after them.
    EventsApart,
}
