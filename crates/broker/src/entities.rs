//! Creating, changing, listing and removing queues, topics, subscriptions and rules.

use std::sync::Arc;

use millstream_core::{Error, ErrorKind, Operation, Result};

use crate::broker::Broker;
use crate::ledger::Ledger;
use crate::load;
use crate::log::QUEUE_OUTLET;
use crate::outlet::Outlet;
use crate::path::{check_entity_name, check_subscription_name};
use crate::routes::Routes;
use crate::settings::{
    QueueSettings, Rule, SUBSCRIPTIONS_MAX, SubscriptionSettings, TopicSettings,
};
use crate::shared::{EntityCell, EntityState};
use crate::stored::{self, Definition, EntityDocument, StoredSubscription};

impl Broker {
    /// Creates a queue. `AlreadyExists` if there is a queue or topic of this name.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future of this or any other method that changes entities may leave the change
    /// made or not, never half.
    pub async fn create_queue(&self, name: &str, settings: QueueSettings) -> Result<()> {
        settings.check()?;
        self.create(name, Definition::Queue(settings)).await
    }

    /// Creates a topic. `AlreadyExists` if there is a queue or topic of this name.
    ///
    /// # Cancel safety
    ///
    /// As for [`Broker::create_queue`].
    pub async fn create_topic(&self, name: &str, settings: TopicSettings) -> Result<()> {
        settings.check()?;
        let subscriptions = Vec::new();
        self.create(name, Definition::Topic { settings, last_subscription: 0, subscriptions }).await
    }

    /// Creates a subscription; it gets messages that are sent from now on.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such topic, `AlreadyExists` if it has such a subscription,
    /// `TooLarge` if it has a thousand.
    ///
    /// # Cancel safety
    ///
    /// As for [`Broker::create_queue`].
    pub async fn create_subscription(
        &self,
        topic: &str,
        name: &str,
        settings: SubscriptionSettings,
    ) -> Result<()> {
        check_subscription_name(name)?;
        settings.check()?;
        let attempted = format!("create subscription {name:?} of {topic:?}");
        self.change(topic, |definition| {
            let Definition::Topic { last_subscription, subscriptions, .. } = definition else {
                return Err(Error::invalid(attempted, "a queue has no subscriptions"));
            };
            if subscriptions.iter().any(|it| it.name.eq_ignore_ascii_case(name)) {
                let error = Error::new(ErrorKind::AlreadyExists, attempted);
                return Err(error.because("there is one of this name"));
            }
            if SUBSCRIPTIONS_MAX <= subscriptions.len() || *last_subscription == u16::MAX {
                let error = Error::new(ErrorKind::TooLarge, attempted);
                return Err(error.because("a topic has at most 1000 subscriptions"));
            }
            *last_subscription += 1;
            let (number, name) = (*last_subscription, name.to_owned());
            subscriptions.push(StoredSubscription { number, name, settings });
            Ok(())
        })
        .await
    }

    /// Changes a queue; whether it has sessions stays.
    ///
    /// # Cancel safety
    ///
    /// As for [`Broker::create_queue`].
    pub async fn update_queue(&self, name: &str, settings: QueueSettings) -> Result<()> {
        settings.check()?;
        self.change(name, |definition| match definition {
            Definition::Queue(current) => {
                let same = current.receive.requires_session == settings.receive.requires_session;
                *current = settings;
                if same { Ok(()) } else { Err(sessions_are_fixed(name)) }
            }
            Definition::Topic { .. } => Err(not_a("queue", name)),
        })
        .await
    }

    /// Changes a topic.
    ///
    /// # Cancel safety
    ///
    /// As for [`Broker::create_queue`].
    pub async fn update_topic(&self, name: &str, new: TopicSettings) -> Result<()> {
        new.check()?;
        self.change(name, |definition| match definition {
            Definition::Topic { settings, .. } => {
                *settings = new;
                Ok(())
            }
            Definition::Queue(_) => Err(not_a("topic", name)),
        })
        .await
    }

    /// Changes a subscription and its rules; whether it has sessions stays. New rules count for
    /// messages that are sent from now on.
    ///
    /// # Cancel safety
    ///
    /// As for [`Broker::create_queue`].
    pub async fn update_subscription(
        &self,
        topic: &str,
        name: &str,
        settings: SubscriptionSettings,
    ) -> Result<()> {
        self.change_subscription(topic, name, |current| {
            let same = current.receive.requires_session == settings.receive.requires_session;
            *current = settings;
            if same { Ok(()) } else { Err(sessions_are_fixed(name)) }
        })
        .await
    }

    /// Adds a rule to a subscription. `AlreadyExists` if it has one of this name.
    ///
    /// # Cancel safety
    ///
    /// As for [`Broker::create_queue`].
    pub async fn add_rule(&self, topic: &str, subscription: &str, rule: Rule) -> Result<()> {
        rule.filter.check()?;
        self.change_subscription(topic, subscription, |settings| {
            if settings.rules.iter().any(|it| it.name.eq_ignore_ascii_case(&rule.name)) {
                let attempted = format!("add the rule {:?}", rule.name);
                let error = Error::new(ErrorKind::AlreadyExists, attempted);
                return Err(error.because("there is one of this name"));
            }
            settings.rules.push(rule);
            Ok(())
        })
        .await
    }

    /// Removes a rule of a subscription. `NotFound` if it has none of this name.
    ///
    /// # Cancel safety
    ///
    /// As for [`Broker::create_queue`].
    pub async fn remove_rule(&self, topic: &str, subscription: &str, rule: &str) -> Result<()> {
        self.change_subscription(topic, subscription, |settings| {
            let before = settings.rules.len();
            settings.rules.retain(|it| !it.name.eq_ignore_ascii_case(rule));
            if settings.rules.len() == before {
                let error = Error::new(ErrorKind::NotFound, format!("remove the rule {rule:?}"));
                return Err(error.because("there is none of this name"));
            }
            Ok(())
        })
        .await
    }

    /// Removes a queue or topic with everything in it. `NotFound` if there is none of this name.
    ///
    /// # Cancel safety
    ///
    /// As for [`Broker::create_queue`].
    pub async fn delete_entity(&self, name: &str) -> Result<()> {
        let shared = &self.shared;
        let mut catalog = shared.catalog.lock().await;
        let lower = name.to_ascii_lowercase();
        let cell = shared.cell(&lower)?;
        let document = cell.state().document.clone();
        let gone = document.gone();
        let operations =
            vec![stored::delete(&document.id), Operation::upsert(stored::document(&gone))];
        let next = catalog.next_sequence();
        catalog.commit(operations, next).await?;
        shared.entities().remove(&lower);
        self.forget(&cell);
        // Nothing is being committed any more once this is free. What fails from here on is done
        // when the broker is opened again.
        let _ledger = cell.ledger.lock().await;
        load::remove(shared.documents(), &document.partition()).await?;
        let next = catalog.next_sequence();
        catalog.commit(vec![stored::delete(&gone.id)], next).await
    }

    /// Removes a subscription with its messages. `NotFound` if there is none of this name.
    ///
    /// # Cancel safety
    ///
    /// As for [`Broker::create_queue`].
    pub async fn delete_subscription(&self, topic: &str, name: &str) -> Result<()> {
        self.change(topic, |definition| {
            let Definition::Topic { subscriptions, .. } = definition else {
                return Err(not_a("topic", topic));
            };
            let before = subscriptions.len();
            subscriptions.retain(|it| !it.name.eq_ignore_ascii_case(name));
            if subscriptions.len() == before { Err(no_subscription(topic, name)) } else { Ok(()) }
        })
        .await
    }

    /// All queues by name.
    #[must_use]
    pub fn queues(&self) -> Vec<(String, QueueSettings)> {
        self.documents()
            .filter_map(|it| match it.definition {
                Definition::Queue(settings) => Some((it.name, settings)),
                Definition::Topic { .. } => None,
            })
            .collect()
    }

    /// All topics by name.
    #[must_use]
    pub fn topics(&self) -> Vec<(String, TopicSettings)> {
        self.documents()
            .filter_map(|it| match it.definition {
                Definition::Topic { settings, .. } => Some((it.name, settings)),
                Definition::Queue(_) => None,
            })
            .collect()
    }

    /// The subscriptions of a topic in the order they were created.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such topic.
    pub fn subscriptions(&self, topic: &str) -> Result<Vec<(String, SubscriptionSettings)>> {
        let cell = self.shared.cell(&topic.to_ascii_lowercase())?;
        let document = cell.state().document.clone();
        match document.definition {
            Definition::Topic { subscriptions, .. } => {
                Ok(subscriptions.into_iter().map(|it| (it.name, it.settings)).collect())
            }
            Definition::Queue(_) => Err(not_a("topic", topic)),
        }
    }

    /// Ends an entity in memory.
    fn forget(&self, cell: &EntityCell) {
        let mut state = cell.state();
        let attempted = format!("use {:?}", state.document.name);
        let error = Error::new(ErrorKind::NotFound, attempted).because("it was removed");
        state.is_gone = true;
        state.fail(&error);
        drop(state);
        let mut agenda = self.shared.agenda();
        agenda.cells.remove(&cell.generation);
        agenda.busy.remove(&cell.generation);
    }

    fn documents(&self) -> impl Iterator<Item = EntityDocument> {
        let cells: Vec<Arc<EntityCell>> = self.shared.entities().values().cloned().collect();
        cells.into_iter().map(|it| it.state().document.clone())
    }

    async fn create(&self, name: &str, definition: Definition) -> Result<()> {
        check_entity_name(name)?;
        let shared = &self.shared;
        let mut catalog = shared.catalog.lock().await;
        let lower = name.to_ascii_lowercase();
        if shared.entities().contains_key(&lower) {
            let error = Error::new(ErrorKind::AlreadyExists, format!("create {name:?}"));
            return Err(error.because("there is a queue or topic of this name"));
        }
        let generation = catalog.next_sequence();
        let document = EntityDocument::new(name, generation, definition);
        let operation = Operation::upsert(stored::document(&document));
        commit(&mut catalog, operation, generation + 1).await?;
        let cell = load::entity(&shared.setup, document).await?;
        // Another broker may have been opened in between and have changed it; see `Broker::open`.
        let next = catalog.next_sequence();
        catalog.commit(Vec::new(), next).await?;
        shared.agenda().cells.insert(generation, Arc::clone(&cell));
        shared.entities().insert(lower, cell);
        Ok(())
    }

    async fn change_subscription(
        &self,
        topic: &str,
        name: &str,
        change: impl FnOnce(&mut SubscriptionSettings) -> Result<()>,
    ) -> Result<()> {
        self.change(topic, |definition| {
            let Definition::Topic { subscriptions, .. } = definition else {
                return Err(not_a("topic", topic));
            };
            let found = subscriptions.iter_mut().find(|it| it.name.eq_ignore_ascii_case(name));
            let found = found.ok_or_else(|| no_subscription(topic, name))?;
            change(&mut found.settings)?;
            found.settings.check()
        })
        .await
    }

    /// Changes what an entity is: in the catalog first, then in memory.
    async fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut Definition) -> Result<()>,
    ) -> Result<()> {
        let shared = &self.shared;
        let mut catalog = shared.catalog.lock().await;
        let cell = shared.cell(&name.to_ascii_lowercase())?;
        let mut document = cell.state().document.clone();
        change(&mut document.definition)?;
        let next = catalog.next_sequence();
        commit(&mut catalog, Operation::upsert(stored::document(&document)), next).await?;
        shared.with(&cell, |state, _| {
            apply(state, document);
            state.entity.plant(shared.setup.flaw);
            Ok(())
        })
    }
}

/// Brings an entity in memory to its new definition.
fn apply(state: &mut EntityState, document: EntityDocument) {
    state.routes = Arc::new(Routes::of(&document.definition));
    let entity = &mut state.entity;
    match &document.definition {
        Definition::Queue(settings) => {
            entity.duplicates.set_window(settings.duplicate_window);
            if let Some(outlet) = entity.outlets.get_mut(&QUEUE_OUTLET) {
                outlet.update(settings.receive.clone(), None);
            }
        }
        Definition::Topic { settings, subscriptions, .. } => {
            entity.duplicates.set_window(settings.duplicate_window);
            let is_there = |number: u16| subscriptions.iter().any(|it| it.number == number);
            let gone: Vec<u16> =
                entity.outlets.keys().copied().filter(|it| !is_there(*it)).collect();
            gone.into_iter().for_each(|it| entity.remove_outlet(it));
            let longest = settings.default_time_to_live;
            for it in subscriptions {
                let receive = it.settings.receive.clone();
                match entity.outlets.get_mut(&it.number) {
                    Some(outlet) => outlet.update(receive, longest),
                    None => {
                        let outlet = Outlet::new(it.number, receive, longest);
                        entity.outlets.insert(it.number, outlet);
                    }
                }
            }
        }
    }
    entity.expect_expiry();
    state.document = document;
    state.wake_all();
}

async fn commit(catalog: &mut Ledger, operation: Operation, next: u64) -> Result<()> {
    catalog.commit(vec![operation], next).await
}

fn sessions_are_fixed(name: &str) -> Error {
    Error::invalid(format!("change {name:?}"), "whether it requires sessions cannot be changed")
}

fn not_a(kind: &str, name: &str) -> Error {
    Error::invalid(format!("change {name:?}"), format!("it is not a {kind}"))
}

fn no_subscription(topic: &str, name: &str) -> Error {
    let error = Error::new(ErrorKind::NotFound, format!("find {name:?} of {topic:?}"));
    error.because("the topic has no subscription of this name")
}
