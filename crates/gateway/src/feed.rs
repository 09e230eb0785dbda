//! The change feed: `GET …/docs` with the header `A-IM`.
//!
//! The continuation that clients see is the `etag` of a page: the number of the last commit, in
//! quotes. Clients read it as a number, keep one for each range of keys, and send it back in
//! `If-None-Match`. Which feed it belongs to, and the time a reader started from, are in other
//! headers that they send again each time. Only the SDK for .NET does not repeat the time; it takes
//! an etag as it is, so for a while the time stands behind the number: `"42.1700000000000"`.

use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, header};
use millstream_core::{
    Change, Continuation, Cursor, ErrorKind, FeedMode, KeyRange, Lsn, PageSize, PartitionKey,
    StartFrom, Timestamp,
};

use crate::item_body::{self, home};
use crate::known_ranges::Range;
use crate::open_container::OpenContainer;
use crate::refusal::Refusal;
use crate::reply::{Answer, Reply};
use crate::request::Request;
use crate::scope::Scope;
use crate::state::Call;
use crate::{change_wire, charge, headers};

/// Pages without a change for the reader that are passed over within one request. Then the client
/// gets an empty page and comes again, so that no request takes for ever.
const EMPTY_PAGES_MAX: usize = 32;
/// How long pages are passed over: some clients wait for seconds only, and then begin again.
const EMPTY_TIME_MAX: Duration = Duration::from_secs(1);

/// `GET …/docs` with a feed mode.
pub(crate) async fn read(call: Call<'_>) -> Answer {
    let Call { request, container, .. } = call;
    let mode = mode(request)?;
    let scope = Scope::read(request, container).await?;
    if scope == Scope::All && container.refresh_ranges().await?.len() != 1 {
        let message = format!(
            "a change feed is read range by range: name one in the header {} or a key in {}",
            headers::RANGE_ID,
            headers::PARTITION_KEY
        );
        return Err(Refusal::bad_request(message));
    }
    let keys = scope.keys(container)?;
    let only = match &scope {
        Scope::Partition(key) => Some(key),
        Scope::Keys(_) | Scope::All => None,
    };
    let read = page(call, mode, &keys, only).await;
    let page = match read {
        Ok(page) => page,
        Err(refusal) if refusal.status == StatusCode::GONE => {
            // Whoever asks next should see the new ranges at once.
            container.refresh_ranges().await?;
            return Err(refusal);
        }
        Err(refusal) => return Err(refusal),
    };
    let etag = page.etag(request, call.state.clock.now());
    let Page { changes, newest, is_end, .. } = page;
    let (range, lsn) =
        container.with_range_of(keys.min(), |range| (range.info.id, range.note(newest)));
    let reply = if changes.is_empty() && is_end {
        Reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        let documents = documents(call, mode, &changes)?;
        let body = item_body::page(&container.rid, &documents);
        let charge = charge::page(body.len());
        Reply::new(StatusCode::OK, body).charge(charge)
    };
    Ok(reply.session(range, lsn).item_count(changes.len()).header(&header::ETAG, &etag))
}

/// What one request is answered with.
struct Page {
    changes: Vec<Change>,
    after: Lsn,
    /// Changes from before this are left out.
    since: Option<Timestamp>,
    newest: Lsn,
    is_end: bool,
}

impl Page {
    /// What a client sends back to get the next one. It has the time only as long as something
    /// earlier can follow, so that hardly any place that a client keeps is more than a number.
    fn etag(&self, request: &Request, now: Timestamp) -> String {
        let Self { after, newest, since, .. } = self;
        let since = since.filter(|it| after < newest || now < *it);
        match since.filter(|_| names_time_once(request)) {
            Some(since) => format!("\"{after}.{}\"", since.as_millis()),
            None => format!("\"{after}\""),
        }
    }
}

/// Whether the client sends `If-Modified-Since` with its first request alone. Nothing but its name
/// tells. Others need a number: the SDK for Java computes with it.
fn names_time_once(request: &Request) -> bool {
    let agent = request.headers.text(&header::USER_AGENT);
    agent.is_some_and(|it| it.starts_with("cosmos-netstandard-sdk/"))
}

/// Whether a request names one of the feeds.
pub(crate) fn is_named(request: &Request) -> bool {
    mode(request).is_ok()
}

/// The refusal of a query that asks for the feed as well: it would be answered with items that have
/// not changed, and pages that say nothing of where the feed goes on.
pub(crate) fn queried() -> Refusal {
    Refusal::bad_request(
        "queries over the change feed are not supported: the request has both a query and the \
         header A-IM; read the feed and filter what comes, or leave the header out",
    )
}

async fn page(
    call: Call<'_>,
    mode: FeedMode,
    keys: &KeyRange,
    only: Option<&PartitionKey>,
) -> Result<Page, Refusal> {
    let Call { state, request, container, .. } = call;
    let (size, begun) = (request.page_size()?, state.clock.monotonic());
    let mut after = start(request, container, mode, keys).await?;
    for _ in 1..EMPTY_PAGES_MAX {
        let (page, continuation) = step(container, keys, only, &after, size).await?;
        let is_late = EMPTY_TIME_MAX <= state.clock.monotonic().saturating_sub(begun);
        if !page.changes.is_empty() || page.is_end || is_late {
            return Ok(page);
        }
        after = continuation;
    }
    Ok(step(container, keys, only, &after, size).await?.0)
}

async fn step(
    container: &OpenContainer,
    keys: &KeyRange,
    only: Option<&PartitionKey>,
    after: &Continuation,
    size: PageSize,
) -> Result<(Page, Continuation), Refusal> {
    let mut page = container.feed().read(keys, after, size).await?;
    let cursor = Cursor::parse(&page.continuation)?;
    let is_end = page.is_end(after);
    // Two partition keys may have the same hash.
    page.changes.retain(|change| only.is_none_or(|key| change.partition_key == *key));
    let Cursor { after, since, .. } = cursor;
    let found = Page { changes: page.changes, after, since, newest: page.newest, is_end };
    Ok((found, page.continuation))
}

/// Where the request wants to go on, or to begin.
async fn start(
    request: &Request,
    container: &OpenContainer,
    mode: FeedMode,
    keys: &KeyRange,
) -> Result<Continuation, Refusal> {
    let is_kept = !container.settings().all_versions_retention.is_zero();
    if mode == FeedMode::AllVersions && !is_kept {
        return Err(Refusal::bad_request(
            "All Versions and Deletes mode must be enabled for the container: create it with a \
             changeFeedPolicy whose retentionDuration is positive",
        ));
    }
    let since = since(request)?;
    let from = match (request.text(&header::IF_NONE_MATCH)?, since, mode) {
        (Some("*"), _, _) => StartFrom::Now,
        (Some(etag), since, mode) => {
            let (after, since_etag) = position(etag)?;
            check_given_out(container, keys, after).await?;
            let container = container.info().resource_id.incarnation();
            let since = since.or(since_etag).filter(|_| mode == FeedMode::LatestVersion);
            return Ok(Cursor { container, mode, after, since }.to_continuation());
        }
        (None, _, FeedMode::AllVersions) => {
            return Err(Refusal::bad_request(
                "the feed of all versions and deletes begins now (If-None-Match: *) or goes on \
                 from a continuation; it has no beginning and no points in time",
            ));
        }
        (None, Some(since), FeedMode::LatestVersion) => StartFrom::Time(since),
        (None, None, FeedMode::LatestVersion) => StartFrom::Beginning,
    };
    match container.feed().start(keys, from, mode).await {
        Ok(continuation) => Ok(continuation),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Err(Refusal::bad_request(error.report()))
        }
        Err(error) => Err(error.into()),
    }
}

/// A number that a range has not reached is of another container, or of data that was lost. Whoever
/// read on from it would pass over everything that is committed until then.
async fn check_given_out(
    container: &OpenContainer,
    keys: &KeyRange,
    after: Lsn,
) -> Result<(), Refusal> {
    let seen = container.with_range_of(keys.min(), Range::seen);
    if after <= seen || after <= container.newest(keys).await? {
        return Ok(());
    }
    Err(Refusal::bad_request(
        "the continuation in If-None-Match is ahead of its range: it was given out by another \
         container, or what it stands for was lost",
    ))
}

fn mode(request: &Request) -> Result<FeedMode, Refusal> {
    let text = request.text(&headers::A_IM)?.unwrap_or_default();
    if text.eq_ignore_ascii_case("Incremental Feed") {
        return Ok(FeedMode::LatestVersion);
    }
    if text.eq_ignore_ascii_case("Full-Fidelity Feed") {
        return Ok(FeedMode::AllVersions);
    }
    let message = "the header A-IM has to be \"Incremental Feed\" or \"Full-Fidelity Feed\"";
    Err(Refusal::bad_request(message))
}

/// The number in an etag of a page, with or without quotes, and the time if it has one.
fn position(etag: &str) -> Result<(Lsn, Option<Timestamp>), Refusal> {
    let text = etag.trim_matches('"');
    let (lsn, since) = text.split_once('.').map_or((text, None), |(lsn, it)| (lsn, Some(it)));
    let number = |text: &str| {
        text.parse().map_err(|_| {
            Refusal::bad_request("the continuation in If-None-Match was not given out by this feed")
        })
    };
    Ok((Lsn::new(number(lsn)?), since.map(number).transpose()?.map(Timestamp::from_millis)))
}

/// The time of `If-Modified-Since`. It has seconds; a commit within the second counts. The SDK for
/// Go writes UTC where HTTP has GMT. Before 1970 nothing was committed: such a time is none.
fn since(request: &Request) -> Result<Option<Timestamp>, Refusal> {
    let Some(text) = request.text(&header::IF_MODIFIED_SINCE)? else { return Ok(None) };
    let refused = || Refusal::bad_request("the header If-Modified-Since is not a date");
    let text = text.strip_suffix("UTC").map_or(text.to_owned(), |it| format!("{it}GMT"));
    if is_before_1970(&text) {
        return Ok(None);
    }
    let time = httpdate::parse_http_date(&text).map_err(|_| refused())?;
    let since = time.duration_since(std::time::UNIX_EPOCH).map_err(|_| refused())?;
    let millis = u64::try_from(since.as_millis()).map_err(|_| refused())?;
    Ok(Some(Timestamp::from_millis(millis)))
}

/// Whether it is a date of HTTP before 1970, which `httpdate` does not know. Of early years Python
/// writes only the digits they have. The name of the day is not checked: calendars of so long ago
/// differ, and it changes nothing.
fn is_before_1970(text: &str) -> bool {
    let parts: Vec<&str> = text.split(' ').collect();
    let [weekday, day, month, year, time, "GMT"] = parts[..] else { return false };
    let number = |digits: &str, max: u16| {
        let is_number = digits.bytes().all(|it| it.is_ascii_digit());
        digits.parse::<u16>().ok().filter(|it| is_number && *it <= max)
    };
    let two = |digits: &str, max: u16| number(digits, max).filter(|_| digits.len() == 2);
    let time: Vec<&str> = time.split(':').collect();
    let [hour, minute, second] = time[..] else { return false };
    let month = MONTHS.iter().find(|(name, _)| *name == month);
    weekday.strip_suffix(',').is_some_and(|it| WEEKDAYS.contains(&it))
        && month.and_then(|(_, days)| two(day, *days)).is_some_and(|it| 0 < it)
        && year.len() <= 4
        && number(year, 1969).is_some()
        && two(hour, 23).is_some()
        && two(minute, 59).is_some()
        && two(second, 59).is_some()
}

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// The months with their days, in whatever year.
const MONTHS: [(&str, u16); 12] = [
    ("Jan", 31),
    ("Feb", 29),
    ("Mar", 31),
    ("Apr", 30),
    ("May", 31),
    ("Jun", 30),
    ("Jul", 31),
    ("Aug", 31),
    ("Sep", 30),
    ("Oct", 31),
    ("Nov", 30),
    ("Dec", 31),
];

fn documents(call: Call<'_>, mode: FeedMode, changes: &[Change]) -> Result<Vec<Bytes>, Refusal> {
    let home = home(call.container);
    let has_envelope = call.request.text(&headers::CHANGE_FEED_WIRE_FORMAT)?.is_some();
    let definition = &call.container.settings().partition_key;
    let document = |change: &Change| match mode {
        FeedMode::LatestVersion if has_envelope => change_wire::latest(home, change),
        FeedMode::LatestVersion => change_wire::flat(home, change),
        FeedMode::AllVersions => change_wire::version(home, definition, change),
    };
    Ok(changes.iter().map(document).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_before_1970_are_known() {
        for text in [
            "Mon, 01 Jan 0001 00:00:00 GMT",
            "Mon, 01 Jan 1 00:00:00 GMT",
            "Sat, 01 Jan 0001 00:00:00 GMT",
            "Mon, 01 Jan 1601 00:00:00 GMT",
            "Thu, 29 Feb 1968 12:30:59 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
        ] {
            assert!(is_before_1970(text), "{text}");
        }
        for text in [
            "",
            "Thu, 01 Jan 1970 00:00:00 GMT",
            "Mon, 01 Jan 00001 00:00:00 GMT",
            "Mon, 01 Jan  00:00:00 GMT",
            "Mon, 01 Jan +001 00:00:00 GMT",
            "Mon, 1 Jan 0001 00:00:00 GMT",
            "Mon, 00 Jan 0001 00:00:00 GMT",
            "Mon, 31 Feb 0001 00:00:00 GMT",
            "Mon, 01 Jaa 0001 00:00:00 GMT",
            "Mon, 01 Jan 0001 24:00:00 GMT",
            "Mon, 01 Jan 0001 00:00 GMT",
            "Mon, 01 Jan 0001 00:00:00",
            "Mon, 01 Jan 0001 00:00:00 CET",
            "Moo, 01 Jan 0001 00:00:00 GMT",
            "0001-01-01T00:00:00Z",
        ] {
            assert!(!is_before_1970(text), "{text}");
        }
    }
}
