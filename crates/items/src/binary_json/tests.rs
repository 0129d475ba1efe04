use super::*;
use proptest::prelude::*;

fn text(hex: &str) -> Result<String, Error> {
    let bytes: Vec<u8> = hex.split_whitespace().map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    to_text(&bytes, 1_000).map(|text| String::from_utf8(text).unwrap())
}

// P-86
#[test]
fn an_item_of_the_rust_client_is_read() {
    let body = [
        &[0x80, 0xED, 0x1A, 0x04, 0x82][..],
        b"id",
        &[0x81, b'a', 0x82],
        b"pk",
        &[0x81, b'x', 0x81, b'n', 0xCC, 0, 0, 0, 0, 0, 0, 0xF8, 0x3F, 0x83],
        b"ttl",
        &[0x05],
    ]
    .concat();
    assert!(is_binary(&body));
    assert_eq!(to_text(&body, 100).unwrap(), br#"{"id":"a","pk":"x","n":1.5,"ttl":5}"#);
}

// P-87, P-88: one of each marker.
#[test]
fn every_marker_is_read() {
    for (hex, expected) in [
        ("D0", r#"null"#),
        ("D1", r#"false"#),
        ("D2", r#"true"#),
        ("00", r#"0"#),
        ("1F", r#"31"#),
        ("C8 C8", r#"200"#),
        ("C9 18 FC", r#"-1000"#),
        ("CA 70 11 01 00", r#"70000"#),
        ("CB 00 0E FA D5 FE FF FF FF", r#"-5000000000"#),
        ("C7 FE FF FF FF FF FF FF FF", r#"18446744073709551614"#),
        ("CC 00 00 00 00 00 00 0C 40", r#"3.5"#),
        ("D8 FB", r#"-5"#),
        ("D7 C8", r#"200"#),
        ("D9 18 FC", r#"-1000"#),
        ("DA 90 EE FE FF", r#"-70000"#),
        ("DB 00 0E FA D5 FE FF FF FF", r#"-5000000000"#),
        ("DC FE FF FF FF", r#"4294967294"#),
        ("CD 00 00 C0 3F", r#"1.5"#),
        ("CE 00 00 00 00 00 00 02 C0", r#"-2.25"#),
        ("2C", r#""id""#),
        ("20", r#""$s""#),
        ("25", r#""_rid""#),
        ("2B", r#""GeometryCollection""#),
        ("3F", r#""_id""#),
        ("80", r#""""#),
        ("82 68 69", r#""hi""#),
        ("C0 05 68 65 6C 6C 6F", r#""hello""#),
        ("75 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F", r#""00102030-4050-6070-8090-a0b0c0d0e0f0""#),
        ("76 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F", r#""00102030-4050-6070-8090-A0B0C0D0E0F0""#),
        (
            "77 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F",
            r#""\"00102030-4050-6070-8090-a0b0c0d0e0f0\"""#,
        ),
        (
            "77 00 00 84 21 00 00 20 00 00 00 A6 F7 9A A8 00 00",
            r#""\"00004812-0000-0200-0000-6a7fa98a0000\"""#,
        ),
        ("71 01 00 66 6F 6F", r#""Zm9v""#),
        ("71 01 01 66 6F", r#""Zm8=""#),
        ("71 01 02 41", r#""QQ==""#),
        ("71 01 FD 41", r#""QQ""#),
        ("72 02 00 00 66 6F 6F 62 61 72", r#""Zm9vYmFy""#),
        ("71 01 00 FB FF FE", r#""+//+""#),
        ("73 01 00 FB FF FE", r#""-__-""#),
        ("78 04 A1 B2", r#""1a2b""#),
        ("79 04 A1 B2", r#""1A2B""#),
        ("78 01 0F", r#""f""#),
        ("7A 07 13 53 1C 02", r#""2024-01""#),
        ("7E 02 C8 34", r#""Hi""#),
        ("7B 04 30 10 32", r#""0123""#),
        ("7C 03 61 20 08", r#""abc""#),
        ("7D 04 61 40 20 0C", r#""abcd""#),
        ("7F 02 00 C8 34", r#""Hi""#),
        ("D3 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F", r#""03020100-0504-0706-0809-0a0b0c0d0e0f""#),
        ("DD 04 DE AD BE EF", r#""3q2+7w==""#),
        ("DD 00", r#""""#),
        ("DE 03 00 01 02 03", r#""AQID""#),
        ("F0 DA 03 01 00 00 00 02 00 00 00 03 00 00 00", r#"[1,2,3]"#),
        ("F0 D7 03 0A 14 1E", r#"[10,20,30]"#),
        ("F0 DA 00", r#"[]"#),
        ("F1 D9 03 00 FF FF 00 00 E8 03", r#"[-1,0,1000]"#),
        ("F0 CD 02 00 00 C0 3F 00 00 80 BE", r#"[1.5,-0.25]"#),
        ("F0 D8 03 FB 00 05", r#"[-5,0,5]"#),
        ("F0 DB 02 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00", r#"[1,2]"#),
        ("F0 DC 02 FE FF FF FF 00 00 00 00", r#"[4294967294,0]"#),
        ("F0 CE 02 00 00 00 00 00 00 F8 3F 00 00 00 00 00 00 02 C0", r#"[1.5,-2.25]"#),
        ("F2 F0 DA 02 02 01 00 00 00 02 00 00 00 03 00 00 00 04 00 00 00", r#"[[1,2],[3,4]]"#),
        ("E0", r#"[]"#),
        ("E8", r#"{}"#),
        ("E1 D2", r#"[true]"#),
        ("E9 2C D2", r#"{"id":true}"#),
        ("E2 03 00 01 D0", r#"[0,1,null]"#),
        ("E5 03 03 00 01 D0", r#"[0,1,null]"#),
        ("EA 04 2C 00 3B 01", r#"{"id":0,"type":1}"#),
        ("ED 04 02 2C 00 3B 01", r#"{"id":0,"type":1}"#),
        ("E2 05 E1 00 E9 2C 01", r#"[[0],{"id":1}]"#),
        ("C2 05 00 00 00 68 65 6C 6C 6F", r#""hello""#),
        ("74 01 00 00 FB FF FE", r#""-__-""#),
        ("DF 04 00 00 00 DE AD BE EF", r#""3q2+7w==""#),
        ("E3 03 00 00 01 D0", r#"[0,1,null]"#),
        ("E4 03 00 00 00 00 01 D0", r#"[0,1,null]"#),
        ("E6 03 00 03 00 00 01 D0", r#"[0,1,null]"#),
        ("E7 03 00 00 00 03 00 00 00 00 01 D0", r#"[0,1,null]"#),
        ("EB 04 00 2C 00 3B 01", r#"{"id":0,"type":1}"#),
        ("EC 04 00 00 00 2C 00 3B 01", r#"{"id":0,"type":1}"#),
        ("EE 04 00 02 00 2C 00 3B 01", r#"{"id":0,"type":1}"#),
        ("EF 04 00 00 00 02 00 00 00 2C 00 3B 01", r#"{"id":0,"type":1}"#),
        ("F3 F1 DA 02 00 02 00 01 00 00 00 02 00 00 00 03 00 00 00 04 00 00 00", r#"[[1,2],[3,4]]"#),
        ("E2 05 82 68 69 C3 03", r#"["hi","hi"]"#),
        ("E2 06 82 68 69 C4 03 00", r#"["hi","hi"]"#),
        ("E2 07 82 68 69 C5 03 00 00", r#"["hi","hi"]"#),
        ("E2 08 82 68 69 C6 03 00 00 00", r#"["hi","hi"]"#),
    ] {
        assert_eq!(text(&format!("80 {hex}")).as_deref(), Ok(expected), "{hex}");
    }
    let long = [&[0x80, 0xC1, 0x2C, 0x01][..], &[b'a'; 300]].concat();
    assert_eq!(to_text(&long, 302).unwrap().len(), 302);
}

#[test]
fn what_json_must_escape_is_escaped() {
    assert_eq!(text("80 84 22 5C 0A 7F").unwrap(), "\"\\\"\\\\\\u000a\u{7f}\"");
}

#[test]
fn whole_and_extreme_numbers_are_written_as_json_writes_them() {
    for (number, expected) in
        [(1.0, "1"), (-0.0, "-0"), (1e20, "100000000000000000000"), (1e300, "1e300"), (1.5e-9, "1.5e-9")]
    {
        let document = [&[0x80, 0xCC][..], &f64::to_le_bytes(number)].concat();
        assert_eq!(to_text(&document, 100).unwrap(), expected.as_bytes());
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (hex, expected) in [
        ("80", Error::Unfinished),
        ("80 82 61", Error::Unfinished),
        ("80 00 00", Error::Trailing),
        ("7B 7D", Error::Marker(0x7B)),
        ("80 40", Error::Marker(0x40)),
        ("80 CF 00 00", Error::Marker(0xCF)),
        ("80 81 FF", Error::NotUtf8),
        ("80 E5 02 03 00 00", Error::Length),
        ("80 E2 01 82 61 61", Error::Length),
        ("80 CC 00 00 00 00 00 00 F0 7F", Error::Number),
        ("80 C3 00", Error::Reference),
        ("80 E2 04 00 C3 02 01", Error::Reference),
        ("80 E9 00 00", Error::Marker(0x00)),
        // A reference to itself, and to another reference.
        ("80 C3 01", Error::Reference),
        // A count that claims four gigabytes.
        ("80 E7 FF FF FF FF FF FF FF FF", Error::Unfinished),
        // Empty rows cost nothing in bytes, but in text.
        ("80 F3 F1 DA 00 00 FF FF", Error::TooLong),
    ] {
        assert_eq!(text(hex), Err(expected), "{hex}");
    }
    assert_eq!(to_text(&[&[0x80][..], &[0xE1; 10_000]].concat(), 100_000), Err(Error::TooDeep));
    assert_eq!(to_text(&[], 10), Err(Error::Marker(0)));
}

#[test]
fn references_do_not_grow_beyond_the_bound() {
    // A text of 60 bytes and references to it.
    let mut document = vec![0x80, 0xE3, 0x00, 0x00, 0xBC];
    document.extend([b'a'; 60]);
    document.extend([0xC3, 0x04].repeat(1_000));
    let length = u16::try_from(document.len() - 4).unwrap().to_le_bytes();
    document[2..4].copy_from_slice(&length);
    assert_eq!(to_text(&document, 10_000), Err(Error::TooLong));
    assert!(to_text(&document, 100_000).is_ok());
}

proptest! {
    #[test]
    fn noise_does_no_harm(mut noise in prop::collection::vec(any::<u8>(), 0..200)) {
        noise.insert(0, MARK);
        if let Ok(text) = to_text(&noise, 10_000) {
            prop_assert!(text.len() <= 10_000);
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok(), "{:?}", noise);
        }
    }
}
