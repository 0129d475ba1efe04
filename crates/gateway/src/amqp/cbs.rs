//! Claims: a client puts a token on `$cbs` for each entity it wants to use, and is told whether it may (client notes 2).

use super::address;
use super::connection::Task;
use super::link::{Kind, Link, REPLIES_WAITING};
use crate::auth::{Denied, Grant, Scope, UnixSeconds, sas};
use amqp::{LinkKey, SessionKey};
use broker::{Answer, Command, Refusal};
use message::codec::{
    begin_list, begin_map, end_compound, write_descriptor, write_int, write_null, write_string,
};
use message::sections::{Sections, section};
use message::{Reader, Value};

/// Claims that one connection may hold. JavaScript puts two for each entity it uses.
const GRANTS: usize = 1_024;

/// A put-token that waits for the broker to say whether its entity exists.
#[derive(Debug)]
pub(super) struct Question {
    correlation: Value,
    reply_link: LinkKey,
    grant: Grant,
}

/// What a request says.
struct Request {
    message_id: Value,
    reply_to: Option<String>,
    application: Value,
    body: Value,
}

/// What is wrong with a claim, as a status.
struct Status {
    code: i32,
    text: String,
}

impl<S> Task<S> {
    pub(super) fn put_token(&mut self, key: LinkKey, payload: &[u8]) {
        let Some(request) = read_request(payload) else {
            tracing::debug!("a request to $cbs cannot be read");
            return;
        };
        let session = self.links.get(&key.0).map(|link| link.session);
        let Some(reply_link) = self.reply_link(request.reply_to.as_deref(), session) else {
            tracing::debug!("a request to $cbs names no link to answer on");
            return;
        };
        match self.check_claim(&request) {
            Err(status) => self.reply(reply_link, &request.message_id, &status),
            Ok((grant, path)) => {
                let path = address::authorizing_entity(&path);
                if path.is_empty() {
                    self.admit(grant);
                    return self.reply(reply_link, &request.message_id, &accepted());
                }
                // Whoever may not use an entity is not told whether it exists, and who may is told at once.
                let number = self.next_question;
                self.next_question = self.next_question.wrapping_add(1);
                let question = Question { correlation: request.message_id, reply_link, grant };
                self.questions.insert(number, question);
                self.batch.commands.push(Command::DescribeEntity {
                    request: self.engine.request(number),
                    namespace: self.namespace,
                    path: path.into(),
                });
            }
        }
    }

    /// Verifies the token; gives the claim and the path it is put for.
    fn check_claim(&self, request: &Request) -> Result<(Grant, String), Status> {
        let text = |key: &str| request.application.get(key).and_then(Value::as_str);
        if text("operation") != Some("put-token") {
            return Err(Status { code: 400, text: "The operation must be put-token.".into() });
        }
        let denied = |denied: Denied| Status { code: 401, text: denied.to_string() };
        let audience = text("name").ok_or_else(|| denied(Denied::InvalidAudience))?;
        // The token says what it is; Python calls a signature a `jwt`.
        let token = request.body.as_str().ok_or_else(|| denied(Denied::MalformedToken))?;
        let token = sas::in_header(token).map_err(denied)?;
        let grant =
            self.state.guard.signature(token, self.peer.is_loopback(), UnixSeconds::now()).map_err(denied)?;
        let path = address::path(audience);
        if !grant.scope.covers(&Scope::of_path(address::claimed(&path))) {
            return Err(denied(Denied::InvalidAudience));
        }
        if self.grants.len() >= GRANTS {
            return Err(Status {
                code: 401,
                text: format!("This connection holds {GRANTS} claims already."),
            });
        }
        Ok((grant, path))
    }

    /// The broker has said whether the entity of a claim exists.
    pub(super) fn answered(&mut self, number: u32, answer: &Result<Answer, Refusal>) {
        let Some(question) = self.questions.remove(&number) else { return };
        let status = match answer {
            Ok(_) => accepted(),
            Err(Refusal::EntityNotFound(path)) => Status { code: 404, text: self.origin.not_found(path) },
            Err(other) => Status { code: 500, text: other.to_string() },
        };
        if answer.is_ok() {
            self.admit(question.grant);
        }
        self.reply(question.reply_link, &question.correlation, &status);
    }

    /// Takes a claim in. A newer one of the same scope replaces the older whole.
    pub(super) fn admit(&mut self, grant: Grant) {
        self.grants.retain(|held| held.scope != grant.scope);
        self.grants.push(grant);
        self.peer.proved();
        self.machine.authenticated();
    }

    /// Where an answer goes: the link that the request names by its address or its name, else the one of the same
    /// session (client notes 2.1).
    fn reply_link(&self, reply_to: Option<&str>, session: Option<SessionKey>) -> Option<LinkKey> {
        let find = |fits: &dyn Fn(&Link, Option<&str>) -> bool| {
            self.links.iter().find_map(|(key, link)| match &link.kind {
                Kind::CbsReplies { address, .. } if fits(link, address.as_deref()) => Some(LinkKey(*key)),
                _ => None,
            })
        };
        reply_to
            .and_then(|reply_to| find(&|_, address| address == Some(reply_to)))
            .or_else(|| reply_to.and_then(|reply_to| find(&|link, _| link.name == reply_to)))
            .or_else(|| find(&|link, _| Some(link.session) == session))
    }

    fn reply(&mut self, key: LinkKey, correlation: &Value, status: &Status) {
        let reply = encode_reply(correlation, status);
        if let Some(Link { kind: Kind::CbsReplies { waiting, .. }, .. }) = self.links.get_mut(&key.0) {
            if waiting.len() < REPLIES_WAITING {
                waiting.push_back(reply);
            }
            self.send_replies(key);
        }
    }

    /// Sends what waits for credit. Java grants it one request at a time.
    pub(super) fn send_replies(&mut self, key: LinkKey) {
        let Some(Link { kind: Kind::CbsReplies { waiting, .. }, .. }) = self.links.get_mut(&key.0) else {
            return;
        };
        while let Some(reply) = waiting.pop_front() {
            let tag = self.next_question.to_be_bytes();
            match self.machine.send(key, &tag, true, 0, |out| out.extend_from_slice(&reply)) {
                amqp::Sent::NoCredit | amqp::Sent::NoWindow => return waiting.push_front(reply),
                amqp::Sent::Delivery(_) | amqp::Sent::NotAttached => {}
            }
        }
    }
}

fn accepted() -> Status {
    Status { code: 202, text: "Accepted".into() }
}

fn read_request(payload: &[u8]) -> Option<Request> {
    let sections = Sections::scan(payload).ok()?;
    let (mut message_id, mut reply_to) = (Value::Null, None);
    if let Some(properties) = sections.properties.value(payload) {
        let Value::List(fields) = Value::decode(properties).ok()? else { return None };
        let mut fields = fields.into_iter();
        message_id = fields.next().unwrap_or_default();
        // message-id, user-id, to, subject, reply-to
        reply_to = fields.nth(3).and_then(|value| value.as_str().map(str::to_owned));
    }
    let application = match sections.application_properties.value(payload) {
        Some(properties) => Value::decode(properties).ok()?,
        None => Value::Null,
    };
    let body = message::sections::sections(payload)
        .flatten()
        .find(|each| each.code == section::VALUE)
        .and_then(|each| Reader::new(each.span.value(payload)?).value().ok())
        .unwrap_or_default();
    Some(Request { message_id, reply_to, application, body })
}

fn encode_reply(correlation: &Value, status: &Status) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + status.text.len());
    write_descriptor(&mut out, section::PROPERTIES.into());
    let open = begin_list(&mut out);
    // message-id, user-id, to, subject, reply-to come before correlation-id.
    (0..5).for_each(|_| write_null(&mut out));
    correlation.encode(&mut out);
    end_compound(&mut out, open, 6);
    write_descriptor(&mut out, section::APPLICATION_PROPERTIES.into());
    let open = begin_map(&mut out);
    write_string(&mut out, "status-code");
    write_int(&mut out, status.code);
    write_string(&mut out, "status-description");
    write_string(&mut out, &status.text);
    end_compound(&mut out, open, 4);
    write_descriptor(&mut out, section::VALUE.into());
    write_null(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_repeats_the_message_id_in_its_own_type() {
        // AMQP 2.2, 7.1
        for id in [Value::Uuid([7; 16]), Value::String("id".into()), Value::Ulong(9)] {
            let reply = encode_reply(&id, &accepted());
            let sections = Sections::scan(&reply).unwrap();
            let Value::List(fields) = Value::decode(sections.properties.value(&reply).unwrap()).unwrap()
            else {
                panic!("properties are a list");
            };
            assert_eq!(fields[5], id);
            let application = Value::decode(sections.application_properties.value(&reply).unwrap()).unwrap();
            assert_eq!(application.get("status-code"), Some(&Value::Int(202)));
        }
    }
}
