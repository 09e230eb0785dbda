//! Servers and consumers that die while messages go through.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_backend_nats::{
    NatsSubscriber, NatsSubscriberService, NatsTopic, SubscriptionOptions, TopicOptions,
};
use millstream_core::{ErrorKind, Message, Publisher, SessionReceiver, Settlement, Subscriber};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::conformance::{block_on, options};
use crate::server::Servers;

const SESSIONS: usize = 40;
/// Two of each session, so that every call is an atomic batch.
const MESSAGES_PER_CALL: usize = 2;
/// Calls that must succeed between two faults.
const CALLS: usize = 10;
/// A pause of whoever looks again.
const PAUSE: Duration = Duration::from_millis(100);
/// So many looks without anything new are a standstill: more than any election takes.
const LOOKS_MAX: usize = 900;

/// What was sent, and what the consumers have of it.
#[derive(Default)]
struct Progress {
    /// The next number of each session.
    next: Mutex<BTreeMap<String, usize>>,
    calls: AtomicUsize,
    handled: AtomicUsize,
    refused: AtomicUsize,
    stop: AtomicBool,
    has_stopped: AtomicBool,
}

impl Progress {
    /// Notes the first time a message is handled; a repetition must be one of what was seen.
    fn handle(&self, session: &str, number: usize) {
        let mut next = self.next.lock().unwrap();
        let next = next.entry(session.to_owned()).or_default();
        if number < *next {
            return;
        }
        assert_eq!(number, *next, "session {session} saw {number} instead of {next}");
        *next += 1;
        self.handled.fetch_add(1, Ordering::SeqCst);
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn handled(&self) -> usize {
        self.handled.load(Ordering::SeqCst)
    }

    /// How many messages were sent by the calls that succeeded.
    fn sent(&self) -> usize {
        self.calls() * SESSIONS * MESSAGES_PER_CALL
    }
}

/// Everything that works while the faults happen.
struct Work {
    topic: NatsTopic,
    progress: Arc<Progress>,
    tasks: JoinSet<()>,
    consumers: Vec<AbortHandle>,
}

impl Work {
    /// Begins to send to a topic and to receive from it.
    async fn start(servers: &Servers) -> Self {
        let options = TopicOptions { lanes: 8, ..TopicOptions::default() };
        let topic = servers.topic("t", &options).await;
        let (progress, tasks) = (Arc::new(Progress::default()), JoinSet::new());
        let mut work = Self { topic, progress, tasks, consumers: Vec::new() };
        work.tasks.spawn(publish(work.topic.clone(), Arc::clone(&work.progress)));
        for _ in 0..2 {
            let consumer = work.consumer();
            work.consumers.push(consumer);
        }
        work
    }

    /// Starts a consumer.
    fn consumer(&mut self) -> AbortHandle {
        self.tasks.spawn(consume(self.topic.clone(), Arc::clone(&self.progress)))
    }

    /// Another consumer takes the place of one that dies in the middle of its work.
    fn replace_consumer(&mut self, index: usize) {
        let consumer = self.consumer();
        std::mem::replace(&mut self.consumers[index], consumer).abort();
    }

    /// Waits until so many more calls have succeeded, and as many messages were handled.
    async fn until_it_goes_on(&mut self) {
        let calls = self.progress.calls() + CALLS;
        let handled = self.progress.handled() + CALLS * SESSIONS * MESSAGES_PER_CALL;
        self.until(|it| calls <= it.calls() && handled <= it.handled()).await;
    }

    /// Sends no more, and waits until everything that was sent is handled.
    async fn finish(mut self) {
        self.progress.stop.store(true, Ordering::SeqCst);
        let has_stopped = |it: &Progress| it.has_stopped.load(Ordering::SeqCst);
        self.until(|it| has_stopped(it) && it.sent() <= it.handled()).await;
        let (calls, handled) = (self.progress.calls(), self.progress.handled());
        assert_eq!(handled, self.progress.sent(), "more was handled than sent");
        let refused = self.progress.refused.load(Ordering::SeqCst);
        eprintln!("{calls} calls, {handled} messages, {refused} settlements refused");
    }

    /// Waits for something. Whoever panics meanwhile takes the test along.
    async fn until(&mut self, holds: impl Fn(&Progress) -> bool) {
        let mut before = (0, 0);
        let mut looks = 0;
        while !holds(&self.progress) {
            tokio::time::sleep(PAUSE).await;
            while let Some(ended) = self.tasks.try_join_next() {
                match ended {
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    // A consumer that was killed, or the publisher that was told to stop.
                    Err(_) | Ok(()) => (),
                }
            }
            let now = (self.progress.calls(), self.progress.handled());
            looks = if now == before { looks + 1 } else { 0 };
            before = now;
            let sent = self.progress.sent();
            assert!(looks < LOOKS_MAX, "{} of {sent} messages came, and no more", now.1);
        }
    }
}

/// Sends until it is told to stop; a call without success is repeated.
async fn publish(topic: NatsTopic, progress: Arc<Progress>) {
    let publisher = topic.publisher();
    while !progress.stop.load(Ordering::SeqCst) {
        let first = progress.calls() * MESSAGES_PER_CALL;
        let messages: Vec<Message> = (first..first + MESSAGES_PER_CALL)
            .flat_map(|number| (0..SESSIONS).map(move |it| (it, number)))
            .map(|(session, number)| {
                Message::new(format!("{session}-{number}"), "x").session(format!("s{session}"))
            })
            .collect();
        while let Err(error) = publisher.publish(messages.clone()).await {
            eprintln!("published again: {}", error.report());
            tokio::time::sleep(PAUSE).await;
        }
        progress.calls.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(PAUSE).await;
    }
    progress.has_stopped.store(true, Ordering::SeqCst);
}

/// Receives for ever.
async fn consume(topic: NatsTopic, progress: Arc<Progress>) {
    let (subscriber, service) = subscribe(&topic).await;
    let working = async {
        let one = || async {
            loop {
                let accepted = subscriber.accept_session(Duration::from_secs(5)).await;
                let Some(session) = accepted.unwrap() else { continue };
                work(&*session, &progress).await;
            }
        };
        futures_util::future::join_all((0..8).map(|_| one())).await;
    };
    tokio::select! {
        biased;
        () = service.run(CancellationToken::new()) => panic!("the service ended by itself"),
        () = working => (),
    }
}

/// Subscribes, again while no leader answers, as a process does that is started in an outage.
async fn subscribe(topic: &NatsTopic) -> (NatsSubscriber, NatsSubscriberService) {
    // Short, so that lanes are lost and taken often.
    let options = SubscriptionOptions {
        lock_duration: Duration::from_millis(1500),
        lease_duration: Duration::from_millis(1000),
        from_beginning: true,
        ..options()
    };
    loop {
        match topic.subscribe("s", options.clone()).await {
            Ok(subscribed) => return subscribed,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
                eprintln!("subscribes again: {}", error.report());
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn work(session: &dyn SessionReceiver, progress: &Progress) {
    let Ok(received) = session.receive(5, Duration::ZERO).await else { return };
    for delivery in &received {
        let number = delivery.message.id.rsplit('-').next().unwrap().parse().unwrap();
        progress.handle(session.session_id(), number);
    }
    if session.settle(&received, Settlement::Complete).await.is_err() {
        progress.refused.fetch_add(1, Ordering::SeqCst);
    }
    let _ = session.close().await;
}

#[test]
fn nothing_is_lost_or_out_of_order_while_servers_die() {
    block_on(async {
        let mut servers = Servers::start(3);
        let mut work = Work::start(&servers).await;
        work.until_it_goes_on().await;
        // Whichever server leads a stream, it is among them.
        for index in 0..3 {
            servers.kill(index);
            tokio::time::sleep(Duration::from_millis(1500)).await;
            servers.run(index);
            work.until_it_goes_on().await;
        }
        work.finish().await;
    });
}

#[test]
fn nothing_is_lost_or_out_of_order_while_consumers_die() {
    block_on(async {
        let servers = Servers::start(1);
        let mut work = Work::start(&servers).await;
        for kill in 0..6 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            work.replace_consumer(kill % 2);
        }
        work.until_it_goes_on().await;
        work.finish().await;
    });
}
