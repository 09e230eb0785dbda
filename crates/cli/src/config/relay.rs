//! The relay from the data container to the broker, as the file has it.

use std::time::Duration;

use millstream_backend_nats::NatsTopic;
use millstream_broker::{TopicSettings, check_entity_name};
use serde::{Deserialize, Serialize};

use crate::config::subscriptions::{SubscriptionConfig, names_or_tables};
use crate::failure::{Failure, Result};

/// How long messages live in the subscription that is made when none is named: two weeks.
const DEFAULT_TTL_SECONDS: u64 = 14 * 24 * 3600;

/// How events reach the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RelayConfig {
    /// The topic events are sent to.
    pub(crate) topic: String,
    /// The subscriptions that are there from the first start on: names, or tables with settings.
    /// Without any, events reach nobody.
    #[serde(deserialize_with = "names_or_tables")]
    pub(crate) subscriptions: Vec<SubscriptionConfig>,
    /// How long the topic knows the ids of messages and drops those that come again; 0 is never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duplicate_window_seconds: Option<u64>,
    /// The `source` of CloudEvents.
    pub(crate) source: String,
    /// Bodies without CloudEvents attributes.
    pub(crate) raw: bool,
    /// How many leases each range gets.
    pub(crate) leases_per_range: u32,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            topic: "events".to_owned(),
            // Perhaps nobody reads it, and it must not fill for ever.
            subscriptions: vec![SubscriptionConfig {
                ttl_seconds: Some(DEFAULT_TTL_SECONDS),
                ..SubscriptionConfig::named("default")
            }],
            duplicate_window_seconds: None,
            source: "millstream".to_owned(),
            raw: false,
            leases_per_range: 4,
        }
    }
}

impl RelayConfig {
    /// What the topic has where what is written holds.
    pub(crate) fn topic_over(&self, current: &TopicSettings) -> TopicSettings {
        let mut settings = current.clone();
        if let Some(seconds) = self.duplicate_window_seconds {
            settings.duplicate_window = (0 < seconds).then(|| Duration::from_secs(seconds));
        }
        settings
    }

    /// The same with everything that was left out, for messages in the store.
    pub(super) fn filled(&self) -> Result<Self> {
        let window = self.topic_over(&TopicSettings::default()).duplicate_window;
        let subscriptions = self.subscriptions.iter().map(SubscriptionConfig::filled);
        Ok(Self {
            subscriptions: subscriptions.collect::<Result<_>>()?,
            duplicate_window_seconds: Some(window.map_or(0, |it| it.as_secs())),
            ..self.clone()
        })
    }

    /// Refuses what the broker would, which is on NATS or in the store.
    pub(super) fn check(&self, is_on_nats: bool) -> Result<()> {
        let topic = &self.topic;
        if topic.is_empty() {
            return Err(Failure::usage("relay.topic is empty: name the topic events go to"));
        }
        if !(1..=64).contains(&self.leases_per_range) {
            return Err(Failure::usage("relay.leases_per_range must be between 1 and 64"));
        }
        self.check_names(is_on_nats)?;
        if !is_on_nats {
            let settings = self.topic_over(&TopicSettings::default());
            check_entity_name(topic)
                .and_then(|()| settings.check())
                .map_err(|error| Failure::usage(format!("the topic: {}", error.report())))?;
            return self.subscriptions.iter().try_for_each(SubscriptionConfig::check);
        }
        if self.duplicate_window_seconds == Some(0) {
            return Err(Failure::usage(
                "relay.duplicate_window_seconds is 0, but topics on NATS always detect \
                 duplicates: write at least 1, or leave it out",
            ));
        }
        let names = self.subscriptions.iter().map(|it| &it.name);
        for name in names.chain([topic]) {
            NatsTopic::check_name(name)
                .map_err(|error| Failure::usage(format!("relay: {}", error.report())))?;
        }
        if self.subscriptions == Self::default().subscriptions {
            return Ok(());
        }
        self.subscriptions.iter().try_for_each(SubscriptionConfig::check_on_nats)
    }

    /// Each subscription has a name of its own; in the store upper and lower case are the same.
    fn check_names(&self, is_on_nats: bool) -> Result<()> {
        let key = |name: &str| if is_on_nats { name.to_owned() } else { name.to_ascii_lowercase() };
        let mut names: Vec<String> = self.subscriptions.iter().map(|it| key(&it.name)).collect();
        names.sort_unstable();
        match names.windows(2).find(|it| it[0] == it[1]) {
            Some(twice) => {
                let name = &twice[0];
                let sentence = format!("two subscriptions are called {name:?}: rename one");
                Err(Failure::usage(sentence))
            }
            None => Ok(()),
        }
    }
}
