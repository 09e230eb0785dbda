//! Publishing a plan until it is known what became of it.
//!
//! Every message of a batch expects its item to be what the batch was decided on, so the server
//! refuses a batch that rests on something outdated. That also makes it harmless to publish the
//! same batch twice: only one of the two can find what it expects. So a batch whose answer is lost
//! is looked up by its id, and published again only where nothing has changed.

use millstream_core::{ContainerSettings, Error, ErrorKind, Result};

use crate::container::{Range, Shared};
use crate::plan::{Plan, PlannedItem};
use crate::record::ItemRecord;
use crate::wire::{ANSWERED, PATIENCE, Published, UNANSWERED, pause};

/// What became of a plan.
pub(crate) enum Stored {
    /// The number of the commit.
    At(u64),
    /// Something else was written meanwhile, and nothing of the plan.
    Conflict,
}

impl Shared {
    /// Publishes a plan until it is known what became of it.
    pub(crate) async fn store(
        &self,
        range: &Range,
        plan: &Plan,
        settings: &ContainerSettings,
    ) -> Result<Stored> {
        let permit = range.in_flight.acquire().await;
        let _permit = permit.expect("the semaphore is never closed");
        let mut is_doubtful = false;
        let mut reason = String::new();
        let (mut attempt, mut spent) = (0, 0);
        while spent < PATIENCE {
            // Once all processes keep versions, nobody sends a commit without.
            match self.settings().await {
                Ok(now) if keeps_versions(&now) == keeps_versions(settings) => {}
                Ok(_) if is_doubtful => {
                    reason = "the answer was lost and the settings have changed since".to_owned();
                    break;
                }
                Ok(_) => return Ok(Stored::Conflict),
                Err(error) if is_doubtful => return Err(error.with_unknown_effect()),
                Err(error) => return Err(error),
            }
            attempt += 1;
            spent += ANSWERED;
            // A server may still hold part of an earlier attempt, so each has a name of its own.
            let name = match attempt {
                1 => plan.batch.clone(),
                _ => format!("{}-{attempt}", plan.batch),
            };
            match range.wire.publish(&name, &plan.messages).await {
                Published::Stored(lsn) => return Ok(Stored::At(lsn)),
                Published::Conflict if !is_doubtful => return Ok(Stored::Conflict),
                Published::Refused(why) => {
                    return Err(Error::invalid("commit a batch", why));
                }
                Published::Nobody if !is_doubtful && range.wire.is_gone().await => {
                    return Err(self.gone());
                }
                Published::Nobody => reason = "no server answers for its stream".to_owned(),
                Published::NotNow(why) => reason = why,
                // After a lost answer a conflict may be one with ourselves.
                outcome @ (Published::Conflict | Published::Unknown(_)) => {
                    is_doubtful = true;
                    if let Published::Unknown(why) = outcome {
                        reason = why;
                        spent += UNANSWERED;
                    }
                    match self.find(range, plan).await {
                        Ok(Trace::Committed(lsn)) => return Ok(Stored::At(lsn)),
                        Ok(Trace::Dead) => return Ok(Stored::Conflict),
                        Ok(Trace::Open) => {}
                        Ok(Trace::Overwritten) => return Err(overwritten()),
                        Err(error) if error.kind() == ErrorKind::NotFound => {
                            return Err(error.with_unknown_effect());
                        }
                        Err(error) => reason = error.report(),
                    }
                }
            }
            pause(attempt).await;
        }
        let error = Error::new(ErrorKind::Unavailable, "commit a batch").because(reason);
        Err(if is_doubtful { error.with_unknown_effect() } else { error })
    }

    /// Looks whether a batch whose answer was lost is there, or can still come.
    async fn find(&self, range: &Range, plan: &Plan) -> Result<Trace> {
        let (mut items, mut others_hold) = (Vec::with_capacity(plan.items.len()), true);
        for item in &plan.items {
            items.push(seen(range, plan, item).await?);
        }
        for (subject, expected) in &plan.expected {
            let message = range.wire.last(subject).await?;
            others_hold &= message.map_or(0, |it| it.sequence) == *expected;
        }
        let trace = trace(&items, others_hold);
        if let Trace::Dead = trace {
            // What was looked at first may be outdated by now. Once something is known not to be
            // as expected, an item that is still unchanged proves that the batch has not happened
            // and never will.
            let mut unchanged = plan.items.iter().zip(&items).filter(|(_, it)| it.is_unchanged());
            let still = match unchanged.next() {
                Some((item, _)) => seen(range, plan, item).await?.is_unchanged(),
                None => false,
            };
            return Ok(if still { Trace::Dead } else { Trace::Open });
        }
        Ok(trace)
    }
}

fn keeps_versions(settings: &ContainerSettings) -> bool {
    !settings.all_versions_retention.is_zero()
}

/// What is left of a batch whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trace {
    Committed(u64),
    /// It has not happened, and everything it expects is so: it may still come, and may be
    /// repeated.
    Open,
    /// It has not happened, and something it expects is no longer so: it never will.
    Dead,
    /// All of it has been written by others since.
    Overwritten,
}

/// An item of such a batch as it is now.
#[derive(Clone, Copy, Debug)]
struct Seen {
    expected: u64,
    sequence: u64,
    /// The number of the commit, if it is the one that was looked for.
    ours: Option<u64>,
}

impl Seen {
    fn is_unchanged(&self) -> bool {
        self.sequence == self.expected
    }
}

async fn seen(range: &Range, plan: &Plan, item: &PlannedItem) -> Result<Seen> {
    let expected = item.expected;
    let Some(message) = range.wire.last(&item.subject).await? else {
        return Ok(Seen { expected, sequence: 0, ours: None });
    };
    let record = ItemRecord::read(&message)?;
    let ours = (record.mark.batch == plan.batch).then_some(record.lsn);
    Ok(Seen { expected, sequence: record.sequence, ours })
}

/// A commit changes all its items or none.
fn trace(items: &[Seen], others_hold: bool) -> Trace {
    if let Some(lsn) = items.iter().find_map(|it| it.ours) {
        return Trace::Committed(lsn);
    }
    if !items.iter().any(Seen::is_unchanged) {
        return Trace::Overwritten;
    }
    if others_hold && items.iter().all(Seen::is_unchanged) {
        return Trace::Open;
    }
    Trace::Dead
}

fn overwritten() -> Error {
    let reason = "the answer was lost, and all its items have been written by others since";
    let error = Error::new(ErrorKind::Unavailable, "commit a batch").because(reason);
    error.with_unknown_effect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each word is an item: `4` is as expected, `4-9` was changed, `4=9` was changed by the batch
    /// that is looked for.
    #[track_caller]
    fn check(items: &str, others_hold: bool, expected: Trace) {
        let number = |it: &str| it.parse().unwrap();
        let item = |word: &str| match (word.split_once('-'), word.split_once('=')) {
            (Some((old, new)), _) => {
                Seen { expected: number(old), sequence: number(new), ours: None }
            }
            (_, Some((old, new))) => {
                Seen { expected: number(old), sequence: number(new), ours: Some(number(new)) }
            }
            (None, None) => Seen { expected: number(word), sequence: number(word), ours: None },
        };
        let seen: Vec<Seen> = items.split(' ').map(item).collect();
        assert_eq!(trace(&seen, others_hold), expected, "{items}");
    }

    #[test]
    fn a_lost_answer_is_found_out_from_what_is_there() {
        check("4=9", true, Trace::Committed(9));
        check("4-12 0=9", true, Trace::Committed(9));
        check("4 0", true, Trace::Open);
        check("4 0", false, Trace::Dead);
        check("4 0-7", true, Trace::Dead);
        check("4-12 0-7", true, Trace::Overwritten);
    }
}
