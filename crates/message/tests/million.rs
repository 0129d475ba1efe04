//! A million values, made from a seed, of every type, width and nesting: what one implementation of AMQP writes the
//! other reads as the same value, both ways, and what is cut short both refuse.
//!
//! Where the two differ, serde_amqp 0.18 is held against the standard below, fault by fault; values with such a part
//! are read by us alone and not counted.

#![allow(clippy::unwrap_used)]

mod support;

use otobus_message::codec::Malformed;
use otobus_message::value::{Array, Value};
use serde_amqp::{Value as Theirs, from_slice, to_vec};
use support::random::Random;
use support::theirs::{is_beyond_them, ours, tame, theirs};

const VALUES: usize = 1_000_000;

/// Makes values until `VALUES` of them have met the other implementation.
fn million(check: impl Fn(&mut Random, &Value) + Sync) {
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let check = &check;
            scope.spawn(move || {
                let mut compared = 0;
                for seed in (worker as u64..).step_by(workers) {
                    let mut random = Random::new(seed);
                    let value = random.value(0);
                    assert_eq!(Value::decode(&ours(&value)).as_ref(), Ok(&value), "seed {seed}");
                    if !is_beyond_them(&value) {
                        check(&mut random, &value);
                        compared += 1;
                    }
                    if compared == VALUES.div_ceil(workers) {
                        break;
                    }
                }
            });
        }
    });
}

// AMQP 1.0 part 1, 1.6
#[test]
fn a_million_values_mean_the_same_to_another_implementation_whichever_writes_and_in_any_width() {
    million(|random, value| {
        let expected = theirs(value);
        let bytes = ours(value);
        assert_eq!(from_slice::<Theirs>(&bytes).unwrap(), expected, "{bytes:02x?}");

        let mut bytes = Vec::new();
        random.encode_in_any_width(value, &mut bytes);
        assert_eq!(from_slice::<Theirs>(&bytes).unwrap(), expected, "{bytes:02x?}");
        assert_eq!(Value::decode(&bytes).as_ref(), Ok(value), "{bytes:02x?}");

        let tamed = tame(value.clone());
        let bytes = to_vec(&theirs(&tamed)).unwrap();
        assert_eq!(Value::decode(&bytes), Ok(tamed), "{bytes:02x?}");
    });
}

#[test]
fn what_is_cut_short_is_refused_by_both() {
    million(|random, value| {
        let bytes = ours(value);
        let cut = &bytes[..random.below(bytes.len() as u64) as usize];
        assert!(Value::decode(cut).is_err(), "{cut:02x?}");
        assert!(from_slice::<Theirs>(cut).is_err(), "{cut:02x?}");
    });
}

#[test]
fn what_we_read_from_damaged_bytes_they_read_as_the_same_or_refuse() {
    million(|random, value| {
        let mut bytes = ours(value);
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = random.next() as u8;
        let Ok(read) = Value::decode(&bytes) else {
            return;
        };
        match from_slice::<Theirs>(&bytes) {
            Ok(same) => assert_eq!(same, theirs(&read), "{bytes:02x?}"),
            Err(_) => assert!(is_beyond_them(&read), "{bytes:02x?}"),
        }
    });
}

/// Whether they read from us what we meant, and write what we read as it was meant.
fn is_understood(value: &Value) -> (bool, bool) {
    let meant = theirs(value);
    let is_read = from_slice::<Theirs>(&ours(value)).is_ok_and(|read| read == meant);
    let is_written = to_vec(&meant).is_ok_and(|bytes| Value::decode(&bytes).as_ref() == Ok(value));
    (is_read, is_written)
}

// What serde_amqp 0.18 does otherwise than the standard says. Whatever it does as the standard says from some version
// on is to be taken out of `tame` and `is_beyond_them`, for then the million covers it.
#[test]
fn what_the_other_implementation_does_otherwise_is_known() {
    let array = |elements: Vec<Value>| Value::Array(Array::of(&elements[0].clone(), elements));
    let pair = |key| Value::Map(vec![(key, Value::Long(1))]);
    let long = || Value::Long(1);
    let (read, written) = (true, true);
    let known = [
        // 1.6.24: an array has a constructor, also when it has no elements. They write none and expect none.
        (Value::List(vec![Value::Array(Array::of(&long(), vec![])), long()]), (false, false)),
        // 1.6.24: the elements share one constructor. They write that of the first, or one before each.
        (array(vec![Value::List(vec![]), Value::List(vec![long()])]), (false, false)),
        // 1.6.24: a map in an array has a size of its own, an array in an array a constructor of its own. They take
        // both from the first element.
        (array(vec![Value::Map(vec![]), pair(Value::Null)]), (false, written)),
        (array(vec![array(vec![long()]), array(vec![Value::Short(1)])]), (false, written)),
        // 1.6.20: the length of a string is in octets. In arrays they count characters.
        (array(vec![Value::String("ü".into())]), (read, false)),
        // 1.6.23: a value of a map has a constructor of its own. They write that of its key.
        (pair(Value::Timestamp(1)), (read, false)),
        // And what they do as the standard says, so that this test can tell.
        (array(vec![long(), long()]), (read, written)),
        (pair(Value::Uint(1)), (read, written)),
    ];
    for (value, expected) in known {
        assert_eq!(is_understood(&value), expected, "{value:?}");
    }
}

// 1.6.16: a char is a Unicode character. A surrogate is none, and they refuse it; a broker hands on what it was given.
#[test]
fn a_char_that_is_no_character_is_kept_as_it_came() {
    let surrogate = Value::Char(0xd800);
    assert_eq!(Value::decode(&ours(&surrogate)), Ok(surrogate.clone()));
    assert!(from_slice::<Theirs>(&ours(&surrogate)).is_err());
}

// 1.6.24 allows an array of any number of nulls, which take no bytes: four billion in nine. We read no more of them
// than there are bytes left, and no client sends any.
#[test]
fn an_array_of_nulls_is_bounded_by_its_bytes() {
    let nulls = |count| ours(&Value::Array(Array::of(&Value::Null, vec![Value::Null; count])));
    assert!(Value::decode(&nulls(1)).is_ok());
    assert_eq!(Value::decode(&nulls(2)), Err(Malformed::CountExceedsBytes(2)));
}
