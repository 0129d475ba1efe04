use super::*;

fn text(value: &str) -> Vec<KeyPart> {
    vec![KeyPart::from(value)]
}

fn number(value: f64) -> Vec<KeyPart> {
    vec![KeyPart::Number(value)]
}

// P-42: computed by the official Python client, and by the Java one as the Rust client's test data quotes it.
#[test]
fn version_2_agrees_with_the_clients() {
    for (parts, expected) in [
        (text("x"), "11E3F358618BE9AA5BAFF4C7C74F0716"),
        (text(""), "32E9366E637A71B4E710384B2F4970A0"),
        (text("partitionKey"), "013AEFCF77FA271571CF665A58C933F1"),
        (number(1.0), "20CD98B339BA78A5D0CF6953B87070B0"),
        (number(1.5), "35C5DDEB6C795D16A9963C73C54E97BC"),
        (number(-1.0), "19938E7A936C1C5B9E3AE842BBC16839"),
        (number(0.0), "155B95BEDAC4B1E9EC1CDC9BB0DDDE58"),
        (number(-0.0), "3D018BB1DF3DB27235766E81FD10406E"),
        (vec![KeyPart::Bool(true)], "0E711127C5B5A8E4726AC6DD306A3E59"),
        (vec![KeyPart::Bool(false)], "2FE1BE91E90A3439635E0E9E37361EF2"),
        (vec![KeyPart::Null], "378867E4430E67857ACE5C908374FE16"),
        (vec![KeyPart::Undefined], "11622DAA78F835834610ABE56EFF5CB5"),
        (text("éü漢字🙂 a long text of more than one block"), "24FA47F051FD80EB8FDD3580F683FC80"),
        (text(&"a".repeat(1_024)), "332BDF5512AE49615F32C7D98C2DB86C"),
    ] {
        assert_eq!(hex(&parts, Hashing::V2), expected, "{parts:?}");
    }
}

// P-42
#[test]
fn version_1_agrees_with_the_clients() {
    for (parts, expected) in [
        (text("x"), "05C1DDB31B470C087900"),
        (text(""), "05C1CF33970FF80800"),
        (text("partitionKey"), "05C1E1B3D9CD2608716273756A756A706F4C667A00"),
        (number(1.0), "05C1ED172B6B2605BFF0"),
        (vec![KeyPart::Undefined], "05C1D529E345DC00"),
        (vec![KeyPart::Bool(true)], "05C1D7C5A903D803"),
        (vec![KeyPart::Bool(false)], "05C1DB857D857C02"),
        // The Python client leaves out the last byte; as the ends of a range its keys still hold this one.
        (vec![KeyPart::Null], "05C1ED45D7475601"),
    ] {
        assert_eq!(hex(&parts, Hashing::V1), expected, "{parts:?}");
    }
    let long = format!("05C1EB5921F70608{}00", "62".repeat(100));
    assert_eq!(hex(&text(&"a".repeat(1_024)), Hashing::V1), long);
    // 100 characters of two bytes each: the key holds 101 bytes of them and no end.
    let wide = bytes(&text(&"é".repeat(100)), Hashing::V1);
    assert_eq!(wide[wide.len() - 3..], [0xC4, 0xAA, 0xC4]);
}

// P-41, P-42
#[test]
fn levels_are_hashed_one_by_one_and_a_prefix_is_a_range() {
    let both = [KeyPart::from("x"), KeyPart::from("y")];
    let whole = "11E3F358618BE9AA5BAFF4C7C74F07161880C5B898FDA99DA53B2ABCC61E625C";
    assert_eq!(hex(&both, Hashing::Multi), whole);
    let (first, end) = range(&both[..1], Hashing::Multi);
    assert_eq!(upper_hex(&first), "11E3F358618BE9AA5BAFF4C7C74F0716");
    assert_eq!(upper_hex(&end), "11E3F358618BE9AA5BAFF4C7C74F0716FF");
    let key = bytes(&both, Hashing::Multi);
    assert!(first <= key && key < end);
}

#[test]
fn one_key_is_a_range_that_holds_itself_alone() {
    for hashing in [Hashing::V1, Hashing::V2, Hashing::Multi] {
        let (first, end) = range(&text("x"), hashing);
        assert!(first == bytes(&text("x"), hashing) && first < end);
    }
    assert_eq!(bytes(&[], Hashing::V2), b"");
}

// P-41
#[test]
fn bounds_are_read_in_either_case() {
    assert_eq!(from_hex("05c1Dd"), Some(vec![0x05, 0xC1, 0xDD]));
    assert_eq!(from_hex(FIRST), Some(vec![]));
    assert_eq!(from_hex(END), Some(vec![0xFF]));
    assert_eq!(from_hex("F"), Some(vec![0xF0]));
    for wrong in ["0G", "é", "+1", "0x"] {
        assert_eq!(from_hex(wrong), None, "{wrong}");
    }
}

proptest::proptest! {
    #[test]
    fn every_key_is_below_the_end_and_hex_reads_back(value in ".{0,300}", real in proptest::num::f64::ANY) {
        for hashing in [Hashing::V1, Hashing::V2, Hashing::Multi] {
            for parts in [text(&value), number(real)] {
                let key = bytes(&parts, hashing);
                proptest::prop_assert!(key < vec![0xFF] && !key.is_empty());
                proptest::prop_assert_eq!(from_hex(&upper_hex(&key)), Some(key));
            }
        }
    }
}
