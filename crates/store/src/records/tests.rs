use proptest::prelude::*;

use super::*;

fn stamps() -> impl Strategy<Value = Stamp> {
    let ttl = prop_oneof![
        Just(None),
        Just(Some(TimeToLive::Never)),
        (1_i64..=i64::from(i32::MAX)).prop_map(|it| Some(TimeToLive::new(it).unwrap())),
    ];
    let sequence = proptest::option::of(1..u64::MAX);
    (any::<u64>(), any::<u32>(), any::<u16>(), any::<u64>(), ttl, sequence).prop_map(
        |(lsn, origin, index, written_at, ttl, sequence)| Stamp {
            lsn,
            origin,
            index,
            written_at: Timestamp::from_millis(written_at),
            ttl,
            sequence,
        },
    )
}

fn effective(key: &PartitionKey) -> EffectiveKey {
    let definition = millstream_core::PartitionKeyDefinition::hash("/key").unwrap();
    definition.effective(key).unwrap()
}

proptest! {
    #[test]
    fn an_item_record_comes_back(segment: u32, stamp in stamps(), body_bytes: u32) {
        let record = ItemRecord { segment, stamp, body_bytes };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        prop_assert_eq!(ItemRecord::decode(&bytes), Some(record));
    }

    #[test]
    fn a_feed_record_comes_back(
        stamp in stamps(),
        key in ".{0,20}",
        id in "[a-z]{1,9}",
        body: Vec<u8>,
    ) {
        let key = PartitionKey::from(key.as_str());
        let (effective, id) = (effective(&key), ItemId::new(&id).unwrap());
        let mut bytes = Vec::new();
        encode_feed(&mut bytes, &stamp, &effective, &key, &id, &body);
        let found = FeedRecord::decode(&bytes).unwrap();
        prop_assert_eq!(found.stamp(stamp.place(7)), stamp);
        prop_assert_eq!((&found.partition_key, &found.id, found.body), (&key, &id, &body[..]));
        let peeked = FeedRecord::peek(&bytes).unwrap();
        prop_assert_eq!(peeked, (stamp.written_at, effective.as_bytes()));
    }

    #[test]
    fn a_history_record_comes_back(
        stamp in stamps(),
        key in ".{0,20}",
        has_current: bool,
        has_previous: bool,
        body: Vec<u8>,
    ) {
        let partition_key = PartitionKey::from(key.as_str());
        let effective = effective(&partition_key);
        let record = HistoryRecord {
            kind: ChangeKind::Replaced,
            committed_at: stamp.written_at,
            effective: effective.as_bytes(),
            partition_key,
            id: ItemId::new("id").unwrap(),
            current: has_current.then_some((stamp, &body[..])),
            previous: has_previous.then_some((stamp, &body[..])),
        };
        let bytes = record.encode();
        let peeked = HistoryRecord::peek(&bytes).unwrap();
        prop_assert_eq!(peeked, (stamp.written_at, effective.as_bytes()));
        prop_assert_eq!(HistoryRecord::decode(&bytes), Some(record));
    }

    #[test]
    fn garbage_is_refused_without_a_panic(bytes: Vec<u8>) {
        let _ = ItemRecord::decode(&bytes);
        let _ = FeedRecord::decode(&bytes);
        let _ = FeedRecord::peek(&bytes);
        let _ = HistoryRecord::decode(&bytes);
        let _ = HistoryRecord::peek(&bytes);
        let _ = RangeRecord::decode(&bytes);
        let _ = crate::engine::decode_entries(&bytes);
        let _ = crate::keys::MetaKey::parse(&bytes);
        let _ = Place::from_key(&bytes);
    }
}

#[test]
fn etags_name_the_commit_and_the_operation() {
    let stamp = Stamp {
        lsn: 0x1234,
        origin: 7,
        index: 2,
        written_at: Timestamp::EPOCH,
        ttl: None,
        sequence: None,
    };
    assert_eq!(stamp.etag().as_str(), "0000000700000000000012340002");
}
