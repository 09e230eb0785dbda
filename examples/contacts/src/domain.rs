//! What a contact is, which changes it allows, and which events it raises. No I/O.

pub(crate) mod contact;
pub(crate) mod events;
pub(crate) mod time;
pub(crate) mod validation;
pub(crate) mod values;
pub(crate) mod view;
