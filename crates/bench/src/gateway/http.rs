//! A client of HTTP/1.1 that costs little: requests are made beforehand, and of answers only what
//! is needed is read.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::SystemTime,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use memchr::{memchr, memmem};
use millstream_gateway::PUBLIC_EMULATOR_KEY;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::Sha256;

use crate::{
    Result,
    gateway::wire::{Endpoint, Wire},
};

/// Longest answer that makes sense: a page of a feed.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
const READ_BYTES: usize = 16 * 1024;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// A connection that is kept as long as the server wants.
#[derive(Debug)]
pub(super) struct Connection {
    endpoint: Endpoint,
    stream: Option<Wire<TcpStream>>,
    buffer: Vec<u8>,
}

/// What is known of an answer once its head is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    head_bytes: usize,
    length: Length,
    /// The server closes the connection behind it.
    pub(super) closes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Bytes(usize),
    Chunked,
}

impl Connection {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, stream: None, buffer: Vec::with_capacity(READ_BYTES) }
    }

    /// Sends a request and waits for the whole answer; returns its status and its length.
    pub(super) fn exchange(&mut self, request: &[u8]) -> Result<(u16, usize)> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.endpoint.connect()?,
        };
        stream.write_all(request)?;
        self.buffer.clear();
        let (mut head, mut space) = (None, [0; READ_BYTES]);
        loop {
            let count = stream.read(&mut space)?;
            if count == 0 {
                return Err("the server closed the connection within an answer".into());
            }
            self.buffer.extend_from_slice(&space[..count]);
            if ANSWER_BYTES_MAX < self.buffer.len() {
                return Err("the answer is longer than any that makes sense".into());
            }
            if head.is_none() {
                head = Head::parse(&self.buffer)?;
            }
            let Some(head) = head else { continue };
            if !head.is_whole(&self.buffer) {
                continue;
            }
            if !head.closes {
                self.stream = Some(stream);
            }
            return Ok((head.status, self.buffer.len()));
        }
    }
}

impl Head {
    /// None if more has to come.
    pub(super) fn parse(buffer: &[u8]) -> Result<Option<Self>> {
        let Some(end) = memmem::find(buffer, END_OF_HEAD) else { return Ok(None) };
        let line = memmem::find(buffer, b"\r\n").unwrap_or(end);
        let status = buffer[..line].split(|it| *it == b' ').nth(1).ok_or("no status")?;
        let status: u16 = std::str::from_utf8(status)?.parse()?;
        let mut head = Self {
            status,
            head_bytes: end + END_OF_HEAD.len(),
            length: Length::Bytes(0),
            closes: false,
        };
        // Of the lines only those that can matter are looked at.
        let mut rest = &buffer[line..end];
        while let Some(at) = memchr(b'\n', rest) {
            rest = &rest[at + 1..];
            if !matches!(rest.first(), Some(b'c' | b'C' | b't' | b'T')) {
                continue;
            }
            let line = std::str::from_utf8(&rest[..memchr(b'\r', rest).unwrap_or(rest.len())])?;
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                head.length = Length::Bytes(value.parse()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                head.length = Length::Chunked;
            } else if name.eq_ignore_ascii_case("connection") {
                head.closes = value.eq_ignore_ascii_case("close");
            }
        }
        Ok(Some(head))
    }

    pub(super) fn is_whole(&self, buffer: &[u8]) -> bool {
        match self.length {
            Length::Bytes(bytes) => self.head_bytes + bytes <= buffer.len(),
            Length::Chunked => buffer[self.head_bytes..].ends_with(b"0\r\n\r\n"),
        }
    }
}

/// Makes requests of one moment; a signature holds for some minutes.
#[derive(Clone, Debug)]
pub(super) struct Signer {
    date: String,
}

impl Signer {
    #[expect(clippy::disallowed_methods, reason = "a signature tells the real time")]
    pub(super) fn new() -> Self {
        Self { date: httpdate::fmt_http_date(SystemTime::now()) }
    }

    /// A whole request.
    pub(super) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Vec<u8>> {
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {}\r\nx-ms-date: {}\r\n\
             x-ms-version: 2020-07-15\r\ncontent-type: application/json\r\n",
            self.authorization(method, path)?,
            self.date,
        );
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("content-length: {}\r\n\r\n{body}", body.len());
        Ok(text.into_bytes())
    }

    fn authorization(&self, method: &str, path: &str) -> Result<String> {
        let segments: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
        let (kind, link) = match segments.as_slice() {
            [] => ("", String::new()),
            [above @ .., last] if segments.len() % 2 == 1 => (*last, above.join("/")),
            [.., kind, _] => (*kind, segments.join("/")),
            [_] => return Err("a path of one segment names a feed".into()),
        };
        let (method, date) = (method.to_lowercase(), self.date.to_lowercase());
        let message = format!("{method}\n{kind}\n{link}\n{date}\n\n");
        let key = STANDARD.decode(PUBLIC_EMULATOR_KEY)?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&key)?;
        mac.update(message.as_bytes());
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        let token = format!("type=master&ver=1.0&sig={signature}");
        Ok(utf8_percent_encode(&token, NON_ALPHANUMERIC).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(u16, Length, bool, bool)>) {
        let head = Head::parse(text.as_bytes()).unwrap();
        let found = head.map(|it| (it.status, it.length, it.closes, it.is_whole(text.as_bytes())));
        assert_eq!(found, expected);
    }

    #[test]
    fn answers_end_where_they_say() {
        check("HTTP/1.1 200 OK\r\ncontent-le", None);
        let head = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n";
        check(&format!("{head}a"), Some((201, Length::Bytes(2), false, false)));
        check(&format!("{head}ab"), Some((201, Length::Bytes(2), false, true)));
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(&format!("{head}2\r\nab\r\n"), Some((200, Length::Chunked, true, false)));
        check(&format!("{head}2\r\nab\r\n0\r\n\r\n"), Some((200, Length::Chunked, true, true)));
        check("HTTP/1.1 204 No Content\r\n\r\n", Some((204, Length::Bytes(0), false, true)));
        assert!(Head::parse(b"nonsense\r\n\r\n").is_err());
    }

    #[test]
    fn requests_are_signed() {
        let signer = Signer { date: "Tue, 14 Nov 2023 22:13:20 GMT".to_owned() };
        let request = signer.request("POST", "/dbs", &[("a", "b")], "{}").unwrap();
        let text = String::from_utf8(request).unwrap();
        assert!(text.starts_with("POST /dbs HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("authorization: type%3Dmaster%26ver%3D1%2E0%26sig%3D"), "{text}");
        assert!(text.ends_with("a: b\r\ncontent-length: 2\r\n\r\n{}"), "{text}");
    }
}
