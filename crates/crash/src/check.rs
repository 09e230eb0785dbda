use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::subject::{Ack, FeedItem, ItemName, Observed, Partition, Version};

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub rule: Rule,
    /// What was seen.
    pub seen: String,
}

/// What a store promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The store opens and can be read and written.
    Opens,
    /// What was acknowledged is there.
    AcknowledgedIsThere,
    /// What was acknowledged has the commit number and the etags that were acknowledged.
    VersionStays,
    /// A batch is there whole or not at all, and no batch is missing before one that is there.
    BatchIsWhole,
    /// The feed shows each item that is there, once, at its version, and nothing else.
    FeedIsComplete,
    /// The feed is in the order of commit numbers.
    FeedIsOrdered,
    /// A page never cuts a batch.
    PageKeepsBatch,
    /// Two batches of a range never have the same commit number, and later ones have larger.
    NumbersGrow,
    /// A new version has a new etag.
    EtagIsNew,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let promise = match self.rule {
            Rule::Opens => "opens",
            Rule::AcknowledgedIsThere => "acknowledged is there",
            Rule::VersionStays => "version stays",
            Rule::BatchIsWhole => "batch is whole",
            Rule::FeedIsComplete => "feed is complete",
            Rule::FeedIsOrdered => "feed is ordered",
            Rule::PageKeepsBatch => "page keeps batch",
            Rule::NumbersGrow => "numbers grow",
            Rule::EtagIsNew => "etag is new",
        };
        write!(formatter, "{promise}: {}", self.seen)
    }
}

/// Compares what was acknowledged with what is there.
#[must_use]
pub fn check(acks: &[Ack], observed: &Observed) -> Vec<Violation> {
    let mut found = Found::default();
    found.acknowledged(acks, observed);
    for (writer, partition) in &observed.writers {
        found.batches(*writer, partition);
    }
    found.numbers(observed);
    found.feed(observed);
    found.next(acks, observed);
    found.0
}

#[derive(Default)]
struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, rule: Rule, seen: String) {
        self.0.push(Violation { rule, seen });
    }

    fn acknowledged(&mut self, acks: &[Ack], observed: &Observed) {
        let nothing = Partition::default();
        for Ack { writer, number, range, lsn, entity_etag, event_etag } in acks {
            let partition = observed.writers.get(writer).unwrap_or(&nothing);
            let who = format!("commit {number} of writer {writer}");
            match partition.events.get(number) {
                None => self.add(Rule::AcknowledgedIsThere, format!("{who} has no event")),
                Some(event) if event.lsn != *lsn || event.etag != *event_etag => {
                    let seen = format!("{who}: acknowledged {lsn} {event_etag}, event has {event}");
                    self.add(Rule::VersionStays, seen);
                }
                Some(_) if partition.range != *range => {
                    let seen = format!("{who} moved from range {range} to {}", partition.range);
                    self.add(Rule::VersionStays, seen);
                }
                Some(_) => {}
            }
            match &partition.entity {
                None => self.add(Rule::AcknowledgedIsThere, format!("{who} has no entity")),
                Some((counter, _)) if counter < number => {
                    self.add(
                        Rule::AcknowledgedIsThere,
                        format!("{who}: entity has only {counter}"),
                    );
                }
                Some((counter, entity))
                    if counter == number && (entity.lsn != *lsn || entity.etag != *entity_etag) =>
                {
                    let seen =
                        format!("{who}: acknowledged {lsn} {entity_etag}, entity has {entity}");
                    self.add(Rule::VersionStays, seen);
                }
                Some((counter, entity)) if number < counter && entity.etag == *entity_etag => {
                    let seen = format!("{who}: entity at {counter} still has etag {entity_etag}");
                    self.add(Rule::EtagIsNew, seen);
                }
                Some(_) => {}
            }
        }
    }

    fn batches(&mut self, writer: u32, partition: &Partition) {
        let counter = partition.entity.as_ref().map_or(0, |(counter, _)| *counter);
        for number in 1..=counter {
            if !partition.events.contains_key(&number) {
                let seen =
                    format!("writer {writer}: entity has {counter}, event {number} is missing");
                self.add(Rule::BatchIsWhole, seen);
            }
        }
        for number in partition.events.keys().filter(|it| counter < **it || **it == 0) {
            let seen = format!("writer {writer}: event {number} is there, entity has {counter}");
            self.add(Rule::BatchIsWhole, seen);
        }
        if let Some((_, entity)) = &partition.entity
            && let Some(event) = partition.events.get(&counter)
            && entity.lsn != event.lsn
        {
            let seen = format!("writer {writer}: entity {entity} and event {counter} {event}");
            self.add(Rule::BatchIsWhole, seen);
        }
    }

    fn numbers(&mut self, observed: &Observed) {
        let mut owners = BTreeMap::new();
        for (writer, partition) in &observed.writers {
            let mut before = 0;
            for (number, event) in &partition.events {
                if event.lsn <= before {
                    let seen =
                        format!("writer {writer}: event {number} has {event} after {before}");
                    self.add(Rule::NumbersGrow, seen);
                }
                before = event.lsn;
                if let Some((other, other_number)) =
                    owners.insert((partition.range, event.lsn), (writer, number))
                {
                    let seen = format!(
                        "{} was given to commit {other_number} of writer {other} and to commit \
                         {number} of writer {writer}",
                        event.lsn
                    );
                    self.add(Rule::NumbersGrow, seen);
                }
            }
        }
    }

    fn feed(&mut self, observed: &Observed) {
        let mut missing: BTreeMap<(u32, ItemName), (u32, &Version)> = BTreeMap::new();
        for (writer, Partition { range, entity, events }) in &observed.writers {
            if let Some((_, version)) = entity {
                missing.insert((*writer, ItemName::Entity), (*range, version));
            }
            for (number, version) in events {
                missing.insert((*writer, ItemName::Event(*number)), (*range, version));
            }
        }
        let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
        for page in &observed.feed {
            // The last number of the page before must not go on in this one.
            let before = newest.get(&page.range).copied();
            for FeedItem { writer, name, version } in &page.items {
                let who = format!("{name} of writer {writer} at {version}");
                match missing.remove(&(*writer, *name)) {
                    Some(expected) if expected == (page.range, version) => {}
                    Some((range, expected)) => {
                        let seen =
                            format!("range {}: {who}, by key range {range} {expected}", page.range);
                        self.add(Rule::FeedIsComplete, seen);
                    }
                    None => {
                        self.add(
                            Rule::FeedIsComplete,
                            format!("{who} comes twice or is not there by key"),
                        );
                    }
                }
                let last = newest.entry(page.range).or_default();
                if version.lsn < *last {
                    self.add(Rule::FeedIsOrdered, format!("{who} comes after {last}"));
                }
                if before == Some(version.lsn) {
                    self.add(
                        Rule::PageKeepsBatch,
                        format!("{who} comes in the page after its batch"),
                    );
                }
                *last = version.lsn.max(*last);
            }
        }
        for ((writer, name), (_, version)) in missing {
            let seen = format!("{name} of writer {writer} at {version} never comes");
            self.add(Rule::FeedIsComplete, seen);
        }
    }

    fn next(&mut self, acks: &[Ack], observed: &Observed) {
        let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
        let mut raise = |range: u32, lsn: u64| {
            let newest = newest.entry(range).or_default();
            let before = *newest;
            *newest = lsn.max(before);
            before
        };
        for ack in acks {
            raise(ack.range, ack.lsn);
        }
        for partition in observed.writers.values() {
            for event in partition.events.values() {
                raise(partition.range, event.lsn);
            }
        }
        let mut etags: BTreeSet<(u32, &str)> = BTreeSet::new();
        etags.extend(acks.iter().map(|ack| (ack.writer, ack.entity_etag.as_str())));
        for (writer, partition) in &observed.writers {
            etags.extend(partition.entity.iter().map(|(_, it)| (*writer, it.etag.as_str())));
        }
        for ack in &observed.next {
            let who = format!("next commit, {} of writer {}", ack.number, ack.writer);
            let before = raise(ack.range, ack.lsn);
            if ack.lsn <= before {
                self.add(Rule::NumbersGrow, format!("{who} got {} after {before}", ack.lsn));
            }
            if !etags.insert((ack.writer, ack.entity_etag.as_str())) {
                self.add(Rule::EtagIsNew, format!("{who} got {} again", ack.entity_etag));
            }
            let partition = observed.writers.get(&ack.writer);
            let counter = partition.and_then(|it| it.entity.as_ref()).map_or(0, |(it, _)| *it);
            if ack.number != counter + 1 {
                self.add(Rule::BatchIsWhole, format!("{who} follows {counter}"));
            }
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.lsn, self.etag)
    }
}

#[cfg(test)]
mod tests;
