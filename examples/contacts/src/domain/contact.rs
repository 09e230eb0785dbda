#[cfg(test)]
mod tests;

use millstream_core::Timestamp;
use millstream_outbox::{DomainEvent, Entity, Events, NewEvent};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::validation::Check;
use crate::domain::values::DESCRIPTION_CHARS_MAX;
use crate::{
    Company, CompanyDraft, ContactCompanyUpdated, ContactCreated, ContactDeleted,
    ContactDescriptionUpdated, ContactEmailUpdated, ContactNameUpdated, Draft, Invalid, Name, Time,
};

/// Somebody we know. It changes only through its methods, and each change raises its event.
///
/// A change to what it is already does nothing and raises nothing. A new contact raises
/// [`ContactCreated`] alone, as it is when it is committed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Contact {
    id: String,
    name: Name,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    email: Option<String>,
    company: Company,
    created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    modified_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleted_at: Option<Time>,
    #[serde(default)]
    deleted: bool,
    #[serde(skip)]
    events: Events,
}

/// Why a contact does not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// What it should become is not allowed.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// It is deleted.
    #[error("could not change the contact: it is deleted")]
    Deleted,
}

impl Contact {
    /// A new contact with this id, as `draft` wants it.
    ///
    /// # Errors
    ///
    /// All fields of the draft that are wrong.
    pub fn new(id: Uuid, draft: &Draft, now: Timestamp) -> Result<Self, Invalid> {
        let mut check = Check::default();
        let company_name = draft.company_name.clone();
        let company = CompanyDraft { company_name, ..CompanyDraft::default() };
        let contact = Self {
            id: id.to_string(),
            name: Name::checked(&mut check, &draft.first_name, &draft.last_name),
            description: description(&mut check, draft.description.as_deref()),
            email: check.email("email", draft.email.as_deref()),
            company: Company::checked(&mut check, &company),
            created_at: Time(now),
            modified_at: None,
            deleted_at: None,
            deleted: false,
            events: Events::for_new(),
        };
        check.finish(contact)
    }

    /// Calls it otherwise.
    ///
    /// # Errors
    ///
    /// `Invalid` if a part is empty or has more than 100 characters; `Deleted`.
    pub fn set_name(&mut self, first: &str, last: &str, now: Timestamp) -> Result<(), ChangeError> {
        self.check_alive()?;
        let name = Name::new(first, last)?;
        if self.name != name {
            self.name = name.clone();
            self.changed(ContactNameUpdated { name }, now);
        }
        Ok(())
    }

    /// Describes it otherwise; blank takes the description away.
    ///
    /// # Errors
    ///
    /// `Invalid` if it has more than 500 characters; `Deleted`.
    pub fn set_description(
        &mut self,
        text: Option<&str>,
        now: Timestamp,
    ) -> Result<(), ChangeError> {
        self.check_alive()?;
        let mut check = Check::default();
        let description = description(&mut check, text);
        let description = check.finish(description)?;
        if self.description != description {
            self.description = description.clone();
            self.changed(ContactDescriptionUpdated { description }, now);
        }
        Ok(())
    }

    /// Gives it another address; blank takes the address away.
    ///
    /// # Errors
    ///
    /// `Invalid` if it cannot be an address; `Deleted`.
    pub fn set_email(&mut self, text: Option<&str>, now: Timestamp) -> Result<(), ChangeError> {
        self.check_alive()?;
        let mut check = Check::default();
        let email = check.email("email", text);
        let email = check.finish(email)?;
        if self.email != email {
            self.email = email.clone();
            self.changed(ContactEmailUpdated { email }, now);
        }
        Ok(())
    }

    /// Gives it another company.
    ///
    /// # Errors
    ///
    /// `Invalid` if the name is empty or a part too long; `Deleted`.
    pub fn set_company(&mut self, draft: &CompanyDraft, now: Timestamp) -> Result<(), ChangeError> {
        self.check_alive()?;
        let company = Company::new(draft)?;
        if self.company != company {
            self.company = company.clone();
            self.changed(ContactCompanyUpdated { company }, now);
        }
        Ok(())
    }

    /// Deletes it: it stays, says so, and changes no more.
    ///
    /// # Errors
    ///
    /// `Deleted` if it is deleted already, so that nobody hears of it twice.
    pub fn delete(&mut self, now: Timestamp) -> Result<(), ChangeError> {
        self.check_alive()?;
        let deleted_at = Time(now);
        (self.deleted, self.deleted_at) = (true, Some(deleted_at));
        self.changed(ContactDeleted { deleted_at }, now);
        Ok(())
    }

    /// How it is called.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// A word about it.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Its address.
    #[must_use]
    pub fn email(&self) -> Option<&str> {
        self.email.as_deref()
    }

    /// Where it works.
    #[must_use]
    pub fn company(&self) -> &Company {
        &self.company
    }

    /// When it was added.
    #[must_use]
    pub fn created_at(&self) -> Time {
        self.created_at
    }

    /// When it was last changed.
    #[must_use]
    pub fn modified_at(&self) -> Option<Time> {
        self.modified_at
    }

    /// When it was deleted.
    #[must_use]
    pub fn deleted_at(&self) -> Option<Time> {
        self.deleted_at
    }

    fn check_alive(&self) -> Result<(), ChangeError> {
        if self.deleted { Err(ChangeError::Deleted) } else { Ok(()) }
    }

    fn changed(&mut self, event: impl DomainEvent, now: Timestamp) {
        // What happens to a new contact is part of its creation.
        if self.events.is_new() {
            return;
        }
        self.modified_at = Some(Time(now));
        self.events.raise(event);
    }
}

impl Entity for Contact {
    const TYPE: &'static str = "contact";
    const ID_PROPERTY: Option<&'static str> = Some("contactId");

    fn id(&self) -> &str {
        &self.id
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn created_event(&self) -> Option<NewEvent> {
        Some(ContactCreated { contact: self.into() }.into())
    }

    fn is_deleted(&self) -> bool {
        self.deleted
    }
}

fn description(check: &mut Check, text: Option<&str>) -> Option<String> {
    check.optional_lines("description", text, DESCRIPTION_CHARS_MAX)
}
