//! What commands ask of a system, whether it is open here or in a running `millstream up`.
//!
//! A command makes a [`Request`]. If nobody has the data directory open, the command opens it and
//! executes the request itself; otherwise the process that has it open does, and the answer is the
//! same.

mod clearing;
mod feed;
mod messages;
mod relays;
mod replay;
mod scheduled;
mod strangers;
mod transfer;

use serde::{Deserialize, Serialize};

pub(crate) use crate::admin::clearing::{ResubmittedRow, WaitingRow};
pub(crate) use crate::admin::feed::{ChangeRow, FeedAnswer, FeedRequest, parse_start};
pub(crate) use crate::admin::messages::{EntityRow, PeekedRow, topics};
pub(crate) use crate::admin::relays::{
    LagRow, LeaseRow, ParkedChangeRow, ParkedChanges, ParkedRow, lag,
};
pub(crate) use crate::admin::replay::{
    ReplayAnswer, ReplayPlace, ReplayRequest, parse_keys, parse_replay_start,
};
pub(crate) use crate::admin::scheduled::{ScheduledRow, count_scheduled};
pub(crate) use crate::admin::strangers::strangers;
pub(crate) use crate::admin::transfer::LinesAnswer;
use crate::failure::Result;
use crate::system::System;

/// What a command asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Request {
    /// Queues, topics and subscriptions with their counts.
    Topics,
    /// How far the relays are behind.
    Lag,
    /// The leases of the relays.
    Leases,
    /// The parked keys of all relays.
    ParkedList,
    /// The changes of a parked key.
    ParkedShow { relay: String, key: String, after: Option<String> },
    /// Delivers a parked key again, or all of them.
    ParkedRedrive { relay: String, key: Option<String> },
    /// Throws a parked key away.
    ParkedDiscard { relay: String, key: String },
    /// Events that are not due.
    Scheduled,
    /// Throws one of them away.
    ScheduledDiscard { relay: String, id: String },
    /// Lets go of a relay that is not in the settings.
    Forget { relay: String },
    /// Looks at messages.
    Peek { path: String, from: u64, max: usize, session: Option<String> },
    /// How many messages would be thrown away.
    Waiting { path: String },
    /// Throws messages away.
    Purge { path: String, newest: u64 },
    /// Sends dead letters back.
    Resubmit { path: String, from: u64, newest: u64, max: u64 },
    /// Reads a change feed.
    Feed(FeedRequest),
    /// Sends events again, a page at a time.
    Replay(ReplayRequest),
    /// Reads items.
    Export { container: String, after: Option<String> },
    /// Writes items.
    Import { container: String, lines: Vec<String> },
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Answer {
    Topics(Vec<EntityRow>),
    Lag(Vec<LagRow>),
    Leases(Vec<LeaseRow>),
    ParkedList(Vec<ParkedRow>),
    ParkedShow(ParkedChanges),
    /// How many sequences are delivered again.
    Redriven(u64),
    /// How many changes were thrown away.
    Discarded(u64),
    Scheduled(Vec<ScheduledRow>),
    /// How many documents a relay had.
    Forgotten(u64),
    Peek(Vec<PeekedRow>),
    Waiting(WaitingRow),
    /// How many messages were thrown away.
    Purged(u64),
    Resubmitted(ResubmittedRow),
    Feed(FeedAnswer),
    Replay(ReplayAnswer),
    Lines(LinesAnswer),
    /// How many items were written.
    Imported(u64),
}

/// Does what is asked. The broker's service must run.
pub(crate) async fn execute(system: &System, request: Request) -> Result<Answer> {
    Ok(match request {
        Request::Topics => Answer::Topics(topics(system).await?),
        Request::Lag => Answer::Lag(lag(system).await?),
        Request::Leases => Answer::Leases(relays::leases(system).await?),
        Request::ParkedList => Answer::ParkedList(relays::parked_list(system).await?),
        Request::ParkedShow { relay, key, after } => {
            Answer::ParkedShow(relays::parked_show(system, &relay, &key, after.as_deref()).await?)
        }
        Request::ParkedRedrive { relay, key } => {
            Answer::Redriven(relays::redrive(system, &relay, key.as_deref()).await?)
        }
        Request::ParkedDiscard { relay, key } => {
            Answer::Discarded(relays::discard(system, &relay, &key).await?)
        }
        Request::Scheduled => Answer::Scheduled(scheduled::scheduled(system).await?),
        Request::ScheduledDiscard { relay, id } => {
            Answer::Discarded(scheduled::discard_scheduled(system, &relay, &id).await?)
        }
        Request::Forget { relay } => Answer::Forgotten(strangers::forget(system, &relay).await?),
        Request::Peek { path, from, max, session } => {
            Answer::Peek(messages::peek(system, &path, from, max, session.as_deref()).await?)
        }
        Request::Waiting { path } => Answer::Waiting(clearing::waiting(system, &path).await?),
        Request::Purge { path, newest } => {
            Answer::Purged(clearing::purge(system, &path, newest).await?)
        }
        Request::Resubmit { path, from, newest, max } => {
            Answer::Resubmitted(clearing::resubmit(system, &path, from, newest, max).await?)
        }
        Request::Feed(request) => Answer::Feed(feed::feed(system, request).await?),
        Request::Replay(request) => Answer::Replay(replay::replay(system, request).await?),
        Request::Export { container, after } => {
            Answer::Lines(transfer::export(system, &container, after).await?)
        }
        Request::Import { container, lines } => {
            Answer::Imported(transfer::import(system, &container, lines).await?)
        }
    })
}
