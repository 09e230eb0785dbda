//! Keeps relays running and knows how they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millstream_core::{Container, Publisher};
use millstream_processor::{
    Concurrency, Metrics, Notification, Notifications, ProcessorOptions, StartPosition,
};
use millstream_relay::{MessageForm, Relay, RelayMonitor, RelayOptions};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::figures::Figures;
use crate::system::System;

/// How long a relay that ended rests before it is started again.
const PAUSE: Duration = Duration::from_secs(3);
/// How long it takes to be believed that a relay of this process that ended is gone; on NATS, how
/// soon others go on after the death of a process.
const LEASE_DURATION: Duration = Duration::from_secs(5);
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// Keys of a lease whose events are posted beside each other.
const WEBHOOK_KEYS: usize = 16;
/// How often an endpoint is tried that fails at an event, and how long apart: three minutes.
const WEBHOOK_ATTEMPTS: u32 = 10;
const WEBHOOK_PAUSE_FIRST: Duration = Duration::from_millis(500);
const WEBHOOK_PAUSE_MAX: Duration = Duration::from_secs(60);
/// The name of the instance in a directory; there is one. On a network each has a name of its own.
const INSTANCE: &str = "up";

/// A relay that is to run.
#[derive(Clone)]
pub(crate) struct RelayPlan {
    pub(crate) name: String,
    pub(crate) data: Container,
    pub(crate) publisher: Arc<dyn Publisher>,
    pub(crate) options: RelayOptions,
}

/// How the relays are.
#[derive(Debug, Default)]
pub(crate) struct Board {
    relays: Mutex<BTreeMap<String, Entry>>,
}

/// How a relay is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RelayView {
    pub(crate) name: String,
    /// Messages sent since the process started.
    pub(crate) published: u64,
    /// Why it does not run.
    pub(crate) trouble: Option<String>,
}

#[derive(Debug, Default)]
struct Entry {
    monitor: Option<RelayMonitor>,
    /// By instances of it that ended.
    published_before: u64,
    trouble: Option<String>,
}

impl Board {
    /// Every relay by name.
    pub(crate) fn views(&self) -> Vec<RelayView> {
        let relays = self.lock();
        relays.iter().map(|(name, entry)| entry.view(name)).collect()
    }

    fn note(&self, name: &str, change: impl FnOnce(&mut Entry)) {
        change(self.lock().entry(name.to_owned()).or_default());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.relays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn view(&self, name: &str) -> RelayView {
        RelayView {
            name: name.to_owned(),
            published: self.published_before
                + self.monitor.as_ref().map_or(0, RelayMonitor::messages_published),
            trouble: self.trouble.clone(),
        }
    }

    fn end(&mut self, trouble: String) {
        let monitor = self.monitor.take();
        self.published_before += monitor.map_or(0, |it| it.messages_published());
        self.trouble = Some(trouble);
    }
}

/// The settings of a relay as the configuration has them.
pub(crate) fn options(config: &Config, source: &str) -> RelayOptions {
    let form = if config.relay.raw { MessageForm::Raw } else { MessageForm::CloudEvents };
    RelayOptions::default().processor(processor_options(config)).form(form).source(source)
}

fn processor_options(config: &Config) -> ProcessorOptions {
    ProcessorOptions::default()
        .start(StartPosition::Beginning)
        .batch_items_max(500)
        .in_flight_items_max(4_000)
        .checkpoint(RelayOptions::CHECKPOINT)
        .lease_duration(LEASE_DURATION)
        .round_interval(ROUND_INTERVAL)
        .leases_per_range(config.relay.leases_per_range)
}

/// The same for a webhook. An endpoint that fails at an event may be a bad version of somebody's
/// service, so it gets minutes before the key is parked; events of other keys go on meanwhile.
pub(crate) fn webhook_options(config: &Config, source: &str) -> RelayOptions {
    let processor = processor_options(config)
        .concurrency(Concurrency::Keyed(WEBHOOK_KEYS))
        .attempts_max(WEBHOOK_ATTEMPTS)
        .backoff(WEBHOOK_PAUSE_FIRST, WEBHOOK_PAUSE_MAX);
    options(config, source).processor(processor)
}

/// Runs a relay until `shutdown`; one that fails is started again after a pause.
pub(crate) async fn keep_running(
    system: System,
    plan: RelayPlan,
    board: Arc<Board>,
    figures: Arc<Figures>,
    shutdown: CancellationToken,
) {
    if !holds_events(&plan.data) {
        tracing::warn!(
            relay = plan.name,
            container = %plan.data.info.name,
            "the store does not hold events until they are sent: let them live longer than the \
             longest outage of the destination"
        );
    }
    board.note(&plan.name, |it| it.trouble = Some("it has not started yet".to_owned()));
    let metrics: Arc<dyn Metrics> = figures;
    // Only one process can have a directory open, so whoever held the leases when this one began is
    // gone. A relay of this process that failed may not have come to its end everywhere. Stores on
    // a network have others.
    let (instance, mut is_first) = match &system.store.directory {
        Some(_) => (INSTANCE.to_owned(), true),
        None => (format!("{INSTANCE}-{}", system.ids.next_id()), false),
    };
    while !shutdown.is_cancelled() {
        let mut relay = Relay::new(&plan.data, &system.leases, &plan.name)
            .options(plan.options.clone())
            .instance(instance.as_str())
            .clock(Arc::clone(&system.clock))
            .ids(Arc::clone(&system.ids))
            .metrics(Arc::clone(&metrics))
            .spawn_with(|work| drop(tokio::spawn(work)));
        if let Some(observer) = system.traces.relay(&plan.name) {
            relay = relay.observer(observer);
        }
        if std::mem::take(&mut is_first) {
            relay = relay.predecessor_is_dead();
        }
        let outcome = match relay.start(Arc::clone(&plan.publisher)).await {
            Ok(mut started) => {
                tokio::spawn(log(plan.name.clone(), started.notifications()));
                let monitor = started.monitor();
                board.note(&plan.name, |it| {
                    it.monitor = Some(monitor);
                    it.trouble = None;
                });
                started.run(shutdown.clone()).await
            }
            Err(error) => Err(error),
        };
        let Err(error) = outcome else { continue };
        let report = error.report();
        tracing::error!(relay = plan.name, error = report, "relay ended; it is started again");
        board.note(&plan.name, |it| it.end(report));
        tokio::select! {
            biased;
            () = shutdown.cancelled() => (),
            () = system.clock.sleep(PAUSE) => (),
        }
    }
}

/// Whether events that were not sent stay although their time to live is over.
fn holds_events(data: &Container) -> bool {
    data.guards.is_some()
}

/// Tells of what an operator should know.
async fn log(relay: String, mut notifications: Notifications) {
    while let Some(notification) = notifications.next().await {
        if let Notification::Parked { partition_key, id, error, .. } = &notification {
            tracing::error!(relay, partition_key, id, error, "event parked");
        } else if let Notification::BreakerOpened { error } = &notification {
            tracing::warn!(relay, error, "the destination is down; events wait");
        } else if let Notification::HandlerFailed { attempt, error, .. } = &notification {
            tracing::warn!(relay, attempt, error, "could not send events; they are sent again");
        } else if notification == Notification::BreakerClosed {
            tracing::warn!(relay, "the destination is back");
        } else {
            tracing::info!(relay, ?notification, "relay");
        }
    }
}

#[cfg(test)]
mod tests {
    use millstream_core::{
        ContainerName, ContainerSettings, Containers, PartitionKeyDefinition, SystemClock, memory,
    };

    use super::*;

    #[tokio::test]
    async fn a_store_without_guards_holds_no_events() {
        let store = memory::Memory::new(Arc::new(SystemClock::default()));
        let name = ContainerName::new("app", "data").unwrap();
        store.create_database("app").await.unwrap();
        let key = PartitionKeyDefinition::hash("/partitionKey").unwrap();
        store.create(&name, ContainerSettings::new(key)).await.unwrap();
        let mut data = store.open(&name).await.unwrap();
        assert!(holds_events(&data));
        data.guards = None;
        assert!(!holds_events(&data));
    }
}
