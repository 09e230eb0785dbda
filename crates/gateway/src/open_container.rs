//! A container that requests work on, with what is looked up once and not for every request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::StatusCode;
use millstream_core::{
    ChangeFeed, Container, ContainerInfo, ContainerSettings, Cursor, Documents, EffectiveKey,
    ErrorKind, FeedMode, KeyRange, Lsn, PartitionKey, RangeId, RangeInfo, StartFrom,
};
use millstream_query::ComputedProperties;

use crate::known_ranges::{KnownRanges, Range};
use crate::lines::Lines;
use crate::refusal::{Refusal, sub_status};
use crate::reply::Reply;
use crate::request::Request;
use crate::rid::Rid;
use crate::throttle::Throttle;
use crate::{headers, session};

/// How often the ranges may turn out to have been split while one request is looked at.
const MOVES_MAX: usize = 4;

/// An open container of the backend.
#[derive(Debug)]
pub(crate) struct OpenContainer {
    container: Container,
    /// When the backend was last asked for it, in milliseconds of the monotonic clock.
    asked_at: AtomicU64,
    /// Held by who asks.
    pub(crate) asking: tokio::sync::Mutex<()>,
    /// Its resource id.
    pub(crate) rid: String,
    /// `dbs/{database}/colls/{container}`, by name, as headers have it.
    pub(crate) name_path: String,
    /// `dbs/{database}/colls/{container}/`, by resource id.
    pub(crate) self_link: String,
    /// The headers that tell [`Self::name_path`] and [`Self::rid`].
    paths: Lines,
    /// Properties that queries may name although they are not stored, and when they were read.
    computed: RwLock<Option<(Duration, Arc<ComputedProperties>)>>,
    /// What it may cost in a second, perhaps together with others of its database.
    pub(crate) throttle: Arc<Throttle>,
    /// Its ranges, which all who have it open share.
    ranges: Arc<KnownRanges>,
}

impl OpenContainer {
    pub(crate) async fn new(
        container: Container,
        throttle: Arc<Throttle>,
        ranges: Arc<KnownRanges>,
        now: Duration,
    ) -> Result<Self, Refusal> {
        let info = &container.info;
        let rid = Rid::Container(info.resource_id).encode();
        let database = Rid::Database(info.resource_id.database).encode();
        let name = &info.name;
        let name_path = headers::path(&["dbs", name.database(), "colls", name.container()]);
        let mut paths = Lines::default();
        paths.add(&headers::ALT_CONTENT_PATH, name_path.as_bytes());
        paths.add(&headers::CONTENT_PATH, rid.as_bytes());
        ranges.refresh(&*container.feed).await?;
        Ok(Self {
            self_link: format!("dbs/{database}/colls/{rid}/"),
            paths,
            name_path,
            rid,
            computed: RwLock::default(),
            throttle,
            ranges,
            asked_at: AtomicU64::new(millis(now)),
            asking: tokio::sync::Mutex::default(),
            container,
        })
    }

    /// How old what is known is.
    pub(crate) fn age(&self, now: Duration) -> Duration {
        let asked_at = self.asked_at.load(Ordering::Relaxed);
        Duration::from_millis(millis(now).saturating_sub(asked_at))
    }

    /// Notes that the backend was asked at this time, and did not say that anything has changed.
    pub(crate) fn set_asked(&self, at: Duration) {
        self.asked_at.fetch_max(millis(at), Ordering::Relaxed);
    }

    pub(crate) fn info(&self) -> &ContainerInfo {
        &self.container.info
    }

    pub(crate) fn settings(&self) -> &ContainerSettings {
        &self.container.info.settings
    }

    pub(crate) fn documents(&self) -> &dyn Documents {
        &*self.container.documents
    }

    pub(crate) fn feed(&self) -> &dyn ChangeFeed {
        &*self.container.feed
    }

    /// The computed properties, if they were read since `since`.
    pub(crate) fn computed(&self, since: Duration) -> Option<Arc<ComputedProperties>> {
        let computed = self.computed.read().unwrap_or_else(PoisonError::into_inner);
        computed.as_ref().filter(|(at, _)| since <= *at).map(|(_, it)| Arc::clone(it))
    }

    pub(crate) fn set_computed(&self, at: Duration, computed: Arc<ComputedProperties>) {
        *self.computed.write().unwrap_or_else(PoisonError::into_inner) = Some((at, computed));
    }

    /// Adds what every answer about something in the container has: where it lies.
    pub(crate) fn name_paths(&self, mut reply: Reply) -> Reply {
        reply.lines.add_all(&self.paths);
        reply
    }

    /// The ranges as they were known last, in key order.
    pub(crate) fn ranges(&self) -> Arc<Vec<Range>> {
        self.ranges.get()
    }

    /// Asks the backend for the ranges.
    pub(crate) async fn refresh_ranges(&self) -> Result<Arc<Vec<Range>>, Refusal> {
        self.ranges.refresh(self.feed()).await
    }

    /// Does something with the range that holds `key`.
    pub(crate) fn with_range_of<T>(&self, key: &EffectiveKey, act: impl FnOnce(&Range) -> T) -> T {
        let ranges = self.ranges();
        let after = ranges.partition_point(|it| it.info.keys.min().trimmed() <= key.as_bytes());
        // Ranges begin at the beginning of the space, so that there is always one before.
        act(&ranges[after.saturating_sub(1)])
    }

    /// The range that holds a whole partition key, and the newest commit of it that is known, not
    /// less than `lsn`. What [`crate::reply::Reply::session`] needs after a read or a commit.
    pub(crate) fn position(&self, key: &PartitionKey, lsn: Lsn) -> Result<(RangeId, Lsn), Refusal> {
        let position = |range: &Range| (range.info.id, range.note(lsn));
        if let [only] = &self.ranges()[..] {
            return Ok(position(only));
        }
        let key = self.settings().partition_key.effective(key)?;
        Ok(self.with_range_of(&key, position))
    }

    /// The range with this number.
    ///
    /// # Errors
    ///
    /// 410 with sub-status 1002 if it has been split or merged; clients then ask for the ranges.
    pub(crate) async fn range(&self, id: RangeId) -> Result<RangeInfo, Refusal> {
        let find =
            |ranges: &[Range]| ranges.iter().find(|it| it.info.id == id).map(|it| it.info.clone());
        if let Some(range) = find(&self.ranges()) {
            return Ok(range);
        }
        match find(&self.refresh_ranges().await?) {
            Some(range) => Ok(range),
            None => Err(range_gone(id)),
        }
    }

    /// The newest commit of a range.
    ///
    /// # Errors
    ///
    /// 410 with sub-status 1002 if `keys` lie in several ranges; the ranges were asked for then.
    pub(crate) async fn newest(&self, keys: &KeyRange) -> Result<Lsn, Refusal> {
        let started = self.feed().start(keys, StartFrom::Now, FeedMode::LatestVersion).await;
        if let Err(error) = &started
            && error.kind() == ErrorKind::RangeMoved
        {
            self.refresh_ranges().await?;
        }
        let newest = Cursor::parse(&started?)?.after;
        let ranges = self.ranges();
        let range = ranges.iter().find(|it| it.info.keys.overlaps(keys));
        Ok(range.map_or(newest, |it| it.note(newest)))
    }

    /// Checks what the client has seen of the ranges that `keys` lie in.
    ///
    /// # Errors
    ///
    /// 400 if the token is garbage; 404 with sub-status 1002 if it is ahead of a range.
    pub(crate) async fn check_session(
        &self,
        request: &Request,
        keys: &KeyRange,
    ) -> Result<(), Refusal> {
        let Some(text) = request.text(&headers::SESSION_TOKEN)? else { return Ok(()) };
        let wanted = session::parse(text)?;
        let ranges = self.ranges();
        let is_known =
            |it: &Range| wanted.get(&it.info.id).is_none_or(|wanted| *wanted <= it.seen());
        if ranges.iter().filter(|it| it.info.keys.overlaps(keys)).all(is_known) {
            return Ok(());
        }
        // Most clients have seen what was told here, and need not carry this around.
        Box::pin(self.check_unknown(&wanted, keys)).await
    }

    /// Checks what was told elsewhere, or is known under another range here.
    async fn check_unknown(
        &self,
        wanted: &BTreeMap<RangeId, Lsn>,
        keys: &KeyRange,
    ) -> Result<(), Refusal> {
        for _ in 0..MOVES_MAX {
            match self.has_seen(&self.ranges(), wanted, keys).await {
                Ok(true) => return Ok(()),
                Ok(false) => break,
                // Split meanwhile; the new ranges are known by now.
                Err(refusal) if refusal.status == StatusCode::GONE => (),
                Err(refusal) => return Err(refusal),
            }
        }
        let message = "the read session is not available for the session token of the request: \
                       this range has not seen that commit";
        let refusal = Refusal::new(StatusCode::NOT_FOUND, message);
        Err(refusal.sub_status(sub_status::SESSION_NOT_AVAILABLE))
    }

    async fn has_seen(
        &self,
        ranges: &[Range],
        wanted: &BTreeMap<RangeId, Lsn>,
        keys: &KeyRange,
    ) -> Result<bool, Refusal> {
        for range in ranges.iter().filter(|it| it.info.keys.overlaps(keys)) {
            let Some(wanted) = wanted.get(&range.info.id) else { continue };
            // Whoever has not heard of a split takes a commit of one part for one of the whole,
            // and clients take what they have seen of the whole for something that every part has.
            let others = ranges.iter().filter(|it| it.info.id != range.info.id);
            let others = others.filter(|it| it.is_related_to(range));
            let related: Vec<&Range> = [range].into_iter().chain(others).collect();
            if !self.is_reached(*wanted, &related).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether one of these ranges has seen a commit.
    async fn is_reached(&self, wanted: Lsn, ranges: &[&Range]) -> Result<bool, Refusal> {
        if ranges.iter().any(|it| wanted <= it.seen()) {
            return Ok(true);
        }
        for range in ranges {
            if wanted <= self.newest(&range.info.keys).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The refusal of a range that was split or merged.
pub(crate) fn range_gone(id: RangeId) -> Refusal {
    let message = format!(
        "the range {} does not exist: it was split or merged, or never was; ask for the ranges",
        id.0
    );
    Refusal::new(StatusCode::GONE, message).sub_status(sub_status::RANGE_GONE)
}
