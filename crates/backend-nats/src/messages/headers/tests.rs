use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use millstream_core::{Message, PropertyValue, Timestamp};

use crate::messages::headers::{decode, encode, set};

#[track_caller]
fn check(message: &Message) {
    let headers = encode(message).unwrap();
    assert_eq!(&decode(Some(&headers), message.body.clone(), 1), message);
}

#[test]
fn everything_comes_back() {
    let mut message = Message::new("id 1 \u{2603}\r\n%41\"", "body").session("a b").subject("");
    message.content_type = Some("application/json".to_owned());
    message.correlation_id = Some(" leading and trailing ".to_owned());
    message.to = Some("%zz %".to_owned());
    message.reply_to = Some("\u{0}".to_owned());
    message.reply_to_session_id = Some("\u{10ffff}".to_owned());
    message.time_to_live = Some(Duration::from_millis(1_500));
    check(&message);
    message.partition_key = None;
    check(&message);
    message.session_id = None;
    check(&message);
}

#[test]
fn properties_keep_their_types() {
    let message = Message::new("1", "")
        .property("yes", true)
        .property("int", i64::MIN)
        .property("third", 1.0 / 3.0)
        .property("endless", f64::INFINITY)
        .property("minus nothing", -0.0)
        .property("when", Timestamp::from_millis(u64::MAX))
        .property("text", "bool:true")
        .property("", "no name")
        .property("n:a m%e", "\u{fffd}")
        .property("bytes", PropertyValue::Binary(Bytes::from_static(&[0, 255, 10])));
    check(&message);
}

#[test]
fn cloud_events_and_traces_have_the_headers_everybody_knows() {
    let message = Message::new("1", "")
        .property("cloudEvents:type", "Contact Created")
        .property("cloudEvents:sequence", 7)
        .property("cloudEvents:Odd", "x")
        .property("traceparent", "00-1-2-01")
        .property("tracestate", true);
    let headers = encode(&message).unwrap();
    let get = |name: &str| headers.get(name).map(|it| it.as_str().to_owned());
    assert_eq!(get("ce-type").unwrap(), "Contact%20Created");
    assert_eq!(get("traceparent").unwrap(), "00-1-2-01");
    assert_eq!(get("ce-sequence"), None);
    check(&message);
}

#[test]
fn a_message_of_somebody_else_is_understood_as_far_as_it_goes() {
    let plain = decode(None, Bytes::from_static(b"x"), 17);
    assert_eq!(plain, Message::new("number-17", "x"));
    let mut headers = HeaderMap::new();
    set(&mut headers, "Millstream-Property-a", "integer:many").unwrap();
    set(&mut headers, "Millstream-Property-%", "%").unwrap();
    set(&mut headers, "Millstream-Time-To-Live", "soon").unwrap();
    set(&mut headers, "X-Other", "1").unwrap();
    let found = decode(Some(&headers), Bytes::new(), 1);
    let expected = Message::new("number-1", "").property("a", "integer:many").property("%", "%");
    assert_eq!(found, expected);
}

#[test]
fn a_short_time_to_live_is_a_second_for_the_server() {
    let mut message = Message::new("1", "");
    message.time_to_live = Some(Duration::from_millis(1));
    let headers = encode(&message).unwrap();
    assert_eq!(headers.get("Nats-TTL").unwrap().as_str(), "1s");
}
