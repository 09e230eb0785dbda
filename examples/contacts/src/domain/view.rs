use millstream_outbox::Entity;
use serde::{Deserialize, Serialize};

use crate::{Company, Contact, Name, Time};

/// A contact as readers get it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContactView {
    /// What names it.
    pub id: String,
    /// How it is called.
    pub name: Name,
    /// A word about it.
    pub description: Option<String>,
    /// Its address.
    pub email: Option<String>,
    /// Where it works.
    pub company: Company,
    /// When it was added.
    pub created_at: Time,
    /// When it was last changed.
    pub modified_at: Option<Time>,
}

/// A line in a list of contacts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContactSummary {
    /// What names it.
    pub id: String,
    /// Its address.
    pub email: Option<String>,
    /// First and last name.
    pub full_name: String,
    /// Where it works.
    pub company_name: String,
}

impl From<&Contact> for ContactView {
    fn from(contact: &Contact) -> Self {
        Self {
            id: contact.id().to_owned(),
            name: contact.name().clone(),
            description: contact.description().map(str::to_owned),
            email: contact.email().map(str::to_owned),
            company: contact.company().clone(),
            created_at: contact.created_at(),
            modified_at: contact.modified_at(),
        }
    }
}

impl From<&Contact> for ContactSummary {
    fn from(contact: &Contact) -> Self {
        Self {
            id: contact.id().to_owned(),
            email: contact.email().map(str::to_owned),
            full_name: contact.name().full(),
            company_name: contact.company().company_name.clone(),
        }
    }
}
