//! The same items in a map, without a disk: what every answer must be, and what must be there after a crash.

use super::ask::{Ask, Heard, Key, Settings};
use super::feeds::{Change, Feeds};
use super::state::State;
use items::Time;
use std::collections::{BTreeMap, BTreeSet};

/// How far what was decided has come: the container's last transaction and its entity tag. Says which of several states it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mark {
    pub lsn: u64,
    pub tag: String,
}

/// A command that was asked, what must be heard, and what is stored behind it.
#[derive(Debug)]
struct Asked {
    number: u64,
    ask: Ask,
    expected: Heard,
    after: State,
    mark: Mark,
    changes: Vec<Change>,
    now: i64,
    /// Writes that the answer says have expired.
    expired: Vec<u64>,
    /// The time that no start may go behind once this is answered.
    least_time: i64,
}

#[derive(Debug, Default)]
pub struct Model {
    /// Everything that was answered.
    heard: State,
    /// Asked and not answered, oldest first.
    asked: Vec<Asked>,
    next: u64,
    /// Writes of which somebody was told that they have expired.
    gone: BTreeSet<u64>,
    least_time: i64,
    /// The last order that was ever given, lost or not.
    order: u64,
    pub feeds: Feeds,
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

    pub fn settings(&self) -> Settings {
        self.latest().settings
    }

    /// Whether somebody was not answered yet.
    pub fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Everything that was answered.
    pub fn heard(&self) -> &State {
        &self.heard
    }

    /// The entity tag that was heard for an item, if nothing was asked since.
    pub fn tag(&self, key: &Key) -> Option<String> {
        self.latest().items.get(key).and_then(|item| item.tag.clone())
    }

    /// A command is decided at `now`. Returns the number by which its answer is known.
    pub fn ask(&mut self, ask: &Ask, now: Time, has_room: bool) -> u64 {
        let mut after = self.latest().clone();
        after.order = self.order;
        let expired = |key: &Key| Some(after.expired(key, now.0)?.order);
        let expired: Vec<u64> = ask.keys().iter().filter_map(expired).collect();
        let mut changes = Vec::new();
        let expected = match has_room || ask.frees_room() {
            true => after.apply(ask, now.0, &mut changes),
            false => Heard::Refused { status: 507 },
        };
        let is_durable = !changes.is_empty() || matches!(ask, Ask::Set(_) | Ask::Advance { .. });
        let moved = if let Ask::Advance { by_ms } = ask { *by_ms as i64 } else { 0 };
        // Other refusals would be the same if the item were still there.
        let tells_expiry = matches!(expected, Heard::Done { .. } | Heard::Refused { status: 404 });
        let expired = if tells_expiry { expired } else { Vec::new() };
        let is_refused = matches!(expected, Heard::Refused { .. });
        let least_time = if is_durable && !is_refused { now.0 + moved } else { 0 };
        self.order = after.order;
        self.next += 1;
        self.asked.push(Asked {
            number: self.next,
            ask: ask.clone(),
            expected,
            after,
            mark: Mark::default(),
            changes,
            now: now.0,
            expired,
            least_time,
        });
        self.next
    }

    /// How far what was decided has come with the last command. Without it nothing was decided: the process has stopped.
    pub fn was_decided(&mut self, mark: Option<Mark>) {
        match (mark, self.asked.last_mut()) {
            (Some(mark), Some(asked)) => asked.mark = mark,
            (None, Some(_)) => drop(self.asked.pop()),
            (_, None) => {}
        }
    }

    /// An answer has left the server: it must be the next, and the right one.
    pub fn answered(&mut self, number: u64, heard: Heard) -> Result<(), String> {
        let Some(at) = self.asked.iter().position(|asked| asked.number == number) else {
            return Err(format!("answer {number} comes twice, or for nobody"));
        };
        let asked = &self.asked[at];
        if !agrees(&asked.expected, &heard) {
            return Err(format!(
                "{:?} at {} was answered {heard:?}, not {:?}",
                asked.ask, asked.now, asked.expected
            ));
        }
        if at > 0 {
            return Err(format!("answer {number} came before an older one"));
        }
        let asked = self.asked.remove(0);
        let written = match &asked.ask {
            Ask::Create { key, .. } | Ask::Upsert { key, .. } | Ask::Replace { key, .. } => Some(*key),
            Ask::Patch { key, .. } => Some(*key),
            _ => None,
        };
        self.became_durable(asked);
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

    fn became_durable(&mut self, asked: Asked) {
        self.gone.extend(asked.expired);
        self.least_time = self.least_time.max(asked.least_time);
        self.feeds.expect(asked.changes);
        self.heard = asked.after;
    }

    /// What a read of what is committed must find.
    pub fn expects(&self, key: &Key, now: Time) -> Expected {
        Expected {
            number: self.heard.alive(key, now.0).map(|item| item.content.number),
            is_expired: self.heard.expired(key, now.0).is_some(),
        }
    }

    /// Somebody was told what a read has found.
    pub fn has_read(&mut self, key: &Key, now: Time, number: Option<u64>) -> Result<(), String> {
        let expected = self.expects(key, now);
        if expected.number != number {
            return Err(format!("{key:?} at {now:?} is read as {number:?}, not {:?}", expected.number));
        }
        if let Some(item) = self.heard.alive(key, now.0)
            && self.gone.contains(&item.order)
        {
            return Err(format!("C-41: {key:?} with {} had expired, and came back", item.content.number));
        }
        self.gone.extend(self.heard.expired(key, now.0).map(|item| item.order));
        Ok(())
    }

    /// After a start: everything answered is there, and of what was not answered the first part and nothing else.
    pub fn recovered(&mut self, found: &BTreeMap<Key, u64>, mark: &Mark, now: Time) -> Result<(), String> {
        if now.0 < self.least_time {
            return Err(format!("C-42: the time after a start is {now:?}, but was {}", self.least_time));
        }
        let is_behind = |asked: &Asked| asked.mark.tag == mark.tag && asked.mark.lsn <= mark.lsn;
        let count = self.asked.iter().rposition(is_behind).map_or(0, |at| at + 1);
        let lost = self.asked.split_off(count);
        for asked in std::mem::take(&mut self.asked) {
            // Nobody was told what they would have been told.
            self.became_durable(Asked { expired: Vec::new(), least_time: 0, ..asked });
        }
        let expected = self.heard.shown(now.0);
        if expected != *found {
            return Err(format!(
                "after a start at {now:?} there is {found:?}, not {expected:?}; {} more were asked",
                lost.len()
            ));
        }
        let back = self.heard.all_alive(now.0).find(|(_, item)| self.gone.contains(&item.order));
        if let Some((key, item)) = back {
            return Err(format!("C-41: {key:?} with {} had expired, and came back", item.content.number));
        }
        self.heard.items.values_mut().for_each(|item| item.tag = None);
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
