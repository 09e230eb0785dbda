//! Every published value we know of: the conformance and baseline tables of the SDKs for Rust,
//! Java, Python and .NET.

use proptest::prelude::*;

use crate::hashing::EffectiveKey;
use crate::hashing::murmur::{murmur3_32, murmur3_128};
use crate::{HashKind, PartitionKey, PartitionKeyDefinition};

/// `"05 62x3 00"` is 05 62 62 62 00.
fn expand(text: &str) -> String {
    let mut digits = String::new();
    for word in text.split_whitespace() {
        match word.split_once('x') {
            Some((byte, times)) => digits += &byte.repeat(times.parse().unwrap()),
            None => digits += word,
        }
    }
    digits
}

fn string(text: &str) -> String {
    PartitionKey::from(text).to_string()
}

#[track_caller]
fn check(kind: HashKind, key: &str, expected: &str) {
    let key: PartitionKey = key.parse().unwrap();
    let paths = ["/a", "/b", "/c"].into_iter().take(key.components().len());
    let definition = PartitionKeyDefinition::new(paths, kind).unwrap();
    assert_eq!(definition.effective(&key).unwrap().to_string(), expand(expected));
}

#[track_caller]
fn check_string(kind: HashKind, text: &str, expected: &str) {
    check(kind, &string(text), expected);
}

/// Compares the hashes of each component, neither cut nor masked.
#[track_caller]
fn check_raw(key: &str, expected_32: &str, expected_128: &str) {
    let key: PartitionKey = key.parse().unwrap();
    let (mut found_32, mut found_128) = (Vec::new(), Vec::new());
    for component in key.components() {
        let mut input = Vec::new();
        PartitionKey::of([component.clone()]).unwrap().encode(&mut input);
        let [_, input @ ..] = &mut input[..] else { panic!("the number of components is missing") };
        found_128.push(hex_128(input));
        if let [8, .., end] = input {
            *end = 0;
        }
        found_32.push(format!("{:08X}", murmur3_32(input)));
    }
    assert_eq!(found_32.join(" "), expected_32);
    assert_eq!(found_128.join(" "), expected_128);
}

/// For numbers that no partition key has.
#[track_caller]
fn check_raw_number(number: f64, expected_32: &str, expected_128: &str) {
    let mut input = vec![5];
    input.extend(number.to_le_bytes());
    assert_eq!(format!("{:08X}", murmur3_32(&input)), expected_32);
    assert_eq!(hex_128(&input), expected_128);
}

fn hex_128(input: &[u8]) -> String {
    let (low, high) = murmur3_128(input);
    format!("{high:016X}{low:016X}")
}

#[test]
fn murmur_agrees_with_its_published_values() {
    assert_eq!(murmur3_32(b"hello"), 613_153_351);
    assert_eq!(murmur3_32(&374_f64.to_le_bytes()), 3_717_946_798);
    assert_eq!(
        murmur3_128(&374_f64.to_le_bytes()),
        (16_628_891_264_555_680_919, 12_953_474_369_317_462)
    );
    assert_eq!(
        murmur3_128(b"sample-test"),
        (9_863_137_013_172_825_203, 15_859_947_107_521_786_564)
    );
}

#[test]
fn version_1_agrees_with_the_conformance_table() {
    check(HashKind::V1, r#"[""]"#, "05C1CF33970FF80800");
    check(HashKind::V1, r#"["partitionKey"]"#, "05C1E1B3D9CD2608716273756A756A706F4C667A00");
    check_string(HashKind::V1, &"a".repeat(1024), "05C1EB5921F70608 62x100 00");
    check(HashKind::V1, r#"[null]"#, "05C1ED45D7475601");
    check(HashKind::V1, r#"[{}]"#, "05C1D529E345DC00");
    check(HashKind::V1, r#"[true]"#, "05C1D7C5A903D803");
    check(HashKind::V1, r#"[false]"#, "05C1DB857D857C02");
    check(HashKind::V1, r#"[-128]"#, "05C1D73349F54C053FA0");
    check(HashKind::V1, r#"[127]"#, "05C1DD539DDFCC05C05FE0");
    check(HashKind::V1, r#"[-9223372036854775808]"#, "05C1DB35F33D1C053C20");
    check(HashKind::V1, r#"[9223372036854775807]"#, "05C1B799AB2DD005C3E0");
    check(HashKind::V1, r#"[-2147483648]"#, "05C1DFBF252BCC053E20");
    check(HashKind::V1, r#"[2147483647]"#, "05C1E1F503DFB205C1DFFFFFFFFC");
    check(HashKind::V1, r#"[5e-324]"#, "05C1E5C91F4D3005800101010101010102");
    check(HashKind::V1, r#"[1.7976931348623157e308]"#, "05C1CBE367C53005FFEFFFFFFFFFFFFFFE");
    check_string(
        HashKind::V1,
        &"abcdefghijklmnopqrstuvwxyz".repeat(5),
        "05C1DD5D8149640862636465666768696A6B6C6D6E6F707172737475767778797A7B626364656667 \
         68696A6B6C6D6E6F707172737475767778797A7B62636465666768696A6B6C6D6E6F707172737475 \
         767778797A7B62636465666768696A6B6C6D6E6F707172737475767700",
    );
    check(
        HashKind::V1,
        r#"["quote\"backslash\\slash/newline\n"]"#,
        "05C1E739E3AD88087276707566236362646C746D6274695D746D627469306F66786D6A6F660B00",
    );
    check(
        HashKind::V1,
        r#"["café 東京 🚀"]"#,
        "05C1DF0501C73008646267C4AA21E79EB2E5BBAD21F1A09B8100",
    );
    check_string(HashKind::V1, &"a".repeat(100), "05C1EB5921F70608 62x100 00");
    check_string(HashKind::V1, &"a".repeat(101), "05C1EB5921F70608 62x100 00");
}

#[test]
fn version_2_agrees_with_the_conformance_table() {
    check(HashKind::V2, r#"[""]"#, "32E9366E637A71B4E710384B2F4970A0");
    check(HashKind::V2, r#"["partitionKey"]"#, "013AEFCF77FA271571CF665A58C933F1");
    check_string(HashKind::V2, &"a".repeat(1024), "332BDF5512AE49615F32C7D98C2DB86C");
    check(HashKind::V2, r#"[null]"#, "378867E4430E67857ACE5C908374FE16");
    check(HashKind::V2, r#"[{}]"#, "11622DAA78F835834610ABE56EFF5CB5");
    check(HashKind::V2, r#"[true]"#, "0E711127C5B5A8E4726AC6DD306A3E59");
    check(HashKind::V2, r#"[false]"#, "2FE1BE91E90A3439635E0E9E37361EF2");
    check(HashKind::V2, r#"[-128]"#, "01DAEDABF913540367FE219B2AD06148");
    check(HashKind::V2, r#"[127]"#, "0C507ACAC853ECA7977BF4CEFB562A25");
    check(HashKind::V2, r#"[-9223372036854775808]"#, "23D5C6395512BDFEAFADAD15328AD2BB");
    check(HashKind::V2, r#"[9223372036854775807]"#, "2EDB959178DFCCA18983F89384D1629B");
    check(HashKind::V2, r#"[-2147483648]"#, "0B1660D5233C3171725B30D4A5F4CC1F");
    check(HashKind::V2, r#"[2147483647]"#, "2D9349D64712AEB5EB1406E2F0BE2725");
    check(HashKind::V2, r#"[5e-324]"#, "0E6CBA63A280927DE485DEF865800139");
    check(HashKind::V2, r#"[1.7976931348623157e308]"#, "31424D996457102634591FF245DBCC4D");
    check(
        HashKind::V2,
        r#"["quote\"backslash\\slash/newline\n"]"#,
        "0A75245A5A77FB1C92F7AB9E0FD5E73F",
    );
    check(HashKind::V2, r#"["café 東京 🚀"]"#, "389ED563F219577470F42691A5234A68");
    check_string(HashKind::V2, &"a".repeat(100), "0DBD7D229437BB665DE6417747994D57");
    check_string(HashKind::V2, &"a".repeat(101), "08042541D30C8BF90D7092B1519AE0BC");
}

#[test]
fn multi_hash_agrees_with_the_conformance_table() {
    check(HashKind::MultiHash, r#"["partitionKey"]"#, "013AEFCF77FA271571CF665A58C933F1");
    check(
        HashKind::MultiHash,
        r#"["",true]"#,
        "32E9366E637A71B4E710384B2F4970A00E711127C5B5A8E4726AC6DD306A3E59",
    );
    check(
        HashKind::MultiHash,
        r#"["partitionKey",null,false]"#,
        "013AEFCF77FA271571CF665A58C933F1378867E4430E67857ACE5C908374FE162FE1BE91E90A3439 \
         635E0E9E37361EF2",
    );
}

#[test]
fn values_made_with_the_python_sdk_agree() {
    check(HashKind::V2, r#"["a"]"#, "3A5381E1114EB8D3FCC90795045B49B7");
    check(HashKind::V2, r#"["b"]"#, "195644569A78B1E22D200348AF9416CE");
    check(HashKind::V2, r#"[1]"#, "20CD98B339BA78A5D0CF6953B87070B0");
    check(HashKind::V1, r#"["a"]"#, "05C1D78593652C086200");
    check(
        HashKind::MultiHash,
        r#"["a","b"]"#,
        "3A5381E1114EB8D3FCC90795045B49B7195644569A78B1E22D200348AF9416CE",
    );
}

#[test]
fn version_1_cuts_strings_where_the_service_does() {
    check_string(
        HashKind::V1,
        &format!("tenant\0{}\u{e9}", "a".repeat(91)),
        "05C1EFBD31E1740875666F626F7501 62x91 C4AA00",
    );
    check_string(
        HashKind::V1,
        &format!("tenant\0{}\u{e9}", "a".repeat(92)),
        "05C1C7CDE1BBB00875666F626F7501 62x92 C4AA",
    );
    check_string(
        HashKind::V1,
        &format!("tenant\0{}\u{e9}z", "a".repeat(92)),
        "05C1C7CDE1BBB00875666F626F7501 62x92 C4AA",
    );
    check_string(
        HashKind::V1,
        &format!("{}\u{1f600}", "a".repeat(97)),
        "05C1C973BF796808 62x97 F1A09981",
    );
    check_string(
        HashKind::V1,
        &format!("{}\u{1f600}", "a".repeat(98)),
        "05C1DD87B7E74C08 62x98 F1A099",
    );
    check_string(
        HashKind::V1,
        &format!("{}\u{1f600}", "a".repeat(99)),
        "05C1E153DB455808 62x99 F0C0",
    );
    check_string(
        HashKind::V1,
        &format!("{}\u{1f600}", "a".repeat(100)),
        "05C1EB5921F70608 62x100 00",
    );
    check_string(
        HashKind::V1,
        &format!("{}\u{20ac}", "a".repeat(99)),
        "05C1D747E54D9008 62x99 E383",
    );
}

#[test]
fn version_1_counts_utf_16_units_and_keeps_bytes() {
    let text = "абвгдеёжзийклмнопрстуфхцчшщъыьэюя".repeat(4);
    let beginning = |length| text.chars().take(length).collect::<String>();
    check_string(
        HashKind::V1,
        &beginning(49),
        "05C1C1BD37FE08D1B1D1B2D1B3D1B4D1B5D1B6D292D1B7D1B8D1B9D1BAD1BBD1BCD1BDD1BED1BFD1 \
         C0D281D282D283D284D285D286D287D288D289D28AD28BD28CD28DD28ED28FD290D1B1D1B2D1B3D1 \
         B4D1B5D1B6D292D1B7D1B8D1B9D1BAD1BBD1BCD1BDD1BED1BF00",
    );
    check_string(
        HashKind::V1,
        &beginning(50),
        "05C1B339EF472008D1B1D1B2D1B3D1B4D1B5D1B6D292D1B7D1B8D1B9D1BAD1BBD1BCD1BDD1BED1BF \
         D1C0D281D282D283D284D285D286D287D288D289D28AD28BD28CD28DD28ED28FD290D1B1D1B2D1B3 \
         D1B4D1B5D1B6D292D1B7D1B8D1B9D1BAD1BBD1BCD1BDD1BED1BFD1C000",
    );
    check_string(
        HashKind::V1,
        &beginning(51),
        "05C1EB1F29DBFA08D1B1D1B2D1B3D1B4D1B5D1B6D292D1B7D1B8D1B9D1BAD1BBD1BCD1BDD1BED1BF \
         D1C0D281D282D283D284D285D286D287D288D289D28AD28BD28CD28DD28ED28FD290D1B1D1B2D1B3 \
         D1B4D1B5D1B6D292D1B7D1B8D1B9D1BAD1BBD1BCD1BDD1BED1BFD1C0D2",
    );
    check_string(
        HashKind::V1,
        &beginning(99),
        "05C1E72F79C71608D1B1D1B2D1B3D1B4D1B5D1B6D292D1B7D1B8D1B9D1BAD1BBD1BCD1BDD1BED1BF \
         D1C0D281D282D283D284D285D286D287D288D289D28AD28BD28CD28DD28ED28FD290D1B1D1B2D1B3 \
         D1B4D1B5D1B6D292D1B7D1B8D1B9D1BAD1BBD1BCD1BDD1BED1BFD1C0D2",
    );
    check_string(
        HashKind::V1,
        &beginning(100),
        "05C1E3653D9F3E08D1B1D1B2D1B3D1B4D1B5D1B6D292D1B7D1B8D1B9D1BAD1BBD1BCD1BDD1BED1BF \
         D1C0D281D282D283D284D285D286D287D288D289D28AD28BD28CD28DD28ED28FD290D1B1D1B2D1B3 \
         D1B4D1B5D1B6D292D1B7D1B8D1B9D1BAD1BBD1BCD1BDD1BED1BFD1C0D2",
    );
    check_string(
        HashKind::V1,
        &beginning(101),
        "05C1E3653D9F3E08D1B1D1B2D1B3D1B4D1B5D1B6D292D1B7D1B8D1B9D1BAD1BBD1BCD1BDD1BED1BF \
         D1C0D281D282D283D284D285D286D287D288D289D28AD28BD28CD28DD28ED28FD290D1B1D1B2D1B3 \
         D1B4D1B5D1B6D292D1B7D1B8D1B9D1BAD1BBD1BCD1BDD1BED1BFD1C0D2",
    );
}

#[test]
fn later_versions_hash_whole_strings() {
    check_string(
        HashKind::V2,
        &format!("tenant\0{}\u{e9}z", "a".repeat(92)),
        "3C0D04FB07AECB6B45A1592465FDFAA7",
    );
    check_string(
        HashKind::MultiHash,
        &format!("tenant\0{}\u{e9}z", "a".repeat(92)),
        "3C0D04FB07AECB6B45A1592465FDFAA7",
    );
    check_string(
        HashKind::V2,
        &format!("{}\u{1f600}", "a".repeat(99)),
        "3DCDC7ABFC5BF49867B328ECDB14F0BF",
    );
    check_string(
        HashKind::MultiHash,
        &format!("{}\u{1f600}", "a".repeat(99)),
        "3DCDC7ABFC5BF49867B328ECDB14F0BF",
    );
}

#[test]
fn raw_hashes_agree_with_the_baselines() {
    check_raw(r#"[{}]"#, "514E28B7", "51622DAA78F835834610ABE56EFF5CB5");
    check_raw(r#"[null]"#, "E45AD1AB", "778867E4430E67857ACE5C908374FE16");
    check_raw(r#"[true]"#, "5E2A8076", "4E711127C5B5A8E4726AC6DD306A3E59");
    check_raw(r#"[false]"#, "6C27D09F", "EFE1BE91E90A3439635E0E9E37361EF2");
    check_raw(r#"[""]"#, "3CCCB0FF", "B2E9366E637A71B4E710384B2F4970A0");
    check_raw(r#"["asdf"]"#, "B02BABC2", "608BF1D598F5B63AD5520F04FE58C5E8");
    check_raw(&string(&"a".repeat(99)), "CCC122D9", "3C02F609961C32AAC2B912B940D1209A");
    check_raw(&string(&"a".repeat(100)), "D5843D83", "8DBD7D229437BB665DE6417747994D57");
    check_raw(&string(&"a".repeat(101)), "3B1B5D8D", "88042541D30C8BF90D7092B1519AE0BC");
    check_raw(&string(&"a".repeat(2048)), "9C91058D", "B3E0AE996F53F2CD5DD5574ACAB3BF19");
}

#[test]
fn raw_hashes_of_numbers_agree_with_the_baselines() {
    check_raw(r#"[0]"#, "1EDA80A6", "555B95BEDAC4B1E9EC1CDC9BB0DDDE58");
    check_raw(r#"[1]"#, "E1655A93", "A0CD98B339BA78A5D0CF6953B87070B0");
    check_raw(r#"[-1]"#, "452BDBE7", "59938E7A936C1C5B9E3AE842BBC16839");
    check_raw(r#"[5E-324]"#, "AC83D318", "0E6CBA63A280927DE485DEF865800139");
    check_raw(r#"[1.7976931348623157E+308]"#, "378B3C46", "71424D996457102634591FF245DBCC4D");
    check_raw(r#"[-1.7976931348623157E+308]"#, "E38DD8A1", "27050CC4910CFD9DACE1283D3801DF25");
    check_raw(r#"[9223372036854775807]"#, "1732A96D", "6EDB959178DFCCA18983F89384D1629B");
    check_raw(r#"[9223372036854775806]"#, "1732A96D", "6EDB959178DFCCA18983F89384D1629B");
    check_raw(r#"[-9223372036854775808]"#, "69AF2787", "63D5C6395512BDFEAFADAD15328AD2BB");
    check_raw(r#"[9007199254740991]"#, "13F69B8A", "12C221C7032CED1F9E6693CE1428E6CF");
    check_raw(r#"[9007199254740990]"#, "E5744366", "8FEA3467D94AA6E4628EF0B248C1FD9B");
    check_raw(r#"[9007199254740992]"#, "A30CCE12", "55335910D01122E3D99DA5DE569B065D");
    check_raw_number(-0.0, "B03DA650", "3D018BB1DF3DB27235766E81FD10406E");
    check_raw_number(
        f64::from_bits(0xFFF8_0000_0000_0000),
        "AF04DA37",
        "5AA4222583D70ECAA0922D8CA8EDFCB1",
    );
    check_raw_number(f64::NEG_INFINITY, "0F5A6CC5", "5B63B3FB266DB3B6CD3BC79FE893CDE8");
    check_raw_number(f64::INFINITY, "D2F84F93", "3889F7F08A8CE2A5C9829BBB1944B4FF");
}

#[test]
fn raw_hashes_of_lists_agree_with_the_baselines() {
    check_raw(r#"["/path1"]"#, "A6C6298A", "B499FD5198AE0F1EB6B77F6E428D2FF0");
    check_raw(
        r#"["/path1","/path2"]"#,
        "A6C6298A 9D008F2C",
        "B499FD5198AE0F1EB6B77F6E428D2FF0 E7A1848BD1102A3B65AFF266874D0FF5",
    );
    check_raw(
        r#"["/path1","/path2","/path3"]"#,
        "A6C6298A 9D008F2C 3E47FEA2",
        "B499FD5198AE0F1EB6B77F6E428D2FF0 E7A1848BD1102A3B65AFF266874D0FF5 \
         ECA5ABC953544CF9BD94776DA5E6EA52",
    );
}

#[test]
fn keys_are_written_in_upper_case_and_read_in_either() {
    let key: EffectiveKey = "00ff1a".parse().unwrap();
    assert_eq!(key.as_bytes(), [0x00, 0xFF, 0x1A]);
    assert_eq!(key.to_string(), "00FF1A");
    assert_eq!(format!("{key:?}"), "EffectiveKey(00FF1A)");
    assert_eq!(EffectiveKey::MIN.to_string(), "");
    assert_eq!(EffectiveKey::MAX.to_string(), "FF");
    assert_eq!("".parse::<EffectiveKey>().unwrap(), EffectiveKey::MIN);
}

#[test]
fn texts_that_are_no_keys_are_refused() {
    for text in ["0", "0G", "é", " 0", "0x00", &"00".repeat(337)] {
        assert!(text.parse::<EffectiveKey>().is_err(), "{text:?} was read");
    }
    assert!(EffectiveKey::from_bytes(&[0; 336]).is_ok());
    assert!(EffectiveKey::from_bytes(&[0; 337]).is_err());
}

#[test]
fn a_successor_has_the_same_width() {
    let successor =
        |text: &str| text.parse::<EffectiveKey>().unwrap().successor().map(|key| key.to_string());
    assert_eq!(successor("00").as_deref(), Some("01"));
    assert_eq!(successor("05FFFF").as_deref(), Some("060000"));
    assert_eq!(successor("FFFF"), None);
    assert_eq!(successor(""), None);
}

#[test]
fn an_effective_key_stays_small() {
    assert!(size_of::<EffectiveKey>() <= 24);
}

proptest! {
    #[test]
    fn hexadecimal_and_json_give_the_same_key_back(
        bytes in prop::collection::vec(any::<u8>(), 0..=336),
    ) {
        let key = EffectiveKey::from_bytes(&bytes).unwrap();
        prop_assert_eq!(key.as_bytes(), &bytes[..]);
        prop_assert_eq!(&key.to_string().parse::<EffectiveKey>().unwrap(), &key);
        let json = serde_json::to_string(&key).unwrap();
        prop_assert_eq!(serde_json::from_str::<EffectiveKey>(&json).unwrap(), key);
    }

    #[test]
    fn keys_compare_as_bytes(one: Vec<u8>, two: Vec<u8>) {
        let keys = (EffectiveKey::new(&one), EffectiveKey::new(&two));
        prop_assert_eq!(keys.0.cmp(&keys.1), one.cmp(&two));
    }

    #[test]
    fn reading_any_text_does_not_panic(text: String) {
        let _ = text.parse::<EffectiveKey>();
    }
}
