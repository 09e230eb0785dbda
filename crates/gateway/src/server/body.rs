//! The body of a request as it arrives.

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// A body that fails where it is cut off, and when it takes too long.
///
/// To hyper a stream of HTTP/2 that its client resets without an error has come to its end.
#[derive(Debug)]
pub(crate) struct Arriving<B> {
    body: B,
    is_http2: bool,
    /// How long it may take; whoever collects it may have a limit of its own.
    timeout: Option<Duration>,
    /// Runs from the first time that nothing is there.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B: Body> Arriving<B> {
    pub(super) fn of(request: Request<B>, timeout: Option<Duration>) -> Request<Self> {
        let is_http2 = request.version() == Version::HTTP_2;
        request.map(|body| Self { body, is_http2, timeout, timer: None })
    }

    fn is_cut_off(&self) -> bool {
        self.is_http2 && !self.body.is_end_stream()
    }
}

impl<B> Body for Arriving<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(match frame {
                None if self.is_cut_off() => Some(Err(failure(io::ErrorKind::UnexpectedEof))),
                frame => frame.map(|it| it.map_err(Into::into)),
            });
        }
        let Some(timeout) = self.timeout else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Some(Err(failure(io::ErrorKind::TimedOut))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn failure(kind: io::ErrorKind) -> Box<dyn StdError + Send + Sync> {
    Box::new(io::Error::from(kind))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::FutureExt;
    use http_body_util::BodyExt;
    use tokio::time::Instant;

    use super::*;

    /// A body of one piece, and what its client did behind it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Then {
        Ended,
        CutOff,
        Stalled,
    }

    struct Piece(bool, Then);

    impl Body for Piece {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if std::mem::replace(&mut self.0, true) {
                return if self.1 == Then::Stalled { Poll::Pending } else { Poll::Ready(None) };
            }
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"{}")))))
        }

        fn is_end_stream(&self) -> bool {
            self.0 && self.1 == Then::Ended
        }
    }

    fn arriving(version: Version, then: Then, timeout: Option<Duration>) -> Arriving<Piece> {
        let request = Request::builder().version(version).body(Piece(false, then)).unwrap();
        Arriving::of(request, timeout).into_body()
    }

    #[test]
    fn a_stream_that_is_cut_off_has_no_end() {
        for (version, then, is_whole) in [
            (Version::HTTP_2, Then::Ended, true),
            (Version::HTTP_2, Then::CutOff, false),
            // There it is the length that tells, and hyper minds it.
            (Version::HTTP_11, Then::CutOff, true),
        ] {
            let collected = arriving(version, then, None).collect().now_or_never().unwrap();
            assert_eq!(collected.is_ok(), is_whole, "{version:?} {then:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_ends_in_time() {
        let (timeout, begun) = (Duration::from_secs(30), Instant::now());
        let body = arriving(Version::HTTP_11, Then::Stalled, Some(timeout));
        let error = body.collect().await.map(|_| ()).unwrap_err();
        let error = error.downcast_ref::<io::Error>().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), timeout);
    }
}
