//! `BrokerProperties`: what a sender says of a message and what its receiver is told, as one JSON object (H-92, H-93).

use super::dates::{self, FOR_EVER_SECONDS, http_date};
use super::outline::Outline;
use super::scalar::{Scalar, in_ascii};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use broker::{Delivery, LocalTime, Span};
use message::{Malformed, SystemProperty, Value, View};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value as Json};
use std::fmt;

/// What a sender says of a message. Names are known in any case; what is not for a sender to say is passed over.
impl<'de> Deserialize<'de> for Outline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Outline, D::Error> {
        deserializer.deserialize_map(Object)
    }
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Outline;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of broker properties")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Outline, M::Error> {
        let mut outline = Outline::default();
        let mut span = None;
        while let Some(name) = map.next_key::<String>()? {
            let place = match &*name.to_ascii_lowercase() {
                "correlationid" => &mut outline.correlation_id,
                "label" => &mut outline.label,
                "messageid" => &mut outline.message_id,
                "partitionkey" => &mut outline.partition_key,
                "replyto" => &mut outline.reply_to,
                "replytosessionid" => &mut outline.reply_to_session_id,
                "sessionid" => &mut outline.session_id,
                "to" => &mut outline.to,
                "viapartitionkey" => &mut outline.via_partition_key,
                "scheduledenqueuetimeutc" => {
                    outline.scheduled = read(&mut map, &name, "a date", date)?;
                    continue;
                }
                "timetolive" => {
                    outline.time_to_live = read(&mut map, &name, "a number of seconds", seconds)?;
                    continue;
                }
                "timetolivetimespan" => {
                    span = read(&mut map, &name, "a time span", time_span)?;
                    continue;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *place = read(&mut map, &name, "a text", text)?;
        }
        outline.time_to_live = outline.time_to_live.or(span);
        Ok(outline)
    }
}

/// The next value, which is null or what `understand` makes of it.
fn read<'de, M: MapAccess<'de>, T>(
    map: &mut M,
    name: &str,
    expected: &str,
    understand: fn(Scalar) -> Option<T>,
) -> Result<Option<T>, M::Error> {
    match map.next_value::<Scalar>()? {
        Scalar::Null => Ok(None),
        value => match understand(value) {
            Some(understood) => Ok(Some(understood)),
            None => Err(M::Error::custom(format!("the value of '{name}' is not {expected}"))),
        },
    }
}

fn text(value: Scalar) -> Option<String> {
    match value {
        Scalar::Text(text) => Some(text),
        Scalar::Integer(number) => Some(number.to_string()),
        Scalar::Null | Scalar::Boolean(_) | Scalar::Float(_) => None,
    }
}

fn date(value: Scalar) -> Option<LocalTime> {
    match value {
        Scalar::Text(text) => dates::date(&text),
        _ => None,
    }
}

fn seconds(value: Scalar) -> Option<Span> {
    match value {
        Scalar::Integer(number) => dates::seconds(number as f64),
        Scalar::Float(number) => dates::seconds(number),
        Scalar::Text(text) => dates::seconds(text.trim().parse().ok()?),
        Scalar::Null | Scalar::Boolean(_) => None,
    }
}

fn time_span(value: Scalar) -> Option<Span> {
    match value {
        Scalar::Text(text) => dates::time_span(&text),
        _ => None,
    }
}

/// What the receiver of a message is told, ready to stand in a header. `token` is the lock's, where there is one.
pub(super) fn shown(view: &View<'_>, delivery: &Delivery, token: &str) -> Result<String, Malformed> {
    let mut keys = Map::new();
    let mut tell = |name: &str, value: Json| drop(keys.insert(name.to_owned(), value));
    for property in SystemProperty::ALL {
        // It has a header of its own (H-94).
        if property != SystemProperty::ContentType
            && let Some(value) = view.system(property)?
            && let Some(value) = json(&value.value()?)
        {
            tell(property.name(), value);
        }
    }
    let life = delivery.expires.0.saturating_sub(delivery.enqueued.0).max(0);
    let life = if delivery.expires.is_never() { FOR_EVER_SECONDS.into() } else { in_seconds(life) };
    tell("DeliveryCount", (u64::from(delivery.count) + 1).into());
    tell("EnqueuedSequenceNumber", delivery.first.map_or(0, |number| number.0).into());
    tell("EnqueuedTimeUtc", http_date(delivery.enqueued).into());
    tell("SequenceNumber", delivery.number.0.into());
    tell("State", "Active".into());
    tell("TimeToLive", life);
    if let Some(until) = delivery.locked_until {
        tell("LockToken", token.into());
        tell("LockedUntilUtc", http_date(until).into());
    }
    Ok(in_ascii(&Json::Object(keys).to_string()))
}

fn in_seconds(milliseconds: i64) -> Json {
    if milliseconds % 1_000 == 0 {
        (milliseconds / 1_000).into()
    } else {
        (milliseconds as f64 / 1_000.0).into()
    }
}

fn json(value: &Value) -> Option<Json> {
    Some(match value {
        Value::Timestamp(time) => http_date(LocalTime(*time)).into(),
        other => id_text(other)?.into(),
    })
}

/// The text of an id, which has four types in AMQP.
pub(super) fn id_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) | Value::Symbol(text) => Some(text.clone()),
        Value::Uuid(bytes) => Some(uuid::Uuid::from_bytes(*bytes).to_string()),
        Value::Ulong(number) => Some(number.to_string()),
        Value::Binary(bytes) => Some(STANDARD.encode(bytes)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::{BodyId, LockToken, Number, Sequence, State};
    use message::sections::Sections;

    fn sent(json: &str) -> Result<Outline, String> {
        serde_json::from_str::<Outline>(json).map_err(|error| error.to_string())
    }

    // H-92
    #[test]
    fn what_a_sender_may_say_is_read_and_the_rest_passed_over() {
        let outline = sent(
            r#"{"CorrelationId":"c","ForcePersistence":true,"Label":"l","MessageId":"m","PartitionKey":"s",
                "ReplyTo":"r","ReplyToSessionId":"rs","ScheduledEnqueueTimeUtc":"Wed, 02 Jul 2014 01:32:27 GMT",
                "SessionId":"s","TimeToLive":10,"TimeToLiveTimeSpan":"0.00:00:40","To":"t","ViaPartitionKey":"v",
                "State":"Active","SequenceNumber":7,"Nested":{"a":[1,{"b":2}]}}"#,
        )
        .unwrap();
        let found = [
            outline.correlation_id,
            outline.label,
            outline.message_id,
            outline.partition_key,
            outline.reply_to,
            outline.reply_to_session_id,
            outline.session_id,
            outline.to,
            outline.via_partition_key,
        ];
        assert_eq!(found.map(Option::unwrap), ["c", "l", "m", "s", "r", "rs", "s", "t", "v"]);
        assert_eq!(outline.scheduled, Some(LocalTime(1_404_264_747_000)));
        assert_eq!(outline.time_to_live, Some(Span(10_000)), "the number counts");
        assert_eq!(sent(r#"{"TimeToLiveTimeSpan":"0.00:00:40"}"#).unwrap().time_to_live, Some(Span(40_000)));
        let odd = sent(r#"{"label":null,"MESSAGEID":5,"TimeToLive":"1.5"}"#).unwrap();
        assert_eq!((odd.label, odd.message_id), (None, Some("5".into())));
        assert_eq!(odd.time_to_live, Some(Span(1_500)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_its_name() {
        for (json, words) in [
            (r#"{"Label":true}"#, "'Label' is not a text"),
            (r#"{"Label":[]}"#, "invalid type: sequence"),
            (r#"{"TimeToLive":-1}"#, "'TimeToLive' is not a number of seconds"),
            (r#"{"TimeToLive":"soon"}"#, "'TimeToLive' is not a number of seconds"),
            (r#"{"TimeToLiveTimeSpan":"40"}"#, "'TimeToLiveTimeSpan' is not a time span"),
            (r#"{"ScheduledEnqueueTimeUtc":"tomorrow"}"#, "'ScheduledEnqueueTimeUtc' is not a date"),
            (r#"{"ScheduledEnqueueTimeUtc":7}"#, "'ScheduledEnqueueTimeUtc' is not a date"),
            ("[]", "an object of broker properties"),
            ("{", "EOF"),
        ] {
            let error = sent(json).unwrap_err();
            assert!(error.contains(words), "{json}: {error}");
        }
    }

    fn delivery() -> Delivery {
        Delivery {
            token: LockToken(1),
            sequence: Sequence(2),
            number: Number(2),
            state: State::Active,
            was_scheduled: false,
            body: BodyId(1),
            length: 0,
            count: 0,
            enqueued: LocalTime(1_404_264_747_000),
            expires: LocalTime(1_404_264_757_000),
            locked_until: Some(LocalTime(1_404_264_807_000)),
            first: None,
            extra: None,
        }
    }

    fn told(outline: &Outline, delivery: &Delivery) -> Json {
        let mut bytes = Vec::new();
        outline.write(&mut bytes, crate::iso::WallTime(0));
        let sections = Sections::scan(&bytes).unwrap();
        let text =
            shown(&View { stored: &bytes, sections: &sections, overlay: None }, delivery, "t").unwrap();
        assert!(text.is_ascii());
        serde_json::from_str(&text).unwrap()
    }

    // H-93
    #[test]
    fn a_receiver_is_told_what_the_service_tells() {
        let outline = Outline {
            label: Some("M1".into()),
            message_id: Some("ü".into()),
            scheduled: Some(LocalTime(1_404_264_747_000)),
            content_type: Some("text/plain".into()),
            ..Outline::default()
        };
        assert_eq!(
            told(&outline, &delivery()),
            serde_json::json!({
                "DeliveryCount": 1,
                "EnqueuedSequenceNumber": 0,
                "EnqueuedTimeUtc": "Wed, 02 Jul 2014 01:32:27 GMT",
                "Label": "M1",
                "LockToken": "t",
                "LockedUntilUtc": "Wed, 02 Jul 2014 01:33:27 GMT",
                "MessageId": "ü",
                "ScheduledEnqueueTimeUtc": "Wed, 02 Jul 2014 01:32:27 GMT",
                "SequenceNumber": 2,
                "State": "Active",
                "TimeToLive": 10,
            })
        );
        let taken = Delivery {
            locked_until: None,
            expires: LocalTime::NEVER,
            count: 4,
            first: Some(Number(9)),
            ..delivery()
        };
        let told = told(&Outline::default(), &taken);
        assert_eq!((&told["DeliveryCount"], &told["EnqueuedSequenceNumber"]), (&5.into(), &9.into()));
        assert_eq!(told["TimeToLive"], Json::from(FOR_EVER_SECONDS));
        assert!(told.get("LockToken").is_none() && told.get("LockedUntilUtc").is_none());
        assert_eq!(in_seconds(1_500), Json::from(1.5));
    }

    #[test]
    fn an_id_of_each_type_has_a_text() {
        assert_eq!(id_text(&Value::Ulong(7)).as_deref(), Some("7"));
        assert_eq!(id_text(&Value::Uuid([0; 16])).as_deref(), Some("00000000-0000-0000-0000-000000000000"));
        assert_eq!(id_text(&Value::Binary(vec![0])).as_deref(), Some("AA=="));
        assert_eq!(id_text(&Value::Null), None);
    }
}
