use std::time::Duration;

use http::StatusCode;
use proptest::prelude::*;

use super::*;
use crate::batch_wire::OperationType;
use crate::hybrid_row::row::{
    BINARY, FALSE, INT32, RowReader, Sparse, TRUE, UTF8, Value, begin, push_bytes, push_sparse,
};

const OPERATION_SCHEMA: i32 = 2_145_473_648;
const OPERATIONS_MAX: usize = 100;

/// Writes an operation as the SDK for .NET does.
fn encode_operation(operation: &OperationWire) -> Vec<u8> {
    let number: i32 = match operation.kind {
        OperationType::Create => 0,
        OperationType::Patch => 1,
        OperationType::Read => 2,
        OperationType::Delete => 4,
        OperationType::Replace => 5,
        OperationType::Upsert => 20,
    };
    let mut row = begin(OPERATION_SCHEMA);
    row.push(
        0b11 | u8::from(operation.partition_key.is_some()) << 2
            | u8::from(operation.id.is_some()) << 4
            | u8::from(operation.body.is_some()) << 6,
    );
    row.extend(number.to_le_bytes());
    row.extend(2i32.to_le_bytes());
    for text in [&operation.partition_key, &operation.id].into_iter().flatten() {
        push_bytes(&mut row, text.as_bytes());
    }
    if let Some(body) = &operation.body {
        push_bytes(&mut row, body);
    }
    for (path, text) in [(9, &operation.if_match), (10, &operation.if_none_match)] {
        if let Some(text) = text {
            push_sparse(&mut row, UTF8, path);
            push_bytes(&mut row, text.as_bytes());
        }
    }
    if operation.is_minimal {
        push_sparse(&mut row, TRUE, 12);
    }
    row
}

fn stream(rows: &[Vec<u8>]) -> Bytes {
    let mut stream = record_io::segment();
    for row in rows {
        record_io::push_record(&mut stream, row);
    }
    stream.into()
}

fn operations() -> impl Strategy<Value = Vec<OperationWire>> {
    let kind = prop_oneof![
        Just(OperationType::Create),
        Just(OperationType::Upsert),
        Just(OperationType::Replace),
        Just(OperationType::Patch),
        Just(OperationType::Delete),
        Just(OperationType::Read),
    ];
    let text = || prop::option::of(".{0,200}");
    let body = prop::option::of(prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from));
    let operation = (kind, text(), body, text(), text(), text(), any::<bool>()).prop_map(
        |(kind, id, body, partition_key, if_match, if_none_match, is_minimal)| OperationWire {
            kind,
            id,
            body,
            partition_key,
            if_match,
            if_none_match,
            is_minimal,
        },
    );
    prop::collection::vec(operation, 0..5)
}

proptest! {
    #[test]
    fn operations_survive_their_form(operations in operations()) {
        let rows: Vec<_> = operations.iter().map(encode_operation).collect();
        prop_assert_eq!(decode_operations(&stream(&rows), OPERATIONS_MAX).unwrap(), operations);
    }

    #[test]
    fn a_changed_byte_is_noticed(operations in operations(), place in any::<usize>()) {
        let rows: Vec<_> = operations.iter().map(encode_operation).collect();
        let mut body = stream(&rows).to_vec();
        let place = place % body.len();
        body[place] ^= 0x55;
        let found = decode_operations(&body.into(), OPERATIONS_MAX);
        prop_assert!(found.is_err() || found.is_ok_and(|it| it == operations));
    }

    #[test]
    fn garbage_in_a_record_never_panics(row in any::<Vec<u8>>()) {
        let row = [begin(OPERATION_SCHEMA), row].concat();
        let _ = decode_operations(&stream(&[row]), OPERATIONS_MAX);
    }

    #[test]
    fn garbage_never_panics(rest in any::<Vec<u8>>()) {
        let _ = decode_operations(&[record_io::segment(), rest].concat().into(), OPERATIONS_MAX);
    }
}

#[test]
fn one_operation_byte_by_byte() {
    let row = [
        &[0x81, 0x70, 0x54, 0xE1, 0x7F, 0b0101_0011][..],
        &[20, 0, 0, 0, 2, 0, 0, 0],
        &[1, b'7'],
        &[2, b'{', b'}'],
        &[UTF8, 9, 3, b'"', b'e', b'"'],
        &[INT32, 11, 5, 0, 0, 0],
        &[TRUE, 12],
    ];
    let found = decode_operations(&stream(&[row.concat()]), OPERATIONS_MAX).unwrap();
    let expected = OperationWire {
        kind: OperationType::Upsert,
        id: Some("7".to_owned()),
        body: Some(Bytes::from_static(b"{}")),
        partition_key: None,
        if_match: Some("\"e\"".to_owned()),
        if_none_match: None,
        is_minimal: true,
    };
    assert_eq!(found, [expected]);
}

#[test]
fn a_field_the_schema_does_not_know_is_passed_over() {
    let mut row = begin(OPERATION_SCHEMA);
    row.extend([0b11, 2, 0, 0, 0, 2, 0, 0, 0]);
    // Thirteen paths are known, so 16 is a path of three bytes.
    row.extend([BINARY, 16, b'n', b'e', b'w', 1, 0xFF]);
    row.extend([FALSE, 12]);
    let found = decode_operations(&stream(&[row]), OPERATIONS_MAX).unwrap();
    assert_eq!(found[0].kind, OperationType::Read);
}

#[test]
fn a_segment_with_a_comment_is_read() {
    let mut body = record_io::segment();
    body.extend([UTF8, 2, 2, b'h', b'i']);
    body[6] = 15;
    let mut row = begin(OPERATION_SCHEMA);
    row.extend([0b11, 4, 0, 0, 0, 2, 0, 0, 0]);
    record_io::push_record(&mut body, &row);
    let found = decode_operations(&body.into(), OPERATIONS_MAX).unwrap();
    assert_eq!(found[0].kind, OperationType::Delete);
}

#[test]
fn what_is_broken_is_refused() {
    let check = |body: Vec<u8>, reason: &str| {
        let error = decode_operations(&body.into(), OPERATIONS_MAX).unwrap_err();
        let expected = format!("could not read the HybridRow batch: {reason}");
        assert_eq!(error.report(), expected);
    };
    check(vec![0x81], "it ends too early");
    check(begin(OPERATION_SCHEMA), "it does not begin with the header of a segment");
    check(vec![0x82, 0, 0, 0, 0], "a row has another version");
    let mut row = begin(OPERATION_SCHEMA);
    row.extend([0b11, 3, 0, 0, 0, 2, 0, 0, 0]);
    let body = stream(&[row]).to_vec();
    check(body.clone(), "an operation has a type that batches do not have");
    check(body[..body.len() - 1].to_vec(), "it ends too early");
    let mut damaged = body;
    *damaged.last_mut().unwrap() ^= 1;
    check(damaged, "the checksum of a record does not hold");
}

#[test]
fn no_more_operations_are_read_than_asked_for() {
    let mut row = begin(OPERATION_SCHEMA);
    row.extend([0b11, 4, 0, 0, 0, 2, 0, 0, 0]);
    let body = stream(&vec![row; 300]);
    assert_eq!(decode_operations(&body, OPERATIONS_MAX).unwrap().len(), OPERATIONS_MAX + 1);
}

#[test]
fn results_have_the_columns_of_their_schema() {
    let result = ResultWire {
        sub_status: Some(1001),
        etag: Some("\"e\"".to_owned()),
        body: Some(Bytes::from_static(b"{}")),
        charge: 2.5,
        retry_after: Some(Duration::from_millis(9)),
        ..ResultWire::status(StatusCode::BAD_REQUEST)
    };
    let stream = encode_results(&[result, ResultWire::status(StatusCode::NO_CONTENT)]);
    assert!(is_hybrid_row(&stream));
    let mut records = record_io::Records::new(&stream).unwrap();
    let full = &stream[records.next().unwrap().unwrap()];
    let bare = &stream[records.next().unwrap().unwrap()];
    assert_eq!(records.next().unwrap(), None);

    let mut reader = RowReader::new(full, result::SCHEMA).unwrap();
    assert_eq!(reader.byte().unwrap(), 0b1111);
    assert_eq!(i32::from_le_bytes(reader.chunk().unwrap()), 400);
    assert_eq!(i32::from_le_bytes(reader.chunk().unwrap()), 1001);
    assert_eq!(&full[reader.bytes().unwrap()], b"\"e\"");
    assert_eq!(&full[reader.bytes().unwrap()], b"{}");
    let field = |path, value| Some(Sparse { path, value });
    assert_eq!(reader.sparse(7).unwrap(), field(5, Value::UInt32(9)));
    assert_eq!(reader.sparse(7).unwrap(), field(6, Value::Float64(2.5)));
    assert_eq!(reader.sparse(7).unwrap(), None);

    let mut reader = RowReader::new(bare, result::SCHEMA).unwrap();
    assert_eq!(reader.byte().unwrap(), 0b0011);
    assert_eq!(i32::from_le_bytes(reader.chunk().unwrap()), 204);
}
