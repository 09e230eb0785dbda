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

/// A stream of which something has been read already.
#[derive(Debug)]
pub(crate) struct Resumed<S> {
    /// What has been read, and how much of it was read again.
    received: Vec<u8>,
    again: usize,
    stream: S,
}

impl<S> Resumed<S> {
    pub(crate) fn new(received: Vec<u8>, stream: S) -> Self {
        Self { received, again: 0, stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Resumed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { received, again, stream } = &mut *self;
        let left = &received[*again..];
        if left.is_empty() {
            return Pin::new(stream).poll_read(context, buffer);
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
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
