//! Which part of a container a feed or a query is about.

use millstream_core::{KeyRange, PartitionKey, RangeId, RangeInfo, ScanScope};

use crate::headers;
use crate::open_container::OpenContainer;
use crate::refusal::Refusal;
use crate::request::{KeyHeader, Request};

/// The only thing the bounds of a request may be.
const EFFECTIVE: &str = "EffectivePartitionKeyRange";

/// What the headers of a request leave of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One logical partition.
    Partition(PartitionKey),
    /// The keys of a range of the container, of a part of one, or of all who begin alike.
    Keys(KeyRange),
    /// Everything.
    All,
}

impl Scope {
    /// Reads the scope of a request: a partition key, or a range with or without bounds, or bounds.
    ///
    /// # Errors
    ///
    /// 410 with sub-status 1002 if the range is gone, or if the bounds lie outside of it; 400 for
    /// what makes no sense.
    pub(crate) async fn read(
        request: &Request,
        container: &OpenContainer,
    ) -> Result<Self, Refusal> {
        if let KeyHeader::Key(key) = request.partition_key()? {
            return Self::of_key(key, container);
        }
        let bounds = bounds(request)?;
        match (range(request, container).await?, bounds) {
            (None, None) => Ok(Self::All),
            (Some(range), None) => Ok(Self::Keys(range.keys)),
            (None, Some(bounds)) => Ok(Self::Keys(bounds)),
            (Some(range), Some(bounds)) => match range.keys.intersect(&bounds) {
                Some(keys) => Ok(Self::Keys(keys)),
                None => Err(Refusal::bad_request(
                    "the bounds of the request lie outside of the range it names",
                )),
            },
        }
    }

    /// The keys it covers.
    pub(crate) fn keys(&self, container: &OpenContainer) -> Result<KeyRange, Refusal> {
        match self {
            Self::Partition(key) => Ok(container.settings().partition_key.range_of(key)?),
            Self::Keys(keys) => Ok(keys.clone()),
            Self::All => Ok(KeyRange::all()),
        }
    }

    /// What to scan.
    pub(crate) fn to_scan(&self) -> ScanScope {
        match self {
            Self::Partition(key) => ScanScope::Partition(key.clone()),
            Self::Keys(keys) => ScanScope::Keys(keys.clone()),
            Self::All => ScanScope::Keys(KeyRange::all()),
        }
    }

    fn of_key(key: PartitionKey, container: &OpenContainer) -> Result<Self, Refusal> {
        let definition = &container.settings().partition_key;
        // Fewer components than paths stand for all keys that begin with them.
        if key.components().len() < definition.paths().len() {
            return Ok(Self::Keys(definition.range_of(&key)?));
        }
        definition.effective(&key)?;
        Ok(Self::Partition(key))
    }
}

/// The range a request names, as `0` or `<container>,0`.
pub(crate) async fn range(
    request: &Request,
    container: &OpenContainer,
) -> Result<Option<RangeInfo>, Refusal> {
    let Some(text) = request.text(&headers::RANGE_ID)? else { return Ok(None) };
    let number = text.rsplit_once(',').map_or(text, |(_, number)| number).trim();
    let refused = |_| Refusal::bad_request(format!("the range {number:?} is not a number"));
    let id = RangeId(number.parse().map_err(refused)?);
    container.range(id).await.map(Some)
}

fn bounds(request: &Request) -> Result<Option<KeyRange>, Refusal> {
    let start = request.text(&headers::START_EPK)?;
    let end = request.text(&headers::END_EPK)?;
    if start.is_none() && end.is_none() {
        return Ok(None);
    }
    let kind = request.text(&headers::READ_KEY_TYPE)?;
    if !kind.is_some_and(|it| it.eq_ignore_ascii_case(EFFECTIVE)) {
        let name = headers::READ_KEY_TYPE;
        let message = format!("bounds of keys need the header {name} with the value {EFFECTIVE}");
        return Err(Refusal::bad_request(message));
    }
    let min = start.unwrap_or_default().parse()?;
    let max = end.unwrap_or("FF").parse()?;
    Ok(Some(KeyRange::new(min, max)?))
}
