use std::str::FromStr;

use millstream_crash::Error;

/// A bug that the proof must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The relay takes events for published before the broker has them.
    AcknowledgeEarly,
    /// The consumer does not ask its inbox.
    NoInbox,
    /// Events are published last first.
    Reversed,
    /// The consumer completes messages before they have their effect.
    SettleFirst,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::AcknowledgeEarly, Self::NoInbox, Self::Reversed, Self::SettleFirst];

    /// What it is called on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AcknowledgeEarly => "acknowledge-early",
            Self::NoInbox => "no-inbox",
            Self::Reversed => "reversed",
            Self::SettleFirst => "settle-first",
        }
    }
}

impl FromStr for Mutant {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|it| it.name() == text);
        found.ok_or_else(|| Error::new(format!("find the mutant \"{text}\", see --help")))
    }
}
