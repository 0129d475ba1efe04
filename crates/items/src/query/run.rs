//! From candidates to a page of rows.
//!
//! Three ways. Rows *stream* when they come in the order of candidates: the page ends where it is full. Rows are *sorted* for ORDER BY and
//! DISTINCT: every candidate is seen, the best page behind the resume key is kept. Rows are *grouped* for aggregates: every candidate is
//! seen, groups are written in the order of their keys. Each way ends with a token that names the last row.

use super::continuation::{Token, short};
use super::evaluate::{Env, Stop, too_long};
use super::functions::document_id;
use super::meter::Meter;
use super::plan::{FromSource, Select, Selection};
use super::rank::Rank;
use super::rows::{Flow, Groups, each_row, project, sort_key};
use super::value::Val;
use super::{Candidate, PageRequest, Rows, Source};
use crate::limits;
use crate::refusal::Refusal;
use crate::time::Time;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap, HashSet};

/// All rows of a candidate are used up.
const WHOLE: u64 = u64::MAX;

pub fn run(
    select: &Select,
    fingerprint: u64,
    source: &mut dyn Source,
    page: PageRequest,
    now: Time,
    meter: &Meter<'_>,
) -> Result<Rows, Refusal> {
    let resume = page.resume.map(|resume| resume.token).unwrap_or_default();
    let most = select.top.or(select.slice.map(|(_, limit)| limit)).unwrap_or(u64::MAX);
    let offset = select.slice.map_or(0, |(offset, _)| offset);
    let mut run = Run {
        select,
        now,
        meter,
        room: page.max_items.max(1),
        left: most.saturating_sub(resume.given),
        to_skip: offset.saturating_sub(resume.skipped),
        bytes: 0,
        next: Token {
            is_ordered: page.is_ordered,
            given: resume.given,
            skipped: resume.skipped,
            ..Token::default()
        },
        rows: Rows::default(),
    };
    let mut nothing = Nothing { is_over: false };
    let source = if reads_items(select) { source } else { &mut nothing };
    let has_more = if run.left == 0 {
        false
    } else if select.is_grouped() {
        run.grouped(source, &resume)?
    } else if let Some(rank) = &select.rank {
        run.ranked(rank, source, &resume)?
    } else if select.is_distinct || !(select.order.is_empty() || page.is_ordered) {
        run.sorted(source, &resume)?
    } else {
        run.stream(source, &resume)?
    };
    if has_more && run.left > 0 {
        run.rows.continuation = Some(run.next.encode(fingerprint, page.binding));
    }
    if select.counts_items() {
        run.rows.metrics.used_index = true;
        run.rows.metrics.retrieved_items = 0;
        run.rows.metrics.retrieved_bytes = 0;
    }
    run.rows.metrics.returned_items = run.rows.values.len() as u64;
    run.rows.metrics.returned_bytes = run.rows.values.iter().map(|row| row.len() as u64).sum();
    Ok(run.rows)
}

pub fn reads_items(select: &Select) -> bool {
    matches!(select.from.first().map(|from| &from.source), Some(FromSource::Items(_)))
}

/// The one candidate of a query that reads no items.
struct Nothing {
    is_over: bool,
}

impl Source for Nothing {
    fn next(&mut self) -> Result<Option<Candidate>, Refusal> {
        let is_first = !std::mem::replace(&mut self.is_over, true);
        Ok(is_first.then(|| Candidate {
            position: Bytes::from_static(b"0"),
            place: Bytes::new(),
            body: Bytes::from_static(b"{}"),
        }))
    }
}

struct Run<'p> {
    select: &'p Select,
    now: Time,
    meter: &'p Meter<'p>,
    /// Rows that the page has room for.
    room: usize,
    /// Rows that TOP or LIMIT leave.
    left: u64,
    /// Rows that OFFSET still passes over.
    to_skip: u64,
    bytes: usize,
    next: Token,
    rows: Rows,
}

impl<'p> Run<'p> {
    fn candidate(&mut self, source: &mut dyn Source) -> Result<Option<Candidate>, Refusal> {
        let candidate = source.next()?;
        if let Some(candidate) = &candidate {
            self.rows.metrics.retrieved_items += 1;
            self.rows.metrics.retrieved_bytes += candidate.body.len() as u64;
        }
        Ok(candidate)
    }

    /// For another item.
    fn env<'a>(&self) -> Env<'a>
    where
        'p: 'a,
    {
        self.meter.begin_item();
        let random = (self.now.0 as u64) ^ self.rows.metrics.retrieved_items.rotate_left(32);
        Env::new(self.now, random, self.meter)
    }

    fn spend(&mut self, steps: u64) -> Result<(), Refusal> {
        self.rows.steps += steps + 1;
        self.meter.look(limits::STEP_BYTES as usize).map_err(|stop| *stop)
    }

    fn is_full(&self, row: usize) -> bool {
        let count = self.rows.values.len();
        count >= self.room || count > 0 && self.bytes + row > limits::PAGE_BYTES
    }

    fn give(&mut self, row: Bytes) -> Result<(), Stop> {
        self.meter.keep(row.len())?;
        self.bytes += row.len();
        self.left -= 1;
        self.next.given += 1;
        self.rows.values.push(row);
        Ok(())
    }

    fn stream(&mut self, source: &mut dyn Source, resume: &Token) -> Result<bool, Refusal> {
        let select = self.select;
        let is_item_itself = is_item_itself(select);
        while let Some(candidate) = self.candidate(source)? {
            let used = if candidate.position == resume.position { resume.within } else { 0 };
            if used == WHOLE {
                continue;
            }
            if self.is_full(0)
                || self.rows.steps > limits::QUERY_PAGE_STEPS
                || self.meter.work() > limits::QUERY_PAGE_WORK
            {
                return Ok(true);
            }
            let mut env = self.env();
            let item = Val::of_text(candidate.body.trim_ascii());
            let mut seen = 0;
            let flow = each_row(select, Some(&item), &mut env, &mut |env| {
                if seen < used {
                    seen += 1;
                    return Ok(Flow::On);
                }
                let row = project(select, env)?;
                if row.is_undefined() {
                    seen += 1;
                    return Ok(Flow::On);
                }
                if self.to_skip > 0 {
                    self.to_skip -= 1;
                    self.next.skipped += 1;
                    seen += 1;
                    return Ok(Flow::On);
                }
                let row = if is_item_itself { candidate.body.clone() } else { written(&row, env)? };
                if self.left == 0 || self.is_full(row.len()) {
                    return Ok(Flow::Enough);
                }
                self.give(row)?;
                seen += 1;
                Ok(Flow::On)
            })
            .map_err(|stop| *stop)?;
            let steps = env.steps;
            drop(env);
            self.spend(steps)?;
            self.next.position = candidate.position;
            self.next.within = if flow == Flow::Enough { seen } else { WHOLE };
            if flow == Flow::Enough || self.left == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn sorted(&mut self, source: &mut dyn Source, resume: &Token) -> Result<bool, Refusal> {
        let select = self.select;
        // One more row than the page gives tells that there are more.
        let want = self.to_skip.saturating_add(self.left.min(self.room as u64));
        let want = usize::try_from(want).unwrap_or(usize::MAX);
        let mut sorting = Sorting::new(select, resume, want, self.meter);
        while let Some(candidate) = self.candidate(source)? {
            let steps = sorting.take_rows_of(&candidate, self.env()).map_err(|stop| *stop)?;
            self.spend(steps)?;
        }
        let best = sorting.end().map_err(|stop| *stop)?;
        self.give_sorted(best)
    }

    /// A score depends on all rows, so all of them are held until the last one is seen.
    fn ranked(&mut self, rank: &Rank, source: &mut dyn Source, resume: &Token) -> Result<bool, Refusal> {
        let select = self.select;
        let (mut facts, mut rows) = (Vec::new(), Vec::new());
        let meter = self.meter;
        while let Some(candidate) = self.candidate(source)? {
            let mut env = self.env();
            let item = Val::of_text(candidate.body.trim_ascii());
            // Equal scores come in the order in which the items were made, as in the service.
            let made = document_id(&item).as_integer().unwrap_or_default();
            let mut number = 0_u64;
            each_row(select, Some(&item), &mut env, &mut |env| {
                let row = project(select, env)?;
                if !row.is_undefined() {
                    let made = made.to_be_bytes();
                    let tie = [&made[..], &short(&candidate.place), &number.to_be_bytes()].concat();
                    number += 1;
                    let row = written(&row, env)?;
                    let known = rank.facts(env)?;
                    // One item may have millions of rows.
                    meter.keep(tie.len() + row.len() + Rank::held_bytes(&known))?;
                    facts.push(known);
                    rows.push((tie, row));
                }
                Ok(Flow::On)
            })
            .map_err(|stop| *stop)?;
            let steps = env.steps;
            drop(env);
            self.spend(steps)?;
        }
        let want = self.to_skip.saturating_add(self.left.min(self.room as u64));
        let want = usize::try_from(want).unwrap_or(usize::MAX);
        let mut best = Best::new(want, self.meter);
        for (score, (tie, row)) in rank.keys(&facts).into_iter().zip(rows) {
            let key = [&score[..], &tie].concat();
            if place(&key, score.len(), resume) == Place::Behind {
                best.keep(key, score.len(), row).map_err(|stop| *stop)?;
            }
        }
        self.give_sorted(best)
    }

    /// Gives the rows of a sorted page, OFFSET first.
    fn give_sorted(&mut self, best: Best<'_>) -> Result<bool, Refusal> {
        let is_cut = best.is_cut;
        for (key, (sort_length, row)) in best.rows {
            if self.to_skip == 0 {
                if self.left == 0 || self.is_full(row.len()) {
                    return Ok(true);
                }
                self.give(row).map_err(|stop| *stop)?;
            } else {
                self.to_skip -= 1;
                self.next.skipped += 1;
            }
            self.end_at(&key, sort_length);
        }
        Ok(is_cut)
    }

    /// Names the last row of the page in the token. A long sort key is cut; what breaks ties is always whole.
    fn end_at(&mut self, key: &[u8], sort_length: usize) {
        self.next.is_sorted = true;
        self.next.is_cut = sort_length > limits::TOKEN_KEY_BYTES;
        if self.next.is_cut {
            self.next.key = key[..limits::TOKEN_KEY_BYTES].to_vec();
            self.next.position = Bytes::copy_from_slice(&key[sort_length..]);
        } else {
            self.next.key = key.to_vec();
            self.next.position = Bytes::new();
        }
    }

    fn grouped(&mut self, source: &mut dyn Source, resume: &Token) -> Result<bool, Refusal> {
        let select = self.select;
        let mut groups = Groups::new(select);
        let meter = self.meter;
        while let Some(candidate) = self.candidate(source)? {
            let mut env = self.env();
            let item = Val::of_text(candidate.body.trim_ascii());
            each_row(select, Some(&item), &mut env, &mut |env| {
                let held = groups.take(select, env)?;
                match usize::try_from(held) {
                    Ok(more) => meter.keep(more)?,
                    Err(_) => meter.let_go(held.unsigned_abs()),
                }
                Ok(Flow::On)
            })
            .map_err(|stop| *stop)?;
            let steps = env.steps;
            drop(env);
            self.spend(steps)?;
        }
        let mut best = Best::new(usize::MAX, self.meter);
        let mut distinct = HashSet::new();
        for mut group in groups.finish() {
            group.end(select);
            let mut env = self.env();
            group.bind(&mut env);
            let row = project(select, &mut env).map_err(|stop| *stop)?;
            if row.is_undefined() {
                continue;
            }
            let text = written(&row, &env).map_err(|stop| *stop)?;
            if select.is_distinct {
                let value = short(&text);
                meter.keep(value.len() + limits::HELD_ROW_COST).map_err(|stop| *stop)?;
                if !distinct.insert(value) {
                    continue;
                }
            }
            let mut key = sort_key(select, &mut env).map_err(|stop| *stop)?;
            let sort_length = key.len();
            key.extend_from_slice(&short(&group.key));
            if place(&key, sort_length, resume) == Place::Behind
                || place(&key, sort_length, resume) == Place::Unknown
                    && key[sort_length..] > resume.position[..]
            {
                best.keep(key, sort_length, text).map_err(|stop| *stop)?;
            }
        }
        self.give_sorted(best)
    }
}

/// A row with its key, and how much of that is of ORDER BY: the rest breaks ties.
type Keyed = (Vec<u8>, usize, Bytes);

fn held_bytes(key_length: usize, row: &Bytes) -> usize {
    key_length + row.len() + limits::HELD_ROW_COST
}

/// Rows that are put in order: every candidate is seen before the first row is given.
struct Sorting<'s> {
    select: &'s Select,
    resume: &'s Token,
    meter: &'s Meter<'s>,
    best: Best<'s>,
    /// With ORDER BY and DISTINCT a value counts where it sorts first.
    first_keys: HashMap<Vec<u8>, Vec<u8>>,
    /// Rows of which the token does not tell whether they come behind it.
    held: Vec<Keyed>,
    /// The key of the row that ended the page before, if it was met again.
    resumed_at: Option<Vec<u8>>,
}

impl<'s> Sorting<'s> {
    fn new(select: &'s Select, resume: &'s Token, want: usize, meter: &'s Meter<'s>) -> Sorting<'s> {
        let (first_keys, held) = (HashMap::new(), Vec::new());
        let best = Best::new(want, meter);
        Sorting { select, resume, meter, best, first_keys, held, resumed_at: None }
    }

    /// Takes the rows of a candidate, one by one: it may have millions. The steps that it took to find them.
    fn take_rows_of<'c>(&mut self, candidate: &'c Candidate, mut env: Env<'c>) -> Result<u64, Stop>
    where
        's: 'c,
    {
        let select = self.select;
        let item = Val::of_text(candidate.body.trim_ascii());
        let mut number = 0_u64;
        each_row(select, Some(&item), &mut env, &mut |env| {
            let mut key = sort_key(select, env)?;
            let tie = if select.is_distinct {
                let row = project(select, env)?;
                if row.is_undefined() {
                    return Ok(Flow::On);
                }
                let mut value = Vec::new();
                env.sort_key(&row, &mut value)?;
                short(&value)
            } else {
                [&short(&candidate.place)[..], &number.to_be_bytes()].concat()
            };
            number += 1;
            let sort_length = key.len();
            key.extend_from_slice(&tie);
            if !self.best.may_keep(&key) && !select.is_distinct {
                return Ok(Flow::On);
            }
            let row = project(select, env)?;
            if !row.is_undefined() {
                self.take((key, sort_length, written(&row, env)?))?;
            }
            Ok(Flow::On)
        })?;
        Ok(env.steps)
    }

    fn take(&mut self, (key, sort_length, row): Keyed) -> Result<(), Stop> {
        if self.select.is_distinct && !self.select.order.is_empty() && !self.is_first(&key, sort_length)? {
            return Ok(());
        }
        match place(&key, sort_length, self.resume) {
            Place::Before => Ok(()),
            Place::Behind => self.best.keep(key, sort_length, row),
            Place::Unknown => {
                if key[sort_length..] == self.resume.position[..] {
                    self.resumed_at = Some(key.clone());
                }
                self.meter.keep(held_bytes(key.len(), &row))?;
                self.held.push((key, sort_length, row));
                Ok(())
            }
        }
    }

    /// Whether its value was not met yet with a key that sorts before this one.
    fn is_first(&mut self, key: &[u8], sort_length: usize) -> Result<bool, Stop> {
        let tie = &key[sort_length..];
        match self.first_keys.get_mut(tie) {
            Some(first) if &first[..] <= key => return Ok(false),
            Some(first) => {
                self.best.remove(first);
                *first = key.to_vec();
            }
            None => {
                self.meter.keep(tie.len() + key.len() + limits::HELD_ROW_COST)?;
                self.first_keys.insert(tie.to_vec(), key.to_vec());
            }
        }
        Ok(true)
    }

    /// The best rows, when every candidate was seen.
    fn end(mut self) -> Result<Best<'s>, Stop> {
        for (key, sort_length, row) in self.held {
            let is_behind = match &self.resumed_at {
                Some(last) => key > *last,
                // The row that ended the page before is gone: only its tie-breaker is known.
                None => key[sort_length..] > self.resume.position[..],
            };
            if is_behind {
                self.best.keep(key, sort_length, row)?;
            }
        }
        Ok(self.best)
    }
}

/// The first rows behind the resume key, as many as the page wants and one more.
struct Best<'m> {
    meter: &'m Meter<'m>,
    rows: BTreeMap<Vec<u8>, (usize, Bytes)>,
    want: usize,
    bytes: usize,
    /// Rows were left out because they come later or take too much memory.
    is_cut: bool,
}

impl<'m> Best<'m> {
    fn new(want: usize, meter: &'m Meter<'m>) -> Best<'m> {
        Best { meter, rows: BTreeMap::new(), want, bytes: 0, is_cut: false }
    }

    fn may_keep(&mut self, key: &[u8]) -> bool {
        let is_worse = self.rows.len() > self.want
            && self.rows.last_key_value().is_some_and(|(last, _)| key >= &last[..]);
        self.is_cut |= is_worse;
        !is_worse
    }

    fn keep(&mut self, key: Vec<u8>, sort_length: usize, row: Bytes) -> Result<(), Stop> {
        if !self.may_keep(&key) {
            return Ok(());
        }
        let (key_length, more) = (key.len(), held_bytes(key.len(), &row));
        self.meter.keep(more)?;
        self.bytes += more;
        if let Some((_, replaced)) = self.rows.insert(key, (sort_length, row)) {
            self.let_go(key_length, &replaced);
        }
        while self.rows.len() > self.want.saturating_add(1)
            || self.bytes > limits::QUERY_SORTED_BYTES && self.rows.len() > 1
        {
            let Some((key, (_, row))) = self.rows.pop_last() else { break };
            self.let_go(key.len(), &row);
            self.is_cut = true;
        }
        Ok(())
    }

    fn let_go(&mut self, key_length: usize, row: &Bytes) {
        let bytes = held_bytes(key_length, row);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.meter.let_go(bytes);
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some((_, row)) = self.rows.remove(key) {
            self.let_go(key.len(), &row);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    Before,
    Behind,
    /// The token's key was cut and this one begins the same.
    Unknown,
}

/// Where a full key is, seen from the end of the page before.
fn place(key: &[u8], sort_length: usize, resume: &Token) -> Place {
    if !resume.is_sorted {
        return Place::Behind;
    }
    if !resume.is_cut {
        return if key > &resume.key[..] { Place::Behind } else { Place::Before };
    }
    let beginning = &key[..resume.key.len().min(sort_length)];
    match beginning.cmp(&resume.key) {
        std::cmp::Ordering::Less => Place::Before,
        std::cmp::Ordering::Greater => Place::Behind,
        std::cmp::Ordering::Equal => Place::Unknown,
    }
}

/// Whether the row is the item as it is stored.
fn is_item_itself(select: &Select) -> bool {
    matches!(&select.selection, Selection::Star)
        && matches!(&select.from[..], [from] if !from.is_each
            && matches!(&from.source, FromSource::Items(steps) if steps.is_empty()))
}

/// A row as text. One that is too long is refused before it is written.
fn written(row: &Val<'_>, env: &Env<'_>) -> Result<Bytes, Stop> {
    let mut text = Vec::with_capacity(env.weigh(row)?);
    row.write(&mut text);
    // Signs that are escaped take more than they weigh.
    if text.len() > limits::QUERY_ONE_ROW_BYTES {
        return Err(too_long());
    }
    text.shrink_to_fit();
    Ok(Bytes::from(text))
}
