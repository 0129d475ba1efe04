//! The door of the items: the Cosmos DB API over HTTP/1.1 and HTTP/2, as its clients use it in gateway mode.
//!
//! A request is authorized by its head before its body is read. It becomes one [`items::Command`]; the answer is shown with every header
//! that clients look at. The door decides nothing about items. It takes a path apart itself: what is signed is made of the
//! path's segments (P-16), so they are needed before anything could be routed.

mod account;
mod activity;
mod address;
mod body;
mod clock;
mod connection;
mod failure;
mod form;
pub mod fuzzing;
mod headers;
mod holding;
mod keys;
mod percent;
mod question;
mod resource;
mod response;
mod signature;

pub use keys::{Access, Keys, NotBase64, WELL_KNOWN_KEY, sign};

use crate::account::Accounts;
use crate::auth::{Failures, UnixSeconds};
use crate::head::{HOST_ONCE, named_host, names_host_once};
use crate::health::health;
use crate::limits::*;
use crate::listen::{Doors, Peer};
use crate::metrics::Meters;
use crate::names::Names;
use crate::places::Standing;
use crate::stream::line_ends;
use activity::Activities;
use address::Address;
use body::Bodies;
use bytes::{Bytes, BytesMut};
use failure::Failure;
use headers::Headers;
use holding::{Holding, Payload};
use hyper::header::{ETAG, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use items::{Answer, Command, Refusal, Reply};
use question::{Question, question};
use resource::{Resource, Verb};
use response::{Asked, Usual};
use signature::{Claim, Denied};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// What the head of a request says that was let in.
struct Admitted<'r> {
    headers: Headers<'r>,
    resource: Resource,
    verb: Verb,
    access: Access,
}

/// What answers commands: the engine, or in tests something smaller.
pub trait Ask: Clone + std::fmt::Debug + Send + Sync + 'static {
    fn ask(&self, command: Command) -> impl Future<Output = Result<Reply, Refusal>> + Send;

    /// What keeps the items from being served as they should, in words; none when they are well.
    fn problems(&self) -> Vec<String>;
}

impl Ask for items_engine::Handle {
    async fn ask(&self, command: Command) -> Result<Reply, Refusal> {
        items_engine::Handle::ask(self, command).await
    }

    fn problems(&self) -> Vec<String> {
        self.condition().problems(std::time::Instant::now()).iter().map(ToString::to_string).collect()
    }
}

/// How the door of the items behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The account's own name. Not `localhost`: JavaScript clients take that for a sign to read the account before every request.
    pub account: String,
    /// What clients are told to talk to; without it, what they called the server in their request.
    pub endpoint: Option<String>,
    /// How far the date of a signature may be off (P-19).
    pub skew: Duration,
    /// Whether clients with a key may move the items' time.
    pub has_test_clock: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            account: "otobus".to_owned(),
            endpoint: None,
            skew: ITEMS_CLOCK_SKEW,
            has_test_clock: false,
        }
    }
}

/// What every connection to the items works with.
#[derive(Debug)]
pub struct Door<A> {
    ask: A,
    keys: RwLock<Arc<Keys>>,
    settings: Settings,
    /// By which programs on this machine call the server.
    names: Names,
    failures: Failures,
    usual: Usual,
    activities: Activities,
    bodies: Bodies,
    /// What requests and answers hold.
    accounts: Arc<Accounts>,
    /// Those of the bus, so that one page has all connections.
    pub meters: Arc<Meters>,
    wall: fn() -> UnixSeconds,
    /// Becomes true when the server stops. Each connection that is served holds a receiver.
    stopping: watch::Sender<bool>,
}

impl<A: Ask> Door<A> {
    pub fn new(ask: A, keys: Keys, names: Names, settings: Settings) -> Door<A> {
        Door {
            ask,
            keys: RwLock::new(Arc::new(keys)),
            settings,
            names,
            failures: Failures::default(),
            usual: Usual::default(),
            activities: Activities::default(),
            bodies: Bodies::default(),
            accounts: Arc::default(),
            meters: Arc::default(),
            wall: UnixSeconds::now,
            stopping: watch::Sender::new(false),
        }
    }

    /// Puts other keys in their place, for requests from now on.
    pub fn replace_keys(&self, keys: Keys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// Asks every connection to finish what it does and end.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Ends when no connection is being served.
    pub async fn idle(&self) {
        self.stopping.closed().await;
    }

    fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Answers one request, whose head may have lines that somebody else sees otherwise.
    async fn answer<B>(&self, request: Request<B>, peer: &Peer, has_wrong_lines: bool) -> Response<Payload>
    where
        B: hyper::body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
    {
        let began = std::time::Instant::now();
        let (head, body) = request.into_parts();
        let activity = self.activities.of(&head.headers);
        let answered = match has_wrong_lines {
            true => Err(Failure::bad(line_ends::WRONG)),
            false => self.answer_to(&head, body, peer, &activity).await,
        };
        let mut response = match answered {
            Ok(mut response) => {
                response::located(&mut response, self.endpoint(&head, peer), head.uri.path());
                response
            }
            Err(failure) => {
                tracing::info!(
                    status = failure.status,
                    path = head.uri.path(),
                    why = failure.message,
                    "refused"
                );
                self.usual.failure(&failure, activity, head.uri.path())
            }
        };
        response::took(&mut response, began.elapsed());
        response
    }

    async fn answer_to<B>(
        &self,
        head: &Parts,
        body: B,
        peer: &Peer,
        activity: &HeaderValue,
    ) -> Result<Response<Payload>, Failure>
    where
        B: hyper::body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
    {
        if !names_host_once(head) {
            return Err(Failure::bad(HOST_ONCE));
        }
        if head.method == Method::GET && matches!(head.uri.path(), "/health" | "/ready") {
            return Ok(self.health(activity));
        }
        let Admitted { headers, resource, verb, access } = self.admitted(head, peer).await?;
        let mut holding = Holding::new(&self.accounts, access);
        let body = match head.method {
            Method::GET | Method::DELETE => Bytes::new(),
            _ => {
                let (body, _arrived) = self.bodies.whole(body).await?;
                // As it came, and as what is made of it: a question that waits for its turn, or what a write answers.
                holding.take(2 * body.len())?;
                body
            }
        };
        if resource == Resource::Clock {
            return self.clock(verb, &body, activity.clone()).await;
        }
        let asked = Asked {
            resource: &resource,
            activity: activity.clone(),
            wants_no_content: verb.writes() && headers.wants_no_content(),
            wants_quota: headers.flag("x-ms-documentdb-populatequotainfo"),
            wants_statistics: headers.flag("x-ms-documentdb-populatepartitionstatistics"),
            wants_metrics: headers.flag("x-ms-documentdb-populatequerymetrics"),
            batch_reads: match verb {
                Verb::Batch if headers.wants_no_content() => body::reads_of_batch(&body),
                _ => Vec::new(),
            },
        };
        let index_metrics = self.index_metrics(&resource, verb, headers, &body).await?;
        let mut response = self.shown(question(&resource, verb, headers, body)?, asked, head, peer).await?;
        if let Some(metrics) = index_metrics {
            response.headers_mut().insert(response::INDEX_METRICS, metrics);
        }
        let bytes = response.body().len();
        match verb.writes() {
            true => holding.hold(bytes),
            false => holding.take(bytes)?,
        }
        response.body_mut().charge(holding.into_account());
        Ok(response)
    }

    /// What a request asks for, if who sent it may ask that.
    async fn admitted<'r>(&self, head: &'r Parts, peer: &Peer) -> Result<Admitted<'r>, Failure> {
        let address = Address::of(&head.uri).map_err(|_| Failure::bad("The path cannot be read."))?;
        let headers = Headers::of(&head.headers);
        let access = self.verify(head, &address, peer).await?;
        let standing = if access == Access::ReadOnly { Standing::Other } else { Standing::Manages };
        peer.proved("items", standing).map_err(|full| Failure::new(503, 0, full.to_string()))?;
        let intended_rid = headers.text("x-ms-cosmos-intended-collection-rid");
        let resource = Resource::of(&address, intended_rid).ok_or_else(Failure::not_found)?;
        let verb = resource.verb(&head.method, headers)?;
        if verb.writes() && access == Access::ReadOnly {
            return Err(Denied::ReadOnly.into());
        }
        headers.check_consistency()?;
        Ok(Admitted { headers, resource, verb, access })
    }

    /// The answer to a question, as clients are shown it.
    async fn shown(
        &self,
        question: Question,
        asked: Asked<'_>,
        head: &Parts,
        peer: &Peer,
    ) -> Result<Response<Payload>, Failure> {
        Ok(match question {
            Question::Ask(command) => self.usual.reply(self.ask.ask(command).await?, asked),
            Question::Account => self.plain(
                account::document(&self.settings.account, &self.endpoint(head, peer)),
                &asked.activity,
            ),
            Question::Plan => self.plain(account::PLAN.to_owned(), &asked.activity),
            Question::Nothing { container } => {
                let reply = self.ask.ask(Command::ReadContainer { container, if_none_match: None }).await?;
                let rid = reply.place.map(|place| place.container_rid.to_string()).unwrap_or_default();
                let feed = response::feed(&rid, asked.resource.feed_member(), &[]);
                self.usual.answer(StatusCode::OK, asked.activity.clone(), reply.charge, feed)
            }
            Question::Ranges { container, if_none_match } => {
                let reply = self.ask.ask(Command::ReadRanges { container }).await?;
                self.ranges(reply, if_none_match.as_deref(), asked)
            }
        })
    }

    /// Verifies the signature. Each wrong one from an address makes the answer wait longer.
    async fn verify(&self, head: &Parts, address: &Address<'_>, peer: &Peer) -> Result<Access, Failure> {
        let headers = Headers::of(&head.headers);
        let is_here = peer.is_loopback() && !self.names.is_asked_by_page(head);
        let claim = Claim {
            method: head.method.as_str(),
            address,
            authorization: headers.text("authorization"),
            date: headers.text("x-ms-date"),
            plain_date: headers.text("date"),
        };
        let verified = signature::verify(&claim, &self.keys(), is_here, (self.wall)(), self.settings.skew);
        if let Err(Denied::WrongKey { .. }) = &verified {
            sleep(self.failures.failed(peer.address.ip(), Instant::now())).await;
        }
        Ok(verified?)
    }

    /// What clients shall talk to from now on: what they talked to just now, unless it is configured.
    fn endpoint(&self, head: &Parts, peer: &Peer) -> String {
        if let Some(endpoint) = &self.settings.endpoint {
            return endpoint.clone();
        }
        let scheme = if peer.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}/", named_host(head).unwrap_or("localhost:8081"))
    }

    fn plain(&self, body: String, activity: &HeaderValue) -> Response<Payload> {
        self.usual.answer(StatusCode::OK, activity.clone(), 100, body.into())
    }

    /// The ranges as a feed of one; 304 when the client knows them (P-44).
    fn ranges(&self, reply: Reply, if_none_match: Option<&str>, asked: Asked<'_>) -> Response<Payload> {
        let Reply { answer, charge, place } = reply;
        let (etag, values) = match answer {
            Answer::Found(range) => (range.etag, vec![range.body]),
            _ => (String::new(), Vec::new()),
        };
        let is_known = if_none_match.is_some_and(|known| known.trim_matches('"') == etag.trim_matches('"'));
        if is_known {
            return self.usual.reply(Reply { answer: Answer::NotModified { etag }, charge, place }, asked);
        }
        let parent_rid = place.as_ref().map(|place| place.container_rid.to_string()).unwrap_or_default();
        let page = items::Page { parent_rid, values, ..items::Page::default() };
        let mut response = self.usual.reply(Reply { answer: Answer::Page(page), charge, place }, asked);
        if let Ok(etag) = HeaderValue::from_str(&etag) {
            response.headers_mut().insert(ETAG, etag);
        }
        response
    }

    /// What indexes a query uses, if it was asked for: base64 for the older header, else escaped JSON (12.2).
    async fn index_metrics(
        &self,
        resource: &Resource,
        verb: Verb,
        headers: Headers<'_>,
        body: &[u8],
    ) -> Result<Option<HeaderValue>, Failure> {
        use base64::Engine as _;
        let is_old = headers.flag("x-ms-cosmos-populateindexmetrics");
        let is_new = headers.flag("x-ms-cosmos-populateindexmetrics-v2");
        if verb != Verb::Query || !(is_old || is_new) || !matches!(resource, Resource::Items(_)) {
            return Ok(None);
        }
        let query = question::query(resource, headers, body)?;
        let Answer::Explanation(json) = self.ask.ask(Command::Explain(query)).await?.answer else {
            return Ok(None);
        };
        let text = if is_old {
            base64::engine::general_purpose::STANDARD.encode(&json)
        } else {
            percent_encoding::percent_encode(&json, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        Ok(HeaderValue::from_maybe_shared(Bytes::from(text)).ok())
    }

    fn health(&self, activity: &HeaderValue) -> Response<Payload> {
        let (status, body) = health(&self.ask.problems());
        self.usual.answer(status, activity.clone(), 0, body.to_string().into())
    }
}

impl<A: Ask> Doors for Door<A> {
    const SPEAKS_HTTP2: bool = true;

    async fn amqp<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        _: S,
        _: BytesMut,
        peer: Peer,
    ) {
        tracing::debug!(address = %peer.address, "closing a connection that speaks AMQP to the items");
    }

    async fn http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        stream: S,
        first: BytesMut,
        peer: Peer,
    ) {
        let stopping = self.stopping.subscribe();
        let _counted = Meters::open(&self.meters.items_connections);
        connection::serve(stream, first, peer, Arc::clone(&self), stopping).await;
    }
}

#[cfg(test)]
mod tests;
