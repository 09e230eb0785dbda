use std::fmt;
use std::sync::Arc;

use millstream_core::{Clock, Container, Etag, IdSource, ScanContinuation, Timestamp};
use millstream_outbox::{Entity, Outbox, OutboxOptions, TraceContext, UnitOfWork, Versioned};
use uuid::Uuid;

use crate::{
    ChangeError, CompanyDraft, Contact, ContactSummary, ContactView, Draft, Error, ErrorKind,
    Invalid, Result,
};

/// Attempts to commit when the answer of the store is lost; a repeated attempt finds out what
/// became of the first.
const COMMITS_MAX: usize = 3;

/// Contacts in a container. Each call is one commit of a contact together with its event. Clones
/// are cheap and share everything.
#[derive(Clone)]
pub struct ContactService {
    container: Arc<Container>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    options: OutboxOptions,
    outbox: Outbox,
}

/// A contact that was just added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// The contact.
    pub contact: ContactView,
    /// Its version; none if a lost answer hid it and somebody has changed the contact since.
    pub etag: Option<Etag>,
}

/// A page of contacts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContactPage {
    /// The contacts; there may be none though more pages follow.
    pub contacts: Vec<ContactSummary>,
    /// Where to go on; none at the end.
    pub continuation: Option<String>,
}

/// Which version of a contact a caller wants to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfMatch {
    /// Whichever there is.
    Any,
    /// One of these.
    OneOf(Vec<Etag>),
}

impl IfMatch {
    fn allows(&self, etag: &Etag) -> bool {
        match self {
            Self::Any => true,
            Self::OneOf(etags) => etags.contains(etag),
        }
    }
}

impl From<Etag> for IfMatch {
    fn from(etag: Etag) -> Self {
        Self::OneOf(vec![etag])
    }
}

impl ContactService {
    /// Largest page of a list.
    pub const PAGE_SIZE_MAX: usize = 100;

    /// A service with the default options of an outbox; see [`ContactService::new_with`].
    ///
    /// # Errors
    ///
    /// As [`ContactService::new_with`].
    pub fn new(
        container: &Container,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self> {
        Self::new_with(container, clock, ids, OutboxOptions::default())
    }

    /// A service that keeps its contacts in `container`.
    ///
    /// # Errors
    ///
    /// `Failed` if the container cannot be an outbox: it needs a type of events and a default TTL.
    pub fn new_with(
        container: &Container,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        options: OutboxOptions,
    ) -> Result<Self> {
        let outbox = open(container, &clock, &ids, options.clone())
            .map_err(|error| Error::of_outbox("start the service", error))?;
        Ok(Self { container: Arc::new(container.clone()), clock, ids, options, outbox })
    }

    /// The same service on behalf of one caller: events carry the trace of its request.
    #[must_use]
    pub fn for_caller(&self, trace: TraceContext) -> Self {
        if trace.is_empty() {
            return self.clone();
        }
        let options = self.options.clone().trace(move || trace.clone());
        let outbox = open(&self.container, &self.clock, &self.ids, options)
            .expect("the same container was an outbox before");
        Self { outbox, ..self.clone() }
    }

    /// Adds a contact.
    ///
    /// # Errors
    ///
    /// `Invalid` with all fields that are wrong; `Overloaded`, `Unavailable`, `Unknown`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future of any method may leave its change made or not, never a contact without
    /// its event.
    pub async fn create(&self, draft: &Draft) -> Result<Created> {
        let attempted = "create the contact";
        let id = self.ids.next_id();
        let contact = Contact::new(id, draft, self.clock.now())
            .map_err(|invalid| Error::of_change(attempted, invalid.into()))?;
        let view = ContactView::from(&contact);
        let mut unit = self.outbox.unit();
        unit.create(contact).map_err(|error| Error::of_outbox(attempted, error))?;
        let etag = self.commit(unit, &view.id, attempted).await?;
        Ok(Created { contact: view, etag })
    }

    /// Returns a contact; none if there is no such contact or it is deleted.
    ///
    /// # Errors
    ///
    /// `Overloaded`, `Unavailable`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn read(&self, id: Uuid) -> Result<Option<(ContactView, Etag)>> {
        let found = self.find(&self.outbox.unit(), id).await?;
        Ok(found.map(|it| ((&it.entity).into(), it.etag)))
    }

    /// Returns a page of the contacts that are not deleted, in no particular order.
    ///
    /// # Errors
    ///
    /// `Invalid` if the size is not 1 to 100 or the continuation is not one; `Overloaded`,
    /// `Unavailable`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn list(&self, page_size: usize, continuation: Option<&str>) -> Result<ContactPage> {
        let attempted = "list contacts";
        let invalid = |field, sentence: &str| {
            let invalid = Invalid::field(field, sentence);
            Error::of_change(attempted, invalid.into())
        };
        if !(1..=Self::PAGE_SIZE_MAX).contains(&page_size) {
            return Err(invalid("pageSize", "must be a number from 1 to 100"));
        }
        let after = continuation.map(ScanContinuation::new);
        let page = self.outbox.unit().read_all::<Contact>(page_size, after).await;
        let page = page.map_err(|error| {
            let invalid_input = millstream_core::ErrorKind::Invalid;
            if *error.kind() == millstream_outbox::ErrorKind::Store(invalid_input) {
                return invalid("continuation", "must be the continuation of an earlier page");
            }
            Error::of_outbox(attempted, error)
        })?;
        Ok(ContactPage {
            contacts: page.entities.iter().map(|it| (&it.entity).into()).collect(),
            continuation: page.continuation.map(|it| it.as_str().to_owned()),
        })
    }

    /// Calls a contact otherwise, and returns its version.
    ///
    /// Without `expected` the version that is read here counts; what changes between that and the
    /// commit is a `Conflict`.
    ///
    /// # Errors
    ///
    /// `Invalid`, `NotFound`; `Changed` if the contact is not of an expected version; `Conflict`,
    /// `Overloaded`, `Unavailable`, `Unknown`.
    ///
    /// # Cancel safety
    ///
    /// As [`ContactService::create`].
    pub async fn update_name(
        &self,
        id: Uuid,
        expected: Option<IfMatch>,
        first_name: &str,
        last_name: &str,
    ) -> Result<Option<Etag>> {
        let change = |it: &mut Contact, now| it.set_name(first_name, last_name, now);
        self.change("update the name of", id, expected, change).await
    }

    /// Describes a contact otherwise, and returns its version; as [`ContactService::update_name`].
    ///
    /// # Errors
    ///
    /// As [`ContactService::update_name`].
    ///
    /// # Cancel safety
    ///
    /// As [`ContactService::create`].
    pub async fn update_description(
        &self,
        id: Uuid,
        expected: Option<IfMatch>,
        description: Option<&str>,
    ) -> Result<Option<Etag>> {
        let change = |it: &mut Contact, now| it.set_description(description, now);
        self.change("update the description of", id, expected, change).await
    }

    /// Gives a contact another address, and returns its version; as
    /// [`ContactService::update_name`].
    ///
    /// # Errors
    ///
    /// As [`ContactService::update_name`].
    ///
    /// # Cancel safety
    ///
    /// As [`ContactService::create`].
    pub async fn update_email(
        &self,
        id: Uuid,
        expected: Option<IfMatch>,
        email: Option<&str>,
    ) -> Result<Option<Etag>> {
        let change = |it: &mut Contact, now| it.set_email(email, now);
        self.change("update the email of", id, expected, change).await
    }

    /// Gives a contact another company, and returns its version; as
    /// [`ContactService::update_name`].
    ///
    /// # Errors
    ///
    /// As [`ContactService::update_name`].
    ///
    /// # Cancel safety
    ///
    /// As [`ContactService::create`].
    pub async fn update_company(
        &self,
        id: Uuid,
        expected: Option<IfMatch>,
        company: &CompanyDraft,
    ) -> Result<Option<Etag>> {
        let change = |it: &mut Contact, now| it.set_company(company, now);
        self.change("update the company of", id, expected, change).await
    }

    /// Deletes a contact, and returns the version of what stays of it.
    ///
    /// # Errors
    ///
    /// As [`ContactService::update_name`]; `NotFound` also if it is deleted already.
    ///
    /// # Cancel safety
    ///
    /// As [`ContactService::create`].
    pub async fn delete(&self, id: Uuid, expected: Option<IfMatch>) -> Result<Option<Etag>> {
        self.change("delete", id, expected, Contact::delete).await
    }

    async fn change(
        &self,
        verb: &str,
        id: Uuid,
        expected: Option<IfMatch>,
        change: impl FnOnce(&mut Contact, Timestamp) -> Result<(), ChangeError> + Send,
    ) -> Result<Option<Etag>> {
        let attempted = format!("{verb} the contact \"{id}\"");
        let mut unit = self.outbox.unit();
        let Some(mut found) = self.find(&unit, id).await? else {
            let error = Error::new(ErrorKind::NotFound, attempted);
            return Err(error.because("there is no such contact"));
        };
        if expected.as_ref().is_some_and(|it| !it.allows(&found.etag)) {
            let error = Error::new(ErrorKind::Changed, attempted);
            return Err(error.because("it has another etag by now"));
        }
        change(&mut found.entity, self.clock.now())
            .map_err(|error| Error::of_change(attempted.as_str(), error))?;
        unit.update(found.entity, found.etag)
            .map_err(|error| Error::of_outbox(attempted.as_str(), error))?;
        let outcome = self.commit(unit, &id.to_string(), &attempted).await;
        let names_version = matches!(expected, Some(IfMatch::OneOf(_)));
        outcome.map_err(|error| {
            // To a caller who named a version it makes no difference when it went out of date.
            if names_version && *error.kind() == ErrorKind::Conflict {
                return Error::new(ErrorKind::Changed, attempted).because(error);
            }
            error
        })
    }

    async fn find(&self, unit: &UnitOfWork, id: Uuid) -> Result<Option<Versioned<Contact>>> {
        let id = id.to_string();
        let found = unit.read::<Contact>(id.as_str(), &id).await;
        let found =
            found.map_err(|error| Error::of_outbox(format!("read the contact \"{id}\""), error))?;
        Ok(found.filter(|it| !it.entity.is_deleted()))
    }

    async fn commit(
        &self,
        mut unit: UnitOfWork,
        id: &str,
        attempted: &str,
    ) -> Result<Option<Etag>> {
        let mut attempts = 1;
        loop {
            let error = match unit.commit().await {
                Ok(committed) => return Ok(committed.etag(id).cloned()),
                Err(error) => error,
            };
            let is_unknown = *error.kind() == millstream_outbox::ErrorKind::Unknown;
            if !is_unknown || COMMITS_MAX <= attempts {
                return Err(Error::of_outbox(attempted, error));
            }
            attempts += 1;
        }
    }
}

impl fmt::Debug for ContactService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContactService").field("container", &self.container).finish_non_exhaustive()
    }
}

fn open(
    container: &Container,
    clock: &Arc<dyn Clock>,
    ids: &Arc<dyn IdSource>,
    options: OutboxOptions,
) -> millstream_outbox::Result<Outbox> {
    Outbox::new_with(container, Arc::clone(clock), Arc::clone(ids), options)
}
