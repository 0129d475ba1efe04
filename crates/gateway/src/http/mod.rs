//! The HTTP door: health, metrics, the management API as the SDKs' administration clients use it (H-1 to H-80), and messages
//! (H-90 to H-99, in `message`).
//!
//! A request is authorized by its head before its body is read. Whatever the service can do and this door cannot is
//! answered 501 with words, never with something that looks like success.

mod atom;
mod clock;
mod description;
mod entity;
mod failure;
pub(crate) mod fuzzing;
mod heads;
mod message;
mod route;
mod subscription;
mod xml;

use crate::account::{Account, Accounts};
use crate::amqp::Unfinished;
use crate::ask::Ask;
use crate::auth::sas::{self, Shown};
use crate::auth::{Demand, Denied, Development, Failures, Grant, Right, UnixSeconds};
use crate::head::{HOST_ONCE, named_host, names_host_once};
use crate::head_timer::HeadTimer;
use crate::health::health;
use crate::iso::{WallTime, date_in_seconds};
use crate::limits::*;
use crate::listen::Peer;
use crate::metrics::{self, Meters};
use crate::names::Names;
use crate::namespaces::{Namespace, Namespaces};
use crate::stream::line_ends::{self, LineEnds};
use crate::stream::prefixed::Prefixed;
use crate::stream::through::Overheard;
use atom::{Page, Site};
use broker::{Answer, Command, RequestId, Task};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use failure::Failure;
use heads::{Heads, Respelled, Spelled, Spelling};
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, IF_MATCH};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use message::MessageRequest;
use message::body::Payload;
use route::{Address, Needs, Paging, Route};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Parameters of an address that its answer may repeat (K-29).
const REPEATED_PARAMETERS: [&str; 4] = ["api-version", "enrich", "$skip", "$top"];

const ENTRY: &str = "application/atom+xml;type=entry;charset=utf-8";
const FEED: &str = "application/atom+xml;type=feed;charset=utf-8";
const ERROR: &str = "application/xml; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json; charset=utf-8";

/// What the door works with.
#[derive(Debug)]
pub struct Door<'a, A> {
    pub ask: &'a A,
    /// For health and metrics, and moved with the time of the default namespace.
    pub items: Option<&'a items_engine::Handle>,
    pub namespaces: &'a Namespaces,
    /// By which programs on this machine call the server.
    pub names: &'a Names,
    pub meters: &'a Meters,
    pub failures: &'a Failures,
    /// What all connections hold of unfinished messages.
    pub unfinished: &'a Arc<Unfinished>,
    /// What all connections hold on behalf of their peers.
    pub accounts: &'a Arc<Accounts>,
    /// Names this run of the server in tracking ids.
    pub node: &'a str,
    /// Whether clients with the right Manage may move the time of their namespace.
    pub has_test_clock: bool,
    /// Gives tokens to programs on this machine, if it was asked for.
    pub development: Option<&'a Development>,
}

/// Serves one connection until the peer leaves or `stopping` ends; a request that is being answered is answered.
pub async fn serve<S, A>(
    stream: S,
    first: BytesMut,
    peer: Peer,
    door: Door<'_, A>,
    stopping: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Ask,
{
    let (heads, (stop, is_stopping)) = (Heads::default(), watch::channel(false));
    let line_ends = LineEnds::default();
    let service = service_fn(|request| async {
        let (spelling, stopping) = (heads.take(), is_stopping.clone());
        let manner = Manner { spelling, has_wrong_lines: line_ends.is_next_wrong(), stopping };
        let mut response = door.answer(request, &peer, manner).await;
        heads.expect(response.extensions_mut().remove::<Spelled>());
        Ok::<_, Infallible>(response)
    });
    let stream = Overheard::new(Prefixed::new(first, stream), |read: &[u8]| {
        line_ends.add(read);
        heads.add(read);
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(HeadTimer::default())
        .header_read_timeout(HTTP_HEAD_TIMEOUT)
        .max_buf_size(HTTP_HEAD_BYTES)
        .max_headers(HTTP_HEADERS)
        .serve_connection(TokioIo::new(Respelled::new(stream, heads.clone())), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping => {
            connection.as_mut().graceful_shutdown();
            stop.send_replace(true);
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(address = %peer.address, %error, "HTTP connection failed");
    }
}

fn check_head(head: &Parts, manner: &Manner) -> Result<(), Failure> {
    if manner.has_wrong_lines {
        return Err(Failure::Bad(line_ends::WRONG.to_owned()));
    }
    if !names_host_once(head) {
        return Err(Failure::Bad(HOST_ONCE.to_owned()));
    }
    Ok(())
}

/// What the connection knows of a request beside its head.
struct Manner {
    spelling: Spelling,
    /// A line ends without a carriage return, or the end of the body is hidden.
    has_wrong_lines: bool,
    /// Becomes true when the server stops.
    stopping: watch::Receiver<bool>,
}

/// A success, before it becomes a response.
struct Success {
    status: StatusCode,
    content_type: &'static str,
    body: String,
}

impl Success {
    fn entry(status: StatusCode, described: &impl atom::Describe, site: &Site) -> Success {
        Success { status, content_type: ENTRY, body: atom::entry(described, site) }
    }

    /// A page of a list. One more than asked for tells that there is a next page.
    fn feed<D: atom::Describe>(
        title: &str,
        path: &str,
        mut described: Vec<D>,
        paging: Paging,
        site: &Site,
    ) -> Success {
        // A page of no entries has no next page: a client that followed it would follow it for ever.
        let has_more = paging.top > 0 && described.len() > paging.top;
        described.truncate(paging.top);
        let page = Page { skip: paging.skip, top: paging.top, has_more, now: WallTime::now() };
        let body = atom::feed(title, path, &described, page, site);
        Success { status: StatusCode::OK, content_type: FEED, body }
    }

    /// H-11.
    fn deleted() -> Success {
        Success { status: StatusCode::OK, content_type: ENTRY, body: String::new() }
    }
}

/// A request whose sender is not known yet, and what is known around it.
struct Asking<'a> {
    head: &'a Parts,
    address: &'a Address,
    site: &'a Site,
    namespace: &'a Namespace,
    peer: &'a Peer,
    /// It comes from this machine, and from no web page.
    is_loopback: bool,
}

/// A request whose sender may make it.
struct Call<'a> {
    method: &'a Method,
    headers: &'a HeaderMap,
    /// What is asked for, without slashes at its ends.
    path: &'a str,
    site: &'a Site,
    namespace: &'a Namespace,
    grant: Grant,
    is_loopback: bool,
    body: Bytes,
}

impl Call<'_> {
    /// Whether what is there shall be changed; without it, something new shall be made (H-12). There are no tags to match,
    /// only the star is let this far.
    fn is_update(&self) -> bool {
        self.headers.contains_key(IF_MATCH)
    }
}

impl<A: Ask> Door<'_, A> {
    async fn answer<B>(&self, request: Request<B>, peer: &Peer, manner: Manner) -> Response<Payload>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let (head, body) = request.into_parts();
        let has_authorization = head.headers.contains_key(AUTHORIZATION);
        let host = named_host(&head).unwrap_or("localhost").to_owned();
        let address = check_head(&head, &manner)
            .and_then(|()| Address::read(&head.method, &head.uri, has_authorization));
        let answered = match address {
            Err(failure) => Err((failure, String::new())),
            Ok(address) => {
                let namespace = self.namespaces.of_host(&host, peer.server_name.as_deref());
                let site = Site {
                    scheme: if peer.is_encrypted { "https" } else { "http" },
                    host: host.clone(),
                    api_version: address.api_version,
                    named_version: address.named_version.clone(),
                    asked: asked(&head.uri),
                    namespace: namespace.name.to_string(),
                };
                let is_loopback = peer.is_loopback() && !self.names.is_asked_by_page(&head);
                let (head, address, site, namespace) = (&head, &address, &site, &namespace);
                let asking = Asking { head, address, site, namespace, peer, is_loopback };
                let answered = self.answer_at(&asking, body, manner).await;
                answered.map_err(|failure| (failure, address.path.clone()))
            }
        };
        let (method, address) = (&head.method, peer.address);
        match answered {
            Ok(response) => {
                // Of the address only its path: the rest may hold a secret.
                let (status, path) = (response.status().as_u16(), head.uri.path());
                tracing::debug!(%address, %method, path, status, "answered");
                response
            }
            Err((Failure::Denied(why @ Denied::InvalidSignature), path)) => {
                sleep(self.failures.failed(peer.address.ip(), Instant::now())).await;
                failed(&why.into(), self.node, &host, &path)
            }
            Err((failure, path)) => failed(&failure, self.node, &host, &path),
        }
    }

    async fn answer_at<B>(
        &self,
        asking: &Asking<'_>,
        body: B,
        manner: Manner,
    ) -> Result<Response<Payload>, Failure>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let &Asking { head, address, site, namespace, is_loopback, .. } = asking;
        let right = match address.route.needs(&head.method) {
            Needs::Right(right) => right,
            needs => return self.without_token(asking, needs).map(response),
        };
        let grant = self.authorize(asking, right).await?;
        match address.route.methods() {
            [] => return Err(Failure::NoSuchAddress),
            _ if address.route == Route::Clock && !self.has_test_clock => return Err(Failure::NoSuchAddress),
            methods if !methods.contains(&head.method) => return Err(Failure::MethodNotAllowed),
            _ => check_tags(head)?,
        }
        if let Route::Send { .. } | Route::Receive { .. } | Route::Locked { .. } = address.route {
            let Manner { spelling, stopping, .. } = &manner;
            let (grant, stopping) = (&grant, stopping.clone());
            let asked = MessageRequest { head, spelling, site, namespace, grant, is_loopback, stopping };
            return self.message(&address.route, &asked, body).await;
        }
        let is_clock = address.route == Route::Clock;
        let has_body = head.method == Method::PUT || is_clock && head.method == Method::POST;
        // Held until the request is answered.
        let mut account = Account::of(self.accounts, &grant.policy());
        let body = if has_body { collected(body, &mut account).await? } else { Bytes::new() };
        let (method, headers, path) = (&head.method, &head.headers, address.path.as_str());
        let call = Call { method, headers, path, site, namespace, grant, is_loopback, body };
        let success = match &address.route {
            Route::Queues(paging) => self.queues(&call, *paging).await,
            Route::Topics(paging) => self.topics(&call, *paging).await,
            Route::Entity => self.entity(&call).await,
            Route::NamespaceInfo => self.namespace_info(&call),
            Route::Subscriptions { topic, paging } => self.subscriptions(&call, topic, *paging).await,
            Route::Subscription { topic, name } => self.subscription(&call, topic, name).await,
            Route::Rules { topic, subscription, paging } => {
                self.rules(&call, topic, subscription, *paging).await
            }
            Route::Rule { topic, subscription, name } => self.rule(&call, topic, subscription, name).await,
            Route::Clock => self.clock(&call).await,
            Route::Send { .. } | Route::Receive { .. } | Route::Locked { .. } => Err(Failure::Internal),
            Route::Nothing
            | Route::Root
            | Route::Token { .. }
            | Route::Health
            | Route::Metrics
            | Route::WebSocket => Err(Failure::NoSuchAddress),
        };
        success.map(response)
    }

    /// Answers what nobody needs a token for.
    fn without_token(&self, asking: &Asking<'_>, needs: Needs) -> Result<Success, Failure> {
        match &asking.address.route {
            _ if needs == Needs::Loopback && !asking.is_loopback => Err(Denied::MissingToken.into()),
            Route::Metrics => Ok(self.metrics()),
            Route::Token { .. } if asking.head.method != Method::GET => Err(Failure::MethodNotAllowed),
            Route::Token { resource } => self.token(resource.as_deref()),
            Route::Root => Ok(root(asking.site)),
            // A request like this does not ask to upgrade.
            Route::WebSocket => Err(Failure::UpgradeRequired),
            _ => Ok(self.health()),
        }
    }

    /// What the token of a request grants, if that is the right that is needed.
    async fn authorize(&self, asking: &Asking<'_>, right: Right) -> Result<Grant, Failure> {
        let &Asking { head, address, namespace, peer, is_loopback, .. } = asking;
        let authorization = head.headers.get(AUTHORIZATION).ok_or(Denied::MissingToken)?;
        // A signature counts on what was signed, a role on an entity.
        let grant =
            self.verify(authorization, namespace, &address.path, address.entity(), is_loopback).await?;
        let path = if grant.is_by_role() { address.entity() } else { &address.path };
        grant.check(path, right, UnixSeconds::now())?;
        peer.proved(&grant.policy(), grant.standing()).map_err(|full| Failure::Busy(full.to_string()))?;
        Ok(grant)
    }

    /// Verifies the token of a header: by the namespace's policies, else by those of the entity at `path` and of
    /// those around it (H-102); a bearer token by the roles that count on `entity`.
    async fn verify(
        &self,
        header: &HeaderValue,
        namespace: &Namespace,
        path: &str,
        entity: &str,
        is_loopback: bool,
    ) -> Result<Grant, Failure> {
        let header = header.to_str().map_err(|_| Denied::MalformedToken)?;
        let now = UnixSeconds::now();
        let token = match sas::in_header(header)? {
            Shown::Signature(token) => token,
            Shown::Bearer(token) => return Ok(namespace.guard.bearer(token, entity, now)?),
        };
        match namespace.guard.signature(token, is_loopback, now) {
            Err(Denied::InvalidSignature) => {}
            decided => return Ok(decided?),
        }
        let (id, task) = (namespace.id, Box::new(Task::Access { path: path.into() }));
        match self.ask.ask(|request| Command::Manage { request, namespace: id, task }).await?? {
            Answer::Access(holders) => Ok(namespace.guard.entity_signature(token, &holders, now)?),
            _ => Err(Failure::Internal),
        }
    }

    async fn manage(&self, call: &Call<'_>, task: Task) -> Result<Answer, Failure> {
        let (namespace, task) = (call.namespace.id, Box::new(task));
        self.question(call, |request| Command::Manage { request, namespace, task }).await
    }

    /// Asks for somebody who may. The route was checked before; this is the command that came of it.
    async fn question(
        &self,
        call: &Call<'_>,
        make: impl FnOnce(RequestId) -> Command + Clone + Send,
    ) -> Result<Answer, Failure> {
        let command = make.clone()(RequestId::default());
        Demand::of(&command).check_one(&call.grant, UnixSeconds::now())?;
        Ok(self.ask.ask(make).await??)
    }

    fn namespace_info(&self, call: &Call<'_>) -> Result<Success, Failure> {
        if call.method != Method::GET {
            return Err(Failure::MethodNotAllowed);
        }
        let body = atom::namespace_entry(call.namespace.created, call.namespace.tier, call.site);
        Ok(Success { status: StatusCode::OK, content_type: ENTRY, body })
    }

    /// What keeps messages or items that are sent now from being stored.
    fn problems(&self) -> Vec<String> {
        let of_items =
            self.items.map(|items| items.condition().problems(std::time::Instant::now())).unwrap_or_default();
        let of_bus = self.ask.problems();
        let of_bus = of_bus.iter().map(ToString::to_string);
        of_bus.chain(of_items.iter().map(ToString::to_string)).collect()
    }

    // H-122
    fn health(&self) -> Success {
        let (status, mut body) = health(&self.problems());
        if let Some(ahead) = self.ask.large_gap_ms() {
            body["clockAheadMilliseconds"] = ahead.into();
        }
        Success { status, content_type: JSON, body: body.to_string() }
    }

    /// A token of the development issuer, for the resource that is asked for as managed identities do.
    fn token(&self, resource: Option<&str>) -> Result<Success, Failure> {
        let development = self.development.ok_or(Failure::NoSuchAddress)?;
        let resource = resource.ok_or_else(|| {
            Failure::Bad("The parameter `resource` is missing: what the token is for.".into())
        })?;
        let body = development.answer(resource, UnixSeconds::now()).ok_or(Failure::Internal)?;
        Ok(Success { status: StatusCode::OK, content_type: JSON, body })
    }

    fn metrics(&self) -> Success {
        let items = self.items.map(|items| items.activity().into());
        let body = metrics::page(self.ask.totals(), items, self.meters, self.problems().is_empty());
        Success { status: StatusCode::OK, content_type: PROMETHEUS, body }
    }
}

/// Path and query as they came, of which only what belongs to the API is repeated: a client may have put a secret there.
fn asked(uri: &hyper::Uri) -> String {
    let is_known = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        REPEATED_PARAMETERS.iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    let pairs: Vec<&str> = uri.query().unwrap_or_default().split('&').filter(is_known).collect();
    let mark = if pairs.is_empty() { "" } else { "?" };
    format!("{}{mark}{}", uri.path(), pairs.join("&"))
}

fn root(site: &Site) -> Success {
    Success { status: StatusCode::OK, content_type: FEED, body: atom::root(WallTime::now(), site) }
}

/// Reads a body whole, if it is short and does not take for ever, and if there is room for it.
async fn collected<B>(body: B, account: &mut Account) -> Result<Bytes, Failure>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    // A body that is announced too long need not be waited for.
    if body.size_hint().lower() > HTTP_BODY_BYTES as u64 {
        return Err(Failure::BodyTooLarge(HTTP_BODY_BYTES));
    }
    let mut body = pin!(body);
    let read = async {
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(mut data) = frame.map_err(|_| Failure::BodyBroken)?.into_data() else { continue };
            let length = whole.len() + data.remaining();
            if length > HTTP_BODY_BYTES {
                return Err(Failure::BodyTooLarge(HTTP_BODY_BYTES));
            }
            account.take(2 * length).map_err(|full| Failure::Busy(full.to_string()))?;
            whole.put(data.copy_to_bytes(data.remaining()));
        }
        Ok(whole.freeze())
    };
    timeout(HTTP_BODY_TIMEOUT, read).await.unwrap_or(Err(Failure::BodyTooSlow))
}

/// What is there matches the star and nothing else: no entity has a tag.
fn check_tags(head: &Parts) -> Result<(), Failure> {
    let mut tags = head.headers.get_all(IF_MATCH).iter();
    if tags.all(|tag| tag.to_str().is_ok_and(|tag| tag.trim().trim_matches('"') == "*")) {
        Ok(())
    } else {
        Err(Failure::PreconditionFailed)
    }
}

fn response(success: Success) -> Response<Payload> {
    let mut response = Response::new(Payload::from(success.body));
    *response.status_mut() = success.status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(success.content_type));
    response
}

fn failed(failure: &Failure, node: &str, host: &str, path: &str) -> Response<Payload> {
    let tracking = format!("{}_{node}", uuid::Uuid::new_v4());
    tracing::info!(tracking, status = failure.status().as_u16(), path, why = failure.logged(), "refused");
    // For the operator who looks for a fault: what the client was told, whatever it had sent.
    tracing::debug!(tracking, why = %failure, "the client was told");
    let body = failure.body(&tracking, host, path, &date_in_seconds(WallTime::now().0));
    response(Success { status: failure.status(), content_type: ERROR, body })
}

#[cfg(test)]
pub(crate) mod tests;
