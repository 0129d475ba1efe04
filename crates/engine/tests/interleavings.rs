//! The threads of a partition under a scheduler that tries their interleavings: nobody is left asleep, nothing is lost,
//! reordered or written twice, and the threads end. The code is the very one of the crate, compiled with other primitives.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.
#![allow(dead_code)] // The modules have users elsewhere for what is not needed here.

#[allow(unused_imports)]
#[path = "../src/commit/mod.rs"]
mod commit;
mod counter;

/// Instead of `src/sync.rs`.
mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;
    use std::time::Duration;

    /// A sleep that has an end may end at any time.
    pub(crate) fn sleep_for<'a, T>(
        mutex: &'a Mutex<T>,
        _: &Condvar,
        guard: MutexGuard<'a, T>,
        _: Duration,
        _: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        drop(guard);
        shuttle::thread::yield_now();
        mutex.lock().unwrap()
    }
}

use commit::{Inbox, Shared, Stop};
use counter::{Counter, Reply, Work};
use journal::{Epoch, Journal, Log, Position, Unsure, Verdict};
use shuttle::thread;
use std::sync::Arc;
use std::time::Duration;

const CLIENTS: u32 = 3;
const ADDITIONS: u32 = 3;

/// A clock so fast that nothing is worth waiting for, and one so slow that everything is.
const FAST: Duration = Duration::from_secs(1);
const SLOW: Duration = Duration::from_micros(1);
/// A clock on which the owner has stopped looking for what nobody waits for before it comes.
const STEADY: Duration = Duration::from_micros(600);

fn journal(log: &Log) -> Box<dyn Journal> {
    let mut journal = log.open().unwrap();
    journal.fence(1, Epoch(journal.epoch().0 + 1)).unwrap();
    Box::new(journal)
}

fn begin(journal: Box<dyn Journal>, step: Duration) -> Arc<Shared<Counter>> {
    let tail = journal.tail();
    Arc::new(Shared::new(Counter::new(journal, step), tail, Arc::<Inbox<Work>>::default()))
}

/// What was written, append by append.
fn written(log: &Log) -> Vec<Vec<u32>> {
    let mut appends = Vec::new();
    let journal = log.open().unwrap();
    journal
        .read(Position(1), &mut |batch| {
            let numbers = batch.records.chunks_exact(4);
            appends.push(numbers.map(|number| u32::from_le_bytes(number.try_into().unwrap())).collect());
            Ok(())
        })
        .unwrap();
    appends
}

/// What a thread of connections does that has nothing left to decide.
type Idle = fn(&Shared<Counter>);

/// Somebody who adds ones and waits for each sum but the first.
fn add(counter: &Shared<Counter>, idle: Idle) {
    let reply = Arc::<Reply>::default();
    for count in 1..=ADDITIONS {
        counter.hand_over(Work::Add { number: 1, reply: reply.clone() });
        // It has nothing left to decide. Others may find the partition held meanwhile.
        idle(counter);
        if count > 1 {
            reply.wait(count as usize);
        }
    }
    let sums = reply.wait(ADDITIONS as usize);
    assert!(sums.is_sorted_by(|one, other| one < other), "answers come in order, and each once: {sums:?}");
}

/// All clients at once, and a stop when they have heard everything.
fn run(wrap: impl FnOnce(Box<dyn Journal>) -> Box<dyn Journal>, step: Duration, idle: Idle) {
    let log = Log::default();
    let counter = begin(wrap(journal(&log)), step);
    let owner = {
        let counter = counter.clone();
        thread::spawn(move || counter.run())
    };
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let counter = counter.clone();
            thread::spawn(move || add(&counter, idle))
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    counter.inbox().put(Work::Stop);
    owner.join().unwrap().unwrap();
    counter.close();
    let all: Vec<_> = written(&log).concat();
    assert_eq!(all, vec![1; (CLIENTS * ADDITIONS) as usize], "each was written once");
}

fn explore(test: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(test.clone(), 1_500);
    shuttle::check_pct(test, 1_500, 3);
}

#[test]
fn nobody_is_left_asleep_and_nothing_is_lost_or_written_twice() {
    explore(|| run(|journal| journal, FAST, Shared::pause));
}

#[test]
fn the_same_while_the_owner_gathers() {
    explore(|| run(|journal| journal, SLOW, Shared::pause));
}

#[test]
fn the_same_where_threads_tell_that_they_have_nothing_left_to_decide() {
    explore(|| run(|journal| journal, FAST, Shared::rest));
    explore(|| run(|journal| journal, SLOW, Shared::rest));
}

#[test]
fn what_nobody_waits_for_is_written_though_nothing_else_comes() {
    explore(|| {
        let log = Log::default();
        let counter = begin(journal(&log), STEADY);
        let owner = {
            let counter = counter.clone();
            thread::spawn(move || counter.run())
        };
        for count in 1..=2 {
            let reply = Arc::<Reply>::default();
            counter.hand_over(Work::Note { number: count, reply: reply.clone() });
            assert_eq!(reply.wait(1).len(), 1);
        }
        counter.inbox().put(Work::Stop);
        owner.join().unwrap().unwrap();
        assert_eq!(written(&log).concat(), [1, 2]);
    });
}

#[test]
fn an_append_whose_outcome_is_unknown_is_there_once() {
    explore(|| {
        let mut appends = 0;
        // A request is lost, an answer is lost, and the others pass.
        let judge = move |_| {
            appends += 1;
            match appends % 3 {
                0 => Verdict::LoseRequest,
                1 => Verdict::LoseAnswer,
                _ => Verdict::Pass,
            }
        };
        run(|journal| Box::new(Unsure::new(journal, judge)), FAST, Shared::pause);
    });
}

#[test]
fn an_owner_that_is_fenced_off_ends_and_tells_nobody_anything() {
    explore(|| {
        let log = Log::default();
        let counter = begin(journal(&log), FAST);
        // Somebody else takes over before the first append.
        let _successor = journal(&log);
        let reply = Arc::<Reply>::default();
        let owner = {
            let counter = counter.clone();
            thread::spawn(move || counter.run())
        };
        counter.hand_over(Work::Add { number: 1, reply: reply.clone() });
        let ended = owner.join().unwrap();
        assert!(ended.is_err(), "{ended:?}");
        assert_eq!((reply.wait(0), written(&log).len()), (vec![], 0));
        counter.close();
        // A thread that comes later finds nobody and is not kept.
        counter.hand_over(Work::Add { number: 1, reply });
    });
}

#[test]
fn whoever_is_told_to_end_has_everything_written_before() {
    explore(|| {
        let log = Log::default();
        let counter = begin(journal(&log), SLOW);
        let replies: Vec<_> = (0..2).map(|_| Arc::<Reply>::default()).collect();
        let clients: Vec<_> = replies
            .iter()
            .map(|reply| {
                let (counter, reply) = (counter.clone(), reply.clone());
                thread::spawn(move || counter.hand_over(Work::Add { number: 1, reply }))
            })
            .collect();
        let owner = {
            let counter = counter.clone();
            thread::spawn(move || counter.run())
        };
        clients.into_iter().for_each(|client| client.join().unwrap());
        counter.inbox().put(Work::Stop);
        assert!(matches!(owner.join().unwrap(), Ok(()) | Err(Stop::Ended)));
        assert_eq!(written(&log).concat(), [1, 1]);
        assert!(replies.iter().all(|reply| reply.wait(1).len() == 1));
    });
}
