use std::time::Duration;

use millstream_processor::{Checkpoint, ProcessorOptions};

use crate::mapping::MessageForm;

/// Settings of a relay.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    pub(crate) processor: ProcessorOptions,
    pub(crate) form: MessageForm,
    pub(crate) source: String,
    pub(crate) all_documents: bool,
    pub(crate) hold_events: bool,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            processor: ProcessorOptions::default()
                .start(millstream_processor::StartPosition::Beginning)
                .batch_items_max(500)
                .in_flight_items_max(4_000)
                .checkpoint(Self::CHECKPOINT),
            form: MessageForm::CloudEvents,
            source: "millstream".to_owned(),
            all_documents: false,
            hold_events: true,
        }
    }
}

impl RelayOptions {
    /// How often the position is written unless told otherwise. What is published again after a
    /// crash has the ids it had, so it costs little; a write for every batch would cost each commit
    /// of the same store its share of the disk.
    pub const CHECKPOINT: Checkpoint =
        Checkpoint::Every { items: 10_000, interval: Duration::from_millis(200) };

    /// How the feed is processed: leases, retries, parking. Default: from the beginning, batches of
    /// 500, [`RelayOptions::CHECKPOINT`], everything else as in [`ProcessorOptions::default`].
    #[must_use]
    pub fn processor(mut self, value: ProcessorOptions) -> Self {
        self.processor = value;
        self
    }

    /// How events look as messages. Default: CloudEvents in binary mode.
    #[must_use]
    pub fn form(mut self, value: MessageForm) -> Self {
        self.form = value;
        self
    }

    /// The `source` of CloudEvents: the service the events come from. Default: `millstream`.
    #[must_use]
    pub fn source(mut self, value: impl Into<String>) -> Self {
        self.source = value.into();
        self
    }

    /// Publishes every document, not only events: the body is the document, the subject its type.
    /// Default: events only.
    #[must_use]
    pub fn all_documents(mut self) -> Self {
        self.all_documents = true;
        self
    }

    /// Lets events expire by their time to live even if they were not sent yet. Default: the relay
    /// registers itself so that they do not, where the backend can.
    #[must_use]
    pub fn let_unsent_events_expire(mut self) -> Self {
        self.hold_events = false;
        self
    }
}
