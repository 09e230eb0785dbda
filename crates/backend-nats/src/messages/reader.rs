//! Reads the messages of a lane in order, for ever.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, ReplayPolicy, pull};
use async_nats::jetstream::{self, consumer::Consumer};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use millstream_core::{Error, ErrorKind, Message, Result, Timestamp};

use crate::messages::headers;
use crate::messages::subscriber::{LaneCell, Shared};
use crate::messages::wire::call_error;

/// Most messages asked for at once.
const PULL_MESSAGES_MAX: usize = 200;
/// How long the server keeps a request that it cannot answer.
const PULL_WAIT: Duration = Duration::from_secs(2);
/// A server that does not even say that there is nothing is gone.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// The server forgets a reader that does not ask for so long.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);

/// A message as it was read.
struct Read {
    number: u64,
    message: Message,
    enqueued_at: Timestamp,
}

/// Reads until it is dropped.
pub(crate) async fn read(shared: &Shared, cell: &LaneCell) {
    loop {
        if let Err(error) = read_some(shared, cell).await {
            tracing::debug!(lane = cell.number, error = error.report(), "reads the lane anew");
            shared.topic.clock.sleep(PAUSE).await;
        }
    }
}

/// Reads with one consumer of the server until something is wrong with it.
async fn read_some(shared: &Shared, cell: &LaneCell) -> Result<()> {
    let after = cell.look(|lane| lane.read_to());
    let consumer = consumer(shared, cell.number, after).await?;
    let mut expected = 1;
    loop {
        let room = cell.until_room().await.min(PULL_MESSAGES_MAX);
        let attempted = || format!("read lane {} of {:?}", cell.number, shared.topic.name);
        let batch = consumer.batch().max_messages(room).expires(PULL_WAIT);
        let batch = batch.messages().await.map_err(|error| call_error(attempted(), error))?;
        let mut batch = batch.ready_chunks(PULL_MESSAGES_MAX);
        loop {
            let silence = shared.topic.clock.sleep(SILENCE_MAX);
            let chunk = match select(batch.next(), silence).await {
                Either::Left((Some(chunk), _)) => chunk,
                Either::Left((None, _)) => break,
                Either::Right(_) => {
                    let error = Error::new(ErrorKind::Unavailable, attempted());
                    return Err(error.because("the server says nothing"));
                }
            };
            let mut found = Vec::with_capacity(chunk.len());
            let mut outcome = Ok(());
            for message in chunk {
                match decode(message, &mut expected, attempted) {
                    Ok(read) => found.push(read),
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
            }
            shared.change(cell, |lane, _| {
                for Read { number, message, enqueued_at } in found {
                    lane.push(number, message, enqueued_at);
                }
            });
            outcome?;
        }
    }
}

async fn consumer(shared: &Shared, lane: u32, after: u64) -> Result<Consumer<pull::Config>> {
    let attempted = || format!("read lane {lane} of {:?}", shared.topic.name);
    let config = pull::Config {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: after + 1 },
        ack_policy: AckPolicy::None,
        replay_policy: ReplayPolicy::Instant,
        filter_subject: shared.topic.names.lane(lane),
        inactive_threshold: IDLE_MAX,
        num_replicas: 1,
        memory_storage: true,
        ..pull::Config::default()
    };
    let created = shared.topic.messages.create_consumer(config).await;
    created.map_err(|error| call_error(attempted(), error))
}

/// The message, if it is the next one: what was sent to a request that is gone would be missing.
fn decode(
    message: Result<jetstream::Message, async_nats::Error>,
    expected: &mut u64,
    attempted: impl Fn() -> String,
) -> Result<Read> {
    let unavailable = || Error::new(ErrorKind::Unavailable, attempted());
    let message = message.map_err(|error| unavailable().because(error))?;
    let info = message.info().map_err(|error| unavailable().because(error))?;
    if info.consumer_sequence != *expected {
        return Err(unavailable().because("a message is missing"));
    }
    *expected += 1;
    let number = info.stream_sequence;
    let millis = info.published.unix_timestamp_nanos() / 1_000_000;
    let enqueued_at = Timestamp::from_millis(u64::try_from(millis).unwrap_or_default());
    let body = message.payload.clone();
    let message = headers::decode(message.headers.as_ref(), body, number);
    Ok(Read { number, message, enqueued_at })
}
