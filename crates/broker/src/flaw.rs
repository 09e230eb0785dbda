/// A bug that can be planted to prove that the simulation would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "planted-flaws"),
    expect(unreachable_pub, reason = "only simulations plant them")
)]
#[non_exhaustive]
pub enum Flaw {
    /// A send returns before its messages are committed.
    SentBeforeDurable,
    /// A settlement returns before it is committed.
    SettledBeforeDurable,
    /// A broker that another one has replaced goes on writing.
    OwnerNotChecked,
    /// A session can be accepted while another receiver has it.
    SessionsShared,
    /// A message that was abandoned comes again after the others of its session.
    AbandonedToEnd,
    /// A message whose lock has ended comes again after the others of its session.
    ExpiredToEnd,
    /// A dead letter that is sent back comes after the others of its session.
    RevivedToEnd,
    /// Message ids that came before the broker was opened are not known.
    WindowForgotten,
    /// What became of messages before the broker was opened is not known.
    SettlementsForgotten,
    /// A message with a schedule is delivered at once.
    ScheduleIgnored,
}
