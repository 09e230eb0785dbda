//! Throwing waiting messages away.

use millstream_core::Result;

use crate::broker::Broker;

/// Messages that nobody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How many there are.
    pub messages: usize,
    /// The number of the newest message of the queue or topic.
    pub newest: u64,
}

impl Broker {
    /// How many messages [`Broker::purge`] would throw away now.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such path.
    pub fn waiting(&self, path: &str) -> Result<Waiting> {
        let target = self.target(path)?;
        self.shared.with(&target.cell, |state, now| {
            state.entity.advance(now);
            let newest = state.entity.newest();
            let (outlet, _) = state.outlet(target.outlet)?;
            Ok(Waiting { messages: outlet.waiting(target.dead_letters).count(), newest })
        })
    }

    /// Throws away up to `messages_max` messages of a queue or subscription, or dead letters, that
    /// wait and whose numbers are at most `newest`; returns how many when that is durable.
    ///
    /// What a receiver has, what is deferred and what is scheduled stays. Call it until it returns
    /// 0, with the `newest` of [`Broker::waiting`], so that what is sent meanwhile stays, too.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such path.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave any of them thrown away or not.
    pub async fn purge(&self, path: &str, newest: u64, messages_max: usize) -> Result<usize> {
        let target = self.target(path)?;
        let (count, answer) = self.shared.with(&target.cell, |state, now| {
            state.entity.advance(now);
            let (outlet, log) = state.outlet(target.outlet)?;
            let waiting = outlet.waiting(target.dead_letters).filter(|it| *it <= newest);
            let numbers: Vec<u64> = waiting.take(messages_max).collect();
            numbers.iter().for_each(|it| outlet.throw_away(log, *it));
            Ok((numbers.len(), state.when_committed()))
        })?;
        self.shared.answer(answer).await?;
        Ok(count)
    }
}
