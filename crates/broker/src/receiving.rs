//! Receiving without sessions, settling, deferred messages, peeking, dead letters, counts.

use std::time::Duration;

use millstream_core::{
    Delivery, Error, ErrorKind, Message, PropertyValue, Result, Settlement, Timestamp,
};

use crate::broker::{Broker, Target};
use crate::entity::{MessageState, Peeked};
use crate::filter::Filter;
use crate::marks::DeadLetter;
use crate::outlet::{Counts, LockLost, Source, Taken};
use crate::shared::Signal;

/// Whether a message stays with the broker while somebody works on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveMode {
    /// It stays until it is settled; a receiver that goes away leaves it to others.
    #[default]
    PeekLock,
    /// It is gone when it is received, at most once.
    ReceiveAndDelete,
}

/// A message that was received.
#[derive(Clone, Debug)]
pub struct Received {
    /// The message and its lock.
    pub delivery: Delivery,
    /// When the lock ends unless it is renewed.
    pub locked_until: Timestamp,
    /// Whether it was asked for by its number.
    pub is_deferred: bool,
}

/// A message that somebody looks at.
#[derive(Clone, Debug)]
pub struct PeekedMessage {
    /// The message.
    pub message: Message,
    /// Its number.
    pub sequence_number: u64,
    /// How often it was given out and not completed.
    pub delivery_count: u32,
    /// When it came to the broker.
    pub enqueued_at: Timestamp,
    /// What it waits for.
    pub state: MessageState,
}

/// Which dead letters to send back.
#[derive(Clone, Debug)]
pub enum DeadLetters {
    /// This many, from the first on.
    First(usize),
    /// Those with these numbers.
    Numbers(Vec<u64>),
    /// Those that match, from the first on.
    Matching(Filter),
}

impl Broker {
    /// Receives up to `messages_max` messages of a queue, subscription or dead-letter queue; empty
    /// if there are none within `wait`.
    ///
    /// Dead letters carry the properties `DeadLetterReason` and `DeadLetterErrorDescription`, and
    /// keep their numbers.
    ///
    /// # Errors
    ///
    /// `Invalid` if the path requires sessions: accept one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave messages locked until their lock ends, or, where they are
    /// deleted, gone.
    pub async fn receive(
        &self,
        path: &str,
        mode: ReceiveMode,
        messages_max: usize,
        wait: Duration,
    ) -> Result<Vec<Received>> {
        let target = self.target(path)?;
        if Self::has_sessions(&target) {
            return Err(Error::invalid(format!("receive from {path:?}"), "it requires sessions"));
        }
        let (source, signal) = match target.dead_letters {
            true => (Source::DeadLetters, Signal::Dead),
            false => (Source::Messages, Signal::Ready),
        };
        let wake = target.cell.state().waker(target.outlet, signal);
        let taken = self.shared.until(&wake, wait, || self.take(&target, source, messages_max));
        let Some((taken, until)) = taken.await? else { return Ok(Vec::new()) };
        self.deliver(&target, taken, until, mode).await
    }

    /// Receives deferred messages by their numbers.
    ///
    /// # Errors
    ///
    /// `NotFound` with the first number that is not deferred or is with somebody; `Invalid` if the
    /// path requires sessions.
    ///
    /// # Cancel safety
    ///
    /// As for [`Broker::receive`].
    pub async fn receive_deferred(
        &self,
        path: &str,
        mode: ReceiveMode,
        sequence_numbers: &[u64],
    ) -> Result<Vec<Received>> {
        let target = self.target(path)?;
        if Self::has_sessions(&target) {
            return Err(Error::invalid(format!("receive from {path:?}"), "it requires sessions"));
        }
        let (taken, until) = self.take_deferred(&target, None, sequence_numbers)?;
        self.deliver(&target, taken, until, mode).await
    }

    /// Settles messages by their lock tokens and returns when that is durable. For each token
    /// whether it was settled; one whose lock is gone was not, and its message comes again.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store fails; they may be settled or not.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave them settled or not.
    pub async fn settle_each(
        &self,
        path: &str,
        lock_tokens: &[&str],
        settlement: &Settlement,
    ) -> Result<Vec<bool>> {
        self.settle_target(&self.target(path)?, lock_tokens, settlement).await
    }

    /// Settles messages by their lock tokens and returns when that is durable.
    ///
    /// # Errors
    ///
    /// `PreconditionFailed` if a lock is gone; the others are settled all the same.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave them settled or not.
    pub async fn settle(
        &self,
        path: &str,
        lock_tokens: &[&str],
        settlement: &Settlement,
    ) -> Result<()> {
        all_settled(&self.settle_each(path, lock_tokens, settlement).await?)
    }

    /// Gives messages back as if they had not been received; for each whether its lock was there.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such path.
    pub fn release(&self, path: &str, lock_tokens: &[&str]) -> Result<Vec<bool>> {
        let target = self.target(path)?;
        self.each_lock(&target, lock_tokens, |outlet, log, lock, now| {
            outlet.release(log, lock, now)
        })
    }

    /// Keeps messages for another lock duration; for each until when, none if its lock is gone.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such path.
    pub fn renew(&self, path: &str, lock_tokens: &[&str]) -> Result<Vec<Option<Timestamp>>> {
        let target = self.target(path)?;
        let renewed = self
            .each_lock(&target, lock_tokens, |outlet, log, lock, now| outlet.renew(log, lock, now));
        let until = self.locked_until(&target)?;
        Ok(renewed?.into_iter().map(|it| it.then_some(until)).collect())
    }

    /// Looks at up to `messages_max` messages from number `from` on, in the order of their numbers
    /// and without locking them: waiting, locked, deferred and scheduled ones, or dead letters.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn peek(
        &self,
        path: &str,
        from: u64,
        messages_max: usize,
        session: Option<&str>,
    ) -> Result<Vec<PeekedMessage>> {
        let target = self.target(path)?;
        let peeked = self.shared.with(&target.cell, |state, now| {
            let Target { outlet, dead_letters, .. } = target;
            Ok(state.entity.peek(outlet, dead_letters, from, messages_max, session, now))
        })?;
        let places = peeked.iter().map(|it| it.place);
        let messages = self.shared.messages(&target.cell, places).await?;
        let found = peeked.into_iter().zip(messages);
        Ok(found.filter_map(|(peeked, message)| Some(shown(&peeked, message?))).collect())
    }

    /// Sends dead letters back to the queue or subscription they come from, and returns how many.
    ///
    /// Each takes the place it had, before everything that was sent later, with its number, as if
    /// it had never been delivered; it does not expire any more. Duplicate detection has no part in
    /// it. Dead letters that somebody has are left alone.
    ///
    /// # Errors
    ///
    /// `Invalid` if the path does not end in `/$DeadLetterQueue`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave any number of them sent back.
    pub async fn resubmit_dead_letters(&self, path: &str, which: &DeadLetters) -> Result<usize> {
        let target = self.target(path)?;
        if !target.dead_letters {
            let reason = "the path must end in /$DeadLetterQueue";
            return Err(Error::invalid(format!("resubmit from {path:?}"), reason));
        }
        let numbers = match which {
            DeadLetters::First(letters_max) => {
                let mut state = target.cell.state();
                state.outlet(target.outlet)?.0.dead_letters(*letters_max)
            }
            DeadLetters::Numbers(numbers) => numbers.clone(),
            DeadLetters::Matching(filter) => self.matching(path, filter).await?,
        };
        let (count, answer) = self.shared.with(&target.cell, |state, _| {
            let (outlet, log) = state.outlet(target.outlet)?;
            let revived = numbers.iter().filter(|it| outlet.revive(log, **it)).count();
            Ok((revived, state.when_committed()))
        })?;
        self.shared.answer(answer).await?;
        Ok(count)
    }

    /// How many messages a queue or subscription has.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such path.
    pub fn counts(&self, path: &str) -> Result<Counts> {
        let target = self.target(path)?;
        self.shared.with(&target.cell, |state, now| {
            state.entity.advance(now);
            Ok(state.entity.counts(target.outlet))
        })
    }

    /// Takes what there is; none if there is nothing.
    pub(crate) fn take(
        &self,
        target: &Target,
        source: Source,
        messages_max: usize,
    ) -> Result<Option<(Vec<Taken>, Timestamp)>> {
        self.shared.with(&target.cell, |state, now| {
            let (outlet, log) = state.outlet(target.outlet)?;
            let taken = outlet.take(log, source, messages_max, now).map_err(lock_lost)?;
            let until = now.wall.plus(outlet.settings.lock_duration);
            Ok((!taken.is_empty() || messages_max == 0).then_some((taken, until)))
        })
    }

    pub(crate) fn take_deferred(
        &self,
        target: &Target,
        session: Option<u64>,
        sequence_numbers: &[u64],
    ) -> Result<(Vec<Taken>, Timestamp)> {
        self.shared.with(&target.cell, |state, now| {
            let (outlet, log) = state.outlet(target.outlet)?;
            let taken = outlet.take_deferred(log, session, sequence_numbers, now);
            let taken = taken.map_err(lock_lost)?.map_err(|number| {
                let attempted = format!("receive the deferred message {number}");
                let error = Error::new(ErrorKind::NotFound, attempted);
                error.because("it is not deferred, or somebody has it")
            })?;
            Ok((taken, now.wall.plus(outlet.settings.lock_duration)))
        })
    }

    /// Reads the bodies of what was taken; gives it back if that fails.
    pub(crate) async fn deliver(
        &self,
        target: &Target,
        taken: Vec<Taken>,
        locked_until: Timestamp,
        mode: ReceiveMode,
    ) -> Result<Vec<Received>> {
        let places = taken.iter().map(|it| it.place);
        let messages = self.shared.messages(&target.cell, places).await;
        let tokens: Vec<String> =
            taken.iter().map(|it| self.token(target.outlet, it.lock)).collect();
        let borrowed: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let messages = match messages {
            Ok(messages) if messages.iter().all(Option::is_some) => messages,
            failed => {
                self.each_lock(target, &borrowed, |it, log, lock, now| it.release(log, lock, now))?;
                failed?;
                let error = Error::new(ErrorKind::Corrupt, "read the messages of a segment");
                return Err(error.because("its document is not there"));
            }
        };
        let kept = match mode {
            ReceiveMode::PeekLock => vec![true; tokens.len()],
            ReceiveMode::ReceiveAndDelete => {
                self.settle_target(target, &borrowed, &Settlement::Complete).await?
            }
        };
        let found = taken.into_iter().zip(messages.into_iter().flatten()).zip(tokens).zip(kept);
        let found = found.filter(|(_, kept)| *kept);
        Ok(found
            .map(|(((taken, message), token), _)| {
                let is_deferred = taken.is_deferred;
                Received { delivery: delivery(&taken, message, token), locked_until, is_deferred }
            })
            .collect())
    }

    pub(crate) async fn settle_target(
        &self,
        target: &Target,
        lock_tokens: &[&str],
        settlement: &Settlement,
    ) -> Result<Vec<bool>> {
        let locks: Vec<_> = lock_tokens.iter().map(|it| self.lock_of(target.outlet, it)).collect();
        let (settled, answer) = self.shared.with(&target.cell, |state, now| {
            let (outlet, log) = state.outlet(target.outlet)?;
            let settle = |lock: Option<u64>| {
                lock.is_some_and(|it| outlet.settle(log, it, settlement, now).is_ok())
            };
            let settled: Vec<bool> = locks.into_iter().map(settle).collect();
            Ok((settled, state.when_committed()))
        })?;
        self.shared.answer(answer).await?;
        Ok(settled)
    }

    fn each_lock(
        &self,
        target: &Target,
        lock_tokens: &[&str],
        mut act: impl FnMut(
            &mut crate::outlet::Outlet,
            &mut crate::log::Log,
            u64,
            crate::log::Moment,
        ) -> std::result::Result<(), LockLost>,
    ) -> Result<Vec<bool>> {
        let locks: Vec<_> = lock_tokens.iter().map(|it| self.lock_of(target.outlet, it)).collect();
        self.shared.with(&target.cell, |state, now| {
            let (outlet, log) = state.outlet(target.outlet)?;
            let act = |lock: Option<u64>| lock.is_some_and(|it| act(outlet, log, it, now).is_ok());
            Ok(locks.into_iter().map(act).collect())
        })
    }

    /// When a lock that begins now ends.
    pub(crate) fn locked_until(&self, target: &Target) -> Result<Timestamp> {
        self.shared.with(&target.cell, |state, now| {
            let (outlet, _) = state.outlet(target.outlet)?;
            Ok(now.wall.plus(outlet.settings.lock_duration))
        })
    }

    /// The numbers of the dead letters that match.
    async fn matching(&self, path: &str, filter: &Filter) -> Result<Vec<u64>> {
        const PAGE: usize = 1000;
        let (mut numbers, mut from) = (Vec::new(), 0);
        loop {
            let page = self.peek(path, from, PAGE, None).await?;
            let Some(last) = page.last() else { return Ok(numbers) };
            from = last.sequence_number + 1;
            let found = page.iter().filter(|it| filter.matches(&it.message));
            numbers.extend(found.map(|it| it.sequence_number));
        }
    }
}

/// An error unless all are settled.
pub(crate) fn all_settled(settled: &[bool]) -> Result<()> {
    if settled.iter().all(|it| *it) { Ok(()) } else { Err(lock_lost(LockLost)) }
}

pub(crate) fn lock_lost(_: LockLost) -> Error {
    let error = Error::new(ErrorKind::PreconditionFailed, "use the lock");
    error.because("it is gone; the message or session comes again")
}

fn delivery(taken: &Taken, mut message: Message, lock_token: String) -> Delivery {
    add_reason(&mut message, taken.dead_letter.as_ref());
    Delivery {
        message,
        sequence_number: taken.place.sequence(),
        delivery_count: taken.failures.saturating_add(1),
        enqueued_at: taken.enqueued_at,
        lock_token,
    }
}

fn shown(peeked: &Peeked, mut message: Message) -> PeekedMessage {
    add_reason(&mut message, peeked.dead_letter.as_ref());
    PeekedMessage {
        message,
        sequence_number: peeked.place.sequence(),
        delivery_count: peeked.failures,
        enqueued_at: peeked.enqueued_at,
        state: peeked.state,
    }
}

/// Dead letters say why they are, in the words of Service Bus.
fn add_reason(message: &mut Message, dead_letter: Option<&DeadLetter>) {
    let Some(dead) = dead_letter else { return };
    let text = |text: &str| PropertyValue::String(text.to_owned());
    message.properties.insert("DeadLetterReason".into(), text(&dead.reason));
    message.properties.insert("DeadLetterErrorDescription".into(), text(&dead.description));
}
