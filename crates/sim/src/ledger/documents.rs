//! The documents of a processor as a stranger reads them: only what the checks need, by the names
//! that are stored. The code under test has its own reader; a mistake there must not hide here.

use millstream_core::{Continuation, Cursor, KeyRange, Lsn};
use serde::Deserialize;
use uuid::Uuid;

/// Which document an id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Control,
    Lease,
    Member,
    /// The head of a parked sequence.
    Head,
    /// A change that was put aside.
    Letter,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Control {
    pub(crate) roots: Vec<Root>,
    pub(crate) complete: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Root {
    pub(crate) keys: KeyRange,
    pub(crate) position: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Lease {
    pub(crate) keys: KeyRange,
    pub(crate) position: String,
    pub(crate) epoch: u64,
    pub(crate) owner: Option<Owner>,
    pub(crate) state: State,
    #[serde(default)]
    pub(crate) children: Vec<KeyRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum State {
    Active,
    Splitting,
    Retired,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct Owner {
    pub(crate) instance: String,
    pub(crate) incarnation: Uuid,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Head {
    pub(crate) parked_key: String,
    pub(crate) generation: String,
    pub(crate) state: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Letter {
    pub(crate) parked_key: String,
    #[serde(default)]
    pub(crate) generation: Option<String>,
    pub(crate) lsn: u64,
    pub(crate) item_id: String,
}

impl Kind {
    /// What `id` is, if it is of the processor of the simulation.
    pub(crate) fn of(id: &str) -> Option<Self> {
        let local = id.strip_prefix("sim:")?;
        let kind = match local.split(':').collect::<Vec<_>>().as_slice() {
            ["control"] => Self::Control,
            ["lease", ..] => Self::Lease,
            ["member", _] => Self::Member,
            ["parked", _] => Self::Head,
            ["parked" | "skipped", _, _, _] => Self::Letter,
            _ => return None,
        };
        Some(kind)
    }
}

impl Lease {
    /// The last commit that is done; none if the position says nothing.
    pub(crate) fn lsn(&self) -> Option<Lsn> {
        lsn(&self.position)
    }
}

/// The last commit before a position.
pub(crate) fn lsn(position: &str) -> Option<Lsn> {
    let continuation = Continuation::new(position).ok()?;
    Cursor::parse(&continuation).ok().map(|it| it.after)
}
