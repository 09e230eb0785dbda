use proptest::prelude::*;

use super::*;

const TEXT_BYTES_MAX: usize = 1 << 20;

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits: Vec<u8> = hexadecimal.bytes().filter(|it| !it.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2);
    pairs.map(|it| u8::from_str_radix(str::from_utf8(it).unwrap(), 16).unwrap()).collect()
}

#[track_caller]
fn check(hexadecimal: &str, text: &str) {
    let found = decode(&bytes(&format!("80 {hexadecimal}")), TEXT_BYTES_MAX).unwrap();
    assert_eq!(String::from_utf8(found).unwrap(), text, "{hexadecimal}");
}

#[track_caller]
fn check_refused(hexadecimal: &str, reason: &str) {
    let error = decode(&bytes(&format!("80 {hexadecimal}")), TEXT_BYTES_MAX).unwrap_err();
    assert_eq!(error.report(), format!("could not read binary JSON: {reason}"), "{hexadecimal}");
}

#[test]
fn literals_and_numbers() {
    check("D0", "null");
    check("D1", "false");
    check("D2", "true");
    check("00", "0");
    check("1F", "31");
    check("C8 FF", "255");
    check("C9 FE FF", "-2");
    check("CA 00 00 00 80", "-2147483648");
    check("CB FF FF FF FF FF FF FF 7F", "9223372036854775807");
    check("C7 FF FF FF FF FF FF FF FF", "18446744073709551615");
    check("D8 80", "-128");
    check("DC FF FF FF FF", "4294967295");
    check("CC 00 00 00 00 00 00 04 40", "2.5");
    check("CC 00 00 00 00 00 00 08 40", "3");
    check("CD 00 00 20 C0", "-2.5");
    check("CE 9A 99 99 99 99 99 B9 3F", "0.1");
    check_refused("CC 00 00 00 00 00 00 F0 7F", "a number is not finite at byte 10");
    check_refused("CF 00 00", "expected a string at byte 1");
}

#[test]
fn strings_in_every_spelling() {
    check("2C", r#""id""#);
    check("3F", r#""_id""#);
    check("80", r#""""#);
    check("83 61 22 0A", r#""a\"\n""#);
    check("C0 02 C3 A4", "\"ä\"");
    check("C1 01 00 7A", r#""z""#);
    check("C2 01 00 00 00 7A", r#""z""#);
    check("75 10 32 54 76 98 BA DC FE 10 32 54 76 98 BA DC FE", {
        r#""01234567-89ab-cdef-0123-456789abcdef""#
    });
    check("76 10 32 54 76 98 BA DC FE 10 32 54 76 98 BA DC FE", {
        r#""01234567-89AB-CDEF-0123-456789ABCDEF""#
    });
    check("77 10 32 54 76 98 BA DC FE 10 32 54 76 98 BA DC FE", {
        r#""\"01234567-89ab-cdef-0123-456789abcdef\"""#
    });
    check("D3 67 45 23 01 AB 89 EF CD 01 23 45 67 89 AB CD EF", {
        r#""01234567-89ab-cdef-0123-456789abcdef""#
    });
    check("71 01 00 4D 61 6E", r#""TWFu""#);
    check("71 01 01 4D 61", r#""TWE=""#);
    check("71 01 FE 4D 61", r#""TWE""#);
    check("72 01 00 02 4D", r#""TQ==""#);
    check("73 01 00 FF FF FF", r#""____""#);
    check("74 01 00 FD FF", r#""_w""#);
    check("78 03 10 02", r#""012""#);
    check("79 02 FE", r#""EF""#);
    check("7A 04 13 53", r#""2024""#);
    check("7B 03 61 10 02", r#""abc""#);
    check("7C 02 61 20 00", r#""ab""#);
    check("7D 02 61 40 00", r#""ab""#);
    check("7E 02 E1 31", r#""ac""#);
    check("7F 02 00 E1 31", r#""ac""#);
    check("DD 03 01 02 03", r#""AQID""#);
    check("DE 00 00", r#""""#);
    check("DF 01 00 00 00 FF", r#""/w==""#);
}

#[test]
fn containers_in_every_frame() {
    check("E0", "[]");
    check("E1 05", "[5]");
    check("E2 02 01 02", "[1,2]");
    check("E3 02 00 01 02", "[1,2]");
    check("E4 02 00 00 00 01 02", "[1,2]");
    check("E5 02 02 01 02", "[1,2]");
    check("E6 02 00 02 00 01 02", "[1,2]");
    check("E7 02 00 00 00 02 00 00 00 01 02", "[1,2]");
    check("E8", "{}");
    check("E9 2C D0", r#"{"id":null}"#);
    check("EA 05 2C 81 78 3B E0", r#"{"id":"x","type":[]}"#);
    check("ED 05 02 2C 81 78 3B E0", r#"{"id":"x","type":[]}"#);
    check("EE 05 00 02 00 2C 81 78 3B E0", r#"{"id":"x","type":[]}"#);
    check("F0 D7 03 01 02 FF", "[1,2,255]");
    check("F1 CD 01 00 00 00 20 C0", "[-2.5]");
    check("F2 F0 D8 02 02 01 02 FF FE", "[[1,2],[-1,-2]]");
    check("F3 F1 D7 01 00 02 00 07 08", "[[7],[8]]");
}

#[test]
fn a_reference_stands_for_an_earlier_string() {
    check("E2 05 82 68 69 C3 03", r#"["hi","hi"]"#);
    check("E2 06 82 68 69 C4 03 00", r#"["hi","hi"]"#);
    check("E2 07 82 68 69 C5 03 00 00", r#"["hi","hi"]"#);
    check("E2 08 82 68 69 C6 03 00 00 00", r#"["hi","hi"]"#);
    check_refused("C3 01", "a reference leads to no string at byte 1");
    check_refused("C3 63", "a reference leads to no string at byte 1");
}

#[test]
fn what_is_broken_is_refused_with_its_place() {
    check_refused("", "it ends too early at byte 1");
    check_refused("85 61", "it ends too early at byte 2");
    check_refused("D0 D0", "more than one value at byte 2");
    check_refused("E2 02 01", "a container is longer than the body at byte 3");
    check_refused("E2 01 C9 01 02", "a member goes beyond its container at byte 6");
    check_refused("E5 01 02 01", {
        "a container has another number of members than it says at byte 5"
    });
    check_refused("E9 01 01", "expected a string at byte 2");
    check_refused("81 FF", "a string is not UTF-8 at byte 3");
    check_refused("41", "a string is from a dictionary of the sender at byte 1");
    check_refused("F2 F1 D7 01 01 00", "an array of arrays has other elements at byte 3");
    let deep = "E1 ".repeat(129);
    check_refused(&format!("{deep} D0"), "it is nested too deep at byte 130");
    assert_eq!(decode(b"{}", 10).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn the_text_is_bounded_whatever_refers_to_what() {
    let mut body = bytes("80 E4 00 00 00 00 C1 E8 03");
    body.extend([b'a'; 1000]);
    for _ in 0..1000 {
        body.extend([0xC3, 6]);
    }
    let length = u32::try_from(body.len() - 6).unwrap();
    body[2..6].copy_from_slice(&length.to_le_bytes());
    assert_eq!(decode(&body, 100_000).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(decode(&body, 1 << 20).unwrap().len(), 1001 * 1002 + 1002);
}

proptest! {
    #[test]
    fn whatever_comes_in_comes_out_as_json_or_not_at_all(body in any::<Vec<u8>>()) {
        let body = [vec![PREAMBLE], body].concat();
        if let Ok(text) = decode(&body, TEXT_BYTES_MAX) {
            serde_json::from_slice::<&serde_json::value::RawValue>(&text).unwrap();
        }
    }

    #[test]
    fn containers_of_markers_never_panic(
        body in prop::collection::vec(
            prop_oneof![0x70u8..=0x82, 0xC0u8..=0xF3, 0u8..6], 0..64)
    ) {
        let body = [vec![PREAMBLE], body].concat();
        if let Ok(text) = decode(&body, TEXT_BYTES_MAX) {
            serde_json::from_slice::<&serde_json::value::RawValue>(&text).unwrap();
        }
    }
}
