//! The subscriptions of the relay's topic as the file has them: a name, or a table with more.

use std::fmt;
use std::time::Duration;

use millstream_broker::{Filter, Rule, SubscriptionSettings, check_subscription_name};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::failure::{Failure, Result};

/// A subscription. What is written holds for one that exists, too; what is left out has its
/// default where the subscription is made, and stays as it is otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubscriptionConfig {
    pub(crate) name: String,
    /// Which messages it gets, in SQL; all of them if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) filter: Option<String>,
    /// Whether messages are received by session, in order. Fixed for life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sessions: Option<bool>,
    /// How long a message or session stays with its receiver unless it renews.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lock_seconds: Option<u64>,
    /// After so many failed deliveries a message goes to the dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deliveries_max: Option<u32>,
    /// How long messages live; 0 is for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_seconds: Option<u64>,
    /// Whether messages whose time is over go to the dead letters instead of away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_letter_expired: Option<bool>,
}

impl SubscriptionConfig {
    /// A subscription of which only the name is known.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The settings of a new subscription.
    pub(crate) fn settings(&self) -> Result<SubscriptionSettings> {
        self.over(&SubscriptionSettings::with_sessions())
    }

    /// What becomes of `current` settings where what is written holds.
    pub(crate) fn over(&self, current: &SubscriptionSettings) -> Result<SubscriptionSettings> {
        let mut settings = current.clone();
        if let Some(text) = &self.filter {
            let filter = Filter::sql(text).map_err(|error| self.refused(&error))?;
            settings.rules = vec![Rule::new(Rule::DEFAULT_NAME, filter)];
        }
        let receive = &mut settings.receive;
        receive.requires_session = self.sessions.unwrap_or(receive.requires_session);
        if let Some(seconds) = self.lock_seconds {
            receive.lock_duration = Duration::from_secs(seconds);
        }
        if let Some(deliveries) = self.deliveries_max {
            receive.delivery_count_max = deliveries;
        }
        if let Some(seconds) = self.ttl_seconds {
            receive.default_time_to_live = (0 < seconds).then(|| Duration::from_secs(seconds));
        }
        if let Some(goes) = self.dead_letter_expired {
            receive.dead_letter_on_expiration = goes;
        }
        Ok(settings)
    }

    /// The same with everything that was left out, as a new subscription has it.
    pub(crate) fn filled(&self) -> Result<Self> {
        let receive = self.settings()?.receive;
        Ok(Self {
            name: self.name.clone(),
            filter: self.filter.clone(),
            sessions: Some(receive.requires_session),
            lock_seconds: Some(receive.lock_duration.as_secs()),
            deliveries_max: Some(receive.delivery_count_max),
            ttl_seconds: Some(receive.default_time_to_live.map_or(0, |it| it.as_secs())),
            dead_letter_expired: Some(receive.dead_letter_on_expiration),
        })
    }

    /// Refuses what a broker in the store would.
    pub(super) fn check(&self) -> Result<()> {
        check_subscription_name(&self.name).map_err(|error| self.refused(&error))?;
        self.settings()?.check().map_err(|error| self.refused(&error))
    }

    /// Refuses what subscriptions on NATS do not have.
    pub(super) fn check_on_nats(&self) -> Result<()> {
        let written = [
            ("filter", self.filter.is_some()),
            ("sessions = false", self.sessions == Some(false)),
            ("lock_seconds", self.lock_seconds.is_some()),
            ("deliveries_max", self.deliveries_max.is_some()),
            ("ttl_seconds", self.ttl_seconds.is_some()),
            ("dead_letter_expired", self.dead_letter_expired.is_some()),
        ];
        let written: Vec<&str> = written.iter().filter(|it| it.1).map(|it| it.0).collect();
        if written.is_empty() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "the subscription {:?} has {}, which topics on NATS do not know: leave it out",
            self.name,
            written.join(" and ")
        )))
    }

    fn refused(&self, error: &millstream_core::Error) -> Failure {
        Failure::usage(format!("the subscription {:?}: {}", self.name, error.report()))
    }
}

/// The names of the settings that differ, as the file calls them.
pub(crate) fn differences(one: &SubscriptionSettings, other: &SubscriptionSettings) -> String {
    let (a, b) = (&one.receive, &other.receive);
    let differs = [
        ("filter", one.rules != other.rules),
        ("sessions", a.requires_session != b.requires_session),
        ("lock_seconds", a.lock_duration != b.lock_duration),
        ("deliveries_max", a.delivery_count_max != b.delivery_count_max),
        ("ttl_seconds", a.default_time_to_live != b.default_time_to_live),
        ("dead_letter_expired", a.dead_letter_on_expiration != b.dead_letter_on_expiration),
    ];
    let names: Vec<&str> = differs.iter().filter(|it| it.1).map(|it| it.0).collect();
    names.join(", ")
}

/// Reads names and tables.
pub(super) fn names_or_tables<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<SubscriptionConfig>, D::Error> {
    let read: Vec<NameOrTable> = Deserialize::deserialize(deserializer)?;
    Ok(read.into_iter().map(|NameOrTable(it)| it).collect())
}

/// One of them. Not an untagged enum, which could not say which field of a table is wrong.
struct NameOrTable(SubscriptionConfig);

impl<'de> Deserialize<'de> for NameOrTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = SubscriptionConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a subscription, or a table with a name")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(SubscriptionConfig::named(name))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Deserialize::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_any(Reader).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use millstream_broker::ReceiveSettings;

    use super::*;

    fn written(table: &str) -> SubscriptionConfig {
        toml::from_str(table).unwrap()
    }

    #[test]
    fn a_new_subscription_has_sessions_unless_something_else_is_written() {
        let settings = SubscriptionConfig::named("a").settings().unwrap();
        assert_eq!(settings.receive.default_time_to_live, None);
        assert!(settings.receive.requires_session);
        let table = "name = \"a\"\nfilter = \"sys.Label = 'Paid'\"\nsessions = false\n\
                     lock_seconds = 30\ndeliveries_max = 3\nttl_seconds = 0\n\
                     dead_letter_expired = true";
        let settings = written(table).settings().unwrap();
        let receive = ReceiveSettings {
            requires_session: false,
            lock_duration: Duration::from_secs(30),
            delivery_count_max: 3,
            default_time_to_live: None,
            dead_letter_on_expiration: true,
        };
        assert_eq!(settings.receive, receive);
        assert_eq!(settings.rules[0].filter, Filter::sql("sys.Label = 'Paid'").unwrap());
    }

    #[test]
    fn what_is_left_out_stays_as_it_is() {
        let current = SubscriptionSettings::with_sessions();
        assert_eq!(SubscriptionConfig::named("a").over(&current).unwrap(), current);
        let changed = written("name = \"a\"\nttl_seconds = 60").over(&current).unwrap();
        assert_eq!(differences(&current, &changed), "ttl_seconds");
        let changed = written("name = \"a\"\nfilter = \"TRUE\"\nsessions = false");
        let changed = changed.over(&current).unwrap();
        assert_eq!(differences(&current, &changed), "filter, sessions");
    }
}
