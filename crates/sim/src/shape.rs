//! What a seed says about a deployment before anything runs.

use std::time::Duration;

use millstream_core::FeedMode;
use millstream_processor::{
    Checkpoint, Concurrency, FailurePolicy, ProcessorOptions, StartPosition, Strategy,
};

use crate::faults::FaultRates;
use crate::rng::Rng;
use crate::workload::{TopologyOptions, WorkloadOptions};

/// A deployment and what happens to it.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Ranges of the data container at the start.
    pub ranges: u32,
    /// The time that matters: delays stay below it, stalls go beyond it.
    pub lease: Duration,
    /// Which changes are read.
    pub mode: FeedMode,
    /// Whether the documents of a processor are one partition, or each is its own.
    pub leases_together: bool,
    /// Whether changes that are put aside have a container of their own.
    pub letters_apart: bool,
    /// When faults end and healing begins.
    pub faults_end: Duration,
    /// Longest pause between two kills, stalls or cuts; none means there are none.
    pub chaos_pause_max: Option<Duration>,
    /// What goes wrong on the way to the store.
    pub rates: FaultRates,
    /// Writers at the same time.
    pub writers: u64,
    /// What each of them does.
    pub workload: WorkloadOptions,
    /// Splits and merges.
    pub topology: TopologyOptions,
    /// Instances that are wanted; some join late, some leave for good.
    pub instances: usize,
    /// Longest time from the start until an instance joins.
    pub join_max: Duration,
    /// Whether something is written before the first instance starts.
    pub starts_late: bool,
    /// Whether somebody pauses, resumes and redrives.
    pub has_operator: bool,
    /// Whether workers are tasks of their own.
    pub spawns: bool,
    /// How each instance works.
    pub options: OptionShape,
    /// What the handler does.
    pub handler: HandlerShape,
}

/// The options of all instances; they differ in nothing.
#[derive(Clone, Debug)]
pub struct OptionShape {
    /// Whether the processor begins with the oldest change.
    pub from_beginning: bool,
    /// When positions are written.
    pub checkpoint: Checkpoint,
    /// How many batches at once.
    pub concurrency: Concurrency,
    /// Changes of a batch.
    pub batch: usize,
    /// Changes in memory.
    pub in_flight: usize,
    /// Between two rounds.
    pub round: Duration,
    /// Between two looks for changes without a wake-up.
    pub poll: Duration,
    /// How long giving up a lease may take.
    pub handover_deadline: Duration,
    /// How long stopping may take.
    pub stop_grace: Duration,
    /// Leases per range at the first start.
    pub leases_per_range: u32,
    /// Attempts before a change is put aside.
    pub attempts_max: u32,
    /// Longest pause between two attempts.
    pub backoff_max: Duration,
    /// What happens to a change that failed too often.
    pub failure: FailurePolicy,
    /// How leases are shared out.
    pub strategy: Strategy,
}

/// What the handler does, in a thousand cases.
#[derive(Clone, Debug)]
pub struct HandlerShape {
    /// Longest time for one batch.
    pub delay_max: Duration,
    /// Batches that take as long as a lease, or longer.
    pub slow: u64,
    /// Changes that fail at first.
    pub failing: u64,
    /// How often these fail at most.
    pub failures_max: u64,
    /// Failures that are panics.
    pub panics: u64,
    /// Changes that fail until the end of the faults.
    pub poison: u64,
    /// Failures that name the change that failed.
    pub precise: u64,
    /// Something that the handler needs is down from here to there.
    pub outage: Option<(Duration, Duration)>,
}

impl Shape {
    /// The shape a seed describes.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "shape");
        let rng = &mut rng;
        let lease = Duration::from_millis(rng.between(2_000, 20_000));
        let faults_end = lease * u32::try_from(rng.between(2, 5)).expect("a few");
        let calm = rng.chance(100);
        Self {
            ranges: u32::try_from(few(rng, 8)).expect("a few"),
            lease,
            mode: if rng.chance(700) { FeedMode::LatestVersion } else { FeedMode::AllVersions },
            leases_together: rng.chance(700),
            letters_apart: rng.chance(500),
            faults_end,
            chaos_pause_max: if calm { None } else { Some(lease * 3 / 2) },
            rates: FaultRates::draw(rng, lease),
            writers: rng.between(1, 2),
            workload: WorkloadOptions::draw(rng, faults_end),
            topology: TopologyOptions::draw(rng, faults_end),
            instances: usize::try_from(few(rng, 6)).expect("a few"),
            join_max: if rng.chance(300) { Duration::ZERO } else { lease * 2 },
            starts_late: rng.chance(500),
            has_operator: rng.chance(300),
            spawns: rng.chance(500),
            options: OptionShape::draw(rng, lease),
            handler: HandlerShape::draw(rng, lease, faults_end),
        }
    }

    /// The options of an instance.
    pub(crate) fn processor_options(&self) -> ProcessorOptions {
        self.options.processor_options(self.lease, self.mode)
    }

    /// By when everything must be in order again, after the faults and the writers have ended.
    pub(crate) fn healing_max(&self) -> Duration {
        let Self { lease, options, handler, workload, .. } = self;
        // Who died last is missed after a lease; whoever has its name waits as long; then there
        // are some rounds, of which each may wait for a handover.
        let settling = *lease * 3 + options.round * 12 + options.handover_deadline * 2;
        let commits = u32::try_from(workload.commits * self.writers).expect("a few");
        let changes = commits * 2;
        // In the worst case every change is tried alone, after a pause, and again.
        let attempts = u32::try_from(handler.failures_max).expect("a few") + 2;
        let slow = *lease * u32::from(0 < handler.slow) * commits;
        settling + (handler.delay_max + options.backoff_max) * changes * attempts + slow
    }
}

impl OptionShape {
    /// These options for the processor.
    pub(crate) fn processor_options(&self, lease: Duration, mode: FeedMode) -> ProcessorOptions {
        let start = match self.from_beginning {
            true => StartPosition::Beginning,
            false => StartPosition::Now,
        };
        ProcessorOptions::default()
            .start(start)
            .mode(mode)
            .checkpoint(self.checkpoint)
            .concurrency(self.concurrency)
            .batch_items_max(self.batch)
            .in_flight_items_max(self.in_flight)
            .lease_duration(lease)
            .round_interval(self.round)
            .poll_interval(self.poll)
            .read_timeout(lease)
            .handover_deadline(self.handover_deadline)
            .stop_grace(self.stop_grace)
            .leases_per_range(self.leases_per_range)
            .attempts_max(self.attempts_max)
            .backoff(Duration::from_millis(50), self.backoff_max)
            .failure(self.failure)
            .strategy(self.strategy)
    }

    pub(crate) fn draw(rng: &mut Rng, lease: Duration) -> Self {
        let batch = usize::try_from(rng.between(1, 12)).expect("a few");
        let round = lease / u32::try_from(rng.between(3, 5)).expect("a few");
        let checkpoint = match rng.below(4) {
            0 | 1 => Checkpoint::EachBatch,
            2 => Checkpoint::Every {
                items: usize::try_from(rng.between(1, 20)).expect("a few"),
                interval: rng.duration(lease / 10, lease),
            },
            _ => Checkpoint::ByHand,
        };
        Self {
            from_beginning: rng.chance(500),
            checkpoint,
            concurrency: match rng.below(2) {
                0 => Concurrency::Serial,
                _ => Concurrency::Keyed(usize::try_from(rng.between(1, 4)).expect("a few")),
            },
            batch,
            in_flight: batch * usize::try_from(rng.between(1, 4)).expect("a few"),
            round,
            poll: lease / 2,
            handover_deadline: rng.duration(lease / 10, lease * 2),
            stop_grace: rng.duration(Duration::ZERO, lease * 2),
            leases_per_range: u32::try_from(few(rng, 3)).expect("a few"),
            attempts_max: u32::try_from(rng.between(1, 4)).expect("a few"),
            backoff_max: rng.duration(Duration::from_millis(50), Duration::from_secs(2)),
            failure: if rng.chance(700) { FailurePolicy::Park } else { FailurePolicy::Skip },
            strategy: if rng.chance(850) { Strategy::EqualShares } else { Strategy::LoadAware },
        }
    }
}

impl HandlerShape {
    fn draw(rng: &mut Rng, lease: Duration, faults_end: Duration) -> Self {
        let fails = rng.chance(500);
        let begin = rng.duration(Duration::ZERO, faults_end);
        let end = begin + rng.duration(Duration::ZERO, faults_end - begin);
        Self {
            delay_max: rng.duration(Duration::ZERO, lease / 20),
            slow: if rng.chance(300) { rng.below(100) } else { 0 },
            failing: if fails { rng.below(200) } else { 0 },
            failures_max: rng.between(1, 3),
            panics: if rng.chance(300) { 500 } else { 0 },
            poison: if fails && rng.chance(300) { rng.below(100) } else { 0 },
            precise: rng.below(1001),
            outage: rng.chance(200).then_some((begin, end)),
        }
    }
}

/// A number from 1 to `most`, more often a small one: small worlds are fast and find most.
pub(crate) fn few(rng: &mut Rng, most: u64) -> u64 {
    let most = if rng.chance(700) { most.min(3) } else { most };
    rng.between(1, most)
}
