//! The HTTP door: health, and the management API of queues as the SDKs' administration clients use it (H-1 to H-44).
//!
//! A request is authorized by its head before its body is read. Whatever the service can do and this door cannot is
//! answered 501 with words, never with something that looks like success.

mod atom;
mod description;
mod failure;
mod route;
mod xml;

use crate::ask::Ask;
use crate::auth::{Denied, Guard, Right, UnixSeconds, sas};
use crate::limits::*;
use crate::listen::Peer;
use crate::metrics::{self, Meters};
use crate::prefixed::Prefixed;
use atom::{Page, Site};
use broker::{Answer, Command, NamespaceId, Time};
use bytes::{Bytes, BytesMut};
use failure::Failure;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, IF_MATCH};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use route::{Address, Route};
use std::convert::Infallible;
use std::pin::pin;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

const ENTRY: &str = "application/atom+xml;type=entry;charset=utf-8";
const FEED: &str = "application/atom+xml;type=feed;charset=utf-8";
const ERROR: &str = "application/xml; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json; charset=utf-8";

/// What the door works with.
#[derive(Debug)]
pub struct Door<'a, A> {
    pub ask: &'a A,
    pub guard: &'a Guard,
    pub meters: &'a Meters,
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
    let service = service_fn(|request| async { Ok::<_, Infallible>(door.answer(request, &peer).await) });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HTTP_HEAD_TIMEOUT)
        .max_buf_size(HTTP_HEAD_BYTES)
        .max_headers(HTTP_HEADERS)
        .serve_connection(TokioIo::new(Prefixed::new(first, stream)), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(address = %peer.address, %error, "HTTP connection failed");
    }
}

/// A success, before it becomes a response.
struct Success {
    status: StatusCode,
    content_type: &'static str,
    body: String,
}

impl<A: Ask> Door<'_, A> {
    async fn answer<B>(&self, request: Request<B>, peer: &Peer) -> Response<Full<Bytes>>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let (head, body) = request.into_parts();
        let has_authorization = head.headers.contains_key(AUTHORIZATION);
        let host = host(&head.headers, &head.uri);
        let answered = match Address::read(&head.method, &head.uri, has_authorization) {
            Err(failure) => Err((failure, String::new())),
            Ok(address) => {
                let scheme = if peer.is_encrypted { "https" } else { "http" };
                let site = Site { scheme, host: host.clone(), api_version: address.api_version.clone() };
                let answered = self.answer_at(&head.method, &head.headers, &address, body, &site, peer).await;
                answered.map_err(|failure| (failure, address.path))
            }
        };
        match answered {
            Ok(success) => response(success),
            Err((failure, path)) => failed(&failure, &host, &path),
        }
    }

    async fn answer_at<B>(
        &self,
        method: &Method,
        headers: &HeaderMap,
        address: &Address,
        body: B,
        site: &Site,
        peer: &Peer,
    ) -> Result<Success, Failure>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        if address.route == Route::Health {
            return Ok(self.health());
        }
        // Numbers tell a stranger how busy we are: those of this machine may know, others must show a claim.
        if address.route == Route::Metrics && peer.is_loopback() {
            return Ok(self.metrics());
        }
        // Reading needs any right at all, changing needs Manage.
        let right = if *method == Method::GET { Right::Listen } else { Right::Manage };
        self.authorize(headers, &address.path, right, peer)?;
        match (&address.route, method) {
            (Route::Queues { skip, top }, &Method::GET) => self.list_queues(*skip, *top, site).await,
            (Route::Entity, &Method::GET) => self.show_entity(&address.path, site).await,
            (Route::Entity, &Method::DELETE) => self.delete_entity(&address.path).await,
            (Route::Entity, &Method::PUT) if headers.contains_key(IF_MATCH) => {
                Err(Failure::NotYet("Updating an entity"))
            }
            (Route::Entity, &Method::PUT) => {
                self.create_queue(&address.path, &collected(body).await?, site).await
            }
            (Route::Topics, &Method::GET) => Err(Failure::NotYet("A list of topics")),
            (Route::NamespaceInfo, &Method::GET) => Err(Failure::NotYet("Information about the namespace")),
            (Route::WebSocket, &Method::GET) => Err(Failure::NotYet("AMQP over WebSocket")),
            (Route::Subscriptions, _) => Err(Failure::NotYet("Managing subscriptions and rules")),
            (Route::Messages, _) => Err(Failure::NotYet("Sending and receiving over HTTP")),
            (Route::Nothing | Route::Health | Route::Metrics, _) => Err(Failure::NoSuchAddress),
            (
                Route::Queues { .. }
                | Route::Entity
                | Route::Topics
                | Route::NamespaceInfo
                | Route::WebSocket,
                _,
            ) => Err(Failure::MethodNotAllowed),
        }
    }

    fn authorize(&self, headers: &HeaderMap, path: &str, right: Right, peer: &Peer) -> Result<(), Denied> {
        let header = headers.get(AUTHORIZATION).ok_or(Denied::MissingToken)?;
        let header = header.to_str().map_err(|_| Denied::MalformedToken)?;
        let now = UnixSeconds::now();
        let grant = self.guard.signature(sas::in_header(header)?, peer.is_loopback(), now)?;
        grant.check(path, right, now)?;
        peer.proved();
        Ok(())
    }

    // H-122
    fn health(&self) -> Success {
        let (status, body) = if self.ask.is_healthy() {
            (StatusCode::OK, r#"{"status":"healthy","message":"Service is healthy."}"#)
        } else {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                r#"{"status":"unhealthy","message":"Service not available. Please try after some time."}"#,
            )
        };
        Success { status, content_type: JSON, body: body.to_owned() }
    }

    fn metrics(&self) -> Success {
        let body = metrics::page(self.ask.work(), self.meters, self.ask.is_healthy());
        Success { status: StatusCode::OK, content_type: PROMETHEUS, body }
    }

    async fn create_queue(&self, path: &str, body: &[u8], site: &Site) -> Result<Success, Failure> {
        let described = atom::description(body)?;
        match &*described.name {
            "QueueDescription" => {}
            "TopicDescription" => return Err(Failure::NotYet("Creating a topic")),
            _ => return Err(Failure::Bad("The body describes neither a queue nor a topic.".to_owned())),
        }
        let settings = Box::new(description::read_queue(&described)?);
        let namespace = NamespaceId::default();
        let make = |request| Command::CreateQueue { request, namespace, path: path.into(), settings };
        match self.ask.ask(make).await?? {
            Answer::Queue(queue) => Ok(Success {
                status: StatusCode::CREATED,
                content_type: ENTRY,
                body: atom::queue_entry(&queue, site),
            }),
            _ => Err(Failure::Internal),
        }
    }

    async fn show_entity(&self, path: &str, site: &Site) -> Result<Success, Failure> {
        let namespace = NamespaceId::default();
        let make = |request| Command::DescribeEntity { request, namespace, path: path.into() };
        match self.ask.ask(make).await?? {
            Answer::Queue(queue) => Ok(Success {
                status: StatusCode::OK,
                content_type: ENTRY,
                body: atom::queue_entry(&queue, site),
            }),
            _ => Err(Failure::Internal),
        }
    }

    async fn delete_entity(&self, path: &str) -> Result<Success, Failure> {
        let namespace = NamespaceId::default();
        let make = |request| Command::DeleteEntity { request, namespace, path: path.into() };
        match self.ask.ask(make).await?? {
            Answer::Deleted => {
                Ok(Success { status: StatusCode::OK, content_type: ENTRY, body: String::new() })
            }
            _ => Err(Failure::Internal),
        }
    }

    async fn list_queues(&self, skip: usize, top: usize, site: &Site) -> Result<Success, Failure> {
        let namespace = NamespaceId::default();
        // One more than asked for tells whether there is a next page.
        let make = |request| Command::ListQueues { request, namespace, skip, top: top + 1 };
        let Answer::Queues(mut queues) = self.ask.ask(make).await?? else { return Err(Failure::Internal) };
        let has_more = queues.len() > top;
        queues.truncate(top);
        let page = Page { skip, top, has_more, now: now() };
        Ok(Success {
            status: StatusCode::OK,
            content_type: FEED,
            body: atom::queue_feed(&queues, page, site),
        })
    }
}

/// Reads a body whole, if it is short and does not take for ever.
async fn collected<B>(body: B) -> Result<Bytes, Failure>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    match timeout(HTTP_BODY_TIMEOUT, Limited::new(body, HTTP_BODY_BYTES).collect()).await {
        Err(_) => Err(Failure::BodyTooSlow),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Failure::BodyTooLarge(HTTP_BODY_BYTES)),
        Ok(Err(_)) => Err(Failure::BodyBroken),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}

/// The host as the client named it, if that can stand in an address; it is repeated in answers.
fn host(headers: &HeaderMap, uri: &hyper::Uri) -> String {
    let named = uri.authority().map(|authority| authority.as_str());
    let named = named.or_else(|| headers.get(HOST).and_then(|host| host.to_str().ok()));
    let is_host = |text: &&str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
    };
    named.filter(is_host).unwrap_or("localhost").to_owned()
}

fn now() -> Time {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
}

fn response(success: Success) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(success.body)));
    *response.status_mut() = success.status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(success.content_type));
    response
}

fn failed(failure: &Failure, host: &str, path: &str) -> Response<Full<Bytes>> {
    let tracking = uuid::Uuid::new_v4().to_string();
    tracing::debug!(%tracking, status = failure.status().as_u16(), path, "refused: {failure}");
    let body = failure.body(&format!("{tracking}_G0"), host, path, &crate::iso::date_in_seconds(now()));
    response(Success { status: failure.status(), content_type: ERROR, body })
}

#[cfg(test)]
mod tests;
