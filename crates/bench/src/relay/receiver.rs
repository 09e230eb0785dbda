//! The subscriber: one receiver for all messages, or many that take a session at a time.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use millstream_broker::{Broker, BrokerSession, ReceiveMode};
use millstream_core::{SessionReceiver, Settlement};
use tokio::task::{JoinHandle, JoinSet};

use crate::{
    Result,
    measure::Stopwatch,
    relay::{
        latency::Moments,
        stage::{PATH, event_number, key_and_sequence},
    },
};

/// Most messages received at once.
const MESSAGES_MAX: usize = 500;
/// How long a receiver waits before it looks whether the run is over.
const WAIT: Duration = Duration::from_millis(50);
/// How long a run may take to deliver the rest.
const REST_MAX: Duration = Duration::from_secs(60);
/// Receivers of sessions.
const SESSION_RECEIVERS: usize = 64;

/// How messages are received.
#[derive(Clone, Copy, Debug)]
pub(super) enum Receiving {
    /// All by one receiver, in order.
    Together,
    /// A session at a time, by many.
    BySession,
}

/// Receives in order and completes behind.
pub(super) struct Receiver {
    task: JoinHandle<Result<()>>,
    moments: Arc<Moments>,
}

impl Receiver {
    pub(super) fn start(broker: Broker, moments: Arc<Moments>, receiving: Receiving) -> Self {
        let seen = Arc::clone(&moments);
        let task = match receiving {
            Receiving::Together => tokio::spawn(receive(broker, seen)),
            Receiving::BySession => tokio::spawn(receive_sessions(broker, seen)),
        };
        Self { task, moments }
    }

    /// Waits for what was acknowledged and is not poisoned.
    pub(super) async fn finish(self) -> Result<()> {
        let Self { task, moments } = self;
        let stopwatch = Stopwatch::start();
        while moments.received_count.load(Ordering::Relaxed) < moments.expected() {
            if task.is_finished() {
                task.await??;
                return Err("the subscriber ended by itself".into());
            }
            if REST_MAX < stopwatch.elapsed() {
                let (received, expected) =
                    (moments.received_count.load(Ordering::Relaxed), moments.expected());
                return Err(format!("{received} of {expected} events came in a minute").into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        moments.is_over.store(1, Ordering::Relaxed);
        task.await?
    }
}

async fn receive(broker: Broker, moments: Arc<Moments>) -> Result<()> {
    let mut settling: JoinSet<millstream_core::Result<()>> = JoinSet::new();
    while moments.is_over.load(Ordering::Relaxed) == 0 {
        let received = broker.receive(PATH, ReceiveMode::PeekLock, MESSAGES_MAX, WAIT).await?;
        if received.is_empty() {
            continue;
        }
        for message in &received {
            moments.receive(event_number(&message.delivery.message));
        }
        let broker = broker.clone();
        settling.spawn(async move {
            let tokens: Vec<&str> =
                received.iter().map(|it| it.delivery.lock_token.as_str()).collect();
            broker.settle(PATH, &tokens, &Settlement::Complete).await
        });
        while let Some(outcome) = settling.try_join_next() {
            outcome??;
        }
    }
    while let Some(outcome) = settling.join_next().await {
        outcome??;
    }
    Ok(())
}

async fn receive_sessions(broker: Broker, moments: Arc<Moments>) -> Result<()> {
    let mut receivers: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..SESSION_RECEIVERS {
        let (broker, moments) = (broker.clone(), Arc::clone(&moments));
        receivers.spawn(async move {
            while moments.is_over.load(Ordering::Relaxed) == 0 {
                if let Some(session) = broker.accept_session(PATH, None, WAIT).await? {
                    empty(session, &moments).await?;
                }
            }
            Ok(())
        });
    }
    while let Some(outcome) = receivers.join_next().await {
        outcome??;
    }
    Ok(())
}

/// Receives and completes what a session has, in the order of its events.
async fn empty(session: BrokerSession, moments: &Moments) -> Result<()> {
    let mut last = 0;
    loop {
        let mode = ReceiveMode::PeekLock;
        let received = session.receive_with(mode, MESSAGES_MAX, Duration::ZERO).await?;
        if received.is_empty() {
            session.close().await?;
            return Ok(());
        }
        for message in &received {
            let message = &message.delivery.message;
            moments.receive(event_number(message));
            let sequence = key_and_sequence(message).map_or(0, |it| it.1);
            if sequence <= last {
                return Err(
                    format!("event {} came after number {last} of its key", message.id).into()
                );
            }
            last = sequence;
        }
        let tokens: Vec<&str> = received.iter().map(|it| it.delivery.lock_token.as_str()).collect();
        session.settle_each(&tokens, &Settlement::Complete).await?;
    }
}
