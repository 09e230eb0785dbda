//! A stream that gives up on a client that does not take its answer, and one that has been read
//! from already.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::server::patience::Activity;

/// A stream whose writes fail when nothing could be written for some time.
#[derive(Debug)]
pub(crate) struct Impatient<S> {
    stream: S,
    write_timeout: Duration,
    activity: Arc<Activity>,
    /// Runs while a write waits.
    timer: Option<Pin<Box<Sleep>>>,
    /// Small pieces on their way, put together.
    gathered: Vec<u8>,
}

/// Pieces that are so small together are copied: to hand them to the system one by one costs more.
const GATHERED_BYTES_MAX: usize = 4096;

impl<S> Impatient<S> {
    pub(crate) fn new(stream: S, write_timeout: Duration, activity: Arc<Activity>) -> Self {
        Self { stream, write_timeout, activity, timer: None, gathered: Vec::new() }
    }

    /// The client has taken something, or it is waited for.
    fn judge_write(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if outcome.is_ready() {
            self.activity.note_answer();
        }
        self.judge(context, outcome)
    }

    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.timer = None;
            return outcome;
        }
        let write_timeout = self.write_timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(write_timeout)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no answer")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge_write(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, gathered, .. } = &mut *self;
        let outcome = if slices.iter().map(|it| it.len()).sum::<usize>() <= GATHERED_BYTES_MAX {
            gathered.clear();
            slices.iter().for_each(|it| gathered.extend_from_slice(it));
            Pin::new(stream).poll_write(context, gathered)
        } else {
            Pin::new(stream).poll_write_vectored(context, slices)
        };
        self.judge_write(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, outcome)
    }
}

/// A stream of which something has been read already, and that notes when a request begins to
/// arrive.
#[derive(Debug)]
pub(crate) struct Resumed<S> {
    /// What has been read, and how much of it was read again.
    received: Vec<u8>,
    again: usize,
    stream: S,
    heads: Heads,
}

/// Notes when the headers of a request begin to arrive.
#[derive(Debug)]
struct Heads {
    activity: Arc<Activity>,
    protocol: Protocol,
}

/// What the client speaks, as far as that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// So many bytes have come, and all of them are those of the preface of HTTP/2.
    Open(usize),
    Http1,
    Http2,
}

/// What a client of HTTP/2 sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl Protocol {
    /// What is known when these bytes have come, too.
    fn after(self, bytes: &[u8]) -> Self {
        let Self::Open(count) = self else { return self };
        let expected = &PREFACE[count..];
        match bytes.strip_prefix(expected) {
            Some(_) => Self::Http2,
            None if expected.starts_with(bytes) => Self::Open(count + bytes.len()),
            None => Self::Http1,
        }
    }
}

impl Heads {
    fn note(&mut self, bytes: &[u8]) {
        let before = self.protocol;
        self.protocol = before.after(bytes);
        match self.protocol {
            // Some clients send an empty line behind a body, which begins no request.
            Protocol::Open(_) | Protocol::Http1 if bytes.iter().any(|it| !b"\r\n".contains(it)) => {
                self.activity.note_received();
            }
            Protocol::Http2 if before != Protocol::Http2 => self.activity.end_head(),
            Protocol::Open(_) | Protocol::Http1 | Protocol::Http2 => {}
        }
    }
}

impl<S> Resumed<S> {
    /// `is_http1` when requests of HTTP/1.1 have been served already.
    pub(crate) fn new(
        received: Vec<u8>,
        stream: S,
        activity: Arc<Activity>,
        is_http1: bool,
    ) -> Self {
        let protocol = if is_http1 { Protocol::Http1 } else { Protocol::Open(0) };
        Self { received, again: 0, stream, heads: Heads { activity, protocol } }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Resumed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { received, again, stream, heads } = &mut *self;
        let left = &received[*again..];
        if left.is_empty() {
            let before = buffer.filled().len();
            ready!(Pin::new(stream).poll_read(context, buffer))?;
            heads.note(&buffer.filled()[before..]);
            return Poll::Ready(Ok(()));
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        heads.note(&left[..count]);
        *again += count;
        if *again == received.len() {
            (*received, *again) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Resumed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expected: Protocol) {
        let after = |protocol: Protocol, piece: &&str| protocol.after(piece.as_bytes());
        assert_eq!(pieces.iter().fold(Protocol::Open(0), after), expected, "{pieces:?}");
    }

    #[test]
    fn the_preface_tells_the_protocol_however_it_arrives() {
        check(&["P", "RI * HT"], Protocol::Open(8));
        check(&["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], Protocol::Http2);
        check(&["PRI * HTTP/2.0\r\n", "\r\nSM\r\n\r\nand more", "more"], Protocol::Http2);
        check(&["PRI * HTTP/2.0\r\n\r\nS", "O"], Protocol::Http1);
        check(&["P", "OST / HTTP/1.1\r\n"], Protocol::Http1);
        check(&["GET", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], Protocol::Http1);
    }
}
