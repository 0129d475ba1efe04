//! Sending: one message, whose body goes to the journal part by part as it arrives, or a batch, which is held until it is
//! whole (HX-2.1, HX-2.2).
//!
//! The link is attached before the body is read: who cannot send hears so at once, and the limit of the entity is known.
//! The answer comes when the message is stored. What arrives and cannot be stored yet keeps the socket from being read.

use super::super::Door;
use super::super::failure::Failure;
use super::body::Payload;
use super::outline::{Outline, begin_data, write_data};
use super::read::Pieces;
use super::user_properties::UserProperties;
use super::{Line, MessageRequest, batch, empty, refused};
use crate::account::Account;
use crate::amqp::{Arrived, Arriving, Unfinished, Unfit, add_message};
use crate::ask::Ask;
use crate::iso::WallTime;
use crate::limits::{BATCH_BYTES, UNMEASURED_BYTES, UNSTORED_BYTES};
use broker::{Command, NamespaceId, Notice, Refusal};
use engine::{Batch, Outgoing};
use hyper::body::Body;
use hyper::header::{CONTENT_TYPE, EXPECT, HeaderMap};
use hyper::{Response, StatusCode};
use message::batch::BATCH_FORMAT;
use message::sections::Sections;
use message::{Facts, FactsError};
use std::pin::pin;
use std::sync::Arc;

/// The content type of a batch (H-96).
const BATCH: &str = "application/vnd.microsoft.servicebus.json";

/// The message format of a message that is none of the batches that AMQP knows.
const PLAIN_FORMAT: u32 = 0;

impl<A: Ask> Door<'_, A> {
    pub(super) async fn send<B>(
        &self,
        asked: &MessageRequest<'_>,
        entity: &str,
        body: B,
    ) -> Result<Response<Payload>, Failure>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let body = pin!(body);
        let mut pieces = Pieces::new(body);
        let sent = self.send_pieces(asked, entity, &mut pieces).await;
        let is_slow = matches!(sent, Err(Failure::BodyTooSlow | Failure::BodyBroken));
        // A client that asked before it sends its body (Expect: 100-continue) has its answer now.
        let waits = asked.head.headers.contains_key(EXPECT);
        if sent.is_err() && !is_slow && !waits {
            pieces.forget().await;
        }
        sent.map(|()| empty(StatusCode::CREATED))
    }

    async fn send_pieces<B>(
        &self,
        asked: &MessageRequest<'_>,
        entity: &str,
        pieces: &mut Pieces<'_, B>,
    ) -> Result<(), Failure>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let headers = &asked.head.headers;
        let content_type = content_type(headers)?;
        let account = Account::of(self.accounts, &asked.grant.policy());
        let line = Line::open(self.ask.engine())?;
        let sender = Sender::attach(line, asked.namespace.id, entity, account).await?;
        if content_type.as_deref().is_some_and(is_batch) {
            sender.send_batch(self.unfinished, pieces).await
        } else {
            let mut outline = outline(headers)?;
            outline.content_type = content_type;
            outline.properties = UserProperties::of_headers(headers, asked.spelling)?;
            sender.send_one(&outline, self.unfinished, pieces).await
        }
    }
}

/// What the request says of its message in `BrokerProperties`.
fn outline(headers: &HeaderMap) -> Result<Outline, Failure> {
    match headers.get("brokerproperties") {
        None => Ok(Outline::default()),
        Some(header) => serde_json::from_slice(header.as_bytes())
            .map_err(|error| Failure::Bad(format!("BrokerProperties cannot be read: {error}."))),
    }
}

fn content_type(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let text = headers.get(CONTENT_TYPE).map(|value| value.to_str()).transpose();
    let text = text.map_err(|_| Failure::Bad("The Content-Type is not ASCII.".to_owned()))?;
    Ok(text.map(str::to_owned))
}

fn is_batch(content_type: &str) -> bool {
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(BATCH))
}

/// A link that may send.
struct Sender {
    line: Line,
    max_message_bytes: u64,
    /// Whether the broker looks for duplicates.
    wants_ids: bool,
    /// What is held of the message.
    account: Account,
}

impl Sender {
    async fn attach(
        mut line: Line,
        namespace: NamespaceId,
        entity: &str,
        account: Account,
    ) -> Result<Sender, Failure> {
        line.ask(vec![Command::AttachSender { link: line.link(), namespace, path: entity.into() }]);
        match line.next().await {
            Outgoing::Notice(Notice::Attached { max_message_bytes, wants_ids, .. }) => {
                Ok(Sender { line, max_message_bytes, wants_ids, account })
            }
            Outgoing::Notice(Notice::Detached { refusal, .. }) => Err(refused(refusal)),
            _ => Err(Failure::Internal),
        }
    }

    async fn send_one<B>(
        mut self,
        outline: &Outline,
        unfinished: &Arc<Unfinished>,
        pieces: &mut Pieces<'_, B>,
    ) -> Result<(), Failure>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let mut front = Vec::new();
        outline.write(&mut front, WallTime::now());
        check_front(&front)?;
        let (mut arriving, mut batch) = (Arriving::new(Arc::clone(unfinished)), Batch::default());
        match pieces.length() {
            Some(length) => {
                self.check_size(front.len() as u64 + length)?;
                begin_data(&mut front, u32::try_from(length).unwrap_or(u32::MAX));
                self.pass_on(&front, &mut arriving, &mut batch).await?;
                while let Some(piece) = pieces.next().await? {
                    self.pass_on(&piece, &mut arriving, &mut batch).await?;
                }
            }
            None => {
                let body = held(unfinished, pieces, &mut self.account).await?;
                let body = body.ok_or(Failure::LengthRequired(UNMEASURED_BYTES))?;
                self.check_size((front.len() + body.len()) as u64)?;
                write_data(&mut front, &body);
                self.pass_on(&front, &mut arriving, &mut batch).await?;
            }
        }
        match arriving.end(&mut batch) {
            Arrived::Whole(bytes) => {
                add_message(&mut batch, &bytes, self.wants_ids).map_err(bad_facts)?;
            }
            Arrived::InParts => {}
            Arrived::Unfit(why) => return Err(unfit(why)),
        }
        self.finish(batch).await
    }

    async fn send_batch<B>(
        mut self,
        unfinished: &Arc<Unfinished>,
        pieces: &mut Pieces<'_, B>,
    ) -> Result<(), Failure>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let json = held(unfinished, pieces, &mut self.account).await?;
        let json = json.ok_or(Failure::BodyTooLarge(BATCH_BYTES))?;
        let mut batch = Batch::default();
        batch::add(&mut batch, &json, self.wants_ids, WallTime::now())?;
        self.finish(batch).await
    }

    fn check_size(&self, size: u64) -> Result<(), Failure> {
        let limit = self.max_message_bytes;
        if size > limit { Err(Refusal::MessageTooLarge { size, limit }.into()) } else { Ok(()) }
    }

    /// Adds bytes of a message. Parts of a large one leave at once, and beyond what may be on its way this waits for the
    /// journal.
    async fn pass_on(
        &mut self,
        bytes: &[u8],
        arriving: &mut Arriving,
        batch: &mut Batch,
    ) -> Result<(), Failure> {
        let (link, connection) = (self.line.link(), &self.line.connection);
        hold(&mut self.account, arriving, bytes)?;
        arriving.add(bytes, PLAIN_FORMAT, batch, |batch, body| {
            batch.commands.push(Command::Part { link, body });
            connection.submit(std::mem::take(batch));
        });
        while arriving.unstored_bytes() > UNSTORED_BYTES {
            match self.line.next().await {
                Outgoing::Notice(Notice::PartTaken { length, .. }) => arriving.part_taken(length as usize),
                Outgoing::Notice(Notice::Detached { refusal, .. }) => return Err(refused(refusal)),
                _ => return Err(Failure::Internal),
            }
        }
        self.line.connection.room().await;
        Ok(())
    }

    /// Hands the delivery over and waits until it is stored.
    async fn finish(&mut self, mut batch: Batch) -> Result<(), Failure> {
        self.line.connection.room().await;
        batch.send(self.line.link(), 0, false, 0);
        self.line.connection.submit(batch);
        loop {
            match self.line.next().await {
                Outgoing::Accepted { .. } => return Ok(()),
                Outgoing::Notice(Notice::Rejected { refusal, .. } | Notice::Detached { refusal, .. }) => {
                    return Err(refused(refusal));
                }
                Outgoing::Notice(Notice::PartTaken { .. }) => {}
                _ => return Err(Failure::Internal),
            }
        }
    }
}

/// A body that must be whole before anything can be done with it; `None` if it is too long for that. It is counted as
/// unfinished batches of AMQP are.
async fn held<B>(
    unfinished: &Arc<Unfinished>,
    pieces: &mut Pieces<'_, B>,
    account: &mut Account,
) -> Result<Option<Vec<u8>>, Failure>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    let (mut arriving, mut batch) = (Arriving::new(Arc::clone(unfinished)), Batch::default());
    let mut length = 0;
    while let Some(piece) = pieces.next().await? {
        length += piece.len();
        if length > BATCH_BYTES {
            return Ok(None);
        }
        hold(account, &arriving, &piece)?;
        // Nothing of a batch is passed on before it is whole.
        arriving.add(&piece, BATCH_FORMAT, &mut batch, |_, _| {});
    }
    match arriving.end(&mut batch) {
        Arrived::Whole(bytes) => Ok(Some(bytes)),
        Arrived::InParts => Err(Failure::Internal),
        Arrived::Unfit(why) => Err(unfit(why)),
    }
}

/// Counts what is held of a message when this comes too, in vectors that grow by doubling.
fn hold(account: &mut Account, arriving: &Arriving, more: &[u8]) -> Result<(), Failure> {
    account.take(arriving.held_bytes() + 2 * more.len()).map_err(|full| Failure::Busy(full.to_string()))
}

/// Refuses properties that nobody may have before the body is read.
fn check_front(front: &[u8]) -> Result<(), Failure> {
    let sections = Sections::scan(front).map_err(|_| Failure::Internal)?;
    Facts::read(front, &sections).map(drop).map_err(bad_facts)
}

fn bad_facts(error: FactsError) -> Failure {
    Failure::Bad(format!("{error}."))
}

/// What is wrong with what was sent.
fn unfit(why: Unfit) -> Failure {
    match why {
        Unfit::Facts(error) => bad_facts(error),
        Unfit::BatchTooLarge => Failure::BodyTooLarge(BATCH_BYTES),
        Unfit::Busy => Failure::Busy(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Accounts;

    #[test]
    fn what_comes_is_counted_twice_beside_what_is_held_for_vectors_grow_by_doubling() {
        // P7
        let mut account = Account::new(Arc::new(Accounts::default()));
        let (mut arriving, mut batch) = (Arriving::new(Arc::default()), Batch::default());
        arriving.add(&[7; 500], BATCH_FORMAT, &mut batch, |_, _| {});
        hold(&mut account, &arriving, &[7; 1_000]).unwrap();
        assert_eq!(account.bytes(), arriving.held_bytes() + 2_000);
    }

    // H-96
    #[test]
    fn a_batch_is_known_by_its_content_type() {
        for yes in [BATCH, "Application/Vnd.Microsoft.ServiceBus.JSON ; charset=utf-8"] {
            assert!(is_batch(yes), "{yes}");
        }
        for no in ["application/json", "application/vnd.microsoft.servicebus.json+x", ""] {
            assert!(!is_batch(no), "{no}");
        }
    }
}
