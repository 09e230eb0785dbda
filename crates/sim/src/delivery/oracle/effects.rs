use serde::Deserialize;

use crate::delivery::oracle::{Oracle, State};
use crate::log::log;
use crate::watch::Commit;

/// The type of the documents that are effects.
pub(crate) const EFFECT: &str = "effect";

/// A document that a consumer writes.
#[derive(Deserialize)]
struct Written {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "messageId", default)]
    message_id: String,
}

impl Oracle {
    /// A consumer has committed something.
    pub(crate) fn effect(&self, subscription: usize, commit: &Commit) -> Result<(), String> {
        let mut state = self.lock();
        for item in commit.writes.iter().filter_map(|it| it.after.as_ref()) {
            let written: Written = serde_json::from_slice(&item.body)
                .map_err(|error| format!("the document {} is wrong: {error}", item.id))?;
            if written.kind == EFFECT {
                let deliveries_max = self.rules.deliveries_max;
                state.had_effect(subscription, &written.message_id, deliveries_max)?;
            }
        }
        Ok(())
    }

    /// Whether every event had its effect everywhere.
    pub(crate) fn complete(&self) -> Result<(), String> {
        let state = self.lock();
        for (number, subscription) in state.subscriptions.iter().enumerate() {
            let missing = state.events.iter().find(|(id, _)| !subscription.effects.contains(*id));
            if let Some((id, event)) = missing {
                let (key, sequence) = (&event.key, event.sequence);
                let reached = state.messages.values().any(|it| it.event == *id);
                let place = if reached { "of the broker" } else { "that did not reach the broker" };
                return Err(format!(
                    "event {id} {place}, number {sequence} of {key}, had no effect in \
                     subscription {number}",
                ));
            }
        }
        Ok(())
    }
}

impl State {
    pub(super) fn had_effect(
        &mut self,
        subscription: usize,
        id: &str,
        deliveries_max: u32,
    ) -> Result<(), String> {
        self.counts.effects += 1;
        log(|| format!("effect of {id} in {subscription}"));
        let Some(event) = self.events.get(id) else {
            return Err(format!("something that is no event had an effect: {id:?}"));
        };
        let done = &self.subscriptions[subscription];
        let before = usize::try_from(event.sequence).expect("it is a place in a list") - 1;
        for earlier in &self.keys[&event.key][..before] {
            let may_be_late = done.effects.contains(earlier)
                || self.events[earlier].is_scheduled()
                || done.put_aside.contains(earlier)
                || done.may_be_dead(earlier, deliveries_max);
            if !may_be_late {
                let (key, sequence) = (&event.key, event.sequence);
                return Err(format!(
                    "number {sequence} of {key} had its effect before event {earlier}"
                ));
            }
        }
        if !self.subscriptions[subscription].effects.insert(id.to_owned()) {
            return Err(format!("event {id} had its effect twice"));
        }
        Ok(())
    }
}
