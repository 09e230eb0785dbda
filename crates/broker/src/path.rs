use std::fmt;

use millstream_core::{Error, Result};

/// Longest name of a queue or topic, as in Service Bus.
pub const ENTITY_NAME_BYTES_MAX: usize = 260;
/// Longest name of a subscription or rule, as in Service Bus.
pub const SUBSCRIPTION_NAME_BYTES_MAX: usize = 50;

/// Where messages are received from: a queue, a subscription, or the dead letters of one.
///
/// Written `<queue>` or `<topic>/Subscriptions/<subscription>`, either of them followed by
/// `/$DeadLetterQueue`. Upper and lower case are the same.
///
/// ```
/// use millstream_broker::EntityPath;
///
/// let path: EntityPath = "Orders/Subscriptions/Audit/$deadletterqueue".parse()?;
/// assert_eq!(path.entity(), "orders");
/// assert_eq!(path.subscription(), Some("audit"));
/// assert!(path.is_dead_letters());
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntityPath {
    entity: String,
    subscription: Option<String>,
    dead_letters: bool,
}

impl EntityPath {
    /// The queue or topic, in lower case.
    #[must_use]
    pub fn entity(&self) -> &str {
        &self.entity
    }

    /// The subscription, in lower case.
    #[must_use]
    pub fn subscription(&self) -> Option<&str> {
        self.subscription.as_deref()
    }

    /// Whether the dead letters are meant.
    #[must_use]
    pub fn is_dead_letters(&self) -> bool {
        self.dead_letters
    }
}

impl std::str::FromStr for EntityPath {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let lower = text.trim_start_matches('/').to_ascii_lowercase();
        let (rest, dead_letters) = match lower.strip_suffix("/$deadletterqueue") {
            Some(rest) => (rest, true),
            None => (lower.as_str(), false),
        };
        let (entity, subscription) = match rest.rsplit_once("/subscriptions/") {
            Some((entity, subscription)) => (entity, Some(subscription)),
            None => (rest, None),
        };
        check_entity_name(entity)?;
        if let Some(name) = subscription {
            check_subscription_name(name)?;
        }
        let subscription = subscription.map(str::to_owned);
        Ok(Self { entity: entity.to_owned(), subscription, dead_letters })
    }
}

impl fmt::Display for EntityPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.entity)?;
        if let Some(subscription) = &self.subscription {
            write!(f, "/Subscriptions/{subscription}")?;
        }
        if self.dead_letters {
            f.write_str("/$DeadLetterQueue")?;
        }
        Ok(())
    }
}

/// Checks the name of a queue or topic.
///
/// # Errors
///
/// `Invalid` if it is too long or has other characters than those allowed.
pub fn check_entity_name(name: &str) -> Result<()> {
    let parts_are_named = name.split('/').all(|part| {
        !part.is_empty()
            && !part.eq_ignore_ascii_case("subscriptions")
            && part.bytes().all(is_name_byte)
    });
    let reason = if ENTITY_NAME_BYTES_MAX < name.len() {
        "it is longer than 260 bytes"
    } else if !parts_are_named {
        "it must consist of letters, digits and . - _ ~, with single / between parts none of which \
         is \"subscriptions\""
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!("use the entity name {:?}", shortened(name)), reason))
}

/// Checks the name of a subscription or rule. A rule may begin with `$`, as `$Default` does.
///
/// # Errors
///
/// `Invalid` if it is too long or has other characters than those allowed.
pub fn check_subscription_name(name: &str) -> Result<()> {
    let plain = name.strip_prefix('$').unwrap_or(name);
    let reason = if SUBSCRIPTION_NAME_BYTES_MAX < name.len() {
        "it is longer than 50 bytes"
    } else if plain.is_empty() || !plain.bytes().all(is_name_byte) {
        "it must consist of letters, digits and . - _ ~"
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!("use the name {:?}", shortened(name)), reason))
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'~')
}

fn shortened(name: &str) -> String {
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = text.parse::<EntityPath>();
        assert_eq!(found.map_or_else(|error| error.to_string(), |it| it.to_string()), expected);
    }

    #[test]
    fn a_path_names_a_queue_a_subscription_or_their_dead_letters() {
        check("Orders", "orders");
        check("/team/orders", "team/orders");
        check("t/SUBSCRIPTIONS/S", "t/Subscriptions/s");
        check("q/$DeadLetterQueue", "q/$DeadLetterQueue");
        check("a/b/subscriptions/s/$deadletterqueue", "a/b/Subscriptions/s/$DeadLetterQueue");
    }

    #[test]
    fn other_characters_are_refused() {
        check("", "could not use the entity name \"\"");
        check("a//b", "could not use the entity name \"a//b\"");
        check("a b", "could not use the entity name \"a b\"");
        check("$management", "could not use the entity name \"$management\"");
        check("t/subscriptions/", "could not use the name \"\"");
        check("t/subscriptions/a/b", "could not use the name \"a/b\"");
    }
}
