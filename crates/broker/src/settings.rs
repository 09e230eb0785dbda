use std::time::Duration;

use millstream_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::filter::Filter;
use crate::path::check_subscription_name;

/// Longest lock, as in Service Bus.
pub const LOCK_DURATION_MAX: Duration = Duration::from_secs(5 * 60);
/// Longest duplicate detection window, as in Service Bus.
pub const DUPLICATE_WINDOW_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Most deliveries that can be allowed, as in Service Bus.
pub const DELIVERY_COUNT_LIMIT: u32 = 2000;
/// Most subscriptions of a topic.
pub const SUBSCRIPTIONS_MAX: usize = 1000;
/// Most rules of a subscription.
pub const RULES_MAX: usize = 100;

/// How messages are given out, by a queue or a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReceiveSettings {
    /// Messages have a session and are received by session. Fixed for life. Default: no.
    pub requires_session: bool,
    /// How long a message or session stays with its receiver unless it renews. Default: 60 s.
    pub lock_duration: Duration,
    /// After that many failed deliveries a message goes to the dead letters. Default: 10.
    pub delivery_count_max: u32,
    /// Longest time a message is worth delivering, whatever it says itself. Default: for ever.
    pub default_time_to_live: Option<Duration>,
    /// A message whose time is over goes to the dead letters, not away. Default: away.
    pub dead_letter_on_expiration: bool,
}

impl Default for ReceiveSettings {
    fn default() -> Self {
        Self {
            requires_session: false,
            lock_duration: Duration::from_secs(60),
            delivery_count_max: 10,
            default_time_to_live: None,
            dead_letter_on_expiration: false,
        }
    }
}

impl ReceiveSettings {
    /// The defaults, with sessions.
    #[must_use]
    pub fn with_sessions() -> Self {
        Self { requires_session: true, ..Self::default() }
    }

    fn check(&self) -> Result<()> {
        let reason = if self.lock_duration.is_zero() || LOCK_DURATION_MAX < self.lock_duration {
            "the lock duration must be more than nothing and at most 5 minutes"
        } else if self.delivery_count_max < 1 || DELIVERY_COUNT_LIMIT < self.delivery_count_max {
            "the maximum delivery count must be between 1 and 2000"
        } else if self.default_time_to_live.is_some_and(|it| it.is_zero()) {
            "the default time to live must be more than nothing"
        } else {
            return Ok(());
        };
        Err(refused(reason))
    }
}

/// What the owner of a queue chooses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueSettings {
    /// How messages are given out.
    pub receive: ReceiveSettings,
    /// A message whose id came within this time before is accepted and dropped; none switches that
    /// off. Default: 10 minutes.
    pub duplicate_window: Option<Duration>,
}

impl Default for QueueSettings {
    fn default() -> Self {
        let duplicate_window = TopicSettings::default().duplicate_window;
        Self { receive: ReceiveSettings::default(), duplicate_window }
    }
}

impl QueueSettings {
    /// The defaults, with sessions.
    #[must_use]
    pub fn with_sessions() -> Self {
        Self { receive: ReceiveSettings::with_sessions(), ..Self::default() }
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_window(self.duplicate_window)?;
        self.receive.check()
    }
}

/// What the owner of a topic chooses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicSettings {
    /// Longest time a message is worth delivering, whatever it says itself. Default: for ever.
    pub default_time_to_live: Option<Duration>,
    /// A message whose id came within this time before is accepted and dropped; none switches that
    /// off. Default: 10 minutes.
    pub duplicate_window: Option<Duration>,
}

impl Default for TopicSettings {
    fn default() -> Self {
        let duplicate_window = Some(Duration::from_secs(600));
        Self { default_time_to_live: None, duplicate_window }
    }
}

impl TopicSettings {
    /// Checks what a broker refuses when a topic is made.
    ///
    /// # Errors
    ///
    /// `Invalid` with what is out of bounds.
    pub fn check(&self) -> Result<()> {
        if self.default_time_to_live.is_some_and(|it| it.is_zero()) {
            return Err(refused("the default time to live must be more than nothing"));
        }
        check_window(self.duplicate_window)
    }
}

/// What the owner of a subscription chooses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionSettings {
    /// How messages are given out.
    pub receive: ReceiveSettings,
    /// The subscription gets a message once if any of these matches. Without a rule it gets none.
    /// Default: one rule `$Default` that matches all.
    pub rules: Vec<Rule>,
}

impl Default for SubscriptionSettings {
    fn default() -> Self {
        let rule = Rule { name: Rule::DEFAULT_NAME.to_owned(), filter: Filter::True };
        Self { receive: ReceiveSettings::default(), rules: vec![rule] }
    }
}

impl SubscriptionSettings {
    /// The defaults, with sessions.
    #[must_use]
    pub fn with_sessions() -> Self {
        Self { receive: ReceiveSettings::with_sessions(), ..Self::default() }
    }

    /// Checks what a broker refuses when a subscription is made.
    ///
    /// # Errors
    ///
    /// `Invalid` with what is out of bounds.
    pub fn check(&self) -> Result<()> {
        if RULES_MAX < self.rules.len() {
            return Err(refused("a subscription has at most 100 rules"));
        }
        for (index, rule) in self.rules.iter().enumerate() {
            check_subscription_name(&rule.name)?;
            let is_same = |it: &Rule| it.name.eq_ignore_ascii_case(&rule.name);
            if self.rules[..index].iter().any(is_same) {
                return Err(refused("two of its rules have the same name"));
            }
        }
        for rule in &self.rules {
            rule.filter.check()?;
        }
        self.receive.check()
    }
}

/// A filter with a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// The name, unique within the subscription; upper and lower case are the same.
    pub name: String,
    /// Which messages the subscription gets.
    pub filter: Filter,
}

impl Rule {
    /// The name of the rule a subscription has unless others are given.
    pub const DEFAULT_NAME: &'static str = "$Default";

    /// A rule of this name.
    pub fn new(name: impl Into<String>, filter: Filter) -> Self {
        Self { name: name.into(), filter }
    }
}

fn check_window(window: Option<Duration>) -> Result<()> {
    if window.is_some_and(|it| it.is_zero() || DUPLICATE_WINDOW_MAX < it) {
        return Err(refused(
            "the duplicate detection window must be more than nothing and at most 7 days",
        ));
    }
    Ok(())
}

fn refused(reason: &'static str) -> Error {
    Error::invalid("use the settings of the entity", reason)
}
