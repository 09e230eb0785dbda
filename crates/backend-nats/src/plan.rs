//! What a batch comes down to: messages, what each of them expects, and what the caller is told.
//! Nothing here talks to anybody.

use std::collections::BTreeMap;

use bytes::Bytes;
use millstream_core::{
    ContainerSettings, ItemId, NewBody, OperationResult, PartitionKey, Step, Timestamp,
};

use crate::record::{ItemRecord, Kind, Mark, Stamp, Version, VersionKind, VersionRecord};
use crate::subject::{PartitionNames, RangeNames};
use crate::wire::{Headers, Outgoing};

/// What is known about an item that a batch touches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Of its newest message; 0 if there is none.
    pub(crate) sequence: u64,
    /// What its newest message holds, also if that has expired.
    pub(crate) version: Option<Version>,
    /// Whether `version` is to be treated as if it was not there.
    pub(crate) is_over: bool,
}

impl Known {
    /// What a reader sees.
    pub(crate) fn visible(&self) -> Option<&Version> {
        self.version.as_ref().filter(|_| !self.is_over)
    }
}

/// The last number of the events of a partition.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    /// Of the message that holds it.
    pub(crate) sequence: u64,
    pub(crate) number: u64,
}

/// Where and when a batch happens.
pub(crate) struct Scene<'a> {
    pub(crate) range: &'a RangeNames,
    pub(crate) names: &'a PartitionNames,
    pub(crate) partition_key: &'a PartitionKey,
    pub(crate) settings: &'a ContainerSettings,
    pub(crate) at: Timestamp,
    /// Names the commit.
    pub(crate) batch: String,
    /// Most bytes of one message.
    pub(crate) part_bytes_max: usize,
    pub(crate) claims: ClaimChanges,
}

/// What becomes of unique keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimChanges {
    pub(crate) claims: Vec<ClaimChange>,
    /// Items that have expired and lose what they held. They are removed, so that no other TTL
    /// and no reader that begins to hold events can bring them back.
    pub(crate) rested: BTreeMap<ItemId, Known>,
}

/// Which item has the values of a unique key from now on.
#[derive(Clone, Debug)]
pub(crate) struct ClaimChange {
    pub(crate) subject: String,
    /// The sequence of the newest message.
    pub(crate) expected: u64,
    pub(crate) holder: Option<ItemId>,
}

/// Messages that are stored whole or not at all.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) batch: String,
    pub(crate) messages: Vec<Outgoing>,
    results: Vec<Planned>,
    /// Each item it writes: its subject, what it will hold, and the place of its message from the
    /// end.
    pub(crate) items: Vec<PlannedItem>,
    /// The counter, if it is written; its place from the end.
    pub(crate) counter: Option<(u64, usize)>,
    /// What it expects besides its items: the subject and the sequence of its newest message.
    pub(crate) expected: Vec<(String, u64)>,
}

#[derive(Debug)]
pub(crate) struct PlannedItem {
    pub(crate) subject: String,
    pub(crate) expected: u64,
    pub(crate) version: Option<Version>,
    /// Messages after it.
    pub(crate) from_end: usize,
}

#[derive(Debug)]
enum Planned {
    Created(ItemId, Version),
    Replaced(ItemId, Version),
    Done(OperationResult),
    /// The item an earlier step wrote.
    Again(usize),
}

impl Plan {
    /// What the caller is told once the number of the commit is known.
    pub(crate) fn results(
        &self,
        range: u32,
        lsn: u64,
        key: &PartitionKey,
        settings: &ContainerSettings,
    ) -> Vec<OperationResult> {
        let item = |id: &ItemId, version: &Version| {
            version.item(range, lsn, key, id, settings.default_ttl)
        };
        let mut results: Vec<OperationResult> = Vec::with_capacity(self.results.len());
        for planned in &self.results {
            let result = match planned {
                Planned::Created(id, version) => OperationResult::Created(item(id, version)),
                Planned::Replaced(id, version) => OperationResult::Replaced(item(id, version)),
                Planned::Done(result) => result.clone(),
                Planned::Again(step) => {
                    let written = results[*step].item().cloned();
                    OperationResult::Read(written.expect("an earlier step wrote it"))
                }
            };
            results.push(result);
        }
        results
    }
}

/// Whether a batch changes nothing.
pub(crate) fn only_reads(steps: &[Step]) -> bool {
    steps.iter().all(|step| match step {
        Step::Write { .. } | Step::Delete { .. } => false,
        Step::Read(_) | Step::ReadStep(_) | Step::NotModified => true,
    })
}

/// Turns the steps of a batch that changes something into messages.
pub(crate) fn plan(
    scene: &Scene<'_>,
    steps: Vec<Step>,
    view: &BTreeMap<ItemId, Known>,
    counter: Counter,
) -> Plan {
    let mut draft = Draft::new(scene, counter);
    for (id, known) in &scene.claims.rested {
        draft.expire(id, known);
    }
    let mut results = Vec::with_capacity(steps.len());
    for (step, what) in steps.into_iter().enumerate() {
        results.push(match what {
            Step::Write { id, existed, body } => {
                let version = draft.write(step, &id, body, view);
                match existed {
                    true => Planned::Replaced(id, version),
                    false => Planned::Created(id, version),
                }
            }
            Step::Delete { id } => {
                draft.delete(step, &id, view, VersionKind::Deleted);
                Planned::Done(OperationResult::Deleted)
            }
            Step::Read(item) => Planned::Done(OperationResult::Read(item)),
            Step::ReadStep(earlier) => Planned::Again(earlier),
            Step::NotModified => Planned::Done(OperationResult::NotModified),
        });
    }
    // An item that is only read must still be what it was when the others are written.
    for (id, known) in view {
        if !draft.touched.contains_key(id) {
            draft.looks.push((scene.names.item(id), known.sequence));
        }
    }
    draft.finish(results)
}

/// Removes an item whose time is over.
pub(crate) fn plan_expiry(scene: &Scene<'_>, id: &ItemId, known: &Known) -> Plan {
    let mut draft = Draft::new(scene, Counter::default());
    draft.expire(id, known);
    draft.finish(Vec::new())
}

struct Draft<'a> {
    scene: &'a Scene<'a>,
    counter: Counter,
    counted: bool,
    versions: Vec<(usize, VersionRecord)>,
    touched: BTreeMap<ItemId, Touched>,
    looks: Vec<(String, u64)>,
}

struct Touched {
    expected: u64,
    current: Option<Version>,
    /// The last step that touched it, and how.
    step: usize,
    kind: Kind,
}

impl<'a> Draft<'a> {
    fn new(scene: &'a Scene<'a>, counter: Counter) -> Self {
        Self {
            scene,
            counter,
            counted: false,
            versions: Vec::new(),
            touched: BTreeMap::new(),
            looks: Vec::new(),
        }
    }

    fn write(
        &mut self,
        step: usize,
        id: &ItemId,
        body: NewBody,
        view: &BTreeMap<ItemId, Known>,
    ) -> Version {
        let previous = self.touch(step, id, view, Kind::Written);
        // An event keeps its number when it is replaced.
        let sequence = match previous.as_ref().and_then(|it| it.stamp.sequence) {
            _ if !body.is_event => None,
            Some(number) => Some(number),
            None => {
                self.counted = true;
                self.counter.number += 1;
                Some(self.counter.number)
            }
        };
        let stamp = Stamp { lsn: None, step, at: self.scene.at.as_millis(), ttl: None, sequence };
        let version = Version { stamp: stamp.with_ttl(body.ttl), body: body.bytes };
        let kind = match previous {
            Some(_) => VersionKind::Replaced,
            None => VersionKind::Created,
        };
        self.remember(step, kind, id, Some(version.clone()), previous);
        if let Some(touched) = self.touched.get_mut(id) {
            touched.current = Some(version.clone());
        }
        version
    }

    fn delete(
        &mut self,
        step: usize,
        id: &ItemId,
        view: &BTreeMap<ItemId, Known>,
        kind: VersionKind,
    ) {
        let mark = match kind {
            VersionKind::Expired => Kind::Expired,
            VersionKind::Created | VersionKind::Replaced | VersionKind::Deleted => Kind::Deleted,
        };
        let previous = self.touch(step, id, view, mark);
        self.remember(step, kind, id, None, previous);
    }

    fn expire(&mut self, id: &ItemId, known: &Known) {
        let visible = Known { is_over: false, ..known.clone() };
        let view = BTreeMap::from([(id.clone(), visible)]);
        self.delete(0, id, &view, VersionKind::Expired);
    }

    /// Takes out what the item held so far. One that has expired leaves the history first.
    fn touch(
        &mut self,
        step: usize,
        id: &ItemId,
        view: &BTreeMap<ItemId, Known>,
        kind: Kind,
    ) -> Option<Version> {
        if let Some(touched) = self.touched.get_mut(id) {
            (touched.step, touched.kind) = (step, kind);
            return touched.current.take();
        }
        let known = view.get(id).cloned().unwrap_or_default();
        let touched = Touched { expected: known.sequence, current: None, step, kind };
        self.touched.insert(id.clone(), touched);
        if known.is_over {
            self.remember(step, VersionKind::Expired, id, None, known.version);
            return None;
        }
        known.version
    }

    fn remember(
        &mut self,
        step: usize,
        kind: VersionKind,
        id: &ItemId,
        current: Option<Version>,
        previous: Option<Version>,
    ) {
        if self.scene.settings.all_versions_retention.is_zero() {
            return;
        }
        let partition_key = self.scene.partition_key.clone();
        let record = VersionRecord { kind, partition_key, id: id.clone(), current, previous };
        self.versions.push((step, record));
    }

    /// Looks come first, then the counter, unique keys and the history. Items come last: so the
    /// newest message of a stream is always one that every reader looks at.
    fn finish(self, results: Vec<Planned>) -> Plan {
        let Scene { range, names, partition_key, part_bytes_max, .. } = *self.scene;
        let mut drafts: Vec<(Mark, Outgoing)> = Vec::new();
        for (subject, sequence) in &self.looks {
            let look = message(range.looks(), Bytes::new()).expecting_of(subject, *sequence);
            drafts.push((self.mark(Kind::Look, 0), look));
        }
        if self.counted {
            let payload = Bytes::from(self.counter.number.to_string());
            let counter = message(names.sequence.clone(), payload).expecting(self.counter.sequence);
            drafts.push((self.mark(Kind::Sequence, 0), counter));
        }
        for ClaimChange { subject, expected, holder } in &self.scene.claims.claims {
            let payload =
                holder.as_ref().map_or_else(Bytes::new, |it| it.as_str().to_owned().into());
            let claim = message(subject.clone(), payload).expecting(*expected);
            drafts.push((self.mark(Kind::Claim, 0), claim));
        }
        for (place, (step, record)) in self.versions.iter().enumerate() {
            let bytes = record.encode();
            let parts = bytes.len().div_ceil(part_bytes_max).max(1);
            for part in 0..parts {
                let end = bytes.len().min((part + 1) * part_bytes_max);
                let subject = range.version(&self.scene.batch, place, part);
                let mut message = message(subject, bytes.slice(part * part_bytes_max..end));
                message.headers.set("Millstream-Part", format!("{} {parts}", part + 1));
                drafts.push((self.mark(Kind::Version, *step), message));
            }
        }
        let mut items: Vec<_> = self.touched.iter().collect();
        items.sort_by_key(|(_, touched)| touched.step);
        let mut planned = Vec::with_capacity(items.len());
        for (place, (id, touched)) in items.iter().enumerate() {
            let subject = names.item(id);
            let body = touched.current.as_ref().map(|it| it.body.clone()).unwrap_or_default();
            let mut outgoing = message(subject.clone(), body).expecting(touched.expected);
            ItemRecord::name(&mut outgoing.headers, names.is_hashed, partition_key, id);
            let stamp = touched.current.as_ref().map(|it| it.stamp);
            let mark = Mark {
                ttl: stamp.and_then(|it| it.ttl()),
                sequence: stamp.and_then(|it| it.sequence),
                ..self.mark(touched.kind, touched.step)
            };
            drafts.push((mark, outgoing));
            planned.push(PlannedItem {
                subject,
                expected: touched.expected,
                version: touched.current.clone(),
                from_end: items.len() - 1 - place,
            });
        }
        let count = drafts.len();
        let messages = drafts.into_iter().enumerate().map(|(place, (mark, mut outgoing))| {
            Mark { index: place + 1, count, ..mark }.write(&mut outgoing.headers);
            outgoing
        });
        let messages = messages.collect();
        let counter = self.counted.then(|| (self.counter.number, count - 1 - self.looks.len()));
        let mut expected = self.looks;
        if counter.is_some() {
            expected.push((names.sequence.clone(), self.counter.sequence));
        }
        let claims = self.scene.claims.claims.iter().map(|it| (it.subject.clone(), it.expected));
        expected.extend(claims);
        let batch = self.scene.batch.clone();
        Plan { batch, messages, results, items: planned, counter, expected }
    }

    /// Its place is filled in when all are known.
    fn mark(&self, kind: Kind, step: usize) -> Mark {
        Mark {
            kind,
            index: 0,
            count: 0,
            batch: self.scene.batch.clone(),
            step,
            at: self.scene.at,
            ttl: None,
            sequence: None,
        }
    }
}

fn message(subject: String, payload: Bytes) -> Outgoing {
    Outgoing { subject, headers: Headers::default(), payload }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millstream_core::{Action, Batch, Operation, PartitionKeyDefinition};

    use super::*;

    fn settings(retention: u64) -> ContainerSettings {
        ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap())
            .all_versions_retention(Duration::from_secs(retention))
    }

    /// One word for each message: its kind, the last token of its subject, and what it expects.
    fn shown(plan: &Plan) -> String {
        let word = |message: &Outgoing| {
            let mark = message.headers.get("Millstream").unwrap();
            let fields: Vec<&str> = mark.split(' ').collect();
            let expected = message.headers.get("Nats-Expected-Last-Subject-Sequence");
            let expected = expected.unwrap_or("-");
            format!("{}{}/{}:{expected}", fields[1], fields[2], fields[3])
        };
        plan.messages.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check(batch: Batch, view: &[(&str, Known)], retention: u64, expected: &str) -> Plan {
        let settings = settings(retention);
        let key = batch.partition_key.clone();
        let effective = settings.partition_key.effective(&key).unwrap();
        let range = RangeNames::new("m", 1, 0);
        let names = PartitionNames::new(&range, &effective, &key);
        let view: BTreeMap<ItemId, Known> =
            view.iter().map(|(id, known)| (ItemId::new(id).unwrap(), known.clone())).collect();
        let checked = batch.check(&settings).unwrap();
        let steps = checked.operations.iter().map(|operation| match &operation.action {
            Action::Create(body) | Action::Upsert(body) => {
                let existed = view.get(&operation.id).is_some_and(|it| it.visible().is_some());
                Step::Write { id: operation.id.clone(), existed, body: body.clone() }
            }
            Action::Delete => Step::Delete { id: operation.id.clone() },
            other @ (Action::Replace(_) | Action::Patch(_) | Action::Read) => {
                panic!("{other:?} is not used here")
            }
        });
        let scene = Scene {
            range: &range,
            names: &names,
            partition_key: &key,
            settings: &settings,
            at: Timestamp::from_millis(7),
            batch: "b".to_owned(),
            part_bytes_max: 100,
            claims: ClaimChanges::default(),
        };
        let counter = Counter { sequence: 5, number: 2 };
        let plan = plan(&scene, steps.collect(), &view, counter);
        assert_eq!(shown(&plan), expected);
        plan
    }

    fn body(id: &str, rest: &str) -> String {
        format!(r#"{{"id":"{id}","pk":"k"{rest}}}"#)
    }

    fn known(sequence: u64, is_over: bool) -> Known {
        let stamp = Stamp { lsn: Some(sequence), step: 0, at: 1, ttl: None, sequence: None };
        Known { sequence, version: Some(Version { stamp, body: "{}".into() }), is_over }
    }

    #[test]
    fn an_item_is_one_message_that_expects_what_was_seen() {
        check(Batch::new("k").with(Operation::create(body("a", ""))), &[], 0, "w1/1:0");
        let replace = Batch::new("k").with(Operation::upsert(body("a", "")));
        check(replace, &[("a", known(9, false))], 0, "w1/1:9");
    }

    #[test]
    fn items_come_last_and_each_once() {
        let event = body("e", r#","type":"domainEvent""#);
        let batch = Batch::new("k")
            .with(Operation::upsert(body("a", "")))
            .with(Operation::create(event))
            .with(Operation::upsert(body("a", r#","n":1"#)));
        let plan = check(batch, &[("a", known(9, false))], 0, "s1/3:5 w2/3:0 w3/3:9");
        assert_eq!(plan.counter, Some((3, 2)));
        let places: Vec<usize> = plan.items.iter().map(|it| it.from_end).collect();
        assert_eq!(places, [1, 0]);
    }

    #[test]
    fn an_item_that_is_only_looked_at_must_not_change() {
        let batch = Batch::new("k").with(Operation::upsert(body("a", "")));
        let view = [("a", known(9, false)), ("other", known(4, false))];
        check(batch, &view, 0, "r1/2:4 w2/2:9");
    }

    #[test]
    fn the_history_has_every_step_and_what_expired_before() {
        let batch = Batch::new("k")
            .with(Operation::create(body("a", "")))
            .with(Operation::delete(ItemId::new("a").unwrap()));
        // Descriptions are longer than a message may be here, so some take two.
        let expected = "v1/6:- v2/6:- v3/6:- v4/6:- v5/6:- d6/6:9";
        check(batch, &[("a", known(9, true))], 60, expected);
    }
}
