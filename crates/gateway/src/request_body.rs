//! The bodies of requests, read within limits.

use std::error::Error as StdError;
use std::future::{Future, poll_fn};
use std::io;
use std::iter::successors;
use std::pin::pin;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;

use crate::gateway::Head;
use crate::refusal::Refusal;
use crate::state::State;

/// How much more than what is allowed is read, so that a client gets to see why it is refused.
const DISCARDED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Whether what is sent with this method means nothing.
pub(crate) fn means_nothing(method: &Method) -> bool {
    method == Method::GET || method == Method::DELETE
}

/// The body of a request, within the limits of the options.
pub(crate) async fn read<B>(state: &State, head: &Head<'_>, body: B) -> Result<Bytes, Refusal>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    if means_nothing(&head.method) {
        return Ok(Bytes::new());
    }
    let max = state.options.body_bytes_max;
    let announced = announced(head);
    if announced.is_some_and(|it| max.saturating_add(DISCARDED_BYTES_MAX) < it) {
        return Err(too_large(max));
    }
    in_time(state, collect(body, max, announced)).await
}

/// Reads what a client sends whose request is refused, and throws it away: while it is still
/// sending it would not see why.
pub(crate) async fn discard<B>(state: &State, head: &Head<'_>, body: B)
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    // It would be told to send what it has kept back until now.
    let is_kept_back = head.headers.contains(&header::EXPECT);
    if !is_kept_back && announced(head).is_none_or(|it| it <= DISCARDED_BYTES_MAX) {
        drop(in_time(state, collect(body, 0, None)).await);
    }
}

/// How long the client says that the body is.
fn announced(head: &Head<'_>) -> Option<usize> {
    head.headers.text(&header::CONTENT_LENGTH).and_then(|it| it.parse().ok())
}

async fn in_time(
    state: &State,
    collecting: impl Future<Output = Result<Bytes, Refusal>>,
) -> Result<Bytes, Refusal> {
    let mut collecting = pin!(collecting);
    // Most bodies come with their headers. A timer for each costs more than reading them.
    let first = poll_fn(|context| Poll::Ready(collecting.as_mut().poll(context))).await;
    if let Poll::Ready(outcome) = first {
        return outcome;
    }
    tokio::select! {
        biased;
        outcome = collecting => outcome,
        () = state.clock.sleep(state.options.body_timeout) => Err(too_late()),
    }
}

/// The whole body. Of one that is too large the rest is read and thrown away: a client that is
/// still sending would not see the answer.
async fn collect<B>(mut body: B, max: usize, announced: Option<usize>) -> Result<Bytes, Refusal>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let is_whole = |count: usize| announced.is_none_or(|it| it == count);
    // Copied, because a backend may keep it: a piece of what was read from a socket keeps it all.
    let mut collected = BytesMut::new();
    let mut discarded = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| broken(&*error.into()))?.into_data() else { continue };
        let is_first = collected.is_empty() && discarded == 0;
        if is_first && body.is_end_stream() && data.len() <= max && is_whole(data.len()) {
            return Ok(Bytes::copy_from_slice(&data));
        }
        if 0 < discarded || max < collected.len() + data.len() {
            collected = BytesMut::new();
            discarded += data.len();
        } else {
            collected.extend_from_slice(&data);
        }
        if DISCARDED_BYTES_MAX < discarded {
            break;
        }
    }
    if 0 < discarded {
        return Err(too_large(max));
    }
    if !is_whole(collected.len()) {
        return Err(not_whole());
    }
    Ok(collected.freeze())
}

/// What a body is refused with that failed.
fn broken(error: &(dyn StdError + 'static)) -> Refusal {
    let mut causes = successors(Some(error), |&it| it.source());
    let is_late = causes.any(|it| {
        it.downcast_ref::<io::Error>().is_some_and(|it| it.kind() == io::ErrorKind::TimedOut)
    });
    if is_late { too_late() } else { not_whole() }
}

fn not_whole() -> Refusal {
    Refusal::bad_request("the body of the request did not arrive whole")
}

fn too_late() -> Refusal {
    let message = "the body of the request took too long to arrive";
    Refusal::new(StatusCode::REQUEST_TIMEOUT, message)
}

pub(crate) fn too_large(max: usize) -> Refusal {
    let message = format!("the request size is too large: its body has more than {max} bytes");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::Context;

    use futures_util::FutureExt;
    use hyper::body::Frame;

    use super::*;

    /// A body that arrives in pieces of these lengths.
    struct Pieces(VecDeque<usize>);

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
            let piece = self.0.pop_front();
            Poll::Ready(piece.map(|it| Ok(Frame::data(Bytes::from(vec![b'x'; it])))))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }
    }

    /// `expected` is the length of the whole body, or none if it is refused.
    #[track_caller]
    fn check(pieces: &[usize], expected: Option<usize>) {
        let body = Pieces(pieces.iter().copied().collect());
        let found = collect(body, 10, None).now_or_never().unwrap();
        assert_eq!(found.as_ref().ok().map(Bytes::len), expected, "{pieces:?}");
        if let Err(refusal) = found {
            assert_eq!(refusal.status, StatusCode::PAYLOAD_TOO_LARGE);
        }
    }

    #[test]
    fn a_body_is_taken_whole_or_not_at_all() {
        check(&[], Some(0));
        check(&[10], Some(10));
        check(&[4, 6], Some(10));
        check(&[0, 10], Some(10));
        check(&[11], None);
        check(&[4, 7], None);
        check(&[11, 3], None);
        check(&[9, 9, 3], None);
        check(&[4, 7, 0, 3], None);
    }

    #[test]
    fn a_body_is_as_long_as_was_announced() {
        for (pieces, is_whole) in [(&[5][..], true), (&[2, 3], true), (&[2], false), (&[], false)] {
            let body = Pieces(pieces.iter().copied().collect());
            let found = collect(body, 10, Some(5)).now_or_never().unwrap();
            assert_eq!(found.map_err(|it| it.status).is_ok(), is_whole, "{pieces:?}");
        }
    }
}
