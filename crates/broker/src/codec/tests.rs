use std::time::Duration;

use bytes::Bytes;
use millstream_core::{Message, PropertyValue, Timestamp};
use proptest::prelude::*;

use crate::codec::*;

#[track_caller]
fn check(message: &Message) {
    let mut bytes = Vec::new();
    encode_message(message, false, &mut bytes);
    let bytes = Bytes::from(bytes);
    assert_eq!(decode_message(&bytes).unwrap(), *message);
    let head = decode_head(&bytes).unwrap();
    assert_eq!(head.id, message.id);
    assert_eq!(head.session_id, message.session_id.as_deref());
    assert_eq!(head.time_to_live, message.time_to_live);
    assert_eq!(head.scheduled_at, message.scheduled_at);
}

fn full() -> Message {
    let mut message = Message::new("id", "body").session("s").subject("subject").content_type("c");
    message.correlation_id = Some("correlation".to_owned());
    message.to = Some("to".to_owned());
    message.reply_to = Some("reply".to_owned());
    message.reply_to_session_id = Some("reply session".to_owned());
    message.time_to_live = Some(Duration::from_millis(1234));
    message.scheduled_at = Some(Timestamp::from_millis(99));
    message
        .property("bool", true)
        .property("integer", -5)
        .property("double", 0.25)
        .property("text", "ä")
        .property("time", Timestamp::from_millis(7))
        .property("bytes", PropertyValue::Binary(Bytes::from_static(b"\0\xff")))
}

#[test]
fn a_message_comes_back_as_it_was() {
    check(&Message::new("m", ""));
    check(&Message::new("m", vec![0; 300]));
    check(&full());
    let mut other_partition = Message::new("m", "x");
    other_partition.partition_key = Some("p".to_owned());
    check(&other_partition);
}

#[test]
fn the_bytes_of_version_1_stay_readable() {
    let mut bytes = Vec::new();
    encode_message(&Message::new("m1", "hi").session("s").subject("t"), false, &mut bytes);
    // Flags SESSION | PARTITION_IS_SESSION | SUBJECT.
    assert_eq!(bytes, [0b10_1001, 2, b'm', b'1', 1, b's', 1, b't', b'h', b'i']);
    assert_eq!(id_hash("m1"), 205_256_720_040_739_974_803_822_265_625_372_349_085);
}

#[test]
fn a_field_of_a_later_version_is_refused() {
    assert!(decode_message(&Bytes::from_static(&[0x80, 0x40, 1, b'm'])).is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = decode_message(&Bytes::from(bytes));
    }

    #[test]
    fn a_message_that_was_cut_off_is_refused_or_shorter(cut in 0_usize..150) {
        let mut bytes = Vec::new();
        encode_message(&full(), false, &mut bytes);
        bytes.truncate(cut);
        let _ = decode_message(&Bytes::from(bytes));
    }

    #[test]
    fn numbers_come_back(number: u64) {
        let mut bytes = Vec::new();
        put_number(&mut bytes, number);
        prop_assert_eq!(Reader::new(&bytes).number(), Some(number));
    }
}
