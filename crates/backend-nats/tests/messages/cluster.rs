//! Servers that die while messages go through.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_backend_nats::{NatsTopic, TopicOptions};
use millstream_core::{Message, Publisher, SessionReceiver, Settlement, Subscriber};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::conformance::{block_on, options};
use crate::server::Servers;

const SESSIONS: usize = 40;
const CALLS: usize = 60;

/// What a consumer has completed of each session, and how often it was given out.
#[derive(Default)]
struct Seen {
    of: Mutex<BTreeMap<String, Vec<usize>>>,
    done: AtomicUsize,
    refused: AtomicUsize,
}

impl Seen {
    /// Notes the first time a message is handled; a repetition must be one of what was seen.
    fn handle(&self, session: &str, number: usize) {
        let mut of = self.of.lock().unwrap();
        let seen = of.entry(session.to_owned()).or_default();
        if seen.contains(&number) {
            return;
        }
        assert_eq!(number, seen.len(), "session {session} saw {seen:?} before {number}");
        seen.push(number);
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

fn consumer(topic: &NatsTopic, seen: &Arc<Seen>) -> JoinHandle<()> {
    let (topic, seen) = (topic.clone(), Arc::clone(seen));
    tokio::spawn(async move {
        let (subscriber, service) = topic.subscribe("s", options()).await.unwrap();
        let working = async {
            let one = || async {
                loop {
                    let accepted = subscriber.accept_session(Duration::from_secs(5)).await;
                    let Some(session) = accepted.unwrap() else { continue };
                    work(&*session, &seen).await;
                }
            };
            futures_util::future::join_all((0..8).map(|_| one())).await;
        };
        tokio::select! {
            biased;
            () = service.run(CancellationToken::new()) => (),
            () = working => (),
        }
    })
}

async fn work(session: &dyn SessionReceiver, seen: &Seen) {
    let Ok(received) = session.receive(5, Duration::ZERO).await else { return };
    for delivery in &received {
        let number = delivery.message.id.rsplit('-').next().unwrap().parse().unwrap();
        seen.handle(session.session_id(), number);
    }
    if session.settle(&received, Settlement::Complete).await.is_err() {
        seen.refused.fetch_add(1, Ordering::SeqCst);
    }
    let _ = session.close().await;
}

async fn publish(topic: &NatsTopic) {
    let publisher = topic.publisher();
    for call in 0..CALLS {
        // Two of each session, so that every call is an atomic batch.
        let numbers = [call * 2, call * 2 + 1];
        let messages: Vec<Message> = numbers
            .into_iter()
            .flat_map(|number| (0..SESSIONS).map(move |it| (it, number)))
            .map(|(session, number)| {
                Message::new(format!("{session}-{number}"), "x").session(format!("s{session}"))
            })
            .collect();
        while let Err(error) = publisher.publish(messages.clone()).await {
            eprintln!("published again: {}", error.report());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_done(seen: &Seen) {
    let total = SESSIONS * CALLS * 2;
    let mut quiet = 0;
    let mut before = 0;
    while seen.done.load(Ordering::SeqCst) < total {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let done = seen.done.load(Ordering::SeqCst);
        quiet = if done == before { quiet + 1 } else { 0 };
        before = done;
        assert!(quiet < 600, "{done} of {total} messages came, and no more");
    }
}

/// Kills and restarts servers in turn until told to stop.
async fn trouble(servers: &mut Servers, stop: &AtomicBool) -> usize {
    let mut kills = 0;
    while !stop.load(Ordering::SeqCst) {
        let index = kills % 3;
        servers.kill(index);
        kills += 1;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        servers.run(index);
        tokio::time::sleep(Duration::from_millis(2500)).await;
    }
    kills
}

#[test]
fn nothing_is_lost_or_out_of_order_while_servers_die() {
    block_on(async {
        let mut servers = Servers::start(3);
        let options = TopicOptions { lanes: 8, ..TopicOptions::default() };
        let topic = servers.topic("t", &options).await;
        topic.create_subscription("s", true).await.unwrap();
        let seen = Arc::new(Seen::default());
        let consumers = [consumer(&topic, &seen), consumer(&topic, &seen)];
        let stop = AtomicBool::new(false);
        let work = async {
            publish(&topic).await;
            stop.store(true, Ordering::SeqCst);
        };
        let (kills, ()) = futures_util::future::join(trouble(&mut servers, &stop), work).await;
        until_done(&seen).await;
        assert!(0 < kills);
        eprintln!(
            "{kills} servers killed, {} settlements refused",
            seen.refused.load(Ordering::SeqCst)
        );
        for consumer in consumers {
            consumer.abort();
        }
    });
}

#[test]
fn nothing_is_lost_or_out_of_order_while_consumers_die() {
    block_on(async {
        let servers = Servers::start(1);
        let options = TopicOptions { lanes: 8, ..TopicOptions::default() };
        let topic = servers.topic("t", &options).await;
        topic.create_subscription("s", true).await.unwrap();
        let seen = Arc::new(Seen::default());
        let mut consumers = vec![consumer(&topic, &seen), consumer(&topic, &seen)];
        let publishing = tokio::spawn({
            let topic = topic.clone();
            async move { publish(&topic).await }
        });
        let mut kills = 0;
        while !publishing.is_finished() {
            tokio::time::sleep(Duration::from_millis(700)).await;
            let consumer_now = consumer(&topic, &seen);
            let killed = std::mem::replace(&mut consumers[kills % 2], consumer_now);
            killed.abort();
            let _ = killed.await;
            kills += 1;
        }
        until_done(&seen).await;
        eprintln!("{kills} consumers killed");
        for consumer in consumers {
            consumer.abort();
        }
    });
}
