//! Messages over HTTP: send, receive, settle and renew (the runtime API, H-90 to H-99).
//!
//! A message is the same whichever door it came in by (S-4): what HTTP says in `BrokerProperties` and headers stands in the
//! sections of AMQP when it is stored, and the other way round when it is received. Each request has a connection of its own to
//! the engine, and a link while it sends or receives. When the request ends, or its client goes away, both are gone: a
//! message that was locked for it stays locked until its time is over (S-94), and no other is taken for it.

mod batch;
pub(super) mod body;
mod broker_properties;
mod dates;
pub(super) mod fuzzing;
mod outline;
mod read;
mod receive;
mod scalar;
mod send;
mod settle;
mod user_properties;

#[cfg(test)]
mod tests;

use super::Door;
use super::atom::Site;
use super::failure::Failure;
use super::heads::Spelling;
use super::route::Route;
use crate::ask::Ask;
use crate::auth::Grant;
use crate::namespaces::Namespace;
use body::Payload;
use broker::{Command, LinkId, Refusal};
use engine::{Batch, Connection, Handle, Outgoing, Stopped};
use hyper::body::Body;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use std::collections::VecDeque;
use tokio::sync::watch;

/// A request about messages whose sender may make it.
pub(super) struct MessageRequest<'a> {
    pub(super) head: &'a Parts,
    pub(super) spelling: &'a Spelling,
    pub(super) site: &'a Site,
    pub(super) namespace: &'a Namespace,
    pub(super) grant: &'a Grant,
    pub(super) is_loopback: bool,
    /// Becomes true when the server stops: nobody waits any longer.
    pub(super) stopping: watch::Receiver<bool>,
}

impl<A: Ask> Door<'_, A> {
    /// Does what the route asks for; every other route is not for here.
    pub(super) async fn message<B>(
        &self,
        route: &Route,
        asked: &MessageRequest<'_>,
        body: B,
    ) -> Result<Response<Payload>, Failure>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        match route {
            Route::Send { entity } => self.send(asked, entity, body).await,
            Route::Receive { entity, wait } => self.receive(asked, entity, *wait).await,
            Route::Locked { entity, message, token } => self.locked(asked, entity, message, token).await,
            _ => Err(Failure::NoSuchAddress),
        }
    }
}

/// A connection to the engine with at most one link.
struct Line {
    connection: Connection,
    arrived: VecDeque<Outgoing>,
}

impl Line {
    fn open(engine: &Handle) -> Result<Line, Failure> {
        if engine.is_closed() {
            return Err(Stopped.into());
        }
        Ok(Line { connection: engine.connect(), arrived: VecDeque::new() })
    }

    fn link(&self) -> LinkId {
        self.connection.link(0)
    }

    fn ask(&self, commands: Vec<Command>) {
        self.connection.submit(Batch { commands, ..Batch::default() });
    }

    /// What the engine says next. Nothing is lost if this is given up.
    async fn next(&mut self) -> Outgoing {
        loop {
            if let Some(outgoing) = self.arrived.pop_front() {
                return outgoing;
            }
            let mut taken = Vec::new();
            self.connection.outbox().take(&mut taken);
            self.arrived.extend(taken);
            if self.arrived.is_empty() {
                self.connection.outbox().arrived().await;
            }
        }
    }
}

/// A refusal of what has to do with messages: here, an entity that is not there is gone.
fn refused(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::EntityNotFound(path) => Failure::Gone(path),
        other => Failure::Refused(other),
    }
}

/// An answer without a body.
fn empty(status: StatusCode) -> Response<Payload> {
    let mut response = Response::new(Payload::default());
    *response.status_mut() = status;
    response
}
