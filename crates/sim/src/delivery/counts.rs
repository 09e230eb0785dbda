use std::fmt;

/// What happened on the way from commits to effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Commits of units of work.
    pub commits: u64,
    /// Events in them.
    pub events: u64,
    /// Sends that the broker acknowledged.
    pub sends: u64,
    /// Messages that it dropped as duplicates.
    pub duplicates_dropped: u64,
    /// Times a broker was opened.
    pub opens: u64,
    /// Sessions that were given out.
    pub sessions: u64,
    /// Messages that were given out.
    pub deliveries: u64,
    /// Those of them that had been given out before.
    pub redeliveries: u64,
    /// Effects of messages.
    pub effects: u64,
    /// Messages that the inbox knew.
    pub inbox_duplicates: u64,
    /// Requests to complete.
    pub completed: u64,
    /// Requests to abandon.
    pub abandoned: u64,
    /// Requests to defer.
    pub deferred: u64,
    /// Requests to put to the dead letters.
    pub dead_lettered: u64,
    /// Dead letters that were sent back.
    pub revived: u64,
    /// Settlements that came after the lock had ended.
    pub lost_locks: u64,
    /// Calls of the publisher that the broker refused for good.
    pub refused: u64,
}

impl DeliveryCounts {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.commits += other.commits;
        self.events += other.events;
        self.sends += other.sends;
        self.duplicates_dropped += other.duplicates_dropped;
        self.opens += other.opens;
        self.sessions += other.sessions;
        self.deliveries += other.deliveries;
        self.redeliveries += other.redeliveries;
        self.effects += other.effects;
        self.inbox_duplicates += other.inbox_duplicates;
        self.completed += other.completed;
        self.abandoned += other.abandoned;
        self.deferred += other.deferred;
        self.dead_lettered += other.dead_lettered;
        self.revived += other.revived;
        self.lost_locks += other.lost_locks;
        self.refused += other.refused;
    }
}

impl fmt::Display for DeliveryCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commits, events, sends, duplicates_dropped, opens, sessions, .. } = self;
        let Self { deliveries, redeliveries, effects, inbox_duplicates, abandoned, .. } = self;
        let Self { deferred, dead_lettered, revived, lost_locks, refused, .. } = self;
        write!(
            f,
            "{commits} commits, {events} events, {sends} sends, {duplicates_dropped} duplicates \
             dropped, {opens} broker openings, {sessions} sessions, {deliveries} deliveries \
             ({redeliveries} again), {effects} effects, {inbox_duplicates} known to the inbox, \
             {abandoned} abandoned, {deferred} deferred, {dead_lettered} dead letters, {revived} \
             revived, {lost_locks} lost locks, {refused} refused"
        )
    }
}
