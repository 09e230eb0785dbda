//! Throwing messages away, and sending dead letters back.

use millstream_backend_nats::{Connection, DeadLetters as NatsDeadLetters};
use millstream_broker::{Broker, DeadLetters};
use serde::{Deserialize, Serialize};

use crate::admin::messages::nats_dead_letters;
use crate::failure::{Failure, Result};
use crate::messages::Messages;
use crate::system::System;

/// Most messages that one request throws away or sends back.
const PAGE_MAX: usize = 1_000;
/// The same on NATS, where each takes two calls.
const NATS_PAGE_MAX: usize = 100;
/// Most dead letters that are read at once to learn their numbers: whole messages, 1 MiB or less.
const PEEKED_MAX: usize = 100;

/// Messages that nobody has.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct WaitingRow {
    pub(crate) messages: u64,
    /// The number of the newest message, so that what comes later can be left alone.
    pub(crate) newest: u64,
}

/// Dead letters that were sent back.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ResubmittedRow {
    pub(crate) messages: u64,
    /// The number to go on with; none at the end.
    pub(crate) next: Option<u64>,
}

/// How many messages would be thrown away.
pub(crate) async fn waiting(system: &System, path: &str) -> Result<WaitingRow> {
    match &system.messages {
        Messages::Own(broker) => {
            let waiting = broker.waiting(path)?;
            Ok(WaitingRow { messages: count(waiting.messages), newest: waiting.newest })
        }
        Messages::Nats(connection) => {
            let numbers = nats_letters(connection, path).await?.numbers().await?;
            let newest = numbers.last().copied().unwrap_or_default();
            Ok(WaitingRow { messages: count(numbers.len()), newest })
        }
    }
}

/// Throws some of the messages up to `newest` away; says how many, 0 at the end.
pub(crate) async fn purge(system: &System, path: &str, newest: u64) -> Result<u64> {
    match &system.messages {
        Messages::Own(broker) => Ok(count(broker.purge(path, newest, PAGE_MAX).await?)),
        Messages::Nats(connection) => {
            let letters = nats_letters(connection, path).await?;
            let numbers = letters.numbers().await?.into_iter().filter(|it| *it <= newest);
            let numbers: Vec<u64> = numbers.take(NATS_PAGE_MAX).collect();
            for number in &numbers {
                letters.remove(*number).await?;
            }
            Ok(count(numbers.len()))
        }
    }
}

/// Sends some of the dead letters from number `from` up to `newest` back.
pub(crate) async fn resubmit(
    system: &System,
    path: &str,
    from: u64,
    newest: u64,
    messages_max: u64,
) -> Result<ResubmittedRow> {
    match &system.messages {
        Messages::Own(broker) => resubmit_own(broker, path, from, newest, messages_max).await,
        Messages::Nats(_) => Err(Failure::usage(
            "topics on NATS have no way back for dead letters: replay the events, which reach all \
             subscriptions, and throw the dead letters away with purge",
        )),
    }
}

async fn resubmit_own(
    broker: &Broker,
    path: &str,
    from: u64,
    newest: u64,
    messages_max: u64,
) -> Result<ResubmittedRow> {
    let page_max = usize::try_from(messages_max).unwrap_or(PEEKED_MAX).min(PEEKED_MAX);
    let page = broker.peek(path, from, page_max, None).await?;
    let numbers = page.iter().map(|it| it.sequence_number).filter(|it| *it <= newest);
    let numbers: Vec<u64> = numbers.collect();
    let Some(last) = numbers.last().copied() else {
        return Ok(ResubmittedRow { messages: 0, next: None });
    };
    let sent = broker.resubmit_dead_letters(path, &DeadLetters::Numbers(numbers)).await?;
    Ok(ResubmittedRow { messages: count(sent), next: Some(last.saturating_add(1)) })
}

async fn nats_letters(connection: &Connection, path: &str) -> Result<NatsDeadLetters> {
    let sentence = "on NATS only dead letters can be thrown away, such as \
                    events/Subscriptions/default/$DeadLetterQueue";
    nats_dead_letters(connection, path).await?.ok_or_else(|| Failure::usage(sentence))
}

fn count(messages: usize) -> u64 {
    u64::try_from(messages).unwrap_or(u64::MAX)
}
