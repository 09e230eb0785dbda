//! Entities and their events, committed through the SDK.

use std::sync::Arc;

use millstream_core::memory::Memory;
use millstream_core::{
    ContainerName, ContainerSettings, Containers, FeedMode, KeyRange, PageSize,
    PartitionKeyDefinition, RandomIds, StartFrom, SystemClock, TimeToLive,
};
use millstream_outbox::{DomainEvent, Entity, Events, NewEvent, Outbox};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gateway::{Serving, block_on};

#[derive(Serialize, Deserialize)]
struct Contact {
    id: String,
    name: String,
    #[serde(skip)]
    events: Events,
}

#[derive(Serialize)]
struct Named {
    name: String,
}

impl DomainEvent for Named {
    fn action(&self) -> &str {
        "ContactNamed"
    }
}

impl Entity for Contact {
    const TYPE: &'static str = "contact";

    fn id(&self) -> &str {
        &self.id
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn created_event(&self) -> Option<NewEvent> {
        Some(Named { name: self.name.clone() }.into())
    }
}

#[test]
fn an_entity_and_its_events_are_committed_together() {
    block_on(async {
        let clock = Arc::new(SystemClock::default());
        let serving = Serving::over(Arc::new(Memory::new(clock.clone()))).await;
        let cosmos = serving.connect().await;
        cosmos.create_database("app").await.unwrap();
        let name = ContainerName::new("app", "data").unwrap();
        let key = PartitionKeyDefinition::hash("/partitionKey").unwrap();
        let settings = ContainerSettings::new(key).default_ttl(TimeToLive::Never);
        cosmos.create(&name, settings).await.unwrap();
        let container = cosmos.open(&name).await.unwrap();
        let ids = Arc::new(RandomIds::new(clock.clone()));
        let outbox = Outbox::new(&container, clock, ids).unwrap();

        let mut unit = outbox.unit();
        let (id, events) = ("17".to_owned(), Events::for_new());
        unit.create(Contact { id, name: "Ada".to_owned(), events }).unwrap();
        let mut committed = unit.commit().await.unwrap();
        let mut contact = committed.take::<Contact>("17").unwrap();
        contact.entity.name = "Ada King".to_owned();
        contact.entity.events.raise(Named { name: "Ada King".to_owned() });
        unit.update(contact.entity, contact.etag).unwrap();
        unit.commit().await.unwrap();

        let (feed, keys) = (&container.feed, KeyRange::all());
        let mode = FeedMode::LatestVersion;
        let start = feed.start(&keys, StartFrom::Beginning, mode).await.unwrap();
        let page = feed.read(&keys, &start, PageSize::default()).await.unwrap();
        let bodies = page.changes.iter().map(|it| it.current.as_ref().unwrap().body.clone());
        let types: Vec<String> = bodies
            .map(|body| {
                let body: Value = serde_json::from_slice(&body).unwrap();
                body["type"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(types, ["domainEvent", "contact", "domainEvent"]);
        let [first, second, third] = page.changes.as_slice() else { panic!("three changes") };
        assert!(first.lsn < second.lsn, "the first event was committed first");
        assert_eq!(second.lsn, third.lsn, "the entity and its event share a number");
    });
}
