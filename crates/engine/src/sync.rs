//! What the threads of a partition meet at. Everything has one name here, so that a test can compile the same code with other
//! primitives and explore its interleavings (`tests/interleavings.rs`).

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Sleeps while `is_asleep` says so, or for `patience`.
pub(crate) fn sleep_for<'a, T>(
    _: &'a Mutex<T>,
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    patience: Duration,
    is_asleep: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout_while(guard, patience, is_asleep).unwrap_or_else(PoisonError::into_inner).0
}
