//! Requests to JetStream: what is asked, what comes back, and what a failure means.
//!
//! Messages are read in two ways. The leader of a stream answers `STREAM.MSG.GET` with what was
//! acknowledged last; any replica answers `DIRECT.GET`, and may be a little behind. With one
//! replica both are the same, and the second is quicker.

mod answers;
mod batches;
mod pulls;

use std::fmt;
use std::time::Duration;

use async_nats::{Client, RequestErrorKind};
use bytes::Bytes;
use futures_util::StreamExt;
use millstream_core::{BoxFuture, Error, ErrorKind, Result};
use serde::Deserialize;
use serde_json::json;

use crate::Connection;
pub(crate) use crate::wire::answers::StoredMessage;
use crate::wire::answers::{ApiError, decode_direct, decode_leader};
pub(crate) use crate::wire::batches::{Headers, Outgoing, Published};
pub(crate) use crate::wire::pulls::Pull;

/// What may be spent on something before it counts as unavailable: enough to outlast the election
/// of a leader, which takes seconds.
pub(crate) const PATIENCE: u32 = 60;
/// What an attempt costs that was answered at once, and followed by a pause.
pub(crate) const ANSWERED: u32 = 1;
/// What one costs that waited for an answer until the timeout of the connection.
pub(crate) const UNANSWERED: u32 = 10;
/// Subjects in one page of a listing, set by the server.
const LISTED_MAX: usize = 100_000;

/// Talks to one stream.
#[derive(Clone)]
pub(crate) struct Wire {
    connection: Connection,
    pub(crate) stream: String,
    /// Whether any replica may be asked, because there is only one.
    is_single: bool,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// Messages in the order of the stream, and whether there are more after them.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) messages: Vec<StoredMessage>,
    pub(crate) has_more: bool,
}

impl Wire {
    pub(crate) fn new(connection: &Connection, stream: &str, replicas: usize) -> Self {
        Self { connection: connection.clone(), stream: stream.to_owned(), is_single: replicas == 1 }
    }

    /// Whether every answer is as fresh as that of the leader.
    pub(crate) fn is_single(&self) -> bool {
        self.is_single
    }

    fn client(&self) -> &Client {
        self.connection.client()
    }

    fn timeout(&self) -> Duration {
        self.connection.options().request_timeout
    }

    /// The newest message of a subject, as of now.
    pub(crate) async fn last(&self, subject: &str) -> Result<Option<StoredMessage>> {
        if self.is_single {
            let address = format!("$JS.API.DIRECT.GET.{}.{subject}", self.stream);
            let query = serde_json::Value::Null;
            return self.repeat("read", || Box::pin(self.direct_once(&address, &query))).await;
        }
        let query = json!({ "last_by_subj": subject });
        self.repeat("read", || Box::pin(self.leader_once(&query))).await
    }

    /// The newest message of all. Servers answer between commits, never in the middle of one.
    pub(crate) async fn newest(&self) -> Result<Option<StoredMessage>> {
        let query = json!({ "last_by_subj": ">" });
        if self.is_single {
            let address = format!("$JS.API.DIRECT.GET.{}", self.stream);
            return self.repeat("read", || Box::pin(self.direct_once(&address, &query))).await;
        }
        self.repeat("read", || Box::pin(self.leader_once(&query))).await
    }

    /// The first message from a sequence on whose subject matches, as of now.
    pub(crate) async fn next(&self, from: u64, filter: &str) -> Result<Option<StoredMessage>> {
        let query = json!({ "seq": from, "next_by_subj": filter });
        self.repeat("read", || Box::pin(self.leader_once(&query))).await
    }

    /// The first message from a sequence on whose subject matches, from any replica; it may not
    /// have the newest yet.
    pub(crate) async fn single(
        &self,
        from: u64,
        filter: Option<&str>,
    ) -> Result<Option<StoredMessage>> {
        let address = format!("$JS.API.DIRECT.GET.{}", self.stream);
        let query = json!({ "seq": from, "next_by_subj": filter.unwrap_or(">") });
        self.repeat("read", || Box::pin(self.direct_once(&address, &query))).await
    }

    /// Up to `count` messages from a sequence on, from any replica; it may not have the newest yet.
    ///
    /// A server counts what is left in the stream for each of these, so whoever reads on and on is
    /// better off with a [`Pull`].
    pub(crate) async fn run(
        &self,
        from: u64,
        filter: Option<&str>,
        count: usize,
        bytes_max: usize,
    ) -> Result<Run> {
        let mut query = json!({ "seq": from, "batch": count, "max_bytes": bytes_max });
        if let Some(filter) = filter {
            query["next_by_subj"] = json!(filter);
        }
        self.repeat("read", || Box::pin(self.run_once(&query))).await
    }

    /// How many subjects there are.
    pub(crate) async fn subject_count(&self) -> Result<u64> {
        #[derive(Deserialize)]
        struct Answer {
            state: State,
        }
        #[derive(Deserialize)]
        struct State {
            #[serde(default)]
            num_subjects: u64,
        }
        let address = format!("$JS.API.STREAM.INFO.{}", self.stream);
        let query = json!({});
        let answer: Answer =
            self.repeat("ask for", || Box::pin(self.ask(&address, &query))).await?;
        Ok(answer.state.num_subjects)
    }

    /// The subjects that match, in no particular order.
    pub(crate) async fn subjects(&self, filter: &str) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        struct Answer {
            state: State,
        }
        #[derive(Deserialize)]
        struct State {
            #[serde(default)]
            subjects: std::collections::BTreeMap<String, u64>,
        }
        let address = format!("$JS.API.STREAM.INFO.{}", self.stream);
        let mut found = Vec::new();
        loop {
            let query = json!({ "subjects_filter": filter, "offset": found.len() });
            let answer: Answer =
                self.repeat("list", || Box::pin(self.ask(&address, &query))).await?;
            let count = answer.state.subjects.len();
            found.extend(answer.state.subjects.into_keys());
            if count < LISTED_MAX {
                return Ok(found);
            }
        }
    }

    /// Removes the messages of matching subjects before a sequence.
    pub(crate) async fn purge(&self, filter: &str, before: u64) -> Result<()> {
        let address = format!("$JS.API.STREAM.PURGE.{}", self.stream);
        let query = json!({ "filter": filter, "seq": before });
        let _: serde_json::Value =
            self.repeat("purge", || Box::pin(self.ask(&address, &query))).await?;
        Ok(())
    }

    /// Removes one message. One that is gone already counts as removed.
    pub(crate) async fn remove(&self, sequence: u64) -> Result<()> {
        let address = format!("$JS.API.STREAM.MSG.DELETE.{}", self.stream);
        let query = json!({ "seq": sequence, "no_erase": true });
        match self.ask::<serde_json::Value>(&address, &query).await {
            Ok(_) | Err(Failure::Missing) => Ok(()),
            Err(failure) => Err(self.error("remove a message of", failure)),
        }
    }

    /// Without a query the subject stands in the address.
    async fn direct_once(
        &self,
        address: &str,
        query: &serde_json::Value,
    ) -> Answered<Option<StoredMessage>> {
        let payload = if query.is_null() { Bytes::new() } else { Bytes::from(query.to_string()) };
        let message = self.client().request(address.to_owned(), payload).await;
        decode_direct(message.map_err(|it| failure(&it))?)
    }

    async fn leader_once(&self, query: &serde_json::Value) -> Answered<Option<StoredMessage>> {
        let address = format!("$JS.API.STREAM.MSG.GET.{}", self.stream);
        let payload = Bytes::from(query.to_string());
        let message = self.client().request(address, payload).await.map_err(|it| failure(&it))?;
        decode_leader(&message.payload)
    }

    async fn run_once(&self, query: &serde_json::Value) -> Answered<Run> {
        let client = self.client();
        let inbox = client.new_inbox();
        let lost = |error: &dyn fmt::Display| Failure::Unreachable(error.to_string());
        let mut answers = client.subscribe(inbox.clone()).await.map_err(|it| lost(&it))?;
        let address = format!("$JS.API.DIRECT.GET.{}", self.stream);
        let sent = client.publish_with_reply(address, inbox, query.to_string().into()).await;
        sent.map_err(|it| lost(&it))?;
        let mut run = Run { messages: Vec::new(), has_more: false };
        loop {
            let answer = tokio::time::timeout(self.timeout(), answers.next()).await;
            let Ok(Some(answer)) = answer else {
                return Err(Failure::Unreachable("the stream does not answer".to_owned()));
            };
            match answer.status.map(|it| it.as_u16()) {
                None => run.messages.extend(decode_direct(answer)?),
                // The end of the batch says how many are left.
                Some(204) => {
                    let left = answer.headers.as_ref().and_then(|it| it.get("Nats-Num-Pending"));
                    run.has_more = left.is_some_and(|it| it.as_str() != "0");
                    return Ok(run);
                }
                Some(404) => return Ok(run),
                Some(503) => return Err(Failure::NoResponders),
                Some(_) => {
                    let text = answer.description.unwrap_or_default();
                    return Err(Failure::Unreachable(text));
                }
            }
        }
    }

    async fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        address: &str,
        query: &serde_json::Value,
    ) -> Answered<T> {
        let payload = Bytes::from(query.to_string());
        let message =
            self.client().request(address.to_owned(), payload).await.map_err(|it| failure(&it))?;
        ApiError::check(&message.payload)?;
        serde_json::from_slice(&message.payload)
            .map_err(|error| Failure::Unreachable(error.to_string()))
    }

    /// Asks again while nobody answers, as it is while a new leader is elected.
    async fn repeat<'a, T>(
        &self,
        verb: &str,
        once: impl Fn() -> BoxFuture<'a, Answered<T>> + Send,
    ) -> Result<T> {
        let (mut attempt, mut spent) = (0, 0);
        loop {
            let failure = match once().await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            spent += match failure {
                Failure::Missing | Failure::Refused(_) => PATIENCE,
                Failure::NoResponders if self.is_gone().await => {
                    return Err(self.error(verb, Failure::Missing));
                }
                Failure::NoResponders | Failure::Unavailable(_) => ANSWERED,
                Failure::Unreachable(_) => UNANSWERED,
            };
            if PATIENCE <= spent {
                return Err(self.error(verb, failure));
            }
            attempt += 1;
            pause(attempt).await;
        }
    }

    /// Whether the stream does not exist, as the leader of the cluster knows.
    pub(crate) async fn is_gone(&self) -> bool {
        let address = format!("$JS.API.STREAM.INFO.{}", self.stream);
        let answer = self.ask::<serde_json::Value>(&address, &json!({})).await;
        matches!(answer, Err(Failure::Missing))
    }

    fn error(&self, verb: &str, failure: Failure) -> Error {
        let attempted = format!("{verb} stream {:?}", self.stream);
        match failure {
            Failure::Missing => Error::new(ErrorKind::NotFound, attempted)
                .because("it does not exist; its container was deleted"),
            Failure::Refused(reason) => Error::new(ErrorKind::Invalid, attempted).because(reason),
            Failure::NoResponders => Error::new(ErrorKind::Unavailable, attempted)
                .because("no server answers for it; is JetStream switched on?"),
            Failure::Unreachable(reason) | Failure::Unavailable(reason) => {
                Error::new(ErrorKind::Unavailable, attempted).because(reason)
            }
        }
    }
}

/// Waits a little longer every time, at most a quarter of a second. This is the time a network
/// takes, not that of the store, so it does not come from its clock.
pub(crate) async fn pause(attempt: u32) {
    tokio::time::sleep(Duration::from_millis(5 << attempt.min(6)).min(PAUSE_MAX)).await;
}

const PAUSE_MAX: Duration = Duration::from_millis(250);

pub(crate) type Answered<T> = std::result::Result<T, Failure>;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The stream does not exist.
    Missing,
    /// Nobody listens there, at least not now.
    NoResponders,
    /// No answer came, or a strange one. What was asked may have happened.
    Unreachable(String),
    /// The cluster says that it cannot now. Nothing happened.
    Unavailable(String),
    /// The cluster says that it will not.
    Refused(String),
}

pub(crate) fn failure(error: &async_nats::RequestError) -> Failure {
    match error.kind() {
        RequestErrorKind::NoResponders => Failure::NoResponders,
        RequestErrorKind::TimedOut => Failure::Unreachable("no answer came in time".to_owned()),
        RequestErrorKind::InvalidSubject
        | RequestErrorKind::MaxPayloadExceeded
        | RequestErrorKind::Other => Failure::Unreachable(error.to_string()),
    }
}
