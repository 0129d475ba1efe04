//! What a decision needs of what is stored: from the cache at once, or read on another thread.

use super::Partition;
use super::places::place_in;
use crate::ids::ForJournal;
use crate::item::{Checked, Item};
use crate::runner::{CheckJob, ReadJob};
use broker::{Arrivals, BodyId, Command, Decided, Doubt, Needs, Read, Sequence, Time};
use bytes::Bytes;

impl Partition {
    pub(super) fn fetch_if_needed(&mut self, command: &Command, decided: Decided, now: Time) {
        match decided {
            Decided::Done => {}
            Decided::Needs(needs) => self.fetch(command, needs, false, now),
            Decided::Check(needs) => self.fetch(command, needs, true, now),
        }
    }

    /// Gets what a decision needs: from the cache and at once, or from disk, on another thread if there is one.
    fn fetch(&mut self, command: &Command, needs: Needs, is_check: bool, now: Time) {
        let mut cached = Vec::new();
        self.cache.get(needs.0.iter().copied(), &mut cached);
        if cached.iter().all(Option::is_some) {
            let cached: Vec<_> = cached.into_iter().flatten().collect();
            let material: Vec<_> =
                needs.0.iter().copied().zip(cached.iter().map(|bytes| &bytes[..])).collect();
            let decided = self.decide_one(command, Arrivals::default(), &material, now);
            assert_eq!(decided, Decided::Done, "a command asks once");
            return;
        }
        let (mut places, mut unwritten) = (Vec::new(), Vec::new());
        for body in needs.0 {
            match place_in(&*self.journal, self.stored_as(body)) {
                Some(place) => places.push((body, place)),
                None => unwritten.push(body),
            }
        }
        // A body that is not written yet is what was changed of a message a moment ago, and it is only asked whether it can be read.
        debug_assert!(is_check || unwritten.is_empty(), "{unwritten:?} is looked into before it is written");
        self.reading += 1;
        self.workers.read(ReadJob { command: command.clone(), places, unwritten, is_check }, &self.inbox);
    }

    /// Finds out whether messages can be read: those in the cache are whole, for they never left memory.
    pub(super) fn check(&mut self, doubt: Doubt) {
        let bodies = doubt.messages.iter().flat_map(|(_, bodies)| bodies.iter().copied());
        let mut cached = Vec::new();
        self.cache.get(bodies, &mut cached);
        let source = doubt.source;
        self.reading += 1;
        if cached.iter().all(Option::is_some) {
            let mut checked = Checked::new(source);
            if doubt.wants_content {
                let mut cached = cached.into_iter().flatten().map(|bytes| Box::from(&bytes[..]));
                let content = doubt.messages.iter().map(|(sequence, bodies)| {
                    (*sequence, Some(Read::of(cached.by_ref().take(bodies.len()))))
                });
                checked.content = Some(content.collect());
            } else {
                checked.whole = doubt.messages.iter().map(|(sequence, _)| *sequence).collect();
            }
            return self.backlog.push_back(Item::Checked(checked));
        }
        let place = |body| {
            place_in(&*self.journal, self.stored_as(body)).expect("what may be handed out was written")
        };
        let places =
            |(sequence, bodies): (Sequence, Vec<BodyId>)| (sequence, bodies.into_iter().map(place).collect());
        let messages = doubt.messages.into_iter().map(places).collect();
        let wants_content = doubt.wants_content;
        self.workers.check(CheckJob { source, messages, wants_content }, &self.inbox);
    }

    pub(super) fn checked(&mut self, checked: Checked, now: Time) {
        self.reading -= 1;
        checked.damage.iter().for_each(|damage| self.condition.report_damage(damage));
        let context = self.context(now);
        let Checked { source, whole, damaged, content, .. } = checked;
        let before = self.broker.work(&self.decision);
        match content {
            Some(content) => self.broker.read(source, content, context, &mut self.decision),
            None => self.broker.checked(source, &whole, &damaged, context, &mut self.decision),
        }
        self.note_slice(before);
        self.take_decision(&Bytes::new());
    }

    /// Where the journal has a body.
    fn stored_as(&self, body: BodyId) -> journal::BodyId {
        let original = self.drafting.original(body);
        original.unwrap_or_else(|| self.broker.durable().stored_as(body)).for_journal()
    }
}
