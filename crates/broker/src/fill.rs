//! How full a queue or topic is, and when somebody should hear of it.

use millstream_core::Result;

use crate::broker::Broker;
use crate::log::QUEUE_OUTLET;
use crate::shared::EntityState;
use crate::stored::Definition;

/// Of a hundred messages that may be kept, how many are nearly all of them.
const NEARLY_FULL_PERCENT: usize = 80;
/// Below how many there is room again; less than the other, so that a number that goes up and down
/// around it is told of once.
const ROOM_PERCENT: usize = 70;

/// How full a queue or topic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Messages that are kept or on their way, each once however many subscriptions want it.
    pub messages: usize,
    /// How many there can be; `send` is refused beyond.
    pub messages_max: usize,
    /// Four fifths were reached, and it has not been less than seven tenths since.
    pub is_nearly_full: bool,
}

/// Remembers what was told.
#[derive(Debug, Default)]
pub(crate) struct Crowding {
    is_nearly_full: bool,
}

/// What is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    NearlyFull,
    RoomAgain,
}

impl Crowding {
    fn look(&mut self, messages: usize, messages_max: usize) -> Option<Turn> {
        let percent = messages.saturating_mul(100) / messages_max.max(1);
        if !self.is_nearly_full && NEARLY_FULL_PERCENT <= percent {
            self.is_nearly_full = true;
            return Some(Turn::NearlyFull);
        }
        if self.is_nearly_full && percent < ROOM_PERCENT {
            self.is_nearly_full = false;
            return Some(Turn::RoomAgain);
        }
        None
    }
}

impl EntityState {
    /// Tells the log, once, that it is nearly full, and that there is room again.
    pub(crate) fn look_at_room(&mut self, messages_max: usize) {
        let messages = self.entity.messages();
        let Some(turn) = self.crowding.look(messages, messages_max) else { return };
        let entity = self.document.name.as_str();
        match turn {
            Turn::NearlyFull => {
                let (subscription, waiting) = self.fullest();
                tracing::warn!(
                    entity,
                    messages,
                    messages_max,
                    subscription,
                    waiting,
                    "nearly full; at the limit messages are refused until some are done with"
                );
            }
            Turn::RoomAgain => {
                tracing::info!(entity, messages, messages_max, "there is room again");
            }
        }
    }

    /// The subscription that most messages wait for, and how many; a queue is its own.
    fn fullest(&self) -> (String, usize) {
        let waiting = |number: u16| {
            let counts = self.entity.counts(number);
            counts.active + counts.scheduled + counts.deferred + counts.dead_lettered
        };
        match &self.document.definition {
            Definition::Queue(_) => (self.document.name.clone(), waiting(QUEUE_OUTLET)),
            Definition::Topic { subscriptions, .. } => {
                let each = subscriptions.iter().map(|it| (it.name.clone(), waiting(it.number)));
                each.max_by_key(|(_, count)| *count).unwrap_or_default()
            }
        }
    }
}

impl Broker {
    /// How full a queue or topic is.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none of this name.
    pub fn fill(&self, entity: &str) -> Result<Fill> {
        let cell = self.shared.cell(&entity.to_ascii_lowercase())?;
        let state = cell.state();
        Ok(Fill {
            messages: state.entity.messages(),
            messages_max: self.shared.options.messages_max,
            is_nearly_full: state.crowding.is_nearly_full,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_until_there_is_room_again() {
        let mut crowding = Crowding::default();
        let turns = [0, 79, 80, 81, 100, 79, 70, 80, 69, 10, 80].map(|it| crowding.look(it, 100));
        let (full, room) = (Some(Turn::NearlyFull), Some(Turn::RoomAgain));
        assert_eq!(turns, [None, None, full, None, None, None, None, None, room, None, full]);
        assert_eq!(Crowding::default().look(usize::MAX, 0), full);
    }
}
