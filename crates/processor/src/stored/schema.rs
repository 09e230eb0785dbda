//! What every document of a processor has: the versions that wrote it and can read it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};

/// The version of the documents: a reader refuses a `minReader` above its own.
///
/// Since version 2 the number of a container is a string where a double would not hold it. A
/// document without such a string says that version 1 can read it.
pub(crate) const SCHEMA_VERSION: u32 = 2;
/// The oldest version that reads a document in which nothing is new.
const MIN_READER: u32 = 1;

/// What every document begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Schema {
    /// The version that wrote the document.
    pub written_by: u32,
    /// The oldest version that can read it.
    pub min_reader: u32,
}

impl Default for Schema {
    fn default() -> Self {
        Self { written_by: SCHEMA_VERSION, min_reader: MIN_READER }
    }
}

impl Schema {
    /// Notes that the document has something that older versions than this cannot read.
    pub(super) fn needs(&mut self, min_reader: u32) {
        self.min_reader = self.min_reader.max(min_reader);
        self.written_by = self.written_by.max(min_reader);
    }
}

/// A document of a processor.
pub(crate) trait Document: Serialize + DeserializeOwned + Clone {
    /// What it is, for messages.
    const WHAT: &'static str;

    /// Its id within the documents of the processor, without the name of the processor.
    fn local_id(&self) -> String;

    /// What a later version added.
    fn unknown(&mut self) -> &mut Map<String, Value>;

    /// Says in its schema who can read it. It may have been written by a version that wrote it in
    /// another way, so this is for every write.
    fn declare_reader(&mut self) {}

    /// Refuses what a store has rounded.
    fn check_exact(&self, _id: &str) -> Result<()> {
        Ok(())
    }
}

/// Reads a document, or says that it is of a newer version or damaged.
pub(crate) fn parse<T: Document>(id: &str, body: &[u8]) -> Result<T> {
    #[derive(Deserialize)]
    struct Versioned {
        schema: Option<Schema>,
    }
    let attempted = || format!("read the {} \"{id}\"", T::WHAT);
    let damaged = |error: serde_json::Error| {
        Error::new(ErrorKind::Store(millstream_core::ErrorKind::Corrupt), attempted())
            .because(error)
    };
    let versioned: Versioned = serde_json::from_slice(body).map_err(damaged)?;
    let needed = versioned.schema.map_or(MIN_READER, |it| it.min_reader);
    if SCHEMA_VERSION < needed {
        return Err(Error::new(ErrorKind::NewerSchema, attempted()).because(format!(
            "it was written by a newer version (schema {needed}, this is {SCHEMA_VERSION}); \
             update this instance"
        )));
    }
    let document: T = serde_json::from_slice(body).map_err(damaged)?;
    document.check_exact(id)?;
    Ok(document)
}
