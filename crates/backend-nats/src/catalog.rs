//! Databases, containers and guards: one stream with a message for each.

mod records;

use bytes::Bytes;
use millstream_core::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Connection;
pub(crate) use crate::catalog::records::{
    ContainerRecord, DatabaseRecord, Floor, GuardRecord, Unfinished,
};
use crate::subject::name_token;
use crate::wire::{Headers, Outgoing, Published, StoredMessage, Wire, pause};

/// Names a write, so that a lost answer can be looked up.
const WRITE: &str = "Millstream-Write";
/// How often a write is tried before it counts as unavailable.
const ATTEMPTS_MAX: u32 = 12;

#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    connection: Connection,
    wire: Wire,
    subject: String,
}

/// A record and the sequence of its message.
#[derive(Clone, Debug)]
pub(crate) struct Found<T> {
    pub(crate) sequence: u64,
    /// None if it was removed, or was never there.
    pub(crate) record: Option<T>,
}

/// A record that is written or removed if the newest message of its subject is still `expected`.
pub(crate) struct Change {
    subject: String,
    expected: u64,
    payload: Bytes,
}

/// What became of a conditional write.
pub(crate) enum Written {
    Done(u64),
    Conflict,
}

impl Catalog {
    /// `replicas` is how many the stream has, whatever the options say now.
    pub(crate) fn new(connection: &Connection, replicas: usize) -> Self {
        let options = connection.options();
        let stream = Self::stream(&options.prefix);
        let wire = Wire::new(connection, &stream, replicas);
        let subject = format!("{}.catalog", options.prefix);
        Self { connection: connection.clone(), wire, subject }
    }

    pub(crate) fn stream(prefix: &str) -> String {
        format!("{prefix}_catalog")
    }

    pub(crate) fn all(prefix: &str) -> String {
        format!("{prefix}.catalog.>")
    }

    pub(crate) fn database(&self, name: &str) -> String {
        format!("{}.d.{}", self.subject, name_token(name))
    }

    pub(crate) fn container(&self, database: u32, name: &str) -> String {
        format!("{}.c.{database}.{}", self.subject, name_token(name))
    }

    pub(crate) fn guard(&self, container: u32, name: &str) -> String {
        format!("{}.g.{container}.{}", self.subject, name_token(name))
    }

    /// What the history of a range no longer has.
    pub(crate) fn floor(&self, container: u32, range: u32) -> String {
        format!("{}.f.{container}.{range}", self.subject)
    }

    /// Says that the streams of a container are being made or removed.
    pub(crate) fn unfinished(&self, container: u32) -> String {
        format!("{}.u.{container}", self.subject)
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, subject: &str) -> Result<Found<T>> {
        match self.wire.last(subject).await? {
            Some(message) => found(&message),
            None => Ok(Found { sequence: 0, record: None }),
        }
    }

    pub(crate) async fn databases(&self) -> Result<Vec<DatabaseRecord>> {
        self.list(&format!("{}.d.*", self.subject)).await
    }

    pub(crate) async fn containers(&self, database: u32) -> Result<Vec<(u64, ContainerRecord)>> {
        let filter = format!("{}.c.{database}.*", self.subject);
        self.list_found(&filter).await
    }

    /// The containers of all databases, also of those that are gone.
    pub(crate) async fn all_containers(&self) -> Result<Vec<(u64, ContainerRecord)>> {
        self.list_found(&format!("{}.c.*.*", self.subject)).await
    }

    pub(crate) async fn all_unfinished(&self) -> Result<Vec<(u64, Unfinished)>> {
        self.list_found(&format!("{}.u.*", self.subject)).await
    }

    pub(crate) async fn guards(&self, container: u32) -> Result<Vec<GuardRecord>> {
        self.list(&format!("{}.g.{container}.*", self.subject)).await
    }

    /// Writes a record if the newest message of its subject is still `expected`.
    pub(crate) async fn put<T: Serialize>(
        &self,
        subject: &str,
        expected: u64,
        record: &T,
    ) -> Result<Written> {
        self.write(&[Change::put(subject, expected, record)]).await
    }

    /// Removes a record in the same way.
    pub(crate) async fn remove(&self, subject: &str, expected: u64) -> Result<Written> {
        self.write(&[Change::remove(subject, expected)]).await
    }

    /// Removes everything about a container but its own record, and that it is unfinished last.
    pub(crate) async fn forget(&self, container: u32) -> Result<()> {
        for kind in ["g", "f"] {
            let filter = format!("{}.{kind}.{container}.>", self.subject);
            self.wire.purge(&filter, 0).await?;
        }
        self.wire.purge(&self.unfinished(container), 0).await
    }

    /// A number that nobody else gets, for a `database` or a `container`.
    pub(crate) async fn next_number(&self, what: &str) -> Result<u32> {
        let subject = format!("{}.n.{what}", self.subject);
        for attempt in 0..ATTEMPTS_MAX {
            let last: Found<u32> = self.get(&subject).await?;
            let number = last.record.unwrap_or(0).checked_add(1).ok_or_else(|| {
                Error::new(ErrorKind::Overloaded, format!("number a {what}"))
                    .because("all numbers are used up")
            })?;
            if let Written::Done(_) = self.put(&subject, last.sequence, &number).await? {
                return Ok(number);
            }
            pause(attempt).await;
        }
        let error = Error::new(ErrorKind::Overloaded, format!("number a {what}"));
        Err(error.because("too many others do so at the same time"))
    }

    async fn list<T: DeserializeOwned>(&self, filter: &str) -> Result<Vec<T>> {
        let found = self.list_found(filter).await?;
        Ok(found.into_iter().map(|(_, record)| record).collect())
    }

    async fn list_found<T: DeserializeOwned>(&self, filter: &str) -> Result<Vec<(u64, T)>> {
        let mut records = Vec::new();
        for subject in self.wire.subjects(filter).await? {
            let Found { sequence, record } = self.get(&subject).await?;
            records.extend(record.map(|it| (sequence, it)));
        }
        Ok(records)
    }

    /// Makes all changes or none; `Done` has the sequence of the last one.
    pub(crate) async fn write(&self, changes: &[Change]) -> Result<Written> {
        let id = self.connection.options().ids.next_id().simple().to_string();
        let message = |change: &Change| {
            let mut headers = Headers::default();
            headers.set(WRITE, &id);
            let (subject, payload) = (change.subject.clone(), change.payload.clone());
            Outgoing { subject, headers, payload }.expecting(change.expected)
        };
        let messages: Vec<Outgoing> = changes.iter().map(message).collect();
        let attempted = "write to the catalog";
        let mut is_doubtful = false;
        for attempt in 0..ATTEMPTS_MAX {
            match self.wire.publish(&format!("{id}-{attempt}"), &messages).await {
                Published::Stored(sequence) => return Ok(Written::Done(sequence)),
                Published::Refused(reason) => return Err(Error::invalid(attempted, reason)),
                Published::Conflict if !is_doubtful => {
                    // It may be another write that is under way, and can still come to nothing.
                    if !self.is_open(changes).await? {
                        return Ok(Written::Conflict);
                    }
                }
                Published::Conflict | Published::Unknown(_) => {
                    is_doubtful = true;
                    // In this order: it may be made while we look.
                    let is_open = self.is_open(changes).await?;
                    if let Some(sequence) = self.find(changes, &id).await? {
                        return Ok(Written::Done(sequence));
                    }
                    if !is_open {
                        let error = Error::new(ErrorKind::Unavailable, attempted);
                        let reason = "the answer was lost and somebody else has written since";
                        return Err(error.because(reason).with_unknown_effect());
                    }
                }
                Published::NotNow(_) | Published::Nobody => {}
            }
            pause(attempt).await;
        }
        let error = Error::new(ErrorKind::Unavailable, attempted).because("no answer comes");
        Err(if is_doubtful { error.with_unknown_effect() } else { error })
    }

    /// The sequence of the last of the changes, if they were made by the write of this name.
    async fn find(&self, changes: &[Change], id: &str) -> Result<Option<u64>> {
        let Some(change) = changes.last() else { return Ok(None) };
        let last = self.wire.last(&change.subject).await?;
        Ok(last.filter(|it| it.header(WRITE) == Some(id)).map(|it| it.sequence))
    }

    /// Whether everything is as the changes expect it.
    async fn is_open(&self, changes: &[Change]) -> Result<bool> {
        for change in changes {
            let last = self.wire.last(&change.subject).await?;
            if last.map_or(0, |it| it.sequence) != change.expected {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Change {
    pub(crate) fn put<T: Serialize>(subject: &str, expected: u64, record: &T) -> Self {
        let payload = serde_json::to_vec(record).expect("a record is JSON").into();
        Self { subject: subject.to_owned(), expected, payload }
    }

    pub(crate) fn remove(subject: &str, expected: u64) -> Self {
        Self { subject: subject.to_owned(), expected, payload: Bytes::new() }
    }
}

fn found<T: DeserializeOwned>(message: &StoredMessage) -> Result<Found<T>> {
    let sequence = message.sequence;
    if message.payload.is_empty() {
        return Ok(Found { sequence, record: None });
    }
    let record = serde_json::from_slice(&message.payload).map_err(|error| {
        let attempted = format!("read the catalog at {:?}", message.subject);
        Error::new(ErrorKind::Corrupt, attempted).because(error)
    })?;
    Ok(Found { sequence, record: Some(record) })
}
