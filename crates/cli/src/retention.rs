//! How old unsent events are, beside how long they would live if nobody held them.

use std::sync::Arc;
use std::time::Duration;

use millstream_core::TimeToLive;
use tokio_util::sync::CancellationToken;

use crate::admin::{LagRow, lag};
use crate::failure::{Failure, Result};
use crate::system::System;

/// How long events of the outbox live unless it is told otherwise.
const EVENT_TTL: Duration = Duration::from_secs(10 * 24 * 3600);
/// How often it is looked whether somebody should be told.
const INTERVAL: Duration = Duration::from_secs(60);
/// The part of a life, in tenths, after which somebody is told.
const WARNING_TENTHS: u32 = 8;

/// The oldest event that a relay has not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsent {
    pub(crate) relay: String,
    pub(crate) age: Duration,
    pub(crate) time_to_live: Duration,
}

/// The oldest unsent event of each relay that has one with an end. A directory knows the event;
/// elsewhere its age is the lag of the relay and its life that of events in the container.
pub(crate) async fn unsent(system: &System, lags: &[LagRow]) -> Result<Vec<Unsent>> {
    if let Some(store) = system.store.directory.clone() {
        let lags = tokio::task::spawn_blocking(move || store.guard_lags()).await;
        let lags = lags.map_err(|error| Failure::other(error.to_string()))??;
        return Ok(lags
            .into_iter()
            .map(|it| Unsent {
                relay: it.reader,
                age: it.oldest_age,
                time_to_live: it.time_to_live,
            })
            .collect());
    }
    let mut found = Vec::new();
    for lag in lags.iter().filter(|it| 0 < it.commits) {
        let Some(seconds) = lag.seconds else { continue };
        let age = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let time_to_live = life_of_events(system, &lag.container).await?;
        found.push(Unsent { relay: lag.relay.clone(), age, time_to_live });
    }
    Ok(found)
}

/// Warns of events that wait for most of their life, until `shutdown`. A directory does so itself.
pub(crate) async fn watch(system: System, shutdown: CancellationToken) {
    let clock = Arc::clone(&system.clock);
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = clock.sleep(INTERVAL) => (),
        }
        let unsent = match lag(&system).await {
            Ok(lags) => unsent(&system, &lags).await,
            Err(failure) => Err(failure),
        };
        let unsent = unsent.unwrap_or_else(|failure| {
            tracing::warn!(%failure, "could not find out how old unsent events are");
            Vec::new()
        });
        for it in unsent.into_iter().filter(Unsent::is_nearly_over) {
            tracing::warn!(
                relay = it.relay,
                oldest_age_s = it.age.as_secs(),
                time_to_live_s = it.time_to_live.as_secs(),
                "a relay is behind by most of the life of its events"
            );
        }
    }
}

impl Unsent {
    fn is_nearly_over(&self) -> bool {
        self.time_to_live * WARNING_TENTHS / 10 < self.age
    }
}

async fn life_of_events(system: &System, container: &str) -> Result<Duration> {
    let settings = system.container(container).await?.info.settings;
    Ok(match settings.default_ttl {
        Some(TimeToLive::Seconds(seconds)) => Duration::from_secs(seconds.into()),
        Some(TimeToLive::Never) | None => EVENT_TTL,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_is_told_when_four_fifths_of_a_life_are_over() {
        let unsent = |age| Unsent {
            relay: String::new(),
            age: Duration::from_secs(age),
            time_to_live: Duration::from_secs(100),
        };
        assert!(!unsent(80).is_nearly_over());
        assert!(unsent(81).is_nearly_over());
        assert!(unsent(500).is_nearly_over());
    }
}
