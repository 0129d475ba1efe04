//! What a decision needs of what is stored: from the cache at once, or read on another thread.

use super::Partition;
use super::places::place_in;
use crate::ids::ForJournal;
use crate::limits::COMMAND_EFFECT_BYTES;
use crate::runner::{MessagesJob, ReadJob};
use crate::work::{MessagesRead, WaitingCommand, Work};
use broker::{
    Arrivals, BodyId, Command, Decided, Found, LinkId, Material, Need, Needs, Read, ReadRequest, Sequence,
    Time, What,
};
use bytes::Bytes;
use journal::Place;

impl Partition {
    /// Finds out what a decision must know: from the cache, and then it is made at once, or from the disk, on another thread if there
    /// is one. Returns whether the command waits.
    pub(super) fn find_out(&mut self, command: &mut Command, Needs(needs): Needs, now: Time) -> bool {
        let mut cached = Vec::new();
        self.cache.get(needs.iter().map(|need| need.body), &mut cached);
        let found_bytes: usize = needs.iter().map(|need| need.found_bytes()).sum();
        let (mut found, mut unread) = (Vec::with_capacity(needs.len()), Vec::new());
        for (need, cached) in needs.into_iter().zip(cached) {
            match cached {
                Some(bytes) => found.push(need.found(&bytes)),
                None => unread.push(need),
            }
        }
        if unread.is_empty() {
            let decided = self.decide_one(command, Arrivals::default(), &found.into_iter().collect(), now);
            assert_eq!(decided, Decided::Done, "a command asks once");
            return false;
        }
        // What is left in its place is nothing that may be decided.
        let command = std::mem::replace(command, Command::DropParts { link: LinkId::default() });
        let places_bytes = unread.len() * size_of::<(Need, Place)>();
        let own_bytes = size_of::<Command>() + COMMAND_EFFECT_BYTES + command.held_bytes();
        let waiting = WaitingCommand { command, held_bytes: own_bytes + found_bytes + places_bytes };
        self.read_for(waiting, unread, found);
        true
    }

    /// Has bodies read for a command.
    fn read_for(&mut self, waiting: WaitingCommand, unread: Vec<Need>, mut found: Vec<(BodyId, Found)>) {
        let mut places = Vec::with_capacity(unread.len());
        for need in unread {
            match place_in(&*self.journal, self.stored_as(need.body)) {
                Some(place) => places.push((need, place)),
                // What is not written yet is what was changed of a message a moment ago, and it is only asked whether it can be read.
                None => {
                    debug_assert_eq!(
                        need.what,
                        What::IsReadable,
                        "{need:?} is looked into before it is written"
                    );
                    found.push(need.found(&[]));
                }
            }
        }
        self.budget.hold(waiting.held_bytes);
        self.reading += 1;
        self.workers.read(ReadJob { waiting, places, found }, &self.inbox);
    }

    /// A command comes again that has waited for the disk.
    pub(super) fn decide_again(&mut self, waiting: WaitingCommand, material: &Material, now: Time) {
        self.reading -= 1;
        let WaitingCommand { mut command, held_bytes } = waiting;
        self.drafting.held_bytes += held_bytes;
        let connection = command.connection();
        let waits = match self.decide_one(&command, Arrivals::default(), material, now) {
            Decided::Done => false,
            Decided::Needs(needs) => self.find_out(&mut command, needs, now),
        };
        self.ports.decided(Some(connection), usize::from(!waits));
        self.take_decision(&Bytes::new());
    }

    /// What a command must know cannot be read.
    pub(super) fn refuse_unreadable(&mut self, waiting: &WaitingCommand, why: &str, now: Time) {
        self.reading -= 1;
        self.drafting.held_bytes += waiting.held_bytes;
        self.health.report_damage(why);
        self.context(now);
        self.broker.refuse_unreadable(&waiting.command, &mut self.decision);
        self.ports.decided(Some(waiting.command.connection()), 1);
        self.take_decision(&Bytes::new());
    }

    /// Finds out whether messages can be read: those in the cache are whole, for they never left memory.
    pub(super) fn read_messages(&mut self, request: ReadRequest) {
        let bodies = request.messages.iter().flat_map(|(_, bodies)| bodies.iter().copied());
        let mut cached = Vec::new();
        self.cache.get(bodies, &mut cached);
        let source = request.source;
        self.reading += 1;
        if cached.iter().all(Option::is_some) {
            let mut read = MessagesRead::new(source);
            if request.wants_content {
                let mut cached = cached.into_iter().flatten().map(|bytes| Box::from(&bytes[..]));
                let content = request.messages.iter().map(|(sequence, bodies)| {
                    (*sequence, Some(Read::of(cached.by_ref().take(bodies.len()))))
                });
                read.content = Some(content.collect());
            } else {
                read.whole = request.messages.iter().map(|(sequence, _)| *sequence).collect();
            }
            return self.backlog.push_back(Work::MessagesRead(read));
        }
        let place = |body| {
            place_in(&*self.journal, self.stored_as(body)).expect("what may be handed out was written")
        };
        let places =
            |(sequence, bodies): (Sequence, Vec<BodyId>)| (sequence, bodies.into_iter().map(place).collect());
        let messages = request.messages.into_iter().map(places).collect();
        let wants_content = request.wants_content;
        self.workers.read_messages(MessagesJob { source, messages, wants_content }, &self.inbox);
    }

    pub(super) fn messages_read(&mut self, read: MessagesRead, now: Time) {
        self.reading -= 1;
        read.damage.iter().for_each(|damage| self.health.report_damage(damage));
        let context = self.context(now);
        let MessagesRead { source, whole, damaged, content, .. } = read;
        let before = self.broker.steps_spent(&self.decision);
        match content {
            Some(content) => self.broker.contents_read(source, content, context, &mut self.decision),
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
