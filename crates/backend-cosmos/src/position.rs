//! Where a reader of the feed is.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millstream_core::{Continuation, Cursor, Error, ErrorKind, FeedMode, Lsn, Result, Timestamp};

/// What a continuation begins with whose `etag` is not a number.
const OPAQUE: &str = "e1.";
/// The last second that HTTP has a date for.
const SECONDS_MAX: u64 = 253_402_300_799;

/// A place in the feed of one range: the `etag` of the last page, none at the beginning, and the
/// time the reader started from.
///
/// Azure and Millstream have numbers as etags, and then the continuation is the same as that of
/// other backends. What other servers have is carried as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) etag: Option<String>,
    pub(crate) since: Option<Timestamp>,
}

impl Position {
    /// The position after a page with this etag; never before where the reader was.
    pub(crate) fn reached(&self, etag: String) -> Self {
        let before = self.etag.as_deref().and_then(number);
        let is_back = number(&etag).is_some_and(|it| Some(it) < before);
        let etag = if is_back { self.etag.clone() } else { Some(etag) };
        Self { etag, since: self.since }
    }

    /// The date to ask for, so that everything comes that was committed at the time or later.
    ///
    /// Azure shows what is later than the date, a Millstream also what is of that second. So it is
    /// the second before; what is too old is sorted out by [`Position::wants`].
    pub(crate) fn if_modified_since(&self) -> Option<String> {
        let before = (self.since?.as_millis() / 1000).checked_sub(1)?.min(SECONDS_MAX);
        Some(httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(before)))
    }

    /// Whether a change is not from before the time the reader started from.
    ///
    /// The service tells whole seconds: a reader may see a little more, never less.
    pub(crate) fn wants(&self, committed_at: Timestamp) -> bool {
        let second = |it: Timestamp| it.as_millis() / 1000;
        self.since.is_none_or(|since| second(since) <= second(committed_at))
    }

    pub(crate) fn to_continuation(&self, container: u64) -> Result<Continuation> {
        let after = match self.etag.as_deref() {
            None => Some(Lsn::ZERO),
            Some(etag) => number(etag),
        };
        if let Some(after) = after {
            let mode = FeedMode::LatestVersion;
            return Ok(Cursor { container, mode, after, since: self.since }.to_continuation());
        }
        let etag = URL_SAFE_NO_PAD.encode(self.etag.as_deref().unwrap_or_default());
        let since = self.since.map(|it| it.as_millis().to_string()).unwrap_or_default();
        Continuation::new(format!("{OPAQUE}{container}.{since}.{etag}"))
    }

    /// Reads what [`Position::to_continuation`] wrote for the same container.
    pub(crate) fn parse(continuation: &Continuation, container: u64) -> Result<Self> {
        let (of, position) = match continuation.as_str().strip_prefix(OPAQUE) {
            Some(rest) => opaque(rest).ok_or_else(|| {
                let attempted = format!("use the continuation \"{continuation}\"");
                Error::invalid(attempted, "it was not given out by this feed")
            })?,
            None => {
                let cursor = Cursor::parse(continuation)?;
                check_mode(cursor.mode)?;
                let etag = (cursor.after != Lsn::ZERO).then(|| format!("\"{}\"", cursor.after));
                (cursor.container, Self { etag, since: cursor.since })
            }
        };
        if of == container {
            return Ok(position);
        }
        let attempted = format!("use the continuation \"{continuation}\"");
        let error = Error::new(ErrorKind::ContainerRecreated, attempted);
        Err(error.because("it comes from an earlier container of this name"))
    }
}

/// Refuses what the service has only in part.
pub(crate) fn check_mode(mode: FeedMode) -> Result<()> {
    match mode {
        FeedMode::LatestVersion => Ok(()),
        FeedMode::AllVersions => {
            let error = Error::new(ErrorKind::Unsupported, "read all versions");
            Err(error.because("Cosmos DB shows them from now on only, never from the beginning"))
        }
    }
}

/// The number of a commit, in quotes.
fn number(etag: &str) -> Option<Lsn> {
    let digits = etag.strip_prefix('"')?.strip_suffix('"')?;
    digits.parse().ok().map(Lsn::new)
}

fn opaque(text: &str) -> Option<(u64, Position)> {
    let mut parts = text.split('.');
    let (container, since, etag) = (parts.next()?, parts.next()?, parts.next()?);
    let etag = String::from_utf8(URL_SAFE_NO_PAD.decode(etag).ok()?).ok()?;
    let since = match since {
        "" => None,
        millis => Some(Timestamp::from_millis(millis.parse().ok()?)),
    };
    if parts.next().is_some() {
        return None;
    }
    Some((container.parse().ok()?, Position { etag: Some(etag), since }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(etag: Option<&str>, since: Option<u64>) -> Position {
        Position { etag: etag.map(str::to_owned), since: since.map(Timestamp::from_millis) }
    }

    #[track_caller]
    fn check(etag: Option<&str>, since: Option<u64>, expected: &str) {
        let position = position(etag, since);
        let continuation = position.to_continuation(7).unwrap();
        assert_eq!(continuation.as_str(), expected);
        assert_eq!(Position::parse(&continuation, 7).unwrap(), position);
        let error = Position::parse(&continuation, 8).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ContainerRecreated);
    }

    #[test]
    fn a_position_survives_its_text_form() {
        check(None, None, "1.7.l.0");
        check(None, Some(5), "1.7.l.0.5");
        check(Some("\"12\""), None, "1.7.l.12");
        check(Some("\"12\""), Some(5), "1.7.l.12.5");
        check(Some("{\"v\":1}"), None, "e1.7..eyJ2IjoxfQ");
        check(Some("{\"v\":1}"), Some(5), "e1.7.5.eyJ2IjoxfQ");
    }

    #[test]
    fn a_reader_never_goes_back() {
        let at = |etag: &str| position(Some(etag), Some(5));
        assert_eq!(at("\"12\"").reached("\"13\"".to_owned()), at("\"13\""));
        assert_eq!(at("\"12\"").reached("\"3\"".to_owned()), at("\"12\""));
        assert_eq!(at("x").reached("y".to_owned()), at("y"));
    }

    #[track_caller]
    fn check_since(since: u64, date: Option<&str>, unwanted: u64, wanted: u64) {
        let position = position(None, Some(since));
        assert_eq!(position.if_modified_since().as_deref(), date);
        let wants = |millis: u64| position.wants(Timestamp::from_millis(millis));
        assert!(wants(wanted) && (unwanted == wanted || !wants(unwanted)), "{since}");
    }

    #[test]
    fn a_start_at_a_time_begins_with_its_second() {
        let late = Some("Fri, 31 Dec 9999 23:59:59 GMT");
        check_since(0, None, 0, 0);
        check_since(999, None, 0, 0);
        check_since(1_000, Some("Thu, 01 Jan 1970 00:00:00 GMT"), 999, 1_000);
        check_since(7_500, Some("Thu, 01 Jan 1970 00:00:06 GMT"), 6_000, 7_000);
        check_since(253_402_300_800_000, late, 253_402_300_799_999, 253_402_300_800_000);
        check_since(u64::MAX, late, 253_402_300_800_000, u64::MAX);
        assert_eq!(position(None, None).if_modified_since(), None);
    }

    #[test]
    fn foreign_text_is_refused() {
        for text in ["", "e1.", "e1.7", "e1.7.x.AA", "e1.7..%", "e1.7..AA.", "e1.x..AA", "1.7.a.1"]
        {
            assert!(Position::parse(&Continuation::new(text).unwrap(), 7).is_err(), "{text}");
        }
    }
}
