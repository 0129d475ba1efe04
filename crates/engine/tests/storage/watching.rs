//! A disk that lets somebody look after each call that changes it.

use journal::disk::{Call, Disk, Memory, Watch, Watched};
use std::sync::Arc;

/// A disk in memory of which `look` sees the state after each change.
pub fn watching(memory: Memory, look: impl Fn(&Memory) + Send + Sync + 'static) -> Arc<dyn Disk> {
    let inner = Arc::new(memory.clone());
    Arc::new(Watched::new(inner, Arc::new(Looking { memory, look })))
}

struct Looking<F> {
    memory: Memory,
    look: F,
}

impl<F: Fn(&Memory) + Send + Sync> Watch for Looking<F> {
    fn after(&self, call: Call<'_>) {
        if call.is_change() {
            (self.look)(&self.memory);
        }
    }
}
