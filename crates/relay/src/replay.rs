//! Publishing events again that were sent already.

use std::sync::Arc;

use millstream_core::{
    Clock, Container, ContainerSettings, Continuation, Error, FeedMode, KeyRange, Lsn, Message,
    PageSize, Publisher, Result, StartFrom, SystemClock,
};

use crate::handler::{Mapping, is_permanent};
use crate::mapping::MessageForm;
use crate::options::RelayOptions;

/// Publishes the events of a container from some point up to now, once, to any publisher.
///
/// Messages have the ids they had the first time: a destination that detects duplicates drops those
/// inside its window, and an inbox skips those it has seen. The relay and its leases are not
/// touched. Events of a key are in order among each other; where the relay sends at the same time,
/// they come between newer ones, and those it has not sent yet come once more from it.
///
/// To give events to one subscription again and to no other, publish to that one:
/// `millstream_broker::Broker::publisher_to_one`.
pub struct Replay {
    data: Container,
    publisher: Arc<dyn Publisher>,
    mapping: Mapping,
    from: StartFrom,
    after: Option<Continuation>,
    keys: KeyRange,
    clock: Arc<dyn Clock>,
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Events published.
    pub published: u64,
    /// Events that cannot be messages, or that the publisher refuses for good.
    pub refused: u64,
}

impl Replay {
    /// A replay of all events that the container still has.
    pub fn new(data: &Container, publisher: Arc<dyn Publisher>) -> Self {
        let default_type = ContainerSettings::EVENT_TYPE.to_owned();
        let event_type = data.info.settings.event_type.clone().unwrap_or(default_type);
        let RelayOptions { source, .. } = RelayOptions::default();
        let form = MessageForm::default();
        let mapping = Mapping { form, source, event_type, all_documents: false };
        Self {
            data: data.clone(),
            publisher,
            mapping,
            from: StartFrom::Beginning,
            after: None,
            keys: KeyRange::all(),
            clock: Arc::new(SystemClock::default()),
        }
    }

    /// Where the time comes from. Default: the clock of the machine.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Where to begin. Default: the oldest event there is.
    #[must_use]
    pub fn from(mut self, from: StartFrom) -> Self {
        self.from = from;
        self
    }

    /// Begins after a position of the feed, such as one of a lease. It belongs to a range or to
    /// what a range was split into, so it goes with [`Replay::keys`] of there.
    #[must_use]
    pub fn after(mut self, position: Continuation) -> Self {
        self.after = Some(position);
        self
    }

    /// Only events whose partition key lies here. Default: all.
    #[must_use]
    pub fn keys(mut self, keys: KeyRange) -> Self {
        self.keys = keys;
        self
    }

    /// How events look, and where they say they come from. Default: as [`RelayOptions::default`].
    #[must_use]
    pub fn like(mut self, options: &RelayOptions) -> Self {
        self.mapping.form = options.form;
        self.mapping.source.clone_from(&options.source);
        self
    }

    /// Publishes everything up to the newest commit at the moment of this call; `progress` hears
    /// after every page how much was done.
    ///
    /// # Errors
    ///
    /// Whatever the feed or the publisher says, except that single events that can never be
    /// published are counted and passed over. A range that is split meanwhile is gone on with.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the replay in the middle; a new one begins from its start.
    pub async fn run(
        &self,
        progress: &(dyn Fn(ReplayReport) + Send + Sync),
    ) -> Result<ReplayReport> {
        let mut report = ReplayReport::default();
        let mut todo: Vec<(KeyRange, Option<Continuation>, Option<Lsn>)> =
            vec![(self.keys.clone(), self.after.clone(), None)];
        while let Some((keys, after, until)) = todo.pop() {
            let moved = match self.range(&keys, after, until, &mut report, progress).await? {
                Some(moved) => moved,
                None => continue,
            };
            for range in self.data.feed.ranges().await? {
                if let Some(keys) = range.keys.intersect(&keys) {
                    todo.push((keys, moved.0.clone(), moved.1));
                }
            }
        }
        Ok(report)
    }

    /// Replays one range. Returns where it was and where it wanted to go if the keys lie in
    /// several ranges now.
    async fn range(
        &self,
        keys: &KeyRange,
        after: Option<Continuation>,
        until: Option<Lsn>,
        report: &mut ReplayReport,
        progress: &(dyn Fn(ReplayReport) + Send + Sync),
    ) -> Result<Option<(Option<Continuation>, Option<Lsn>)>> {
        let mut after = match after {
            Some(after) => after,
            None => match self.data.feed.start(keys, self.from, FeedMode::LatestVersion).await {
                Ok(start) => start,
                Err(error) if is_moved(&error) => return Ok(Some((None, until))),
                Err(error) => return Err(error),
            },
        };
        let mut until = until;
        loop {
            let page = match self.data.feed.read(keys, &after, PageSize::items(500)).await {
                Ok(page) => page,
                Err(error) if is_moved(&error) => return Ok(Some((Some(after), until))),
                Err(error) => return Err(error),
            };
            let end = *until.get_or_insert(page.newest);
            let mut messages = Vec::new();
            for change in page.changes.iter().filter(|it| it.lsn <= end) {
                match self.mapping.message(change) {
                    Ok(message) => messages.extend(message.and_then(|it| self.due(it))),
                    Err(_) => report.refused += 1,
                }
            }
            self.publish(messages, report).await?;
            progress(*report);
            let last = page.changes.last().map(|it| it.lsn);
            if last.is_none_or(|it| end <= it) {
                return Ok(None);
            }
            after = page.continuation;
        }
    }

    /// The message as the publisher takes it; none if it is not due and the publisher cannot hold
    /// it back. It was not sent before either: the relay has it until then.
    fn due(&self, mut message: Message) -> Option<Message> {
        if self.publisher.can_schedule() {
            return Some(message);
        }
        let due = message.scheduled_at.take();
        due.is_none_or(|it| it <= self.clock.now()).then_some(message)
    }

    /// Publishes in calls that the publisher takes, passing over what it refuses for good.
    async fn publish(&self, mut messages: Vec<Message>, report: &mut ReplayReport) -> Result<()> {
        let limits = self.publisher.limits();
        while !messages.is_empty() {
            let mut bytes = 0;
            let fitting = messages.iter().take(limits.batch_messages_max).take_while(|it| {
                bytes += it.size();
                bytes <= limits.batch_bytes_max
            });
            let count = fitting.count().max(1);
            let rest = messages.split_off(count);
            match self.publisher.publish(messages.clone()).await {
                Ok(()) => report.published += u64::try_from(count).unwrap_or(u64::MAX),
                Err(error) => {
                    let refused = error.operation().filter(|_| is_permanent(&error));
                    let Some(refused) = refused.filter(|it| *it < count) else {
                        return Err(error);
                    };
                    report.refused += 1;
                    messages.remove(refused);
                    messages.extend(rest);
                    continue;
                }
            }
            messages = rest;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("from", &self.from).finish_non_exhaustive()
    }
}

fn is_moved(error: &Error) -> bool {
    error.kind() == millstream_core::ErrorKind::RangeMoved
}
