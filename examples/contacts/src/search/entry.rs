use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Company, ContactCompanyUpdated, ContactCreated, ContactDeleted, ContactEmailUpdated,
    ContactNameUpdated, ContactView, Name,
};

/// `type` of our documents.
const TYPE: &str = "searchEntry";
/// How long the mark of a deleted contact is kept: as long as a message about it may come late.
const DELETED_KEPT_SECONDS: i64 = 14 * 24 * 3600;

/// A line of the search list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchEntry {
    /// The contact.
    pub id: String,
    partition_key: String,
    #[serde(rename = "type")]
    kind: String,
    /// First and last name, once an event has told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_name: Option<String>,
    /// Its address, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Where it works, once an event has told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub company_name: Option<String>,
    /// Whether the contact is deleted; the line is then only a mark, and not shown.
    pub deleted: bool,
    /// For each part the number of the event it comes from, so that an event that comes late does
    /// not undo a later one.
    #[serde(default)]
    told_by: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl: Option<i64>,
}

/// What an event says that matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Created(Box<ContactView>),
    Name(Name),
    Email(Option<String>),
    Company(Company),
    Deleted,
    /// Nothing for a search list.
    Other,
}

/// The body of a message, of whichever event.
#[derive(Deserialize)]
struct Body {
    action: String,
    contact: Option<ContactView>,
    name: Option<Name>,
    email: Option<String>,
    company: Option<Company>,
}

impl Told {
    /// Reads the body of a message.
    ///
    /// # Errors
    ///
    /// A sentence, if it is not the body of an event, or lacks what its action promises.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        let body: Body = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let missing = |part: &str| format!("{} without {part}", body.action);
        Ok(match body.action.as_str() {
            ContactCreated::ACTION => {
                Self::Created(Box::new(body.contact.ok_or_else(|| missing("contact"))?))
            }
            ContactNameUpdated::ACTION => Self::Name(body.name.ok_or_else(|| missing("name"))?),
            ContactEmailUpdated::ACTION => Self::Email(body.email),
            ContactCompanyUpdated::ACTION => {
                Self::Company(body.company.ok_or_else(|| missing("company"))?)
            }
            ContactDeleted::ACTION => Self::Deleted,
            _ => Self::Other,
        })
    }
}

impl SearchEntry {
    /// The empty line of a contact.
    pub(crate) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            partition_key: id.to_owned(),
            kind: TYPE.to_owned(),
            full_name: None,
            email: None,
            company_name: None,
            deleted: false,
            told_by: BTreeMap::new(),
            ttl: None,
        }
    }

    /// Whether the document is such a line, and not one of the inbox.
    pub(crate) fn is_entry(&self) -> bool {
        self.kind == TYPE
    }

    /// Whether one of its parts holds `text`, which is in lower case.
    pub(crate) fn holds(&self, text: &str) -> bool {
        let mut parts = [&self.full_name, &self.email, &self.company_name].into_iter().flatten();
        text.is_empty() || parts.any(|it| it.to_lowercase().contains(text))
    }

    /// The line after an event with this number.
    #[must_use]
    pub(crate) fn after(mut self, told: &Told, sequence: Option<u64>) -> Self {
        match told {
            Told::Created(contact) => {
                self = self
                    .after(&Told::Name(contact.name.clone()), sequence)
                    .after(&Told::Email(contact.email.clone()), sequence)
                    .after(&Told::Company(contact.company.clone()), sequence);
            }
            Told::Name(name) if self.is_news("name", sequence) => {
                self.full_name = Some(name.full());
            }
            Told::Email(email) if self.is_news("email", sequence) => {
                self.email.clone_from(email);
            }
            Told::Company(company) if self.is_news("company", sequence) => {
                self.company_name = Some(company.company_name.clone());
            }
            Told::Deleted => {
                (self.deleted, self.ttl) = (true, Some(DELETED_KEPT_SECONDS));
            }
            Told::Name(_) | Told::Email(_) | Told::Company(_) | Told::Other => (),
        }
        if self.deleted {
            (self.full_name, self.email, self.company_name) = (None, None, None);
        }
        self
    }

    /// Whether an event with this number tells more of a part than the last; it does from now on.
    fn is_news(&mut self, part: &str, sequence: Option<u64>) -> bool {
        let Some(number) = sequence else {
            return true;
        };
        if self.told_by.get(part).is_some_and(|last| number < *last) {
            return false;
        }
        self.told_by.insert(part.to_owned(), number);
        true
    }
}

#[cfg(test)]
mod tests {
    use millstream_core::Timestamp;

    use super::*;
    use crate::Time;

    fn company(name: &str) -> Company {
        serde_json::from_value(serde_json::json!({ "companyName": name })).unwrap()
    }

    fn name(first: &str) -> Name {
        Name::new(first, "King").unwrap()
    }

    fn created() -> Told {
        Told::Created(Box::new(ContactView {
            id: "17".to_owned(),
            name: name("Ada"),
            description: None,
            email: Some("ada@example.com".to_owned()),
            company: company("Engines"),
            created_at: Time(Timestamp::EPOCH),
            modified_at: None,
        }))
    }

    /// `name/email/company` after events with these numbers.
    #[track_caller]
    fn check(events: &[(u64, Told)], expected: &str) {
        let start = SearchEntry::new("17");
        let entry = events.iter().fold(start, |entry, (number, told)| {
            let repeated = entry.after(told, Some(*number));
            repeated.after(told, Some(*number))
        });
        let parts = [&entry.full_name, &entry.email, &entry.company_name];
        let shown = parts.map(|it| it.as_deref().unwrap_or("-")).join("/");
        let mark = if entry.deleted { " deleted" } else { "" };
        assert_eq!(format!("{shown}{mark}"), expected);
    }

    #[test]
    fn each_event_changes_its_part() {
        check(&[(1, created())], "Ada King/ada@example.com/Engines");
        check(&[(1, created()), (2, Told::Name(name("Augusta")))], {
            "Augusta King/ada@example.com/Engines"
        });
        check(&[(1, created()), (2, Told::Email(None))], "Ada King/-/Engines");
        check(&[(1, created()), (2, Told::Company(company("Looms")))], {
            "Ada King/ada@example.com/Looms"
        });
        check(&[(1, created()), (2, Told::Other)], "Ada King/ada@example.com/Engines");
        check(&[(1, created()), (2, Told::Deleted)], "-/-/- deleted");
    }

    #[test]
    fn an_event_that_comes_late_does_not_undo_a_later_one() {
        let events = [(3, Told::Name(name("Third"))), (1, created()), (2, Told::Name(name("Two")))];
        check(&events, "Third King/ada@example.com/Engines");
        check(&[(2, Told::Deleted), (1, created())], "-/-/- deleted");
    }

    #[test]
    fn a_body_that_lacks_what_it_promises_is_refused() {
        for wrong in ["", "[]", r#"{"a":1}"#, r#"{"action":"ContactNameUpdated"}"#] {
            assert!(Told::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let other = Told::read(br#"{"action":"ContactDescriptionUpdated","description":"x"}"#);
        assert_eq!(other, Ok(Told::Other));
        let email = Told::read(br#"{"action":"ContactEmailUpdated","email":null}"#);
        assert_eq!(email, Ok(Told::Email(None)));
    }
}
