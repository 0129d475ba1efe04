//! Tables in memory over a base: the table that is written to, perhaps one that is on its way into the base, and the base.

use super::merge::Merge;
use super::rows::Rows;
use super::table::Table;
use super::{Base, Failure, Frozen, Run, Store, keys};
use crate::limits::{FIRST_CHUNK, LATER_CHUNK};
use crate::planted::{Bug, is_planted};
use bytes::Bytes;
use items::{Changes, Direction, Entries, Unreadable, View};
use journal::Position;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a read looks at, newest first.
#[derive(Debug)]
struct Layers<B: Base> {
    active: Arc<Table>,
    closed: Option<Arc<Table>>,
    base: Arc<B>,
    pin: Arc<B::Pin>,
    rows: Arc<Rows>,
    /// The generation of the rows that are those of the pin.
    generation: u64,
}

impl<B: Base> Clone for Layers<B> {
    fn clone(&self) -> Layers<B> {
        Layers {
            active: Arc::clone(&self.active),
            closed: self.closed.clone(),
            base: Arc::clone(&self.base),
            pin: Arc::clone(&self.pin),
            rows: Arc::clone(&self.rows),
            generation: self.generation,
        }
    }
}

impl<B: Base> Layers<B> {
    fn tables(&self) -> impl Iterator<Item = &Table> {
        [Some(&self.active), self.closed.as_ref()].into_iter().flatten().map(|table| &**table)
    }

    fn get(&self, key: &[u8], at: u64) -> Result<Option<Bytes>, Unreadable> {
        if let Some(value) = self.tables().find_map(|table| table.get(key, at)) {
            return Ok(value);
        }
        self.get_below(key)
    }

    /// What the tables say nothing about.
    fn get_below(&self, key: &[u8]) -> Result<Option<Bytes>, Unreadable> {
        if let Some(value) = self.rows.get(key, self.generation) {
            return Ok(value);
        }
        let value = self.base.get(&self.pin, key)?;
        self.rows.put(key, &value, self.generation);
        Ok(value)
    }
}

/// The layers as they were when everything below `at` was written.
#[derive(Debug)]
struct At<B: Base> {
    layers: Layers<B>,
    at: u64,
}

impl<B: Base> View for At<B> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Unreadable> {
        self.layers.get(key, self.at)
    }

    fn scan<'a>(&'a self, from: &[u8], to: &[u8], direction: Direction) -> Entries<'a> {
        if from >= to {
            return Box::new(std::iter::empty());
        }
        let mut runs: Vec<Run<'a>> = Vec::with_capacity(3);
        for table in self.layers.tables() {
            runs.push(Box::new(table.scan(from, to, direction, self.at).map(Ok)));
        }
        runs.push(self.layers.base.scan(&self.layers.pin, from, to, direction));
        Box::new(Merge::new(runs, direction))
    }
}

impl<B: Base> Frozen for At<B> {}

#[derive(Debug)]
pub struct Layered<B: Base> {
    base: Arc<B>,
    layers: Mutex<Layers<B>>,
    /// The version of the next changes.
    next: AtomicU64,
    durable: AtomicU64,
    /// The position that is closed and not flushed; 0 when there is none.
    closed: AtomicU64,
}

impl<B: Base> Layered<B> {
    /// `row_bytes` may be spent on entries of the base that are asked for one by one.
    pub fn over(base: B, row_bytes: u64) -> Result<Layered<B>, Failure> {
        let base = Arc::new(base);
        let pin = Arc::new(base.pin());
        let position = base.get(&pin, keys::POSITION).map_err(|error| Failure::Failed(error.to_string()))?;
        let position =
            position.map_or(Ok(0), |value| <[u8; 8]>::try_from(&value[..]).map(u64::from_be_bytes));
        let position = position.map_err(|_| Failure::Failed("its position is not a number".into()))?;
        let rows = Arc::new(Rows::new(row_bytes));
        let (active, closed, generation) = (Arc::default(), None, rows.generation());
        let layers = Layers { active, closed, base: Arc::clone(&base), pin, rows, generation };
        Ok(Layered {
            base,
            layers: Mutex::new(layers),
            next: AtomicU64::new(1),
            durable: AtomicU64::new(position),
            closed: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Layers<B>> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latest(&self) -> At<B> {
        At { layers: self.lock().clone(), at: u64::MAX }
    }
}

impl<B: Base> View for Layered<B> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Unreadable> {
        let layers = self.lock();
        // Most of what is decided about was written lately: for that nothing needs to be held beyond the lock.
        if let Some(value) = layers.tables().find_map(|table| table.get(key, u64::MAX)) {
            return Ok(value);
        }
        let layers = layers.clone();
        layers.get_below(key)
    }

    fn scan<'a>(&'a self, from: &[u8], to: &[u8], direction: Direction) -> Entries<'a> {
        // The entries are had while the view is borrowed; so that it lives as long, it is asked anew where the last ended.
        let latest = self.latest();
        let (mut from, mut to) = (from.to_vec(), to.to_vec());
        let mut ready: std::vec::IntoIter<_> = Vec::new().into_iter();
        let mut chunk = FIRST_CHUNK;
        Box::new(std::iter::from_fn(move || {
            if let Some(entry) = ready.next() {
                return Some(entry);
            }
            if chunk == 0 {
                return None;
            }
            let entries: Vec<_> = latest.scan(&from, &to, direction).take(chunk).collect();
            match entries.last() {
                Some(Ok((key, _))) if entries.len() == chunk => match direction {
                    Direction::Ascending => from = [key, &[0][..]].concat(),
                    Direction::Descending => to = key.to_vec(),
                },
                _ => chunk = 0,
            }
            chunk = (4 * chunk).min(LATER_CHUNK);
            ready = entries.into_iter();
            ready.next()
        }))
    }
}

impl<B: Base> Store for Layered<B> {
    fn durable(&self) -> Position {
        Position(self.durable.load(Ordering::Acquire))
    }

    fn write(&self, changes: &mut Changes) {
        let version = self.next.load(Ordering::Relaxed);
        let active = Arc::clone(&self.lock().active);
        active.write(&mut changes.entries, version);
        self.next.store(version + 1, Ordering::Release);
    }

    fn freeze(&self) -> Arc<dyn Frozen> {
        Arc::new(At { layers: self.lock().clone(), at: self.next.load(Ordering::Acquire) })
    }

    fn close_table(&self, position: Position) {
        assert_eq!(self.closed.swap(position.0, Ordering::AcqRel), 0, "a checkpoint is under way");
        let mut changes = Changes::default();
        changes.put(keys::POSITION, position.0.to_be_bytes());
        self.write(&mut changes);
        let mut layers = self.lock();
        let active = std::mem::take(&mut layers.active);
        layers.closed = Some(active);
    }

    fn flush(&self) -> Result<(), Failure> {
        let Some(closed) = self.lock().closed.clone() else { return Ok(()) };
        let mut taken = Ok(());
        closed.each(&mut |entries| taken = self.base.take(entries));
        taken?;
        let pin = Arc::new(self.base.pin());
        let rows = Arc::clone(&self.lock().rows);
        let mut generation = rows.generation();
        if !is_planted(Bug::StaleRows) {
            let mut renewal = rows.renew();
            closed.look(|key, value| renewal.changed(key, value));
            generation = renewal.generation;
        }
        let mut layers = self.lock();
        layers.closed = None;
        layers.pin = pin;
        layers.generation = generation;
        drop(layers);
        self.durable.store(self.closed.load(Ordering::Acquire), Ordering::Release);
        self.closed.store(0, Ordering::Release);
        Ok(())
    }

    fn tidy(&self) -> Result<bool, Failure> {
        self.base.tidy()
    }

    fn open_bytes(&self) -> u64 {
        self.lock().active.bytes()
    }

    fn recent_bytes(&self) -> u64 {
        self.lock().tables().map(Table::bytes).sum()
    }

    fn overlapping_files(&self) -> usize {
        self.base.overlapping_files()
    }

    fn disk_bytes(&self) -> u64 {
        self.base.disk_bytes()
    }
}
