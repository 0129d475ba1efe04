//! The door's answers: deciding attaches, granting credit, settling, draining, detaching, ending.
//!
//! Every call with the key of something that is gone does nothing.

use super::{AttachReply, Connection, LinkKey, SessionKey, recount};
use crate::keyed::Keyed;
use crate::link::{Link, Phase as LinkPhase};
use crate::performative::hot::write_disposition;
use crate::performative::{Attach, End, Error, Role};
use crate::session::Session;
use crate::state::State;
use std::collections::BTreeSet;

impl Connection {
    /// Accepts an attach: repeats its name, settle modes, source and target, and adds `reply`.
    pub fn accept(&mut self, link: LinkKey, reply: AttachReply) {
        let Some((link, session)) = find(&mut self.links, &mut self.sessions, link) else { return };
        let LinkPhase::Undecided(attach) = &mut link.phase else { return };
        let mut echo = Attach {
            source: attach.source.take(),
            target: attach.target.take(),
            snd_settle_mode: attach.snd_settle_mode,
            rcv_settle_mode: attach.rcv_settle_mode,
            max_message_size: reply.max_message_size,
            properties: reply.properties,
            ..Attach::new(&attach.name, link.handle, link.role)
        };
        echo.initial_delivery_count = link.initial_delivery_count();
        if let (Some(source), Some(filter)) = (&mut echo.source, reply.filter) {
            source.filter = filter;
        }
        link.phase = LinkPhase::Attached;
        let kept = link.attach_bytes / 4;
        self.attaches_bytes -= std::mem::replace(&mut link.attach_bytes, kept) - kept;
        link.is_untracked = reply.untracked;
        if let Some(limit) = reply.max_message_size.filter(|limit| *limit > 0) {
            link.max_message_bytes = limit;
        }
        self.out.frame(session.channel, |out| echo.encode(out));
    }

    /// Refuses an attach: an attach without source and target, then a detach with `error`, in one run of output.
    pub fn refuse(&mut self, link: LinkKey, error: &Error) {
        let is_undecided = |link: &Link| matches!(link.phase, LinkPhase::Undecided(_));
        if self.links.get(link.0).is_some_and(is_undecided) {
            self.detach(link, Some(error));
        }
    }

    /// On a link that we receive on: lets the client send `credit` deliveries from now.
    pub fn grant(&mut self, link: LinkKey, credit: u32) {
        let Some((link, session)) = find(&mut self.links, &mut self.sessions, link) else { return };
        if link.role == Role::Receiver && link.is_attached() {
            link.credit = credit;
            let flow = link.flow(session.flow());
            self.out.frame(session.channel, |out| flow.encode(out));
        }
    }

    /// How many deliveries may still come, or go, before more credit is needed.
    pub fn credit_left(&self, link: LinkKey) -> u32 {
        self.links.get(link.0).map_or(0, |link| link.credit)
    }

    /// The session of a link.
    pub fn session_of(&self, link: LinkKey) -> Option<SessionKey> {
        self.links.get(link.0).map(|link| SessionKey(link.session))
    }

    /// Settles deliveries that the client sent, with their outcome. Always settled at once, whatever mode the client
    /// asked for: Python asks for two steps and waits for one.
    pub fn settle_incoming(&mut self, link: LinkKey, first: u32, last: u32, outcome: &State) {
        let Some((_, session)) = find(&mut self.links, &mut self.sessions, link) else { return };
        self.out.frame(session.channel, |out| {
            write_disposition(out, Role::Receiver, first, Some(last), true, Some(outcome), false);
        });
    }

    /// Settles deliveries that we sent: the answer to a client's unsettled disposition. They are forgotten, unless the
    /// state is a transient error, after which the client may ask again.
    pub fn settle_outgoing(&mut self, link: LinkKey, first: u32, last: u32, state: &State) {
        let Some(link) = self.links.get(link.0).filter(|link| !link.is_detaching()) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        self.out.frame(session.channel, |out| {
            write_disposition(out, Role::Sender, first, Some(last), true, Some(state), false);
        });
        if !state.invites_repetition() {
            let (links, leaving) = (&mut self.links, &self.leaving);
            session.unsettled.walk(first, last, true, |link, _, _| count_settled(links, leaving, link));
            recount(&mut self.weight, session);
        }
    }

    /// Walks the deliveries from `first` to `last` that we sent on a session and that are not settled, for a
    /// [`super::Event::Disposition`]. The cost is that of what is outstanding, whatever the range claims.
    pub fn outstanding(
        &mut self,
        session: SessionKey,
        first: u32,
        last: u32,
        forget: bool,
        mut each: impl FnMut(LinkKey, u32, &[u8; 16]),
    ) {
        if let Some(session) = self.sessions.get_mut(session.0) {
            let (links, leaving) = (&mut self.links, &self.leaving);
            session.unsettled.walk(first, last, forget, |link, id, tag| {
                if forget {
                    count_settled(links, leaving, link);
                }
                each(link, id, tag);
            });
            recount(&mut self.weight, session);
        }
    }

    /// Answers a drain: gives the unused credit back. Right also when there is none.
    pub fn drained(&mut self, link: LinkKey) {
        let Some((link, session)) = find(&mut self.links, &mut self.sessions, link) else { return };
        if link.role != Role::Sender || !link.is_attached() {
            return;
        }
        if let Some(streaming) = session.streaming.as_mut().filter(|streaming| streaming.link == link.key) {
            streaming.owes_drained = true;
            return;
        }
        if session.held.link == Some(link.key) {
            session.held.owes_drained = true;
            return;
        }
        link.delivery_count = link.delivery_count.wrapping_add(link.credit);
        link.credit = 0;
        let mut flow = link.flow(session.flow());
        flow.drain = true;
        self.out.frame(session.channel, |out| flow.encode(out));
    }

    /// Whether the client has said of each delivery of a link that is leaving what became of it.
    pub fn has_settled(&self, link: LinkKey) -> bool {
        self.links.get(link.0).is_none_or(|link| matches!(link.phase, LinkPhase::Leaving { unsettled: 0 }))
    }

    /// Answers the detach of a link that is leaving, which is gone then.
    pub fn end_leaving(&mut self, link: LinkKey) {
        self.leave(link, None);
    }

    /// Detaches a link from our side. The client's detach is taken in silence.
    pub fn detach(&mut self, link: LinkKey, error: Option<&Error>) {
        if self.leaving.contains(&link) {
            return self.leave(link, error);
        }
        let Some((found, session)) = find(&mut self.links, &mut self.sessions, link) else { return };
        session.forget_link(link);
        recount(&mut self.weight, session);
        let arriving = found.arriving.take();
        self.forget_arriving(arriving);
        self.write_detach(link, error);
    }

    /// Ends a session from our side, and all its links with it. The client's end is taken in silence.
    pub fn end(&mut self, session: SessionKey, error: Option<&Error>) {
        let Some(found) = self.sessions.get_mut(session.0).filter(|session| !session.is_ending) else {
            return;
        };
        found.is_ending = true;
        let end = End { error: error.cloned() };
        self.out.frame(found.channel, |out| end.encode(out));
        let links: Vec<LinkKey> = found.links().collect();
        found.forget_handles();
        links.into_iter().for_each(|link| self.drop_link(link));
    }
}

/// A delivery is settled. What is left of a link is counted only while it is leaving.
fn count_settled(links: &mut Keyed<Link>, leaving: &BTreeSet<LinkKey>, link: LinkKey) {
    if leaving.contains(&link)
        && let Some(Link { phase: LinkPhase::Leaving { unsettled }, .. }) = links.get_mut(link.0)
    {
        *unsettled -= 1;
    }
}

/// A link that may still speak, and its session.
pub(super) fn find<'c>(
    links: &'c mut Keyed<Link>,
    sessions: &'c mut Keyed<Session>,
    key: LinkKey,
) -> Option<(&'c mut Link, &'c mut Session)> {
    let link = links.get_mut(key.0).filter(|link| !link.is_detaching())?;
    let session = sessions.get_mut(link.session)?;
    Some((link, session))
}
