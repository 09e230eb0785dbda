//! Telling the store how far this reader is, so that events it has not passed do not expire.

use std::sync::Arc;
use std::time::Duration;

use millstream_core::Continuation;

use crate::worker::Work;
use crate::worker::events::Event;

/// How often a position is told. Events expire by the second at best.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// What the store was told last.
#[derive(Default)]
pub(super) struct Told {
    position: String,
    at: Duration,
    is_telling: bool,
}

impl Work {
    /// When the position that is stored in the lease has to be told; none if it was.
    pub(super) fn guard_due_at(&self) -> Option<Duration> {
        let lease = self.lease.as_ref().filter(|_| self.setup.is_guarding)?;
        let is_news = lease.document.position != self.told.position && !self.told.is_telling;
        is_news.then_some(self.told.at + TOLD_EVERY)
    }

    /// Tells the store a position that is stored in the lease: never one that could be lost.
    pub(super) fn tell_guard(&mut self, now: Duration) {
        if self.guard_due_at().is_none_or(|it| now < it) {
            return;
        }
        let (Some(lease), Some(guards)) = (&self.lease, &self.setup.feed.guards) else { return };
        let Ok(position) = Continuation::new(lease.document.position.as_str()) else { return };
        self.told.is_telling = true;
        self.told.at = now;
        let (guards, keys) = (Arc::clone(guards), Arc::clone(&self.keys));
        let setup = Arc::clone(&self.setup);
        self.events.push(Box::pin(async move {
            let outcome = guards.hold(setup.store.name(), &keys, &position).await;
            Event::Told(position, outcome)
        }));
    }

    pub(super) fn on_told(
        &mut self,
        position: &Continuation,
        outcome: millstream_core::Result<()>,
    ) {
        self.told.is_telling = false;
        match outcome {
            Ok(()) => self.told.position = position.as_str().to_owned(),
            // Told again a second later; until then events are kept longer than they need be.
            Err(error) => self.tell_store_failed(error.report()),
        }
    }
}
