use std::fmt;
use std::time::Duration;

use crate::delivery::DeliveryCounts;
use crate::ledger::LedgerCounts;

/// What happened in one or more runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Polls.
    pub steps: u64,
    /// Simulated time.
    pub virtual_time: Duration,
    /// Commits of the workload.
    pub commits: u64,
    /// Changes given to handlers.
    pub deliveries: u64,
    /// Those of them that were the first of their change.
    pub first_deliveries: u64,
    /// Requests that went wrong.
    pub faults: u64,
    /// Instances that were started.
    pub starts: u64,
    /// Instances that were killed.
    pub kills: u64,
    /// Instances that were asked to stop.
    pub stops: u64,
    /// Instances that stood still.
    pub stalls: u64,
    /// Instances that were cut off from a container.
    pub cuts: u64,
    /// Instances that were started with the name of another one.
    pub twins: u64,
    /// What happened to the leases.
    pub leases: LedgerCounts,
    /// What happened on the way to consumers, in delivery worlds.
    pub delivery: DeliveryCounts,
}

impl Statistics {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.virtual_time += other.virtual_time;
        self.commits += other.commits;
        self.deliveries += other.deliveries;
        self.first_deliveries += other.first_deliveries;
        self.faults += other.faults;
        self.starts += other.starts;
        self.kills += other.kills;
        self.stops += other.stops;
        self.stalls += other.stalls;
        self.cuts += other.cuts;
        self.twins += other.twins;
        self.leases.checkpoints += other.leases.checkpoints;
        self.leases.taken += other.leases.taken;
        self.leases.takeovers += other.leases.takeovers;
        self.leases.handovers += other.leases.handovers;
        self.leases.splits += other.leases.splits;
        self.leases.parked += other.leases.parked;
        self.leases.calls += other.leases.calls;
        self.leases.heartbeats += other.leases.heartbeats;
        self.leases.other_writes += other.leases.other_writes;
        self.delivery.add(&other.delivery);
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { steps, commits, deliveries, first_deliveries, .. } = self;
        let Self { faults, starts, kills, stops, stalls, cuts, twins, .. } = self;
        let LedgerCounts { checkpoints, takeovers, handovers, splits, parked, .. } = self.leases;
        let hours = self.virtual_time.as_secs_f64() / 3600.0;
        if self.delivery != DeliveryCounts::default() {
            return write!(
                f,
                "{hours:.1} h of virtual time, {steps} steps, {}, {faults} faults, {starts} \
                 starts, {kills} kills, {stops} stops, {stalls} stalls, {cuts} cuts, {twins} twins",
                self.delivery,
            );
        }
        write!(
            f,
            "{hours:.1} h of virtual time, {steps} steps, {commits} commits, {deliveries} \
             deliveries ({first_deliveries} first), {checkpoints} checkpoints, {takeovers} \
             takeovers, {handovers} handovers, {splits} splits, {parked} parked, {faults} faults, \
             {starts} starts, {kills} kills, {stops} stops, {stalls} stalls, {cuts} cuts, {twins} \
             twins"
        )
    }
}
