use std::sync::Arc;
use std::time::Duration;

use millstream_core::Clock;
use millstream_outbox::TraceContext;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::random::Random;
use crate::{
    CompanyDraft, ContactCompanyUpdated, ContactCreated, ContactDeleted, ContactDescriptionUpdated,
    ContactEmailUpdated, ContactNameUpdated, ContactService, Draft, ErrorKind, Result, Tally,
};

const FIRST_NAMES: &[&str] =
    &["Ada", "Alan", "Barbara", "Edsger", "Frances", "Grace", "Karen", "Leslie", "Niklaus", "Tony"];
const LAST_NAMES: &[&str] =
    &["Allen", "Dijkstra", "Hoare", "Hopper", "Jones", "Lamport", "Liskov", "Turing", "Wirth"];
const COMPANIES: &[&str] =
    &["Bellows & Sons", "Cogwheel Works", "Millrace Water", "Northern Looms", "Sluice and Gate"];
const CITIES: &[&str] = &["Ghent", "Kyoto", "Leeds", "Porto", "Uppsala", "Zagreb"];
const NOTES: &[&str] =
    &["Met at the fair", "Prefers letters", "Back in spring", "Knows the river", "Pays early"];

/// Slowest and fastest pace, in changes a second.
const PER_SECOND_MIN: f64 = 0.001;
const PER_SECOND_MAX: f64 = 100_000.0;
/// Contacts read at once when a generator goes on with what is there.
const PAGE_SIZE: usize = 100;

/// Settings of a [`Generator`].
#[derive(Clone, Debug)]
pub struct GeneratorOptions {
    seed: u64,
    per_second: f64,
    contacts_max: usize,
}

/// What a generator did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedChange {
    /// The event it raised.
    pub action: &'static str,
    /// The contact.
    pub id: Uuid,
}

/// What a generator has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GeneratorStatistics {
    /// Contacts added.
    pub created: u64,
    /// Changes of contacts.
    pub updated: u64,
    /// Contacts deleted.
    pub deleted: u64,
    /// Changes that failed.
    pub failed: u64,
}

/// Makes changes to contacts at a gentle pace, for a demonstration. The same seed makes the same
/// changes.
#[derive(Debug)]
pub struct Generator {
    service: ContactService,
    clock: Arc<dyn Clock>,
    random: Random,
    options: GeneratorOptions,
    known: Vec<Uuid>,
    changes: u64,
    tally: Tally<GeneratorStatistics>,
}

impl Default for GeneratorOptions {
    fn default() -> Self {
        Self { seed: 1, per_second: 5.0, contacts_max: 200 }
    }
}

impl GeneratorOptions {
    /// What the changes follow from. Default: 1.
    #[must_use]
    pub fn seed(mut self, value: u64) -> Self {
        self.seed = value;
        self
    }

    /// Changes a second. Default: 5.
    #[must_use]
    pub fn per_second(mut self, value: f64) -> Self {
        self.per_second = value;
        self
    }

    /// Most contacts that are alive at once; then one is deleted for each that is added. Default:
    /// 200.
    #[must_use]
    pub fn contacts_max(mut self, value: usize) -> Self {
        self.contacts_max = value;
        self
    }

    fn pause(&self) -> Duration {
        let per_second = if self.per_second.is_nan() { 1.0 } else { self.per_second };
        Duration::from_secs_f64(1.0 / per_second.clamp(PER_SECOND_MIN, PER_SECOND_MAX))
    }
}

impl Generator {
    /// A generator that has done nothing yet.
    #[must_use]
    pub fn new(service: ContactService, clock: Arc<dyn Clock>, options: GeneratorOptions) -> Self {
        let random = Random::new(options.seed);
        let (known, tally) = (Vec::new(), Tally::default());
        Self { service, clock, random, options, known, changes: 0, tally }
    }

    /// What it has done, also while it runs.
    #[must_use]
    pub fn statistics(&self) -> Tally<GeneratorStatistics> {
        self.tally.clone()
    }

    /// Makes changes until `shutdown`, beginning with contacts that are there already. A change
    /// that fails is counted, and the next one is tried at its time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the last change made or not.
    pub async fn run(mut self, shutdown: CancellationToken) {
        if let Err(error) = self.adopt().await {
            tracing::warn!(error = error.report(), "could not look for contacts to change");
        }
        let pause = self.options.pause();
        let mut due = self.clock.monotonic();
        while !shutdown.is_cancelled() {
            if let Err(error) = self.step().await {
                tracing::debug!(error = error.report(), "generated change failed");
            }
            // What was missed while the store was slow is not made up for.
            let now = self.clock.monotonic();
            due = (due + pause).max(now);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.clock.sleep(due - now) => (),
            }
        }
    }

    /// Makes one change.
    ///
    /// # Errors
    ///
    /// Those of the service. A contact that somebody else has deleted is forgotten.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the change made or not.
    pub async fn step(&mut self) -> Result<GeneratedChange> {
        self.changes += 1;
        let roll = self.random.below(100);
        let outcome = if self.known.is_empty() {
            self.create().await
        } else if roll < 25 {
            let is_full = self.options.contacts_max <= self.known.len();
            if is_full { self.delete().await } else { self.create().await }
        } else if roll < 90 {
            self.update().await
        } else {
            self.delete().await
        };
        self.tally.count(|it| match &outcome {
            Ok(change) if change.action == ContactCreated::ACTION => it.created += 1,
            Ok(change) if change.action == ContactDeleted::ACTION => it.deleted += 1,
            Ok(_) => it.updated += 1,
            Err(_) => it.failed += 1,
        });
        outcome
    }

    /// Takes over contacts that are there already.
    async fn adopt(&mut self) -> Result<()> {
        let mut continuation = None;
        while self.known.len() < self.options.contacts_max {
            let page = self.service.list(PAGE_SIZE, continuation.as_deref()).await?;
            let ids = page.contacts.iter().filter_map(|it| it.id.parse::<Uuid>().ok());
            self.known.extend(ids.take(self.options.contacts_max - self.known.len()));
            continuation = page.continuation;
            if continuation.is_none() {
                break;
            }
        }
        Ok(())
    }

    async fn create(&mut self) -> Result<GeneratedChange> {
        let (first, last) = self.name();
        let draft = Draft {
            email: Some(self.email()),
            description: Some(self.random.one_of(NOTES).to_owned()),
            company_name: self.random.one_of(COMPANIES).to_owned(),
            ..Draft::named(first, last)
        };
        let created = self.caller().create(&draft).await?;
        let id = created.contact.id.parse().unwrap_or_default();
        self.known.push(id);
        Ok(GeneratedChange { action: ContactCreated::ACTION, id })
    }

    async fn update(&mut self) -> Result<GeneratedChange> {
        let place = self.random.below(self.known.len());
        let id = self.known[place];
        let service = self.caller();
        let (action, outcome) = match self.random.below(4) {
            0 => {
                let (first, last) = self.name();
                let outcome = service.update_name(id, None, first, last).await;
                (ContactNameUpdated::ACTION, outcome)
            }
            1 => {
                let email = self.email();
                let outcome = service.update_email(id, None, Some(&email)).await;
                (ContactEmailUpdated::ACTION, outcome)
            }
            2 => {
                let text = format!("{}, {}", self.random.one_of(NOTES), self.changes);
                let outcome = service.update_description(id, None, Some(&text)).await;
                (ContactDescriptionUpdated::ACTION, outcome)
            }
            _ => {
                let company = self.company();
                let outcome = service.update_company(id, None, &company).await;
                (ContactCompanyUpdated::ACTION, outcome)
            }
        };
        self.finish(place, action, outcome.map(drop))
    }

    async fn delete(&mut self) -> Result<GeneratedChange> {
        let place = self.random.below(self.known.len());
        let outcome = self.caller().delete(self.known[place], None).await;
        let change = self.finish(place, ContactDeleted::ACTION, outcome.map(drop))?;
        self.known.swap_remove(place);
        Ok(change)
    }

    fn finish(
        &mut self,
        place: usize,
        action: &'static str,
        outcome: Result<()>,
    ) -> Result<GeneratedChange> {
        let id = self.known[place];
        if outcome.as_ref().is_err_and(|error| *error.kind() == ErrorKind::NotFound) {
            self.known.swap_remove(place);
        }
        outcome.map(|()| GeneratedChange { action, id })
    }

    /// The service in a trace of its own, as if each change came with a request.
    fn caller(&mut self) -> ContactService {
        let (high, low, span) = (self.random.next(), self.random.next(), self.random.next() | 1);
        let parent = format!("00-{high:016x}{low:016x}-{span:016x}-01");
        let trace = TraceContext::from_headers(Some(&parent), None, Some("source=generator"));
        self.service.for_caller(trace)
    }

    fn name(&mut self) -> (&'static str, &'static str) {
        (self.random.one_of(FIRST_NAMES), self.random.one_of(LAST_NAMES))
    }

    fn email(&mut self) -> String {
        let name = self.random.one_of(FIRST_NAMES).to_lowercase();
        format!("{name}.{}@example.com", self.changes)
    }

    fn company(&mut self) -> CompanyDraft {
        CompanyDraft {
            company_name: self.random.one_of(COMPANIES).to_owned(),
            house_number: Some(self.changes.to_string()),
            city: Some(self.random.one_of(CITIES).to_owned()),
            ..CompanyDraft::default()
        }
    }
}
