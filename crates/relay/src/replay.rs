//! Publishing events again that were sent already.

use std::sync::Arc;

use millstream_core::{
    Clock, Container, ContainerSettings, Continuation, Cursor, Error, FeedMode, KeyRange, Lsn,
    Message, PageSize, Publisher, Result, StartFrom, SystemClock,
};

use crate::handler::{Mapping, is_permanent};
use crate::mapping::MessageForm;
use crate::options::RelayOptions;

/// Changes that are read at once.
const PAGE_CHANGES: usize = 500;

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

/// What is left to do in some keys. It can be kept, and gone on with by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayPart {
    /// The keys.
    pub keys: KeyRange,
    /// Where the next page begins.
    pub after: Continuation,
    /// The newest commit that was passed, as far as that is known.
    pub passed: Lsn,
    /// The newest commit when the replay began, which is the last one of it.
    pub until: Lsn,
}

/// What one step did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayStep {
    /// What was done.
    pub report: ReplayReport,
    /// What is left of the part: nothing, one, or several where its keys lie in several ranges now.
    pub rest: Vec<ReplayPart>,
    /// Whether it ended because there were more events than it was allowed.
    pub is_cut: bool,
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
        let mut todo = self.begin().await?;
        while let Some(part) = todo.pop() {
            let ReplayStep { report: done, rest, is_cut: _ } = self.step(part, u64::MAX).await?;
            report.published += done.published;
            report.refused += done.refused;
            todo.extend(rest);
            progress(report);
        }
        Ok(report)
    }

    /// Finds out what there is to do: everything up to the newest commit at the moment of this
    /// call. For those who go on with [`Replay::step`] at their own pace; others use
    /// [`Replay::run`].
    ///
    /// # Errors
    ///
    /// Whatever the feed says.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn begin(&self) -> Result<Vec<ReplayPart>> {
        let (mut parts, mut todo) = (Vec::new(), vec![self.keys.clone()]);
        while let Some(keys) = todo.pop() {
            match self.part(&keys).await {
                Ok(part) => parts.push(part),
                Err(error) if is_moved(&error) => todo.extend(self.parts_of(&keys).await?),
                Err(error) => return Err(error),
            }
        }
        Ok(parts)
    }

    /// Publishes the next page of a part, at most `events_max` events of it.
    ///
    /// Where `events_max` cuts a page off ([`ReplayStep::is_cut`]), what is left begins with that
    /// page again: end there.
    ///
    /// # Errors
    ///
    /// As for [`Replay::run`]. The part can be tried again; some of its events may come twice.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave any of the page published; the part can be tried again.
    pub async fn step(&self, part: ReplayPart, events_max: u64) -> Result<ReplayStep> {
        let ReplayPart { keys, after, until, .. } = &part;
        let page = match self.data.feed.read(keys, after, PageSize::items(PAGE_CHANGES)).await {
            Ok(page) => page,
            Err(error) if is_moved(&error) => {
                let parts = self.parts_of(keys).await?.into_iter();
                let rest = parts.map(|keys| ReplayPart { keys, ..part.clone() }).collect();
                return Ok(ReplayStep { rest, ..ReplayStep::default() });
            }
            Err(error) => return Err(error),
        };
        let mut report = ReplayReport::default();
        let mut messages = Vec::new();
        for change in page.changes.iter().filter(|it| it.lsn <= *until) {
            match self.mapping.message(change) {
                Ok(message) => messages.extend(message.and_then(|it| self.due(it))),
                Err(_) => report.refused += 1,
            }
        }
        let is_cut = events_max < u64::try_from(messages.len()).unwrap_or(u64::MAX);
        messages.truncate(usize::try_from(events_max).unwrap_or(usize::MAX));
        self.publish(messages, &mut report).await?;
        let last = page.changes.last().map(|it| it.lsn);
        let rest = match last {
            _ if is_cut => vec![part],
            Some(passed) if passed < *until => {
                vec![ReplayPart { after: page.continuation, passed, ..part }]
            }
            // Only changes that are nothing to a reader lie between.
            None if page.continuation != *after && !is_past(&page.continuation, *until) => {
                vec![ReplayPart { after: page.continuation, ..part }]
            }
            Some(_) | None => Vec::new(),
        };
        Ok(ReplayStep { report, rest, is_cut })
    }

    /// All that there is to do in keys of one range.
    async fn part(&self, keys: &KeyRange) -> Result<ReplayPart> {
        let feed = &self.data.feed;
        let after = match &self.after {
            Some(after) => after.clone(),
            None => feed.start(keys, self.from, FeedMode::LatestVersion).await?,
        };
        let until = feed.read(keys, &after, PageSize::items(1)).await?.newest;
        // Elsewhere continuations are their own affair; then all of it counts as ahead.
        let passed = Cursor::parse(&after).map_or(Lsn::new(0), |it| it.after);
        Ok(ReplayPart { keys: keys.clone(), after, passed, until })
    }

    /// The keys by the ranges in which they lie now.
    async fn parts_of(&self, keys: &KeyRange) -> Result<Vec<KeyRange>> {
        let ranges = self.data.feed.ranges().await?;
        Ok(ranges.iter().filter_map(|it| it.keys.intersect(keys)).collect())
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

/// Whether a continuation is known to lie behind the commit.
fn is_past(continuation: &Continuation, until: Lsn) -> bool {
    Cursor::parse(continuation).is_ok_and(|it| until <= it.after)
}

fn is_moved(error: &Error) -> bool {
    error.kind() == millstream_core::ErrorKind::RangeMoved
}
