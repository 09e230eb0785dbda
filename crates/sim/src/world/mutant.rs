use millstream_broker::Flaw as BrokerFlaw;
use millstream_outbox::Flaw as OutboxFlaw;
use millstream_processor::Flaw as ProcessorFlaw;
use millstream_relay::Flaw as RelayFlaw;

use crate::world::World;

/// A bug that is planted to see whether the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The store takes a write whatever etag it asks for.
    StoreIgnoresEtag,
    /// One in the processor.
    Processor(ProcessorFlaw),
    /// One in the relay.
    Relay(RelayFlaw),
    /// One in the broker.
    Broker(BrokerFlaw),
    /// One in the unit of work or the inbox.
    Outbox(OutboxFlaw),
}

impl Mutant {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::StoreIgnoresEtag,
        Self::Processor(ProcessorFlaw::AcknowledgeBeforeHandling),
        Self::Processor(ProcessorFlaw::ChildInheritsRead),
        Self::Processor(ProcessorFlaw::ExpiryByWallClock),
        Self::Processor(ProcessorFlaw::RenewalFailureIgnored),
        Self::Processor(ProcessorFlaw::StealWithoutHandover),
        Self::Processor(ProcessorFlaw::StartNotPinned),
        Self::Processor(ProcessorFlaw::ParentRetiredEarly),
        Self::Processor(ProcessorFlaw::HandoverBeforeDrained),
        Self::Processor(ProcessorFlaw::CheckpointPastGaps),
        Self::Processor(ProcessorFlaw::ParkedBeforeKept),
        Self::Processor(ProcessorFlaw::RedrivenBeforeKept),
        Self::Processor(ProcessorFlaw::ParkedKeyGoesOn),
        Self::Relay(RelayFlaw::AcknowledgeBeforePublished),
        Self::Relay(RelayFlaw::IdPerAttempt),
        Self::Relay(RelayFlaw::UnknownIsPublished),
        Self::Relay(RelayFlaw::RefusedIsOvertaken),
        Self::Relay(RelayFlaw::NotHeldBack),
        Self::Relay(RelayFlaw::HeldBackWithoutKeeping),
        Self::Broker(BrokerFlaw::SentBeforeDurable),
        Self::Broker(BrokerFlaw::SettledBeforeDurable),
        Self::Broker(BrokerFlaw::OwnerNotChecked),
        Self::Broker(BrokerFlaw::SessionsShared),
        Self::Broker(BrokerFlaw::AbandonedToEnd),
        Self::Broker(BrokerFlaw::ExpiredToEnd),
        Self::Broker(BrokerFlaw::RevivedToEnd),
        Self::Broker(BrokerFlaw::WindowForgotten),
        Self::Broker(BrokerFlaw::SettlementsForgotten),
        Self::Broker(BrokerFlaw::ScheduleIgnored),
        Self::Outbox(OutboxFlaw::RecordAfterEffect),
        Self::Outbox(OutboxFlaw::RecordOverwritten),
        Self::Outbox(OutboxFlaw::EventsApart),
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::StoreIgnoresEtag => "store-ignores-etag",
            Self::Processor(flaw) => processor_name(flaw),
            Self::Relay(flaw) => match flaw {
                RelayFlaw::AcknowledgeBeforePublished => "acknowledge-before-published",
                RelayFlaw::IdPerAttempt => "id-per-attempt",
                RelayFlaw::UnknownIsPublished => "unknown-is-published",
                RelayFlaw::RefusedIsOvertaken => "refused-is-overtaken",
                RelayFlaw::NotHeldBack => "not-held-back",
                RelayFlaw::HeldBackWithoutKeeping => "held-back-without-keeping",
                _ => "unnamed",
            },
            Self::Broker(flaw) => broker_name(flaw),
            Self::Outbox(flaw) => match flaw {
                OutboxFlaw::RecordAfterEffect => "record-after-effect",
                OutboxFlaw::RecordOverwritten => "record-overwritten",
                OutboxFlaw::EventsApart => "events-apart",
                _ => "unnamed",
            },
        }
    }

    /// The world whose checks are to find it.
    #[must_use]
    pub fn world(self) -> World {
        match self {
            Self::StoreIgnoresEtag | Self::Processor(_) => World::Processor,
            Self::Relay(_) | Self::Broker(_) | Self::Outbox(_) => World::Delivery,
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.name() == name)
    }
}

fn processor_name(flaw: ProcessorFlaw) -> &'static str {
    match flaw {
        ProcessorFlaw::AcknowledgeBeforeHandling => "acknowledge-before-handling",
        ProcessorFlaw::ChildInheritsRead => "child-inherits-read",
        ProcessorFlaw::ExpiryByWallClock => "expiry-by-wall-clock",
        ProcessorFlaw::RenewalFailureIgnored => "renewal-failure-ignored",
        ProcessorFlaw::StealWithoutHandover => "steal-without-handover",
        ProcessorFlaw::StartNotPinned => "start-not-pinned",
        ProcessorFlaw::ParentRetiredEarly => "parent-retired-early",
        ProcessorFlaw::HandoverBeforeDrained => "handover-before-drained",
        ProcessorFlaw::CheckpointPastGaps => "checkpoint-past-gaps",
        ProcessorFlaw::ParkedBeforeKept => "parked-before-kept",
        ProcessorFlaw::RedrivenBeforeKept => "redriven-before-kept",
        ProcessorFlaw::ParkedKeyGoesOn => "parked-key-goes-on",
        _ => "unnamed",
    }
}

fn broker_name(flaw: BrokerFlaw) -> &'static str {
    match flaw {
        BrokerFlaw::SentBeforeDurable => "sent-before-durable",
        BrokerFlaw::SettledBeforeDurable => "settled-before-durable",
        BrokerFlaw::OwnerNotChecked => "owner-not-checked",
        BrokerFlaw::SessionsShared => "sessions-shared",
        BrokerFlaw::AbandonedToEnd => "abandoned-to-end",
        BrokerFlaw::ExpiredToEnd => "expired-to-end",
        BrokerFlaw::RevivedToEnd => "revived-to-end",
        BrokerFlaw::WindowForgotten => "window-forgotten",
        BrokerFlaw::SettlementsForgotten => "settlements-forgotten",
        BrokerFlaw::ScheduleIgnored => "schedule-ignored",
        _ => "unnamed",
    }
}
