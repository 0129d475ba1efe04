//! Claims: a client puts a token on `$cbs` for each entity it wants to use, and is told whether it may.

use super::address;
use super::connection::ConnectionTask;
use super::link::{Kind, Link};
use super::management;
use crate::auth::sas::{self, Shown};
use crate::auth::{Denied, Grant, Scope};
use crate::limits::{
    CBS_REQUEST_VALUES, CLAIM_COST, CONNECTION_CLAIMS, QUESTION_COST, REPLIES_WAITING_BYTES,
    REQUEST_ID_BYTES, STRANGER_REPLIES_BYTES,
};
use amqp::{LinkKey, SessionKey};
use broker::{Answer, Command, Refusal, RequestId};
use journal::Place;
use message::codec::{
    begin_list, begin_map, end_compound, write_descriptor, write_int, write_null, write_string,
};
use message::sections::{Sections, section};
use message::{Reader, Value};

pub(super) const LONG_ID: &str =
    "The message id of a request must be a number, a UUID, or a text or bytes of 512 at most.";

/// What waits for an answer of the broker.
#[derive(Debug)]
pub(super) enum Question {
    /// A claim that is proved: does its entity exist?
    Claim { reply: Reply, grant: Grant },
    /// A token that no policy of the namespace has signed: which rules does the entity at this path have?
    Signature { reply: Reply, token: Box<str>, path: Box<str> },
    /// Claims by rules of this entity: are those still there?
    Review { entity: Box<str> },
    /// A request to a management node.
    Management(Box<management::Asked>),
}

impl Question {
    pub(super) fn held_bytes(&self) -> usize {
        let text = match self {
            Question::Signature { token, path, .. } => token.len() + path.len(),
            Question::Review { entity } => entity.len(),
            Question::Claim { .. } | Question::Management(_) => 0,
        };
        let answer = match self {
            Question::Management(asked) => asked.answer_bytes(),
            _ => 0,
        };
        // Each is known to the broker too.
        QUESTION_COST + 2 * text + REQUEST_ID_BYTES + answer
    }
}

/// Where an answer to the client goes.
#[derive(Debug)]
pub(super) struct Reply {
    correlation: Value,
    link: LinkKey,
}

/// What a request says.
pub(super) struct Request {
    pub(super) message_id: Value,
    pub(super) reply_to: Option<String>,
    pub(super) application: Value,
    pub(super) body: Value,
}

/// What is wrong with a claim, as a status.
struct Status {
    code: i32,
    text: String,
}

impl<S> ConnectionTask<S> {
    pub(super) fn put_token(&mut self, key: LinkKey, payload: &[u8]) {
        let Some(mut request) = read_request(payload, CBS_REQUEST_VALUES) else {
            tracing::debug!("a request to $cbs cannot be read");
            return;
        };
        let session = self.links.get(&key.0).map(|link| link.session);
        let Some(reply_link) = self.reply_link(request.reply_to.as_deref(), session) else {
            tracing::debug!("a request to $cbs names no link to answer on");
            return;
        };
        let (correlation, is_plain) = match ConnectionTask::<S>::correlation(&mut request) {
            Ok(correlation) => (correlation, true),
            Err(none) => (none, false),
        };
        let reply = Reply { correlation, link: reply_link };
        if !is_plain {
            return self.reply(&reply, &Status { code: 400, text: LONG_ID.into() });
        }
        let (token, is_signature, claimed) = match self.read_claim(&request) {
            Ok(claim) => claim,
            Err(status) => return self.reply(&reply, &status),
        };
        let (guard, now) = (&self.namespace.guard, self.state.now());
        let signed = match is_signature {
            true => guard.signature(&token, self.peer.is_loopback(), now),
            false => guard.bearer(&token, &claimed, now),
        };
        let path: Box<str> = address::authorizing_entity(&claimed).into();
        match signed.and_then(|grant| covering(grant, &claimed)) {
            Ok(grant) if path.is_empty() => {
                self.admit(grant);
                self.reply(&reply, &accepted());
            }
            // A client that may not use an entity is not told whether it exists, and one that may is told at once.
            Ok(grant) => {
                let request = self.question(Question::Claim { reply, grant });
                let namespace = self.namespace.id;
                self.batch.commands.push(Command::DescribeEntity { request, namespace, path });
            }
            Err(Denied::InvalidSignature) if !path.is_empty() && is_signature => {
                let task = Box::new(broker::Task::Access { path });
                let request = self.question(Question::Signature { reply, token, path: claimed });
                self.batch.commands.push(Command::Manage { request, namespace: self.namespace.id, task });
            }
            Err(why) => self.refuse_token(&reply, why),
        }
    }

    fn refuse_token(&mut self, reply: &Reply, why: Denied) {
        if why == Denied::InvalidSignature {
            self.wrong_key();
        }
        self.reply(reply, &denied(why));
    }

    /// Remembers a question until its answer comes.
    pub(super) fn question(&mut self, question: Question) -> RequestId {
        let number = self.next_question;
        self.next_question = self.next_question.wrapping_add(1);
        self.questions_bytes += question.held_bytes();
        self.questions.insert(number, question);
        self.engine.request(number)
    }

    /// The token of a request, whether it is a shared access signature, and the path that it is put for.
    fn read_claim(&self, request: &Request) -> Result<(Box<str>, bool, Box<str>), Status> {
        let text = |key: &str| request.application.get(key).and_then(Value::as_str);
        if text("operation") != Some("put-token") {
            return Err(Status { code: 400, text: "The operation must be put-token.".into() });
        }
        let audience = text("name").ok_or_else(|| denied(Denied::InvalidAudience))?;
        // The token says what it is; Python calls a signature a `jwt`.
        let token = request.body.as_str().ok_or_else(|| denied(Denied::MalformedToken))?;
        let (token, is_signature) = match sas::in_header(token).map_err(denied)? {
            Shown::Signature(token) => (token, true),
            Shown::Bearer(token) => (token, false),
        };
        if self.claims.len() >= CONNECTION_CLAIMS || !self.account.has_room(CLAIM_COST) {
            let text = format!("This connection holds {} claims already.", self.claims.len());
            return Err(Status { code: 401, text });
        }
        Ok((token.into(), is_signature, address::claimed(&address::path(audience)).into()))
    }

    /// The broker has answered a question of this connection.
    pub(super) fn answered(&mut self, number: u32, answer: Result<Answer, Refusal>, places: Vec<Vec<Place>>) {
        let question = self.questions.remove(&number);
        self.questions_bytes -= question.as_ref().map_or(0, Question::held_bytes);
        if self.questions.is_empty() {
            self.questions.shrink_to(0);
        }
        match question {
            Some(Question::Management(asked)) => self.managed(*asked, answer, places),
            Some(Question::Claim { reply, grant }) => {
                let status = match &answer {
                    Ok(_) => {
                        self.admit(grant);
                        accepted()
                    }
                    Err(Refusal::EntityNotFound(path)) => {
                        Status { code: 404, text: self.origin.not_found(path) }
                    }
                    Err(other) => Status { code: 500, text: other.to_string() },
                };
                self.reply(&reply, &status);
            }
            Some(Question::Signature { reply, token, path }) => {
                let signed = match &answer {
                    Ok(Answer::Access(holders)) => {
                        self.namespace.guard.entity_signature(&token, holders, self.state.now())
                    }
                    _ => Err(Denied::InvalidSignature),
                };
                match signed.and_then(|grant| covering(grant, &path)) {
                    Ok(grant) => {
                        self.admit(grant);
                        self.reply(&reply, &accepted());
                    }
                    Err(why) => self.refuse_token(&reply, why),
                }
            }
            Some(Question::Review { entity }) => {
                if let Ok(Answer::Access(holders)) = &answer {
                    self.reviewed(&entity, holders);
                }
            }
            None => {}
        }
    }

    /// Where an answer goes: the link that the request names by its address or its name, else the one of the same
    /// session.
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

    /// What the answer to a request repeats.
    pub(super) fn correlation(request: &mut Request) -> Result<Value, Value> {
        let id = std::mem::take(&mut request.message_id);
        let is_plain = match &id {
            Value::String(text) | Value::Symbol(text) => text.len() <= REQUEST_ID_BYTES,
            Value::Binary(bytes) => bytes.len() <= REQUEST_ID_BYTES,
            Value::Null | Value::Uuid(_) => true,
            other => other.as_integer().is_some() || matches!(other, Value::Ulong(_)),
        };
        if is_plain { Ok(id) } else { Err(Value::Null) }
    }

    fn reply(&mut self, to: &Reply, status: &Status) {
        let tracked;
        let status = match status.code {
            ..400 => status,
            code => {
                let text = self.origin.tracked(&status.text, address::CBS);
                tracked = Status { code, text };
                &tracked
            }
        };
        let (key, reply) = (to.link, encode_reply(&to.correlation, status));
        if let Some(Link { kind: Kind::CbsReplies { waiting, .. }, .. }) = self.links.get_mut(&key.0) {
            self.replies_bytes += reply.len();
            waiting.push_back(reply);
            self.send_replies(key);
        }
        self.end_untaken(key);
    }

    /// Ends a link whose client lets too many answers wait.
    pub(super) fn end_untaken(&mut self, key: LinkKey) {
        let most = if self.has_claim { REPLIES_WAITING_BYTES } else { STRANGER_REPLIES_BYTES };
        let waiting = match self.links.get(&key.0).map(|link| &link.kind) {
            Some(Kind::CbsReplies { waiting, .. }) => waiting.len(),
            Some(Kind::ManagementReplies(replies)) => replies.waiting(),
            _ => 0,
        };
        // One is always held, or the largest could never be given.
        if waiting > 1 && (self.replies_bytes > most || !self.has_room_for(0)) {
            let text = "The link gave no credit for the answers to its requests.";
            let path = self.links.get(&key.0).map_or("", |link| link.kind.path());
            let error = self.origin.error(amqp::condition::RESOURCE_LIMIT_EXCEEDED, text, path);
            self.end_greedy(key, &error);
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
                amqp::Sent::Delivery(_) | amqp::Sent::NotAttached => self.replies_bytes -= reply.len(),
            }
        }
        waiting.shrink_to(0);
    }
}

/// A claim must cover what it is put for.
fn covering(grant: Grant, path: &str) -> Result<Grant, Denied> {
    match grant.reaches(&Scope::of_path(path)) {
        true => Ok(grant),
        false => Err(Denied::InvalidAudience.because("it is for another entity than it was put for")),
    }
}

fn denied(why: Denied) -> Status {
    Status { code: 401, text: why.to_string() }
}

fn accepted() -> Status {
    Status { code: 202, text: "Accepted".into() }
}

/// Reads a request of at most so many values, nested ones included.
pub(super) fn read_request(payload: &[u8], mut values: u32) -> Option<Request> {
    let payload = &*message::normal::in_order(payload).ok()?;
    let sections = Sections::scan(payload).ok()?;
    let (mut message_id, mut reply_to) = (Value::Null, None);
    if let Some(properties) = sections.properties.value(payload) {
        let Value::List(fields) = Reader::new(properties).value_within(&mut values).ok()? else {
            return None;
        };
        let mut fields = fields.into_iter();
        message_id = fields.next().unwrap_or_default();
        // message-id, user-id, to, subject, reply-to
        reply_to = fields.nth(3).and_then(|value| value.as_str().map(str::to_owned));
    }
    let application = match sections.application_properties.value(payload) {
        Some(properties) => Reader::new(properties).value_within(&mut values).ok()?,
        None => Value::Null,
    };
    let body = message::sections::sections(payload)
        .flatten()
        .find(|each| each.code == section::VALUE)
        .and_then(|each| Reader::new(each.span.value(payload)?).value_within(&mut values).ok())
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
    fn a_question_counts_its_texts_twice_for_the_broker_has_them_too() {
        // P7
        let signature = |token: usize, path: usize| Question::Signature {
            reply: Reply { correlation: Value::Null, link: LinkKey(0) },
            token: "t".repeat(token).into(),
            path: "p".repeat(path).into(),
        };
        let fixed = QUESTION_COST + REQUEST_ID_BYTES;
        assert_eq!(signature(0, 0).held_bytes(), fixed);
        assert_eq!(signature(700, 20).held_bytes(), fixed + 2 * 720);
        assert_eq!(Question::Review { entity: "orders".into() }.held_bytes(), fixed + 2 * 6);
    }

    #[test]
    fn an_answer_repeats_an_id_of_every_plain_type_and_none_that_is_too_long() {
        //
        let correlated = |message_id: Value| {
            let mut request =
                Request { message_id, reply_to: None, application: Value::Null, body: Value::Null };
            ConnectionTask::<tokio::io::DuplexStream>::correlation(&mut request)
        };
        let text = |length: usize| Value::from("i".repeat(length).as_str());
        let plain = [text(REQUEST_ID_BYTES), Value::Symbol("s".into()), Value::Binary(vec![7; 3])];
        for id in plain.into_iter().chain([Value::Uuid([7; 16]), Value::Null, Value::Ulong(u64::MAX)]) {
            assert_eq!(correlated(id.clone()), Ok(id));
        }
        for id in [text(REQUEST_ID_BYTES + 1), Value::Binary(vec![7; REQUEST_ID_BYTES + 1])] {
            assert_eq!(correlated(id), Err(Value::Null), "it could not be given back for less than it costs");
        }
        assert_eq!(correlated(Value::List(vec![])), Err(Value::Null));
    }

    #[test]
    fn a_reply_repeats_the_message_id_in_its_own_type() {
        //
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
