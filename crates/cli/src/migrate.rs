//! `millstream migrate`: containers go from one place to another while they are in use.
//!
//! The feed of a container shows every live item once, at its newest number, and goes on with what
//! is committed; so reading it from the beginning is copying and following in one. What it does
//! not show are deletes: those are found when the writers have stopped and both sides are compared,
//! which is the switch. How far each range is is noted in the target, in the same container of all
//! migrations, so that a migration that was interrupted goes on where it was.

mod compare;
mod copy;
mod journal;
mod progress;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use millstream_core::{
    Clock, Container, ContainerName, Containers, ErrorKind, Numbers, SystemClock,
};

use crate::arguments::MigrateArguments;
use crate::failure::{Failure, Result};
use crate::migrate::compare::{Differences, compare};
use crate::migrate::copy::Copier;
use crate::migrate::journal::Journal;
use crate::migrate::progress::Progress;
use crate::output::say;
use crate::places::Place;
use crate::system::parse_name;

/// The database of the program itself, which does not go along: leases and positions mean nothing
/// in another store.
const OWN: &str = "millstream";
/// Containers of this name hold leases, which mean nothing in another store.
const LEASES: &str = "leases";
/// How long to wait for more when all is copied.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);
/// How often the end is looked for before the source is said to be in use.
const SWITCH_ATTEMPTS_MAX: u32 = 3;

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Copies and follows until somebody stops it.
    Stopped,
    /// Ends when everything that was committed is copied.
    CaughtUp,
    /// The writers have stopped: ends when both sides are the same.
    Switched,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) container: String,
    pub(crate) copied: u64,
    pub(crate) removed: u64,
    pub(crate) repaired: u64,
    pub(crate) items: u64,
}

/// A migration between two open stores.
pub(crate) struct Migration {
    pub(crate) source: Arc<dyn Containers>,
    pub(crate) target: Arc<dyn Containers>,
    /// What the source is called, so that a journal of another one is not taken for its own.
    pub(crate) from: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) until: Until,
    /// How closely numbers of both sides are compared.
    pub(crate) numbers: Numbers,
}

/// Does what the command says.
pub(crate) async fn migrate(arguments: MigrateArguments) -> Result<()> {
    let from = Place::parse("--from", &arguments.from)?;
    let to = Place::parse("--to", &arguments.to)?;
    if from == to {
        return Err(Failure::usage("--from and --to name the same place"));
    }
    let until = match (arguments.switch, arguments.once) {
        (true, _) => Until::Switched,
        (false, true) => Until::CaughtUp,
        (false, false) => Until::Stopped,
    };
    let migration = Migration {
        source: from.open().await?.containers,
        target: to.open().await?.containers,
        from: from.shown(),
        clock: Arc::new(SystemClock::default()),
        until,
        numbers: numbers_of(&to),
    };
    let names = migration.names(&arguments.containers).await?;
    if names.is_empty() {
        return Err(Failure::other(format!("there is no container in {}", from.shown())));
    }
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => {
            say("\nstopped; the same command goes on where this ended\n");
            Ok(())
        }
        outcome = migration.run(&names) => {
            for summary in outcome? {
                say(&summary.line(until));
            }
            Ok(())
        }
    }
}

impl Migration {
    /// The containers to migrate: those that are named, or all that are a user's.
    pub(crate) async fn names(&self, named: &[String]) -> Result<Vec<ContainerName>> {
        if !named.is_empty() {
            return named.iter().map(|it| parse_name(it)).collect();
        }
        let mut names = Vec::new();
        for database in self.source.list_databases().await? {
            if [OWN, journal::DATABASE].contains(&database.name.as_str()) {
                continue;
            }
            let found = self.source.list(&database.name).await?;
            names.extend(found.into_iter().map(|it| it.name).filter(|it| it.container() != LEASES));
        }
        Ok(names)
    }

    /// Migrates the containers one after the other; to follow, again and again.
    pub(crate) async fn run(&self, names: &[ContainerName]) -> Result<Vec<Summary>> {
        let journals = journal::container(&*self.target).await?;
        let mut copiers = Vec::new();
        for name in names {
            copiers.push(self.prepare(name, &journals).await?);
        }
        loop {
            for copier in &mut copiers {
                copier.catch_up().await?;
            }
            match self.until {
                Until::CaughtUp => return Ok(copiers.iter().map(Copier::summary).collect()),
                Until::Switched => break,
                Until::Stopped => self.clock.sleep(FOLLOW_INTERVAL).await,
            }
        }
        let mut summaries = Vec::new();
        for copier in &mut copiers {
            summaries.push(self.switch(copier).await?);
        }
        Ok(summaries)
    }

    async fn prepare(&self, name: &ContainerName, journals: &Container) -> Result<Copier> {
        let source = self.source.open(name).await?;
        let target = self.ensure(&source).await?;
        let identity = format!("{} {}", self.from, source.info.resource_id.incarnation());
        let journal = Journal::open(journals, name, &identity, &source).await?;
        if journal.is_switched() {
            return Err(Failure::other(format!(
                "{name} was switched already; to migrate it once more, remove the document of this \
                 name in millstream-migrations/journals of the target"
            )));
        }
        let progress = Progress::new(name.to_string(), Arc::clone(&self.clock));
        let (clock, numbers) = (Arc::clone(&self.clock), self.numbers);
        Ok(Copier { source, target, journal, progress, clock, numbers })
    }

    /// The container in the target, with the same settings.
    async fn ensure(&self, source: &Container) -> Result<Container> {
        let (name, settings) = (&source.info.name, source.info.settings.clone());
        if !settings.unique_keys.is_empty() {
            // The feed does not show deletes, so a value may be copied before the copy of the item
            // that had it has gone.
            return Err(Failure::other(format!(
                "{name} has unique keys, which a copy that follows the feed would violate on its \
                 way; create it in the target and use export and import while nobody writes"
            )));
        }
        unless_exists(self.target.create_database(name.database()).await)?;
        unless_exists(self.target.create(name, settings).await)?;
        let target = self.target.open(name).await?;
        if target.info.settings.partition_key != source.info.settings.partition_key {
            return Err(Failure::other(format!(
                "{name} exists in the target with another partition key; remove or rename it"
            )));
        }
        Ok(target)
    }

    /// Makes both sides the same, and notes that this is the end.
    async fn switch(&self, copier: &mut Copier) -> Result<Summary> {
        let mut found = Differences::default();
        for _ in 0..SWITCH_ATTEMPTS_MAX {
            let differences = compare(copier).await?;
            found.add(&differences);
            if copier.catch_up().await? == 0 {
                copier.journal.switch().await?;
                let mut summary = copier.summary();
                (summary.removed, summary.repaired) = (found.removed, found.repaired);
                summary.items = differences.items;
                return Ok(summary);
            }
        }
        Err(Failure::other(format!(
            "{} still changes in the source: stop whoever writes to it, then switch again",
            copier.source.info.name
        )))
    }
}

impl Summary {
    fn line(&self, until: Until) -> String {
        let Self { container, copied, removed, repaired, items } = self;
        match until {
            Until::Stopped | Until::CaughtUp => format!("{container}: {copied} changes copied\n"),
            Until::Switched => format!(
                "{container}: {copied} changes copied, {removed} removed, {repaired} repaired; \
                 {items} items are the same on both sides\n"
            ),
        }
    }
}

/// How closely what was written to a place can be compared with what is read there. A source that
/// rounds needs no indulgence: it is its rounded numbers that are copied.
fn numbers_of(target: &Place) -> Numbers {
    match target {
        Place::Directory(_) | Place::Nats(_) => Numbers::Exact,
        Place::Cosmos(_) => Numbers::AsDoubles,
    }
}

fn unless_exists<T>(outcome: millstream_core::Result<T>) -> Result<()> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}
