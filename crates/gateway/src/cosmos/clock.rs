//! The test clock of the items: what time it is for them, and how to move it. Only where the server was started with it.

use super::failure::Failure;
use super::holding::Payload;
use super::resource::Verb;
use super::{Ask, Door};
use crate::iso;
use bytes::Bytes;
use hyper::header::HeaderValue;
use hyper::{Response, StatusCode};
use items::{Answer, Command};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    advance: String,
}

impl<A: Ask> Door<A> {
    pub(super) async fn clock(
        &self,
        verb: Verb,
        body: &[u8],
        activity: HeaderValue,
    ) -> Result<Response<Payload>, Failure> {
        if !self.settings.has_test_clock {
            return Err(Failure::not_found());
        }
        let by_ms = match verb {
            Verb::Read => 0,
            _ => asked(body)?,
        };
        let Answer::Advanced { now_ms } = self.ask.ask(Command::Advance { by_ms }).await?.answer else {
            return Err(Failure::new(500, 0, "The clock did not answer."));
        };
        let now = iso::date_in_milliseconds(now_ms);
        let body = Bytes::from(format!("{{\"now\":\"{now}\"}}"));
        Ok(self.usual.answer(StatusCode::OK, activity, 0, body))
    }
}

/// How far to move, from a body such as `{"advance":"PT1H"}`.
fn asked(body: &[u8]) -> Result<u64, Failure> {
    let wrong =
        || Failure::bad("The body is not of the form {\"advance\":\"PT1H\"}, which moves by an hour.");
    let Body { advance } = serde_json::from_slice(body).map_err(|_| wrong())?;
    iso::duration(&advance).map(|span| span.0).ok_or_else(wrong)
}
