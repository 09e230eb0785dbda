//! What a seed says about a delivery world before anything runs.

use std::time::Duration;

use millstream_processor::{Checkpoint, FailurePolicy, ProcessorOptions};
use millstream_relay::MessageForm;

use crate::faults::FaultRates;
use crate::rng::Rng;
use crate::shape::{OptionShape, few};
use crate::workload::TopologyOptions;

/// Writers, relays, a broker and consumers, and what happens to them.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryShape {
    /// The time that matters to relays.
    pub(crate) lease: Duration,
    /// The time that matters to consumers: how long a session stays with its receiver.
    pub(crate) lock: Duration,
    /// When faults end and healing begins.
    pub(crate) faults_end: Duration,
    /// Longest pause between two kills, stalls or cuts; none means there are none.
    pub(crate) chaos_pause_max: Option<Duration>,
    /// What goes wrong on the ways to the stores.
    pub(crate) store_rates: FaultRates,
    /// What goes wrong on the ways to the broker.
    pub(crate) broker_rates: FaultRates,
    /// Ranges of the data container at the start.
    pub(crate) ranges: u32,
    pub(crate) topology: TopologyOptions,
    pub(crate) writers: u64,
    pub(crate) workload: WriterShape,
    pub(crate) relays: u64,
    pub(crate) relay: OptionShape,
    pub(crate) form: MessageForm,
    /// Whether workers of relays are tasks of their own.
    pub(crate) spawns: bool,
    /// Messages of one call of the publisher.
    pub(crate) publish_max: usize,
    /// Events in a thousand that the broker refuses until the faults end.
    pub(crate) poison: u64,
    pub(crate) subscriptions: usize,
    /// Consumers of each subscription.
    pub(crate) consumers: u64,
    pub(crate) consumer: ConsumerShape,
    /// How long a broker waits for its store.
    pub(crate) patience: Duration,
    pub(crate) duplicate_window: Option<Duration>,
    pub(crate) deliveries_max: u32,
    /// Whether relays leave it to the broker to hold events back until they are due.
    pub(crate) broker_schedules: bool,
    /// Whether the clocks of the machines that a broker runs on differ by minutes.
    pub(crate) brokers_disagree: bool,
    /// Bytes of messages that a broker keeps in memory.
    pub(crate) cache_bytes: usize,
}

/// What each writer does.
#[derive(Clone, Debug)]
pub(crate) struct WriterShape {
    pub(crate) keys: u64,
    pub(crate) entities_per_key: u64,
    pub(crate) units: u64,
    pub(crate) pause_max: Duration,
    /// Events of one entity in one commit.
    pub(crate) events_max: u64,
    /// Events in a thousand that are held back.
    pub(crate) scheduled: u64,
    /// Longest time they are.
    pub(crate) schedule_max: Duration,
}

/// What consumers do, in a thousand messages.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerShape {
    /// Messages received at once.
    pub(crate) batch_max: u64,
    /// Longest work on one message.
    pub(crate) work_max: Duration,
    /// Abandons it before or after the effect.
    pub(crate) abandons: u64,
    /// Works on it until the lock has ended.
    pub(crate) oversleeps: u64,
    /// Dies between the effect and the completion.
    pub(crate) dies: u64,
    pub(crate) defers: u64,
    pub(crate) dead_letters: u64,
    /// Keeps the session for longer after a message.
    pub(crate) renews: u64,
    /// Leaves a session without closing it.
    pub(crate) forgets: u64,
    /// Completes the messages of a batch together, after the last effect.
    pub(crate) together: u64,
}

impl DeliveryShape {
    /// The shape a seed describes.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "delivery shape");
        let rng = &mut rng;
        let lease = Duration::from_millis(rng.between(2_000, 10_000));
        let lock = Duration::from_millis(rng.between(1_000, 10_000));
        let scale = lease.max(lock);
        let faults_end = scale * u32::try_from(rng.between(2, 5)).expect("a few");
        let calm = rng.chance(100);
        let window = rng.duration(lock / 2, faults_end * 4);
        let mut relay = OptionShape::draw(rng, lease);
        // A relay says itself what is done, starts with the first event and parks what fails.
        relay.from_beginning = true;
        relay.failure = FailurePolicy::Park;
        if relay.checkpoint == Checkpoint::ByHand {
            relay.checkpoint = Checkpoint::EachBatch;
        }
        Self {
            lease,
            lock,
            faults_end,
            chaos_pause_max: if calm { None } else { Some(scale) },
            store_rates: FaultRates::draw(rng, lease),
            broker_rates: FaultRates::draw(rng, lock),
            ranges: u32::try_from(few(rng, 4)).expect("a few"),
            topology: TopologyOptions::draw(rng, faults_end),
            writers: rng.between(1, 2),
            workload: WriterShape::draw(rng, faults_end),
            relays: few(rng, 3),
            relay,
            form: if rng.chance(800) { MessageForm::CloudEvents } else { MessageForm::Raw },
            spawns: rng.chance(500),
            publish_max: usize::try_from(rng.between(1, 12)).expect("a few"),
            poison: if rng.chance(300) { rng.below(80) } else { 0 },
            subscriptions: if rng.chance(700) { 1 } else { 2 },
            consumers: few(rng, 4),
            consumer: ConsumerShape::draw(rng, lock),
            patience: rng.duration(Duration::from_millis(200), scale * 2),
            duplicate_window: if rng.chance(900) { Some(window) } else { None },
            deliveries_max: if rng.chance(700) {
                1000
            } else {
                few(rng, 10).try_into().unwrap_or(1)
            },
            broker_schedules: Rng::stream(seed, "schedules").chance(500),
            brokers_disagree: rng.chance(250),
            cache_bytes: if rng.chance(700) { 1 << 20 } else { 0 },
        }
    }

    /// The options of an instance of the relay.
    pub(crate) fn processor_options(&self) -> ProcessorOptions {
        self.relay.processor_options(self.lease, millstream_core::FeedMode::LatestVersion)
    }

    /// By when everything must have had its effect, after the faults and the writers have ended.
    pub(crate) fn healing_max(&self) -> Duration {
        let Self { lease, lock, workload, relay, consumer, .. } = self;
        let units = u32::try_from(workload.units * self.writers).expect("a few");
        let events = units * u32::try_from(workload.events_max * 2).expect("a few");
        let settling = *lease * 6 + *lock * 12 + relay.round * 12 + relay.handover_deadline * 2;
        // Each event alone, after a pause, and once more after it was parked or put aside.
        let work = (consumer.work_max + relay.backoff_max) * events * 2;
        // A schedule is kept by the clock of the broker, or of the relay; those of relays differ.
        let is_by_relay = !self.broker_schedules && 0 < workload.scheduled;
        let disagreement =
            u32::from(self.brokers_disagree || is_by_relay) * Duration::from_secs(11 * 60);
        settling + work + workload.schedule_max + Duration::from_secs(120) + disagreement
    }
}

impl WriterShape {
    fn draw(rng: &mut Rng, end: Duration) -> Self {
        let units = rng.between(2, 16);
        let pause = end * 2 / u32::try_from(units).expect("a few");
        Self {
            keys: few(rng, 6),
            entities_per_key: rng.between(1, 2),
            units,
            pause_max: if rng.chance(250) { Duration::ZERO } else { pause },
            events_max: rng.between(1, 3),
            scheduled: if rng.chance(300) { rng.below(300) } else { 0 },
            schedule_max: rng.duration(Duration::from_millis(100), end),
        }
    }
}

impl ConsumerShape {
    fn draw(rng: &mut Rng, lock: Duration) -> Self {
        let mut rate = |most: u64| if rng.chance(500) { rng.below(most) } else { 0 };
        let (abandons, oversleeps, dies) = (rate(200), rate(100), rate(60));
        let (renews, forgets) = (rate(300), rate(300));
        let (mut defers, mut dead_letters) = (rate(150), rate(150));
        // Order is strict only where nobody puts anything aside.
        if rng.chance(500) {
            (defers, dead_letters) = (0, 0);
        }
        Self {
            batch_max: rng.between(1, 6),
            work_max: rng.duration(Duration::ZERO, lock / 8),
            abandons,
            oversleeps,
            dies,
            defers,
            dead_letters,
            renews,
            forgets,
            together: if rng.chance(500) { 0 } else { rng.below(1001) },
        }
    }
}
