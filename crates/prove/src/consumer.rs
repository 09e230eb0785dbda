use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use millstream_core::{
    Batch, Delivery, Documents, ItemId, Message, Operation, PartitionKey, SessionReceiver,
    Settlement, Subscriber,
};
use millstream_crash::{Attempt, Error, Random, Result};
use millstream_outbox::{Inbox, Incoming, Order, Outcome};
use serde::{Deserialize, Serialize};

use crate::broker_part::LOCK_DURATION;
use crate::calm::items;
use crate::mutant::Mutant;
use crate::part::{PartOptions, Phase};
use crate::publisher::version;
use crate::remote::RemoteBroker;
use crate::say::say;
use crate::world::ConsumerWorld;

/// Sessions that are handled beside each other.
const SESSIONS: u64 = 6;
/// Most messages of a session at once.
const MESSAGES_MAX: usize = 32;
const WAIT: Duration = Duration::from_millis(100);
/// In a storm one batch in so many takes longer than its lock.
const STALLS: u64 = 100;
/// In a storm one effect in so many takes this long, so that a kill finds it under way.
const WORK: u64 = 4;
const WORK_TIME: Duration = Duration::from_millis(2);
/// The id of the document that holds what happened to a key.
const PROJECTION: &str = "projection";

/// What happened to a key: the events that had their effect, in that order.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Projection {
    id: String,
    partition_key: String,
    /// Versions and ids.
    seen: Vec<(u64, String)>,
}

/// Handles messages until it is killed.
pub(crate) async fn live(options: &PartOptions) -> Result<()> {
    let world = ConsumerWorld::open(&options.directory).await?;
    let consumer = Consumer {
        broker: RemoteBroker::new(&options.directory),
        documents: Arc::clone(&world.effects.documents),
        inbox: Inbox::new(&world.effects, PROJECTION).attempt(|| "open the inbox")?,
        stormy: options.phase == Phase::Storm,
        mutant: options.mutant,
    };
    consumer.run(options.seed).await;
    Ok(())
}

/// Says what effects there are.
pub(crate) async fn tell(options: &PartOptions) -> Result<()> {
    let world = ConsumerWorld::open(&options.directory).await?;
    for item in items(&world.effects).await? {
        if item.id.as_str() != PROJECTION {
            continue;
        }
        let projection = decode(&item.body).attempt(|| "read a projection")?;
        let seen: Vec<String> =
            projection.seen.iter().map(|(version, id)| format!("{version}:{id}")).collect();
        say(format!("effect {} {}", projection.partition_key, seen.join(" ")));
    }
    say("end".to_owned());
    Ok(())
}

/// Takes messages, and writes down each of them once.
struct Consumer {
    broker: RemoteBroker,
    documents: Arc<dyn Documents>,
    inbox: Inbox,
    stormy: bool,
    mutant: Option<Mutant>,
}

impl Consumer {
    /// Handles messages for ever.
    async fn run(&self, seed: u64) {
        let consumer = self;
        let work = (0..SESSIONS).map(|number| async move {
            let mut random = Random::new(seed ^ number);
            loop {
                if let Err(error) = consumer.handle_session(&mut random).await {
                    // Whatever it was, the messages come again.
                    eprintln!("consumer: {}", error.report());
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        });
        let _: Vec<()> = join_all(work).await;
    }

    async fn handle_session(&self, random: &mut Random) -> Result<()> {
        let accepted = self.broker.accept_session(WAIT).await;
        let Some(session) = accepted.attempt(|| "accept a session")? else { return Ok(()) };
        let received = session.receive(MESSAGES_MAX, Duration::ZERO).await;
        let deliveries = received.attempt(|| "receive messages")?;
        if self.mutant == Some(Mutant::SettleFirst) {
            settle(&*session, &deliveries).await?;
        }
        let mut done = 0;
        let mut outcome = Ok(());
        for delivery in &deliveries {
            if self.stormy && random.one_in(WORK) {
                tokio::time::sleep(WORK_TIME).await;
            }
            outcome = self.handle(&delivery.message).await;
            if outcome.is_err() {
                break;
            }
            done += 1;
        }
        if self.stormy && random.one_in(STALLS) {
            tokio::time::sleep(LOCK_DURATION * 2).await;
        }
        if self.mutant != Some(Mutant::SettleFirst) {
            settle(&*session, &deliveries[..done]).await?;
        }
        // What failed stays first in its session.
        session.close().await.attempt(|| "give a session up")?;
        outcome
    }

    async fn handle(&self, message: &Message) -> Result<()> {
        let attempted = || format!("handle the message \"{}\"", message.id);
        let incoming = Incoming::try_from(message).attempt(attempted)?;
        let key = message.session_id.as_deref().unwrap_or_default();
        let version = version(message).ok_or_else(|| Error::new(attempted()))?;
        if self.mutant == Some(Mutant::NoInbox) {
            let effect = self.effect(key, version, &message.id).await.attempt(attempted)?;
            let batch = Batch::new(key).with(effect);
            self.documents.commit(batch).await.attempt(attempted)?;
            say("handled".to_owned());
            return Ok(());
        }
        let outcome = self.inbox.handle(&incoming, |batch| async {
            let effect = self.effect(key, version, &message.id).await?;
            Ok(batch.with(effect))
        });
        match outcome.await.attempt(attempted)? {
            Outcome::Duplicate { .. } => say(format!("duplicate {key} {}", message.id)),
            Outcome::Handled { order: Order::Gap { .. } | Order::Late { .. } } => {
                say(format!("disorder {key} {version}"));
            }
            Outcome::Handled { order: Order::First { found } } if found != 1 => {
                say(format!("disorder {key} {version}"));
            }
            Outcome::Handled { .. } => say("handled".to_owned()),
        }
        Ok(())
    }

    /// Adds an event to what is known of its key, unless somebody else did so in between.
    async fn effect(
        &self,
        key: &str,
        version: u64,
        id: &str,
    ) -> millstream_core::Result<Operation> {
        let item_id = ItemId::new(PROJECTION)?;
        let found = self.documents.read(&PartitionKey::from(key), &item_id).await?;
        let mut projection = match &found {
            Some(item) => decode(&item.body)?,
            None => Projection {
                id: PROJECTION.to_owned(),
                partition_key: key.to_owned(),
                ..Projection::default()
            },
        };
        projection.seen.push((version, id.to_owned()));
        let body = serde_json::to_vec(&projection)
            .map_err(|error| millstream_core::Error::invalid("write a projection", error))?;
        Ok(match found {
            Some(item) => Operation::replace(item_id, body).if_match(item.etag),
            None => Operation::create(body),
        })
    }
}

/// Reads a projection.
fn decode(body: &[u8]) -> millstream_core::Result<Projection> {
    serde_json::from_slice(body)
        .map_err(|error| millstream_core::Error::invalid("read a projection", error))
}

async fn settle(session: &dyn SessionReceiver, deliveries: &[Delivery]) -> Result<()> {
    if deliveries.is_empty() {
        return Ok(());
    }
    session.settle(deliveries, Settlement::Complete).await.attempt(|| "complete messages")
}
