//! Where work for a partition waits, and where its thread sleeps. One lock for both, so that nothing is put between the
//! last look and the sleep.

use super::moment::Moment;
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError, sleep_for};
use broker::planted::{Bug, is_planted};

/// What the partition's thread is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Owner {
    /// It looks for work before it sleeps.
    #[default]
    Awake,
    /// It has been called and must look once more before it sleeps.
    Called,
    /// Until then, unless it is called.
    Asleep(Option<Moment>),
    /// It has ended: what is brought is for nobody.
    Gone,
}

#[derive(Debug)]
struct Waiting<T> {
    work: Vec<T>,
    owner: Owner,
}

impl<T> Waiting<T> {
    fn push(&mut self, work: T) {
        if self.owner != Owner::Gone {
            self.work.push(work);
        }
    }
}

/// Work in the order in which it came. It is taken by whoever holds the partition, so what one connection brings is
/// decided in its order, whoever decides it.
#[derive(Debug)]
pub struct Door<T> {
    waiting: Mutex<Waiting<T>>,
    called: Condvar,
}

impl<T> Default for Door<T> {
    fn default() -> Door<T> {
        Door {
            waiting: Mutex::new(Waiting { work: Vec::new(), owner: Owner::Awake }),
            called: Condvar::new(),
        }
    }
}

impl<T> Door<T> {
    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves work, for whoever holds the partition next.
    pub fn leave(&self, work: T) {
        self.lock().push(work);
    }

    /// Leaves work for the partition's thread.
    pub fn put(&self, work: T) {
        let mut waiting = self.lock();
        waiting.push(work);
        self.wake(waiting);
    }

    /// Has the partition's thread look: now, or before it sleeps again.
    pub fn call(&self) {
        let waiting = self.lock();
        self.wake(waiting);
    }

    /// Has the partition's thread look at that moment at the latest.
    pub fn call_by(&self, moment: Moment) {
        let waiting = self.lock();
        let is_soon_enough = matches!(waiting.owner, Owner::Asleep(Some(until)) if until <= moment);
        // One that is awake has perhaps made up its mind already how long it will sleep.
        if !is_soon_enough {
            self.wake(waiting);
        }
    }

    /// The partition has ended. What waits is dropped, and so is whatever comes.
    pub fn close(&self) {
        let mut waiting = self.lock();
        waiting.owner = Owner::Gone;
        let left = std::mem::take(&mut waiting.work);
        drop(waiting);
        drop(left);
    }

    fn wake(&self, mut waiting: MutexGuard<'_, Waiting<T>>) {
        if waiting.owner == Owner::Gone {
            return;
        }
        let before = std::mem::replace(&mut waiting.owner, Owner::Called);
        drop(waiting);
        if matches!(before, Owner::Asleep(_)) {
            self.called.notify_one();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.lock().work.is_empty()
    }

    /// Takes all that waits. Only whoever holds the partition may.
    pub fn take(&self, into: &mut Vec<T>) {
        into.append(&mut self.lock().work);
    }

    /// The same on the partition's thread, which has no need to be called for what it looks at now.
    pub fn take_awake(&self, into: &mut Vec<T>) {
        let mut waiting = self.lock();
        waiting.owner = Owner::Awake;
        into.append(&mut waiting.work);
    }

    /// Goes to sleep at `now` unless there is something to look at. Returns whether it did.
    #[must_use]
    fn lie_down(waiting: &mut Waiting<T>, until: Option<Moment>, now: Moment) -> bool {
        let is_called = waiting.owner == Owner::Called && !is_planted(Bug::LostWakeUp);
        let is_late = until.is_some_and(|until| until <= now);
        if is_called || is_late || !waiting.work.is_empty() {
            waiting.owner = Owner::Awake;
            return false;
        }
        waiting.owner = Owner::Asleep(until);
        true
    }

    /// The partition's thread sleeps until it is called, work is left for it, or it is `until`.
    pub fn sleep(&self, until: Option<Moment>, now: Moment) {
        let mut waiting = self.lock();
        if !Door::lie_down(&mut waiting, until, now) {
            return;
        }
        let is_asleep = |waiting: &mut Waiting<T>| matches!(waiting.owner, Owner::Asleep(_));
        let mut waiting = match until.map(|until| until.since(now)) {
            Some(patience) => sleep_for(&self.waiting, &self.called, waiting, patience, is_asleep),
            None => self.called.wait_while(waiting, is_asleep).unwrap_or_else(PoisonError::into_inner),
        };
        waiting.owner = Owner::Awake;
    }

    /// The same without a thread: lies down, and says whether it sleeps. See [`Door::is_awake`].
    pub fn try_sleep(&self, until: Option<Moment>, now: Moment) -> bool {
        Door::lie_down(&mut self.lock(), until, now)
    }

    /// Whether whoever lay down there would be awake at `now`, and is from then on.
    pub fn is_awake(&self, now: Moment) -> bool {
        let mut waiting = self.lock();
        if let Owner::Asleep(until) = waiting.owner
            && until.is_none_or(|until| now < until)
        {
            return false;
        }
        waiting.owner = Owner::Awake;
        true
    }
}
