//! A partition on disks that are cut off, fail or fill up: what was accepted is there, what was confirmed stays gone, and
//! space comes back.
//!
//! `OTOBUS_TESTS=long` runs the long versions, as `cargo xtask storage` does.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod damaged;
mod failing;
mod judge;
mod owner;
mod power_cut;
mod space;
mod topics;
mod unreadable;
mod watching;

/// Whether the long versions run.
fn is_long() -> bool {
    std::env::var_os("OTOBUS_TESTS").is_some_and(|tests| tests == "long")
}
