//! The ids of messages that a queue has taken within its window (S-160), in the order in which they came.
//!
//! Ids are kept in chunks that are shared by `Arc`, so a snapshot costs nothing and a change copies one chunk. What is older
//! than the window goes a chunk at a time as new ids come, never more than a few at once, and never by a record of its
//! own: replaying the same ids at the same times drops the same chunks. The history holds [`HISTORY_IDS`] at the most.
//! Looking an id up is not done here but in memory that is rebuilt at the start.

use crate::ids::MessageKey;
use crate::limits::{HISTORY_CHUNK, HISTORY_CHUNKS_AT_ONCE, HISTORY_IDS};
use crate::time::{LocalTime, Span};
use std::collections::VecDeque;
use std::sync::Arc;

/// An id and when it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Noted {
    pub id: MessageKey,
    pub time: LocalTime,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct History {
    chunks: VecDeque<Arc<Vec<Noted>>>,
    count: usize,
}

impl History {
    /// The chunks that [`History::note`] will drop at that time.
    pub fn past(&self, time: LocalTime, window: Span) -> impl Iterator<Item = &[Noted]> {
        let is_past = move |chunk: &Arc<Vec<Noted>>| {
            chunk.len() == HISTORY_CHUNK && chunk.last().is_some_and(|last| last.time.after(window) <= time)
        };
        let is_full = self.count >= HISTORY_IDS;
        let chunks = self.chunks.iter().take(HISTORY_CHUNKS_AT_ONCE).enumerate();
        chunks
            .take_while(move |(at, chunk)| is_past(chunk) || (*at == 0 && is_full))
            .map(|(_, chunk)| &chunk[..])
    }

    /// Adds an id.
    pub fn note(&mut self, id: MessageKey, time: LocalTime, window: Span) {
        let (chunks, ids) =
            self.past(time, window).fold((0, 0), |(n, ids), chunk| (n + 1, ids + chunk.len()));
        self.chunks.drain(..chunks);
        self.count -= ids;
        self.push(Noted { id, time });
    }

    /// Adds what a snapshot has kept, in the same order.
    pub(crate) fn push(&mut self, noted: Noted) {
        if self.chunks.back().is_none_or(|chunk| chunk.len() == HISTORY_CHUNK) {
            self.chunks.push_back(Arc::new(Vec::with_capacity(HISTORY_CHUNK)));
        }
        let last = self.chunks.back_mut().expect("it was there or was added");
        Arc::make_mut(last).push(noted);
        self.count += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub fn iter(&self) -> impl Iterator<Item = &Noted> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    pub fn chunks(&self) -> impl Iterator<Item = &[Noted]> {
        self.chunks.iter().map(|chunk| &chunk[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(history: &mut History, id: u64, time: i64) {
        history.note(MessageKey([id, 1]), LocalTime(time), Span(1_000));
    }

    #[test]
    fn what_is_past_goes_a_few_chunks_at_a_time() {
        let mut history = History::default();
        let count = 4 * HISTORY_CHUNK as u64;
        (0..count).for_each(|id| note(&mut history, id, 0));
        assert_eq!(history.chunks().count(), 4);
        note(&mut history, count, 999);
        assert_eq!(history.chunks().count(), 5);
        note(&mut history, count + 1, 1_000);
        assert_eq!(history.chunks().count(), 3);
        note(&mut history, count + 2, 1_000);
        assert_eq!((history.chunks().count(), history.count), (1, 3));
    }

    #[test]
    fn a_history_holds_its_most_and_then_forgets_the_oldest() {
        let mut history = History::default();
        (0..HISTORY_IDS as u64 + 1).for_each(|id| note(&mut history, id, 0));
        assert_eq!(history.count, HISTORY_IDS + 1 - HISTORY_CHUNK);
        assert_eq!(history.iter().next().unwrap().id.0[0], HISTORY_CHUNK as u64);
    }
}
