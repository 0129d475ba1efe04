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
struct InboxState<T> {
    work: Vec<T>,
    owner: Owner,
}

impl<T> InboxState<T> {
    fn push(&mut self, work: T) {
        if self.owner != Owner::Gone {
            self.work.push(work);
        }
    }
}

/// Work in the order in which it came. It is taken by the thread that holds the partition, so what one connection brings is
/// decided in its order, on whichever thread.
#[derive(Debug)]
pub struct Inbox<T> {
    state: Mutex<InboxState<T>>,
    called: Condvar,
}

impl<T> Default for Inbox<T> {
    fn default() -> Inbox<T> {
        Inbox {
            state: Mutex::new(InboxState { work: Vec::new(), owner: Owner::Awake }),
            called: Condvar::new(),
        }
    }
}

impl<T> Inbox<T> {
    fn lock(&self) -> MutexGuard<'_, InboxState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves work, for the thread that holds the partition next.
    pub fn leave(&self, work: T) {
        self.lock().push(work);
    }

    /// Leaves work for the partition's thread.
    pub fn put(&self, work: T) {
        let mut state = self.lock();
        state.push(work);
        self.wake(state);
    }

    /// Has the partition's thread look: now, or before it sleeps again.
    pub fn call(&self) {
        let state = self.lock();
        self.wake(state);
    }

    /// Has the partition's thread look at that moment at the latest.
    pub fn call_by(&self, moment: Moment) {
        let state = self.lock();
        let is_soon_enough = matches!(state.owner, Owner::Asleep(Some(until)) if until <= moment);
        // One that is awake has perhaps made up its mind already how long it will sleep.
        if !is_soon_enough {
            self.wake(state);
        }
    }

    /// The partition has ended. What waits is dropped, and so is whatever comes.
    pub fn close(&self) {
        let mut state = self.lock();
        state.owner = Owner::Gone;
        let left = std::mem::take(&mut state.work);
        drop(state);
        drop(left);
    }

    fn wake(&self, mut state: MutexGuard<'_, InboxState<T>>) {
        if state.owner == Owner::Gone {
            return;
        }
        let before = std::mem::replace(&mut state.owner, Owner::Called);
        drop(state);
        if matches!(before, Owner::Asleep(_)) {
            self.called.notify_one();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.lock().work.is_empty()
    }

    /// Takes all that waits. Only the thread that holds the partition may.
    pub fn take(&self, into: &mut Vec<T>) {
        into.append(&mut self.lock().work);
    }

    /// The same on the partition's thread, which has no need to be called for what it looks at now.
    pub fn take_awake(&self, into: &mut Vec<T>) {
        let mut state = self.lock();
        state.owner = Owner::Awake;
        into.append(&mut state.work);
    }

    /// Goes to sleep at `now` unless there is something to look at. Returns whether it did.
    #[must_use]
    fn fall_asleep(state: &mut InboxState<T>, until: Option<Moment>, now: Moment) -> bool {
        let is_called = state.owner == Owner::Called && !is_planted(Bug::LostWakeUp);
        let is_late = until.is_some_and(|until| until <= now);
        if is_called || is_late || !state.work.is_empty() {
            state.owner = Owner::Awake;
            return false;
        }
        state.owner = Owner::Asleep(until);
        true
    }

    /// The partition's thread sleeps until it is called, work is left for it, or it is `until`.
    pub fn sleep(&self, until: Option<Moment>, now: Moment) {
        let mut state = self.lock();
        if !Inbox::fall_asleep(&mut state, until, now) {
            return;
        }
        let is_asleep = |state: &mut InboxState<T>| matches!(state.owner, Owner::Asleep(_));
        let mut state = match until.map(|until| until.since(now)) {
            Some(patience) => sleep_for(&self.state, &self.called, state, patience, is_asleep),
            None => self.called.wait_while(state, is_asleep).unwrap_or_else(PoisonError::into_inner),
        };
        state.owner = Owner::Awake;
    }

    /// The same without a thread: falls asleep, and says whether it sleeps. See [`Inbox::is_awake`].
    pub fn try_sleep(&self, until: Option<Moment>, now: Moment) -> bool {
        Inbox::fall_asleep(&mut self.lock(), until, now)
    }

    /// Whether the thread that fell asleep there would be awake at `now`, and is from then on.
    pub fn is_awake(&self, now: Moment) -> bool {
        let mut state = self.lock();
        if let Owner::Asleep(until) = state.owner
            && until.is_none_or(|until| now < until)
        {
            return false;
        }
        state.owner = Owner::Awake;
        true
    }
}
