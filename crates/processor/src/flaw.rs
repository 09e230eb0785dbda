/// A bug that can be planted to prove that the simulation would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "planted-flaws"),
    expect(unreachable_pub, reason = "only simulations plant them")
)]
#[non_exhaustive]
pub enum Flaw {
    /// Changes count as done when they are given to the handler.
    AcknowledgeBeforeHandling,
    /// The leases after a split begin at what was read, not at what was handled.
    ChildInheritsRead,
    /// An owner is dead when its last sign of life is old by the clock of the observer.
    ExpiryByWallClock,
    /// An instance that cannot renew goes on.
    RenewalFailureIgnored,
    /// A newcomer takes its share from live owners without waiting for them.
    StealWithoutHandover,
    /// The start position is found out when the first page is read.
    StartNotPinned,
    /// A lease is retired before all that replace it exist.
    ParentRetiredEarly,
    /// A lease is handed over while its handler is at work.
    HandoverBeforeDrained,
    /// A failing change counts as done before it is kept.
    ParkedBeforeKept,
    /// A parked key is redriven while its failed change is still being put aside.
    RedrivenBeforeKept,
    /// Later changes of a parked key are delivered.
    ParkedKeyGoesOn,
    /// The position moves past everything that was handled, also past gaps.
    CheckpointPastGaps,
}
