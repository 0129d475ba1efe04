use super::*;
use crate::settings::Status;
use crate::topic::change::tests::samples as changes;
use crate::topic::published::{Copied, Origin};
use std::collections::BTreeSet;

fn published(origin: Origin) -> Record {
    let copy = |subscription, overlay| Copied {
        subscription: EntityId(subscription),
        expires: LocalTime(9),
        overlay,
    };
    let mut overlay = Overlay::default();
    overlay.set_rule_name("r").unwrap();
    let copies = [copy(3, None), copy(4, Some(Box::new(overlay)))].into();
    Record::Published(Box::new(Published { topic: EntityId(2), sequence: Sequence(8), origin, copies }))
}

#[test]
fn a_record_weighs_as_much_as_what_of_it_has_any_length() {
    let session: Arc<str> = "s".repeat(128).into();
    let (entity, sequence) = (EntityId(7), Sequence(9));
    let mut overlay = Overlay::default();
    overlay.set("name", &"v".repeat(900).as_str().into()).unwrap();
    for record in [
        Record::InSession { entity, sequence, session: session.clone() },
        Record::SessionStateSet { entity, session, state: None },
        Record::Deferred { entity, sequence, overlay: Some(Box::new(overlay)) },
        published(Origin::Sent { body: BodyId(5), length: 6, parts: None }),
    ] {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert!(record.weight() >= bytes.len(), "{record:?} takes {}", bytes.len());
    }
}

fn samples() -> Vec<Record> {
    let settings = QueueSettings {
        forward_to: Some("other".into()),
        max_message_kilobytes: Some(2_048),
        requires_session: true,
        status: Status::SendDisabled,
        ..QueueSettings::default()
    };
    let (entity, sequence) = (EntityId(7), Sequence(9));
    vec![
        Record::QueueCreated {
            entity,
            namespace: NamespaceId(3),
            path: "a/b".into(),
            settings: Box::new(settings),
        },
        Record::EntityDeleted { entity },
        Record::PartStored { body: BodyId(4) },
        Record::Enqueued {
            entity,
            sequence,
            body: BodyId(5),
            length: 6,
            expires: LocalTime::NEVER,
            parts: None,
        },
        Record::Enqueued {
            entity,
            sequence,
            body: BodyId(5),
            length: 6,
            expires: LocalTime(-1),
            parts: Some([BodyId(1), BodyId(2)].into()),
        },
        Record::Scheduled {
            entity,
            sequence,
            body: BodyId(5),
            length: 6,
            due: LocalTime(7),
            time_to_live: Span::MAX,
            parts: Some([BodyId(1)].into()),
        },
        Record::Activated { entity, scheduled: Sequence(8), sequence, expires: LocalTime::NEVER },
        Record::Deferred { entity, sequence, overlay: None },
        Record::DeadLettered {
            entity,
            sequence,
            reason: Reason::MaxDeliveryCount,
            is_failure: true,
            overlay: Some(Box::new(Overlay::default())),
        },
        Record::LocksKept {
            locks: [KeptLock {
                source: Source::dead_letter(entity),
                token: LockToken::new(1, sequence),
                until: LocalTime(9),
            }]
            .into(),
        },
        Record::TransferDeadLettered {
            entity,
            sequence,
            body: BodyId(5),
            length: 6,
            reason: Reason::DestinationDisabled,
            parts: Some([BodyId(1), BodyId(2)].into()),
        },
        Record::Noted { entity, id: MessageKey([1, u64::MAX]) },
        Record::Skipped { entity, sequence },
        Record::Forwarded {
            source: Source::dead_letter(entity),
            sequence,
            target: EntityId(9),
            number: Sequence(3),
            expires: LocalTime(4),
            due: None,
            overlay: None,
        },
        Record::Forwarded {
            source: Source::main(entity),
            sequence,
            target: EntityId(9),
            number: Sequence(3),
            expires: LocalTime::NEVER,
            due: Some(LocalTime(5)),
            overlay: Some(Box::default()),
        },
        Record::InSession { entity, sequence, session: "".into() },
        Record::SessionStateSet { entity, session: "a session".into(), state: Some((BodyId(5), 6)) },
        Record::SessionStateSet { entity, session: "a session".into(), state: None },
        Record::Removed { entity, first: sequence, count: 1_000 },
        published(Origin::Scheduled(sequence)),
        published(Origin::Forwarded { source: Source::dead_letter(entity), sequence }),
        published(Origin::Sent { body: BodyId(5), length: 6, parts: None }),
        published(Origin::Sent { body: BodyId(5), length: 6, parts: Some([BodyId(1), BodyId(2)].into()) }),
        Record::Returned { entity, sequence, overlay: None },
        Record::Returned { entity, sequence, overlay: Some(Box::new(Overlay::default())) },
        Record::Relocated { body: BodyId(3), copy: BodyId(1_000) },
        Record::OverlayStored { entity, sequence, body: BodyId(5), length: 6 },
    ]
}

#[test]
fn what_is_written_is_read() {
    let mut bytes = Vec::new();
    samples().iter().for_each(|record| record.encode(&mut bytes));
    let mut rest = &bytes[..];
    for record in samples() {
        assert_eq!(Record::decode(&mut rest), Ok(record));
    }
    assert!(rest.is_empty());
}

#[test]
fn a_record_cut_anywhere_is_refused() {
    for record in samples() {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(Record::decode(&mut &bytes[..cut]), Err(Unreadable::Truncated));
        }
    }
}

#[test]
fn a_newer_kind_and_newer_fields_are_refused_plainly() {
    assert_eq!(Record::decode(&mut &[99, 0, 0, 0, 0][..]), Err(Unreadable::UnknownKind(99)));
    const PART_STORED: u8 = 3;
    let more = [PART_STORED, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(Record::decode(&mut &more[..]), Err(Unreadable::UnknownFields(PART_STORED)));
}

/// What this format has been written with from the first day; a byte that moves makes old data unreadable.
const GOLDEN: &str = include_str!("golden.txt");

#[test]
fn every_record_is_written_in_the_bytes_that_old_data_has() {
    let records: Vec<_> = samples().into_iter().chain(changes()).collect();
    let written = records.iter().map(|record| {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    });
    assert!(written.eq(GOLDEN.lines()), "compare with golden.txt, which nobody may change");
    let kinds: BTreeSet<_> = GOLDEN.lines().map(|line| u8::from_str_radix(&line[..2], 16).unwrap()).collect();
    assert!(kinds.into_iter().eq((1..=18).chain([20, 21]).chain(32..=41).chain([200])), "one of each kind");
}
