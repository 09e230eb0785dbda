//! Many connections in one thread, each of which waits for its answer.
//!
//! The clients have the same processors as the servers they measure, so they cost as little as they
//! can: nothing wakes another thread, requests are put together from what was made beforehand, and
//! there is one call of the system to send a request and one to take its answer.

use std::{
    io::{self, Read, Write},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use mio::{Events, Interest, Poll, Token, net::TcpStream};

use crate::{
    Result,
    gateway::{
        http::Head,
        requests::Requests,
        wire::{Endpoint, Wire},
    },
    measure::Stopwatch,
};

/// How often it looks whether the time is over while nothing is answered.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How long answers may take that are due when the time is over.
const LAST_ANSWERS_MAX: Duration = Duration::from_secs(10);
/// Most answers do not fill it, so that one read tells that there is no more.
const READ_BYTES: usize = 64 * 1024;
/// Longest answer that makes sense: a page of a feed.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Whoever watches the clients sees how many requests were answered, and ends them.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) answered: AtomicU64,
    pub(super) is_over: AtomicBool,
}

/// One client with its connection.
struct Client {
    token: Token,
    endpoint: Endpoint,
    requests: Requests,
    stream: Option<Wire<TcpStream>>,
    /// How much of the request has been sent.
    sent: usize,
    answer: Answer,
}

/// What has come of an answer.
#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    head: Option<Head>,
}

/// Sends the requests of all until the time is over, and checks the status of each answer.
pub(super) fn run(
    endpoint: &Endpoint,
    clients: Vec<Requests>,
    status: u16,
    progress: &Progress,
) -> Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(clients.len());
    let mut clients: Vec<Client> =
        clients.into_iter().enumerate().map(|(at, it)| Client::new(at, endpoint, it)).collect();
    for client in &mut clients {
        client.begin(&poll)?;
    }
    let mut space = vec![0; READ_BYTES];
    let (mut waiting, mut ending) = (clients.len(), None);
    while 0 < waiting {
        let is_over = progress.is_over.load(Ordering::Relaxed);
        if is_over && LAST_ANSWERS_MAX < ending.get_or_insert_with(Stopwatch::start).elapsed() {
            return Err("the server left requests without an answer".into());
        }
        match poll.poll(&mut events, Some(LOOK_INTERVAL)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            outcome => outcome?,
        }
        let mut answered = 0;
        for event in &events {
            let client = &mut clients[event.token().0];
            if !client.goes_on(&mut space, status)? {
                continue;
            }
            answered += 1;
            if is_over {
                waiting -= 1;
            } else {
                client.begin(&poll)?;
            }
        }
        progress.answered.fetch_add(answered, Ordering::Relaxed);
    }
    Ok(())
}

impl Client {
    fn new(index: usize, endpoint: &Endpoint, requests: Requests) -> Self {
        let (token, endpoint) = (Token(index), endpoint.for_one_client());
        Self { token, endpoint, requests, stream: None, sent: 0, answer: Answer::default() }
    }

    /// Sends the next request, on a new connection if the server closed the last one.
    fn begin(&mut self, poll: &Poll) -> Result<()> {
        if self.stream.is_none() {
            let mut stream = self.endpoint.connect_to_poll()?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(stream.socket_mut(), self.token, interest)?;
            self.stream = Some(stream);
        }
        self.requests.advance();
        self.sent = 0;
        self.send()
    }

    /// Sends what is left of the request, as far as there is room for it.
    fn send(&mut self) -> Result<()> {
        let (Some(stream), request) = (&mut self.stream, self.requests.current()) else {
            return Ok(());
        };
        while self.sent < request.len() {
            match stream.write(&request[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends and receives what it can; true when the answer is whole.
    fn goes_on(&mut self, space: &mut [u8], status: u16) -> Result<bool> {
        if self.sent < self.requests.current().len() {
            self.send()?;
        }
        let Some(stream) = &mut self.stream else { return Ok(false) };
        loop {
            let count = match stream.read(space) {
                Ok(0) => return Err("the server closed the connection within an answer".into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            if let Some(head) = self.answer.take(&space[..count])? {
                if head.status != status {
                    let found = head.status;
                    return Err(
                        format!("the server answered {found} where {status} was due").into()
                    );
                }
                if head.closes {
                    self.stream = None;
                }
                return Ok(true);
            }
            if count < space.len() && stream.short_read_is_all() {
                return Ok(false);
            }
        }
    }
}

impl Answer {
    /// Takes a piece; the head once the answer is whole.
    fn take(&mut self, piece: &[u8]) -> Result<Option<Head>> {
        // Most answers come in one piece, which needs no copy.
        if self.bytes.is_empty() {
            let head = Head::parse(piece)?;
            if let Some(head) = head.filter(|it| it.is_whole(piece)) {
                return Ok(Some(head));
            }
            self.head = head;
        }
        self.bytes.extend_from_slice(piece);
        if ANSWER_BYTES_MAX < self.bytes.len() {
            return Err("the answer is longer than any that makes sense".into());
        }
        if self.head.is_none() {
            self.head = Head::parse(&self.bytes)?;
        }
        if !self.head.is_some_and(|it| it.is_whole(&self.bytes)) {
            return Ok(None);
        }
        self.bytes.clear();
        Ok(self.head.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expected: &[Option<u16>]) {
        let mut answer = Answer::default();
        let found = pieces.iter().map(|it| answer.take(it.as_bytes()).unwrap());
        assert_eq!(found.map(|it| it.map(|head| head.status)).collect::<Vec<_>>(), expected);
        assert!(answer.bytes.is_empty());
    }

    #[test]
    fn answers_come_in_whatever_pieces() {
        let whole = "HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nab";
        check(&[whole, whole], &[Some(201), Some(201)]);
        for cut in 1..whole.len() {
            let (first, rest) = whole.split_at(cut);
            check(&[first, rest, whole], &[None, Some(201), Some(201)]);
        }
    }
}
