//! How the partition is, for those who ask from outside: health, metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
pub struct Condition {
    is_full: AtomicBool,
    damage: Mutex<Option<String>>,
    damages: AtomicU64,
}

impl Condition {
    /// Whether the disk is full and sends are refused.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// The first damage that was found in what is stored, with file and offset.
    pub fn damage(&self) -> Option<String> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often damage was found; the same place counts each time that somebody meets it.
    pub fn damages(&self) -> u64 {
        self.damages.load(Ordering::Relaxed)
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        if self.is_full.swap(is_full, Ordering::Relaxed) != is_full {
            match is_full {
                true => {
                    tracing::error!("the disk is full: sends are refused, receiving and completing go on")
                }
                false => tracing::warn!("the disk has room again: sending goes on"),
            }
        }
    }

    pub(crate) fn report_damage(&self, damage: &str) {
        tracing::error!("{damage}");
        self.damages.fetch_add(1, Ordering::Relaxed);
        let mut first = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| damage.to_owned());
    }
}
