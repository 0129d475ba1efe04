//! Sessions at the door: what an attach asks for, how long it may wait, and how the session that it gets is told.
//!
//! A receiver that asks for any session is not answered before there is one. How long that may take is between
//! the client and the door: the broker knows only that somebody waits.

use super::connection::ConnectionTask;
use super::link::{Kind, Link};
use crate::limits::{SESSION_WAIT, SESSION_WAIT_MOST};
use amqp::{Attach, AttachReply, LinkKey};
use broker::AcceptedSession;
use message::{Value, ticks};
use std::time::Duration;
use tokio::time::Instant;

const FILTER: &str = "com.microsoft:session-filter";
const NON_EXCLUSIVE: &str = "com.microsoft:non-exclusive-session-filter:list";
const TIMEOUT: &str = "com.microsoft:timeout";
const LOCKED_UNTIL: &str = "com.microsoft:locked-until-utc";

/// Which session a receiver asks for, and later has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// None: whichever is free.
    pub(super) id: Option<Box<str>>,
    /// Go describes the value of its filter and takes no other; the rest take no described one.
    descriptor: Option<Value>,
}

/// What is wrong with a session filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unwanted {
    NotImplemented,
    WrongType,
}

impl Wanted {
    /// None: the receiver asks for no session.
    pub(super) fn of(attach: &Attach) -> Result<Option<Wanted>, Unwanted> {
        let Some(source) = &attach.source else { return Ok(None) };
        if source.filter.get(NON_EXCLUSIVE).is_some() {
            return Err(Unwanted::NotImplemented);
        }
        let (descriptor, value) = match source.filter.get(FILTER) {
            None => return Ok(None),
            Some(Value::Described(described)) => (Some(described.0.clone()), &described.1),
            Some(value) => (None, value),
        };
        let id = match value {
            Value::Null => None,
            Value::String(id) | Value::Symbol(id) => Some(Box::from(&**id)),
            // K-3
            Value::Binary(id) => Some(std::str::from_utf8(id).map_err(|_| Unwanted::WrongType)?.into()),
            _ => return Err(Unwanted::WrongType),
        };
        Ok(Some(Wanted { id, descriptor }))
    }

    /// The filter of an attach reply, in the shape in which it came.
    fn filter(&self) -> Value {
        let id = Value::String(self.id.as_deref().unwrap_or_default().into());
        let value = match &self.descriptor {
            Some(descriptor) => Value::Described(Box::new((descriptor.clone(), id))),
            None => id,
        };
        Value::Map(vec![(Value::Symbol(FILTER.into()), value)])
    }
}

/// How long a client is willing to wait for a session.
fn patience(attach: &Attach) -> Duration {
    let asked = attach.properties.get(TIMEOUT).and_then(|value| match value {
        Value::Double(milliseconds) => Some(f64::from_bits(*milliseconds) as i64),
        other => other.as_integer(),
    });
    let asked = asked.and_then(|milliseconds| u64::try_from(milliseconds).ok());
    asked.map_or(SESSION_WAIT, Duration::from_millis).min(SESSION_WAIT_MOST)
}

impl<S> ConnectionTask<S> {
    /// A receiver asks for any session: it is told so, or that there is none, within this time.
    pub(super) fn await_session(&mut self, key: LinkKey, attach: &Attach) {
        let until = Instant::now() + patience(attach);
        self.session_waits.insert((until, key));
    }

    pub(super) fn stop_waiting(&mut self, key: LinkKey) {
        if !self.session_waits.is_empty() {
            self.session_waits.retain(|(_, waiting)| *waiting != key);
        }
    }

    /// Tells the receivers that have waited for long enough that there is no session. In one write: JavaScript takes a detach that
    /// comes after its attach for something else.
    pub(super) fn end_waits(&mut self, now: Instant) {
        while let Some((until, key)) = self.session_waits.first().copied()
            && until <= now
        {
            self.session_waits.pop_first();
            let path = self.links.get(&key.0).map_or("", |link| link.kind.path());
            let text =
                "There was no session to accept within the time that the receiver was willing to wait.";
            let error = self.origin.error(super::condition::TIMED_OUT, text, path);
            self.forget(key);
            self.machine.refuse(key, &error);
        }
    }

    /// The broker has taken a receiver, perhaps with a session.
    pub(super) fn receiver_attached(&mut self, key: LinkKey, session: Option<Box<AcceptedSession>>) {
        let Some(accepted) = session else {
            return self.machine.accept(key, AttachReply::default());
        };
        self.stop_waiting(key);
        let Some(receiver) = self.receiver(key) else { return };
        let Some(wanted) = &mut receiver.session else { return };
        wanted.id = Some(Box::from(&*accepted.id));
        let until = Value::Long(ticks::of_ms(accepted.until.0));
        let reply = AttachReply {
            filter: Some(wanted.filter()),
            properties: Value::Map(vec![(Value::Symbol(LOCKED_UNTIL.into()), until)]),
            ..AttachReply::default()
        };
        self.machine.accept(key, reply);
        // Credit that came while nobody could use it.
        if self.machine.credit_left(key) > 0 {
            self.pass_credit(key, false);
        }
    }

    /// The session that a receiver of this entity holds on a link of that name.
    pub(super) fn session_of_link(&self, name: &str, path: &str) -> Option<Box<str>> {
        let holder = |link: &Link| match &link.kind {
            Kind::Receiver(receiver) if link.name == name && receiver.path == path => {
                receiver.session.as_ref()?.id.clone()
            }
            _ => None,
        };
        self.links.values().find_map(holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amqp::{Role, Source};

    fn attach(filter: Value, properties: Value) -> Attach {
        let source = Some(Source { filter, ..Source::default() });
        Attach { source, properties, ..Attach::new("n", 0, Role::Receiver) }
    }

    fn filter(key: &str, value: Value) -> Value {
        Value::Map(vec![(Value::Symbol(key.into()), value)])
    }

    #[test]
    fn the_filter_comes_back_in_the_shape_in_which_it_came() {
        //
        let described = |value| Value::Described(Box::new((Value::Ulong(0x13_7000_000c), value)));
        for shape in [&described as &dyn Fn(Value) -> Value, &|value| value] {
            let mut wanted =
                Wanted::of(&attach(filter(FILTER, shape(Value::Null)), Value::Null)).unwrap().unwrap();
            assert_eq!(wanted.id, None);
            wanted.id = Some("s1".into());
            assert_eq!(wanted.filter(), filter(FILTER, shape("s1".into())));
            let named = Wanted::of(&attach(filter(FILTER, shape("".into())), Value::Null)).unwrap().unwrap();
            assert_eq!(named.id.as_deref(), Some(""));
        }
        assert_eq!(Wanted::of(&attach(Value::Null, Value::Null)), Ok(None));
    }

    #[test]
    fn what_is_no_session_id_is_refused() {
        //
        let refused = |filter| Wanted::of(&attach(filter, Value::Null)).err();
        assert_eq!(refused(filter(FILTER, Value::Int(1))), Some(Unwanted::WrongType));
        assert_eq!(refused(filter(NON_EXCLUSIVE, Value::Null)), Some(Unwanted::NotImplemented));
    }

    #[test]
    fn patience_is_what_the_client_says_within_reason() {
        //
        let asked = |value| patience(&attach(Value::Null, filter(TIMEOUT, value)));
        assert_eq!(asked(Value::Uint(5_000)), Duration::from_secs(5));
        assert_eq!(asked(Value::Long(5_000)), Duration::from_secs(5));
        assert_eq!(asked(Value::Null), SESSION_WAIT);
        assert_eq!(asked(Value::Int(-1)), SESSION_WAIT);
        assert_eq!(asked(Value::Ulong(u64::MAX)), SESSION_WAIT);
        assert_eq!(asked(Value::Long(i64::MAX)), SESSION_WAIT_MOST);
    }

    #[test]
    fn an_instant_is_told_in_ticks() {
        //
        assert_eq!(ticks::of_ms(0), 621_355_968_000_000_000);
        assert_eq!(ticks::of_ms(1), 621_355_968_000_010_000);
    }
}
