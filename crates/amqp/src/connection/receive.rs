//! What comes in: one handler for each performative. A handler answers what the protocol alone decides, updates the
//! state, and makes at most one event. An `Err` is a violation and ends the connection. Transfers are in
//! [`super::arrive`].

use super::{Connection, Event, LinkKey, Phase, SessionKey, Step, broken, malformed, recount};
use crate::condition::{
    FRAMING_ERROR, HANDLE_IN_USE, ILLEGAL_STATE, INVALID_FIELD, NOT_ALLOWED, RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
};
use crate::frame::{self, Frame, Kind};
use crate::keyed::{ENDED, NONE};
use crate::limits;
use crate::limits::UNDECIDED_WEIGHT;
use crate::link::{Link, Phase as LinkPhase};
use crate::performative::{
    Attach, Begin, Close, Detach, Disposition, End, Error, Flow, Open, Performative, Role,
};
use crate::serial::distance;
use crate::session::Session;

pub(super) type Handled<'a> = Result<Option<Event<'a>>, Error>;

impl Connection {
    /// What a stranger may send in one frame: its request is as long whether it comes in one or in several.
    fn stranger_frame_bytes(&self) -> u32 {
        let unfinished = u32::try_from(self.arriving_bytes).unwrap_or(u32::MAX);
        let left = limits::FRAME_BYTES_BEFORE_CLAIM.saturating_sub(unfinished);
        left.max(limits::COLD_FRAME_BYTES_BEFORE_CLAIM as u32)
    }

    pub(super) fn take_frame<'a>(&mut self, input: &mut &'a [u8]) -> Result<Step<'a>, Error> {
        let most = self.config.max_frame_size;
        let most = if self.has_claim { most } else { most.min(self.stranger_frame_bytes()) };
        let Some(frame) = frame::split(input, most).map_err(broken)? else {
            return Ok(Step::Starved);
        };
        self.last_received = self.out.now;
        if frame.kind == Kind::Sasl {
            return Err(Error::new(FRAMING_ERROR, "a SASL frame came after the SASL exchange"));
        }
        if frame.body.is_empty() {
            return Ok(Step::Onward);
        }
        Ok(self.handle(frame)?.map_or(Step::Onward, Step::Event))
    }

    fn handle<'a>(&mut self, frame: Frame<'a>) -> Handled<'a> {
        let mut nodes = if self.has_claim { limits::FRAME_NODES } else { limits::FRAME_NODES_BEFORE_CLAIM };
        if !Performative::is_hot(frame.body) {
            self.check_cold_size(frame.body.len())?;
        }
        let (performative, payload) = Performative::decode(frame.body, &mut nodes).map_err(malformed)?;
        let channel = frame.channel;
        match (self.phase, performative) {
            (Phase::Opening, Performative::Open(open)) => self.on_open(*open),
            (Phase::Opening, _) => Err(Error::new(ILLEGAL_STATE, "a frame came before open")),
            (_, Performative::Close(close)) => Ok(Some(self.on_close(close))),
            (Phase::Closing, _) => Ok(None),
            (_, Performative::Open(_)) => Err(Error::new(ILLEGAL_STATE, "a second open")),
            (_, Performative::Begin(begin)) => self.on_begin(channel, &begin),
            (_, Performative::End(end)) => self.on_end(channel, end),
            (_, performative) => {
                if self.is_afterthought(channel, &performative) {
                    return Ok(None);
                }
                let session = self.session_at(channel)?;
                if session.is_ending {
                    return Ok(None);
                }
                let session = session.key;
                match performative {
                    Performative::Transfer(transfer) => self.on_transfer(session, transfer, payload),
                    Performative::Disposition(disposition) => Ok(on_disposition(session, disposition)),
                    Performative::Flow(flow) => Ok(self.on_flow(session, flow)),
                    Performative::Attach(attach) => self.on_attach(session, attach, frame.body.len()),
                    Performative::Detach(detach) => self.on_detach(session, detach),
                    _ => Err(Error::new(ILLEGAL_STATE, "a frame out of place")),
                }
            }
        }
    }

    fn check_cold_size(&self, bytes: usize) -> Result<(), Error> {
        let limit =
            if self.has_claim { limits::COLD_FRAME_BYTES } else { limits::COLD_FRAME_BYTES_BEFORE_CLAIM };
        if bytes <= limit {
            return Ok(());
        }
        let text = format!("a frame of {bytes} bytes that carries no message exceeds {limit}");
        Err(Error::new(RESOURCE_LIMIT_EXCEEDED, text))
    }

    fn on_open<'a>(&mut self, open: Open) -> Handled<'a> {
        if open.max_frame_size < limits::MIN_FRAME_BYTES {
            let text = format!("max-frame-size {} is below {}", open.max_frame_size, limits::MIN_FRAME_BYTES);
            return Err(Error::new(INVALID_FIELD, text));
        }
        self.out.max_frame_bytes = open.max_frame_size.min(limits::OUTGOING_FRAME_BYTES);
        self.take_peer_idle_time_out(open.idle_time_out);
        self.write_open();
        self.phase = Phase::Active;
        let Open { container_id, hostname, properties, .. } = open;
        Ok(Some(Event::Open { container_id, hostname, properties }))
    }

    fn on_close<'a>(&mut self, close: Close) -> Event<'a> {
        if self.phase == Phase::Active {
            self.out.frame(0, |out| Close { error: None }.encode(out));
        }
        self.phase = Phase::Closed;
        Event::Close { error: close.error }
    }

    fn session_at(&mut self, channel: u16) -> Result<&mut Session, Error> {
        let key = self.channels.get(usize::from(channel)).copied().unwrap_or(NONE);
        self.sessions
            .get_mut(key)
            .ok_or_else(|| Error::new(NOT_ALLOWED, format!("no session was begun on channel {channel}")))
    }

    /// .NET detaches its links before or after it ends their session, and settles from other threads meanwhile.
    fn is_afterthought(&self, channel: u16, performative: &Performative<'_>) -> bool {
        let is_harmless = matches!(
            performative,
            Performative::Detach(_) | Performative::Disposition(_) | Performative::Flow(_)
        );
        is_harmless && self.channels.get(usize::from(channel)) == Some(&ENDED)
    }

    fn on_begin<'a>(&mut self, channel: u16, begin: &Begin) -> Handled<'a> {
        if channel > self.config.channel_max {
            let text = format!("channel {channel} is above {}", self.config.channel_max);
            return Err(Error::new(FRAMING_ERROR, text));
        }
        if self.session_at(channel).is_ok() {
            return Err(Error::new(NOT_ALLOWED, format!("channel {channel} has a session already")));
        }
        let limit = if self.has_claim { limits::SESSIONS } else { limits::SESSIONS_BEFORE_CLAIM };
        let key = match self.sessions.len() < usize::from(limit) {
            true => self.sessions.insert(|key| Session::new(SessionKey(key), channel, begin)),
            false => None,
        };
        let Some(key) = key else {
            return Err(Error::new(RESOURCE_LIMIT_EXCEEDED, format!("more than {limit} sessions")));
        };
        let index = usize::from(channel);
        if index >= self.channels.len() {
            self.channels.resize(index + 1, NONE);
        }
        self.channels[index] = key;
        if let Some(session) = self.sessions.get(key) {
            let begin = session.begin(self.config.handle_max);
            self.out.frame(channel, |out| begin.encode(out));
        }
        Ok(None)
    }

    fn on_end<'a>(&mut self, channel: u16, end: End) -> Handled<'a> {
        let session = self.session_at(channel)?;
        let (key, was_ending) = (session.key, session.is_ending);
        let mut links: Vec<LinkKey> = session.links().collect();
        // A link that we detached before is not news.
        links.retain(|link| {
            let is_news = self.links.get(link.0).is_some_and(|link| !link.is_detaching());
            self.drop_link(*link);
            is_news
        });
        if let Some(session) = self.sessions.remove(key.0) {
            self.weight.held_bytes -= session.counted.held_bytes;
            self.weight.unsettled -= session.counted.unsettled;
        }
        self.channels[usize::from(channel)] = ENDED;
        if was_ending {
            return Ok(None);
        }
        self.out.frame(channel, |out| End { error: None }.encode(out));
        Ok(Some(Event::End { session: key, links, error: end.error }))
    }

    fn on_attach<'a>(&mut self, session: SessionKey, attach: Box<Attach>, bytes: usize) -> Handled<'a> {
        let handle = attach.handle;
        if handle > self.config.handle_max {
            let text = format!("handle {handle} is above {}", self.config.handle_max);
            return Err(Error::new(FRAMING_ERROR, text));
        }
        let limit = if self.has_claim { limits::LINKS } else { limits::LINKS_BEFORE_CLAIM };
        let replaced = self.replace(session, handle, limit)?;
        let Some(owner) = self.sessions.get_mut(session.0) else { return Ok(None) };
        let kept = attach.clone();
        let key = match self.links.len() < limit {
            true => {
                self.links.insert(|key| Link::new(LinkKey(key), session.0, kept, UNDECIDED_WEIGHT * bytes))
            }
            false => None,
        };
        let Some(key) = key else {
            return Err(Error::new(RESOURCE_LIMIT_EXCEEDED, format!("more than {limit} links")));
        };
        self.attaches_bytes += UNDECIDED_WEIGHT * bytes;
        owner.set_handle(handle, Some(LinkKey(key)));
        Ok(Some(Event::Attach { link: LinkKey(key), session, attach, replaced }))
    }

    /// What a client has left it may use again, whether or not our answer is out: its handle, and its place among the links.
    fn replace(&mut self, session: SessionKey, handle: u32, limit: usize) -> Result<Option<LinkKey>, Error> {
        let owner = self.sessions.get(session.0).and_then(|owner| owner.link_at(handle));
        let replaced = match owner {
            Some(link) if !self.leaving.contains(&link) => {
                return Err(Error::new(HANDLE_IN_USE, format!("handle {handle} is attached already")));
            }
            None if self.links.len() >= limit => self.leaving.first().copied(),
            link => link,
        };
        if let Some(link) = replaced {
            self.leave(link, None);
        }
        Ok(replaced)
    }

    fn on_detach<'a>(&mut self, session: SessionKey, detach: Detach) -> Handled<'a> {
        let handle = detach.handle;
        let Some(owner) = self.sessions.get_mut(session.0) else { return Ok(None) };
        let Some(key) = owner.link_at(handle) else {
            return Err(unattached(handle));
        };
        if !detach.closed && detach.error.is_none() && self.begin_leaving(key) {
            return Ok(Some(Event::Leaving { link: key }));
        }
        let Some(owner) = self.sessions.get_mut(session.0) else { return Ok(None) };
        owner.set_handle(handle, None);
        if self.links.get(key.0).is_some_and(Link::is_detaching) {
            self.drop_link(key);
            return Ok(None);
        }
        self.write_detach(key, None);
        self.drop_link(key);
        Ok(Some(Event::Detach { link: key, closed: detach.closed, error: detach.error }))
    }

    /// Deliveries of a link that was detached, but neither closed nor with an error, are settled as before (AMQP 1.0 part 2,
    /// 2.7.6). False: there is nothing to settle, so the detach can be answered.
    fn begin_leaving(&mut self, key: LinkKey) -> bool {
        let Some(link) = self.links.get_mut(key.0).filter(|link| link.is_attached()) else { return false };
        let Some(session) = self.sessions.get_mut(link.session) else { return false };
        let unsettled = session.unsettled.count_of(key);
        if unsettled == 0 {
            return false;
        }
        (link.phase, link.credit) = (LinkPhase::Leaving { unsettled }, 0);
        session.forget_frames(key);
        recount(&mut self.weight, session);
        self.leaving.insert(key);
        true
    }

    /// Writes the detach of a link that is leaving, and forgets it.
    pub(super) fn leave(&mut self, key: LinkKey, error: Option<&Error>) {
        let Some(link) = self.links.get(key.0).filter(|link| link.is_leaving()) else { return };
        if let Some(session) = self.sessions.get_mut(link.session) {
            session.set_handle(link.handle, None);
        }
        self.write_detach(key, error);
        self.drop_link(key);
    }

    fn on_flow<'a>(&mut self, session: SessionKey, flow: Flow<'a>) -> Option<Event<'a>> {
        let owner = self.sessions.get_mut(session.0)?;
        let was_open = owner.is_open();
        owner.take_flow(&flow);
        let drained = owner.release_held(&mut self.out.bytes);
        recount(&mut self.weight, owner);
        if !was_open && owner.is_open() {
            self.opened_window = Some(session);
        }
        if let Some(drained) = drained {
            self.drained(drained);
        }
        let owner = self.sessions.get(session.0)?;
        // A flow may cross our detach or come after the client's, so one for an unknown handle is only about the session.
        let link = flow.handle.and_then(|handle| owner.link_at(handle));
        let link = link
            .and_then(|key| self.links.get_mut(key.0))
            .filter(|link| !link.is_detaching() && !link.is_leaving());
        let Some(link) = link else {
            if flow.echo {
                let answer = owner.flow();
                self.out.frame(owner.channel, |out| answer.encode(out));
            }
            return None;
        };
        match link.role {
            Role::Sender => link.take_credit(&flow),
            Role::Receiver => link.take_count(&flow),
        }
        // The answer to a drain says all that an echo would. Before the attach reply the handle is not ours to use.
        let is_drain = flow.drain && link.role == Role::Sender;
        if flow.echo && !is_drain && link.is_attached() {
            let answer = link.flow(owner.flow());
            self.out.frame(owner.channel, |out| answer.encode(out));
        }
        (link.role == Role::Sender).then_some(Event::Flow {
            link: link.key,
            credit: link.credit,
            drain: flow.drain,
            properties: flow.properties,
        })
    }

    /// Writes our detach, after an attach that refuses if the link was undecided: a bare detach would close the whole
    /// connection in Go and Python. `closed` is always true, for Go knows no other.
    pub(super) fn write_detach(&mut self, key: LinkKey, error: Option<&Error>) {
        let Some(link) = self.links.get_mut(key.0) else { return };
        let Some(session) = self.sessions.get(link.session) else { return };
        if let LinkPhase::Undecided(attach) = &link.phase {
            let refusal = Attach {
                source: None,
                target: None,
                snd_settle_mode: attach.snd_settle_mode,
                rcv_settle_mode: attach.rcv_settle_mode,
                initial_delivery_count: link.initial_delivery_count(),
                ..Attach::new(&attach.name, link.handle, link.role)
            };
            self.out.frame(session.channel, |out| refusal.encode(out));
        }
        let detach = Detach { handle: link.handle, closed: true, error: error.cloned() };
        self.out.frame(session.channel, |out| detach.encode(out));
        link.phase = LinkPhase::Detaching;
        self.attaches_bytes -= std::mem::take(&mut link.attach_bytes);
    }

    /// Forgets a link and all that its session and connection hold for it. Its handle is freed by the caller.
    pub(super) fn drop_link(&mut self, key: LinkKey) {
        let Some(mut link) = self.links.remove(key.0) else { return };
        self.leaving.remove(&key);
        self.attaches_bytes -= link.attach_bytes;
        self.forget_arriving(link.arriving.take());
        if let Some(session) = self.sessions.get_mut(link.session) {
            session.forget_link(key);
            recount(&mut self.weight, session);
        }
    }
}

fn on_disposition<'a>(session: SessionKey, disposition: Disposition) -> Option<Event<'a>> {
    let Disposition { role, first, last, settled, state, .. } = disposition;
    let last = last.unwrap_or(first);
    // What a client says of its own sends is settled by our answer. An inverted range names nothing.
    let is_for_us = role == Role::Receiver && distance(first, last).is_some();
    is_for_us.then_some(Event::Disposition { session, first, last, settled, state })
}

pub(super) fn unattached(handle: u32) -> Error {
    Error::new(UNATTACHED_HANDLE, format!("no link is attached to handle {handle}"))
}
