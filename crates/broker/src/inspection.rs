//! Reading everything that a broker has stored, without opening it and without changing anything.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use millstream_core::{Clock, Container, Item, KeyRange, PartitionKey, Result, ScanScope};

use crate::codec::decode_message;
use crate::load;
use crate::log::{Moment, Segment, Sessions};
use crate::stored::{self, CATALOG, DocumentKind, EntityDocument, HEAD, Head, item_id};

/// What is in the container of a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Queues and topics.
    pub entities: usize,
    /// Messages that are kept, each once however many subscriptions want it.
    pub messages: usize,
    /// What should not be, each in a sentence.
    pub problems: Vec<String>,
}

/// Reads all documents of the broker that lives in `container`, each of its messages as well, and
/// checks that they fit together. Nobody may write meanwhile.
///
/// # Errors
///
/// Those of the store. What cannot be understood is no error but a problem.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn inspect(container: &Container, clock: &dyn Clock) -> Result<Inspection> {
    let mut inspection = Inspection::default();
    let documents = &container.documents;
    let now = Moment { wall: clock.now(), monotonic: clock.monotonic() };
    let mut known = BTreeSet::from([PartitionKey::from(CATALOG)]);
    let mut entities = Vec::new();
    load::visit(documents, &ScanScope::Partition(PartitionKey::from(CATALOG)), |item| {
        if item.id.as_str() == HEAD {
            return Ok(());
        }
        match stored::parse::<EntityDocument>(&item.body) {
            Ok(document) => {
                known.insert(PartitionKey::from(document.partition()));
                entities.push(document);
            }
            Err(error) => {
                let id = item.id.as_str();
                inspection.problems.push(format!("the catalog entry {id:?}: {}", error.report()));
            }
        }
        Ok(())
    })
    .await?;
    let next = inspection.head(container, CATALOG).await?.map(|it| it.next_sequence);
    for document in entities {
        if next.is_none_or(|it| it <= document.generation) {
            let name = &document.name;
            inspection.problems.push(format!("{name:?} is newer than the catalog that lists it"));
        }
        // What is left of one that was removed goes when the broker is opened.
        if !document.is_gone {
            inspection.entity(container, &document, now).await?;
        }
    }
    let mut strangers: BTreeMap<String, u64> = BTreeMap::new();
    load::visit(documents, &ScanScope::Keys(KeyRange::all()), |item| {
        if !known.contains(&item.partition_key) {
            *strangers.entry(item.partition_key.to_string()).or_default() += 1;
        }
        Ok(())
    })
    .await?;
    for (key, count) in strangers {
        let problem = format!("{count} documents of {key} belong to no queue or topic");
        inspection.problems.push(problem);
    }
    Ok(inspection)
}

impl Inspection {
    /// Reads the documents of a queue or topic.
    async fn entity(
        &mut self,
        container: &Container,
        document: &EntityDocument,
        now: Moment,
    ) -> Result<()> {
        self.entities += 1;
        let partition = document.partition();
        let head = self.head(container, &partition).await?;
        // Where there is none, a broker died between making the entity and its first commit.
        let next_sequence = head.map_or(1, |it| it.next_sequence);
        let mut entity = load::empty(document, next_sequence);
        // The segments before, up to where.
        let mut end = 0;
        let scope = ScanScope::Partition(PartitionKey::from(partition.as_str()));
        load::visit(&container.documents, &scope, |item| {
            let kind = stored::kind_of(item.id.as_str());
            let outcome = match kind {
                DocumentKind::Segment(first) => self.segment(first, item, &mut end),
                DocumentKind::State(_) => stored::unpack_state(&item.body).map(|_| ()),
                DocumentKind::Head
                | DocumentKind::Ack(..)
                | DocumentKind::Ids
                | DocumentKind::Unknown => Ok(()),
            };
            let outcome = outcome.and_then(|()| load::read(&mut entity, kind, item, now));
            if let Err(error) = outcome {
                let (name, id) = (&document.name, item.id.as_str());
                self.problems.push(format!("{name:?}, document {id:?}: {}", error.report()));
            }
            Ok(())
        })
        .await?;
        if next_sequence < end {
            let name = &document.name;
            self.problems.push(format!(
                "{name:?} has messages up to number {}, but would give {next_sequence} to the next",
                end - 1
            ));
        }
        self.messages += entity.messages();
        Ok(())
    }

    /// Reads each message of a segment.
    fn segment(&mut self, first: u64, item: &Item, end: &mut u64) -> Result<()> {
        let bytes = Bytes::from(stored::unpack(&item.body)?.0);
        let segment = Segment::decode(first, &bytes, &mut Sessions::default())?;
        if first < *end {
            self.problems.push(format!("two segments have messages from number {first} on"));
        }
        *end = segment.end();
        for place in segment.places() {
            if let Some(message) = place.find(&bytes)? {
                decode_message(&message)?;
            }
        }
        Ok(())
    }

    /// Reads the document that every commit replaces.
    async fn head(&mut self, container: &Container, partition: &str) -> Result<Option<Head>> {
        let key = PartitionKey::from(partition);
        let Some(item) = container.documents.read(&key, &item_id(HEAD)).await? else {
            return Ok(None);
        };
        match stored::parse(&item.body) {
            Ok(head) => Ok(Some(head)),
            Err(error) => {
                self.problems.push(format!("the commits of {partition:?}: {}", error.report()));
                Ok(None)
            }
        }
    }
}
