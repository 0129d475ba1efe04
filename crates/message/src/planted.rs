//! Bugs that are planted on purpose, so that the simulator and the fuzz targets can show that they find them. They exist only with
//! the cargo feature `planted`, which the product never has: without it these are constants `false`.

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

/// Whether the bug of a fuzz target is planted: the environment names it.
#[cfg(feature = "planted")]
pub fn is_planted(target: &str) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    PLANTED.get_or_init(|| std::env::var("OTOBUS_FUZZ_PLANTED").ok()).as_deref() == Some(target)
}

#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is_planted(_: &str) -> bool {
    false
}
