use millstream_outbox::DomainEvent;
use serde::Serialize;

use crate::{Company, ContactView, Name, Time};

/// A contact was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContactCreated {
    /// The contact as it was committed.
    pub contact: ContactView,
}

/// A contact is called otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContactNameUpdated {
    /// The new name.
    pub name: Name,
}

/// A contact is described otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContactDescriptionUpdated {
    /// The new description; none if it was taken away.
    pub description: Option<String>,
}

/// A contact has another address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContactEmailUpdated {
    /// The new address; none if it was taken away.
    pub email: Option<String>,
}

/// A contact works elsewhere, or its company moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContactCompanyUpdated {
    /// The new company, whole.
    pub company: Company,
}

/// A contact was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContactDeleted {
    /// When.
    pub deleted_at: Time,
}

macro_rules! named {
    ($($event:ident),* $(,)?) => {$(
        impl $event {
            /// What the event is called; the subject of its message.
            pub const ACTION: &'static str = stringify!($event);
        }

        impl DomainEvent for $event {
            fn action(&self) -> &str {
                Self::ACTION
            }
        }
    )*};
}

named!(
    ContactCreated,
    ContactNameUpdated,
    ContactDescriptionUpdated,
    ContactEmailUpdated,
    ContactCompanyUpdated,
    ContactDeleted,
);
