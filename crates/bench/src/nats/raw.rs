//! What JetStream allows to anyone: the same bytes in the same kind of stream, with nothing around.

use std::{io, time::Duration};

use async_nats::{
    Client, HeaderMap,
    client::Request,
    jetstream::{self, stream::Config},
};
use async_trait::async_trait;

use crate::{
    Result,
    measure::{Stopwatch, Usage, float},
    rounds::{Subject, Writer},
    workload::{Pair, item_id, partition_of},
};

const STREAM: &str = "raw";
/// Messages that are asked for at once.
const READ_MESSAGES: usize = 1000;
/// Tries of one batch.
const ATTEMPTS_MAX: u32 = 1000;
/// Codes of the server: too many batches at a time, or part of this one was refused for that.
const REFUSED_FOR_NOW: [&str; 2] = ["10210", "10176"];
/// A server that says nothing for so long is stuck.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A stream without anything of ours.
pub(super) struct Raw(Client);

impl Raw {
    pub(super) async fn open(url: &str, replicas: usize) -> Result<Self> {
        let servers: Vec<&str> = url.split(',').collect();
        let client = async_nats::connect(servers).await?;
        let config = Config {
            name: STREAM.to_owned(),
            subjects: vec![format!("{STREAM}.>")],
            num_replicas: replicas,
            max_messages_per_subject: 1,
            allow_direct: true,
            allow_atomic_publish: true,
            ..Config::default()
        };
        jetstream::new(client.clone()).create_stream(config).await?;
        Ok(Self(client))
    }

    /// Messages per second from the first to the last.
    pub(super) async fn read(&self) -> Result<f64> {
        use futures_util::StreamExt;

        let stopwatch = Stopwatch::start();
        let (mut count, mut next) = (0_u64, 1_u64);
        loop {
            let inbox = self.0.new_inbox();
            let mut answers = self.0.subscribe(inbox.clone()).await?;
            let query = format!(r#"{{"seq":{next},"batch":{READ_MESSAGES}}}"#);
            let address = format!("$JS.API.DIRECT.GET.{STREAM}");
            self.0.publish_with_reply(address, inbox, query.into()).await?;
            let before = count;
            loop {
                let answer = tokio::time::timeout(SILENCE_MAX, answers.next()).await?;
                let answer = answer.ok_or("the NATS server hung up")?;
                if answer.status.is_some() {
                    break;
                }
                let headers = answer.headers.unwrap_or_default();
                let sequence = headers.get("Nats-Sequence").map(ToString::to_string);
                next = sequence.unwrap_or_default().parse::<u64>()? + 1;
                count += 1;
            }
            if count == before {
                return Ok(float(count) / stopwatch.elapsed().as_secs_f64());
            }
        }
    }
}

#[async_trait]
impl Subject for Raw {
    fn name(&self) -> &'static str {
        "raw"
    }

    async fn writers(&self, count: usize) -> Result<Vec<Box<dyn Writer>>> {
        let writer = |_| -> Box<dyn Writer> { Box::new(RawWriter(self.0.clone())) };
        Ok((0..count).map(writer).collect())
    }

    async fn fdatasyncs(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn usage(&self) -> io::Result<Usage> {
        Usage::of_self()
    }
}

struct RawWriter(Client);

#[async_trait]
impl Writer for RawWriter {
    async fn commit(&mut self, pair: Pair) -> Result<()> {
        // A server takes 50 batches at a time; whoever is refused tries again.
        for attempt in 0..ATTEMPTS_MAX {
            let answer = self.publish(&pair, attempt).await?;
            if !answer.contains("\"error\"") {
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
    async fn publish(&self, pair: &Pair, attempt: u32) -> Result<String> {
        let partition = partition_of(pair.item);
        let batch = format!("batch-{}-{attempt}", pair.event);
        let headers = |place: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Batch-Id", batch.as_str());
            headers.insert("Nats-Batch-Sequence", place);
            headers
        };
        let subject = format!("{STREAM}.{partition}.{}", item_id(pair.item));
        let body = pair.item_body.clone().into();
        self.0.publish_with_headers(subject, headers("1"), body).await?;
        let mut last = headers("2");
        last.insert("Nats-Batch-Commit", "1");
        let request = Request::new().headers(last).payload(pair.event_body.clone().into());
        let subject = format!("{STREAM}.{partition}.event-{}", pair.event);
        let answer = self.0.send_request(subject, request).await?;
        Ok(String::from_utf8_lossy(&answer.payload).into_owned())
    }
}
