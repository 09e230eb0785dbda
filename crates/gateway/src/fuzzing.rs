//! What the fuzz targets do with their input: whatever a client can send before anybody knows who
//! it is, and the forms of bodies that are ours to read.
//!
//! A target panics if a decoder panics, or if what it accepted does not come back the same when it
//! is written again. The bodies are plain functions, so that the tests run them on any toolchain;
//! `fuzz/` only hands them to the fuzzer.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use millstream_core::{KeyRange, Timestamp};

use crate::definition::Definition;
use crate::fields::Fields;
use crate::item_pages::Place;
use crate::options::GatewayOptions;
use crate::request::Request;
use crate::rid::Rid;
use crate::server::ServerLimits;
use crate::server::plain::parse::{HeadLimits, Parsed, parse};
use crate::target::Path;
use crate::{auth, batch_wire, headers, hybrid_row, item_body, offers, session};

/// A function of this module and input that it accepts, to start from.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the fuzz target.
    pub name: &'static str,
    /// Panics if something is wrong.
    pub run: fn(&[u8]),
    /// Input that is accepted.
    pub seeds: &'static [&'static [u8]],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "gateway_path",
        run: path,
        seeds: &[
            b"/dbs/d/colls/c/docs/a%20b/",
            b"/dbs/AAAAAQ==/colls/AAAAAYAAAAI=/pkranges",
            b"/databases/d/containers/c/partitions/0/split",
            b"//offers/AgAB",
        ],
    },
    Target {
        name: "gateway_headers",
        run: request_headers,
        seeds: &[
            b"type%3Dmaster%26ver%3D1.0%26sig%3DAAAA\nTue, 14 Nov 2023 22:13:20 GMT\n0:-1#4,1:-1#7",
            b"type=aad&ver=1.0&sig=a\ntue, 14 nov 2023 22:13:20 gmt\n0:1#42#3=7",
        ],
    },
    Target {
        name: "gateway_continuation",
        run: continuation,
        seeds: &[b"k::FF:1F00:0a1b2c3d4e", b"k:1F:3FFF:1F:", b"0a1b2c3d4e"],
    },
    Target {
        name: "gateway_plain",
        run: plain,
        seeds: &[
            b"POST /dbs/a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}",
            b"GET / HTTP/1.1\nauthorization: type=master\n\n",
            b"PUT /dbs/a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n{}",
        ],
    },
    Target {
        name: "gateway_definition",
        run: definition,
        seeds: &[br#"{"id":"c","partitionKey":{"paths":["/a"],"kind":"Hash"},"defaultTtl":-1,
            "changeFeedPolicy":{"retentionDuration":10},"indexingPolicy":{"automatic":true}}"#],
    },
    Target {
        name: "gateway_batch",
        run: batch,
        seeds: &[br#"[{"operationType":"Create","resourceBody":{"id":"1"}},
            {"operationType":"Delete","id":"1","ifMatch":"\"a\""}]"#],
    },
    Target {
        name: "gateway_hybrid_row",
        run: row,
        seeds: &[
            b"\x81pT\xe1\x7fW\0\0\0\0\x02\0\0\0\x05[\"a\"]\x011\n{\"id\":\"1\"}",
            b"\x81pT\xe1\x7f\x13\x04\0\0\0\x02\0\0\0\x011",
        ],
    },
    Target {
        name: "gateway_item",
        run: item,
        seeds: &[
            &[0x80, 0xE9, 0x2C, 0x81, b'x'],
            // An array of numbers, null, true and a string of a length that is spelled out.
            &[0x80, 0xE2, 0x0A, 0x05, 0xC8, 0x07, 0xD0, 0xD2, 0xC0, 0x03, b'a', b'b', b'c'],
            br#"{"id":"x"}"#,
        ],
    },
];

/// The target of this name.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn target(name: &str) -> &'static Target {
    let found = TARGETS.iter().find(|it| it.name == name);
    found.unwrap_or_else(|| panic!("there is no fuzz target {name:?}"))
}

fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(path) = Path::parse(text) else { return };
    for segment in &path.segments {
        if let Some(rid) = Rid::decode(segment) {
            assert_eq!(Rid::decode(&rid.encode()), Some(rid));
        }
    }
    let now = Timestamp::EPOCH;
    let refused =
        auth::check(&GatewayOptions::default(), now, &Method::GET, &path, &Fields::default());
    assert!(refused.is_err(), "nobody gets in without a signature");
}

/// What follows a request, and what is read of it first, changes nothing about it.
fn plain(data: &[u8]) {
    let limits = HeadLimits::within(&ServerLimits::default());
    let Parsed::Whole(whole) = parse(data, limits) else { return };
    let (bytes, method, body) = (whole.bytes, &whole.head.method, whole.body);
    assert!(data[..bytes].ends_with(body));
    let alone = parse(&data[..bytes], limits);
    let Parsed::Whole(alone) = alone else { panic!("it was whole without the rest: {alone:?}") };
    assert_eq!((alone.bytes, &alone.head.method, alone.body), (bytes, method, body));
    assert_eq!(alone.head.path, whole.head.path);
    if let Parsed::Whole(early) = parse(&data[..bytes - 1], limits) {
        panic!("it was whole before its end: {early:?}");
    }
}

fn continuation(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(place) = Place::parse(text, &KeyRange::all()) else { return };
    let again = Place::parse(&place.to_string(), &KeyRange::all());
    assert_eq!(again.ok(), Some(place));
}

fn request_headers(data: &[u8]) {
    let mut map = HeaderMap::new();
    let names = [header::AUTHORIZATION, headers::DATE, headers::SESSION_TOKEN];
    for (name, value) in names.into_iter().zip(data.split(|byte| *byte == b'\n')) {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            for further in [headers::PARTITION_KEY, headers::OFFER_THROUGHPUT, headers::RANGE_ID] {
                map.insert(further, value.clone());
            }
            map.insert(headers::AUTOPILOT_SETTINGS, value.clone());
            map.insert(name, value);
        }
    }
    let headers = Fields::from(&map);
    let path = Path::parse("/dbs").expect("it is a path");
    let now = Timestamp::from_millis(1_700_000_000_000);
    let _ = auth::check(&GatewayOptions::default(), now, &Method::GET, &path, &headers);
    let base = "http://localhost".to_owned();
    let (method, path, body) = (Method::GET, Arc::new(path), Bytes::new());
    let request = Request { method, path, headers, body, base };
    let _ = request.partition_key();
    let _ = request.page_size();
    let _ = offers::requested(&request);
    if let Ok(Some(text)) = request.text(&headers::SESSION_TOKEN)
        && let Ok(seen) = session::parse(text)
    {
        assert_eq!(session::parse(&session::tokens(seen.clone())).ok(), Some(seen));
    }
}

fn definition(data: &[u8]) {
    let Ok(read) = Definition::parse(data, None) else { return };
    assert!(read.settings.check().is_ok(), "what was accepted can be used");
}

fn batch(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    let _ = batch_wire::decode_json(&body, 100);
    let _ = hybrid_row::decode_operations(&body, 100);
}

/// One row, of an operation of a batch.
fn row(data: &[u8]) {
    let _ = hybrid_row::decode_operations(&Bytes::copy_from_slice(data), 100);
    if let Ok(operations) = hybrid_row::decode_operations(&hybrid_row::stream_of(data), 100) {
        assert_eq!(operations.len(), 1, "a row is an operation");
    }
}

fn item(data: &[u8]) {
    let Ok(text) = item_body::text(&Bytes::copy_from_slice(data)) else { return };
    if data.first() != Some(&0x80) {
        assert_eq!(text, data);
        return;
    }
    let value: Result<&serde_json::value::RawValue, _> = serde_json::from_slice(&text);
    assert!(value.is_ok(), "{} is not JSON", text.escape_ascii());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_to_start_from_are_operations() {
        for seed in target("gateway_hybrid_row").seeds {
            assert!(hybrid_row::decode_operations(&hybrid_row::stream_of(seed), 100).is_ok());
        }
    }

    proptest! {
        #[test]
        fn no_input_makes_a_decoder_panic(
            index in 0..TARGETS.len(),
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            at in 0_usize..40,
        ) {
            let target = &TARGETS[index];
            (target.run)(&bytes);
            for seed in target.seeds {
                (target.run)(seed);
                let mut damaged = seed.to_vec();
                let at = at.min(damaged.len());
                let end = (at + bytes.len() / 8).min(damaged.len());
                damaged.splice(at..end, bytes.iter().copied().take(6));
                (target.run)(&damaged);
            }
        }
    }
}
