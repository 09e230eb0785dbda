/// Bugs that can be planted to prove that the crash tests would find them.
///
/// They exist only with the feature `planted-flaws`, which no user has on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Commits are acknowledged before they are synced.
    AcknowledgeBeforeSync,
    /// The feed entries of a batch reach the log in a second write.
    FeedEntryLater,
    /// A range starts numbering anew after reopening.
    NumberReused,
    /// A page of the feed ends in the middle of a batch.
    BatchCut,
}

impl Flaw {
    /// Whether `flaw` is planted in `options`.
    pub(crate) fn is_planted(self, planted: Option<Self>) -> bool {
        cfg!(feature = "planted-flaws") && planted == Some(self)
    }
}
