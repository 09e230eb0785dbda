use millstream_core::{ContainerName, FeedMode, KeyRange, Timestamp};
use serde_json::{Map, Value, json};

use crate::foreign::feed_state;
use crate::foreign::form::{ForeignForm, dotnet_mode};

/// What a document of another processor is to say.
pub(super) struct Render<'a> {
    pub(super) form: ForeignForm,
    pub(super) mode: FeedMode,
    pub(super) keys: &'a KeyRange,
    pub(super) etag: &'a str,
    pub(super) container: &'a ContainerName,
    pub(super) now: Timestamp,
}

impl Render<'_> {
    /// A new document, without its id.
    pub(super) fn first(&self, token: &str) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("LeaseToken", json!(token));
        let range = json!({ "Range": { "min": self.keys.min(), "max": self.keys.max() } });
        match self.form {
            ForeignForm::DotnetPk | ForeignForm::DotnetEpk => {
                let version = u32::from(self.form == ForeignForm::DotnetEpk);
                set("version", json!(version));
                set("FeedRange", range);
                set("properties", json!({}));
            }
            ForeignForm::JavaEpk => {
                set("version", json!(1));
                set("feedRange", range);
            }
            ForeignForm::DotnetLibrary => {
                set("PartitionId", json!(token));
                set("properties", json!({}));
            }
            ForeignForm::JavaPk => (),
        }
        self.again(&fields)
    }

    /// The document with another position and no owner. Everything else stays.
    pub(super) fn again(&self, old: &Map<String, Value>) -> Map<String, Value> {
        let mut fields = old.clone();
        let earlier = old.get("ContinuationToken").and_then(Value::as_str);
        let token = match self.form {
            ForeignForm::JavaEpk => {
                let (database, container) = (self.container.database(), self.container.container());
                let link = format!("/dbs/{database}/colls/{container}");
                feed_state::write(&link, self.mode, self.keys, self.etag, earlier)
            }
            ForeignForm::DotnetPk
            | ForeignForm::DotnetEpk
            | ForeignForm::JavaPk
            | ForeignForm::DotnetLibrary => self.etag.to_owned(),
        };
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("ContinuationToken", json!(token));
        set("Owner", Value::Null);
        set("timestamp", json!(self.now.to_rfc3339()));
        if matches!(self.form, ForeignForm::DotnetPk | ForeignForm::DotnetEpk) {
            set("Mode", json!(dotnet_mode(self.mode)));
        }
        fields
    }
}
