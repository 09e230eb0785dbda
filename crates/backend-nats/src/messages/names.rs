//! What streams and subjects are called.

use millstream_core::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Longest name of a topic or subscription, as in Service Bus.
pub(crate) const NAME_BYTES_MAX: usize = 50;

/// The names that belong to a topic.
#[derive(Clone, Debug)]
pub(crate) struct TopicNames {
    /// Its stream.
    pub(crate) stream: String,
    /// The stream of its subscriptions.
    pub(crate) subscriptions: String,
    subject: String,
    subscription: String,
}

/// The subjects of a subscription.
#[derive(Clone, Debug)]
pub(crate) struct SubscriptionNames {
    prefix: String,
}

impl TopicNames {
    /// The names of `topic` under `namespace`, which keeps systems on one account apart.
    pub(crate) fn new(namespace: &str, topic: &str) -> Result<Self> {
        let (space, name) = (checked("namespace", namespace)?, checked("topic", topic)?);
        Ok(Self {
            stream: format!("{space}_topic_{name}"),
            subscriptions: format!("{space}_subscriptions_{name}"),
            subject: format!("{space}.topic.{name}"),
            subscription: format!("{space}.subscription.{name}"),
        })
    }

    /// What the names of the streams of all topics begin with.
    pub(crate) fn prefix(namespace: &str) -> String {
        format!("{namespace}_topic_")
    }

    /// Everything that is sent to the topic.
    pub(crate) fn messages(&self) -> String {
        format!("{}.*", self.subject)
    }

    /// What is sent to one lane.
    pub(crate) fn lane(&self, lane: u32) -> String {
        format!("{}.{lane}", self.subject)
    }

    /// Everything that belongs to subscriptions.
    pub(crate) fn of_subscriptions(&self) -> String {
        format!("{}.>", self.subscription)
    }

    /// Matches the description of every subscription.
    pub(crate) fn descriptions(&self) -> String {
        format!("{}.*.about", self.subscription)
    }

    /// The subjects of a subscription.
    pub(crate) fn subscription(&self, name: &str) -> Result<SubscriptionNames> {
        let name = checked("subscription", name)?;
        Ok(SubscriptionNames { prefix: format!("{}.{name}", self.subscription) })
    }

    /// The subjects of the subscription with this description.
    pub(crate) fn described(description: &str) -> Option<SubscriptionNames> {
        let prefix = description.strip_suffix(".about")?.to_owned();
        Some(SubscriptionNames { prefix })
    }
}

impl SubscriptionNames {
    /// The description, which is there as long as the subscription.
    pub(crate) fn about(&self) -> String {
        format!("{}.about", self.prefix)
    }

    /// The record of a lane.
    pub(crate) fn lane(&self, lane: u32) -> String {
        format!("{}.lane.{lane}", self.prefix)
    }

    /// The sign of life of a process; without one, of all of them.
    pub(crate) fn member(&self, id: &str) -> String {
        format!("{}.member.{id}", self.prefix)
    }

    /// A message that went aside.
    pub(crate) fn aside(&self, kind: &str, number: &str) -> String {
        format!("{}.{kind}.{number}", self.prefix)
    }

    /// All of it.
    pub(crate) fn all(&self) -> String {
        format!("{}.>", self.prefix)
    }
}

/// The lane of a session: the same in every version, because messages that wait must not change
/// lanes.
pub(crate) fn lane_of(session: &str, lanes: u32) -> u32 {
    let place = xxh3_64(session.as_bytes()) % u64::from(lanes.max(1));
    u32::try_from(place).unwrap_or_default()
}

fn checked(what: &str, name: &str) -> Result<String> {
    let attempted = || format!("use the {what} {name:?}");
    if name.is_empty() {
        return Err(Error::invalid(attempted(), "it has no name"));
    }
    if NAME_BYTES_MAX < name.len() {
        return Err(Error::invalid(attempted(), "its name is longer than 50 bytes"));
    }
    Ok(token(name))
}

/// A name as one token of a subject: letters, digits, `-` and `_` as they are, other bytes as
/// `=` and two hexadecimal digits.
fn token(name: &str) -> String {
    let mut token = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => token.push(char::from(byte)),
            other => token.push_str(&format!("={other:02X}")),
        }
    }
    token
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: &str) {
        assert_eq!(TopicNames::new("m", name).unwrap().stream, format!("m_topic_{expected}"));
    }

    #[test]
    fn any_name_becomes_one_token() {
        check("orders", "orders");
        check("a.b *>", "a=2Eb=20=2A=3E");
        check("=2E", "=3D2E");
        check("\u{e9}", "=C3=A9");
    }

    #[test]
    fn names_have_limits() {
        assert!(TopicNames::new("m", "").is_err());
        assert!(TopicNames::new("m", &"x".repeat(51)).is_err());
        assert!(TopicNames::new("m", "t").unwrap().subscription("").is_err());
    }

    #[test]
    fn a_description_leads_back_to_its_subscription() {
        let names = TopicNames::new("m", "t").unwrap();
        let about = names.subscription("s").unwrap().about();
        assert_eq!(about, "m.subscription.t.s.about");
        let found = TopicNames::described(&about).unwrap();
        assert_eq!(found.lane(3), "m.subscription.t.s.lane.3");
    }

    #[test]
    fn a_session_stays_in_its_lane_for_ever() {
        let lanes = ["", "a", "b", "contact-17"].map(|it| lane_of(it, 1000));
        assert_eq!(lanes, [138, 719, 615, 591], "stored messages would change lanes");
    }

    #[test]
    fn sessions_spread_over_the_lanes() {
        let mut sessions = [0; 16];
        for number in 0..1600 {
            let lane = lane_of(&format!("contact-{number}"), 16);
            sessions[usize::try_from(lane).unwrap()] += 1;
        }
        assert!(sessions.iter().all(|it| (60..140).contains(it)), "{sessions:?}");
    }
}
