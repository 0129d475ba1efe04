//! The test clock: what time it is in a namespace, and how to move it. Only where the server was started with it.

use super::failure::Failure;
use super::{Call, Door, JSON, Success};
use crate::ask::Ask;
use crate::iso;
use broker::clock::{Advanced, Fate, Happened, Happening};
use broker::{Answer, Command, LocalTime, NamespaceId, Span, Task};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

impl<A: Ask> Door<'_, A> {
    pub(super) async fn clock(&self, call: &Call<'_>) -> Result<Success, Failure> {
        let body = match *call.method {
            Method::GET => match self.manage(call, Task::TellTime).await? {
                Answer::Time(now) => json!({ "now": instant(now) }),
                _ => return Err(Failure::Internal),
            },
            Method::POST => {
                let (namespace, by) = (call.namespace.id, asked(&call.body)?);
                match self.question(call, |request| Command::Advance { request, namespace, by }).await? {
                    Answer::Advanced(advanced) => {
                        let mut told = told(&advanced);
                        if let Some(items) = self.items.filter(|_| namespace == NamespaceId(0)) {
                            told["items"] = move_items(items, by).await?.into();
                        }
                        told
                    }
                    _ => return Err(Failure::Internal),
                }
            }
            _ => return Err(Failure::MethodNotAllowed),
        };
        Ok(Success { status: StatusCode::OK, content_type: JSON, body: body.to_string() })
    }
}

/// Moves the items as far as the namespace was moved, and says what time it is for them.
async fn move_items(items: &items_engine::Handle, by: Span) -> Result<String, Failure> {
    match items.ask(items::Command::Advance { by_ms: by.0 }).await {
        Ok(items::Reply { answer: items::Answer::Advanced { now_ms }, .. }) => Ok(instant(LocalTime(now_ms))),
        _ => Err(Failure::Internal),
    }
}

/// Takes a property once and no more; a [`Value`] keeps the last of several.
#[derive(serde::Deserialize)]
struct Once {
    #[serde(rename = "advance")]
    _advance: Option<serde::de::IgnoredAny>,
}

/// How far to move, from a body such as `{"advance":"PT1H"}`.
fn asked(body: &[u8]) -> Result<Span, Failure> {
    let bad = |what: &str| Failure::Bad(format!("{what}; send {{\"advance\":\"PT1H\"}} to move by an hour."));
    let read: Value = serde_json::from_slice(body).map_err(|_| bad("The body is not JSON"))?;
    let fields = read.as_object().ok_or_else(|| bad("The body is not an object"))?;
    if let Some(unknown) = fields.keys().find(|name| *name != "advance") {
        return Err(bad(&format!("The body has an unknown property '{unknown}'")));
    }
    // Of two values one would be lost without a word.
    if serde_json::from_slice::<Once>(body).is_err() {
        return Err(bad("The body has 'advance' twice"));
    }
    let text = fields.get("advance").ok_or_else(|| bad("The body has no 'advance'"))?;
    let text = text.as_str().ok_or_else(|| bad("The value of 'advance' is not a text"))?;
    if text.starts_with('-') {
        return Err(bad("Time does not go back"));
    }
    iso::duration(text).ok_or_else(|| bad("The value of 'advance' is not an ISO 8601 duration"))
}

fn told(advanced: &Advanced) -> Value {
    let events: Vec<_> = advanced.events.iter().map(event).collect();
    json!({ "now": instant(advanced.now), "events": events, "more": advanced.more })
}

fn event(happened: &Happened) -> Value {
    let fate = |fate: Fate| match fate {
        Fate::Returned => "returned",
        Fate::DeadLettered => "deadLettered",
        Fate::Dropped => "dropped",
    };
    let mut event = match happened.what {
        Happening::LockExpired { number, fate: end } => {
            json!({ "event": "lockExpired", "sequenceNumber": number.0, "outcome": fate(end) })
        }
        Happening::MessageExpired { number, fate: end } => {
            json!({ "event": "messageExpired", "sequenceNumber": number.0, "outcome": fate(end) })
        }
        Happening::MessageActivated { scheduled, number } => json!({
            "event": "messageActivated",
            "sequenceNumber": number.0,
            "scheduledSequenceNumber": scheduled.0,
        }),
        Happening::EntityDeleted => json!({ "event": "entityDeleted" }),
    };
    event["instant"] = instant(happened.at).into();
    event["entity"] = (*happened.entity).into();
    event
}

/// To the millisecond, which is as fine as time is here.
fn instant(time: LocalTime) -> String {
    iso::date_in_milliseconds(time.0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{As, TestServer};
    use super::*;

    const CLOCK: &str = "/$otobus/clock";

    async fn advanced(server: &TestServer, body: &str) -> (u16, Value) {
        let (status, body) = server.request(As::Manager, "POST", CLOCK, "", body).await;
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    async fn now(server: &TestServer) -> Value {
        let (status, body) = server.get(CLOCK).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    #[tokio::test]
    async fn time_is_told_and_moved() {
        let server = TestServer::default();
        assert_eq!(now(&server).await, json!({ "now": "2020-01-01T00:00:00.000Z" }));
        let (status, body) = advanced(&server, r#"{"advance":"P1DT1H0.25S"}"#).await;
        let there = "2020-01-02T01:00:00.250Z";
        assert_eq!((status, body), (200, json!({ "now": there, "events": [], "more": 0 })));
        assert_eq!(now(&server).await, json!({ "now": there }));
    }

    #[tokio::test]
    async fn what_happened_is_told_with_its_instant() {
        let server = TestServer::default();
        let idle = r#"<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle></QueueDescription></content></entry>"#;
        assert_eq!(server.create("/Idle", idle).await.0, 201);
        let (_, body) = advanced(&server, r#"{"advance":"PT1H"}"#).await;
        let deleted =
            json!([{ "event": "entityDeleted", "instant": "2020-01-01T00:05:00.000Z", "entity": "Idle" }]);
        assert_eq!(body["events"], deleted);
        assert_eq!(server.get("/Idle").await.0, 404);
    }

    #[tokio::test]
    async fn a_bad_body_is_refused_with_words_and_moves_nothing() {
        let server = TestServer::default();
        for (body, words) in [
            ("", "not JSON"),
            ("PT1H", "not JSON"),
            ("[]", "not an object"),
            ("{}", "no 'advance'"),
            (r#"{"advance":3600}"#, "not a text"),
            (r#"{"advance":"PT1H","to":"now"}"#, "unknown property 'to'"),
            (r#"{"advance":"PT1H","advance":"PT2H"}"#, "has 'advance' twice"),
            (r#"{"advance":"1h"}"#, "not an ISO 8601 duration"),
            (r#"{"advance":"-PT1H"}"#, "does not go back"),
            (r#"{"advance":"PT-1H"}"#, "not an ISO 8601 duration"),
            (r#"{"advance":"P3654D"}"#, "ten years"),
            (r#"{"advance":"P99999999999999999999D"}"#, "ten years"),
        ] {
            let (status, answer) = advanced(&server, body).await;
            assert_eq!(status, 400, "{body}");
            assert!(answer.as_str().is_some_and(|answer| answer.contains(words)), "{body}: {answer}");
        }
        assert_eq!(now(&server).await, json!({ "now": "2020-01-01T00:00:00.000Z" }));
        assert_eq!(server.request(As::Manager, "DELETE", CLOCK, "", "").await.0, 405);
    }

    #[tokio::test]
    async fn without_the_flag_there_is_no_clock() {
        let server = TestServer::without_test_clock();
        let (status, body) = server.get("/$otobus/other").await;
        let same_but_for_its_name = |text: &str| text.split("TrackingId").next().map(str::to_owned);
        let (without, text) = server.request(As::Manager, "POST", CLOCK, "", r#"{"advance":"PT1H"}"#).await;
        assert_eq!((status, without), (404, 404));
        assert_eq!(same_but_for_its_name(&text), same_but_for_its_name(&body));
        assert_eq!(server.get(CLOCK).await.0, 404);
    }
}
