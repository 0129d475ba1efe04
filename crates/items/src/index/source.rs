//! The items of a plan, one after the other, without those that are gone.

use super::leaves;
use super::plan::{Access, Plan, Range};
use crate::definition::Container;
use crate::item::stored::Stored;
use crate::item::ttl;
use crate::json::{self, walk};
use crate::keys::{self, Section, Version};
use crate::query::{Candidate, Path, Source, Step};
use crate::read::changes::{self, Change, Changes};
use crate::read::position;
use crate::view::{Direction, Entries, View};
use crate::{Refusal, Time, limits};
use bytes::Bytes;
use std::collections::VecDeque;

pub struct PlanSource<'a> {
    container: &'a Container,
    view: &'a dyn View,
    now: Time,
    plan: Plan,
    /// Ranges of the items and of the index that are left to open.
    ranges: VecDeque<Range>,
    entries: Option<Entries<'a>>,
    changes: Option<Changes<'a>>,
    /// Candidates with the same long text, which the index cannot tell apart, in their right order.
    sorted: VecDeque<Candidate>,
    /// All candidates in the order in which they were made, where the plan asks for it; without a text those that are read again.
    made: VecDeque<Candidate>,
    /// Read too far while they were collected.
    held: Option<(Bytes, Bytes)>,
    /// Until this position is met, candidates whose keys begin so are passed over.
    skips: Option<(Bytes, Vec<u8>)>,
    /// Keys looked at.
    pub steps: u64,
}

impl std::fmt::Debug for PlanSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlanSource").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl<'a> PlanSource<'a> {
    /// Begins at the position of a page before, or at the first candidate.
    pub fn open(
        container: &'a Container,
        view: &'a dyn View,
        now: Time,
        plan: Plan,
        resume: Option<&Bytes>,
    ) -> Result<PlanSource<'a>, Refusal> {
        let mut source = PlanSource {
            container,
            view,
            now,
            ranges: VecDeque::new(),
            entries: None,
            changes: None,
            sorted: VecDeque::new(),
            made: VecDeque::new(),
            held: None,
            skips: None,
            steps: 0,
            plan,
        };
        match source.plan.access.clone() {
            Access::Items(ranges) | Access::Index { ranges, .. } if source.plan.is_by_making => {
                source.open_ranges(ranges, None);
                source.collect_by_making(resume)?;
            }
            Access::Items(ranges) | Access::Index { ranges, .. } => source.open_ranges(ranges, resume),
            Access::Made => source.open_ranges(vec![made(container)], resume),
            Access::Changes { from, to } => source.open_changes(from, to, resume)?,
        }
        Ok(source)
    }

    fn open_ranges(&mut self, ranges: Vec<Range>, resume: Option<&Bytes>) {
        let is_ascending = self.plan.direction == Direction::Ascending;
        self.ranges = ranges.into();
        if !is_ascending {
            self.ranges = self.ranges.drain(..).rev().collect();
        }
        let Some(resume) = resume else { return };
        let mut start = [&keys::container(self.container.number)[..], position::start(resume)].concat();
        let mut end = [&start[..], &[0]].concat();
        let run = self.run_of(&start);
        if let Some(value) = &run {
            // The candidates of a run are not in the order of their keys: all of them come again, sorted, and are passed over.
            start.truncate(value.end);
            end = crate::order::end_of_prefix(&start);
        } else if position::is_cut(resume) {
            end = crate::order::end_of_prefix(&start);
        }
        if run.is_some() || position::is_cut(resume) {
            let begin = start[keys::SECTION_BYTES - 1..].to_vec();
            self.skips = Some((resume.clone(), begin));
        }
        if is_ascending {
            self.ranges.retain(|(_, to)| *to > start);
            if let Some((from, _)) = self.ranges.front_mut() {
                *from = std::mem::take(from).max(start);
            }
        } else {
            self.ranges.retain(|(from, _)| *from < end);
            if let Some((_, to)) = self.ranges.front_mut() {
                *to = std::mem::take(to).min(end);
            }
        }
    }

    fn open_changes(
        &mut self,
        from: Option<i64>,
        to: Option<i64>,
        resume: Option<&Bytes>,
    ) -> Result<(), Refusal> {
        let mut first = match from {
            Some(second) => changes::since(self.view, self.container, second)?,
            None => Version::default(),
        };
        let mut end = match to {
            Some(second) => Some(changes::since(self.view, self.container, second.saturating_add(1))?),
            None => None,
        };
        if let Some(resume) = resume.and_then(|resume| version_of(position::start(resume))) {
            match self.plan.direction {
                Direction::Ascending => first = first.max(resume),
                Direction::Descending => end = Some(behind(resume).min(end.unwrap_or(behind(resume)))),
            }
        }
        self.changes =
            Some(Changes::between(self.view, self.container.number, first, end, self.plan.direction));
        Ok(())
    }

    /// The next key and value of the ranges.
    fn entry(&mut self) -> Result<Option<(Bytes, Bytes)>, Refusal> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        loop {
            if let Some(entry) = self.entries.as_mut().and_then(Iterator::next) {
                self.steps += 1;
                return Ok(Some(entry?));
            }
            let Some((from, to)) = self.ranges.pop_front() else { return Ok(None) };
            self.entries = Some(self.view.scan(&from, &to, self.plan.direction));
        }
    }

    /// Where the value of an index key ends, if the plan is in order by an index and the value may be cut.
    fn run_of(&self, key: &[u8]) -> Option<IndexValue> {
        if !self.plan.is_ordered || !matches!(self.plan.access, Access::Index { .. }) {
            return None;
        }
        index_value(key).filter(|value| value.may_be_cut)
    }

    fn candidate(
        &self,
        key: &[u8],
        place: &[u8],
        item: Option<Stored>,
    ) -> Result<Option<Candidate>, Refusal> {
        if !self.plan.scope.has(&self.container.settings, place) {
            return Ok(None);
        }
        let item = match item {
            Some(item) => item,
            None => match Stored::read(self.view, self.container.number, place)? {
                Some(item) => item,
                None => return Ok(None),
            },
        };
        if ttl::is_gone(self.container, &item, place, self.now) {
            return Ok(None);
        }
        let made;
        let key = if self.plan.is_by_making {
            made = keys::by_rid(self.container.number, item.number);
            &made[..]
        } else {
            key
        };
        // What all keys of the container begin with need not be said.
        let position = position::of(&key[keys::SECTION_BYTES - 1..]);
        Ok(Some(Candidate { position, place: Bytes::copy_from_slice(place), body: item.text }))
    }

    /// Collects the candidates whose index entries have the same cut text, and sorts them by their whole values.
    fn collect_run(&mut self, first: (Bytes, Bytes), value: &IndexValue, path: &Path) -> Result<(), Refusal> {
        let mut run = Vec::new();
        let prefix = first.0.slice(..value.end);
        let mut next = Some(first);
        while let Some((key, stored)) = next {
            if !key.starts_with(&prefix) {
                self.held = Some((key, stored));
                break;
            }
            if let Some(candidate) = self.candidate(&key, &key[value.end..], None)? {
                run.push((sort_key(&candidate.body, path), candidate));
            }
            if run.len() > limits::INDEX_RUN {
                return Err(Refusal::bad(
                    "Too many items have the same long beginning of a text to sort them by it.",
                ));
            }
            next = self.entry()?;
        }
        run.sort_by(|left, right| (&left.0, &left.1.position).cmp(&(&right.0, &right.1.position)));
        if self.plan.direction == Direction::Descending {
            run.reverse();
        }
        if let Some((resume, _)) = &self.skips
            && !run.iter().any(|(_, candidate)| candidate.position == *resume)
        {
            // It was written meanwhile: better the run once more than not at all.
            self.skips = None;
        }
        self.sorted = run.into_iter().map(|(_, candidate)| candidate).collect();
        Ok(())
    }

    /// Collects every candidate from this position on, and sorts them by when they were made. Those that do not fit are read again.
    fn collect_by_making(&mut self, resume: Option<&Bytes>) -> Result<(), Refusal> {
        let mut held = 0;
        while let Some(mut candidate) = self.next_of_ranges()? {
            if resume.is_some_and(|resume| candidate.position < *resume) {
                continue;
            }
            held += candidate.body.len();
            if held > limits::PAGE_BYTES {
                candidate.body = Bytes::new();
            }
            self.made.push_back(candidate);
        }
        self.made.make_contiguous().sort_by(|left, right| left.position.cmp(&right.position));
        Ok(())
    }

    fn next_by_making(&mut self) -> Result<Option<Candidate>, Refusal> {
        let Some(mut candidate) = self.made.pop_front() else { return Ok(None) };
        if candidate.body.is_empty()
            && let Some(item) = Stored::read(self.view, self.container.number, &candidate.place)?
        {
            candidate.body = item.text;
        }
        Ok(Some(candidate))
    }

    fn next_of_ranges(&mut self) -> Result<Option<Candidate>, Refusal> {
        loop {
            if let Some(candidate) = self.sorted.pop_front() {
                return Ok(Some(candidate));
            }
            let Some((key, value)) = self.entry()? else { return Ok(None) };
            let found = match &self.plan.access {
                Access::Index { path, .. } => {
                    let path = path.clone();
                    if let Some(value) = self.run_of(&key) {
                        self.collect_run((key, Bytes::new()), &value, &path)?;
                        continue;
                    }
                    match index_value(&key) {
                        Some(value) => self.candidate(&key, &key[value.end..], None)?,
                        None => None,
                    }
                }
                Access::Made => self.candidate(&key, &value, None)?,
                _ => self.candidate(&key, &key[keys::SECTION_BYTES..], Some(Stored::decode(&value)?))?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    fn next_of_changes(&mut self) -> Result<Option<Candidate>, Refusal> {
        while let Some(change) = self.changes.as_mut().and_then(Iterator::next) {
            let Change { version, place, .. } = change?;
            self.steps += 1;
            let mut key = keys::section(self.container.number, Section::Changes);
            key.extend_from_slice(&version.lsn.to_be_bytes());
            key.extend_from_slice(&version.index.to_be_bytes());
            if let Some(candidate) = self.candidate(&key, &place, None)? {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }
}

impl Source for PlanSource<'_> {
    fn next(&mut self) -> Result<Option<Candidate>, Refusal> {
        if self.plan.is_by_making {
            return self.next_by_making();
        }
        loop {
            let next = if self.changes.is_some() { self.next_of_changes()? } else { self.next_of_ranges()? };
            let Some((resume, begin)) = &self.skips else { return Ok(next) };
            let Some(candidate) = next else { return Ok(None) };
            let begins_so = position::start(&candidate.position).starts_with(begin);
            if candidate.position == *resume || !begins_so {
                self.skips = None;
                return Ok(Some(candidate));
            }
        }
    }
}

/// The numbers of all items, as a range of keys.
fn made(container: &Container) -> Range {
    let from = keys::section(container.number, Section::Rids);
    let to = crate::order::end_of_prefix(&from);
    (from, to)
}

/// The value in an index key: where it ends, and whether the text goes on behind it.
struct IndexValue {
    end: usize,
    may_be_cut: bool,
}

fn index_value(key: &[u8]) -> Option<IndexValue> {
    // Section, generation, path.
    let start = keys::SECTION_BYTES + 2 + 8;
    let length = leaves::value_length(key.get(start..)?)?;
    Some(IndexValue { end: start + length, may_be_cut: length + 4 > limits::INDEX_TEXT_BYTES })
}

/// The whole value of an item at a path, in order.
fn sort_key(body: &[u8], path: &Path) -> Vec<u8> {
    let mut value = Some(body);
    for step in path {
        value = match step {
            Step::Member(name) => {
                value.filter(|text| text.first() == Some(&b'{')).and_then(|text| walk::member(text, name))
            }
            Step::Index(_) | Step::Each => None,
        };
    }
    let mut key = Vec::new();
    if let Some(value) = value.and_then(|text| json::parse(text).ok()) {
        json::sort_key(&value, &mut key);
    }
    key
}

fn version_of(position: &[u8]) -> Option<Version> {
    let bytes: &[u8; 10] = position.get(1..)?.first_chunk()?;
    let (lsn, index) = bytes.split_first_chunk::<8>()?;
    Some(Version { lsn: u64::from_be_bytes(*lsn), index: u16::from_be_bytes(index.try_into().ok()?) })
}

fn behind(version: Version) -> Version {
    match version.index.checked_add(1) {
        Some(index) => Version { index, ..version },
        None => Version { lsn: version.lsn + 1, index: 0 },
    }
}
