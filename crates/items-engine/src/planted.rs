//! Bugs that are planted on purpose, one at a time, so that the simulator can show that it finds them. They exist only
//! with the cargo feature `planted`, which the product never has: without it this is a constant `false`.

/// A bug that somebody could really have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Bug {
    /// A checkpoint is flushed before the journal has made it durable.
    FlushedTooEarly = 1,
    /// A start leaves out the first batch behind the checkpoint.
    BatchLeftOut,
    /// Readers are shown an append before it is durable.
    ShownTooEarly,
    /// An answer that rests on something having expired does not wait until the journal holds the time.
    TimeForgotten,
    /// A start forgets how far a test has moved the time.
    OffsetForgotten,
    /// Rows in memory stay what they were before a checkpoint.
    StaleRows,
}

impl Bug {
    pub const ALL: [Bug; 6] = [
        Bug::FlushedTooEarly,
        Bug::BatchLeftOut,
        Bug::ShownTooEarly,
        Bug::TimeForgotten,
        Bug::OffsetForgotten,
        Bug::StaleRows,
    ];
}

#[cfg(feature = "planted")]
mod switch {
    use super::Bug;
    use std::sync::atomic::{AtomicU8, Ordering};

    static PLANTED: AtomicU8 = AtomicU8::new(0);

    /// Plants one bug instead of the one before, or none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.store(bug.map_or(0, |bug| bug as u8), Ordering::Relaxed);
    }

    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as u8
    }
}

#[cfg(feature = "planted")]
pub use switch::{is_planted, plant};

#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is_planted(_: Bug) -> bool {
    false
}
