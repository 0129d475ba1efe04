//! The body of a fuzz target: what a sender says of a message, and what its receiver is told.

use super::broker_properties::shown;
use super::outline::{Outline, write_data};
use crate::iso::WallTime;
use broker::{BodyId, Delivery, LocalTime, LockToken, Number, Sequence, Span, State};
use hyper::header::HeaderValue;
use message::{Facts, Sections, SystemProperty, View};

const NOW: WallTime = WallTime(1_600_000_000_000);

/// Any bytes, read as `BrokerProperties`.
///
/// What is understood becomes a message that scans, in which everything stands as it was said; what the receiver of that
/// message is told fits a header and says the same, taken as the word of a sender.
pub fn broker_properties(bytes: &[u8]) {
    let Ok(said) = serde_json::from_slice::<Outline>(bytes) else { return };
    let stored = written(&said);
    let sections = Sections::scan(&stored).expect("a message of ours scans");
    // Ids may be too long, and a key may contradict a session.
    let Ok(facts) = Facts::read(&stored, &sections) else { return };
    let life = said.time_to_live.filter(|life| *life != Span::MAX).map(|life| life.0);
    let most = (broker::limits::CALENDAR_END.0 - NOW.0) as u64;
    assert_eq!(facts.ttl, life.map(|life| life.min(most.max(u32::MAX.into()))), "a life is another");
    assert_eq!(facts.scheduled_enqueue_time, said.scheduled.map(|time| time.0));

    let view = View { stored: &stored, sections: &sections, overlay: None };
    for (property, text) in texts(&said) {
        let found = view
            .system(property)
            .expect("it was checked")
            .map(|found| found.value().expect("it was checked"));
        let found = found.as_ref().and_then(|found| found.as_str());
        assert_eq!(found, text.as_deref(), "{property:?}");
    }
    let told = shown(&view, &delivery(), "token").expect("it was checked");
    HeaderValue::from_str(&told).expect("it fits a header");
    let heard: Outline = serde_json::from_str(&told).expect("what is told can be said");
    assert_eq!(texts(&heard), texts(&said), "{told}");
    let in_seconds = |time: Option<LocalTime>| time.map(|time| time.0.div_euclid(1_000));
    assert_eq!(in_seconds(heard.scheduled), in_seconds(said.scheduled), "{told}");
}

fn written(outline: &Outline) -> Vec<u8> {
    let mut out = Vec::new();
    outline.write(&mut out, NOW);
    write_data(&mut out, b"body");
    out
}

fn texts(outline: &Outline) -> [(SystemProperty, &Option<String>); 9] {
    [
        (SystemProperty::MessageId, &outline.message_id),
        (SystemProperty::To, &outline.to),
        (SystemProperty::Label, &outline.label),
        (SystemProperty::ReplyTo, &outline.reply_to),
        (SystemProperty::CorrelationId, &outline.correlation_id),
        (SystemProperty::SessionId, &outline.session_id),
        (SystemProperty::ReplyToSessionId, &outline.reply_to_session_id),
        (SystemProperty::PartitionKey, &outline.partition_key),
        (SystemProperty::ViaPartitionKey, &outline.via_partition_key),
    ]
}

fn delivery() -> Delivery {
    Delivery {
        token: LockToken::new(1, Sequence(1)),
        sequence: Sequence(1),
        number: Number(1),
        state: State::Active,
        was_scheduled: false,
        body: BodyId(1),
        length: 0,
        count: 0,
        enqueued: LocalTime(NOW.0),
        expires: LocalTime(NOW.0 + 60_500),
        locked_until: Some(LocalTime(NOW.0 + 30_000)),
        first: None,
        extra: None,
    }
}
