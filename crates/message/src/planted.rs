//! A bug that is planted on purpose, so that the simulator can show that it finds it. It exists only with the cargo feature
//! `planted`, which the product never has: without it this is a constant `false`.

#[cfg(feature = "planted")]
mod switch {
    use std::sync::atomic::{AtomicBool, Ordering};

    static PLANTED: AtomicBool = AtomicBool::new(false);

    /// Plants the bug, or takes it away: what was scheduled is delivered without the state that says so (K-8).
    pub fn plant_state(is_planted: bool) {
        PLANTED.store(is_planted, Ordering::Relaxed);
    }

    pub(crate) fn is_state_lost() -> bool {
        PLANTED.load(Ordering::Relaxed)
    }
}

#[cfg(feature = "planted")]
pub(crate) use switch::is_state_lost;
#[cfg(feature = "planted")]
pub use switch::plant_state;

#[cfg(not(feature = "planted"))]
#[inline(always)]
pub(crate) const fn is_state_lost() -> bool {
    false
}
