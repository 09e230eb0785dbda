//! What was acknowledged, what arrived, and how they compare.

use std::collections::{BTreeMap, BTreeSet};

use millstream_crash::{Error, Result};

use crate::part::Part;

/// Most findings that are described.
const FINDINGS_MAX: usize = 20;

/// What all processes said in all their lives.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// The ids of the acknowledged events, by key and version.
    acknowledged: BTreeMap<String, BTreeMap<u64, String>>,
    /// How many events each entity has, the acknowledged and those nobody knew of.
    committed: BTreeMap<String, u64>,
    /// The effects of each key in their order.
    effects: BTreeMap<String, Vec<(u64, String)>>,
    /// Keys that were parked before the redrive, and how many changes of them.
    parked: BTreeMap<String, u64>,
    counts: Report,
    is_complete: bool,
}

/// Everything that was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Processes that were killed.
    pub kills: u64,
    /// Of them, services with their relay.
    pub services_killed: u64,
    /// Of them, consumers.
    pub consumers_killed: u64,
    /// Of them, brokers.
    pub brokers_killed: u64,
    /// Relays that were killed inside their process.
    pub relays_killed: u64,
    /// Times in which the broker could not be reached.
    pub outages: u64,
    /// Commits that were acknowledged.
    pub commits: u64,
    /// Events in them.
    pub events: u64,
    /// Events of commits that happened although the service died before it could say so.
    pub events_unacknowledged: u64,
    /// Events that had their effect.
    pub delivered: u64,
    /// Committed events that had no effect.
    pub lost: u64,
    /// Events that had their effect after a later one of their key.
    pub reordered: u64,
    /// Events that had their effect again.
    pub repeated: u64,
    /// Messages that came again and had no effect.
    pub duplicates_absorbed: u64,
    /// Keys that were put aside.
    pub parked_keys: u64,
    /// Changes of these keys that were put aside: entities and events.
    pub parked_changes: u64,
    /// Keys that were put aside and have all their effects, in order.
    pub redriven_in_order: u64,
    /// What is wrong, in sentences.
    pub findings: Vec<String>,
    /// What was done to the processes and what they said last, line by line, if something is wrong.
    pub evidence: Vec<String>,
}

impl Truth {
    /// Takes in what one process said. The last line counts only if it is whole.
    ///
    /// # Errors
    ///
    /// If a line is none of ours.
    pub fn hear(&mut self, text: &str) -> Result<()> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            self.hear_line(line)
                .ok_or_else(|| Error::new(format!("understand a process, which said {line:?}")))?;
        }
        Ok(())
    }

    /// Counts a killed process.
    pub fn killed(&mut self, part: Part) {
        self.counts.kills += 1;
        match part {
            Part::Service => self.counts.services_killed += 1,
            Part::Broker => self.counts.brokers_killed += 1,
            Part::Consumer => self.counts.consumers_killed += 1,
            Part::Teller => (),
        }
    }

    /// Counts a broker that was stopped for a while.
    pub fn suspended(&mut self) {
        self.counts.outages += 1;
    }

    /// Notes something that is wrong.
    pub fn found(&mut self, sentence: String) {
        self.counts.find(sentence);
    }

    fn hear_line(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = rest.split_whitespace();
        let counts = &mut self.counts;
        match word {
            "ack" => {
                let events = self.acknowledged.entry(words.next()?.to_owned()).or_default();
                let first: u64 = words.next()?.parse().ok()?;
                counts.commits += 1;
                for (version, id) in (first..).zip(words) {
                    counts.events += 1;
                    events.insert(version, id.to_owned());
                }
            }
            "duplicate" => counts.duplicates_absorbed += 1,
            "outage" => counts.outages += 1,
            "killed" if rest == "relay" => counts.relays_killed += 1,
            "parked" => {
                let key = words.next()?.to_owned();
                let count: u64 = words.next()?.parse().ok()?;
                let most = self.parked.entry(key).or_default();
                *most = count.max(*most);
            }
            "entity" => {
                let key = words.next()?.to_owned();
                self.committed.insert(key, words.next()?.parse().ok()?);
            }
            "effect" => {
                let key = words.next()?.to_owned();
                let split = |it: &str| {
                    let (version, id) = it.split_once(':')?;
                    Some((version.parse().ok()?, id.to_owned()))
                };
                self.effects.insert(key, words.map(split).collect::<Option<_>>()?);
            }
            "stuck" => self.counts.find(format!("it is not all delivered: {rest}")),
            "disorder" => self.counts.find(format!("the inbox saw a gap or a late event: {rest}")),
            "end" => self.is_complete = true,
            "calm" | "handled" | "left" | "redriven" | "drained" => {}
            _ => return None,
        }
        Some(())
    }

    /// Compares both ends.
    #[must_use]
    pub fn judge(&self) -> Report {
        let mut report = self.counts.clone();
        if !self.is_complete {
            report.find("it did not come to its end".to_owned());
        }
        let keys: BTreeSet<&String> = self
            .acknowledged
            .keys()
            .chain(self.committed.keys())
            .chain(self.effects.keys())
            .collect();
        for key in keys {
            let wrong = report.lost + report.reordered + report.repeated;
            self.judge_key(key, &mut report);
            let is_right = wrong == report.lost + report.reordered + report.repeated;
            // Partition keys are shown as JSON.
            let Some(changes) = self.parked.get(&format!("[\"{key}\"]")).or(self.parked.get(key))
            else {
                continue;
            };
            report.parked_keys += 1;
            report.parked_changes += changes;
            report.redriven_in_order += u64::from(is_right);
        }
        if u64::try_from(self.parked.len()) != Ok(report.parked_keys) {
            report.find("a key was parked that nobody knows".to_owned());
        }
        report
    }

    fn judge_key(&self, key: &str, report: &mut Report) {
        let nothing = BTreeMap::new();
        let acknowledged = self.acknowledged.get(key).unwrap_or(&nothing);
        let committed = self.committed.get(key).copied().unwrap_or(0);
        let known = acknowledged.last_key_value().map_or(0, |(version, _)| *version);
        if committed < known {
            report.find(format!("{key} has {committed} events and {known} are acknowledged"));
        }
        let expected = committed.max(known);
        let acknowledged_count = u64::try_from(acknowledged.len()).unwrap_or(u64::MAX);
        report.events_unacknowledged += expected.saturating_sub(acknowledged_count);
        let mut seen: BTreeSet<u64> = BTreeSet::new();
        for (version, id) in self.effects.get(key).map(Vec::as_slice).unwrap_or_default() {
            let is_late = seen.last().is_some_and(|last| version < last);
            if !seen.insert(*version) {
                report.repeated += 1;
                report.find(format!("event {version} of {key} had its effect again"));
                continue;
            }
            report.delivered += 1;
            if is_late {
                report.reordered += 1;
                report.find(format!("event {version} of {key} came after a later one"));
            }
            if acknowledged.get(version).is_some_and(|it| it != id) {
                report.find(format!("event {version} of {key} has the id of another: {id}"));
            }
            if expected < *version {
                report.find(format!("event {version} of {key} was never committed"));
            }
        }
        for version in (1..=expected).filter(|it| !seen.contains(it)) {
            report.lost += 1;
            report.find(format!("event {version} of {key} is lost"));
        }
    }
}

impl Report {
    /// Adds what was counted in another directory.
    pub fn add(&mut self, other: Self) {
        self.kills += other.kills;
        self.services_killed += other.services_killed;
        self.relays_killed += other.relays_killed;
        self.consumers_killed += other.consumers_killed;
        self.brokers_killed += other.brokers_killed;
        self.outages += other.outages;
        self.commits += other.commits;
        self.events += other.events;
        self.events_unacknowledged += other.events_unacknowledged;
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.reordered += other.reordered;
        self.repeated += other.repeated;
        self.duplicates_absorbed += other.duplicates_absorbed;
        self.parked_keys += other.parked_keys;
        self.parked_changes += other.parked_changes;
        self.redriven_in_order += other.redriven_in_order;
        other.findings.into_iter().for_each(|it| self.find(it));
        self.evidence.extend(other.evidence);
    }

    /// Whether everything is as it must be.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, sentence: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(sentence);
        }
    }
}

#[cfg(test)]
mod tests;
