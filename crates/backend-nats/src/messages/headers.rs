//! A message as NATS sees it: body and headers, without loss in either direction.
//!
//! Attributes of CloudEvents are headers `ce-…`, as their protocol binding for NATS says, and the
//! trace context has the headers everybody knows, so that consumers without this library can use
//! them. Other properties have a header that tells their type.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::{HeaderName, HeaderValue};
use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use bytes::Bytes;
use millstream_core::{Error, Message, PropertyValue, Result, Timestamp};

/// Tells repetitions, within the duplicate window of the stream.
pub(crate) const MESSAGE_ID: &str = "Nats-Msg-Id";
/// When the server removes the message by itself.
const TIME_TO_LIVE: &str = "Nats-TTL";
const OWN_TIME_TO_LIVE: &str = "Millstream-Time-To-Live";
const SESSION: &str = "Millstream-Session";
const PARTITION_KEY: &str = "Millstream-Partition-Key";
const SUBJECT: &str = "Millstream-Subject";
const CONTENT_TYPE: &str = "Content-Type";
const CORRELATION_ID: &str = "Millstream-Correlation-Id";
const TO: &str = "Millstream-To";
const REPLY_TO: &str = "Millstream-Reply-To";
const REPLY_TO_SESSION: &str = "Millstream-Reply-To-Session";
const PROPERTY: &str = "Millstream-Property-";
const CLOUD_EVENTS_HEADER: &str = "ce-";
const CLOUD_EVENTS_PROPERTY: &str = "cloudEvents:";
/// Properties that have the header of the same name when they are text.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// The headers of a message.
pub(crate) fn encode(message: &Message) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let texts = [
        (MESSAGE_ID, Some(&message.id)),
        (SESSION, message.session_id.as_ref()),
        (PARTITION_KEY, message.partition_key.as_ref()),
        (SUBJECT, message.subject.as_ref()),
        (CONTENT_TYPE, message.content_type.as_ref()),
        (CORRELATION_ID, message.correlation_id.as_ref()),
        (TO, message.to.as_ref()),
        (REPLY_TO, message.reply_to.as_ref()),
        (REPLY_TO_SESSION, message.reply_to_session_id.as_ref()),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            set(&mut headers, name, &escaped(text, is_plain))?;
        }
    }
    if let Some(time) = message.time_to_live {
        // The server counts whole seconds, of which there is at least one.
        let seconds = time.as_secs() + u64::from(0 < time.subsec_nanos());
        set(&mut headers, TIME_TO_LIVE, &format!("{}s", seconds.max(1)))?;
        set(&mut headers, OWN_TIME_TO_LIVE, &time.as_millis().to_string())?;
    }
    for (name, value) in &message.properties {
        match (plain_header(name), value) {
            (Some(header), PropertyValue::String(text)) => {
                set(&mut headers, &header, &escaped(text, is_plain))?;
            }
            _ => {
                let header = format!("{PROPERTY}{}", escaped(name, is_in_names));
                set(&mut headers, &header, &typed(value))?;
            }
        }
    }
    Ok(headers)
}

/// The message with these headers. Whoever sent it without ours gets what can be understood;
/// `number` names a message without an id.
pub(crate) fn decode(headers: Option<&HeaderMap>, body: Bytes, number: u64) -> Message {
    let mut message = Message::new(format!("number-{number}"), body);
    let Some(headers) = headers else { return message };
    for (name, values) in headers.iter() {
        let name: &str = name.as_ref();
        let Some(value) = values.first().map(HeaderValue::as_str) else { continue };
        match name {
            MESSAGE_ID => message.id = unescaped(value),
            SESSION => message.session_id = Some(unescaped(value)),
            PARTITION_KEY => message.partition_key = Some(unescaped(value)),
            SUBJECT => message.subject = Some(unescaped(value)),
            CONTENT_TYPE => message.content_type = Some(unescaped(value)),
            CORRELATION_ID => message.correlation_id = Some(unescaped(value)),
            TO => message.to = Some(unescaped(value)),
            REPLY_TO => message.reply_to = Some(unescaped(value)),
            REPLY_TO_SESSION => message.reply_to_session_id = Some(unescaped(value)),
            OWN_TIME_TO_LIVE => {
                message.time_to_live = value.parse().ok().map(Duration::from_millis);
            }
            _ => {
                if let Some((name, value)) = property(name, value) {
                    message.properties.insert(name.into(), value);
                }
            }
        }
    }
    message
}

/// Adds a header; what is not a header is refused, not sent.
pub(crate) fn set(headers: &mut HeaderMap, name: &str, value: &str) -> Result<()> {
    let attempted = || format!("make the header {name:?}");
    let name: HeaderName = name.parse().map_err(|error| Error::invalid(attempted(), error))?;
    let value: HeaderValue = value.parse().map_err(|error| Error::invalid(attempted(), error))?;
    headers.insert(name, value);
    Ok(())
}

/// The text of a header of ours.
pub(crate) fn text(headers: Option<&HeaderMap>, name: &str) -> Option<String> {
    let name: HeaderName = name.parse().ok()?;
    Some(unescaped(headers?.get(name)?.as_str()))
}

/// Text that can be in a header.
pub(crate) fn header_text(text: &str) -> String {
    escaped(text, is_plain)
}

fn plain_header(property: &str) -> Option<String> {
    if TRACE.contains(&property) {
        return Some(property.to_owned());
    }
    let attribute = property.strip_prefix(CLOUD_EVENTS_PROPERTY)?;
    let is_attribute = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let is_one = !attribute.is_empty() && attribute.bytes().all(is_attribute);
    is_one.then(|| format!("{CLOUD_EVENTS_HEADER}{attribute}"))
}

fn property(header: &str, value: &str) -> Option<(String, PropertyValue)> {
    if let Some(name) = header.strip_prefix(PROPERTY) {
        return Some((unescaped(name), untyped(value)));
    }
    let text = || PropertyValue::String(unescaped(value));
    if TRACE.contains(&header) {
        return Some((header.to_owned(), text()));
    }
    let attribute = header.strip_prefix(CLOUD_EVENTS_HEADER)?;
    Some((format!("{CLOUD_EVENTS_PROPERTY}{attribute}"), text()))
}

fn typed(value: &PropertyValue) -> String {
    match value {
        PropertyValue::Bool(value) => format!("bool:{value}"),
        PropertyValue::Integer(value) => format!("integer:{value}"),
        PropertyValue::Double(value) => format!("double:{value:?}"),
        PropertyValue::String(text) => format!("string:{}", escaped(text, is_plain)),
        PropertyValue::Timestamp(time) => format!("time:{}", time.as_millis()),
        PropertyValue::Binary(bytes) => format!("binary:{}", BASE64_STANDARD_NO_PAD.encode(bytes)),
    }
}

/// What `typed` wrote; anything else is text.
fn untyped(value: &str) -> PropertyValue {
    let (kind, rest) = value.split_once(':').unwrap_or_default();
    let read = match kind {
        "bool" => rest.parse().ok().map(PropertyValue::Bool),
        "integer" => rest.parse().ok().map(PropertyValue::Integer),
        "double" => rest.parse().ok().map(PropertyValue::Double),
        "string" => Some(PropertyValue::String(unescaped(rest))),
        "time" => {
            let millis = rest.parse().ok();
            millis.map(|it| PropertyValue::Timestamp(Timestamp::from_millis(it)))
        }
        "binary" => {
            let bytes = BASE64_STANDARD_NO_PAD.decode(rest).ok();
            bytes.map(|it| PropertyValue::Binary(Bytes::from(it)))
        }
        _ => None,
    };
    read.unwrap_or_else(|| PropertyValue::String(value.to_owned()))
}

/// What CloudEvents leave as it is in a header.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'"' && byte != b'%'
}

fn is_in_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn escaped(text: &str, stays: fn(u8) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if stays(byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// Undoes `escaped`; what is no escape stays, and bytes that are no text are replaced.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|it| std::str::from_utf8(it).ok());
        match code.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests;
