//! What receivers see. Messages are built as values and read back as values; bytes are compared where bytes matter.

use super::*;
use crate::codec::write_binary;
use crate::value::Value;

const TOKEN: [u8; 16] = [7; 16];

fn section(code: u8, value: Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_descriptor(&mut out, code.into());
    value.encode(&mut out);
    out
}

fn symbol(text: &str) -> Value {
    Value::Symbol(text.into())
}

fn map(entries: &[(&str, Value)]) -> Value {
    Value::Map(entries.iter().map(|(key, value)| (symbol(key), value.clone())).collect())
}

fn stamp() -> Stamp<'static> {
    Stamp { sequence: 1, enqueued: 1_000, ..Stamp::default() }
}

fn deliver(stored: &[u8], stamp: &Stamp<'_>, overlay: Option<&Overlay>) -> (Vec<u8>, Sections) {
    let mut out = Vec::new();
    encode(&mut out, stored, &Sections::scan(stored).unwrap(), stamp, overlay).unwrap();
    let sections = Sections::scan(&out).unwrap();
    assert!(sections.is_plain);
    (out, sections)
}

fn header(stored: &[u8], stamp: &Stamp<'_>) -> Vec<Value> {
    let (out, sections) = deliver(stored, stamp, None);
    match Value::decode(sections.header.value(&out).unwrap()).unwrap() {
        Value::List(fields) => fields,
        other => panic!("{other:?}"),
    }
}

fn annotations(stored: &[u8], stamp: &Stamp<'_>, overlay: Option<&Overlay>) -> Value {
    let (out, sections) = deliver(stored, stamp, overlay);
    Value::decode(sections.message_annotations.value(&out).unwrap()).unwrap()
}

fn properties(stored: &[u8], stamp: &Stamp<'_>, overlay: Option<&Overlay>) -> Vec<Value> {
    let (out, sections) = deliver(stored, stamp, overlay);
    match Value::decode(sections.properties.value(&out).unwrap()).unwrap() {
        Value::List(fields) => fields,
        other => panic!("{other:?}"),
    }
}

fn body() -> Vec<u8> {
    let mut out = Vec::new();
    write_descriptor(&mut out, 0x75);
    write_binary(&mut out, b"payload");
    out
}

//
#[test]
fn a_header_is_there_even_if_the_sender_wrote_none() {
    let fields = header(&body(), &Stamp { delivery_count: 2, ttl: Some(5), ..stamp() });
    assert_eq!(fields, [Value::Null, Value::Null, Value::Uint(5), Value::Null, Value::Uint(2)]);
}

// S-3: durable, priority and first-acquirer survive; ttl and delivery-count are the broker's.
#[test]
fn a_header_keeps_what_the_sender_wrote_and_takes_ttl_and_count_from_the_broker() {
    let sent =
        vec![Value::Boolean(false), Value::Ubyte(20), Value::Uint(9), Value::Boolean(false), Value::Uint(77)];
    let stored = section(0x70, Value::List(sent));
    let fields = header(&stored, &stamp());
    let expected =
        [Value::Boolean(false), Value::Ubyte(20), Value::Null, Value::Boolean(false), Value::Uint(0)];
    assert_eq!(fields, expected);
}

// S-67
#[test]
fn a_ttl_above_49_days_is_written_as_the_largest_one() {
    for (ttl, written) in [(u64::from(u32::MAX), u32::MAX), (u64::from(u32::MAX) + 1, u32::MAX), (1, 1)] {
        assert_eq!(header(&[], &Stamp { ttl: Some(ttl), ..stamp() })[2], Value::Uint(written));
    }
}

// exact types.
#[test]
fn the_stamp_is_written_with_symbol_keys_and_exact_types() {
    let full = Stamp {
        locked_until: Some(2_000),
        enqueued_sequence: Some(300),
        state: Some(1),
        dead_letter_source: Some("orders"),
        partition_id: Some(3),
        ..stamp()
    };
    let expected = map(&[
        ("x-opt-enqueued-time", Value::Timestamp(1_000)),
        ("x-opt-sequence-number", Value::Long(1)),
        ("x-opt-locked-until", Value::Timestamp(2_000)),
        ("x-opt-enqueue-sequence-number", Value::Long(300)),
        ("x-opt-message-state", Value::Int(1)),
        ("x-opt-deadletter-source", "orders".into()),
        ("x-opt-partition-id", Value::Short(3)),
    ]);
    assert_eq!(annotations(&body(), &full, None), expected);
    let least =
        map(&[("x-opt-enqueued-time", Value::Timestamp(1_000)), ("x-opt-sequence-number", Value::Long(1))]);
    assert_eq!(annotations(&body(), &stamp(), None), least);
}

// S-3: what a sender writes under the broker's names is ignored, everything else survives.
#[test]
fn a_senders_annotations_survive_except_under_the_brokers_names() {
    let brokers = [
        "x-opt-enqueued-time",
        "x-opt-sequence-number",
        "x-opt-locked-until",
        "x-opt-enqueue-sequence-number",
        "x-opt-message-state",
        "x-opt-deadletter-source",
        "x-opt-partition-id",
        "x-opt-offset",
    ];
    let mut sent: Vec<_> = brokers.iter().map(|name| (symbol(name), Value::from("forged"))).collect();
    sent.push(("own".into(), Value::Int(1)));
    sent.push((Value::Ulong(5), Value::Int(2)));
    sent.push((symbol("x-opt-partition-key"), "p".into()));
    sent.push((symbol("x-opt-via-partition-key"), Value::Null));
    let found = annotations(&section(0x72, Value::Map(sent)), &stamp(), None);
    let expected = Value::Map(vec![
        (symbol("own"), Value::Int(1)),
        (Value::Ulong(5), Value::Int(2)),
        (symbol("x-opt-partition-key"), "p".into()),
        (symbol("x-opt-enqueued-time"), Value::Timestamp(1_000)),
        (symbol("x-opt-sequence-number"), Value::Long(1)),
    ]);
    assert_eq!(found, expected);
}

fn delivery_annotations(stored: &[u8], stamp: &Stamp<'_>) -> Option<Value> {
    let (out, sections) = deliver(stored, stamp, None);
    sections.delivery_annotations.value(&out).map(|value| Value::decode(value).unwrap())
}

// K-2, A-7.8
#[test]
fn a_locked_delivery_names_its_token_and_one_that_deletes_has_an_empty_map() {
    let locked = Stamp { lock_token: Some(TOKEN), is_delivered: true, ..stamp() };
    assert_eq!(delivery_annotations(&[], &locked), Some(map(&[("x-opt-lock-token", Value::Uuid(TOKEN))])));
    let deleted = Stamp { is_delivered: true, ..stamp() };
    assert_eq!(delivery_annotations(&[], &deleted), Some(map(&[])));
    assert_eq!(delivery_annotations(&[], &stamp()), None, "it is only shown");
}

// K-8
#[test]
fn a_delivery_of_what_was_scheduled_says_so_and_a_peek_says_what_it_is() {
    let stored = section(0x72, map(&[("x-opt-scheduled-enqueue-time", Value::Timestamp(9))]));
    let state = |stored: &[u8], stamp: &Stamp<'_>| {
        let (out, sections) = deliver(stored, stamp, None);
        let found = Value::decode(sections.message_annotations.value(&out).unwrap()).unwrap();
        let Value::Map(entries) = found else { panic!("{found:?}") };
        entries.into_iter().find(|(key, _)| *key == symbol("x-opt-message-state")).map(|(_, state)| state)
    };
    let delivered = Stamp { is_delivered: true, ..stamp() };
    assert_eq!(state(&stored, &Stamp { was_scheduled: true, ..delivered }), Some(Value::Int(2)));
    assert_eq!(state(&stored, &delivered), None, "its time was over when it was sent");
    assert_eq!(state(&[], &delivered), None);
    let peeked = Stamp { state: Some(0), was_scheduled: true, ..stamp() };
    assert_eq!(state(&stored, &peeked), Some(Value::Int(0)));
}

// K-10
#[test]
fn a_senders_delivery_annotations_come_back_but_no_token_of_his() {
    let stored = section(
        0x71,
        map(&[("sender's", Value::Int(1)), ("x-opt-lock-token", Value::Uuid([9; 16])), ("b", Value::Null)]),
    );
    let own = [("sender's", Value::Int(1)), ("b", Value::Null)];
    assert_eq!(delivery_annotations(&stored, &stamp()), Some(map(&own)));
    let locked = Stamp { lock_token: Some(TOKEN), is_delivered: true, ..stamp() };
    let merged = [&own[..], &[("x-opt-lock-token", Value::Uuid(TOKEN))]].concat();
    assert_eq!(delivery_annotations(&stored, &locked), Some(map(&merged)));
}

// S-3
#[test]
fn the_bare_message_and_the_footer_are_copied_byte_for_byte() {
    let bare = [
        // Wider forms than we would write ourselves.
        vec![0, 0x53, 0x73, code::LIST_32, 0, 0, 0, 6, 0, 0, 0, 2, code::ULONG_SMALL, 0],
        section(0x74, map(&[("k", Value::Double(0))])),
        body(),
        body(),
        section(0x78, map(&[("f", Value::Int(1))])),
    ];
    let mut bare = bare.concat();
    bare[7] = 4 + 3;
    bare.insert(14, code::NULL);
    let stored = [section(0x70, Value::List(vec![])), bare.clone()].concat();
    let (out, sections) = deliver(&stored, &Stamp { ttl: Some(9), ..stamp() }, None);
    assert_eq!(&out[sections.bare as usize..], bare);
}

// Python reads descriptors as smallulong only.
#[test]
fn wide_descriptors_are_delivered_short() {
    let mut stored = vec![0, code::SYMBOL_8, 16];
    stored.extend_from_slice(b"amqp:data:binary");
    stored.extend_from_slice(&body()[3..]);
    stored.extend_from_slice(&[0, code::ULONG, 0, 0, 0, 0, 0, 0, 0, 0x75]);
    stored.extend_from_slice(&body()[3..]);
    let (out, sections) = deliver(&stored, &stamp(), None);
    assert_eq!(sections.body.bytes(&out), [body(), body()].concat());
}

// and of a message that comes in parts the first is rewritten and the others follow as they are.
#[test]
fn of_a_first_part_with_wide_descriptors_no_byte_of_the_body_is_lost() {
    let mut front = vec![0, code::ULONG, 0, 0, 0, 0, 0, 0, 0, 0x73];
    Value::List(vec!["id".into(), Value::Null, "to".into()]).encode(&mut front);
    front.extend_from_slice(&[0, code::ULONG, 0, 0, 0, 0, 0, 0, 0, 0x74]);
    map(&[]).encode(&mut front);
    let stored = [front.clone(), body()].concat();
    let mut changes = Overlay::default();
    changes.set("a", &Value::Int(1)).unwrap();
    changes.set_system(SystemProperty::Label, &"label".into()).unwrap();
    for overlay in [None, Some(&changes)] {
        let whole = deliver(&stored, &stamp(), overlay).0;
        for cut in front.len() + 3..=stored.len() {
            let (first, others) = stored.split_at(cut);
            let sections = Sections::scan_front(first).unwrap();
            assert!(!sections.is_plain);
            let mut out = Vec::new();
            encode(&mut out, first, &sections, &stamp(), overlay).unwrap();
            assert_eq!(
                [&out[..], others].concat(),
                whole,
                "cut at {cut}, with changes: {}",
                overlay.is_some()
            );
        }
    }
}

/// 1.2345 as Python writes it, and as .NET does.
const DECIMALS: [Value; 2] = [
    Value::Decimal128([0x30, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x30, 0x39]),
    Value::Decimal128([0x0c, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x30, 0x39]),
];

//
#[test]
fn decimals_of_application_properties_are_written_as_dotnet_does_and_nothing_else_is() {
    let [sent, given] = DECIMALS;
    let others = |price: &Value| {
        let list = Value::List(vec![sent.clone()]);
        section(0x74, map(&[("price", price.clone()), ("byte", Value::Ubyte(0x94)), ("list", list)]))
    };
    let body = section(0x77, sent.clone());
    let whole = |price| [section(0x73, Value::List(vec!["id".into()])), others(price), body.clone()].concat();
    let (out, sections) = deliver(&whole(&sent), &stamp(), None);
    assert_eq!(sections.body.bytes(&out), body);
    let properties = Value::decode(sections.application_properties.value(&out).unwrap()).unwrap();
    let (expected, found) = (whole(&given), out[sections.bare as usize..].to_vec());
    assert_eq!(found, expected, "{properties:?}");
    // What was written so, and a byte that only looks like the beginning of a decimal, stay as they are.
    let (out, sections) = deliver(&expected, &stamp(), None);
    assert_eq!(out[sections.bare as usize..], expected);
    let narrow = [0, 0x53, 0x74, code::MAP_8, 6, 2, code::SYMBOL_8, 1, b'a', code::UBYTE, 0x94];
    let (out, sections) = deliver(&narrow, &stamp(), None);
    assert_eq!(out[sections.bare as usize..], narrow);
}

//
#[test]
fn a_decimal_that_was_changed_since_is_written_as_dotnet_does() {
    let [sent, given] = DECIMALS;
    let mut overlay = Overlay::default();
    overlay.set("price", &sent).unwrap();
    let stored = [section(0x74, map(&[("cost", sent.clone()), ("price", Value::Null)])), body()].concat();
    let (out, sections) = deliver(&stored, &stamp(), Some(&overlay));
    let found = Value::decode(sections.application_properties.value(&out).unwrap()).unwrap();
    let name = |name: &str| found.get(name).cloned();
    assert_eq!((name("cost"), name("price")), (Some(given.clone()), Some(given)));
}

fn with_lifetime(expires: Value, created: Value) -> Vec<u8> {
    let mut fields = vec![Value::Null; 8];
    fields[0] = "id".into();
    fields.extend([expires, created, "session".into()]);
    section(0x73, Value::List(fields))
}

fn lifetime(stored: &[u8], stamp: &Stamp<'_>) -> (Value, Value) {
    let fields = properties(stored, stamp, None);
    assert_eq!((&fields[0], &fields[10]), (&"id".into(), &"session".into()));
    (fields[8].clone(), fields[9].clone())
}

// S-68
#[test]
fn times_that_tell_the_effective_ttl_stay_and_others_are_rewritten() {
    let stored = with_lifetime(Value::Timestamp(600), Value::Timestamp(500));
    let kept = Stamp { ttl: Some(100), expires: Some(1_100), ..stamp() };
    assert_eq!(lifetime(&stored, &kept), (Value::Timestamp(600), Value::Timestamp(500)));
    let reduced = Stamp { ttl: Some(40), expires: Some(1_040), ..stamp() };
    assert_eq!(lifetime(&stored, &reduced), (Value::Timestamp(1_040), Value::Timestamp(1_000)));
    let forwarded = Stamp { enqueued_sequence: Some(1), ..kept };
    assert_eq!(lifetime(&stored, &forwarded), (Value::Timestamp(1_100), Value::Timestamp(1_000)));
    let scheduled =
        [section(0x72, map(&[("x-opt-scheduled-enqueue-time", Value::Timestamp(9))])), stored].concat();
    assert_eq!(lifetime(&scheduled, &kept), (Value::Timestamp(1_100), Value::Timestamp(1_000)));
}

// S-3, S-68
#[test]
fn an_expiry_time_without_a_creation_time_becomes_the_brokers() {
    let stamp = Stamp { ttl: Some(100), expires: Some(1_100), ..stamp() };
    let only_expiry = with_lifetime(Value::Timestamp(600), Value::Null);
    assert_eq!(lifetime(&only_expiry, &stamp), (Value::Timestamp(1_100), Value::Null));
    let only_creation = with_lifetime(Value::Null, Value::Timestamp(5));
    assert_eq!(lifetime(&only_creation, &stamp), (Value::Null, Value::Timestamp(5)));
}

#[test]
fn a_message_that_lives_for_ever_keeps_the_senders_times() {
    let stored = with_lifetime(Value::Timestamp(600), Value::Timestamp(500));
    assert_eq!(lifetime(&stored, &stamp()), (Value::Timestamp(600), Value::Timestamp(500)));
}

fn application(stored: &[u8], overlay: &Overlay) -> Option<Value> {
    let (out, sections) = deliver(stored, &stamp(), Some(overlay));
    assert_eq!(sections.body.bytes(&out), body());
    sections.application_properties.value(&out).map(|value| Value::decode(value).unwrap())
}

// properties to modify, dead-letter reason.
#[test]
fn an_overlay_sets_and_removes_application_properties() {
    let mut overlay = Overlay::default();
    overlay.set("changed", &Value::Int(2)).unwrap();
    overlay.set("gone", &Value::Null).unwrap();
    overlay.set_dead_letter(Some("because"), None).unwrap();
    let sent = [("kept", Value::Int(0)), ("changed", Value::Int(1)), ("gone", Value::Int(1))];
    let sent = Value::Map(sent.map(|(key, value)| (key.into(), value)).to_vec());
    let id = section(0x73, Value::List(vec!["id".into()]));
    let stored = [id.clone(), section(0x74, sent), body()].concat();
    let expected =
        [("kept", Value::Int(0)), ("DeadLetterReason", "because".into()), ("changed", Value::Int(2))];
    let expected = Value::Map(expected.map(|(key, value)| (key.into(), value)).to_vec());
    assert_eq!(application(&stored, &overlay), Some(expected));
    let (out, sections) = deliver(&stored, &stamp(), Some(&overlay));
    assert_eq!(sections.properties.bytes(&out), id);
}

#[test]
fn an_overlay_adds_a_section_only_if_it_has_something_to_put_there() {
    let mut overlay = Overlay::default();
    overlay.remove("gone").unwrap();
    assert_eq!(application(&body(), &overlay), None);
    overlay.set_rule_name("rule").unwrap();
    let expected = Value::Map(vec![("RuleName".into(), "rule".into())]);
    assert_eq!(application(&body(), &overlay), Some(expected));
}

#[test]
fn an_overlay_that_only_removes_leaves_the_other_properties() {
    let sent =
        |names: &[&str]| Value::Map(names.iter().map(|name| ((*name).into(), Value::Int(1))).collect());
    let stored = [section(0x74, sent(&["kept", "gone", "more"])), body()].concat();
    let mut overlay = Overlay::default();
    overlay.remove("gone").unwrap();
    assert_eq!(application(&stored, &overlay), Some(sent(&["kept", "more"])));
    overlay.remove("kept").unwrap();
    overlay.remove("more").unwrap();
    assert_eq!(application(&stored, &overlay), Some(sent(&[])), "the section is the sender's and stays");
}

// S-203, S-206
#[test]
fn an_overlay_changes_system_properties_where_they_lie() {
    let mut overlay = Overlay::default();
    overlay.set_system(SystemProperty::Label, &"label".into()).unwrap();
    overlay.set_system(SystemProperty::To, &Value::Null).unwrap();
    overlay.set_system(SystemProperty::PartitionKey, &"new".into()).unwrap();
    overlay.set_dead_letter_source("overlay").unwrap();
    let stored = [
        section(0x72, map(&[("x-opt-partition-key", "old".into())])),
        section(0x73, Value::List(vec!["id".into(), Value::Null, "to".into()])),
        body(),
    ]
    .concat();
    let fields = properties(&stored, &stamp(), Some(&overlay));
    assert_eq!(fields, ["id".into(), Value::Null, Value::Null, "label".into()]);
    let found = annotations(&stored, &stamp(), Some(&overlay));
    assert_eq!(found.get("x-opt-partition-key"), Some(&"new".into()));
    assert_eq!(found.get("x-opt-deadletter-source"), Some(&"overlay".into()));
    let stamped = Stamp { dead_letter_source: Some("stamp"), ..stamp() };
    let Value::Map(entries) = annotations(&stored, &stamped, Some(&overlay)) else { panic!("not a map") };
    let sources: Vec<_> =
        entries.iter().filter(|(key, _)| key.as_str() == Some("x-opt-deadletter-source")).collect();
    assert_eq!(sources, [&(symbol("x-opt-deadletter-source"), Value::from("stamp"))]);
}

// S-3: the bytes of the sender are the receiver's, also where a value stands in a longer form than it needs.
#[test]
fn an_overlay_that_changes_annotations_leaves_the_properties_byte_for_byte() {
    let mut overlay = Overlay::default();
    overlay.set_system(SystemProperty::PartitionKey, &"new".into()).unwrap();
    let mut wide = vec![code::DESCRIBED, code::ULONG_SMALL, 0x73, code::LIST_32, 0, 0, 0, 11, 0, 0, 0, 1];
    wide.extend_from_slice(&[code::STRING_32, 0, 0, 0, 2, b'i', b'd']);
    let stored = [wide.clone(), body()].concat();
    let (out, sections) = deliver(&stored, &stamp(), Some(&overlay));
    assert_eq!(sections.properties.bytes(&out), wide);
}

// S-203: null removes, wherever the property lies.
#[test]
fn what_an_overlay_removes_is_gone_and_what_it_sets_is_there_once() {
    let annotated = [
        (SystemProperty::PartitionKey, "x-opt-partition-key", Value::from("old"), Value::from("new")),
        (SystemProperty::ViaPartitionKey, "x-opt-via-partition-key", "old".into(), "new".into()),
        (
            SystemProperty::ScheduledEnqueueTimeUtc,
            "x-opt-scheduled-enqueue-time",
            Value::Timestamp(5),
            Value::Timestamp(6),
        ),
    ];
    let sent: Vec<_> = annotated.iter().map(|(_, name, old, _)| (*name, old.clone())).collect();
    let stored = [section(0x72, map(&sent)), body()].concat();
    for (property, name, _, new) in &annotated {
        for value in [Value::Null, new.clone()] {
            let mut overlay = Overlay::default();
            overlay.set_system(*property, &value).unwrap();
            let Value::Map(found) = annotations(&stored, &stamp(), Some(&overlay)) else {
                panic!("not a map")
            };
            let found: Vec<_> = found.iter().filter(|(key, _)| key.as_str() == Some(name)).collect();
            let expected = (symbol(name), value.clone());
            let expected: Vec<_> = [&expected].into_iter().filter(|_| !value.is_null()).collect();
            assert_eq!(found, expected, "{name}");
        }
    }
}

#[test]
fn a_malformed_stored_message_appends_nothing() {
    // A header whose list claims one field and holds none that can be read.
    let stored = [0, 0x53, 0x70, code::LIST_8, 2, 1, 0xff];
    let mut out = b"before".to_vec();
    let sections = Sections::scan(&stored).unwrap();
    let refused = encode(&mut out, &stored, &sections, &stamp(), None);
    assert_eq!((refused, &out[..]), (Err(Malformed::UnknownConstructor(0xff)), &b"before"[..]));
}
