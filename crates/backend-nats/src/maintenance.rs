//! Removing what has expired, and what the history no longer keeps.
//!
//! Nobody sees an expired item, removed or not, so this is about space and about the history, which
//! shows an expiry as a delete. Every process may do it at the same time: a removal is a commit
//! that expects the item to be what it was.

mod sweep;

use std::time::Duration;

use millstream_core::{ContainerSettings, Error, ErrorKind, Result, Timestamp};

use crate::NatsStore;
use crate::catalog::{Floor, Found, GuardRecord, Written};
use crate::container::{Partition, Range, Shared, Stored, effective_of, holder, is_held};
pub(crate) use crate::maintenance::sweep::Sweep;
use crate::plan::{Known, plan_expiry};
use crate::record::{ItemRecord, Kind, Mark};
use crate::subject::PartitionNames;
use crate::wire::StoredMessage;

/// How long the trace of a deleted item is kept. It only has to outlive calls that are under way.
const TRACE_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Messages that are looked at together.
const RUN_MESSAGES_MAX: usize = 500;
const RUN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a round of maintenance did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Maintained {
    /// Items removed because their time was over.
    pub expired: u64,
    /// Traces of deleted items removed.
    pub traces: u64,
    /// Ranges whose history was cut.
    pub histories: u64,
    /// Containers whose creation or removal was broken off, and whose streams were removed.
    pub leftovers: u64,
}

impl NatsStore {
    /// Removes what has expired in all containers, cuts their histories, and removes streams that a
    /// process has left behind which died while it created or deleted a container.
    ///
    /// # Errors
    ///
    /// Those of the cluster; what was not removed is removed next time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave part of it done.
    pub async fn maintain(&self) -> Result<Maintained> {
        let mut done = Maintained::default();
        let catalog = &self.inner.catalog;
        for database in catalog.databases().await? {
            let at = self.time();
            for (sequence, record) in catalog.containers(database.number).await? {
                let shared = self.share(sequence, &record, at)?;
                let mut maintained = Ok(());
                if record.is_history_opening {
                    maintained = self.open_history(sequence, record).await.map(drop);
                }
                if maintained.is_ok() {
                    maintained = shared.maintain(&mut done).await;
                }
                match maintained {
                    Ok(()) => {}
                    // It was deleted in the meantime.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        done.leftovers = self.remove_leftovers().await?;
        Ok(done)
    }

    /// Does so again and again, with a rest after each round. It never ends by itself.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave a round half done; the next one does the rest.
    pub async fn maintain_every(&self, rest: Duration) {
        loop {
            if let Err(error) = self.maintain().await {
                tracing::warn!(error = error.report(), "maintenance failed and will be repeated");
            }
            let clock = &self.inner.connection.options().clock;
            clock.sleep(rest).await;
        }
    }
}

impl Shared {
    async fn maintain(&self, done: &mut Maintained) -> Result<()> {
        let settings = self.fresh_settings().await?;
        for range in &self.ranges {
            self.sweep(range, &settings, done).await?;
            self.cut_history(range, done).await?;
        }
        Ok(())
    }

    async fn sweep(
        &self,
        range: &Range,
        settings: &ContainerSettings,
        done: &mut Maintained,
    ) -> Result<()> {
        let now = self.clock().now();
        let newest = range.newest().await?;
        let due = range.sweep().due(settings.default_ttl, now, newest);
        if due.is_empty() {
            return Ok(());
        }
        let guards = self.guards().await?;
        for segment in due {
            let scene = Sweeping { range, settings, guards: &guards, now, newest };
            let mut next = self.sweep_segment(&scene, segment, done).await?;
            if !settings.unique_keys.is_empty() {
                let claims = sweep_claims(&scene, segment, done).await?;
                next = [next, claims].into_iter().flatten().min();
            }
            range.sweep().swept(segment, newest, next);
        }
        Ok(())
    }

    /// Walks over one segment and returns when something in it is due next.
    async fn sweep_segment(
        &self,
        scene: &Sweeping<'_>,
        segment: u64,
        done: &mut Maintained,
    ) -> Result<Option<Timestamp>> {
        let mut walk = Walk::over(segment, scene.range.names.items());
        let mut due: Option<Timestamp> = None;
        while let Some(messages) = walk.next(scene.range).await? {
            for message in &messages {
                let later = self.settle(scene, &ItemRecord::read(message)?, done).await?;
                due = [due, later].into_iter().flatten().min();
            }
        }
        Ok(due)
    }

    /// Removes one item if its time is over, or says when it will be.
    async fn settle(
        &self,
        scene: &Sweeping<'_>,
        record: &ItemRecord,
        done: &mut Maintained,
    ) -> Result<Option<Timestamp>> {
        let Sweeping { range, settings, now, .. } = *scene;
        let Some(version) = &record.version else {
            let over = record.mark.at.plus(TRACE_KEPT);
            // The newest message of a stream stays: it says how far the stream has come.
            if now < over || scene.newest <= record.sequence {
                return Ok(Some(over.max(now)));
            }
            range.wire.remove(record.sequence).await?;
            done.traces += 1;
            return Ok(None);
        };
        let Some(over) = version.stamp.expiry(settings.default_ttl) else { return Ok(None) };
        if now < over {
            return Ok(Some(over));
        }
        let effective = effective_of(settings, record)?;
        if record.mark.sequence.is_some() && is_held(scene.guards, &effective, record.lsn) {
            return Ok(Some(now));
        }
        let names = PartitionNames::new(&range.names, &effective, &record.partition_key);
        let known =
            Known { sequence: record.sequence, version: Some(version.clone()), is_over: true };
        let partition =
            Partition { range, names: &names, effective: &effective, key: &record.partition_key };
        let claims = self.give_up_claims(partition, settings, (&record.id, &known)).await?;
        let at = self.scene(partition, settings, claims);
        let plan = plan_expiry(&at, &record.id, &known);
        range.cache().forget(&names.item(&record.id));
        match self.store(range, &plan, settings).await? {
            Stored::At(lsn) => {
                done.expired += 1;
                self.announce(range, lsn).await;
                Ok(None)
            }
            // The item was written anew, or only what it holds has changed hands.
            Stored::Conflict => Ok(Some(now)),
        }
    }

    /// Notes which versions are no longer kept, and only then removes them.
    async fn cut_history(&self, range: &Range, done: &mut Maintained) -> Result<()> {
        // Another process may switch the history on while this goes through others.
        let settings = self.settings().await?;
        let kept = if settings.all_versions_retention.is_zero() {
            Some(Timestamp::from_millis(u64::MAX))
        } else {
            self.kept_since(&settings)
        };
        let Some(kept) = kept else { return Ok(()) };
        let filter = range.names.versions();
        let (mut next, mut floor) = (1, None);
        'walk: loop {
            let run = range.wire.run(next, Some(&filter), RUN_MESSAGES_MAX, RUN_BYTES_MAX).await?;
            for message in &run.messages {
                let mark = Mark::read(message).filter(|it| it.kind == Kind::Version);
                let mark = mark.ok_or_else(|| {
                    let attempted = format!("read message {} of the history", message.sequence);
                    Error::new(ErrorKind::Corrupt, attempted).because("it is not one of ours")
                })?;
                if kept <= mark.at {
                    break 'walk;
                }
                next = message.sequence + 1;
                floor = Some(Floor { lsn: mark.lsn(message), at: mark.at.as_millis() });
            }
            if !run.has_more || run.messages.is_empty() {
                break;
            }
        }
        let Some(floor) = floor else { return Ok(()) };
        if self.settings().await?.all_versions_retention != settings.all_versions_retention {
            return Ok(());
        }
        let subject = self.catalog.floor(self.id.container, range.info.id.0);
        let old: Found<Floor> = self.catalog.get(&subject).await?;
        let is_noted = old.record.is_some_and(|it| floor.lsn <= it.lsn);
        if !is_noted
            && let Written::Conflict = self.catalog.put(&subject, old.sequence, &floor).await?
        {
            // Somebody else is doing the same.
            return Ok(());
        }
        range.wire.purge(&filter, floor.lsn + 1).await?;
        done.histories += 1;
        Ok(())
    }
}

/// What a walk over a range needs to know.
#[derive(Clone, Copy)]
struct Sweeping<'a> {
    range: &'a Range,
    settings: &'a ContainerSettings,
    guards: &'a [GuardRecord],
    now: Timestamp,
    newest: u64,
}

/// Removes traces of unique values that were given up, and returns when the next one is due.
async fn sweep_claims(
    scene: &Sweeping<'_>,
    segment: u64,
    done: &mut Maintained,
) -> Result<Option<Timestamp>> {
    let mut walk = Walk::over(segment, scene.range.names.claims());
    let mut due: Option<Timestamp> = None;
    while let Some(messages) = walk.next(scene.range).await? {
        for message in &messages {
            if holder(message)?.is_some() {
                continue;
            }
            let given_up_at = Mark::read(message).map_or(scene.now, |it| it.at);
            let over = given_up_at.plus(TRACE_KEPT);
            if over <= scene.now {
                scene.range.wire.remove(message.sequence).await?;
                done.traces += 1;
            } else {
                due = [due, Some(over)].into_iter().flatten().min();
            }
        }
    }
    Ok(due)
}

/// The messages of a segment whose subjects a filter lets through, some at a time.
struct Walk {
    filter: String,
    next: u64,
    end: u64,
}

impl Walk {
    fn over(segment: u64, filter: String) -> Self {
        Self { filter, next: Sweep::first(segment), end: Sweep::first(segment + 1) }
    }

    async fn next(&mut self, range: &Range) -> Result<Option<Vec<StoredMessage>>> {
        if self.end <= self.next {
            return Ok(None);
        }
        let filter = Some(self.filter.as_str());
        let run = range.wire.run(self.next, filter, RUN_MESSAGES_MAX, RUN_BYTES_MAX).await?;
        let mut messages = run.messages;
        let last = messages.last().map(|it| it.sequence);
        self.next = last.filter(|_| run.has_more).map_or(self.end, |it| it + 1);
        messages.retain(|it| it.sequence < self.end);
        Ok(Some(messages))
    }
}
