//! Requests that are carried to their end, whether or not anybody waits for the answer.

use std::sync::Arc;

use http::StatusCode;
use tokio::sync::Semaphore;

use crate::dispatch;
use crate::refusal::Refusal;
use crate::reply::Answer;
use crate::request::Request;
use crate::state::State;

/// Most of them at a time; further ones wait, and can be given up until they begin.
const CHANGES_MAX: u32 = 256;

/// Changes of definitions that are under way.
#[derive(Debug)]
pub(crate) struct Changes(Arc<Semaphore>);

impl Default for Changes {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CHANGES_MAX.try_into().unwrap_or(usize::MAX))))
    }
}

impl Changes {
    /// Waits until all that have begun are at their end.
    pub(crate) async fn settled(&self) {
        // Only a semaphore that was closed has no permits to give, and this one never is.
        drop(self.0.acquire_many(CHANGES_MAX).await);
    }
}

/// Serves a request in a task of its own. What it does to the backend and to the catalog belongs
/// together, and a client of HTTP/2 that gives up has its request dropped anywhere between.
pub(crate) async fn carry_out(state: &Arc<State>, request: Request) -> Answer {
    let place = Arc::clone(&state.changes.0).acquire_owned().await;
    let state = Arc::clone(state);
    let carried = tokio::spawn(async move {
        let answer = dispatch::serve(&state, &request).await;
        drop(place);
        answer
    });
    carried.await.unwrap_or_else(|error| {
        let message = format!("could not carry out the request: {error}");
        Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message))
    })
}
