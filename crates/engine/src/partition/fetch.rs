//! What a decision needs of what is stored: from the cache at once, or read on another thread.

use super::Partition;
use super::places::place_in;
use crate::ids::ForJournal;
use crate::item::{Checked, Item};
use crate::runner::{CheckJob, ReadJob};
use broker::{Arrivals, BodyId, Command, Decided, Doubt, Needs, Sequence, Time};
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
        let journal = &*self.journal;
        let place = |body: &BodyId| Some((*body, place_in(journal, self.stored_as(*body))?));
        let places: Vec<_> = needs.0.iter().filter_map(place).collect();
        self.reading += 1;
        self.workers.read(ReadJob { command: command.clone(), places, is_check }, &self.inbox);
    }

    /// Finds out whether messages can be read: those in the cache are whole, for they never left memory.
    pub(super) fn check(&mut self, doubt: Doubt) {
        let bodies = doubt.messages.iter().flat_map(|(_, bodies)| bodies.iter().copied());
        let mut cached = Vec::new();
        self.cache.get(bodies, &mut cached);
        let source = doubt.source;
        self.reading += 1;
        if cached.iter().all(Option::is_some) {
            let sequences = doubt.messages.iter().map(|(sequence, _)| *sequence);
            let mut checked = Checked::new(source);
            if doubt.wants_content {
                let content = cached.into_iter().flatten().map(|bytes| Some(bytes[..].into()));
                checked.content = Some(sequences.zip(content).collect());
            } else {
                checked.whole = sequences.collect();
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
