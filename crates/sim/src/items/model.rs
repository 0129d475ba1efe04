//! The same items in a map, without a disk: what every answer must be, and what must be there after a crash.

use super::ask::{Ask, Content, Heard, Key, Match};
use items::Time;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    content: Content,
    written: i64,
    /// Counts writes: the order in the change feed, and who it is.
    order: u64,
    tag: Option<String>,
}

/// What is stored after some command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct State {
    has_database: bool,
    has_container: bool,
    ttl: Option<i64>,
    items: BTreeMap<Key, Item>,
}

impl State {
    /// The end of an item's life under the container's setting.
    fn end(&self, item: &Item) -> Option<i64> {
        let seconds = match (self.ttl, item.content.ttl) {
            (None, _) | (_, Some(-1)) | (Some(-1), None) => return None,
            (Some(_), Some(own)) => own,
            (Some(default), None) => default,
        };
        Some(item.written + seconds * 1_000)
    }

    fn is_expired(&self, item: &Item, now: i64) -> bool {
        self.end(item).is_some_and(|end| end <= now)
    }

    fn alive(&self, key: &Key, now: i64) -> Option<&Item> {
        self.items.get(key).filter(|item| !self.is_expired(item, now))
    }

    /// What everybody sees at `now`.
    fn shown(&self, now: i64) -> BTreeMap<Key, u64> {
        let alive = self.items.iter().filter(|(_, item)| !self.is_expired(item, now));
        alive.map(|(key, item)| (*key, item.content.number)).collect()
    }
}

/// A command that was asked, what must be heard, and what is stored behind it.
#[derive(Debug)]
struct Asked {
    number: u64,
    ask: Ask,
    expected: Heard,
    after: State,
    /// The writes of items that it made, by order.
    now: i64,
}

#[derive(Debug, Default)]
pub struct Model {
    /// Everything that was answered.
    heard: State,
    /// Asked and not answered, oldest first.
    asked: Vec<Asked>,
    next: u64,
    writes: u64,
    /// Writes of which somebody was told that they have expired.
    gone: BTreeSet<u64>,
    /// The latest time at which somebody was told something.
    told: i64,
}

/// What a read must find.
#[derive(Debug)]
pub struct Expected {
    pub number: Option<u64>,
    pub is_expired: bool,
}

impl Model {
    fn latest(&self) -> &State {
        self.asked.last().map_or(&self.heard, |asked| &asked.after)
    }

    /// The entity tag that was heard for an item, if nothing was asked since.
    pub fn tag(&self, key: &Key) -> Option<String> {
        self.latest().items.get(key).and_then(|item| item.tag.clone())
    }

    /// A command is decided at `now`. Returns the number by which its answer is known.
    pub fn ask(&mut self, ask: &Ask, now: Time, has_room: bool) -> u64 {
        let mut after = self.latest().clone();
        let frees_room = matches!(ask, Ask::Delete { .. });
        let expected = match has_room || frees_room {
            true => self.apply(ask, now.0, &mut after),
            false => Heard::Refused { status: 507 },
        };
        self.next += 1;
        self.asked.push(Asked { number: self.next, ask: ask.clone(), expected, after, now: now.0 });
        self.next
    }

    fn apply(&mut self, ask: &Ask, now: i64, state: &mut State) -> Heard {
        match ask {
            Ask::Database => {
                let status = if std::mem::replace(&mut state.has_database, true) { 409 } else { 201 };
                done(status, None)
            }
            Ask::Container { ttl } => {
                state.has_container = true;
                state.ttl = *ttl;
                done(201, None)
            }
            Ask::SetTtl { ttl } => {
                // What had expired by now stays away, whatever the new setting is (C-41).
                let expired: Vec<Key> = state
                    .items
                    .iter()
                    .filter(|(_, item)| state.is_expired(item, now))
                    .map(|(key, _)| *key)
                    .collect();
                expired.iter().for_each(|key| drop(state.items.remove(key)));
                state.ttl = *ttl;
                done(200, None)
            }
            Ask::Create { key, content } => match state.alive(key, now) {
                Some(_) => Heard::Refused { status: 409 },
                None => self.write(*key, *content, now, state, 201),
            },
            Ask::Upsert { key, content } => {
                let status = if state.alive(key, now).is_some() { 200 } else { 201 };
                self.write(*key, *content, now, state, status)
            }
            Ask::Replace { key, content, matching } => match matches(state.alive(key, now), matching) {
                Ok(()) => self.write(*key, *content, now, state, 200),
                Err(status) => Heard::Refused { status },
            },
            Ask::Delete { key, matching } => match matches(state.alive(key, now), matching) {
                Ok(()) => {
                    state.items.remove(key);
                    done(204, None)
                }
                Err(status) => Heard::Refused { status },
            },
            Ask::Batch { partition, writes, creates_last } => {
                let mut attempt = state.clone();
                let mut heard = Vec::new();
                for (nth, (id, content)) in writes.iter().enumerate() {
                    let key = Key { partition: *partition, id: *id };
                    let is_there = attempt.alive(&key, now).is_some();
                    if *creates_last && nth + 1 == writes.len() && is_there {
                        heard.iter_mut().for_each(|status| *status = 424);
                        heard.push(409);
                        return Heard::Batch(heard);
                    }
                    self.write(key, *content, now, &mut attempt, 0);
                    heard.push(if is_there { 200 } else { 201 });
                }
                *state = attempt;
                Heard::Batch(heard)
            }
            Ask::Advance { .. } => done(200, None),
        }
    }

    fn write(&mut self, key: Key, content: Content, now: i64, state: &mut State, status: u16) -> Heard {
        self.writes += 1;
        state.items.insert(key, Item { content, written: now, order: self.writes, tag: None });
        done(status, Some(content.number))
    }

    /// An answer has left the server: it must be the next, and the right one.
    pub fn answered(&mut self, number: u64, heard: Heard) -> Result<(), String> {
        let Some(at) = self.asked.iter().position(|asked| asked.number == number) else {
            return Err(format!("answer {number} comes twice, or for nobody"));
        };
        // Answers of one append come in any order as far as a client can tell; all before it are durable with it.
        let asked = &self.asked[at];
        if !agrees(&asked.expected, &heard) {
            return Err(format!(
                "{:?} at {} was answered {heard:?}, not {:?}",
                asked.ask, asked.now, asked.expected
            ));
        }
        self.told = self.told.max(asked.now);
        if at > 0 {
            return Err(format!("answer {number} came before an older one"));
        }
        let asked = self.asked.remove(0);
        let written = match &asked.ask {
            Ask::Create { key, .. } | Ask::Upsert { key, .. } | Ask::Replace { key, .. } => Some(*key),
            _ => None,
        };
        self.heard = asked.after;
        // The tag is known from now on, unless something was asked about the item meanwhile.
        if let (Some(key), Heard::Done { tag: Some(tag), .. }) = (written, heard) {
            let order = self.heard.items.get(&key).map(|item| item.order);
            let states =
                std::iter::once(&mut self.heard).chain(self.asked.iter_mut().map(|asked| &mut asked.after));
            for state in states {
                if let Some(item) = state.items.get_mut(&key).filter(|item| Some(item.order) == order) {
                    item.tag = Some(tag.clone());
                }
            }
        }
        Ok(())
    }

    /// What a read of what is committed must find.
    pub fn expects(&self, key: &Key, now: Time) -> Expected {
        let item = self.heard.items.get(key);
        Expected {
            number: self.heard.alive(key, now.0).map(|item| item.content.number),
            is_expired: item.is_some_and(|item| self.heard.is_expired(item, now.0)),
        }
    }

    /// Somebody was told what a read has found.
    pub fn has_read(&mut self, key: &Key, now: Time, number: Option<u64>) -> Result<(), String> {
        let item = self.heard.items.get(key);
        if let (Some(number), Some(item)) = (number, item)
            && item.content.number == number
            && self.gone.contains(&item.order)
        {
            return Err(format!("C-41: {key:?} with {number} had expired, and came back"));
        }
        let expected = self.expects(key, now);
        if expected.number != number {
            return Err(format!("{key:?} at {now:?} is read as {number:?}, not {:?}", expected.number));
        }
        self.note_gone(now.0);
        Ok(())
    }

    /// Whatever has expired by now has expired for good.
    fn note_gone(&mut self, now: i64) {
        self.told = self.told.max(now);
        let heard = &self.heard;
        let expired = heard.items.values().filter(|item| heard.is_expired(item, now));
        self.gone.extend(expired.map(|item| item.order));
    }

    /// The change feed from the beginning: every item that is there once, in the order of the last writes.
    pub fn has_fed(&mut self, now: Time, feed: &[u64]) -> Result<(), String> {
        let mut alive: Vec<&Item> =
            self.heard.items.values().filter(|item| !self.heard.is_expired(item, now.0)).collect();
        alive.sort_by_key(|item| item.order);
        let expected: Vec<u64> = alive.iter().map(|item| item.content.number).collect();
        match expected == feed {
            true => Ok(()),
            false => Err(format!("the change feed at {now:?} is {feed:?}, not {expected:?}")),
        }
    }

    /// After a start: everything answered is there, and of what was not answered the first part and nothing else.
    pub fn recovered(&mut self, found: &BTreeMap<Key, u64>, now: Time) -> Result<(), String> {
        let mut candidates = std::iter::once(&self.heard).chain(self.asked.iter().map(|asked| &asked.after));
        let Some(state) = candidates.find(|state| state.shown(now.0) == *found) else {
            let least = self.heard.shown(now.0);
            let most = self.latest().shown(now.0);
            return Err(format!(
                "after a start at {now:?} there is {found:?}; answered was {least:?}, and {} more were asked, up to {most:?}",
                self.asked.len()
            ));
        };
        let mut state = state.clone();
        if let Some((key, item)) =
            state.items.iter().find(|(key, item)| found.contains_key(key) && self.gone.contains(&item.order))
        {
            return Err(format!("C-41: {key:?} with {} had expired, and came back", item.content.number));
        }
        state.items.values_mut().for_each(|item| item.tag = None);
        self.heard = state;
        self.asked.clear();
        Ok(())
    }

    /// At the end everything was answered, and is there.
    pub fn settled(&self, found: &BTreeMap<Key, u64>, now: Time) -> Result<(), String> {
        if let Some(asked) = self.asked.first() {
            return Err(format!("{:?} was never answered", asked.ask));
        }
        let expected = self.heard.shown(now.0);
        match expected == *found {
            true => Ok(()),
            false => Err(format!("at the end there is {found:?}, not {expected:?}")),
        }
    }
}

fn done(status: u16, number: Option<u64>) -> Heard {
    Heard::Done { status, number, tag: None }
}

/// Whether an answer is the expected one; tags are whatever they are.
fn agrees(expected: &Heard, heard: &Heard) -> bool {
    match (expected, heard) {
        (Heard::Done { status, number, .. }, Heard::Done { status: other, number: found, .. }) => {
            status == other && (number.is_none() || number == found)
        }
        (Heard::Batch(expected), Heard::Batch(heard)) => expected == heard,
        (Heard::Refused { status }, Heard::Refused { status: other }) => status == other,
        _ => false,
    }
}

/// Whether a write of an item that must be there may go on; the status of the refusal otherwise.
fn matches(item: Option<&Item>, matching: &Match) -> Result<(), u16> {
    match (item, matching) {
        (None, _) => Err(404),
        (Some(_), Match::Any) => Ok(()),
        (Some(_), Match::Nonsense) => Err(412),
        (Some(item), Match::Known(tag)) if item.tag.as_ref() == Some(tag) => Ok(()),
        (Some(_), Match::Known(_)) => Err(412),
    }
}
