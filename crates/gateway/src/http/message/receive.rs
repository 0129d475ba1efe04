//! Receiving: the next message of an entity, locked or for good (HX-2.3, HX-2.4).
//!
//! A receiver of AMQP that wants one message and waits for it: a link with a credit of one. When the time is over what is
//! left of the credit is taken back by a drain, which either brings a message or says that there is none, so that none is
//! lost in between. A client that goes away while it waits takes its link along.

use super::super::failure::Failure;
use super::super::heads::Spelled;
use super::super::{Door, ENTRY};
use super::body::{Parts, Payload};
use super::dates::http_date;
use super::{Line, MessageRequest, broker_properties, empty, refused, user_properties};
use crate::amqp::{Unshown, uuid_of_token};
use crate::ask::Ask;
use crate::auth::{self, Denied, Grant, Holder, Right, UnixSeconds};
use crate::limits::CLAIM_REVIEW;
use broker::{Answer, Command, LockToken, NamespaceId, Notice, ReceiveMode, Refusal, Task};
use bytes::Bytes;
use engine::{Handle, Outgoing, Sent, StoredMessage};
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use hyper::{Method, Response, StatusCode};
use message::pieces::Rest;
use message::sections::Sections;
use message::{SystemProperty, View};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// The other headers of a received message, as the service writes them.
const STANDARD_NAMES: [&str; 5] =
    ["BrokerProperties", "Content-Type", "Date", "Location", "Transfer-Encoding"];

const BROKER_PROPERTIES: HeaderName = HeaderName::from_static("brokerproperties");

/// What cannot stand for itself in the path of an address.
const NOT_IN_PATH: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>').add(b'?').add(b'`');

impl<A: Ask> Door<'_, A> {
    pub(super) async fn receive(
        &self,
        asked: &MessageRequest<'_>,
        entity: &str,
        wait: Duration,
    ) -> Result<Response<Payload>, Failure> {
        let (mode, status) = match asked.head.method {
            Method::POST => (ReceiveMode::PeekLock, StatusCode::CREATED),
            Method::DELETE => (ReceiveMode::ReceiveAndDelete, StatusCode::OK),
            _ => return Err(Failure::MethodNotAllowed),
        };
        let engine = self.ask.engine();
        let line = Line::open(engine)?;
        let namespace = asked.namespace.id;
        let lapsed = self.lapsed(asked, entity);
        let taken = take(line, (namespace, entity), mode, wait, asked.stopping.clone(), lapsed).await?;
        let Some(sent) = taken else { return Ok(empty(StatusCode::NO_CONTENT)) };
        let found = first_part(engine, &sent).await.ok_or(Refusal::Unreadable)?;
        let mut response = shown(engine, &sent, &found).map_err(|error| {
            // It was whole when it was taken in, and its checksum is right: this is a bug, and a loud one.
            tracing::error!(%error, sequence = sent.delivery.sequence.0, "a stored message cannot be shown");
            Failure::Internal
        })?;
        *response.status_mut() = status;
        if mode == ReceiveMode::PeekLock {
            let site = asked.site;
            let path = utf8_percent_encode(entity, NOT_IN_PATH);
            let (number, token) = (sent.delivery.number.0, token_text(sent.delivery.token));
            let location = format!("{}://{}/{path}/messages/{number}/{token}", site.scheme, site.host);
            put(response.headers_mut(), LOCATION, &location);
        }
        Ok(response)
    }
}

impl<A: Ask> Door<'_, A> {
    /// Ends when the waiting client may not receive any more: its token has run out, or its policy or right is gone.
    async fn lapsed(&self, asked: &MessageRequest<'_>, entity: &str) -> Failure {
        loop {
            sleep(CLAIM_REVIEW).await;
            if let Err(why) = self.is_still_allowed(asked, entity).await {
                return why;
            }
        }
    }

    async fn is_still_allowed(&self, asked: &MessageRequest<'_>, entity: &str) -> Result<(), Failure> {
        let grant = asked.grant;
        let rights = match &grant.proof.holder {
            Holder::Namespace => {
                let namespace = self.namespaces.of_id(asked.namespace.id).ok_or(Denied::InvalidSignature)?;
                namespace.guard.rights_of(&grant.proof, asked.is_loopback)
            }
            Holder::Issuer(name) => {
                let namespace = self.namespaces.of_id(asked.namespace.id).ok_or(Denied::InvalidSignature)?;
                namespace.guard.knows_issuer(name).then_some(grant.rights)
            }
            Holder::Entity(path) => {
                let (namespace, task) = (asked.namespace.id, Box::new(Task::Access { path: path.clone() }));
                let access = |request| Command::Manage { request, namespace, task };
                match self.ask.ask(access).await?? {
                    Answer::Access(holders) => {
                        let own = holders.iter().find(|holder| holder.entity.eq_ignore_ascii_case(path));
                        auth::entity_rights(&grant.proof, own.map_or(&[][..], |own| &own.rules))
                    }
                    _ => return Err(Failure::Internal),
                }
            }
        };
        let rights = rights.ok_or(Denied::InvalidSignature)?;
        Grant { rights, ..grant.clone() }.check(entity, Right::Listen, UnixSeconds::now())?;
        Ok(())
    }
}

/// A lock token as the SDKs show it.
pub(super) fn token_text(token: LockToken) -> String {
    uuid::Uuid::from_bytes(uuid_of_token(token)).to_string()
}

/// Takes the next message, if one comes in time.
async fn take(
    mut line: Line,
    (namespace, entity): (NamespaceId, &str),
    mode: ReceiveMode,
    wait: Duration,
    mut stopping: watch::Receiver<bool>,
    lapsed: impl Future<Output = Failure>,
) -> Result<Option<Sent>, Failure> {
    let link = line.link();
    let mut is_draining = wait.is_zero();
    line.ask(vec![
        Command::AttachReceiver { link, namespace, path: entity.into(), mode },
        Command::Credit { link, limit: 1, drain: is_draining },
    ]);
    let mut over = pin!(async {
        tokio::select! {
            () = sleep(wait) => None,
            _ = stopping.wait_for(|is_stopping| *is_stopping) => None,
            why = lapsed => Some(why),
        }
    });
    let mut denied = None;
    loop {
        tokio::select! {
            biased;
            outgoing = line.next() => match outgoing {
                Outgoing::Deliver(sent) => return Ok(Some(sent)),
                Outgoing::Notice(Notice::Drained { .. }) => return denied.map_or(Ok(None), Err),
                Outgoing::Notice(Notice::Detached { refusal, .. }) => return Err(refused(refusal)),
                Outgoing::Notice(Notice::Attached { .. }) => {}
                _ => return Err(Failure::Internal),
            },
            why = over.as_mut(), if !is_draining => {
                (is_draining, denied) = (true, why);
                line.ask(vec![Command::Credit { link, limit: 1, drain: true }]);
            }
        }
    }
}

/// The first part of a message, or all of it, and what was changed of it; `None` if that cannot be read.
pub(super) async fn first_part(engine: &Handle, sent: &Sent) -> Option<StoredMessage> {
    let mut found = Vec::new();
    let overlay = sent.delivery.stored_overlay().map(|stored| stored.body);
    let wanted = std::iter::once((sent.delivery.body, overlay)).filter(|_| sent.parts.is_empty());
    engine.cache().front(wanted, &mut found);
    if let Some(found) = found.pop() {
        return Some(found);
    }
    let place = sent.parts.first().unwrap_or(&sent.place);
    let places: Vec<_> = [place].into_iter().chain(sent.overlay.as_deref()).cloned().collect();
    let mut reading = engine.read(places, broker::limits::BODY_PART_BYTES as usize, false)?;
    reading.done().await;
    let mut read = reading.take()?.bodies.into_iter();
    let body = read.next()??;
    let overlay = if sent.overlay.is_some() { read.next()?? } else { Bytes::new() };
    Some(StoredMessage { body, overlay })
}

/// The message as HTTP has it.
fn shown(engine: &Handle, sent: &Sent, found: &StoredMessage) -> Result<Response<Payload>, Unshown> {
    let first = &found.body;
    let (delivery, is_whole) = (&sent.delivery, sent.parts.is_empty());
    let sections = if is_whole { Sections::scan(first)? } else { Sections::scan_front(first)? };
    let changes = delivery.changes(&found.overlay)?;
    let view = View { stored: first, sections: &sections, overlay: changes.as_deref() };
    let payload = if is_whole {
        let mut contents = Vec::new();
        let body = sections.body.bytes(first);
        Rest::after(&Sections::default()).contents(body, |bytes| contents.extend_from_slice(bytes))?;
        Payload::Message(Full::new(contents.into()))
    } else {
        let places = sent.parts[1..].iter().chain([&sent.place]).cloned().collect();
        let behind = &first[sections.scanned as usize..];
        Payload::Parts(Box::new(Parts::new(engine.clone(), Rest::after(&sections), behind, places)?))
    };
    let mut response = Response::new(payload);
    let headers = response.headers_mut();
    let content_type = view.system(SystemProperty::ContentType)?.and_then(|value| value.as_str());
    // H-94
    put(headers, CONTENT_TYPE, content_type.unwrap_or(ENTRY));
    put(headers, DATE, &http_date(delivery.enqueued));
    put(headers, BROKER_PROPERTIES, &broker_properties::shown(&view, delivery, &token_text(delivery.token))?);
    let mut names = Spelled(STANDARD_NAMES.map(str::to_owned).to_vec());
    user_properties::show(&view, headers, &mut names)?;
    response.extensions_mut().insert(names);
    Ok(response)
}

/// Sets a header to a text; a text that no header can have is left out.
fn put(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}
