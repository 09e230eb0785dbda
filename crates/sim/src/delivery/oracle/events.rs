use millstream_core::{Item, Message, PropertyValue, Timestamp};
use serde::Deserialize;

use crate::delivery::oracle::{Kept, Oracle, State};
use crate::log::log;
use crate::truth::key_text;
use crate::watch::Commit;

/// An event that is committed.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) key: String,
    pub(super) sequence: u64,
    /// When it may be delivered, if not at once.
    pub(super) due: Option<Timestamp>,
}

/// The parts of a stored event that matter here.
#[derive(Deserialize)]
struct StoredEvent {
    #[serde(rename = "deliverAt", default)]
    deliver_at: Option<String>,
    data: Part,
}

/// Which part of which unit of work raised an event.
#[derive(Deserialize)]
struct Part {
    unit: u64,
    part: u64,
}

impl Oracle {
    /// Something was committed to the data container.
    pub(crate) fn committed(&self, commit: &Commit) -> Result<(), String> {
        let mut state = self.lock();
        state.counts.commits += 1;
        let written = || commit.writes.iter().filter_map(|it| it.after.as_ref());
        let events: Vec<&Item> = written().filter(|it| it.sequence.is_some()).collect();
        if events.is_empty() {
            return Err(format!("key {} was changed without an event", commit.partition_key));
        }
        if events.len() == written().count() {
            return Err(format!("key {} has events without their entity", commit.partition_key));
        }
        events.into_iter().try_for_each(|it| state.event_committed(it))
    }

    /// Messages are about to be sent: each must be one that an event has, and look like it.
    pub(crate) fn sending(&self, messages: &[Message]) -> Result<(), String> {
        let state = self.lock();
        messages.iter().try_for_each(|it| state.check_message(it))
    }

    /// A relay that holds events back is about to send messages, at this time by its clock.
    pub(crate) fn sending_when_due(&self, messages: &[Message], now: Timestamp) {
        let state = self.lock();
        let due = |it: &Message| state.events.get(&it.id).and_then(|it| it.due);
        let early = messages.iter().find(|it| due(it).is_some_and(|at| now < at));
        let dated = messages.iter().find(|it| it.scheduled_at.is_some());
        let violation = match (early, dated) {
            (Some(it), _) => Err(format!("event {} was sent early", it.id)),
            (None, Some(it)) => Err(format!("event {} was left to the broker to hold", it.id)),
            (None, None) => Ok(()),
        };
        drop(state);
        self.judge(violation);
    }

    /// The broker has acknowledged messages and says which numbers they have; none for those that
    /// it dropped as duplicates.
    pub(crate) fn sent(&self, broker: u64, ids: &[String], numbers: &[Option<u64>]) {
        let mut state = self.lock();
        state.counts.sends += 1;
        log(|| format!("sent {ids:?} as {numbers:?}"));
        for (id, number) in ids.iter().zip(numbers) {
            match number {
                Some(number) => state.keep(broker, *number, id),
                None => state.counts.duplicates_dropped += 1,
            }
        }
    }

    /// The broker keeps the events of each key in the order they were committed.
    pub(crate) fn kept_in_order(&self) -> Result<(), String> {
        let state = self.lock();
        for (key, ids) in &state.keys {
            let mut last = 0;
            for id in ids {
                let mut kept = state.messages.iter().filter(|(_, it)| it.event == *id);
                let Some((first, _)) = kept.next() else {
                    return Err(format!("event {id} of {key} never reached the broker"));
                };
                if !self.rules.broker_schedules && state.events[id].is_scheduled() {
                    continue;
                }
                if *first < last {
                    return Err(format!(
                        "event {id} of {key} reached the broker after a later one"
                    ));
                }
                last = *first;
            }
        }
        Ok(())
    }
}

impl Event {
    pub(super) fn is_scheduled(&self) -> bool {
        self.due.is_some()
    }
}

impl State {
    fn event_committed(&mut self, item: &Item) -> Result<(), String> {
        let id = item.id.as_str().to_owned();
        let stored: StoredEvent = serde_json::from_slice(&item.body)
            .map_err(|error| format!("the event {id} is wrong: {error}"))?;
        let Part { unit, part } = stored.data;
        if !self.parts.insert((unit, part)) {
            return Err(format!("part {part} of unit {unit} was committed twice"));
        }
        let key = key_text(&item.partition_key);
        let ids = self.keys.entry(key.clone()).or_default();
        ids.push(id.clone());
        let next = u64::try_from(ids.len()).expect("lists are shorter than 2^64");
        let sequence = item.sequence.unwrap_or_default();
        if sequence != next {
            return Err(format!("event {id} of {key} has number {sequence} and {next} was next"));
        }
        let due = stored.deliver_at.as_deref().and_then(Timestamp::from_rfc3339);
        self.counts.events += 1;
        if self.events.insert(id.clone(), Event { key, sequence, due }).is_some() {
            return Err(format!("event {id} was committed twice"));
        }
        Ok(())
    }

    pub(super) fn check_message(&self, message: &Message) -> Result<(), String> {
        let Some(event) = self.events.get(&message.id) else {
            return Err(format!("no event has the message id {:?}", message.id));
        };
        let sequence = match message.properties.get("sequence") {
            Some(PropertyValue::Integer(number)) => u64::try_from(*number).ok(),
            _ => None,
        };
        if message.session_id.as_deref() != Some(&event.key) || sequence != Some(event.sequence) {
            return Err(format!("the message of event {} is not about it", message.id));
        }
        Ok(())
    }

    /// Every subscription has the message of this number from now on.
    fn keep(&mut self, broker: u64, number: u64, id: &str) {
        let tick = self.next_tick();
        let new = Kept { event: id.to_owned(), enqueued_at: None };
        self.messages.entry(number).or_insert(new);
        let Some(event) = self.events.get(id) else { return };
        for subscription in &mut self.subscriptions {
            subscription.know(number, id, event, broker, tick);
        }
    }
}
