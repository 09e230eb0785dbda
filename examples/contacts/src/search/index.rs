use std::fmt;
use std::sync::Arc;

use millstream_core::{
    Batch, Container, Documents, Item, ItemId, KeyRange, Message, Operation, PageSize,
    ScanContinuation, ScanScope,
};
use millstream_outbox::{HandlerError, Inbox, InboxOptions, Incoming, Outcome};

use crate::SearchEntry;
use crate::search::entry::Told;

/// The name of the consumer in its inbox.
const CONSUMER: &str = "search";

/// The search list in a container. Each message has its effect once, however often it comes:
/// the line and the id of the message are committed together.
#[derive(Clone)]
pub struct SearchIndex {
    documents: Arc<dyn Documents>,
    inbox: Inbox,
}

/// A message that had no effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// It is not an event of a contact and never will be.
    #[error("could not read the message: {0}")]
    Unreadable(String),
    /// It could not be handled now; let it come again.
    #[error("could not update the search list")]
    Later(#[source] millstream_outbox::Error),
}

impl SearchIndex {
    /// The search list in `container`, with the default options of an inbox.
    ///
    /// # Errors
    ///
    /// As [`SearchIndex::new_with`].
    pub fn new(container: &Container) -> millstream_outbox::Result<Self> {
        Self::new_with(container, InboxOptions::default())
    }

    /// The search list in `container`.
    ///
    /// # Errors
    ///
    /// `Invalid` if the container cannot hold an inbox: nothing expires in it, for example.
    pub fn new_with(
        container: &Container,
        options: InboxOptions,
    ) -> millstream_outbox::Result<Self> {
        let inbox = Inbox::new_with(container, CONSUMER, options)?;
        Ok(Self { documents: Arc::clone(&container.documents), inbox })
    }

    /// Does to the list what a message says, unless that was done before.
    ///
    /// # Errors
    ///
    /// `Unreadable` if it is no event; `Later` if the store fails or others handle messages of the
    /// same contact.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the message handled or not; handle it again.
    pub async fn handle(&self, message: &Message) -> Result<Outcome, IndexError> {
        let unreadable = |error: millstream_outbox::Error| IndexError::Unreadable(error.report());
        let incoming = Incoming::try_from(message).map_err(unreadable)?;
        let told = Told::read(&message.body).map_err(IndexError::Unreadable)?;
        let contact = message.session_id.as_ref().or(message.partition_key.as_ref());
        let contact = contact.map(String::as_str).unwrap_or_default();
        let id = ItemId::new(contact).map_err(|it| IndexError::Unreadable(it.report()))?;
        let sequence = sequence(message);
        let effect = |batch: Batch| async move {
            if told == Told::Other {
                return Ok(batch);
            }
            let found = self.documents.read(&batch.partition_key, &id).await?;
            let operation = write(&id, found.as_ref(), &told, sequence)?;
            Ok(batch.with(operation))
        };
        self.inbox.handle(&incoming, effect).await.map_err(IndexError::Later)
    }

    /// Up to `entries_max` lines of contacts that are not deleted, in no particular order.
    ///
    /// # Errors
    ///
    /// Those of the store.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn entries(&self, entries_max: usize) -> millstream_core::Result<Vec<SearchEntry>> {
        self.find("", entries_max).await
    }

    /// Up to `entries_max` lines whose name, address or company holds `text`, in either case. It
    /// looks through the whole list.
    ///
    /// # Errors
    ///
    /// Those of the store.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn find(
        &self,
        text: &str,
        entries_max: usize,
    ) -> millstream_core::Result<Vec<SearchEntry>> {
        let text = text.trim().to_lowercase();
        let scope = ScanScope::Keys(KeyRange::all());
        let mut entries = Vec::new();
        let mut after: Option<ScanContinuation> = None;
        loop {
            let page = self.documents.scan(&scope, after.as_ref(), PageSize::default()).await?;
            let found = page.items.iter().filter_map(parsed);
            let found = found.filter(|it| !it.deleted && it.holds(&text));
            entries.extend(found.take(entries_max - entries.len()));
            after = page.continuation;
            if after.is_none() || entries_max <= entries.len() {
                return Ok(entries);
            }
        }
    }

    /// The line of a contact; none if there is none or the contact is deleted.
    ///
    /// # Errors
    ///
    /// Those of the store.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn entry(&self, contact: &str) -> millstream_core::Result<Option<SearchEntry>> {
        let item = self.documents.read(&contact.into(), &ItemId::new(contact)?).await?;
        Ok(item.as_ref().and_then(parsed).filter(|it| !it.deleted))
    }
}

impl fmt::Debug for SearchIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchIndex").finish_non_exhaustive()
    }
}

/// The write that brings the line up to date. It fails if somebody else wrote the line meanwhile.
fn write(
    id: &ItemId,
    found: Option<&Item>,
    told: &Told,
    sequence: Option<u64>,
) -> Result<Operation, HandlerError> {
    let before = match found {
        None => SearchEntry::new(id.as_str()),
        Some(item) => serde_json::from_slice(&item.body)?,
    };
    let body = serde_json::to_vec(&before.after(told, sequence))?;
    Ok(match found {
        None => Operation::create(body),
        Some(item) => Operation::replace(id.clone(), body).if_match(item.etag.clone()),
    })
}

fn parsed(item: &Item) -> Option<SearchEntry> {
    let entry: SearchEntry = serde_json::from_slice(&item.body).ok()?;
    entry.is_entry().then_some(entry)
}

/// The number of the event among those of its contact.
fn sequence(message: &Message) -> Option<u64> {
    use millstream_core::PropertyValue::{Integer, String};

    match message.properties.get("sequence").or(message.properties.get("cloudEvents:sequence")) {
        Some(Integer(number)) => u64::try_from(*number).ok(),
        Some(String(text)) => text.parse().ok(),
        _ => None,
    }
}
