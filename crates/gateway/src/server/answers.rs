//! Answers over HTTP/2 that their clients do not take.
//!
//! A client says how much it takes of each answer, and goes on saying that it is there when it
//! takes none. hyper waits for that without end, so that it is looked at here how long a piece of
//! an answer has been waiting. What runs in one task is one request with its answer.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::mem::take;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Error;
use axum::body::Body;
use bytes::Bytes;
use http::{Response, Version};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::{Instant, Sleep, sleep_until};

/// How much of an answer is given at a time over HTTP/2: a frame. A client that has taken less is
/// not seen to have taken anything.
const PIECE_BYTES_MAX: usize = 16 * 1024;

tokio::task_local! {
    /// Since when a piece of the answer waits to be taken, if one does.
    static WAITS_SINCE: Cell<Option<Instant>>;
}

/// Serves requests of HTTP/2, and drops those whose answers are not taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams {
    pub(super) write_timeout: Duration,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let served = taken_in_time(Box::pin(stream), self.write_timeout);
        tokio::spawn(WAITS_SINCE.scope(Cell::new(None), served));
    }
}

/// Runs to the end, or until a piece has waited for too long. The client is told by the stream
/// when it is dropped.
async fn taken_in_time(stream: impl Future<Output = ()>, write_timeout: Duration) {
    let (mut stream, mut timer) = (pin!(stream), None::<Pin<Box<Sleep>>>);
    poll_fn(|context| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let Some(since) = WAITS_SINCE.with(Cell::get) else {
            timer = None;
            return Poll::Pending;
        };
        let until = since + write_timeout;
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(context)
    })
    .await;
}

/// The body of an answer, which tells when it is taken.
#[derive(Debug)]
pub(super) struct Taken {
    body: Body,
    /// What has come of it and is not given yet.
    rest: Bytes,
    is_http2: bool,
}

impl Taken {
    pub(super) fn of(answer: Response<Body>, version: Version) -> Response<Self> {
        // Over HTTP/1.1 it is the connection that waits.
        let is_http2 = version == Version::HTTP_2;
        answer.map(|body| Self { body, rest: Bytes::new(), is_http2 })
    }

    fn next_piece(&mut self, data: Bytes, is_new: bool) -> Bytes {
        if !self.is_http2 {
            return data;
        }
        // hyper asks for the last piece when all before it are on their way, and has done its part
        // then, whether that one is taken or not. So there is hardly anything in it.
        let is_last = data.len() <= PIECE_BYTES_MAX && self.body.is_end_stream();
        let length = if is_last { data.len().saturating_sub(1).max(1) } else { PIECE_BYTES_MAX };
        if length < data.len() {
            self.rest = data;
            return self.rest.split_to(length);
        }
        // It may stay with hyper, and would keep all others with it.
        if is_new { data } else { Bytes::copy_from_slice(&data) }
    }
}

impl HttpBody for Taken {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        note(None);
        let rest = take(&mut self.rest);
        let is_new = rest.is_empty();
        let data = if is_new {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return Poll::Ready(other),
            }
        } else {
            rest
        };
        note(Some(Instant::now()));
        Poll::Ready(Some(Ok(Frame::data(self.next_piece(data, is_new)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let whole = self.body.size_hint().exact().map(|it| it.saturating_add(rest));
        whole.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

fn note(waits_since: Option<Instant>) {
    // There is nobody to tell over HTTP/1.1.
    let _ = WAITS_SINCE.try_with(|it| it.set(waits_since));
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::BodyExt;
    use tokio::time::sleep;

    use super::*;

    #[test]
    fn an_answer_is_given_in_pieces() {
        for (length, expected) in [
            (0, vec![]),
            (1, vec![1]),
            (9, vec![8, 1]),
            (PIECE_BYTES_MAX, vec![PIECE_BYTES_MAX - 1, 1]),
            (PIECE_BYTES_MAX + 2, vec![PIECE_BYTES_MAX, 1, 1]),
            (2 * PIECE_BYTES_MAX + 1, vec![PIECE_BYTES_MAX, PIECE_BYTES_MAX, 1]),
        ] {
            let answer = Response::new(Body::from(vec![b'x'; length]));
            let mut body = Taken::of(answer, Version::HTTP_2).into_body();
            let mut pieces = Vec::new();
            while let Some(frame) = body.frame().now_or_never().unwrap() {
                pieces.push(frame.unwrap().into_data().unwrap().len());
                assert_eq!(body.is_end_stream(), pieces.len() == expected.len());
            }
            assert_eq!(pieces, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_take_long_if_it_is_taken() {
        let (write_timeout, begun) = (Duration::from_secs(30), Instant::now());
        let answer = Response::new(Body::from(vec![b'x'; 9 * PIECE_BYTES_MAX]));
        let mut body = Taken::of(answer, Version::HTTP_2).into_body();
        let stream = async move {
            // The handler may take its time.
            sleep(Duration::from_secs(100)).await;
            for _ in 0..5 {
                body.frame().await.unwrap().unwrap();
                sleep(Duration::from_secs(20)).await;
            }
            body.frame().await.unwrap().unwrap();
            std::future::pending::<()>().await;
        };
        WAITS_SINCE.scope(Cell::new(None), taken_in_time(stream, write_timeout)).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(100 + 5 * 20) + write_timeout);
    }
}
