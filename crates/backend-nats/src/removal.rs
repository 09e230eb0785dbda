//! How containers and databases are removed: records first, then streams.

use futures_util::{StreamExt, TryStreamExt, stream};
use millstream_core::refusals::no_database;
use millstream_core::{BoxFuture, Error, ErrorKind, Result};

use crate::NatsStore;
use crate::catalog::{Change, ContainerRecord, DatabaseRecord, Found, Unfinished, Written};
use crate::store::{ATTEMPTS_MAX, STREAMS_AT_ONCE};
use crate::streams::remove_range;
use crate::subject::RangeNames;
use crate::wire::pause;

/// Containers whose records are removed at once, with two messages each; a server takes 1,000.
const CONTAINERS_AT_ONCE: usize = 400;

impl NatsStore {
    /// Removes a container: first its record, then its streams. If we die in between, maintenance
    /// does the rest.
    pub(crate) async fn remove(
        &self,
        subject: &str,
        sequence: u64,
        record: &ContainerRecord,
    ) -> Result<Written> {
        let changes = self.removal(subject, sequence, record).await?;
        let written = self.inner.catalog.write(&changes).await?;
        if let Written::Done(_) = written {
            self.known().remove(&record.resource_id());
            self.remove_streams(record.unfinished()).await?;
        }
        Ok(written)
    }

    /// What takes the record of a container away, and says that its streams are to follow.
    async fn removal(
        &self,
        subject: &str,
        sequence: u64,
        record: &ContainerRecord,
    ) -> Result<[Change; 2]> {
        let mark = self.inner.catalog.unfinished(record.number);
        let marked: Found<Unfinished> = self.inner.catalog.get(&mark).await?;
        let mark = Change::put(&mark, marked.sequence, &record.unfinished());
        Ok([mark, Change::remove(subject, sequence)])
    }

    /// The same for all containers of a database. Those who have one of them open look at its
    /// record alone, so that all go in one moment with the database, or before it if they are too
    /// many.
    pub(crate) async fn remove_records(
        &self,
        sequence: u64,
        database: &DatabaseRecord,
    ) -> Result<Vec<ContainerRecord>> {
        let catalog = &self.inner.catalog;
        let name = &database.name;
        let mut removed = Vec::new();
        for attempt in 0..ATTEMPTS_MAX {
            loop {
                let mut records = catalog.containers(database.number).await?;
                let is_last = records.len() <= CONTAINERS_AT_ONCE;
                records.truncate(CONTAINERS_AT_ONCE);
                let mut changes = Vec::new();
                for (sequence, record) in &records {
                    let container = record.info(*sequence)?.name;
                    let subject = catalog.container(database.number, container.container());
                    changes.extend(self.removal(&subject, *sequence, record).await?);
                }
                if is_last {
                    changes.push(Change::remove(&catalog.database(name), sequence));
                }
                match catalog.write(&changes).await? {
                    Written::Done(_) => removed.extend(records.into_iter().map(|it| it.1)),
                    Written::Conflict => break,
                }
                if is_last {
                    return Ok(removed);
                }
            }
            if self.database(name).await?.0 != sequence {
                return Err(no_database(name));
            }
            pause(attempt).await;
        }
        let error = Error::new(ErrorKind::Overloaded, format!("delete the database {name:?}"));
        Err(error.because("others change its containers all the time"))
    }

    /// Removes streams that belong to no container, and then the mark that they do not.
    pub(crate) async fn remove_streams(&self, unfinished: Unfinished) -> Result<()> {
        let connection = &self.inner.connection;
        let names = (0..unfinished.streams)
            .map(|range| RangeNames::new(&connection.options().prefix, unfinished.number, range));
        let removals: Vec<BoxFuture<'_, Result<()>>> = names
            .map(|it| -> BoxFuture<'_, _> { Box::pin(remove_range(connection, it)) })
            .collect();
        stream::iter(removals).buffer_unordered(STREAMS_AT_ONCE).try_collect::<()>().await?;
        self.inner.catalog.forget(unfinished.number).await
    }
}
