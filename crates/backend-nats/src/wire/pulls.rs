//! Reading a stream page by page with a consumer that lives on the server for a while.
//!
//! A batch of direct reads makes the server count everything that is left in the stream before it
//! answers, so its price grows with the stream. A consumer counts once, when it is made.

use async_nats::jetstream::{self, Context};
use async_nats::{Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::json;

use crate::wire::answers::StoredMessage;
use crate::wire::{Answered, Failure, Run, Wire};

/// How long a server keeps a consumer that nobody asks.
const IDLE_NANOS_MAX: u64 = 30_000_000_000;

/// A consumer of our own. It only ever moves forward; dropping it leaves it to the server, which
/// forgets it after a while.
#[derive(Debug)]
pub(crate) struct Pull {
    filter: Option<String>,
    name: String,
    /// Begins the subjects of the answers.
    inbox: String,
    answers: Subscriber,
    context: Context,
    /// Every message before this sequence was given out.
    next: u64,
    /// Messages it has given out.
    delivered: u64,
    /// Requests so far; each is answered at a subject of its own.
    asked: u64,
}

/// What an answer means.
enum Part {
    Message(StoredMessage, Place),
    /// There is nothing after what has come.
    End,
    /// The next message would be too much for this run.
    Enough,
    /// It belongs to an earlier run.
    Late,
}

/// Where a message stands.
struct Place {
    delivered: u64,
    is_last: bool,
}

impl Wire {
    /// Makes a consumer that begins at a sequence.
    pub(crate) async fn pull_from(&self, from: u64, filter: Option<&str>) -> Answered<Pull> {
        #[derive(Deserialize)]
        struct Answer {
            name: String,
        }
        let mut config = json!({
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": from,
            "ack_policy": "none",
            "mem_storage": true,
            "num_replicas": 1,
            "inactive_threshold": IDLE_NANOS_MAX,
        });
        if let Some(filter) = filter {
            config["filter_subject"] = json!(filter);
        }
        let query = json!({ "stream_name": self.stream, "config": config });
        let address = format!("$JS.API.CONSUMER.CREATE.{}", self.stream);
        let Answer { name } = self.ask(&address, &query).await?;
        let inbox = self.client().new_inbox();
        let answers = self.client().subscribe(format!("{inbox}.*")).await;
        Ok(Pull {
            filter: filter.map(str::to_owned),
            name,
            inbox,
            answers: answers.map_err(|it| Failure::Unreachable(it.to_string()))?,
            context: self.connection.jetstream().clone(),
            next: from,
            delivered: 0,
            asked: 0,
        })
    }

    /// Up to `count` messages from where the consumer stands; it may not have the newest yet.
    pub(crate) async fn run_on(
        &self,
        pull: &mut Pull,
        count: usize,
        bytes_max: usize,
    ) -> Answered<Run> {
        pull.asked += 1;
        let reply = format!("{}.{}", pull.inbox, pull.asked);
        let query = json!({ "batch": count, "max_bytes": bytes_max, "no_wait": true });
        let query = Bytes::from(query.to_string());
        let address = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", self.stream, pull.name);
        let sent = self.client().publish_with_reply(address, reply.clone(), query);
        sent.await.map_err(|it| Failure::Unreachable(it.to_string()))?;
        let mut run = Run { messages: Vec::new(), has_more: true };
        while run.messages.len() < count {
            let answer = tokio::time::timeout(self.timeout(), pull.answers.next()).await;
            let Ok(Some(answer)) = answer else {
                return Err(Failure::Unreachable("the consumer does not answer".to_owned()));
            };
            match pull.part(answer, &reply)? {
                Part::Message(message, place) => {
                    if place.delivered != pull.delivered + 1 {
                        let reason = "a message of the consumer was lost";
                        return Err(Failure::Unreachable(reason.to_owned()));
                    }
                    pull.delivered = place.delivered;
                    pull.next = message.sequence + 1;
                    run.messages.push(message);
                    run.has_more = !place.is_last;
                }
                // The server says so even after the last message. Nothing may be left on its way:
                // by the next run it would be outdated.
                Part::End => {
                    run.has_more = false;
                    break;
                }
                Part::Enough if run.messages.is_empty() => {
                    return Err(Failure::Refused("a message is larger than any run".to_owned()));
                }
                Part::Enough => {
                    run.has_more = true;
                    break;
                }
                Part::Late => {}
            }
        }
        Ok(run)
    }

    /// Whether a consumer can be made, and answers.
    pub(crate) async fn try_pull(
        &self,
        from: u64,
        filter: Option<&str>,
        bytes_max: usize,
    ) -> Answered<()> {
        let mut pull = self.pull_from(from, filter).await?;
        let ran = self.run_on(&mut pull, 1, bytes_max).await;
        self.end_pull(pull).await;
        ran.map(drop)
    }

    /// Lets the server forget a consumer now. If this is lost it does so by itself.
    pub(crate) async fn end_pull(&self, pull: Pull) {
        let address = format!("$JS.API.CONSUMER.DELETE.{}.{}", self.stream, pull.name);
        let _ = self.client().publish(address, Bytes::new()).await;
    }
}

impl Pull {
    /// Whether it reads these messages and is at `from`, or not further away than `distance`.
    pub(crate) fn is_near(&self, from: u64, filter: Option<&str>, distance: u64) -> bool {
        self.filter.as_deref() == filter && from.abs_diff(self.next) <= distance
    }

    /// Every message before this sequence was given out.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    fn part(&self, message: Message, reply: &str) -> Answered<Part> {
        let Some(status) = message.status else { return self.message(message) };
        if message.subject.as_str() != reply {
            return Ok(Part::Late);
        }
        match status.as_u16() {
            404 | 408 => Ok(Part::End),
            503 => Err(Failure::NoResponders),
            code => {
                let text = message.description.unwrap_or_default();
                if text.starts_with("Message Size Exceeds") {
                    return Ok(Part::Enough);
                }
                Err(Failure::Unreachable(format!("status {code} {text}")))
            }
        }
    }

    fn message(&self, message: Message) -> Answered<Part> {
        let message = jetstream::Message { message, context: self.context.clone() };
        let strange = || Failure::Unreachable("a message does not say where it stands".to_owned());
        let info = message.info().map_err(|_| strange())?;
        let place = Place { delivered: info.consumer_sequence, is_last: info.pending == 0 };
        let sequence = info.stream_sequence;
        let jetstream::Message { message, .. } = message;
        let Message { subject, headers, payload, .. } = message;
        let headers = headers.unwrap_or_default();
        let subject = subject.to_string();
        Ok(Part::Message(StoredMessage::new(subject, sequence, headers, payload), place))
    }
}
