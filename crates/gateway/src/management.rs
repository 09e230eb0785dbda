//! Splitting and merging ranges on request, so that people can test what their clients make of it.
//!
//! The calls are those of Microsoft's own emulator for engineers. A split or merge is complete when
//! it is answered.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::StatusCode;
use millstream_core::{EffectiveKey, Error, ErrorKind, RangeId, RangeInfo};
use serde::Deserialize;
use serde_json::json;

use crate::open_container::{OpenContainer, range_gone};
use crate::refusal::Refusal;
use crate::reply::{Answer, Reply};
use crate::request::Request;
use crate::state::State;
use crate::target::ContainerPath;

/// Splits and merges that are remembered.
const KEPT_MAX: usize = 256;

/// What to split by.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SplitBody {
    /// `midpoint`, or `epk` with a place.
    mode: Option<String>,
    epk: Option<String>,
    progression_mode: Option<String>,
}

/// What to merge.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MergeBody {
    partition_ids: [u32; 2],
    #[serde(default)]
    progression_mode: Option<String>,
}

/// `POST /databases/{d}/containers/{c}/partitions/{range}/split`
pub(crate) async fn split(
    state: &State,
    request: &Request,
    path: &ContainerPath,
    range: &str,
) -> Answer {
    let body = match request.body.is_empty() {
        true => SplitBody::default(),
        false => parse(&request.body)?,
    };
    check_mode(body.progression_mode.as_deref())?;
    let at: Option<EffectiveKey> = match (body.mode.as_deref(), body.epk.as_deref()) {
        (None | Some("midpoint"), None) => None,
        (None | Some("epk"), Some(place)) => Some(place.parse()?),
        _ => {
            let message = "mode has to be midpoint, or epk with a property epk";
            return Err(Refusal::bad_request(message));
        }
    };
    let refused = |_| Refusal::bad_request("a range is named by its number");
    let range = RangeId(range.parse().map_err(refused)?);
    let found = state.open(path).await?;
    found.container.range(range).await?;
    let name = found.container.info().name.clone();
    let ranges = match state.containers.split(&name, range, at.as_ref()).await {
        Ok(ranges) => ranges,
        Err(error) => return Err(failure(&found.container, &[range], &error).await),
    };
    found.container.refresh_ranges().await?;
    done(state, &ranges)
}

/// `POST /databases/{d}/containers/{c}/partitions/merge`
pub(crate) async fn merge(state: &State, request: &Request, path: &ContainerPath) -> Answer {
    let body: MergeBody = parse(&request.body)?;
    check_mode(body.progression_mode.as_deref())?;
    let found = state.open(path).await?;
    let [one, two] = body.partition_ids.map(RangeId);
    let first = found.container.range(one).await?;
    let second = found.container.range(two).await?;
    // The order in which they are named does not matter.
    let is_in_order = first.keys.min().trimmed() < second.keys.min().trimmed();
    let (left, right) = if is_in_order { (one, two) } else { (two, one) };
    let name = found.container.info().name.clone();
    let range = match state.containers.merge(&name, left, right).await {
        Ok(range) => range,
        Err(error) => return Err(failure(&found.container, &[left, right], &error).await),
    };
    found.container.refresh_ranges().await?;
    done(state, &[range])
}

/// `GET /operations/{id}`: a split or merge that is remembered, and complete.
pub(crate) fn operation(state: &State, id: &str) -> Answer {
    match state.operations.find(id) {
        Some(body) => Ok(Reply::new(StatusCode::OK, body)),
        None => Err(Refusal::not_found("there is no such operation, or it is long ago")),
    }
}

/// The last splits and merges.
#[derive(Debug, Default)]
pub(crate) struct Operations(Mutex<VecDeque<(String, Bytes)>>);

impl Operations {
    fn find(&self, id: &str) -> Option<Bytes> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(kept, _)| kept == id).map(|(_, body)| body.clone())
    }

    fn keep(&self, id: String, body: Bytes) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if KEPT_MAX <= kept.len() {
            kept.pop_front();
        }
        kept.push_back((id, body));
    }
}

/// What is said of a failure. Somebody else may have been faster, so that a range is gone.
async fn failure(container: &OpenContainer, named: &[RangeId], error: &Error) -> Refusal {
    if error.kind() == ErrorKind::NotFound
        && let Ok(ranges) = container.refresh_ranges().await
        && let Some(gone) = named.iter().find(|id| ranges.iter().all(|it| it.info.id != **id))
    {
        return range_gone(*gone);
    }
    error.into()
}

fn done(state: &State, ranges: &[RangeInfo]) -> Answer {
    let ranges: Vec<_> = ranges
        .iter()
        .map(|it| {
            let parents: Vec<String> = it.parents.iter().map(|it| it.0.to_string()).collect();
            json!({
                "id": it.id.0.to_string(),
                "minInclusive": it.keys.min(),
                "maxExclusive": it.keys.max(),
                "parents": parents,
            })
        })
        .collect();
    let id = state.ids.next_id().to_string();
    let body = json!({
        "operationId": id,
        "phase": "Succeeded",
        "error": null,
        "partitions": ranges,
    });
    let reply = Reply::json(StatusCode::OK, &body)?;
    state.operations.keep(id, reply.body.clone());
    Ok(reply)
}

fn check_mode(mode: Option<&str>) -> Result<(), Refusal> {
    match mode {
        None | Some("automatic") => Ok(()),
        Some(_) => Err(Refusal::bad_request(
            "progressionMode has to be automatic: a split or merge here has no phases",
        )),
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| {
        Refusal::bad_request(format!("the body of the request could not be read: {error}"))
    })
}
