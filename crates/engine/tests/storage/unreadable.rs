//! Segments that the disk does not give when they are to be copied: nothing stops, nothing is lost, and copying goes on later.

use crate::judge::judge;
use crate::owner::{Shared, TestPartition, body};
use broker::Time;
use journal::disk::{Call, Disk, Memory, Watched};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

const NOW: Time = Time(1_000_000);
const EIO: i32 = 5;
const EMFILE: i32 = 24;

/// A disk in memory whose files cannot be read while an error is set.
#[derive(Debug, Clone, Default)]
struct Unreadable {
    memory: Memory,
    code: Arc<AtomicI32>,
}

impl Unreadable {
    fn set(&self, code: i32) {
        self.code.store(code, Ordering::Relaxed);
    }

    fn disk(&self) -> Arc<dyn Disk> {
        let code = self.code.clone();
        let watch = move |call: Call<'_>| match (call, code.load(Ordering::Relaxed)) {
            (Call::Read { .. }, code) if code != 0 => Err(io::Error::from_raw_os_error(code)),
            _ => Ok(()),
        };
        Arc::new(Watched::new(Arc::new(self.memory.clone()), Arc::new(watch)))
    }
}

fn segments(memory: &Memory) -> Vec<String> {
    let mut names = memory.list().unwrap();
    names.retain(|name| name.ends_with(".segment"));
    names
}

/// Sends 600 and completes all but one in twenty.
fn sparse(disk: &Unreadable, told: &Shared) -> TestPartition {
    let mut partition = TestPartition::open(disk.disk(), told.clone(), NOW).unwrap();
    (1..=600).for_each(|number| partition.send(number).unwrap());
    partition.receive(10_000).unwrap();
    for number in partition.held().into_iter().filter(|number| number % 20 != 0) {
        partition.now.0 += 1;
        partition.complete(number).unwrap();
    }
    partition
}

#[test]
fn a_read_that_fails_while_copying_is_told_and_copying_goes_on_later() {
    for code in [EIO, EMFILE] {
        let (disk, told) = (Unreadable::default(), Shared::default());
        let mut partition = sparse(&disk, &told);
        let before = segments(&disk.memory).len();
        disk.set(code);
        partition.rest(100).unwrap();
        assert!(segments(&disk.memory).len() * 2 > before, "nothing that is alive is given up");
        assert!(partition.damage().is_some(), "somebody is told");
        disk.set(0);
        partition.send(601).unwrap();
        assert!(told.lock().accepted.contains(&601));
        partition.now.0 += 20_000;
        partition.rest(200).unwrap();
        let after = segments(&disk.memory).len();
        assert!(after * 3 < before, "{before} segments became {after}");
        judge(&disk.memory.crash_image(0), &told.lock(), "copied later");
    }
}

#[test]
fn a_damaged_body_keeps_its_segment_and_those_behind_it_and_no_others() {
    let (disk, told) = (Unreadable::default(), Shared::default());
    let mut partition = sparse(&disk, &told);
    let before = segments(&disk.memory);
    let (name, at) = before
        .iter()
        .find_map(|name| {
            let content = disk.memory.content(name).unwrap();
            let wanted = body(400);
            let at = content.windows(wanted.len()).position(|bytes| bytes == wanted)?;
            Some((name.clone(), at + 50))
        })
        .unwrap();
    disk.memory.damage(&name, |bytes| bytes[at] ^= 1);
    partition.rest(300).unwrap();
    assert_eq!(segments(&disk.memory)[0], name, "everything before it is given back");
    assert!(partition.damage().is_some_and(|damage| damage.contains(&name)), "{:?}", partition.damage());
    // It is still there, to be restored.
    disk.memory.damage(&name, |bytes| bytes[at] ^= 1);
    judge(&disk.memory.crash_image(0), &told.lock(), "restored");
    // Once it is dead it keeps nothing.
    partition.complete(400).unwrap();
    (701..=900).for_each(|number| partition.send(number).unwrap());
    partition.receive(10_000).unwrap();
    partition
        .held()
        .into_iter()
        .filter(|number| *number > 700)
        .for_each(|number| partition.complete(number).unwrap());
    partition.rest(300).unwrap();
    assert_ne!(segments(&disk.memory)[0], name);
    judge(&disk.memory.crash_image(0), &told.lock(), "given back");
}
