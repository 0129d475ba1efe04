//! Reading everything again, slowly: a disk that has forgotten something should be found out before somebody needs it.
//! Damage is logged and shown in the health of the server; nothing is changed, and what is whole is served.

use crate::commit::Inbox;
use crate::health::Health;
use crate::limits::{SCRUB_BYTES_PER_SECOND, SCRUB_EVERY, SCRUB_PAUSE};
use crate::work::Work;
use journal::{Position, Scrub, Snapshots};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How fast everything is read again.
#[derive(Debug, Clone, Copy)]
struct Speed {
    /// Between two passes, and between two segments.
    every: Duration,
    pause: Duration,
    bytes_per_second: u64,
}

const USUAL_SPEED: Speed =
    Speed { every: SCRUB_EVERY, pause: SCRUB_PAUSE, bytes_per_second: SCRUB_BYTES_PER_SECOND };

/// Starts the thread that scrubs. It ends when the partition is gone or the returned end of the channel is dropped.
pub(crate) fn spawn(
    inbox: &Arc<Inbox<Work>>,
    snapshots: Arc<dyn Snapshots>,
    health: Arc<Health>,
) -> std::io::Result<mpsc::Sender<()>> {
    let (stop, stopped) = mpsc::channel();
    let inbox = Arc::downgrade(inbox);
    std::thread::Builder::new()
        .name("otobus-scrub".into())
        .spawn(move || while scrub_all(&inbox, &*snapshots, &health, &stopped, USUAL_SPEED).is_some() {})?;
    Ok(stop)
}

/// One pass over everything; `None` when told to stop.
fn scrub_all(
    inbox: &Weak<Inbox<Work>>,
    snapshots: &dyn Snapshots,
    health: &Health,
    stopped: &Receiver<()>,
    speed: Speed,
) -> Option<()> {
    let mut after = Position(0);
    loop {
        rest(stopped, speed.pause)?;
        let (reply, answer) = mpsc::channel();
        inbox.upgrade()?.put(Work::Scrub { after, reply });
        match answer.recv().ok()? {
            Some(scrub) => {
                after = scrub.first();
                scrub_one(&scrub, health, stopped, speed.bytes_per_second)?;
            }
            None => {
                scrub_snapshots(snapshots, health, stopped, speed)?;
                return rest(stopped, speed.every);
            }
        }
    }
}

/// Those that are there: damage to the one to fall back on shows on the day on which it is needed, and not before.
fn scrub_snapshots(
    snapshots: &dyn Snapshots,
    health: &Health,
    stopped: &Receiver<()>,
    speed: Speed,
) -> Option<()> {
    // What cannot be listed is told when the next one is put.
    for info in snapshots.latest().unwrap_or_default() {
        let owed = Duration::from_millis(info.bytes.saturating_mul(1_000) / speed.bytes_per_second);
        rest(stopped, speed.pause + owed)?;
        let read = snapshots.read(info.position, &mut |_| Ok(()));
        // A newer one may have taken its place meanwhile.
        let is_there = || {
            let left = snapshots.latest().unwrap_or_default();
            left.iter().any(|left| left.position == info.position)
        };
        if let Err(error) = read
            && is_there()
        {
            health.report_damage(&error.to_string());
        }
    }
    Some(())
}

fn scrub_one(scrub: &Scrub, health: &Health, stopped: &Receiver<()>, bytes_per_second: u64) -> Option<()> {
    let (mut unpaid, mut is_stopped) = (0, false);
    let mut pause = |bytes: u64| {
        unpaid += bytes;
        if unpaid >= bytes_per_second / 8 && !is_stopped {
            let owed = Duration::from_millis(unpaid.saturating_mul(1_000) / bytes_per_second);
            is_stopped = rest(stopped, owed).is_none();
            unpaid = 0;
        }
    };
    let checked = scrub.run(&mut pause, &mut |damage| health.report_damage(&damage.to_string()));
    if let Err(error) = checked {
        health.report_damage(&error.to_string());
    }
    (!is_stopped).then_some(())
}

/// Waits; `None` when told to stop meanwhile.
fn rest(stopped: &Receiver<()>, time: Duration) -> Option<()> {
    matches!(stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout)).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::disk::{Disk, Memory};
    use journal::{Draft, Epoch, Filling, Journal, Local, Options, Outcome};

    const HASTY: Speed =
        Speed { every: Duration::ZERO, pause: Duration::ZERO, bytes_per_second: u64::MAX / 1_000 };

    fn journal(memory: &Memory) -> Local {
        let (segment_bytes, first_segment_bytes) = (16 * 1024, 16 * 1024);
        let options = Options {
            filling: Filling::Never,
            segment_bytes,
            first_segment_bytes,
            reserve_segments: 0,
            ..Options::new(1)
        };
        let mut journal = Local::open(Arc::new(memory.clone()), options).unwrap();
        journal.fence(1, Epoch(journal.epoch().0 + 1)).unwrap();
        while journal.tail() < Position(40) {
            let mut draft = Draft::default();
            draft.push_body(&[journal.tail().0 as u8; 2_000]);
            let at = journal.tail().next();
            assert!(matches!(journal.append(&draft, at).unwrap().wait(), Outcome::Committed));
        }
        journal
    }

    /// Answers as the partition does, until nobody asks any more; how often it was asked.
    fn serve(inbox: &Inbox<Work>, journal: &Local, is_over: &Receiver<()>) -> usize {
        let (mut works, mut asked) = (Vec::new(), 0);
        while is_over.try_recv() == Err(mpsc::TryRecvError::Empty) {
            inbox.take_awake(&mut works);
            std::thread::yield_now();
            for work in works.drain(..) {
                let Work::Scrub { after, reply } = work else { panic!("{work:?}") };
                asked += 1;
                reply.send(journal.scrub(after)).unwrap();
            }
        }
        asked
    }

    fn contents(memory: &Memory) -> Vec<(String, Option<Vec<u8>>)> {
        memory.list().unwrap().into_iter().map(|name| (name.clone(), memory.content(&name))).collect()
    }

    /// One pass over everything; how many segments were looked at.
    fn scrub(memory: &Memory, journal: &Local) -> (Health, usize) {
        let (inbox, health) = (Arc::<Inbox<Work>>::default(), Health::default());
        let before = contents(memory);
        let ((_stop, stopped), (over, is_over)) = (mpsc::channel(), mpsc::channel());
        let asked = std::thread::scope(|scope| {
            let weak = Arc::downgrade(&inbox);
            let (health, inbox, snapshots) = (&health, &inbox, journal.snapshots());
            scope.spawn(move || {
                assert!(scrub_all(&weak, &*snapshots, health, &stopped, HASTY).is_some());
                drop(over);
            });
            serve(inbox, journal, &is_over)
        });
        assert_eq!(contents(memory), before, "nothing is changed, nothing is deleted");
        (health, asked - 1)
    }

    #[test]
    fn a_flipped_bit_in_any_segment_or_snapshot_is_found_and_nothing_is_skipped() {
        let memory = Memory::new();
        let mut journal = journal(&memory);
        for at in [20, 30] {
            journal.put_snapshot(Position(at), &mut |out| out.write_all(&[3; 300])).unwrap();
        }
        let all = journal.stretches().len();
        let (healthy, scrubbed) = scrub(&memory, &journal);
        assert_eq!((healthy.damage(), healthy.damages(), scrubbed), (None, 0, all));
        // In the middle of a body of the second segment, and in the third one.
        let names: Vec<_> =
            memory.list().unwrap().into_iter().filter(|name| name.ends_with(".segment")).collect();
        for name in &names[1..3] {
            memory.damage(name, |bytes| bytes[9_000] ^= 4);
        }
        let (health, scrubbed) = scrub(&memory, &journal);
        assert_eq!(scrubbed, all, "the others are looked at all the same");
        assert_eq!(health.damages(), 2);
        let damage = health.damage().unwrap();
        assert!(damage.contains(&names[1]) && damage.contains("at byte "), "{damage}");
        let offset: u64 =
            damage.split("at byte ").nth(1).and_then(|rest| rest.split(':').next()?.parse().ok()).unwrap();
        assert!((offset..offset + 2_100).contains(&9_000), "{damage}");
        for name in &names[1..3] {
            memory.damage(name, |bytes| bytes[9_000] ^= 4);
        }
        // The segment that is written, and the snapshot to fall back on.
        let snapshot = "00000000000000000020.snapshot";
        for (name, at) in [(names.last().unwrap().as_str(), 5_000), (snapshot, 100)] {
            memory.damage(name, |bytes| bytes[at] ^= 4);
            let (health, _) = scrub(&memory, &journal);
            assert_eq!(health.damages(), 1, "{name}");
            assert!(health.damage().is_some_and(|damage| damage.contains(name)), "{name}");
            memory.damage(name, |bytes| bytes[at] ^= 4);
        }
    }
}
