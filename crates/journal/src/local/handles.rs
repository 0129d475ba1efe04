//! Files of segments, open while somebody reads them and a little longer: a backlog of any size needs few handles.
//!
//! The segment that is written keeps its file, for what one handle wrote another may not learn to have failed. So does a
//! segment whose name is gone. Of the others the [`SEGMENT_HANDLES`] read last are open.

use crate::disk::{Disk, DiskFile};
use crate::limits::SEGMENT_HANDLES;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The open files of one journal.
#[derive(Debug)]
pub(crate) struct Handles {
    disk: Arc<dyn Disk>,
    /// Those that may be closed, in the order in which their turn comes.
    open: Mutex<VecDeque<Weak<Slot>>>,
}

/// A segment's file.
#[derive(Debug)]
pub(crate) struct Handle {
    handles: Arc<Handles>,
    name: String,
    slot: Arc<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    file: Mutex<Option<Arc<dyn DiskFile>>>,
    /// Read since its turn came last.
    is_used: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handles {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Arc<Handles> {
        Arc::new(Handles { disk, open: Mutex::default() })
    }

    /// A file that is closed until somebody reads it.
    pub(crate) fn closed(self: &Arc<Self>, name: String) -> Handle {
        Handle { handles: self.clone(), name, slot: Arc::default() }
    }

    /// A file that stays open until it is [`Handle::loosen`]ed.
    pub(crate) fn held(self: &Arc<Self>, name: String, file: Arc<dyn DiskFile>) -> Handle {
        let slot = Slot { file: Mutex::new(Some(file)), is_used: AtomicBool::new(true) };
        Handle { handles: self.clone(), name, slot: Arc::new(slot) }
    }

    /// Closes what may be closed, for want of handles.
    pub(crate) fn close_all(&self) {
        for slot in locked(&self.open).drain(..).filter_map(|slot| slot.upgrade()) {
            *locked(&slot.file) = None;
        }
    }

    /// Notes one more that may be closed, and closes the one that was not used for long.
    fn add(&self, slot: &Arc<Slot>) {
        let mut open = locked(&self.open);
        if open.iter().any(|other| other.as_ptr() == Arc::as_ptr(slot)) {
            return;
        }
        // Each is passed over once at most if it was used, so this ends.
        while open.len() >= SEGMENT_HANDLES
            && let Some(next) = open.pop_front()
        {
            match next.upgrade() {
                Some(slot) if slot.is_used.swap(false, Ordering::Relaxed) => open.push_back(next),
                Some(slot) => *locked(&slot.file) = None,
                None => {}
            }
        }
        open.push_back(Arc::downgrade(slot));
    }

    #[cfg(test)]
    pub(crate) fn open_count(&self) -> usize {
        let is_open = |slot: &Weak<Slot>| slot.upgrade().is_some_and(|slot| locked(&slot.file).is_some());
        locked(&self.open).iter().filter(|slot| is_open(slot)).count()
    }
}

impl Handle {
    /// The file, opened if need be.
    pub(crate) fn file(&self) -> io::Result<Arc<dyn DiskFile>> {
        let mut held = locked(&self.slot.file);
        self.slot.is_used.store(true, Ordering::Relaxed);
        if let Some(file) = &*held {
            return Ok(file.clone());
        }
        let file = self.handles.disk.open(&self.name)?;
        *held = Some(file.clone());
        // The thread that closes looks at the list first and at the file second.
        drop(held);
        self.handles.add(&self.slot);
        Ok(file)
    }

    /// Keeps the file open for as long as this lives: it is written, or its name is about to go.
    pub(crate) fn hold(&self) -> io::Result<()> {
        let file = self.file()?;
        let mut open = locked(&self.handles.open);
        open.retain(|slot| slot.as_ptr() != Arc::as_ptr(&self.slot));
        *locked(&self.slot.file) = Some(file);
        Ok(())
    }

    /// The file need no longer stay open: from now on it is only read.
    pub(crate) fn loosen(&self) {
        if let Some(file) = &*locked(&self.slot.file) {
            file.end_writing();
        }
        self.handles.add(&self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Memory;
    use std::io::IoSlice;

    fn files(count: usize) -> (Arc<Handles>, Vec<Handle>) {
        let disk = Memory::new();
        for n in 0..count {
            disk.create(&n.to_string()).unwrap().write_at(0, &[IoSlice::new(&[n as u8])]).unwrap();
        }
        let handles = Handles::new(Arc::new(disk));
        let each = (0..count).map(|n| handles.closed(n.to_string())).collect();
        (handles, each)
    }

    fn read(handle: &Handle) -> u8 {
        let mut byte = [0];
        handle.file().unwrap().read_at(0, &mut byte).unwrap();
        byte[0]
    }

    #[test]
    fn no_more_than_so_many_are_open_and_all_can_be_read() {
        let (handles, each) = files(3 * SEGMENT_HANDLES);
        for _ in 0..2 {
            for (n, handle) in each.iter().enumerate() {
                assert_eq!(read(handle), n as u8);
                assert!(handles.open_count() <= SEGMENT_HANDLES);
            }
        }
        assert_eq!(handles.open_count(), SEGMENT_HANDLES);
        drop(each);
        assert_eq!(handles.open_count(), 0, "what is gone is closed");
    }

    #[test]
    fn what_is_read_often_stays_open() {
        let (_, each) = files(3 * SEGMENT_HANDLES);
        for handle in &each {
            read(handle);
            read(&each[0]);
            assert!(locked(&each[0].slot.file).is_some());
        }
    }

    #[test]
    fn what_is_held_is_never_closed_and_outlives_its_name() {
        let (handles, each) = files(2 * SEGMENT_HANDLES);
        each[1].hold().unwrap();
        handles.disk.remove("1").unwrap();
        each.iter().skip(2).for_each(|handle| {
            read(handle);
        });
        handles.close_all();
        assert_eq!(handles.open_count(), 0);
        assert_eq!(read(&each[1]), 1);
        each[1].loosen();
        assert_eq!(handles.open_count(), 1);
    }
}
