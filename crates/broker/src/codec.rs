//! The bytes of messages, version 1. Fields that are looked at without the rest come first.
//!
//! Numbers are LEB128, texts and bytes have their length before them.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use millstream_core::{Error, ErrorKind, Message, PropertyValue, Result, Timestamp};
use xxhash_rust::xxh3::xxh3_128;

/// Which optional fields follow. A bit that was used once is never used again.
mod flag {
    pub(super) const SESSION: u64 = 1;
    pub(super) const TIME_TO_LIVE: u64 = 1 << 1;
    pub(super) const SCHEDULED_AT: u64 = 1 << 2;
    pub(super) const PARTITION_IS_SESSION: u64 = 1 << 3;
    pub(super) const PARTITION: u64 = 1 << 4;
    pub(super) const SUBJECT: u64 = 1 << 5;
    pub(super) const CONTENT_TYPE: u64 = 1 << 6;
    pub(super) const CORRELATION_ID: u64 = 1 << 7;
    pub(super) const TO: u64 = 1 << 8;
    pub(super) const REPLY_TO: u64 = 1 << 9;
    pub(super) const REPLY_TO_SESSION: u64 = 1 << 10;
    pub(super) const PROPERTIES: u64 = 1 << 11;
    /// Its id does not count in duplicate detection; nothing follows.
    pub(super) const DIRECTED: u64 = 1 << 12;
    pub(super) const KNOWN: u64 = (1 << 13) - 1;
}

/// What the broker looks at without reading a whole message.
#[derive(Debug)]
pub(crate) struct MessageHead<'a> {
    pub(crate) id: &'a str,
    pub(crate) session_id: Option<&'a str>,
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) scheduled_at: Option<Timestamp>,
    /// It was sent to one subscription, past duplicate detection.
    pub(crate) is_directed: bool,
}

/// What stands for a message id in duplicate detection. Stored, so it may not change.
pub(crate) fn id_hash(id: &str) -> u128 {
    xxh3_128(id.as_bytes())
}

/// Appends a message. The id of one that is directed does not count in duplicate detection.
pub(crate) fn encode_message(message: &Message, is_directed: bool, out: &mut Vec<u8>) {
    let session = message.session_id.as_deref();
    let partition = message.partition_key.as_deref();
    let partition_is_session = partition.is_some() && partition == session;
    let partition = partition.filter(|_| !partition_is_session);
    let texts = [
        (flag::PARTITION, partition),
        (flag::SUBJECT, message.subject.as_deref()),
        (flag::CONTENT_TYPE, message.content_type.as_deref()),
        (flag::CORRELATION_ID, message.correlation_id.as_deref()),
        (flag::TO, message.to.as_deref()),
        (flag::REPLY_TO, message.reply_to.as_deref()),
        (flag::REPLY_TO_SESSION, message.reply_to_session_id.as_deref()),
    ];
    let mut flags = 0;
    let mut set = |bit: u64, is_there: bool| flags |= if is_there { bit } else { 0 };
    set(flag::SESSION, session.is_some());
    set(flag::TIME_TO_LIVE, message.time_to_live.is_some());
    set(flag::SCHEDULED_AT, message.scheduled_at.is_some());
    set(flag::PARTITION_IS_SESSION, partition_is_session);
    set(flag::PROPERTIES, !message.properties.is_empty());
    set(flag::DIRECTED, is_directed);
    for (bit, text) in texts {
        set(bit, text.is_some());
    }

    put_number(out, flags);
    put_bytes(out, message.id.as_bytes());
    if let Some(session) = session {
        put_bytes(out, session.as_bytes());
    }
    if let Some(time_to_live) = message.time_to_live {
        put_number(out, u64::try_from(time_to_live.as_millis()).unwrap_or(u64::MAX));
    }
    if let Some(scheduled_at) = message.scheduled_at {
        put_number(out, scheduled_at.as_millis());
    }
    for text in texts.into_iter().filter_map(|(_, text)| text) {
        put_bytes(out, text.as_bytes());
    }
    if !message.properties.is_empty() {
        put_count(out, message.properties.len());
        for (name, value) in &message.properties {
            put_bytes(out, name.as_bytes());
            put_property(out, value);
        }
    }
    out.extend_from_slice(&message.body);
}

/// Reads what stands first in an encoded message.
pub(crate) fn decode_head(bytes: &[u8]) -> Result<MessageHead<'_>> {
    let mut reader = Reader::new(bytes);
    head(&mut reader).map(|(head, _)| head).ok_or_else(|| corrupt("read a stored message"))
}

/// Reads an encoded message. Its body shares the bytes.
pub(crate) fn decode_message(bytes: &Bytes) -> Result<Message> {
    message(bytes).ok_or_else(|| corrupt("read a stored message"))
}

pub(crate) fn corrupt(attempted: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, attempted).because("its bytes are not what was written")
}

fn head<'a>(reader: &mut Reader<'a>) -> Option<(MessageHead<'a>, u64)> {
    let flags = reader.number()?;
    if flags & !flag::KNOWN != 0 {
        return None;
    }
    let id = reader.text()?;
    let session_id = if flags & flag::SESSION == 0 { None } else { Some(reader.text()?) };
    let time_to_live = if flags & flag::TIME_TO_LIVE == 0 {
        None
    } else {
        Some(Duration::from_millis(reader.number()?))
    };
    let scheduled_at = if flags & flag::SCHEDULED_AT == 0 {
        None
    } else {
        Some(Timestamp::from_millis(reader.number()?))
    };
    let is_directed = flags & flag::DIRECTED != 0;
    Some((MessageHead { id, session_id, time_to_live, scheduled_at, is_directed }, flags))
}

fn message(bytes: &Bytes) -> Option<Message> {
    let mut reader = Reader::new(bytes);
    let (head, flags) = head(&mut reader)?;
    let mut message = Message::new(head.id, Bytes::new());
    message.session_id = head.session_id.map(str::to_owned);
    message.time_to_live = head.time_to_live;
    message.scheduled_at = head.scheduled_at;
    let fields = [
        (flag::PARTITION, &mut message.partition_key),
        (flag::SUBJECT, &mut message.subject),
        (flag::CONTENT_TYPE, &mut message.content_type),
        (flag::CORRELATION_ID, &mut message.correlation_id),
        (flag::TO, &mut message.to),
        (flag::REPLY_TO, &mut message.reply_to),
        (flag::REPLY_TO_SESSION, &mut message.reply_to_session_id),
    ];
    for (bit, field) in fields {
        if flags & bit != 0 {
            *field = Some(reader.text()?.to_owned());
        }
    }
    if flags & flag::PARTITION_IS_SESSION != 0 {
        message.partition_key.clone_from(&message.session_id);
    }
    if flags & flag::PROPERTIES != 0 {
        message.properties = properties(&mut reader)?;
    }
    message.body = bytes.slice(reader.at..);
    Some(message)
}

fn properties(reader: &mut Reader<'_>) -> Option<BTreeMap<Cow<'static, str>, PropertyValue>> {
    let mut properties = BTreeMap::new();
    for _ in 0..reader.count()? {
        let name = reader.text()?.to_owned();
        let value = match reader.byte()? {
            0 => PropertyValue::Bool(reader.byte()? != 0),
            1 => PropertyValue::Integer(i64::from_le_bytes(reader.array()?)),
            2 => PropertyValue::Double(f64::from_le_bytes(reader.array()?)),
            3 => PropertyValue::String(reader.text()?.to_owned()),
            4 => PropertyValue::Timestamp(Timestamp::from_millis(reader.number()?)),
            5 => PropertyValue::Binary(Bytes::copy_from_slice(reader.bytes()?)),
            _ => return None,
        };
        properties.insert(name.into(), value);
    }
    Some(properties)
}

fn put_property(out: &mut Vec<u8>, value: &PropertyValue) {
    match value {
        PropertyValue::Bool(value) => out.extend_from_slice(&[0, u8::from(*value)]),
        PropertyValue::Integer(value) => {
            out.push(1);
            out.extend_from_slice(&value.to_le_bytes());
        }
        PropertyValue::Double(value) => {
            out.push(2);
            out.extend_from_slice(&value.to_le_bytes());
        }
        PropertyValue::String(value) => {
            out.push(3);
            put_bytes(out, value.as_bytes());
        }
        PropertyValue::Timestamp(value) => {
            out.push(4);
            put_number(out, value.as_millis());
        }
        PropertyValue::Binary(value) => {
            out.push(5);
            put_bytes(out, value);
        }
    }
}

/// Appends a number in seven bits per byte, the lowest first.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while 0x7f < number {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

pub(crate) fn put_count(out: &mut Vec<u8>, count: usize) {
    put_number(out, u64::try_from(count).expect("a count fits into 64 bits"));
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Reads what the functions above wrote; none where the bytes are something else.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// A number of things each of which takes a byte or more, so that a wrong one cannot make us
    /// reserve memory.
    pub(crate) fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= self.bytes.len() - self.at).then_some(count)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.count()?;
        let bytes = self.bytes.get(self.at..self.at + length)?;
        self.at += length;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn hash(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    fn array<const LENGTH: usize>(&mut self) -> Option<[u8; LENGTH]> {
        let array = self.bytes.get(self.at..self.at + LENGTH)?.try_into().ok()?;
        self.at += LENGTH;
        Some(array)
    }
}
