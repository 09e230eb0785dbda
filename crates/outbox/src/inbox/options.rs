use std::time::Duration;

use crate::Order;

/// Settings of an [`crate::Inbox`].
#[derive(Clone, Debug)]
pub struct InboxOptions {
    pub(super) keep: Duration,
    pub(super) gaps: GapPolicy,
}

/// What to do with a message before which others are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GapPolicy {
    /// Handle it and say so.
    #[default]
    Report,
    /// Refuse it with `SequenceGap`, until the missing ones came. An event that is held back
    /// ([`crate::NewEvent::deliver_not_before`]) then holds back its key.
    Refuse,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its effect is committed.
    Handled {
        /// How it stands to the messages before it.
        order: Order,
    },
    /// It had its effect before; nothing was done.
    Duplicate {
        /// How it was recognised.
        by: DuplicateBy,
    },
}

/// How a duplicate was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateBy {
    /// A message with its id was handled.
    Id,
    /// A message with its number was handled, so long ago that its id is forgotten. If the producer
    /// began to count anew, call [`crate::Inbox::forget_sequence`].
    Sequence,
}

impl InboxOptions {
    /// How long the ids of handled messages are remembered.
    ///
    /// It must be longer than a message can come again: the longest outage, and the time in which
    /// somebody may deliver dead letters anew. Default: 14 days.
    #[must_use]
    pub fn keep(mut self, value: Duration) -> Self {
        self.keep = value;
        self
    }

    /// What to do with a message before which others are missing. Default: handle it and say so.
    #[must_use]
    pub fn gaps(mut self, value: GapPolicy) -> Self {
        self.gaps = value;
        self
    }
}

impl Default for InboxOptions {
    fn default() -> Self {
        Self { keep: Duration::from_secs(14 * 24 * 3600), gaps: GapPolicy::default() }
    }
}

impl Outcome {
    /// The first missing number and the one that came, if there is a gap before the message.
    #[must_use]
    pub fn gap(&self) -> Option<(u64, u64)> {
        match self {
            Self::Handled { order: Order::Gap { expected, found } } => Some((*expected, *found)),
            Self::Handled { .. } | Self::Duplicate { .. } => None,
        }
    }
}
