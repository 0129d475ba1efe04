//! One connection's task: reads, decides nothing, writes. Everything it owns ends with it; dropping the engine's side
//! detaches its links there.

use super::buffer::Buffer;
use super::cbs::Question;
use super::condition::Origin;
use super::deliver::Service;
use super::intake::Frame;
use super::link::Link;
use super::management::PendingReplies;
use super::trail::Trail;
use crate::State;
use crate::account::Account;
use crate::auth::Claims;
use crate::limits::{
    CLAIM_TIMEOUT, COMMANDS_AT_ONCE, DISPOSITION_CHANGE_BYTES, EFFECT_COST, FAILURE_SILENCE_MOST, IDLE_LOOK,
    INPUT_BYTES, KEPT_BUSY_OUTPUT_BYTES, KEPT_OUTPUT_BYTES, LAST_OUTPUT_TIMEOUT, LOW_MEMORY_INPUT_BYTES,
    LOW_MEMORY_OUTPUT_BYTES, OPEN_QUESTIONS, OUTPUT_BYTES, QUESTIONS_BYTES, STRANGER_INPUT_BYTES,
    STRANGER_QUESTIONS_BYTES, UNREAD_EFFECTS, UNSTORED_BYTES,
};
use crate::listen::Peer;
use crate::namespaces::Namespace;
use amqp::{Config, Connection, Event, LinkKey, SaslCode};
use broker::ids::IdMap;
use bytes::BytesMut;
use engine::{Batch, Outgoing};
use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Mechanisms offered. .NET knows only the first; every other client takes the second.
const MECHANISMS: &[&str] = &["MSSBCBS", "ANONYMOUS", "PLAIN"];

#[derive(Debug)]
pub(super) struct ConnectionTask<S> {
    stream: S,
    pub(super) state: Arc<State>,
    pub(super) peer: Peer,
    pub(super) machine: Connection,
    pub(super) engine: engine::Connection,
    pub(super) namespace: Arc<Namespace>,
    /// The version of the namespaces when the claims were last looked at.
    pub(super) version: u64,
    pub(super) origin: Origin,
    pub(super) links: IdMap<u32, Link>,
    pub(super) claims: Claims,
    /// What is held for this connection. All of it is in [`ConnectionTask::held_bytes`].
    pub(super) account: Account,
    /// A claim was accepted once.
    pub(super) has_claim: bool,
    /// When the claims are looked at again.
    pub(super) review_at: Option<Instant>,
    pub(super) questions: IdMap<u32, Question>,
    pub(super) next_question: u32,
    /// What the questions hold, and the answers that the client has not taken.
    pub(super) questions_bytes: usize,
    pub(super) replies_bytes: usize,
    /// Messages that wait in the queues of their links.
    pub(super) waiting_deliveries: usize,
    /// Links that were ended because too much is held.
    pub(super) greedy_links: usize,
    /// How much output there may be before nothing is added to it: less while memory is short. Of the last [`Allowance`].
    pub(super) output_most: usize,
    /// Something whole may be left in the input, because the connection had to wait.
    is_held_up: bool,
    /// Commands of the read that is being understood.
    pub(super) batch: Batch,
    pub(super) input: Buffer,
    /// Effects that were taken from the outbox and are not yet in the output.
    pub(super) pending: VecDeque<Outgoing>,
    pub(super) service: Service,
    pub(super) pending_replies: PendingReplies,
    /// Receivers that wait for a session, and until when.
    pub(super) session_waits: BTreeSet<(Instant, LinkKey)>,
    /// Links that the client has detached and may still settle deliveries of, and until when.
    pub(super) leaving: BTreeSet<(Instant, LinkKey)>,
    /// Links that the client receives on.
    pub(super) receivers: u64,
    /// Transactions that were declared before a claim was accepted.
    pub(super) stranger_declares: usize,
    /// Parts of large messages that were handed over and are not stored yet.
    pub(super) unstored_bytes: usize,
    /// Commands that were handed over since others had their turn on this thread.
    handed_over: usize,
    trail: Trail,
    /// Bytes of the output that the socket has taken.
    written: usize,
    needs_flush: bool,
    /// The connection is closed but for its last output.
    is_ending: bool,
    /// Our close has been given; the client has yet to answer it.
    pub(super) has_parted: bool,
    /// When the machine closed.
    ended: Option<Instant>,
    started: Instant,
    /// Wrong keys were shown: nothing is read or said before this.
    silent_until: Option<Instant>,
}

/// How much is read and written at a time.
struct Allowance {
    /// Bytes to be read at most; `None` while the peer must wait before it may say more.
    read_most: Option<usize>,
    /// Encoded bytes beyond which no run or part is added to the output.
    output_most: usize,
}

/// What the socket has done.
enum Io {
    Read(usize),
    Wrote,
    Failed,
}

impl<S> ConnectionTask<S> {
    pub(super) fn new(stream: S, first: BytesMut, peer: Peer, state: Arc<State>) -> ConnectionTask<S> {
        let config = Config { mechanisms: MECHANISMS, ..Config::default() };
        let version = state.namespaces.version();
        let namespace = state.namespaces.of_host("", peer.server_name.as_deref());
        let origin = Origin { node: state.node.clone(), host: "localhost".into() };
        let account = Account::new(Arc::clone(&state.accounts));
        ConnectionTask {
            stream,
            peer,
            machine: Connection::new(config, 0),
            engine: state.engine.connect(),
            state,
            namespace,
            version,
            origin,
            links: IdMap::default(),
            claims: Claims::default(),
            account,
            has_claim: false,
            review_at: None,
            questions: IdMap::default(),
            next_question: 0,
            questions_bytes: 0,
            replies_bytes: 0,
            waiting_deliveries: 0,
            greedy_links: 0,
            output_most: OUTPUT_BYTES,
            is_held_up: false,
            batch: Batch::default(),
            input: Buffer::new(&first),
            pending: VecDeque::new(),
            service: Service::default(),
            pending_replies: PendingReplies::default(),
            session_waits: BTreeSet::new(),
            leaving: BTreeSet::new(),
            receivers: 0,
            stranger_declares: 0,
            unstored_bytes: 0,
            handed_over: 0,
            trail: Trail::default(),
            written: 0,
            needs_flush: false,
            is_ending: false,
            has_parted: false,
            ended: None,
            started: Instant::now(),
            silent_until: None,
        }
    }

    /// A key was wrong: the answer waits, the longer the more of them come from that address.
    pub(super) fn wrong_key(&mut self) {
        let now = Instant::now();
        let delay = self.state.failures.failed(self.peer.address.ip(), now);
        if !delay.is_zero() {
            let until = self.silent_until.unwrap_or(now) + delay;
            self.silent_until = Some(until.min(now + FAILURE_SILENCE_MOST));
        }
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Hands the commands so far to the engine.
    pub(super) fn submit(&mut self) {
        if !self.batch.is_empty() {
            let mut batch = std::mem::take(&mut self.batch);
            // Room that was made for bodies and found none does not wait with the commands.
            if batch.bodies.is_empty() {
                self.batch.bodies = std::mem::take(&mut batch.bodies);
            }
            self.handed_over += batch.commands.len();
            self.engine.submit(batch);
        }
    }

    /// Everything that is held for this connection, in bytes, but for what was handed over to the engine, which counts it.
    fn held_bytes(&self) -> usize {
        self.input.held_bytes()
            + self.machine.held_bytes()
            + self.claims.held_bytes()
            + self.questions_bytes
            + self.replies_bytes
            + self.batch.bodies.capacity()
            + (self.pending.capacity() + self.engine.outbox().waiting() + self.waiting_deliveries)
                * EFFECT_COST
    }

    /// Whether so much more may be held for this connection.
    pub(super) fn has_room_for(&mut self, more_bytes: usize) -> bool {
        self.account.hold(self.held_bytes().saturating_sub(self.pending_replies.large_bytes()));
        self.account.has_room(more_bytes)
    }

    /// Understands what was read, as far as it is whole.
    fn understand(&mut self) {
        // Whatever is asked with a key that is gone is asked too late, even if the next look at the claims is not yet due.
        if self.version != self.state.namespaces.version() {
            self.review();
        }
        let mut input = std::mem::take(&mut self.input);
        let unread = input.unread();
        // A stranger sends no messages.
        if self.has_claim {
            self.batch.bodies.reserve(unread.len());
        }
        let mut rest = unread;
        let now = self.now();
        let mut has_room = false;
        self.is_held_up = false;
        while let Some(event) = self.machine.next(&mut rest, now) {
            has_room |=
                matches!(event, Event::Window { .. } | Event::Flow { .. } | Event::Disposition { .. });
            self.event(event);
            // What is handed over is counted, and then there may be no room for what comes behind it.
            if self.batch.commands.len() >= COMMANDS_AT_ONCE
                || self.batch.extra_bytes >= DISPOSITION_CHANGE_BYTES
            {
                self.submit();
            }
            if !self.may_understand() {
                self.is_held_up = true;
                break;
            }
        }
        let consumed = unread.len() - rest.len();
        if tracing::enabled!(tracing::Level::TRACE) {
            self.trail.read(self.peer.address, &unread[..consumed]);
        }
        input.consume(consumed);
        self.input = input;
        if has_room {
            self.service.unblock();
            self.pending_replies.unblock();
            self.serve();
            self.serve_management();
        }
        self.submit();
    }

    fn event(&mut self, event: Event<'_>) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.note(&event);
        }
        match event {
            Event::Transfer {
                link,
                delivery_id,
                format,
                settled,
                state,
                payload,
                first,
                more,
                aborted,
                ..
            } => {
                if let Some(state) = state {
                    self.note_transaction(link, state);
                }
                let frame = Frame { delivery_id, format, settled, payload, first, more, aborted };
                self.transfer(link, frame);
            }
            Event::Unheard { link, state } => self.spoil_unheard(link, &state),
            Event::Disposition { session, first, last, settled, state } => {
                self.disposition(session, first, last, settled, state);
            }
            Event::Flow { link, drain, .. } => self.flow(link, drain),
            Event::Window { .. } => {}
            Event::Attach { link, session, attach, replaced } => {
                self.make_way(&attach.name, replaced);
                self.attach(link, session, &attach);
            }
            Event::Leaving { link } => self.begin_leaving(link),
            Event::TooLarge { link, delivery_id, settled, state } => {
                if let Some(state @ amqp::State::Transactional { .. }) = state {
                    self.note_transaction(link, state);
                }
                self.too_large(link, delivery_id, settled);
            }
            Event::Detach { link, .. } => self.forget(link),
            Event::End { links, .. } => links.into_iter().for_each(|link| self.forget(link)),
            Event::SaslInit { mechanism, initial_response, hostname } => {
                if let Some(host) = hostname {
                    self.enter(host);
                }
                let code = self.authenticate(mechanism, initial_response);
                self.machine.sasl_outcome(code);
            }
            Event::Open { hostname, .. } => {
                if let Some(host) = hostname {
                    self.enter(&host);
                    let host = host.split_once(':').map_or(&*host, |(host, _)| host);
                    self.origin.host = host.to_lowercase();
                }
            }
            Event::Close { error } => {
                let address = self.peer.address;
                match error {
                    Some(error) => {
                        tracing::debug!(%address, condition = %error.condition, "the client closed with an error");
                    }
                    None => tracing::debug!(%address, "the client closed"),
                }
            }
            Event::Closed { reason } => {
                let (address, why) = (self.peer.address, reason.description.unwrap_or_default());
                tracing::debug!(%address, condition = %reason.condition, why, "connection closed");
            }
        }
    }

    /// Goes to the namespace of a host. What was proved to one namespace counts in no other.
    fn enter(&mut self, host: &str) {
        let namespace = self.state.namespaces.of_host(host, self.peer.server_name.as_deref());
        if namespace.id != self.namespace.id && self.has_claim {
            return self.part("The connection was authenticated for another namespace.");
        }
        self.namespace = namespace;
    }

    fn authenticate(&mut self, mechanism: &str, response: Option<&[u8]>) -> SaslCode {
        match mechanism {
            // Anybody may come in; claims decide what they may do.
            "ANONYMOUS" | "MSSBCBS" => SaslCode::Ok,
            "PLAIN" => {
                let mut parts = response.unwrap_or_default().splitn(3, |byte| *byte == 0);
                let (_, name, key) = (parts.next(), parts.next(), parts.next());
                let granted = name
                    .and_then(|name| std::str::from_utf8(name).ok())
                    .zip(key)
                    .map(|(name, key)| self.namespace.guard.plain(name, key, self.peer.is_loopback()));
                match granted {
                    Some(Ok(grant)) => {
                        self.admit(grant);
                        SaslCode::Ok
                    }
                    _ => {
                        let why = "the name or the key of a login is wrong";
                        tracing::info!(address = %self.peer.address, why, "refused");
                        self.wrong_key();
                        SaslCode::Auth
                    }
                }
            }
            _ => {
                let why = "a login asks for a mechanism that was not offered";
                tracing::info!(address = %self.peer.address, why, "refused");
                SaslCode::Auth
            }
        }
    }

    /// When something must be done even if nothing happens.
    fn deadline(&self) -> Instant {
        let claim = self.awaits_claim().then(|| self.started + CLAIM_TIMEOUT);
        let idle = self.machine.next_deadline().map(|at| self.started + Duration::from_millis(at));
        let cut = self.ended.map(|ended| ended + LAST_OUTPUT_TIMEOUT);
        claim
            .into_iter()
            .chain(idle)
            .chain(cut)
            .chain(self.review_at)
            .chain(self.session_waits.first().map(|(until, _)| *until))
            .chain(self.leaving.first().map(|(until, _)| *until))
            .min()
            .unwrap_or_else(|| Instant::now() + IDLE_LOOK)
    }

    fn tick(&mut self) {
        let now = self.now();
        self.machine.heartbeat(now);
        if self.awaits_claim() && self.started.elapsed() >= CLAIM_TIMEOUT {
            self.part("No claim was put within the time for it.");
        }
        if self.review_at.is_some_and(|at| at <= Instant::now()) {
            self.review();
        }
        self.end_waits(Instant::now());
        self.input.give_back();
        if self.batch.bodies.is_empty() {
            self.batch.bodies = Vec::new();
        }
        if self.machine.output().is_empty() {
            *self.machine.output() = Vec::new();
        }
    }

    /// Whether what was read may be understood. Otherwise the engine must do something first: it counts what this connection
    /// brings, and what it asks is counted here.
    fn may_understand(&self) -> bool {
        let most = if self.has_claim { QUESTIONS_BYTES } else { STRANGER_QUESTIONS_BYTES };
        self.engine.has_room()
            && !self.engine.outbox().is_behind()
            && self.unstored_bytes < UNSTORED_BYTES
            && self.questions.len() < OPEN_QUESTIONS
            && self.questions_bytes < most
    }

    /// Whether more may be read: only when what came before may be understood, and when the peer has taken enough of what it was
    /// told: all of it, while memory is short.
    fn may_read(&self, has_memory: bool) -> bool {
        !self.is_ending
            && self.may_understand()
            && !self.machine.is_choked()
            && self.pending.len() + self.engine.outbox().waiting() < UNREAD_EFFECTS
            && (has_memory || self.pending.is_empty())
    }

    /// What may be read and written now.
    fn allowance(&mut self) -> Allowance {
        let has_memory = self.has_room_for(INPUT_BYTES);
        let (read_most, output_most) = match (self.has_claim, has_memory) {
            (false, true) => (STRANGER_INPUT_BYTES, OUTPUT_BYTES),
            (false, false) => (STRANGER_INPUT_BYTES, LOW_MEMORY_OUTPUT_BYTES),
            (true, true) => (INPUT_BYTES, OUTPUT_BYTES),
            (true, false) => (LOW_MEMORY_INPUT_BYTES, LOW_MEMORY_OUTPUT_BYTES),
        };
        Allowance { read_most: self.may_read(has_memory).then_some(read_most), output_most }
    }

    fn awaits_claim(&self) -> bool {
        !self.has_claim && !self.has_parted
    }

    /// Closes from our side. The machine waits for the client's close from now, so it must know what time it is.
    pub(super) fn part(&mut self, why: &str) {
        self.has_parted = true;
        self.machine.heartbeat(self.now());
        let error = self.origin.error("amqp:connection:forced", why, "");
        self.machine.close(Some(&error));
    }

    /// Whether nothing is left to be done for the peer.
    fn is_over(&mut self) -> bool {
        self.is_ending = self.machine.is_closed();
        if self.is_ending && self.ended.is_none() {
            self.ended = Some(Instant::now());
        }
        // A peer that does not read its last output is not waited for.
        let is_cut = self.ended.is_some_and(|ended| ended.elapsed() >= LAST_OUTPUT_TIMEOUT);
        let is_done = self.is_ending && (is_cut || self.is_written());
        is_done || self.state.engine.is_closed()
    }

    /// Whether the socket has taken all output.
    fn is_written(&mut self) -> bool {
        self.machine.output().is_empty() && !self.needs_flush
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    pub(super) async fn run(mut self) {
        self.understand();
        let sleep = tokio::time::sleep_until(self.deadline());
        let state = Arc::clone(&self.state);
        let stopping = state.stopping();
        tokio::pin!(sleep, stopping);
        loop {
            if let Some(until) = self.silent_until.take() {
                tokio::time::sleep_until(until).await;
            }
            if self.is_held_up && self.may_understand() {
                self.understand();
            }
            if self.is_over() {
                break;
            }
            // The end may just have begun, and it has a limit too.
            if self.deadline() < sleep.deadline() {
                sleep.as_mut().reset(self.deadline());
            }
            let has_room = self.engine.has_room();
            let allowance = self.allowance();
            self.output_most = allowance.output_most;
            let may_release = self.machine.output().len() < self.output_most;
            let may_read = allowance.read_most.is_some();
            let has_output = !self.machine.output().is_empty();
            let is_fetching = self.service.is_fetching();
            let is_gathering = self.pending_replies.is_fetching();
            let is_busy = self.service.is_busy() || self.pending_replies.is_busy();
            let socket = Socket {
                stream: &mut self.stream,
                output: self.machine.output(),
                address: self.peer.address,
                trail: &mut self.trail,
                written: &mut self.written,
                needs_flush: &mut self.needs_flush,
                // Only what is there to be written can make room: without output this would be true at once, for ever.
                wants_room: self.is_ending
                    || (has_output && (is_busy || !may_read || !may_release || !self.pending.is_empty())),
                keep_bytes: if is_busy { KEPT_BUSY_OUTPUT_BYTES } else { KEPT_OUTPUT_BYTES },
            };
            let input = allowance.read_most.map(|most| self.input.room(most));
            tokio::select! {
                biased;
                io = socket.turn(input) => match io {
                    Io::Failed => break,
                    Io::Wrote => {
                        // What the machine left in the input until its output was taken.
                        self.understand();
                        self.release();
                    }
                    Io::Read(count) => {
                        self.input.filled(count);
                        self.understand();
                        // A peer that never stops sending must not keep its own answers from it.
                        self.release();
                    }
                },
                () = self.engine.outbox().arrived(), if may_release => self.release(),
                () = self.service.fetched(), if is_fetching && may_release => self.release(),
                () = self.pending_replies.fetched(), if is_gathering && may_release => self.release(),
                () = self.engine.room(), if !has_room => {}
                () = &mut stopping, if !self.has_parted => self.part("The server is stopping."),
                () = &mut sleep => {
                    self.tick();
                    sleep.as_mut().reset(self.deadline());
                }
            }
            self.end_leavings();
            self.submit();
            // A socket that always has more would keep the thread for a hundred reads.
            if self.handed_over >= COMMANDS_AT_ONCE {
                self.handed_over = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}

/// The stream and what waits to be written to it.
struct Socket<'a, S> {
    stream: &'a mut S,
    output: &'a mut Vec<u8>,
    address: std::net::SocketAddr,
    trail: &'a mut Trail,
    written: &'a mut usize,
    needs_flush: &'a mut bool,
    /// Somebody waits for the output to be written: more of it, or the end.
    wants_room: bool,
    /// Room that the output keeps when it is empty.
    keep_bytes: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<'_, S> {
    /// Writes what there is and reads into `input`, whichever can be done.
    async fn turn(mut self, mut input: Option<&mut [u8]>) -> Io {
        poll_fn(|context| {
            match self.write(context) {
                Poll::Ready(Ok(())) if self.wants_room => return Poll::Ready(Io::Wrote),
                Poll::Ready(Err(_)) => return Poll::Ready(Io::Failed),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
            let Some(input) = &mut input else { return Poll::Pending };
            let mut room = ReadBuf::new(input);
            match ready!(Pin::new(&mut *self.stream).poll_read(context, &mut room)) {
                Ok(()) if !room.filled().is_empty() => Poll::Ready(Io::Read(room.filled().len())),
                // The peer is gone, or has filled its buffer with what makes no frame.
                Ok(()) | Err(_) => Poll::Ready(Io::Failed),
            }
        })
        .await
    }

    /// Ready when everything is written and flushed.
    fn write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let unwritten = &self.output[*self.written..];
            match ready!(Pin::new(&mut *self.stream).poll_write(context, unwritten))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => {
                    if tracing::enabled!(tracing::Level::TRACE) {
                        self.trail.wrote(self.address, &unwritten[..count]);
                    }
                    *self.written += count;
                }
            }
            *self.needs_flush = true;
            if *self.written == self.output.len() {
                *self.written = 0;
                self.output.clear();
                self.output.shrink_to(self.keep_bytes);
            }
        }
        if *self.needs_flush {
            ready!(Pin::new(&mut *self.stream).poll_flush(context))?;
            *self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::auth::Guard;
    use crate::http::tests::engine_in_memory;
    use crate::namespaces::Namespaces;
    use broker::Notice;
    use engine::Engine;

    /// A connection on which nothing has come, and which nobody runs.
    pub(in crate::amqp) fn idle_task(engine: &Engine) -> ConnectionTask<tokio::io::Empty> {
        let namespaces = Namespaces::single(Guard::new(Vec::new(), false));
        let state = Arc::new(State::new(engine.handle().clone(), namespaces));
        let peer = Peer::new("192.0.2.1:4000".parse().expect("an address"));
        ConnectionTask::new(tokio::io::empty(), BytesMut::new(), peer, state)
    }

    #[test]
    fn each_limit_makes_a_peer_wait_by_itself() {
        // P6, P7
        let engine = engine_in_memory();
        let mut task = idle_task(&engine);
        (task.has_claim, task.questions_bytes) = (true, QUESTIONS_BYTES - 1);
        assert!(task.may_read(true), "nothing is too much");
        task.questions_bytes = QUESTIONS_BYTES;
        assert!(!task.may_read(true), "its questions");
        (task.questions_bytes, task.unstored_bytes) = (0, UNSTORED_BYTES);
        assert!(!task.may_read(true), "its large messages");
        task.unstored_bytes = 0;
        let link = task.engine.link(0);
        let effects = |count| (0..count).map(|_| Outgoing::Notice(Notice::Drained { link })).collect();
        task.pending = effects(UNREAD_EFFECTS);
        assert!(!task.may_read(true), "its answers");
        task.pending = effects(1);
        assert!(task.may_read(true) && !task.may_read(false), "its answers while memory is short");
        task.pending.clear();
        task.machine.output().resize(amqp::limits::UNREAD_OUTPUT_BYTES, 0);
        assert!(!task.may_read(true), "its output");
        drop(task);
        engine.stop().expect("nothing is under way");
    }
}
