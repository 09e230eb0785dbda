//! The peer: an outbox in PostgreSQL, polled with `FOR UPDATE SKIP LOCKED`.
//!
//! One poller, because two of them do not keep the order of a key. What it takes goes to NATS
//! JetStream: as it comes, which acknowledges what is not on disk yet and is the best this peer can
//! do, and told to write first, which is what our broker promises. It also goes to memory, which
//! shows what polling alone costs; no ratio is made of that. Beside it graphile-worker, whose jobs
//! do nothing and in no order: what it can do at best. The ratio is to the better of the two. Here
//! a backlog is drained and nobody commits; `sustained` has both at the same time.

use std::{path::Path, time::Duration};

use tokio_postgres::{Client, Statement};

use crate::{
    Options, Result,
    measure::{Stopwatch, float},
    postgres,
    postgres_server::Server,
    relay::{graphile, nats::Nats},
    report::{Figures, optional},
    workload::{EVENT_BYTES, Random},
};

/// The peer is slower; a smaller backlog says the same.
const EVENTS_MAX: u64 = 50_000;
/// Each message is written by itself then, which takes about a millisecond.
const EVENTS_DURABLE_MAX: u64 = 3_000;
const EVENTS_PER_POLL: i64 = 500;
/// A peer that is not through by then is stopped; its rate is that of what it did.
const TIME_MAX: Duration = Duration::from_secs(60);
const TABLE: &str = "
    CREATE TABLE outbox (
        id bigint PRIMARY KEY,
        partition_key text NOT NULL,
        body text NOT NULL
    )";
const POLL: &str = "SELECT id, body FROM outbox ORDER BY id LIMIT $1
                    FOR UPDATE SKIP LOCKED";
const DONE: &str = "DELETE FROM outbox WHERE id = ANY($1)";

/// Measures the peer, and how many times its rate `rate` is.
pub(super) async fn measure(
    directory: &Path,
    options: &Options,
    rate: f64,
    figures: &mut Figures,
) -> Result<()> {
    println!("beside it, polls of {EVENTS_PER_POLL} with SKIP LOCKED, in order:");
    let (mut memory, mut stream, mut durable) = (None, None, None);
    if options.postgres {
        memory = poll_all(directory, options.items_or(u64::MAX).min(EVENTS_MAX), None).await?;
        for is_durable in [false, true] {
            // A directory for each, as the server says in there where it listens.
            let own = tempfile::tempdir_in(directory)?;
            let Some(nats) = Nats::start(own.path(), is_durable)? else { continue };
            let events_max = if is_durable { EVENTS_DURABLE_MAX } else { EVENTS_MAX };
            let rate =
                poll_all(directory, options.items_or(u64::MAX).min(events_max), Some(nats)).await?;
            if is_durable { durable = rate } else { stream = rate }
        }
    }
    println!("  PostgreSQL into NATS JetStream                   {} events/s", optional(stream, 0));
    println!(
        "  the same, on disk before it is acknowledged      {} events/s",
        optional(durable, 0)
    );
    println!("  PostgreSQL into memory, so polling alone         {} events/s", optional(memory, 0));
    let graphile = match options.postgres {
        true => graphile::measure(directory, options.items_or(u64::MAX).min(EVENTS_MAX)).await?,
        false => None,
    };
    println!(
        "  graphile-worker in batches, jobs that do nothing  {} events/s",
        optional(graphile, 0)
    );
    figures.add("relay.drain_peer_memory_events_per_s", memory);
    figures.add("relay.drain_peer_events_per_s", stream);
    figures.add("relay.drain_graphile_events_per_s", graphile);
    let best = stream.into_iter().chain(graphile).reduce(f64::max);
    figures.add("relay.drain_ratio", best.map(|it| rate / it));
    figures.add("relay.drain_durable_ratio", durable.map(|it| rate / it));
    Ok(())
}

async fn poll_all(directory: &Path, events: u64, nats: Option<Nats>) -> Result<Option<f64>> {
    let Some(mut server) = Server::start(directory)? else { return Ok(None) };
    let client = postgres::ready(&mut server).await?;
    fill(&client, events).await?;
    let mut poller = Poller::new(client, nats).await?;
    let mut relayed = 0;
    let stopwatch = Stopwatch::start();
    while stopwatch.elapsed() < TIME_MAX {
        let count = poller.poll().await?;
        if count == 0 {
            break;
        }
        relayed += count;
    }
    let elapsed = stopwatch.elapsed();
    if relayed != events && elapsed < TIME_MAX {
        return Err(format!("the peer relayed {relayed} of {events} events").into());
    }
    Ok(Some(float(relayed) / elapsed.as_secs_f64()))
}

/// Takes events out of the outbox, in order.
pub(super) struct Poller {
    client: Client,
    poll: Statement,
    done: Statement,
    nats: Option<Nats>,
}

impl Poller {
    /// What it takes goes to the stream, or nowhere.
    pub(super) async fn new(client: Client, nats: Option<Nats>) -> Result<Self> {
        let (poll, done) = (client.prepare(POLL).await?, client.prepare(DONE).await?);
        Ok(Self { client, poll, done, nats })
    }

    /// Relays the next events, and returns how many there were.
    pub(super) async fn poll(&mut self) -> Result<u64> {
        let transaction = self.client.transaction().await?;
        let rows = transaction.query(&self.poll, &[&EVENTS_PER_POLL]).await?;
        if rows.is_empty() {
            return Ok(0);
        }
        let ids: Vec<i64> = rows.iter().map(|it| it.get(0)).collect();
        let messages: Vec<(i64, String)> = rows.iter().map(|it| (it.get(0), it.get(1))).collect();
        if let Some(nats) = &mut self.nats {
            tokio::task::block_in_place(|| nats.publish(&messages))?;
        }
        transaction.execute(&self.done, &[&ids]).await?;
        transaction.commit().await?;
        Ok(u64::try_from(messages.len())?)
    }
}

async fn fill(client: &Client, events: u64) -> Result<()> {
    client.batch_execute(TABLE).await?;
    let insert = "INSERT INTO outbox (id, partition_key, body) VALUES ($1, $2, $3)";
    let insert = client.prepare(insert).await?;
    let mut random = Random::new(0);
    client.batch_execute("BEGIN").await?;
    for event in 0..events {
        let body = random.filled(r#"{"text":""#.to_owned(), EVENT_BYTES, "\"}");
        let key = format!("key-{}", event % 10_000);
        client.execute(&insert, &[&i64::try_from(event)?, &key, &body]).await?;
    }
    // One call each: several statements in one call are a transaction, and VACUUM refuses that.
    for statement in ["COMMIT", "VACUUM ANALYZE outbox", "CHECKPOINT"] {
        client.batch_execute(statement).await?;
    }
    Ok(())
}
