//! Requests of HTTP/1.1 as SDKs send them, without hyper.
//!
//! Almost all requests are alike: they say how long they are, arrive at once and leave the
//! connection open. Those are read and answered here, which takes a fraction of what it takes to
//! get one through a library that is made for all of them. Whatever is not like that (another
//! version, an unknown length, something malformed, too long or too slow) is left as it came, and
//! hyper has the connection from then on.

pub(crate) mod parse;

use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, UNIX_EPOCH};

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::gateway::{Gateway, Origin};
use crate::reply::Reply;
use crate::server::patience::Patience;
use crate::server::plain::parse::{HeadLimits, Parsed, parse};

/// Room for what is read at once; most requests fit.
const RECEIVED_BYTES_USUAL: usize = 8 * 1024;
/// What a request has made room for beyond this is given back.
const RECEIVED_BYTES_KEPT: usize = 64 * 1024;
/// How long the rest of a request may take that has begun to arrive. What takes longer is for
/// hyper, where the limits of slow clients begin.
const REST_TIME_MAX: Duration = Duration::from_secs(1);
/// Bodies up to here are sent with their headers in one piece.
const ONE_PIECE_BYTES_MAX: usize = 16 * 1024;

/// A connection whose requests have been plain so far.
#[derive(Debug)]
pub(super) struct Plain<'a, S> {
    pub(super) stream: &'a mut S,
    pub(super) gateway: &'a Gateway,
    pub(super) origin: Origin,
    pub(super) patience: &'a mut Patience,
    pub(super) limits: HeadLimits,
    pub(super) stopping: CancellationToken,
}

/// What is left to hyper of a connection.
#[derive(Debug)]
pub(super) struct Left {
    /// A request that is not plain, or the beginning of one, as it came.
    pub(super) received: Vec<u8>,
    /// Requests before it have been answered, so that the version cannot change any more.
    pub(super) is_http1: bool,
}

/// What waiting for bytes has come to.
enum Waited {
    Received,
    /// The client sends nothing more.
    Closed,
    /// It takes too long, or the server stops.
    Over,
}

impl<S> Plain<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// Serves requests until the connection is over, or until one is not plain.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    pub(super) async fn serve(self) -> io::Result<Option<Left>> {
        let Self { stream, gateway, origin, patience, limits, stopping } = self;
        let mut stopped = pin!(stopping.cancelled());
        let mut received = Vec::with_capacity(RECEIVED_BYTES_USUAL);
        let mut sent = Vec::new();
        let mut date = Date::default();
        let (mut late_at, mut is_http1) = (None, false);
        loop {
            let whole = match parse(&received, limits) {
                Parsed::Whole(whole) => whole,
                Parsed::Other => return Ok(Some(Left { received, is_http1 })),
                Parsed::Partial if received.is_empty() => {
                    match wait(stream, &mut received, patience, stopped.as_mut()).await? {
                        Waited::Received => continue,
                        Waited::Closed | Waited::Over => return Ok(None),
                    }
                }
                Parsed::Partial => {
                    // Empty lines begin no request.
                    if received.iter().any(|it| !b"\r\n".contains(it)) {
                        patience.activity().note_received();
                    }
                    let late_at = *late_at.get_or_insert_with(|| Instant::now() + REST_TIME_MAX);
                    match receive_rest(stream, &mut received, late_at).await? {
                        Waited::Received => continue,
                        Waited::Closed | Waited::Over => {
                            return Ok(Some(Left { received, is_http1 }));
                        }
                    }
                }
            };
            if late_at.take().is_some() {
                patience.activity().end_head();
            }
            is_http1 = true;
            let bytes = whole.bytes;
            // It need not be known to be under way: nobody's patience is tried meanwhile.
            let reply = gateway.answer(whole.head, whole.body, origin).await;
            received.drain(..bytes);
            if received.is_empty() && RECEIVED_BYTES_KEPT < received.capacity() {
                received = Vec::with_capacity(RECEIVED_BYTES_USUAL);
            }
            let is_last = stopping.is_cancelled();
            write_head(&reply, date.at(gateway), is_last, &mut sent);
            let body = if has_body(&reply) { &reply.body[..] } else { &[] };
            send(stream, &mut sent, body).await?;
            if is_last {
                return Ok(None);
            }
        }
    }
}

/// Waits for the next request.
async fn wait<S: AsyncRead + Unpin>(
    stream: &mut S,
    received: &mut Vec<u8>,
    patience: &mut Patience,
    mut stopped: Pin<&mut impl Future<Output = ()>>,
) -> io::Result<Waited> {
    let mut reading = pin!(stream.read_buf(received));
    poll_fn(|context| {
        if let Poll::Ready(count) = reading.as_mut().poll(context) {
            return Poll::Ready(count.map(waited));
        }
        let is_over =
            patience.poll_ended(context).is_ready() || stopped.as_mut().poll(context).is_ready();
        if is_over { Poll::Ready(Ok(Waited::Over)) } else { Poll::Pending }
    })
    .await
}

/// Receives more of a request that has begun to arrive.
async fn receive_rest<S: AsyncRead + Unpin>(
    stream: &mut S,
    received: &mut Vec<u8>,
    late_at: Instant,
) -> io::Result<Waited> {
    received.reserve(RECEIVED_BYTES_USUAL);
    match timeout_at(late_at, stream.read_buf(received)).await {
        Ok(count) => count.map(waited),
        Err(_) => Ok(Waited::Over),
    }
}

fn waited(count: usize) -> Waited {
    if count == 0 { Waited::Closed } else { Waited::Received }
}

/// The status and the headers of an answer.
fn write_head(reply: &Reply, date: &[u8], is_last: bool, out: &mut Vec<u8>) {
    let reason = reply.status.canonical_reason().unwrap_or_default();
    out.clear();
    for part in ["HTTP/1.1 ", reply.status.as_str(), " ", reason, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(reply.lines.as_bytes());
    if has_body(reply) {
        write!(out, "content-length: {}\r\n", reply.body.len()).expect("memory takes it");
    }
    if is_last {
        out.extend_from_slice(b"connection: close\r\n");
    }
    for part in [b"date: ", date, b"\r\n\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Whether an answer has a body, be it empty, and says how long it is.
fn has_body(reply: &Reply) -> bool {
    ![StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&reply.status)
}

async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    head: &mut Vec<u8>,
    body: &[u8],
) -> io::Result<()> {
    if body.len() <= ONE_PIECE_BYTES_MAX {
        head.extend_from_slice(body);
        stream.write_all(head).await?;
    } else {
        stream.write_all(head).await?;
        stream.write_all(body).await?;
    }
    stream.flush().await
}

/// The time as answers tell it, put into words once a second.
#[derive(Debug, Default)]
struct Date {
    second: u64,
    text: String,
}

impl Date {
    fn at(&mut self, gateway: &Gateway) -> &[u8] {
        let second = gateway.now().as_millis() / 1000;
        if self.text.is_empty() || second != self.second {
            let since = Duration::from_secs(second);
            *self = Self { second, text: httpdate::fmt_http_date(UNIX_EPOCH + since) };
        }
        self.text.as_bytes()
    }
}

#[cfg(test)]
mod tests;
