use millstream_core::{
    ContainerInfo, Continuation, Cursor, ErrorKind as CoreErrorKind, FeedMode, KeyRange, Lsn,
    Timestamp,
};

use crate::error::{Error, ErrorKind, Result};

/// Turns positions of other processors into those of a feed and back.
///
/// Those processors keep the etag of the last page they handled, which is the number of a commit in
/// quotes: `"123"`.
pub trait PositionTranslator: Send + Sync {
    /// The position in the feed of `keys` right after what `etag` stands for.
    ///
    /// # Errors
    ///
    /// `Invalid` if the etag does not look like one of such a feed.
    #[expect(clippy::wrong_self_convention, reason = "it is the counterpart of `to_etag`")]
    fn from_etag(&self, keys: &KeyRange, etag: &str, mode: FeedMode) -> Result<Continuation>;

    /// The etag, with its quotes, of everything up to the position.
    ///
    /// # Errors
    ///
    /// `Invalid` if no etag says the same, `ContainerRecreated` if the position belongs to an
    /// earlier container of the same name.
    fn to_etag(&self, position: &Continuation) -> Result<String>;

    /// Whether the position lies beyond the newest commit of its range, which only a position from
    /// another container can. False where the two cannot be compared.
    fn is_beyond(&self, position: &Continuation, newest: Lsn) -> bool;
}

/// Positions of a feed whose continuations are [`Cursor`]s: the etag is the number of the commit.
///
/// ```
/// use millstream_core::{Continuation, FeedMode, KeyRange};
/// use millstream_processor::foreign::{NumberedPositions, PositionTranslator};
///
/// let positions = NumberedPositions::of_container(7);
/// let keys = KeyRange::all();
/// let position = positions.from_etag(&keys, "\"42\"", FeedMode::LatestVersion)?;
/// assert_eq!(position.as_str(), "1.7.l.42");
/// assert_eq!(positions.to_etag(&position)?, "\"42\"");
/// # Ok::<(), millstream_processor::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NumberedPositions {
    container: u64,
}

impl NumberedPositions {
    /// Positions of this container.
    #[must_use]
    pub fn new(container: &ContainerInfo) -> Self {
        Self::of_container(container.resource_id.incarnation())
    }

    /// Positions of the container with this number; see
    /// [`ResourceId::incarnation`](millstream_core::ResourceId::incarnation).
    #[must_use]
    pub fn of_container(incarnation: u64) -> Self {
        Self { container: incarnation }
    }
}

impl PositionTranslator for NumberedPositions {
    fn from_etag(&self, _: &KeyRange, etag: &str, mode: FeedMode) -> Result<Continuation> {
        let refused = || {
            let shown: String = etag.chars().take(64).collect();
            Error::invalid(format!("use the position {shown:?}"), "it is not the etag of a commit")
        };
        let quoted = etag.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        let text = quoted.unwrap_or(etag);
        // A Millstream tells the SDK for .NET also when it began, until nothing earlier can follow.
        let (after, since) = text.split_once('.').map_or((text, None), |it| (it.0, Some(it.1)));
        let after = Lsn::new(number(after).ok_or_else(refused)?);
        let since = since.map(|it| number(it).ok_or_else(refused)).transpose()?;
        let is_latest = mode == FeedMode::LatestVersion;
        let since = since.filter(|_| is_latest).map(Timestamp::from_millis);
        Ok(Cursor { container: self.container, mode, after, since }.to_continuation())
    }

    fn to_etag(&self, position: &Continuation) -> Result<String> {
        let attempted = format!("write the position \"{position}\" as an etag");
        let cursor =
            Cursor::parse(position).map_err(|error| Error::store(attempted.clone(), error))?;
        if cursor.container != self.container {
            let reason = "it comes from an earlier container of this name";
            return Err(Error::new(ErrorKind::ContainerRecreated, attempted).because(reason));
        }
        if cursor.since.is_some() && cursor.after == Lsn::ZERO {
            let reason = "it begins at a time and nothing was read from it yet: an etag would go \
                          back to the first change there is";
            return Err(Error::invalid(attempted, reason));
        }
        Ok(format!("\"{}\"", cursor.after))
    }

    fn is_beyond(&self, position: &Continuation, newest: Lsn) -> bool {
        Cursor::parse(position).is_ok_and(|it| newest < it.after)
    }
}

fn number(digits: &str) -> Option<u64> {
    // The standard library also takes a sign.
    let is_number = digits.bytes().all(|it| it.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// What is wrong with a position that could not be used; none if it is not the position, so that
/// trying again may help.
pub(crate) fn refusal(keys: &KeyRange, kind: &ErrorKind) -> Option<ErrorKind> {
    let ErrorKind::Store(kind) = kind else { return Some(kind.clone()) };
    if *kind == CoreErrorKind::PositionExpired {
        return Some(ErrorKind::PositionExpired { keys: Box::new(keys.clone()) });
    }
    if *kind == CoreErrorKind::ContainerRecreated {
        return Some(ErrorKind::ContainerRecreated);
    }
    let is_wrong = [CoreErrorKind::Invalid, CoreErrorKind::Unsupported].contains(kind);
    is_wrong.then_some(ErrorKind::Invalid)
}
