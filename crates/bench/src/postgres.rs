//! The peer: a plain outbox in PostgreSQL, as an application would write it.
//!
//! The benchmark starts a server of its own in a fresh directory, with default settings, on a unix
//! socket only, and stops it at the end, on errors too.

use std::{io, time::Duration};

use async_trait::async_trait;
use tokio_postgres::{Client, Config, NoTls, Statement, types::ToSql};

use crate::{
    Result,
    measure::Usage,
    postgres_server::Server,
    rounds::{Subject, Writer},
    workload::{Pair, Random, Shape, item_body},
};

const TABLES: &str = "
    CREATE TABLE items (id bigint PRIMARY KEY, body text NOT NULL);
    CREATE TABLE outbox (
        id bigserial PRIMARY KEY, event bigint NOT NULL, item bigint NOT NULL, body text NOT NULL
    );
";
/// How an application adds an event: its number, its item, its body.
const INSERT: &str = "INSERT INTO outbox (event, item, body) VALUES ($1, $2, $3)";
const READY_ATTEMPTS_MAX: u32 = 300;
const READY_INTERVAL: Duration = Duration::from_millis(100);

/// A server of our own with one table of items and one outbox.
#[derive(Debug)]
pub(crate) struct Postgres {
    server: Server,
    admin: Client,
    insert: &'static str,
}

impl Postgres {
    /// Starts `server`'s tables with `items` rows.
    pub(crate) async fn fill(mut server: Server, items: u64) -> Result<Self> {
        let admin = ready(&mut server).await?;
        admin.batch_execute(TABLES).await?;
        let insert = admin.prepare("INSERT INTO items (id, body) VALUES ($1, $2)").await?;
        let mut random = Random::new(0);
        admin.batch_execute("BEGIN").await?;
        for item in 0..items {
            let body = item_body(item, 0, Shape::CONTACT, &mut random);
            admin.execute(&insert, &[&i64::try_from(item)?, &body]).await?;
        }
        // One call each: several statements in one call are a transaction, and VACUUM refuses that.
        for statement in ["COMMIT", "VACUUM ANALYZE items", "CHECKPOINT"] {
            admin.batch_execute(statement).await?;
        }
        Ok(Self { server, admin, insert: INSERT })
    }

    /// The same, with another way to add an event.
    pub(crate) fn adding_by(self, insert: &'static str) -> Self {
        Self { insert, ..self }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// A connection of one's own.
    pub(crate) async fn connect(&self) -> Result<Client> {
        connect(&self.server.config()).await
    }

    /// Waits until no writer of the last round is connected; a backend reports its numbers when it
    /// ends, not before.
    async fn wait_for_backends(&self) -> Result<()> {
        let others = "SELECT count(*) FROM pg_stat_activity
                      WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        for _ in 0..READY_ATTEMPTS_MAX {
            if self.admin.query_one(others, &[]).await?.get::<_, i64>(0) == 0 {
                return Ok(());
            }
            tokio::time::sleep(READY_INTERVAL).await;
        }
        Err("could not see the writers of the last round leave".into())
    }
}

#[async_trait]
impl Subject for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn writers(&self, count: usize) -> Result<Vec<Box<dyn Writer>>> {
        let mut writers: Vec<Box<dyn Writer>> = Vec::with_capacity(count);
        for _ in 0..count {
            let client = self.connect().await?;
            let update = client.prepare("UPDATE items SET body = $1 WHERE id = $2").await?;
            let insert = client.prepare(self.insert).await?;
            writers.push(Box::new(PostgresWriter { client, update, insert }));
        }
        Ok(writers)
    }

    async fn fdatasyncs(&self) -> Result<Option<u64>> {
        self.wait_for_backends().await?;
        // Before version 14 the server did not count.
        let Ok(row) = self.admin.query_one("SELECT wal_sync FROM pg_stat_wal", &[]).await else {
            return Ok(None);
        };
        Ok(Some(u64::try_from(row.get::<_, i64>(0))?))
    }

    fn usage(&self) -> io::Result<Usage> {
        let server = Usage::of_family(self.server.process())?;
        // What the client writes goes to sockets.
        Ok(Usage { processor: server.processor + Usage::of_self()?.processor, ..server })
    }
}

struct PostgresWriter {
    client: Client,
    update: Statement,
    insert: Statement,
}

#[async_trait]
impl Writer for PostgresWriter {
    async fn commit(&mut self, pair: Pair) -> Result<()> {
        let item = i64::try_from(pair.item)?;
        let event = i64::try_from(pair.event)?;
        let update: [&(dyn ToSql + Sync); 2] = [&pair.item_body, &item];
        let insert: [&(dyn ToSql + Sync); 3] = [&event, &item, &pair.event_body];
        let transaction = self.client.transaction().await?;
        let updated = transaction.execute(&self.update, &update).await?;
        if updated != 1 {
            return Err(format!("could not update item {item}: it is not there").into());
        }
        transaction.execute(&self.insert, &insert).await?;
        transaction.commit().await?;
        Ok(())
    }
}

async fn connect(config: &Config) -> Result<Client> {
    let (client, connection) = config.connect(NoTls).await?;
    // Ends when the client is dropped; its errors reach the client's calls too.
    tokio::spawn(connection);
    Ok(client)
}

/// Waits until the server answers.
pub(crate) async fn ready(server: &mut Server) -> Result<Client> {
    let mut last = None;
    for _ in 0..READY_ATTEMPTS_MAX {
        server.check_running()?;
        match connect(&server.config()).await {
            Ok(client) => return Ok(client),
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(READY_INTERVAL).await;
    }
    Err(last.unwrap_or_else(|| "could not connect to PostgreSQL".into()))
}
