//! What JetStream allows to anyone: the same bytes in the same kind of stream, with nothing around.
//!
//! A batch is an atomic publish of two messages, as a careful user would write it by hand: the item
//! expects the version that was written last, the event expects that there is none of its name.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{
    Client, HeaderMap,
    client::Request,
    jetstream::{
        self,
        consumer::{DeliverPolicy, push},
        stream::Config,
    },
};
use async_trait::async_trait;
use futures_util::StreamExt;

use crate::{
    Result,
    measure::{Stopwatch, Usage, float},
    nats::arrival::Reader,
    rounds::{Subject, Writer},
    workload::{Pair, Random, Shape, event_id, item_body, item_id, partition_of},
};

const STREAM: &str = "raw";
/// Tries of one batch.
const ATTEMPTS_MAX: u32 = 1000;
/// Codes of the server: too many batches at a time, or part of this one was refused for that; and
/// somebody else has written the item, or is about to.
const REFUSED_FOR_NOW: [&str; 4] = ["10210", "10176", "10071", "10164"];
/// A server that says nothing for so long is stuck.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

/// A stream without anything of ours.
pub(super) struct Raw {
    client: Client,
    /// The sequence of each item, as its last writer was told.
    known: Arc<Vec<AtomicU64>>,
}

impl Raw {
    /// Creates the stream with so many items in it.
    pub(super) async fn open(url: &str, replicas: usize, items: u64) -> Result<Self> {
        let client = async_nats::connect(url).await?;
        let config = Config {
            name: STREAM.to_owned(),
            subjects: vec![format!("{STREAM}.>")],
            num_replicas: replicas,
            max_messages_per_subject: 1,
            allow_direct: true,
            allow_atomic_publish: true,
            ..Config::default()
        };
        let context = jetstream::new(client.clone());
        context.create_stream(config).await?;
        let mut random = Random::new(0);
        let mut known = Vec::new();
        for item in 0..items {
            let body = item_body(item, 0, Shape::CONTACT, &mut random);
            let stored = context.publish(item_subject(item), body.into()).await?.await?;
            known.push(AtomicU64::new(stored.sequence));
        }
        Ok(Self { client, known: Arc::new(known) })
    }

    /// Messages per second from the first to the last, pushed by the server.
    pub(super) async fn read(&self) -> Result<f64> {
        let stopwatch = Stopwatch::start();
        let mut messages = self.messages(DeliverPolicy::All).await?;
        let mut count = 0_u64;
        loop {
            let message = tokio::time::timeout(SILENCE_MAX, messages.next()).await?;
            let message = message.ok_or("the NATS server hung up")??;
            count += 1;
            if message.info()?.pending == 0 {
                return Ok(float(count) / stopwatch.elapsed().as_secs_f64());
            }
        }
    }

    /// Whoever gets every message that is stored from now on pushed by the server.
    pub(super) async fn reader(&self) -> Result<RawReader> {
        Ok(RawReader(self.messages(DeliverPolicy::New).await?))
    }

    async fn messages(&self, deliver_policy: DeliverPolicy) -> Result<push::Ordered> {
        let deliver_subject = self.client.new_inbox();
        let config = push::OrderedConfig { deliver_subject, deliver_policy, ..Default::default() };
        let stream = jetstream::new(self.client.clone()).get_stream(STREAM).await?;
        Ok(stream.create_consumer(config).await?.messages().await?)
    }
}

#[async_trait]
impl Subject for Raw {
    fn name(&self) -> &'static str {
        "raw"
    }

    async fn writers(&self, count: usize) -> Result<Vec<Box<dyn Writer>>> {
        let writer = |_| -> Box<dyn Writer> {
            Box::new(RawWriter { client: self.client.clone(), known: Arc::clone(&self.known) })
        };
        Ok((0..count).map(writer).collect())
    }

    async fn fdatasyncs(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn usage(&self) -> io::Result<Usage> {
        Usage::of_self()
    }
}

struct RawWriter {
    client: Client,
    known: Arc<Vec<AtomicU64>>,
}

#[async_trait]
impl Writer for RawWriter {
    async fn commit(&mut self, pair: Pair) -> Result<()> {
        let known = Arc::clone(&self.known);
        let known = &known[usize::try_from(pair.item)?];
        for attempt in 0..ATTEMPTS_MAX {
            let answer = self.publish(&pair, known.load(Ordering::Relaxed), attempt).await?;
            if let Some(sequence) = stored_at(&answer) {
                // The event came last, the item before it.
                known.fetch_max(sequence - 1, Ordering::Relaxed);
                return Ok(());
            }
            if !REFUSED_FOR_NOW.iter().any(|it| answer.contains(it)) {
                return Err(format!("NATS refused: {answer}").into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Err("NATS refused a batch all the time".into())
    }
}

impl RawWriter {
    async fn publish(&self, pair: &Pair, expected: u64, attempt: u32) -> Result<String> {
        let batch = format!("batch-{}-{attempt}", pair.event);
        let headers = |place: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Batch-Id", batch.as_str());
            headers.insert("Nats-Batch-Sequence", place);
            headers
        };
        let mut first = headers("1");
        first.insert(EXPECTED, expected.to_string());
        let body = pair.item_body.clone().into();
        self.client.publish_with_headers(item_subject(pair.item), first, body).await?;
        let mut last = headers("2");
        last.insert(EXPECTED, "0");
        last.insert("Nats-Batch-Commit", "1");
        let request = Request::new().headers(last).payload(pair.event_body.clone().into());
        let subject = format!("{STREAM}.{}.{}", partition_of(pair.item), event_id(pair.event));
        let answer = self.client.send_request(subject, request).await?;
        Ok(String::from_utf8_lossy(&answer.payload).into_owned())
    }
}

/// A consumer that the server pushes to.
pub(super) struct RawReader(push::Ordered);

#[async_trait]
impl Reader for RawReader {
    async fn next(&mut self) -> Result<Vec<String>> {
        let message = self.0.next().await.ok_or("the NATS server ended the consumer")??;
        let id = message.subject.as_str().rsplit('.').next();
        Ok(id.map(str::to_owned).into_iter().collect())
    }
}

fn item_subject(item: u64) -> String {
    format!("{STREAM}.{}.{}", partition_of(item), item_id(item))
}

/// The sequence of the last message, unless the batch was refused.
fn stored_at(answer: &str) -> Option<u64> {
    if answer.contains("\"error\"") {
        return None;
    }
    let (_, rest) = answer.split_once("\"seq\":")?;
    rest.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_tells_where_a_batch_was_stored_or_that_it_was_refused() {
        let check = |answer, expected| assert_eq!(stored_at(answer), expected, "{answer}");
        check(r#"{"stream":"raw","seq":17,"batch":"b","count":2}"#, Some(17));
        check(r#"{"error":{"code":400,"err_code":10071},"stream":"raw","seq":0}"#, None);
        check("", None);
    }
}
